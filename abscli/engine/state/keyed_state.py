"""Keyed state of one task: keys, values by slot, and which slots changed since which epoch.

The copy of an epoch is proportional to what changed since the last complete epoch: values of those slots are copied,
key columns are immutable and shared. A file that follows holds them; older files hold the rest.

State that expires has a time for every key, at which its operator looks at it again, and mostly removes it. A removed
key keeps its slot until a complete epoch says that it is gone: until then copies have a row that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from abscli.engine.state.aggregates import ValueColumn, value_column
from abscli.engine.state.copies import Intervals, StateCopy
from abscli.engine.state.key_table import KeyIndex, Located, Slots
from abscli.engine.state.list_column import ListColumn
from formats.native.hashing import Hashes, hash_rows
from formats.native.state.ordering import by_key_group, key_order
from formats.native.state.tables import DUE, KEY_GROUP, StateKey

SCAN = 16
"""Of so many slots one has to have changed for a look at all of them to be quicker than sorting those that have."""

PIECE_ROWS = 1 << 16
"""Rows from which on what has changed goes on in one piece."""

KeyGroups = npt.NDArray[np.int32]

NEVER = -1
"""The interval in which a slot changed that has not since it was restored."""

REMOVED = -(2**63)
"""When a key is due that is not there."""

UNDUE = 2**63 - 1
"""When a key is due that never is before the end of event time."""

FEW = 1024
"""Removed keys for which nothing is put in order."""


class Rows(NamedTuple):
    """Records that came together, each with its number on its channel. hashes: of their keys, where they are known."""

    batch: pa.RecordBatch
    numbers: Slots
    hashes: Hashes | None = None


Work = Iterator[tuple["KeyedState", Rows]]
"""State and rows whose keys it has; the state is in memory until the next is asked for."""

T = TypeVar("T")

Kinds = dict[str, pa.DataType]
"""Types of columns, by name."""

Add = Callable[["KeyedState", Rows], object]
"""Takes rows into a state which has their keys."""


class KeyedState:
    """`State` in memory.

    keyed_by: the key columns; the first batch fixes their types and those of the values.
    expires: whether keys are due at times, and removed.
    intervals, kinds: of the task, whose state this may be a part of; None for all of it.
    room: for so many keys at first, a power of two.
    touched: something came in or changed since that was last set to False.
    newest: the interval of the last change.
    """

    def __init__(
        self, keyed_by: StateKey, max_parallelism: int, intervals: Intervals | None = None, room: int = 1024,
        kinds: Kinds | None = None, *, expires: bool = False,
    ) -> None:  # fmt: skip
        self.keyed_by = keyed_by
        self.index = KeyIndex(room)
        self.kinds: Kinds = {} if kinds is None else kinds
        self.values: dict[str, ValueColumn | ListColumn] = {}
        self.touched = False
        self.newest = NEVER
        self._room = room
        self._max_parallelism = max_parallelism
        self._intervals = intervals or Intervals()
        self._stamps: Slots = np.full(room, NEVER, dtype=np.int64)
        self._due: Slots | None = np.full(room, UNDUE, dtype=np.int64) if expires else None
        self._removed = 0
        self._changed: dict[int, list[Slots]] = {}
        self._emitted: list[pa.Table] | None = None

    @property
    def key(self) -> tuple[str, ...]:
        return self.keyed_by.columns

    @property
    def rows(self) -> int:
        return self.index.count - self._removed

    @property
    def expires(self) -> bool:
        """As above."""
        return self._due is not None

    @property
    def nbytes(self) -> int:
        """In memory."""
        changes = sum(slots.nbytes for changed in self._changed.values() for slots in changed)
        times = self._stamps.nbytes + (0 if self._due is None else self._due.nbytes)
        return self.index.nbytes + times + changes + sum(v.nbytes for v in self.values.values())

    def divided(self, rows: Rows, keys: Sequence[pa.Array]) -> Work:
        yield self, rows

    def gathered(self, rows: Rows, keys: Sequence[pa.Array]) -> Work:
        yield self, rows

    def column(self, name: str, kind: pa.DataType) -> ValueColumn | ListColumn:
        """A column of values, made of this type where the task has none of another."""
        if name not in self.values:
            self.values[name] = value_column(self.kinds.setdefault(name, kind), self._room)
        return self.values[name]

    def locate(self, columns: Sequence[pa.Array], hashes: Hashes | None = None) -> Located:
        """Slots of the rows' keys; new keys count as changed. hashes: of these, where they are known."""
        located = self.index.locate(columns, hashes)
        if self._due is not None:
            self._grow_due()
            again = self._due[located.slots] == REMOVED
            if again.any():
                self._due[located.slots[again]] = UNDUE
                self._removed -= int(again.sum())
                located = located._replace(new=located.new | again)
        if located.new.any():
            self.touch(located.slots[located.new])
        return located

    # -- keys that are due, and removed -------------------------------------------------------------------

    def due_at(self, slots: Slots) -> Slots:
        """When these keys are due: event time in microseconds."""
        assert self._due is not None
        return self._due[slots]

    def set_due(self, slots: Slots, times: Slots | int) -> None:
        """Have these keys due then. They are touched besides, by whoever changes them."""
        assert self._due is not None
        self._due[slots] = times

    def due(self, time: int, act: Callable[[KeyedState, Slots], T]) -> Iterator[T]:
        slots = self.due_slots(time)
        if len(slots):
            yield act(self, slots)

    def due_slots(self, time: int) -> Slots:
        """The keys that are due by then, ascending."""
        assert self._due is not None
        times = self._due[: self.index.count]
        slots: Slots = np.flatnonzero((times <= time) & (times != REMOVED) & (times != UNDUE))
        return slots

    @property
    def next_due(self) -> int:
        """When the first is due."""
        assert self._due is not None
        times = self._due[: self.index.count]
        return int(times[times != REMOVED].min(initial=UNDUE))

    def remove(self, slots: Slots) -> None:
        """These distinct keys are not there any more."""
        self.touch(slots)
        self._remove(slots)

    def _remove(self, slots: Slots) -> None:
        assert self._due is not None
        self._due[slots] = REMOVED
        self._removed += len(slots)
        for column in self.values.values():
            column.put(slots, pa.nulls(len(slots), column.type))

    def _grow_due(self) -> None:
        assert self._due is not None
        if self.index.count > len(self._due):
            more = np.full(max(self.index.count, len(self._due)), UNDUE, dtype=np.int64)
            self._due = np.concatenate([self._due, more])

    def live(self) -> Slots:
        """All keys that are there."""
        if self._due is None or not self._removed:
            return np.arange(self.index.count, dtype=np.int64)
        live: Slots = np.flatnonzero(self._due[: self.index.count] != REMOVED)
        return live

    def _put_in_order(self) -> None:
        """Let go of removed keys that no copy asks for any more, where they are most: slots are numbered anew."""
        if self._due is None or self._removed < max(FEW, self.index.count // 2):
            return
        keep = np.flatnonzero((self._due[: self.index.count] != REMOVED) | (self.stamps >= self._intervals.oldest))
        if len(keep) > self.index.count // 2:
            return
        index = KeyIndex(1 << max(10, len(keep).bit_length()))
        number = np.full(self.index.count, -1, dtype=np.int64)
        if len(keep):
            located = index.locate(self.index.keys(keep), self.index.hashes[keep])
            number[keep] = located.slots[located.groups]
        stamps, due = np.full(len(index.hashes), NEVER), np.full(len(index.hashes), UNDUE)
        stamps[number[keep]], due[number[keep]] = self._stamps[keep], self._due[keep]
        for name, column in self.values.items():
            self.values[name] = value_column(column.type, len(index.hashes))
            self.values[name].put(number[keep], column.take(keep))
        self._removed = int((due == REMOVED).sum())
        self.index, self._stamps, self._due, self._emitted = index, stamps, due, None
        self._changed = {
            interval: [number[slots] for slots in changes] for interval, changes in self._changed.items()
        }

    # -- what changed ---------------------------------------------------------------------------------------

    def touch(self, slots: Slots) -> Slots:
        """Note that the values of these distinct slots have changed; those that had not since the last copy."""
        self.touched, self._emitted = True, None
        if self.index.count > len(self._stamps):
            more = np.full(max(self.index.count, len(self._stamps)), NEVER, dtype=np.int64)
            self._stamps = np.concatenate([self._stamps, more])
        interval = self._intervals.current
        fresh: Slots = slots[self._stamps[slots] != interval]
        if len(fresh):
            self._stamps[fresh] = self.newest = interval
            self._changed.setdefault(interval, []).append(fresh)
        return fresh

    def changed_now(self, add: Add) -> Iterator[pa.Table]:
        # A copy that is made next and holds just these rows refers to them.
        self._emitted = []
        slots = self.changed_since(self._intervals.current)
        if not len(slots):
            return
        keys, groups = self.index.keys(slots), self._groups(slots)
        order = by_key_group(groups)
        for piece in whole_groups(groups[order]):
            rows = order[piece.start : piece.stop]
            # Sorted piece by piece, since what is sorted then fits a processor's cache.
            some, of_some = [column.take(pa.array(rows)) for column in keys], groups[rows]
            inside = key_order(some)
            inside = inside[by_key_group(of_some[inside])]
            columns = [pa.array(of_some[inside]), *(column.take(pa.array(inside)) for column in some)]
            self._emitted.append(self._table(columns, slots[rows[inside]]))
            yield self._emitted[-1]

    def end_interval(self, epoch: int) -> None:
        self._intervals.end(epoch)
        self._emitted = None

    def copy(self, epoch: int, since: int | None) -> StateCopy | None:
        interval, emitted = self._intervals.current, self._emitted
        self.end_interval(epoch)
        if since is None:
            slots = self.live()
        elif emitted is not None and self._intervals.after(since) == interval:
            return StateCopy([partial(_itself, table) for table in emitted], in_key_order=True) if emitted else None
        else:
            slots = self.changed_since(self._intervals.after(since))
        if not len(slots):
            return None
        table = self.table(slots)
        return StateCopy([lambda: table])

    def changed_since(self, interval: int) -> Slots:
        """Slots that changed in this interval or later, each once."""
        changes = [slots for number, lists in self._changed.items() if number >= interval for slots in lists]
        if sum(map(len, changes)) * SCAN > self.index.count:
            changed: Slots = np.flatnonzero(self._stamps[: self.index.count] >= interval)
            return changed
        return _union(changes)

    def forget(self, complete: int) -> None:
        first = self._intervals.after(complete)
        self._changed = {number: changes for number, changes in self._changed.items() if number >= first}
        self._intervals.forget(complete)
        self._put_in_order()

    def table(self, slots: Slots) -> pa.Table:
        """Rows of these slots: key group, key columns, values."""
        return self._table([pa.array(self._groups(slots)), *self.index.keys(slots)], slots)

    def _table(self, columns: list[pa.Array], slots: Slots) -> pa.Table:
        """columns: key group and keys of these slots, to which their values come."""
        values = [column.take(slots) for column in self.values.values()]
        if self._due is None:
            return pa.table([*columns, *values], names=[KEY_GROUP, *self.key, *self.values])
        times = self._due[slots]
        due = pa.array(times, mask=times == REMOVED)
        return pa.table([*columns, *values, due], names=[KEY_GROUP, *self.key, *self.values, DUE])

    def _groups(self, slots: Slots) -> KeyGroups:
        hashes = self.index.hashes[slots]
        if self.keyed_by.placed < len(self.key):
            hashes = hash_rows(self.index.keys(slots)[: self.keyed_by.placed])
        return key_groups_of(hashes, self._max_parallelism)

    def load(self, table: pa.Table) -> None:
        if not table.num_rows:
            return
        self.touched = True
        table = table.combine_chunks()
        located = self.index.locate([table.column(name).chunk(0) for name in self.key])
        slots = located.slots[located.groups]
        for name in table.schema.names:
            if name not in (KEY_GROUP, DUE, *self.key):
                column = table.column(name).chunk(0)
                self.column(name, column.type).put(slots, column)
        if self._due is not None:
            self._load_due(slots, table.column(DUE).chunk(0))

    def _load_due(self, slots: Slots, due: pa.Array) -> None:
        assert self._due is not None
        self._grow_due()
        before, removed = self._due[slots] == REMOVED, due.is_null().to_numpy(zero_copy_only=False)
        self._removed -= int(before.sum())
        self._due[slots] = due.fill_null(UNDUE).to_numpy()
        self._remove(slots[removed])

    def close(self) -> None:
        pass

    # -- as a part of a task's state that leaves memory and comes back ------------------------------------

    @property
    def stamps(self) -> Slots:
        """By slot, the interval in which it last changed."""
        missing = max(0, self.index.count - len(self._stamps))
        return np.concatenate([self._stamps, np.full(missing, NEVER, dtype=np.int64)])[: self.index.count]

    @property
    def times(self) -> Slots | None:
        """By slot, when each is due; None where none is."""
        return None if self._due is None else self._due[: self.index.count]

    def come_back(self, index: KeyIndex, stamps: Slots, values: dict[str, pa.Array], times: Slots | None) -> None:
        """Be what it was. stamps, values, times: of all slots."""
        self.index, self._stamps, self.newest = index, stamps, int(stamps.max(initial=NEVER))
        if times is not None:
            self._due, self._removed = times, int((times == REMOVED).sum())
        slots = np.arange(index.count, dtype=np.int64)
        for name, column in values.items():
            self.values[name] = value_column(column.type, max(1, index.count))
            self.values[name].put(slots, column)
        changed = np.flatnonzero(stamps >= self._intervals.oldest)
        changed = changed[np.argsort(stamps[changed], kind="stable")]
        for some in np.split(changed, np.flatnonzero(np.diff(stamps[changed])) + 1):
            if len(some):
                self._changed[int(stamps[some[0]])] = [some]


def key_groups_of(hashes: Hashes, max_parallelism: int) -> KeyGroups:
    """Which key group each of these keys belongs to."""
    groups: KeyGroups = (hashes % np.uint64(max_parallelism)).astype(np.int32)
    return groups


def whole_groups(groups: KeyGroups) -> Iterator[range]:
    """Rows whose key groups these are, ascending, in pieces of whole key groups with PIECE_ROWS rows or somewhat
    more."""
    start = 0
    for stop in [*(np.flatnonzero(np.diff(groups)) + 1).tolist(), len(groups)]:
        if stop - start >= PIECE_ROWS or start < stop == len(groups):
            yield range(start, stop)
            start = stop


def _itself(table: pa.Table) -> pa.Table:
    return table


def _union(parts: list[Slots]) -> Slots:
    """All of them, each once, ascending."""
    if not parts:
        return np.empty(0, dtype=np.int64)
    slots = np.sort(np.concatenate(parts))  # `np.unique` looks numbers up in a table: a hundred times as long
    again = np.zeros(len(slots), dtype=bool)
    again[1:] = slots[1:] == slots[:-1]
    return slots[~again] if again.any() else slots
