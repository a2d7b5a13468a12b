"""A checkpoint as it is with some files at other places, or without them: what a copy of it would be. Only read."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Set

from formats.errors import NotFound
from formats.storage import Entry, Storage


class Rearranged:
    """A storage in which files lie where they belong. moved: by the path that a file has here, its own path; hidden:
    paths that are not there."""

    def __init__(self, storage: Storage, moved: Mapping[str, str], hidden: Set[str] = frozenset()) -> None:
        self.storage = storage
        self.moved = dict(moved)
        self.hidden = frozenset(hidden) - moved.keys()
        self._folders: dict[str, set[str]] = {}
        for path in (*self.moved, *self.hidden):
            folder, name = posixpath.split(path)
            self._folders.setdefault(folder, set()).add(name)

    @property
    def root(self) -> str:
        return self.storage.root

    def own(self, path: str) -> str:
        """Where a file lies that is here at a path; NotFound if it is hidden."""
        if path in self.hidden:
            raise NotFound("no such file", path=f"{self.root}/{path}")
        return self.moved.get(path, path)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        return self.storage.read(self.own(path), offset, length)

    def put(self, path: str, data: bytes | memoryview, *, replace: bool = False) -> None:
        raise PermissionError(f"{self.root}: this view of it is read-only")

    def delete(self, path: str) -> None:
        raise PermissionError(f"{self.root}: this view of it is read-only")

    def list(self, path: str) -> list[Entry]:
        changed = self._folders.get(path, set())
        entries = [entry for entry in self.storage.list(path) if entry.size is None or entry.name not in changed]
        for name in changed:
            size = self.size(posixpath.join(path, name))
            if size is not None:
                entries.append(Entry(name, size))
        there = {entry.name for entry in entries}
        # Folders that have only files which lie elsewhere.
        for folder, names in self._folders.items():
            above, name = posixpath.split(folder)
            if above == path and name not in there and any(f"{folder}/{one}" in self.moved for one in names):
                entries.append(Entry(name, None))
        return sorted(entries)

    def size(self, path: str) -> int | None:
        return None if path in self.hidden else self.storage.size(self.moved.get(path, path))
