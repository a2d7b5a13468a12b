"""What a source does for its task."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import Final, Protocol

import pyarrow as pa

from formats.view import Position


class NotYet(Enum):
    """What is to be read again has not come yet: it is asked for again."""

    NOT_YET = 0


NOT_YET: Final = NotYet.NOT_YET


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

    def read(self) -> pa.RecordBatch | None:
        """The next rows; None at the end of the input."""

    def read_again(self, split: int, rows: int) -> pa.RecordBatch | NotYet | None:
        """What a read has returned before, from the same positions, whatever else there is by now: so many rows of the
        split of this number."""

    @property
    def held_up(self) -> tuple[float, str] | None:
        """Since when (`time.monotonic`) it waits for what is outside of the job, and for what: a server that does not
        answer, or others who hold rows up. None where that is not so. It goes on by itself."""

    def close(self) -> None:
        """Let go of what it has open. It is not read any more."""

    def stop_at(self, offsets: Mapping[str, int] | None = None, *, lines: int | None = None) -> None:
        """Read no further, until it is called again. offsets: by split, the ends of lines; lines: at most so many."""
