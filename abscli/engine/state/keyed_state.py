"""Keyed state of one task: keys, values by slot, and which slots changed since which epoch.

The copy of an epoch is proportional to what changed since the last complete epoch: values of those slots are copied,
key columns are immutable and shared. A file that follows holds them; older files hold the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from abscli.engine.state.aggregates import ValueColumn
from abscli.engine.state.key_table import KeyIndex, Located, Slots
from formats.native.state.ordering import key_order
from formats.native.state.tables import KEY_GROUP

SCAN = 16
"""Of so many slots one has to have changed for a look at all of them to be quicker than sorting those that have."""


class Intervals:
    """The stretches from one copy of a task to the next, numbered from 0. current: no copy has ended it yet."""

    def __init__(self) -> None:
        self.current = 0
        self._epochs: dict[int, int] = {}

    def end(self, epoch: int) -> None:
        """What changes from now on is not in the copy of `epoch`."""
        self._epochs[self.current] = epoch
        self.current += 1

    def after(self, epoch: int) -> int:
        """The first of which the copy of `epoch` has nothing."""
        return min((number for number, end in self._epochs.items() if end > epoch), default=self.current)

    def forget(self, epoch: int) -> None:
        """Nobody asks for what is after an older epoch any more."""
        self._epochs = {number: end for number, end in self._epochs.items() if end > epoch}


@dataclass(frozen=True, slots=True)
class StateCopy:
    """What a copy holds by reference, at least one row. makers: of its tables, each of higher key groups than the one
    before. in_key_order: of each table the rows are."""

    makers: Sequence[Callable[[], pa.Table]]
    in_key_order: bool = False

    def tables(self) -> Iterator[pa.Table]:
        """Its tables (key group, key columns, values), one at a time."""
        return (make() for make in self.makers)


class KeyedState:
    """key: names of the key columns; the first batch fixes their types and those of the values."""

    def __init__(self, key: Sequence[str], max_parallelism: int) -> None:
        self.key = tuple(key)
        self.index = KeyIndex()
        self.values: dict[str, ValueColumn] = {}
        self._max_parallelism = max_parallelism
        self._intervals = Intervals()
        self._stamps: Slots = np.full(1024, -1, dtype=np.int64)
        self._changed: dict[int, list[Slots]] = {}
        self._emitted: pa.Table | None = None

    @property
    def rows(self) -> int:
        """Live keys."""
        return self.index.count

    def locate(self, columns: Sequence[pa.Array]) -> Located:
        """Slots of the rows' keys; new keys count as changed."""
        located = self.index.locate(columns)
        if located.new.any():
            self.touch(located.slots[located.new])
        return located

    def touch(self, slots: Slots) -> None:
        """Note that the values of these distinct slots have changed."""
        self._emitted = None
        if self.index.count > len(self._stamps):
            more = np.full(max(self.index.count, len(self._stamps)), -1, dtype=np.int64)
            self._stamps = np.concatenate([self._stamps, more])
        interval = self._intervals.current
        fresh = slots[self._stamps[slots] != interval]
        if len(fresh):
            self._stamps[fresh] = interval
            self._changed.setdefault(interval, []).append(fresh)

    def changed_now(self) -> pa.Table | None:
        """The rows that changed since the last copy, in key order (key group, key columns, values); None if none did.
        A copy that is made next and holds just these refers to them."""
        slots = self._changed_since(self._intervals.current)
        if not len(slots):
            return None
        self._emitted = self.table(slots[key_order(self.index.keys(slots))])
        return self._emitted

    def end_interval(self, epoch: int) -> None:
        """What changes from now on is not in the copy of `epoch`."""
        self._intervals.end(epoch)
        self._emitted = None

    def copy(self, epoch: int, since: int | None) -> StateCopy | None:
        """Close the interval that ends with `epoch`, and copy what changed after epoch `since` (None: everything).

        None if nothing did. Epochs are those of this attempt; `since` below them all takes every change so far.
        """
        interval, emitted = self._intervals.current, self._emitted
        self.end_interval(epoch)
        if since is None:
            slots = np.arange(self.index.count, dtype=np.int64)
        elif emitted is not None and self._intervals.after(since) == interval:
            return StateCopy([lambda: emitted], in_key_order=True)
        else:
            slots = self._changed_since(self._intervals.after(since))
        if not len(slots):
            return None
        table = self.table(slots)
        return StateCopy([lambda: table])

    def _changed_since(self, interval: int) -> Slots:
        changes = [slots for number, lists in self._changed.items() if number >= interval for slots in lists]
        if sum(map(len, changes)) * SCAN > self.index.count:
            changed: Slots = np.flatnonzero(self._stamps[: self.index.count] >= interval)
            return changed
        return _union(changes)

    def forget(self, complete: int) -> None:
        """Epoch `complete` and what it refers to hold these changes for good."""
        first = self._intervals.after(complete)
        self._changed = {number: changes for number, changes in self._changed.items() if number >= first}
        self._intervals.forget(complete)

    def table(self, slots: Slots) -> pa.Table:
        """Rows of these slots: key group, key columns, values."""
        groups = (self.index.hashes[slots] % np.uint64(self._max_parallelism)).astype(np.int32)
        columns = [pa.array(groups), *self.index.keys(slots), *(v.take(slots) for v in self.values.values())]
        return pa.table(columns, names=[KEY_GROUP, *self.key, *self.values])

    def load(self, table: pa.Table) -> None:
        """Take over the rows of a state file; they do not count as changed."""
        if not table.num_rows:
            return
        table = table.combine_chunks()
        located = self.index.locate([table.column(name).chunk(0) for name in self.key])
        for name in table.schema.names:
            if name != KEY_GROUP and name not in self.key:
                column = table.column(name).chunk(0)
                self.values.setdefault(name, ValueColumn(column.type)).put(located.slots[located.groups], column)


def _union(parts: list[Slots]) -> Slots:
    """All of them, each once, ascending."""
    if not parts:
        return np.empty(0, dtype=np.int64)
    slots = np.sort(np.concatenate(parts))  # `np.unique` looks numbers up in a table: a hundred times as long
    again = np.zeros(len(slots), dtype=bool)
    again[1:] = slots[1:] == slots[:-1]
    return slots[~again] if again.any() else slots
