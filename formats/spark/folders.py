"""Listings and bytes of a checkpoint's many small files, with as few calls to the file system as they need.

A large checkpoint has hundreds of thousands of files of some hundred bytes, and as many hidden checksum files beside
them: a stat and the checks of a path for each cost more than all that is done with what is read.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from formats.errors import Damaged
from formats.storage import UNFINISHED, LocalStorage, Storage

LARGEST_FILE = 1 << 33
"""Files larger than this are not read."""
_SMALL = 1 << 12
"""Bytes that are asked for in one go of a file whose size is not known."""
_LARGE = 1 << 26
"""Bytes that are not asked for in one go."""
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW


class Listing(NamedTuple):
    """What is in a folder.

    files: sizes by name.
    hidden: files whose names begin with a dot, of unknown size.
    """

    files: dict[str, int]
    hidden: set[str]
    folders: list[str]


class Folders:
    """Lists and reads below a storage; a local one directly."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._local = storage if isinstance(storage, LocalStorage) else None
        self._folder: str | None = None
        self._prefix = ""

    def listing(self, folder: str) -> Listing:
        """The names in a folder, in no order; none if it is not there. UnsafePath if it leads out of the root."""
        listing = Listing({}, set(), [])
        files, hidden, folders = listing
        if self._local is None:
            for name, size in self.storage.list(folder):
                if size is None:
                    folders.append(name)
                elif name[0] == ".":
                    hidden.add(name)
                else:
                    files[name] = size
            return listing
        try:
            with os.scandir(os.path.dirname(self._local.local_path(f"{folder}/x" if folder else "x"))) as entries:
                for entry in entries:
                    name = entry.name
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(name)
                    elif name[0] != ".":
                        files[name] = entry.stat(follow_symlinks=False).st_size
                    elif not name.startswith(UNFINISHED):
                        hidden.add(name)
        except (FileNotFoundError, NotADirectoryError):
            pass
        return listing

    def read(self, folder: str, name: str, size: int | None) -> bytes:
        """The bytes of a file. size: as the listing has it, if it does; NotFound, Damaged, UnsafePath."""
        path = f"{folder}/{name}" if folder else name
        if self._local is not None:
            if folder != self._folder:
                self._prefix = os.path.dirname(self._local.local_path(path)) + os.sep
                self._folder = folder
            data = _at_once(self._prefix + name, _SMALL if size is None else size + 1)
            if data is not None:
                return data
        if size is None:
            size = self.storage.size(path) or 0
        if size > LARGEST_FILE:
            raise Damaged(f"has {size} bytes, more than {LARGEST_FILE}", path=path)
        return self.storage.read(path)


def _at_once(path: str, most: int) -> bytes | None:
    """The bytes of a plain file that has fewer than `most`, and some; None for what needs a closer look."""
    if most > _LARGE:
        return None
    try:
        fd = os.open(path, _FLAGS)
        try:
            data = os.read(fd, most)
        finally:
            os.close(fd)
    except OSError:
        return None
    return data if 0 < len(data) < most else None
