"""Slots of a state by key and time, so that all of a key within an interval are looked up for many keys at once.

They lie in few sorted pieces, each more than twice as long as the next: a slot is moved a logarithmic number of times.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from abscli.engine.operators.windows import Times
from abscli.engine.state.key_table import Slots
from abscli.engine.state.list_column import ranges
from formats.native.hashing import Hashes

Alive = Callable[[Slots], npt.NDArray[np.bool_]]
"""Which of some slots are still there."""


class Run(NamedTuple):
    """In order of hash, then of time."""

    hashes: Hashes
    times: Times
    slots: Slots

    @classmethod
    def of(cls, hashes: Hashes, times: Times, slots: Slots) -> Run:
        """Of slots in any order."""
        order = np.lexsort((times, hashes))
        return cls(hashes[order], times[order], slots[order])


class SortedRuns:
    """Slots that are not there any more are let go of in time."""

    def __init__(self) -> None:
        self._runs: list[Run] = []

    def add(self, hashes: Hashes, times: Times, slots: Slots, alive: Alive) -> None:
        """Slots with the hashes of their keys."""
        if not len(slots):
            return
        self._runs.append(Run.of(hashes, times, slots))
        while len(self._runs) > 1 and len(self._runs[-2].slots) <= 2 * len(self._runs[-1].slots):
            self._merge(alive)

    def _merge(self, alive: Alive) -> None:
        one, other = self._runs[-2:]
        merged = Run(*(np.concatenate(columns) for columns in zip(one, other, strict=True)))
        there = alive(merged.slots)
        self._runs[-2:] = [Run.of(merged.hashes[there], merged.times[there], merged.slots[there])]

    def within(self, hashes: Hashes, lowest: Times, highest: Times, alive: Alive) -> tuple[Slots, Slots]:
        """Rows and slots, each pair once: of each row those slots that have its hash, and a time from its lowest to its
        highest, both included."""
        rows, slots = [], []
        for run in self._runs:
            start = np.searchsorted(run.hashes, hashes, side="left")
            stop = np.searchsorted(run.hashes, hashes, side="right")
            first = _bisect(run.times, lowest, start, stop)
            counts = _bisect(run.times, highest + 1, first, stop) - first
            rows.append(np.repeat(np.arange(len(hashes), dtype=np.int64), counts))
            places = ranges(first, counts)
            slots.append(run.slots[places])
        if not rows:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        all_rows, all_slots = np.concatenate(rows), np.concatenate(slots)
        there = alive(all_slots)
        return all_rows[there], all_slots[there]


def _bisect(times: Times, wanted: Times, start: Slots, stop: Slots) -> Slots:
    """For each of what is wanted the first place from `start` on whose time is not lower, or `stop`; in between times
    are in order."""
    low, high = start.astype(np.int64), stop.astype(np.int64)
    while (open_ := np.flatnonzero(low < high)).size:
        middle = (low[open_] + high[open_]) // 2
        below = times[middle] < wanted[open_]
        low[open_[below]] = middle[below] + 1
        high[open_[~below]] = middle[~below]
    return low
