"""What a source does for its task."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

import pyarrow as pa

from formats.view import Position


class Source(Protocol):
    """One source task. positions: per split, offset in bytes and records so far; connector: what else to keep.

    Rows of several splits that are read at once come in the order of the positions.
    """

    @property
    def finished(self) -> bool:
        """Whether every split has been read to its end."""

    @property
    def positions(self) -> tuple[Position, ...]:
        """How far each split of this task has been read."""

    def cut(self) -> tuple[Position, ...]:
        """How far each split has been read, for the copy of an epoch: what is read from now on belongs to the next."""

    @property
    def unread(self) -> Collection[str]:
        """The splits that are not read to their end, as far as it is known."""

    @property
    def waiting(self) -> Collection[str]:
        """Those among them that have no rows now, and may have later."""

    @property
    def split(self) -> int:
        """The number of the split that the rows read last are of, where their order follows from when they came; else
        0."""

    @property
    def connector(self) -> dict[str, str] | None:
        """Facts that reading on needs besides positions."""

    @property
    def watermark(self) -> int | None:
        """How far event time has come in what was read (`formats.watermark`): no row that is still to come has an
        earlier one, but for late ones. None where nothing is known of it."""

    @property
    def waits_for(self) -> str | None:
        """What outside of the job it has been waiting for, for a while: a clause, as "the database does not answer"."""

    def read(self) -> pa.RecordBatch | None:
        """The next rows; None at the end of the input."""

    def read_again(self, split: int, rows: int) -> pa.RecordBatch | None:
        """What a read has returned before, from the same positions, whatever else there is by now: so many rows of the
        split of this number."""

    def stop_at(self, offsets: Mapping[str, int] | None = None, *, lines: int | None = None) -> None:
        """Read no further, until it is called again. offsets: by split, the ends of lines; lines: at most so many."""

    def close(self) -> None:
        """Let go of what it has open: it is asked nothing any more."""
