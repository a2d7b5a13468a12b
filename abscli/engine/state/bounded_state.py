"""Keyed state larger than the memory given: it is kept in parts of whole key groups, which go to local disk and come
back when their keys are touched.

A batch touches every part once. Rows of an operator that puts out nothing before the epoch ends wait for their part, on
disk where memory does not suffice, so that it is read once for many of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from abscli.engine.state.copies import Intervals, StateCopy
from abscli.engine.state.key_table import Slots
from abscli.engine.state.keyed_state import (
    NEVER,
    UNDUE,
    Add,
    KeyedState,
    KeyGroups,
    Kinds,
    Rows,
    T,
    Work,
    key_groups_of,
)
from abscli.engine.state.memory import StateMemory
from abscli.engine.state.scratch_file import Place, ScratchFile
from abscli.engine.state.spill_file import SpillFile
from abscli.engine.state.waiting_rows import WaitingRows
from formats.native.hashing import hash_rows
from formats.native.state.ordering import by_key_group, key_order
from formats.native.state.tables import KEY_GROUP, StateKey

ROOM = 16
"""Keys for which a part has room at first."""

ENOUGH = 8192
"""Rows that are worth a step: fewer wait for more, also where their part is in memory."""


class Part:
    """The state of some key groups.

    rows: live keys. newest: the interval of its last change. next_due: when the first of its keys is due.
    waiting: rows that are not in it yet.
    """

    def __init__(
        self, key: StateKey, max_parallelism: int, intervals: Intervals, kinds: Kinds, memory: StateMemory, *,
        expires: bool,
    ) -> None:  # fmt: skip
        self.rows = 0
        self.newest = NEVER
        self.next_due = UNDUE
        self.waiting = WaitingRows(key.columns)
        self._key = key
        self._expires = expires
        self._max_parallelism = max_parallelism
        self._intervals = intervals
        self._kinds = kinds
        self._memory = memory
        self._state: KeyedState | None = None
        self._file: SpillFile | None = None
        self._size = 0

    @property
    def is_at_hand(self) -> bool:
        """Whether it is in memory, or can be without a read from disk."""
        return self._state is not None or self._file is None

    @property
    def is_worth_reading(self) -> bool:
        """Whether there is room for it, or as many rows wait on disk as it has itself: it is read once for these."""
        return self.is_at_hand or self._memory.fits(self._size) or self.waiting.set_aside > self._size

    def retire(self) -> None:
        """It is wanted after all others."""
        self._memory.retire(self)

    def opened(self) -> KeyedState:
        """Its state, in memory until that of another part is asked for; `settle` afterwards."""
        if self._state is None:
            self._memory.make_room(self._size, self)
            state = KeyedState(
                self._key, self._max_parallelism, self._intervals, ROOM, self._kinds, expires=self._expires
            )
            if self._file is not None:
                self._file.load(state)
            self._state = state
            self._settle(state)
        return self._state

    def settle(self) -> None:
        """Its state is as large as it is now, and what it was on disk may be of the past."""
        if self._state is not None:
            self._settle(self._state)

    def _settle(self, state: KeyedState) -> None:
        if state.touched:
            self._file, self.rows, self.newest = None, state.rows, state.newest
            self.next_due = state.next_due if self._expires else UNDUE
        self._size = state.nbytes
        self._memory.hold(self, self._size)

    def evict(self) -> None:
        """See `Tenant`."""
        if self._state is not None and self._state.index.count:
            self._saved()
        self._state = None

    def _saved(self) -> SpillFile:
        if self._file is None:
            assert self._state is not None
            self._file = SpillFile(self._state)
            self._state.touched = False
        return self._file

    def table(self, since: int) -> pa.Table:
        """Its rows that changed in this interval or later."""
        if self._state is None:
            return self._saved().table(since, self._max_parallelism)
        return self._state.table(self._slots(self._state, since))

    def sorted_table(self, since: int) -> pa.Table:
        """As `table`, in order of key group, then of key."""
        table = self.table(since)
        order = key_order([table.column(name).chunk(0) for name in self._key.columns])
        order = order[by_key_group(table.column(KEY_GROUP).to_numpy()[order])]
        return table.take(pa.array(order)).combine_chunks()

    def copy(self, since: int) -> partial[pa.Table]:
        """What makes `table` as it is now, whatever becomes of the part."""
        if self._state is not None:
            slots = self._slots(self._state, since)
            if self._memory.fits(self._size * len(slots) // self._state.index.count):
                return partial(_itself, self._memory.lend(self._state.table(slots)))
        return partial(self._saved().table, since, self._max_parallelism)

    def _slots(self, state: KeyedState, since: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return state.live() if since <= NEVER else state.changed_since(since)

    def forget(self, complete: int) -> None:
        """See `State`."""
        if self._state is not None:
            self._state.forget(complete)

    def close(self) -> None:
        """Let go of memory and file."""
        self._memory.leave(self)
        self._memory.gathered -= self.waiting.bytes
        self._state = self._file = None


class BoundedState:
    """`State` of which as much is in memory as fits. groups: of keys that each part has."""

    def __init__(
        self, keyed_by: StateKey, max_parallelism: int, memory: StateMemory, groups: int, *, expires: bool = False
    ) -> None:
        self.keyed_by = keyed_by
        self._expires = expires
        self._max_parallelism = max_parallelism
        self._memory = memory
        self._groups = groups
        self._intervals = Intervals()
        self.kinds: Kinds = {}
        self._parts: dict[int, Part] = {}
        self._gathered = 0
        self._emitted: dict[int, Callable[[], pa.Table]] = {}
        memory.states += 1

    @property
    def key(self) -> tuple[str, ...]:
        return self.keyed_by.columns

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self._parts.values())

    def divided(self, rows: Rows, keys: Sequence[pa.Array]) -> Work:
        self._emitted = {}
        for part, some in self._split(rows, keys):
            yield part.opened(), some
            part.settle()

    def gathered(self, rows: Rows, keys: Sequence[pa.Array]) -> Work:
        self._emitted = {}
        for part, some in self._split(rows, keys):
            self._count(-part.waiting.bytes)
            part.waiting.add(some)
            self._count(part.waiting.bytes)
        for part in list(self._parts.values()):
            if part.is_at_hand and part.waiting.rows >= ENOUGH:
                yield from self._worked(part)
        while self._gathered > self._memory.room_to_gather:
            part = max(self._parts.values(), key=lambda part: part.waiting.bytes)
            if part.is_worth_reading:
                yield from self._worked(part)
            else:
                self._count(-part.waiting.bytes)
                part.waiting.to_disk()

    def _worked(self, part: Part) -> Work:
        state = part.opened()
        self._count(-part.waiting.bytes)
        for rows in part.waiting.take():
            yield state, rows
        part.settle()

    def _count(self, size: int) -> None:
        self._gathered += size
        self._memory.gathered += size

    def changed_now(self, add: Add) -> Iterator[pa.Table]:
        now, file = self._intervals.current, None
        self._emitted = {}
        for number, part in sorted(self._parts.items()):
            if part.waiting:
                for state, rows in self._worked(part):
                    add(state, rows)
            if part.newest != now:
                continue
            table = part.sorted_table(now)
            # Those that are still to come are wanted now, and this one not before it has changed again.
            part.retire()
            # A copy that is made next and holds just these rows refers to them.
            if self._memory.fits(table.nbytes):
                self._emitted[number] = partial(_itself, self._memory.lend(table))
            else:
                file = file or ScratchFile()
                self._emitted[number] = partial(_read_again, file, file.append(table.to_batches()[0]))
            yield table

    def due(self, time: int, act: Callable[[KeyedState, Slots], T]) -> Iterator[T]:
        for number, part in sorted(self._parts.items()):
            if part.next_due <= time:
                self._emitted.pop(number, None)
                results = list(part.opened().due(time, act))
                part.settle()  # first: while what was made is put out, another part may take its place
                yield from results

    def end_interval(self, epoch: int) -> None:
        self._intervals.end(epoch)
        self._emitted = {}

    def copy(self, epoch: int, since: int | None) -> StateCopy | None:
        interval, emitted = self._intervals.current, self._emitted
        self.end_interval(epoch)
        first = NEVER if since is None else self._intervals.after(since)
        parts = sorted(self._parts.items())
        if first == NEVER:
            changed = [(number, part) for number, part in parts if part.rows]
        else:
            changed = [(number, part) for number, part in parts if part.newest >= first]
        if not changed:
            return None
        if first == interval and all(number in emitted for number, _ in changed):
            return StateCopy([emitted[number] for number, _ in changed], in_key_order=True)
        return StateCopy([part.copy(first) for _, part in changed])

    def forget(self, complete: int) -> None:
        for part in self._parts.values():
            part.forget(complete)
        self._intervals.forget(complete)

    def load(self, table: pa.Table) -> None:
        groups = table.column(KEY_GROUP).to_numpy()
        for part, rows in self._places(groups):
            part.opened().load(table.take(pa.array(rows)))
            part.settle()

    def close(self) -> None:
        for part in self._parts.values():
            part.close()
        self._parts.clear()
        self._memory.states -= 1

    def _split(self, rows: Rows, keys: Sequence[pa.Array]) -> Iterator[tuple[Part, Rows]]:
        hashes = placing = hash_rows(keys)
        if self.keyed_by.placed < len(self.key):
            placing = hash_rows(keys[: self.keyed_by.placed])
        for part, places in self._places(key_groups_of(placing, self._max_parallelism)):
            yield part, Rows(rows.batch.take(pa.array(places)), rows.numbers[places], hashes[places])

    def _places(self, groups: KeyGroups) -> Iterator[tuple[Part, np.ndarray]]:
        """Which rows belong to each part, ascending."""
        numbers = (groups // self._groups).astype(np.int32)
        order = by_key_group(numbers)
        ordered = numbers[order]
        starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]).tolist() if len(order) else []
        for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
            number = int(ordered[start])
            if number not in self._parts:
                self._parts[number] = Part(
                    self.keyed_by, self._max_parallelism, self._intervals, self.kinds, self._memory,
                    expires=self._expires,
                )  # fmt: skip
            yield self._parts[number], order[start:stop]


def _itself(table: pa.Table) -> pa.Table:
    return table


def _read_again(file: ScratchFile, place: Place) -> pa.Table:
    return pa.Table.from_batches([file.read(place)])
