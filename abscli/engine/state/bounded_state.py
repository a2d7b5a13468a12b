"""Keyed state larger than the memory given: it is kept in parts of whole key groups, which go to local disk and come
back when their keys are touched.

A batch touches every part once. Rows of an operator that puts out nothing before the epoch ends wait for their part,
so that it is read once for many of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from abscli.engine.state.keyed_state import NEVER, Intervals, KeyedState, Rows, StateCopy, Work
from abscli.engine.state.memory import StateMemory
from abscli.engine.state.spill_file import SpillFile
from formats.native.hashing import key_groups
from formats.native.state.ordering import by_key_group, key_order
from formats.native.state.tables import KEY_GROUP, one_piece

ROOM = 16
"""Keys for which a part has room at first."""

ENOUGH = 8192
"""Rows that are worth a step: fewer wait for more, also where their part is in memory."""


class Part:
    """The state of some key groups. newest: the interval of its last change. waiting: rows that are not in it yet."""

    def __init__(self, key: tuple[str, ...], max_parallelism: int, intervals: Intervals, memory: StateMemory) -> None:
        self.rows = 0
        self.newest = NEVER
        self.waiting: list[Rows] = []
        self.waiting_rows = self.waiting_bytes = 0
        self._key = key
        self._max_parallelism = max_parallelism
        self._intervals = intervals
        self._memory = memory
        self._state: KeyedState | None = None
        self._file: SpillFile | None = None
        self._size = 0

    @property
    def in_memory(self) -> bool:
        """Whether it is."""
        return self._state is not None

    def opened(self) -> KeyedState:
        """Its state, in memory until that of another part is asked for; `settle` afterwards."""
        if self._state is None:
            self._memory.make_room(self._size, self)
            state = KeyedState(self._key, self._max_parallelism, self._intervals, ROOM)
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
        self._size = state.nbytes
        self._memory.hold(self, self._size)

    def evict(self) -> None:
        """As of `Tenant`."""
        if self._state is not None and self._state.rows:
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

    def copy(self, since: int) -> partial[pa.Table]:
        """What makes `table` as it is now, whatever becomes of the part."""
        if self._state is not None:
            slots = self._slots(self._state, since)
            if self._memory.fits(self._size * len(slots) // self.rows):
                return partial(_itself, self._memory.lend(self._state.table(slots)))
        return partial(self._saved().table, since, self._max_parallelism)

    def _slots(self, state: KeyedState, since: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.arange(state.rows, dtype=np.int64) if since <= NEVER else state.changed_since(since)

    def wait(self, rows: Rows) -> None:
        """Rows of its keys, for later."""
        self.waiting.append(rows)
        self.waiting_rows += len(rows.numbers)
        self.waiting_bytes += rows.batch.nbytes + rows.numbers.nbytes

    def forget(self, complete: int) -> None:
        """As of `State`."""
        if self._state is not None:
            self._state.forget(complete)

    def close(self) -> None:
        """Let go of memory and file."""
        self._memory.leave(self)
        self._memory.gathered -= self.waiting_bytes
        self._state = self._file = None


class BoundedState:
    """`State` of which as much is in memory as fits. groups: of keys that each part has."""

    def __init__(self, key: Sequence[str], max_parallelism: int, memory: StateMemory, groups: int) -> None:
        self.key = tuple(key)
        self._max_parallelism = max_parallelism
        self._memory = memory
        self._groups = groups
        self._intervals = Intervals()
        self._parts: dict[int, Part] = {}
        self._gathered = 0
        self._emitted: dict[int, pa.Table] = {}
        memory.states += 1

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
            self._count(-part.waiting_bytes)
            part.wait(some)
            self._count(part.waiting_bytes)
        for part in list(self._parts.values()):
            if part.in_memory and part.waiting_rows >= ENOUGH:
                yield from self._worked(part)
        while self._gathered > self._memory.room_to_gather:
            yield from self._worked(max(self._parts.values(), key=lambda part: part.waiting_bytes))

    def outstanding(self) -> Work:
        # First those that are in memory: they may have to leave it for the others.
        for number, part in sorted(self._parts.items(), key=lambda item: not item[1].in_memory):
            if part.waiting:
                yield from self._worked(part)
                # Now, while it is in memory: what is emitted has to be there anyway.
                self._emitted[number] = self._memory.lend(part.table(self._intervals.current))

    def _worked(self, part: Part) -> Work:
        state, waiting = part.opened(), part.waiting
        self._count(-part.waiting_bytes)
        part.waiting, part.waiting_rows, part.waiting_bytes = [], 0, 0
        for rows in _together(waiting, self.key):
            yield state, rows
        part.settle()

    def _count(self, size: int) -> None:
        self._gathered += size
        self._memory.gathered += size

    def changed_now(self) -> pa.Table | None:
        now = self._intervals.current
        parts = [(number, part) for number, part in sorted(self._parts.items()) if part.newest == now]
        if not parts:
            return None
        emitted, self._emitted = self._emitted, {}
        tables = [emitted.pop(number) if number in emitted else part.table(now) for number, part in parts]
        starts = np.cumsum([0, *(table.num_rows for table in tables)]).tolist()
        table = one_piece(pa.concat_tables(tables))
        del tables
        # A copy that is made next and holds just these refers to them.
        for (number, _), start, stop in zip(parts, starts, starts[1:], strict=False):
            self._emitted[number] = self._memory.lend(table.slice(start, stop - start))
        return table.take(pa.array(key_order([table.column(name).chunk(0) for name in self.key])))

    def end_interval(self, epoch: int) -> None:
        self._intervals.end(epoch)
        self._emitted = {}

    def copy(self, epoch: int, since: int | None) -> StateCopy | None:
        interval, emitted = self._intervals.current, self._emitted
        self.end_interval(epoch)
        first = NEVER if since is None else self._intervals.after(since)
        makers = [
            partial(_itself, emitted[number]) if first == interval and number in emitted else part.copy(first)
            for number, part in sorted(self._parts.items())
            if part.rows and part.newest >= first
        ]
        return StateCopy(makers) if makers else None

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
        for part, places in self._places(key_groups(keys, self._max_parallelism)):
            yield part, Rows(rows.batch.take(pa.array(places)), rows.numbers[places])

    def _places(self, groups: np.ndarray[tuple[int], np.dtype[np.int32]]) -> Iterator[tuple[Part, np.ndarray]]:
        """Which rows belong to each part, ascending."""
        numbers = (groups // self._groups).astype(np.int32)
        order = by_key_group(numbers)
        ordered = numbers[order]
        starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]).tolist() if len(order) else []
        for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
            number = int(ordered[start])
            if number not in self._parts:
                self._parts[number] = Part(self.key, self._max_parallelism, self._intervals, self._memory)
            yield self._parts[number], order[start:stop]


def _itself(table: pa.Table) -> pa.Table:
    return table


def _together(waiting: Sequence[Rows], key: Sequence[str]) -> Sequence[Rows]:
    """Rows that came one after the other, as one where that makes no difference: it does to sums of floats."""
    schema = waiting[0].batch.schema
    if len(waiting) == 1 or any(pa.types.is_floating(field.type) for field in schema if field.name not in key):
        return waiting
    batch = pa.concat_batches([rows.batch for rows in waiting])
    return [Rows(batch, np.concatenate([rows.numbers for rows in waiting]))]
