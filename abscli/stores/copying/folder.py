"""Copies on this machine: a new folder that is there whole, or not at all.

It is written beside its place as `.NAME.tmp-...`, synced, and renamed in one step. While it is written its owner holds
a lock on it, which ends with the owner however that ends: so the next copy to the same name can tell what a process
that was killed has left, and removes it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator

from abscli.stores.copying.writer import NewCopy, in_the_way
from formats.disk import make_folder, sync_folder, writing
from formats.errors import FormatError
from formats.storage import UNFINISHED, LocalStorage, check_path

_DEEPEST = 100
"""Directories that a file of a copy may lie in: far more than any system's do, and what can be removed again."""


class _Placed(LocalStorage):
    """A folder under the name that it is going to have."""

    def __init__(self, folder: str, to: str) -> None:
        super().__init__(folder)
        self._to = to

    @property
    def root(self) -> str:
        return self._to


class NewFolder(NewCopy):
    """A copy that is being written. path: where it is until it is whole; files, bytes: written so far."""

    def __init__(self, path: str, to: str, progress: Callable[[int], None]) -> None:
        super().__init__(progress)
        self.path = path
        self._to = to
        self._folders = {path}

    @property
    def reading(self) -> LocalStorage:
        """What is written so far, under the name that the copy is going to have."""
        return _Placed(self.path, self._to)

    def _write(self, name: str, data: Iterable[bytes], size: int | None) -> int:
        full = os.path.join(self.path, check_path(name))
        if name.count("/") > _DEEPEST:
            raise FormatError(f"a file is nested more than {_DEEPEST} directories deep", path=self._to)
        final = os.path.join(self._to, name)  # what an error names: the other is gone by then
        written = 0
        with writing(final, size):
            self._make(os.path.dirname(full))
            out = open(full, "xb")  # noqa: SIM115  # closed below: what is read in between has errors of its own
        try:
            for piece in data:
                with writing(final, size):
                    out.write(piece)
                written += len(piece)
                self._progress(len(piece))
            with writing(final, size):
                out.flush()
                os.fsync(out.fileno())
        finally:
            with contextlib.suppress(OSError):  # of what `flush` could not write either
                out.close()
        self.files += 1
        self.bytes += written
        return written

    def _make(self, folder: str) -> None:
        if folder not in self._folders:
            self._make(os.path.dirname(folder))
            os.mkdir(folder)
            self._folders.add(folder)

    def sync(self) -> None:
        """Make every name in it durable."""
        for folder in self._folders:
            sync_folder(folder)


@contextlib.contextmanager
def new_folder(to: str, progress: Callable[[int], None] = lambda count: None) -> Iterator[NewFolder]:
    """A folder that appears at `to` (see `check_target`) when the block ends, and not at all if it raises.

    progress: told the bytes of every piece that is written.
    """
    with writing(to):
        make_folder(os.path.dirname(to))
        clear_dead(to)
        path, lock = _begin(to)
    try:
        folder = NewFolder(path, to, progress)
        yield folder
        with writing(to):
            folder.sync()
            _appear(path, to)
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    finally:
        os.close(lock)


def clear_dead(to: str) -> None:
    """Remove what copies to `to` have left whose processes are gone; nothing else."""
    folder, name = os.path.split(to)
    own = re.compile(re.escape(f".{name}{UNFINISHED}") + "[0-9a-f]{16}")
    for other in os.listdir(folder):
        if own.fullmatch(other):
            with contextlib.suppress(OSError):  # its owner lives, or it is gone already, or it cannot be locked
                _clear(os.path.join(folder, other))


def _clear(path: str) -> None:
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        return
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(lock)


def _begin(to: str) -> tuple[str, int]:
    """A new folder beside `to`, and the descriptor that holds its lock."""
    folder, name = os.path.split(to)
    while True:
        path = os.path.join(folder, f".{name}{UNFINISHED}{secrets.token_hex(8)}")
        os.mkdir(path)
        with contextlib.suppress(FileNotFoundError):  # another copy took it for a dead one's before it was locked
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            with contextlib.suppress(OSError):  # a file system without locks: there nothing is ever cleared
                fcntl.flock(lock, fcntl.LOCK_EX)
            if os.path.exists(path):
                return path, lock
            os.close(lock)


def _appear(path: str, to: str) -> None:
    """Give the folder its name; FormatError if somebody has put something there meanwhile."""
    try:
        os.rename(path, to)  # of an empty directory it takes the place; anything else there refuses it
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise in_the_way(to) from None
        raise
    sync_folder(os.path.dirname(to))
