"""The splits of one source task: how far each has been read, and which is next."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Iterable, Mapping

import pyarrow as pa

from formats.view import Position


class Splits:
    """One split after the other, each from where it stood. ends, rows: as of `Source.stop_at`."""

    waits_for_lines = False
    """Whether what is no whole line yet, at the end of a file, may become one."""

    def __init__(self, names: Iterable[str], positions: Iterable[Position] | None) -> None:
        """positions: restored ones, which name the splits then; None: each begins."""
        if positions is None:
            positions = [Position(name, 0, 0) for name in names]
        # Kept as they are handed out: with thousands of files, those that stand where they stood are not made anew.
        self._positions = {
            at.split: Position(at.split, at.offset or 0, at.records or 0, fingerprint=at.fingerprint)
            for at in positions
        }  # fmt: skip
        self._todo = deque(self._positions)
        self.ends: Mapping[str, int] | None = None
        self.rows: int | None = None

    @property
    def positions(self) -> tuple[Position, ...]:
        """How far each has been read."""
        return tuple(self._positions.values())

    @property
    def finished(self) -> bool:
        """Whether every one has been read to its end."""
        return not self._todo

    @property
    def unread(self) -> Collection[str]:
        """Those that have not."""
        return self._todo

    def stop_at(self, offsets: Mapping[str, int] | None = None, *, lines: int | None = None) -> None:
        """See `Source`. A split that is not among the offsets is not read."""
        self.ends, self.rows = offsets, lines

    def next(self) -> str | None:
        """The split to read; None where there is none, or no more may be read."""
        if self.rows == 0:
            return None
        if self.ends is None:
            return self._todo[0] if self._todo else None
        # One that may be read no further now is not at its end.
        ends = self.ends
        return next((name for name in self._todo if self.offset(name) < ends.get(name, 0)), None)

    def end(self, split: str) -> None:
        """Note that it has been read to its end."""
        self._todo.remove(split)  # of which it is the first, or one of a few that may still be read

    def offset(self, split: str) -> int:
        """How far it has been read."""
        return self._positions[split].offset or 0

    def records(self, split: str) -> int:
        """Rows read of it so far."""
        return self._positions[split].records or 0

    def fingerprint(self, split: str) -> str | None:
        """Of what was read of it; None where that is not known."""
        return self._positions[split].fingerprint

    def advance(self, split: str, size: int, records: int, fingerprint: str | None) -> None:
        """Note that what lies in the next `size` units became so many rows. fingerprint: of all up to there."""
        before = self._positions[split]
        self._positions[split] = Position(
            split, (before.offset or 0) + size, (before.records or 0) + records, fingerprint=fingerprint
        )


class FromSplits(ABC):
    """What sources that read files leave to these."""

    watermark: int | None = None
    waiting: Collection[str] = ()
    split = 0
    held_up: tuple[float, str] | None = None

    def __init__(self, splits: Splits) -> None:
        self.splits = splits

    @property
    def finished(self) -> bool:
        return self.splits.finished

    @property
    def unread(self) -> Collection[str]:
        return self.splits.unread

    @property
    def positions(self) -> tuple[Position, ...]:
        return self.splits.positions

    @property
    def connector(self) -> dict[str, str] | None:
        """See `Source`."""
        return None

    @abstractmethod
    def read(self) -> pa.RecordBatch | None:
        """See `Source`."""

    def read_again(self, split: int, rows: int) -> pa.RecordBatch | None:
        """See `Source`: files that do not grow are read in one order, in the same batches."""
        return self.read()

    def cut(self) -> tuple[Position, ...]:
        """See `Source`."""
        return self.splits.positions

    def stop_at(self, offsets: Mapping[str, int] | None = None, *, lines: int | None = None) -> None:
        """See `Source`."""
        self.splits.stop_at(offsets, lines=lines)

    def close(self) -> None:
        """See `Source`: a file that is open goes with its reader."""
        self.splits.stop_at({})
