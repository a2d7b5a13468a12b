"""What is read of any storage in one way: all files of a folder, and a file in slices for other libraries."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from formats.errors import UnsafePath
from formats.storage.contract import AT_ONCE, UNFINISHED, Entry, ServedStorage, Storage
from formats.storage.local import LocalStorage
from formats.storage.objects import ObjectStorage
from formats.storage.ranges import known_size, range_of, read

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
R = TypeVar("R")


def top_folder(path: str) -> str:
    """The first directory of a path from the root; the path itself if it lies in none."""
    return path.partition("/")[0]


def file_name(path: str) -> str:
    """The last part of a path or URI, a trailing slash aside."""
    return path.rstrip("/").rpartition("/")[2]


def written_at(storage: Storage, path: str) -> float | None:
    """When a file was last written (or copied), as seconds since 1970; None if that is not known."""
    if isinstance(storage, ServedStorage):
        return storage.written(path)
    if not isinstance(storage, LocalStorage):
        return None
    try:
        return os.stat(storage.local_path(path)).st_mtime
    except (OSError, UnsafePath):
        return None


def walk(storage: Storage, path: str = "") -> list[Entry]:
    """Every file at or below `path`, as (path from the root, size)."""
    if isinstance(storage, ServedStorage):
        below = storage.below(path)
        return [Entry(file.path, file.bytes) for file in below if f"/{UNFINISHED}" not in f"/{file.path}"]
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


def concurrently(storage: Storage, function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """What a function answers of each item, in their order. Where each question goes to a server and back, many are
    asked at once; what the first that fails has raised is raised."""
    if not isinstance(storage, ServedStorage):
        return [function(item) for item in items]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="abs-ask") as pool:
        return list(pool.map(function, items))


@contextlib.contextmanager
def deciding(storage: Storage, *, decides: bool = True, is_held: bool = False) -> Iterator[None]:
    """Make lists of an object store show all that was written before, in this context; other lists always do.

    decides, is_held: see `ObjectStorage.deciding`.
    """
    if isinstance(storage, ObjectStorage):
        with storage.deciding(decides=decides, is_held=is_held):
            yield
    else:
        yield


def is_deciding(storage: Storage) -> bool:
    """Return whether this is such a context."""
    return isinstance(storage, ObjectStorage) and storage.is_deciding


def delete_all(storage: Storage, paths: Iterable[str]) -> None:
    """Remove files, in no order; nothing if they are not there."""
    if isinstance(storage, ServedStorage):
        storage.delete_all(paths)
    else:
        for path in paths:
            storage.delete(path)


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
    """A file of a storage or a range of one, read in slices, never whole."""

    def __init__(self, storage: Storage, path: str, size: int) -> None:
        super().__init__(size)
        self._storage, self._path = storage, path

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._size - self._at)
        data = read(self._storage, self._path, self._at, left if size < 0 else min(size, left))
        self._at += len(data)
        return data


def open_input(storage: Storage, path: str) -> pa.NativeFile:
    """A file or a range to be read in slices by Arrow's readers; NotFound, Damaged if it is no plain file."""
    import pyarrow as pa

    size = known_size(storage, path)
    if isinstance(storage, LocalStorage) and range_of(path) is None:
        return pa.OSFile(storage.local_path(path))
    return pa.PythonFile(StoredFile(storage, path, size), mode="r")
