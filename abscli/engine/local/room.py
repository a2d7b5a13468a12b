"""Where kept frames lie: in memory up to a bound, then on local disk, in files without a name that are gone with the
process."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass

DISK_TIMES = 4
"""So many times as much as in memory may lie on disk."""

FILE_BYTES = 64 << 20


@dataclass(slots=True)
class _File:
    """Memory that is a file: what is written stands on disk, and the system may take its pages. used: bytes."""

    memory: mmap.mmap
    used: int = 0


@dataclass(frozen=True, slots=True)
class Placed:
    """A frame in its place. file: None in memory."""

    frame: memoryview
    file: _File | None = None


class Room:
    """For one worker's frames. memory: bytes."""

    def __init__(self, memory: int) -> None:
        self._bound = memory
        self._in_memory = 0
        self._files: list[_File] = []

    @property
    def on_disk(self) -> int:
        """Bytes of files."""
        return sum(len(file.memory) for file in self._files)

    def put(self, frame: memoryview) -> Placed | None:
        """Keep a frame; None where there is no room for it any more."""
        size = len(frame)
        if self._in_memory + size <= self._bound:
            self._in_memory += size
            return Placed(frame)
        file = self._files[-1] if self._files else None
        if file is None or file.used + size > len(file.memory):
            file = self._new_file(size)
        if file is None:
            return None
        begin, file.used = file.used, file.used + size
        file.memory[begin : file.used] = frame
        return Placed(memoryview(file.memory)[begin : file.used], file)

    def settle(self, placed: Iterable[Placed]) -> None:
        """Only these are kept from now on: all other room is free."""
        self._in_memory = 0
        files = set[int]()
        for each in placed:
            if each.file is None:
                self._in_memory += len(each.frame)
            else:
                files.add(id(each.file))
        # Who still sends a frame has its own view of the file, which goes when the last one does.
        self._files = [file for file in self._files if id(file) in files]

    def _new_file(self, least: int) -> _File | None:
        free = self._bound * DISK_TIMES - self.on_disk
        size = max(least, min(FILE_BYTES, free))
        if size > free:
            return None
        try:
            with tempfile.TemporaryFile(prefix="abs-kept-") as file:
                # Its blocks are taken now: where the disk is full, a write to the memory would end the process.
                os.posix_fallocate(file.fileno(), 0, size)
                self._files.append(_File(mmap.mmap(file.fileno(), size)))
        except OSError:
            return None
        return self._files[-1]
