"""Where a store's bytes lie: five methods, on a local file system, in memory, or read-only behind a URI.

The consistency contract: after `put` returns, the file is whole, durable and visible under its name; before, no
reader sees a part of it. A crash leaves the old state or the new one. `put` without `replace` never overwrites.
Paths are relative, with `/`; one that leads out of the root raises UnsafePath.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import secrets
import stat
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from formats.disk import make_folder, sync_folder, writing
from formats.errors import Damaged, FormatError, NotFound, Unreachable, UnsafePath

if TYPE_CHECKING:
    import pyarrow as pa


class Entry(NamedTuple):
    """One name in a directory; size in bytes, None for a directory."""

    name: str
    size: int | None


class Storage(Protocol):
    """The byte-level interface; see the module for the contract."""

    @property
    def root(self) -> str:
        """What messages call it."""

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """The bytes of a file, or a slice of them; NotFound if there is no such file."""

    def put(self, path: str, data: bytes | memoryview, *, replace: bool = False) -> None:
        """Make a whole file appear, durably and in one step; FileExistsError unless `replace`."""

    def list(self, path: str) -> list[Entry]:
        """The names in a directory, sorted; empty if there is none. Names of unfinished writes are left out."""

    def size(self, path: str) -> int | None:
        """Size in bytes of a file; None if there is no such file (a directory or a pipe is none)."""

    def delete(self, path: str) -> None:
        """Remove a file, and its directory when that is empty; nothing if it is not there."""


def check_path(path: str) -> str:
    """`path` itself if it is relative and stays below the root; UnsafePath otherwise."""
    doubtful = not path or path[0] in "/." or path[-1] == "/" or "/." in path or "//" in path
    if "\\" in path or "\0" in path or (doubtful and any(part in ("", ".", "..") for part in path.split("/"))):
        raise UnsafePath(
            f"{path!r} is not a plain relative path",
            hint="the file that names it was not written by abs; do not trust this store",
        )
    return path


UNFINISHED = ".tmp-"
TRIES = 100
"""To write into a directory that others remove when it is empty."""

_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})
_NO_FILE = frozenset({errno.ELOOP, errno.ENXIO})  # a link to itself, a socket


def always() -> None:
    """Nothing is in the way of a file's getting its name. A function with a name: storages go to other processes."""


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
                raise Damaged("is no plain file", path=full) from None
            raise
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise Damaged("is no plain file", path=full)
        with open(fd, "rb") as f:
            if offset:
                f.seek(offset)
            return f.read() if length is None else f.read(length)

    def put(self, path: str, data: bytes | memoryview, *, replace: bool = False) -> None:
        full = self.local_path(path)
        with writing(full, memoryview(data).nbytes):
            self._put(full, data, replace=replace)

    def _put(self, full: str, data: bytes | memoryview, *, replace: bool) -> None:
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
                f.write(data)
                f.flush()
                os.fsync(f.fileno())
            self._may_show()
            if replace:
                os.replace(temporary, full)
            else:
                os.link(temporary, full)
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

    def _make(self, folder: str) -> None:
        if folder in self._made and os.path.isdir(folder):
            return
        self._made.update(make_folder(folder))


class MemoryStorage:
    """The in-memory twin, for tests and the simulator."""

    def __init__(self, root: str = "memory") -> None:
        self._root = root
        self.files: dict[str, bytes] = {}

    @property
    def root(self) -> str:
        return self._root

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        try:
            data = self.files[check_path(path)]
        except KeyError:
            raise NotFound("no such file", path=f"{self._root}/{path}") from None
        return data[offset:] if length is None else data[offset : offset + length]

    def put(self, path: str, data: bytes | memoryview, *, replace: bool = False) -> None:
        if check_path(path) in self.files and not replace:
            raise FileExistsError(path)
        self.files[path] = bytes(data)

    def list(self, path: str) -> list[Entry]:
        depth = len(PurePosixPath(path).parts) if path else 0
        sizes: dict[str, int | None] = {}
        for name, data in self.files.items():
            parts = PurePosixPath(name).parts
            if not path or name.startswith(path + "/"):
                sizes[parts[depth]] = len(data) if len(parts) == depth + 1 else None
        return sorted(Entry(name, size) for name, size in sizes.items())

    def size(self, path: str) -> int | None:
        data = self.files.get(check_path(path))
        return None if data is None else len(data)

    def delete(self, path: str) -> None:
        self.files.pop(check_path(path), None)


REACH = "are the URI, the network and the credentials right?"
SCHEMES = "s3://, gs://, abfs://, abfss://, hdfs://, file://"
ALIASES = (
    (re.compile(r"^s3[an]://"), "s3://"),
    (re.compile(r"^wasb(s?)://([^@/]+)@([^/]+)\.blob\."), r"abfs\1://\2@\3.dfs."),
)
"""Hadoop's names of stores, as Spark and Flink write them, and what they are called here."""


def common_name(uri: str) -> str:
    """A URI under the name that a store has here, whatever Hadoop's client for it is called."""
    for pattern, name in ALIASES:
        uri = pattern.sub(name, uri)
    return uri


