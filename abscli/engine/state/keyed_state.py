"""Keyed state of one task: keys, values by slot, and which slots changed since which epoch.

The copy of an epoch is proportional to what changed since the last complete epoch: values of those slots are copied,
key columns are immutable and shared. A file that follows holds them; older files hold the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from abscli.engine.state.aggregates import ValueColumn
from abscli.engine.state.key_table import KeyIndex, Located, Slots
from formats.native.state.tables import KEY_GROUP


class KeyedState:
    """key: names of the key columns; the first batch fixes their types and those of the values."""

    def __init__(self, key: Sequence[str], max_parallelism: int) -> None:
        self.key = tuple(key)
        self.index = KeyIndex()
        self.values: dict[str, ValueColumn] = {}
        self._max_parallelism = max_parallelism
        self._stamps: Slots = np.full(1024, -1, dtype=np.int64)
        self._interval = 0
        self._changed: dict[int, list[Slots]] = {}

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
        if self.index.count > len(self._stamps):
            more = np.full(max(self.index.count, len(self._stamps)), -1, dtype=np.int64)
            self._stamps = np.concatenate([self._stamps, more])
        fresh = slots[self._stamps[slots] != self._interval]
        if len(fresh):
            self._stamps[fresh] = self._interval
            self._changed.setdefault(self._interval, []).append(fresh)

    def changed_now(self) -> Slots:
        """Slots that changed since the last copy, in key order."""
        slots = _union(self._changed.get(self._interval, []))
        if not len(slots):
            return slots
        table = pa.table(self.index.keys(slots), names=list(self.key))
        order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in self.key])
        ordered: Slots = slots[order.to_numpy()]
        return ordered

    def end_interval(self, epoch: int) -> None:
        """What changes from now on is not in the copy of `epoch`."""
        self._changed[epoch] = self._changed.pop(self._interval, [])
        self._interval = -epoch - 1  # a label of its own: no epoch, no earlier interval

    def copy(self, epoch: int, since: int | None) -> pa.Table | None:
        """Close the interval that ends with `epoch`, and copy what changed after epoch `since` (None: everything).

        None if nothing did. Epochs are those of this attempt; `since` below them all takes every change so far.
        """
        self.end_interval(epoch)
        if since is None:
            slots = np.arange(self.index.count, dtype=np.int64)
        else:
            slots = _union([s for e, changes in self._changed.items() if e > since for s in changes])
        return self.table(slots) if len(slots) else None

    def forget(self, complete: int) -> None:
        """Epoch `complete` and what it refers to hold these changes for good."""
        for epoch in [e for e in self._changed if 0 <= e <= complete and e != self._interval]:
            del self._changed[epoch]

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
