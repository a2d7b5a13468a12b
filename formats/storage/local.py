"""A store on a file system: written under another name, synced, and linked or renamed into place."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Sequence

from formats.disk import make_folder, sync_folder, writing
from formats.errors import Damaged, NotFound, UnsafePath
from formats.storage.contract import UNFINISHED, Entry, Written, always, check_path

TRIES = 100
"""To write into a directory that others remove when it is empty."""

_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})
_NO_FILE = frozenset({errno.ELOOP, errno.ENXIO})  # a link to itself, a socket


def _give_name(temporary: str, full: str) -> None:
    """A second name for a file; FileExistsError if another has it."""
    try:
        os.link(temporary, full)
    except FileExistsError:
        # NFS asks again where a reply was lost, and is told of the link that its first request has made.
        if not os.path.samestat(os.lstat(temporary), os.lstat(full)):
            raise


class LocalStorage:
    """A directory. Writes go to a temporary name, are synced, and renamed (or linked, to never overwrite).

    may_show: called just before a file gets its name; what it raises leaves nothing there.
    """

    def __init__(self, root: str | os.PathLike[str], *, may_show: Callable[[], None] = always) -> None:
        self._may_show = may_show
        self._root = os.fspath(root)
        self._real = os.path.realpath(self._root)
        self._below = os.path.join(self._real, "")
        self._made: set[str] = set()
        self._checked = {self._real}

    @property
    def root(self) -> str:
        return self._root

    def local_path(self, path: str) -> str:
        """The file system path of a file; UnsafePath if it (through a symbolic link, too) leads out of the root."""
        full = self._below + check_path(path)
        if self._is_plain(os.path.dirname(full)) and not os.path.islink(full):
            return full
        real = os.path.realpath(full)
        if real != full and not real.startswith(self._below):
            raise UnsafePath(f"leads out of the store, to {real}", path=full, hint="remove the symbolic link")
        return full

    def _is_plain(self, folder: str) -> bool:
        """Whether neither a directory nor what it lies in, up to the root, is a symbolic link; looked up once each."""
        unchecked = []
        while folder not in self._checked:
            if len(folder) <= len(self._real):
                return False
            unchecked.append(folder)
            folder = os.path.dirname(folder)
        for below in reversed(unchecked):
            if os.path.islink(below):
                return False
            if os.path.isdir(below):
                self._checked.add(below)
        return True

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        full = self.local_path(path)
        try:
            fd = os.open(full, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe in its place must not hang us
        except OSError as error:
            if error.errno in _ABSENT:
                raise NotFound("no such file", path=full) from None
            if error.errno in _NO_FILE:
                raise Damaged("is not a plain file", path=full) from None
            raise
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(fd)
            raise Damaged("is not a plain file", path=full)
        with open(fd, "rb") as f:
            if offset:
                f.seek(offset)
            # Room is made for as many as are asked for, and a length that facts name may be any number.
            return f.read() if length is None else f.read(min(length, max(0, status.st_size - offset)))

    def put(self, path: str, data: bytes | memoryview, *, replace: bool = False) -> None:
        full = self.local_path(path)
        with writing(full, memoryview(data).nbytes):
            self._put(full, [data], replace=replace)

    def put_pieces(self, path: str, pieces: Iterable[bytes]) -> None:
        """See `TakesPieces`."""
        full = self.local_path(path)
        with writing(full):
            self._put(full, pieces, replace=False)

    def _put(self, full: str, pieces: Iterable[bytes | memoryview], *, replace: bool) -> None:
        folder = os.path.dirname(full)
        temporary = os.path.join(folder, UNFINISHED + secrets.token_hex(8))
        for left in reversed(range(TRIES)):
            try:
                self._make(folder)
                fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)  # less the umask
                break
            except FileNotFoundError:
                # Whoever deletes the last file of a directory removes it, too, between our two steps: it is made again.
                if not left:
                    raise
        try:
            with open(fd, "wb") as f:
                for piece in pieces:
                    f.write(piece)
                f.flush()
                os.fsync(f.fileno())
            self._may_show()
            if replace:
                os.replace(temporary, full)
            else:
                _give_name(temporary, full)
                os.unlink(temporary)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        sync_folder(folder)

    def list(self, path: str) -> list[Entry]:
        full = self.local_path(path) if path else self._real
        try:
            with os.scandir(full) as entries:
                listed = [
                    Entry(e.name, None if e.is_dir(follow_symlinks=False) else e.stat(follow_symlinks=False).st_size)
                    for e in entries
                    if not e.name.startswith(UNFINISHED)
                ]
        except OSError as error:
            if error.errno in _ABSENT | _NO_FILE:
                return []
            raise
        return sorted(listed)

    def size(self, path: str) -> int | None:
        try:
            status = os.stat(self.local_path(path))
        except OSError as error:
            if error.errno in _ABSENT | _NO_FILE:
                return None
            raise
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def delete(self, path: str) -> None:
        full = self.local_path(path)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(full)
        folder = os.path.dirname(full)
        with contextlib.suppress(OSError):
            while folder != self._real:
                os.rmdir(folder)
                self._made.discard(folder)
                self._checked.discard(folder)
                folder = os.path.dirname(folder)

    def move(self, path: str, to: str) -> None:
        """Give what lies there, whatever it is, another name, durably; FileExistsError if something has that name."""
        source, target = self.local_path(path), self.local_path(to)
        with writing(target):
            self._make(os.path.dirname(target))
            if os.path.lexists(target):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
            os.rename(source, target)
        sync_folder(os.path.dirname(target))
        sync_folder(os.path.dirname(source))

    def is_taken(self, path: str) -> bool:
        """Whether anything lies there, be it a file, a folder or a link that leads nowhere."""
        return os.path.lexists(self.local_path(path))

    def inventory(self) -> Sequence[Written]:
        """Every file below the root, unfinished writes among them; symbolic links are not followed."""
        files = []
        for folder, _, names in os.walk(self._real):
            for name in names:
                full = os.path.join(folder, name)
                status = os.lstat(full)
                files.append(Written(full.removeprefix(self._below), status.st_size, status.st_mtime))
        return sorted(files)

    def _make(self, folder: str) -> None:
        if folder in self._made and os.path.isdir(folder):
            return
        self._made.update(make_folder(folder))