class ArrowStorage:
    """A bucket or file system behind a URI that `pyarrow.fs` knows; reading only.

    Object stores have no atomic, exclusive rename, so nothing is written there.
    """

    def __init__(self, uri: str) -> None:
        import pyarrow as pa
        from pyarrow import fs

        self._root = uri if uri.endswith("://") else uri.rstrip("/")
        self._fs: Any
        self._failures = (OSError, ValueError, pa.ArrowException)
        try:
            self._fs, self._base = fs.FileSystem.from_uri(common_name(self._root))
        except self._failures as error:
            if "Unrecognized filesystem type" in _first_line(error):
                message = "is of no kind of store that is known here"
                raise FormatError(message, path=self._root, hint=f"known are {SCHEMES}") from None
            raise self._unreachable(error) from None
        if not self._base:
            raise FormatError("names no bucket", path=self._root, hint="give the bucket and the path in it")

    def _unreachable(self, error: Exception) -> Unreachable:
        return Unreachable(_first_line(error), path=self._root, hint=REACH)

    @property
    def root(self) -> str:
        return self._root

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        try:
            with self._fs.open_input_file(f"{self._base}/{check_path(path)}") as f:
                f.seek(offset)
                return bytes(f.read() if length is None else f.read(length))
        except FileNotFoundError:
            raise NotFound("no such file", path=f"{self._root}/{path}") from None
        except self._failures as error:
            raise self._unreachable(error) from None

    def put(self, path: str, data: bytes | memoryview, *, replace: bool = False) -> None:
        raise PermissionError(f"{self._root}: stores behind a URI are read-only")

    def list(self, path: str) -> list[Entry]:
        from pyarrow import fs

        where = f"{self._base}/{check_path(path)}" if path else self._base
        try:
            infos = self._fs.get_file_info(fs.FileSelector(where, allow_not_found=True))
        except self._failures as error:
            raise self._unreachable(error) from None
        return sorted(Entry(i.base_name, i.size if i.type == fs.FileType.File else None) for i in infos)

    def size(self, path: str) -> int | None:
        from pyarrow import fs

        try:
            info = self._fs.get_file_info(f"{self._base}/{check_path(path)}")
        except self._failures as error:
            raise self._unreachable(error) from None
        return int(info.size) if info.type == fs.FileType.File else None

    def delete(self, path: str) -> None:
        raise PermissionError(f"{self._root}: stores behind a URI are read-only")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def local_name(path: str) -> str:
    """The path that a URI of this machine names: file:///a, and file:/a as Java writes it; others as they are."""
    return re.sub("^file:(//(?=/)|(?=/(?!/)))", "", path)


def absolute(path: str) -> str:
    """The same place from every working directory; a URI as it is."""
    path = local_name(path)
    return path if "://" in path else os.path.abspath(path)


def no_directory(path: str) -> str | None:
    """Why no directory is or can be made at a local path: what is in the way; None if nothing is."""
    place = os.path.abspath(path)
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    if os.path.isdir(place):
        return None
    thing = "a link that leads nowhere" if not os.path.exists(place) else "a file"
    return f"{'it' if place == os.path.abspath(path) else place} is {thing}"


def open_storage(path: str) -> LocalStorage | ArrowStorage:
    """The storage at a directory or URI; NotFound if a local path is no directory."""
    path = local_name(path)
    if "://" in path:
        return ArrowStorage(path)
    if not os.path.isdir(path):
        hint = "give the directory of a store of abs, of a job or savepoint of Flink, or a checkpoint of Spark"
        if path.startswith("dbfs:/"):
            hint = "on a Databricks machine dbfs:/x is the folder /dbfs/x"
        raise NotFound("no such store", path=path, hint=hint)
    return LocalStorage(path)


def top_folder(path: str) -> str:
    """The first directory of a path from the root; the path itself if it lies in none."""
    return path.partition("/")[0]


def file_name(path: str) -> str:
    """The last part of a path or URI, a trailing slash aside."""
    return path.rstrip("/").rpartition("/")[2]


def walk(storage: Storage, path: str = "") -> list[Entry]:
    """Every file at or below `path`, as (path from the root, size)."""
    files: list[Entry] = []
    stack = [path]
    while stack:
        folder = stack.pop()
        for entry in storage.list(folder):
            name = f"{folder}/{entry.name}" if folder else entry.name
            if entry.size is None:
                stack.append(name)
            else:
                files.append(Entry(name, entry.size))
    return sorted(files)


class Slices(io.RawIOBase):
    """What Python's and Arrow's libraries take for a file; a subclass reads from `_at` on, and moves it."""

    def __init__(self, size: int) -> None:
        self._size, self._at = size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at


class StoredFile(Slices):
    """A file of a storage, read in slices, never whole."""

    def __init__(self, storage: Storage, path: str, size: int) -> None:
        super().__init__(size)
        self._storage, self._path = storage, path

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._size - self._at)
        data = self._storage.read(self._path, self._at, left if size < 0 else min(size, left))
        self._at += len(data)
        return data


def open_input(storage: Storage, path: str) -> pa.NativeFile:
    """A file to be read in slices by Arrow's readers; NotFound, Damaged if it is no plain file."""
    import pyarrow as pa

    size = storage.size(path)
    if size is None:
        raise NotFound("no such file", path=f"{storage.root}/{path}")
    if isinstance(storage, LocalStorage):
        return pa.OSFile(storage.local_path(path))
    return pa.PythonFile(StoredFile(storage, path, size), mode="r")
