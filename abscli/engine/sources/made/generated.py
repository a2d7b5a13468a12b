"""Rows that are made, not read: row n of a source is the same whoever makes it, and whenever."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from formats.errors import Damaged
from formats.ids import TaskId
from formats.view import Position

ROWS = 1 << 14
"""Rows of a batch, at most."""

WAIT_SECONDS = 0.002
"""For which a source that is ahead of its rate leaves the processor to others."""

_SPLIT = re.compile(r"(0|[1-9][0-9]{0,5})/([1-9][0-9]{0,5})")

Numbers = npt.NDArray[np.int64]
MakeRows = Callable[[Numbers], pa.RecordBatch]
"""The rows of these numbers, which ascend from 0 on."""


def split_names(task: int, tasks: int) -> list[str]:
    """The splits of a task when a job first starts: split i of n has every n-th row from i on."""
    return [f"{task}/{tasks}"]


class GeneratedSource:
    """Of its splits the one that is the least far goes on: rows come in about the order of their numbers."""

    connector: dict[str, str] | None = None
    watermark: int | None = None
    held_up: tuple[float, str] | None = None
    split = 0

    def __init__(
        self,
        make: MakeRows,
        names: Iterable[str],
        task: TaskId,
        positions: Iterable[Position] | None,
        *,
        total: int | None,
        rate: float | None,
    ) -> None:
        """total: rows of all tasks; None: without an end. rate: of all tasks, rows a second; None: as fast as it goes.

        Damaged for a position of a split that no source of this kind has.
        """
        self._make = make
        self._total = total
        restored = positions if positions is not None else [Position(name, 0, 0) for name in names]
        self._done = {at.split: at.offset or 0 for at in restored}
        self._places = {name: _place(name, task) for name in self._done}
        self._ends: Mapping[str, int] | None = None
        self._rows: int | None = None
        self._rate = None if rate is None else rate * sum(1 / count for _, count in self._places.values())
        self._began: float | None = None
        self._made = 0
        self._is_ahead = False

    @property
    def finished(self) -> bool:
        return all(self._left(name) == 0 for name in self._done)

    @property
    def unread(self) -> Collection[str]:
        return [name for name in self._done if self._left(name)]

    @property
    def waiting(self) -> Collection[str]:
        """See `Source`: all, while it is ahead of its rate."""
        return self.unread if self._is_ahead else ()

    @property
    def positions(self) -> tuple[Position, ...]:
        return tuple(Position(name, done, done) for name, done in self._done.items())

    def cut(self) -> tuple[Position, ...]:
        """See `Source`."""
        return self.positions

    def stop_at(self, offsets: Mapping[str, int] | None = None, *, lines: int | None = None) -> None:
        """See `Source`."""
        self._ends, self._rows = offsets, lines

    def close(self) -> None:
        """See `Source`."""

    def read(self) -> pa.RecordBatch | None:
        """See `Source`; no rows while it is ahead of its rate."""
        left = {name: count for name in self._done if (count := self._may_read(name))}
        if not left:
            return None
        count = min(ROWS, max(left.values()), self._due())
        self._is_ahead = not count
        if not count:
            time.sleep(WAIT_SECONDS)
        return self._make_rows(left, count)

    def read_again(self, split: int, rows: int) -> pa.RecordBatch | None:
        """See `Source`, whatever its rate allows."""
        left = {name: count for name in self._done if (count := self._may_read(name))}
        return self._make_rows(left, rows) if left else None

    def _make_rows(self, left: Mapping[str, int], most: int) -> pa.RecordBatch:
        name = min(left, key=lambda split: (self._done[split], split))
        count = min(most, left[name])
        first, splits = self._places[name]
        done = self._done[name]
        rows = self._make(first + splits * np.arange(done, done + count, dtype=np.int64))
        self._done[name] += count
        self._made += count
        if self._rows is not None:
            self._rows -= count
        return rows

    def _left(self, name: str) -> int:
        """Rows that are still to come of a split."""
        if self._total is None:
            return ROWS
        first, splits = self._places[name]
        return max(0, -(-(self._total - first) // splits) - self._done[name])

    def _may_read(self, name: str) -> int:
        most = [self._left(name)]
        if self._ends is not None:
            most.append(max(0, self._ends.get(name, 0) - self._done[name]))
        if self._rows is not None:
            most.append(self._rows)
        return min(most)

    def _due(self) -> int:
        """Rows that its rate allows now."""
        if self._rate is None:
            return ROWS
        now = time.monotonic()
        if self._began is None:
            self._began = now
        return max(0, int((now - self._began) * self._rate) - self._made)


def _place(name: str, task: TaskId) -> tuple[int, int]:
    """(number of a split, of how many)."""
    match = _SPLIT.fullmatch(name)
    if match is None or int(match[1]) >= int(match[2]):
        raise Damaged(f"task {task}: the epoch has a position in split {name!r}, which its source cannot have")
    return int(match[1]), int(match[2])


class Dice:
    """Random numbers of rows: each depends on the seed, the row and the place where it is used, on nothing else."""

    def __init__(self, seed: int, rows: Numbers) -> None:
        self._rows = rows.astype(np.uint64)
        self._seed = seed
        self._uses = 0

    def _words(self) -> npt.NDArray[np.uint64]:
        """A word a row, another at each call: a counter that is mixed as SplitMix64 does (Steele et al. 2014)."""
        self._uses += 1
        start = np.uint64((self._seed * 0x9E3779B97F4A7C15 + self._uses * 0xD1B54A32D192ED03) % 2**64)
        words: npt.NDArray[np.uint64] = start + self._rows * np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
        return words ^ (words >> np.uint64(31))

    def fraction(self) -> npt.NDArray[np.float64]:
        """In [0, 1)."""
        return (self._words() >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def below(self, bound: Numbers | int) -> Numbers:
        """Whole numbers from 0 on, less than `bound`."""
        return np.minimum((self.fraction() * bound).astype(np.int64), np.asarray(bound, np.int64) - 1)

    def letters(self, lengths: Numbers) -> pa.Array:
        """Texts of small letters, of these lengths."""
        ends = np.cumsum(lengths)
        offsets = np.concatenate(([0], ends)).astype(np.int32)
        places = np.repeat(self.below(len(_LETTERS) // 2), lengths)
        within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(offsets[:-1], lengths)
        data = _LETTERS[places + within]
        return pa.StringArray.from_buffers(len(lengths), pa.py_buffer(offsets), pa.py_buffer(data))


def _some_letters() -> npt.NDArray[np.uint8]:
    """A text that texts are pieces of: its first half begins any of them."""
    dice = Dice(0, np.arange(1 << 16, dtype=np.int64))
    return (dice.below(26) + ord("a")).astype(np.uint8)


_LETTERS = _some_letters()
