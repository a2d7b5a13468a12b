"""What a source does for its task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa

from formats.view import Position


class Source(Protocol):
    """One source task. positions: per split, offset in bytes and records so far; connector: what else to keep."""

    @property
    def finished(self) -> bool:
        """Whether every split has been read to its end."""

    @property
    def positions(self) -> tuple[Position, ...]:
        """How far each split of this task has been read."""

    def cut(self) -> tuple[Position, ...]:
        """How far each split has been read, for the copy of an epoch: what is read from now on belongs to the next."""

    @property
    def connector(self) -> dict[str, str] | None:
        """Facts that reading on needs besides positions."""

    def read(self) -> pa.RecordBatch | None:
        """The next rows; None at the end of the input."""

    def stop_at(self, offsets: Mapping[str, int] | None = None, *, lines: int | None = None) -> None:
        """Read no further, until it is called again. offsets: by split, the ends of lines; lines: at most so many."""
