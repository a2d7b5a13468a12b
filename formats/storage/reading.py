"""What is read of any storage in one way: all files of a folder, and a file in slices for other libraries."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from formats.errors import NotFound
from formats.storage.contract import Entry, Storage
from formats.storage.local import LocalStorage

if TYPE_CHECKING:
    import pyarrow as pa


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
