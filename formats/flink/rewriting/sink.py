"""Where new streams of a copy go."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Sink(Protocol):
    """Takes the new files of a copy."""

    def write_pieces(self, name: str, pieces: Iterable[bytes]) -> int:
        """Write a file; the number of its bytes."""


class Measured:
    """Keeps nothing but how much would be written: a dry run does all the work, and writes nothing."""

    def __init__(self) -> None:
        self.files: dict[str, int] = {}

    def write_pieces(self, name: str, pieces: Iterable[bytes]) -> int:
        self.files[name] = sum(map(len, pieces))
        return self.files[name]
