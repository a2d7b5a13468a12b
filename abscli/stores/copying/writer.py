"""Write the files of a copy, to any location: copied and hashed on the way, or rewritten."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from abscli.stores.pinned import difference, pieces, stale
from formats.errors import Damaged, FormatError, NotFound
from formats.plan import PinnedFile, Plan
from formats.storage import Storage

ANOTHER = "specify a new directory"
ELSEWHERE = "choose another location"


def in_the_way(to: str) -> FormatError:
    """The error for a target where there is something."""
    if "://" in to:
        return FormatError("already exists and is not empty", path=to, hint=ELSEWHERE)
    return FormatError("already exists and is not an empty directory", path=to, hint=ANOTHER)


class NewCopy(ABC):
    """A copy that is being written. files, bytes: written so far, once `settle` was called."""

    def __init__(self, progress: Callable[[int], None]) -> None:
        """progress: told the bytes of what is written."""
        self.files = 0
        self.bytes = 0
        self._progress = progress

    def copy(
        self,
        storage: Storage,
        path: str,
        name: str | None = None,
        *,
        start: int = 0,
        length: int | None = None,
        pinned: tuple[Plan[Any], PinnedFile] | None = None,
    ) -> None:
        """Copy a file, or a slice of it, to `name` (default: its own path); what is wrong may show in `settle`.

        pinned: a plan and what it says of the file. StalePlan if that is not what was copied, or the file is gone;
        Damaged if there is less than `length`.
        """
        self._later(lambda: self._copy(storage, path, name or path, start, length, pinned))

    def write(self, name: str, data: bytes) -> None:
        """Write a file with these bytes."""
        self._later(lambda: self._write(name, [data], len(data)))

    def write_pieces(self, name: str, pieces: Iterable[bytes]) -> int:
        """Write a file of these pieces, made as they are written; its bytes."""
        return self._write(name, pieces, None)

    def settle(self) -> None:
        """Until all that was asked for is written, and before what is asked for then; raises what went wrong."""
        return

    @property
    @abstractmethod
    def reading(self) -> Storage:
        """What is written so far, under the name that the copy is going to have."""

    def _copy(
        self,
        storage: Storage,
        path: str,
        name: str,
        start: int,
        length: int | None,
        pinned: tuple[Plan[Any], PinnedFile] | None,
    ) -> None:
        size = storage.size(path) if length is None else length
        digest = hashlib.sha256() if pinned is not None else None

        def read() -> Iterator[bytes]:
            for piece in pieces(storage, path, start, length):
                if digest is not None:
                    digest.update(piece)
                yield piece

        try:
            copied = self._write(name, read(), size)
        except NotFound:
            if pinned is None:
                raise
            raise stale(pinned[0], f"{path} is missing") from None
        if length is not None and copied < length:
            where = f"{storage.root}/{path}"
            raise Damaged(f"expected {length} bytes, got {copied} bytes", path=where, hint="check whether another "
                "process is changing the file")
        if pinned is not None and digest is not None:
            problem = difference(pinned[1], digest.hexdigest())
            if problem is not None:
                raise stale(pinned[0], problem)

    def _later(self, step: Callable[[], object]) -> None:
        """Do it now, or beside others by the time of `settle`."""
        step()

    @abstractmethod
    def _write(self, name: str, data: Iterable[bytes], size: int | None) -> int:
        """Write a file; its bytes. size: as far as it is known."""
