"""The in-memory twin of a store's place."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath

from formats.errors import NotFound
from formats.storage.contract import UNFINISHED, Entry, Written, always, check_path


class MemoryStorage:
    """The in-memory twin, for tests and the simulator."""

    def __init__(self, root: str = "memory", *, may_show: Callable[[], None] = always) -> None:
        self._root = root
        self._may_show = may_show
        self._lock = threading.Lock()
        self._written: dict[str, float] = {}
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
        body = bytes(memoryview(data).cast("B"))
        self._may_show()
        with self._lock:
            if check_path(path) in self.files and not replace:
                raise FileExistsError(path)
            self.files[path] = body
            self._written[path] = time.time()

    def list(self, path: str) -> list[Entry]:
        if path:
            check_path(path)
        depth = len(PurePosixPath(path).parts) if path else 0
        sizes: dict[str, int | None] = {}
        for name, data in self.files.items():
            parts = PurePosixPath(name).parts
            if not path or name.startswith(path + "/"):
                sizes[parts[depth]] = len(data) if len(parts) == depth + 1 else None
        return sorted(Entry(name, size) for name, size in sizes.items() if not name.startswith(UNFINISHED))

    def size(self, path: str) -> int | None:
        data = self.files.get(check_path(path))
        return None if data is None else len(data)

    def delete(self, path: str) -> None:
        self.files.pop(check_path(path), None)

    def is_taken(self, path: str) -> bool:
        """Whether a file or a folder lies there."""
        return self.size(path) is not None or bool(self.list(path))

    def inventory(self) -> Sequence[Written]:
        """Every file, unfinished writes among them."""
        return sorted(Written(path, len(data), self._written.get(path, 0.0)) for path, data in self.files.items())

    def move(self, path: str, to: str) -> None:
        """A file, or all in a folder, under another name."""
        check_path(path)
        below = [name for name in self.files if name == path or name.startswith(f"{path}/")]
        if self.is_taken(to):
            raise FileExistsError(to)
        for name in below:
            self.files[to + name[len(path) :]] = self.files.pop(name)
