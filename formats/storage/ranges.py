"""Files that lie in another one: a path may name a run of bytes of a pack, and what they are.

    <folder>/<name>.pack@<offset, 12 digits>+<length, 12 digits>/<name of the file in it>

Here alone such a path becomes bytes; a plain one is read as it is. Whoever asks what lies where, or what may go, asks
for the file that a path's bytes lie in: `whole_file`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from formats.errors import NotFound
from formats.storage.contract import Storage

PACK = ".pack"
"""How the name of a file ends that others lie in."""
_RANGE = re.compile(rf"(.+{re.escape(PACK)})@([0-9]{{12}})\+([0-9]{{12}})/(.+)", re.DOTALL)


class Range(NamedTuple):
    """A run of bytes.

    file: that they lie in.
    name: what they are called there.
    """

    file: str
    offset: int
    length: int
    name: str

    @property
    def path(self) -> str:
        """The path that names it; of the same length wherever in the file it lies."""
        return f"{self.file}@{self.offset:012d}+{self.length:012d}/{self.name}"


def range_of(path: str) -> Range | None:
    """The range that a path names; None for the path of a file."""
    match = _RANGE.fullmatch(path) if "@" in path else None
    return Range(match[1], int(match[2]), int(match[3]), match[4]) if match is not None else None


def whole_file(path: str) -> str:
    """The file that a path's bytes lie in: of a plain path itself."""
    named = range_of(path)
    return path if named is None else named.file


def read(storage: Storage, path: str, offset: int = 0, length: int | None = None) -> bytes:
    """As `Storage.read`, of a file or a range."""
    named = range_of(path)
    if named is None:
        return storage.read(path, offset, length)
    left = max(0, named.length - offset)
    return storage.read(named.file, named.offset + offset, left if length is None else min(left, length))


def size(storage: Storage, path: str) -> int | None:
    """As `Storage.size`, of a file or a range: one that its file ends before has as many bytes as are there."""
    named = range_of(path)
    if named is None:
        return storage.size(path)
    whole = storage.size(named.file)
    return None if whole is None else size_within(named, whole)


def size_within(named: Range, whole: int) -> int:
    """Bytes of a range that are there in a file of so many."""
    return max(0, min(named.length, whole - named.offset))


def known_size(storage: Storage, path: str) -> int:
    """As `size`; NotFound where there is no such file."""
    there = size(storage, path)
    if there is None:
        raise NotFound("no such file", path=f"{storage.root}/{path}")
    return there
