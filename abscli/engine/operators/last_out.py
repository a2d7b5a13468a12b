"""What was last put out for keys, so that a row goes out only where the value differs from that.

At every copy it is the value itself: what had changed was put out just before. So snapshots need not hold it, and this
is empty after a restore; what changes in between is noted here before it does.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from abscli.engine.state.contract import State
from abscli.engine.state.keyed_state import Rows
from formats.native.state.tables import DUE, KEY_GROUP


class LastOut:
    """make_state: an empty state with the keys of the operator, in memory or not."""

    def __init__(self, make_state: Callable[[], State]) -> None:
        self._make_state = make_state
        self._state: State | None = None
        self._noted: list[pa.Table] = []

    def note(self, table: pa.Table) -> None:
        """Rows of the operator's state that are about to change for the first time since the last copy."""
        # Not into the state now: it would take the place in memory of the one that is being changed.
        self._noted.append(table)

    def settle(self) -> None:
        """Nothing is being changed now."""
        if self._noted and self._state is None:
            self._state = self._make_state()
        for table in self._noted:
            assert self._state is not None
            self._state.load(table)
        self._noted.clear()

    def differing(self, table: pa.Table) -> pa.Table:
        """The rows of these whose values are not what was last put out for their keys. table: of the operator's state,
        each key once."""
        self.settle()
        if self._state is None or not table.num_rows:
            return table
        batch = table.combine_chunks().to_batches()[0]
        differs = np.ones(batch.num_rows, dtype=bool)
        keys = [batch.column(name) for name in self._state.key]
        names = [name for name in batch.schema.names if name not in (KEY_GROUP, DUE, *self._state.key)]
        for state, rows in self._state.divided(Rows(batch, np.arange(batch.num_rows)), keys):
            located = state.locate([rows.batch.column(name) for name in state.key], rows.hashes)
            some = np.flatnonzero(~located.new[located.groups])
            if not len(some):
                continue
            slots, now = located.slots[located.groups[some]], rows.batch.take(pa.array(some))
            same = np.ones(len(some), dtype=bool)
            for name in names:
                same &= alike(state.column(name, now.column(name).type).take(slots), now.column(name))
            differs[rows.numbers[some[same]]] = False
        return table.filter(pa.array(differs))

    def forget(self) -> None:
        """All that had changed has been put out."""
        self._noted.clear()
        if self._state is not None:
            self._state.close()
        self._state = None


def alike(left: pa.Array, right: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which values are the same in two columns of one type: null is as null, and NaN as NaN."""
    kind = left.type
    if pa.types.is_null(kind):
        return np.ones(len(left), dtype=bool)
    if pa.types.is_list(kind):
        return _lists_alike(left, right)
    both = _flags(pc.and_(pc.is_valid(left), pc.is_valid(right)))
    neither = _flags(pc.and_(pc.is_null(left), pc.is_null(right)))
    if pa.types.is_struct(kind):
        for ours, theirs in zip(left.flatten(), right.flatten(), strict=True):
            both &= alike(ours, theirs)
    elif pa.types.is_nested(kind):
        pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
        both &= np.fromiter((repr(a) == repr(b) for a, b in pairs), dtype=bool, count=len(left))
    else:
        equal = pc.equal(left, right)
        if pa.types.is_floating(kind):
            equal = pc.or_(equal, pc.and_(pc.is_nan(left), pc.is_nan(right)))
        both &= _flags(pc.fill_null(equal, False))
    return both | neither


def _lists_alike(left: pa.ListArray, right: pa.ListArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    lengths = [pc.list_value_length(side).fill_null(-1).to_numpy(zero_copy_only=False) for side in (left, right)]
    same: np.ndarray[tuple[int], np.dtype[np.bool_]] = lengths[0] == lengths[1]
    rows = np.flatnonzero(same)
    ours, theirs = (side.take(pa.array(rows)).flatten() for side in (left, right))
    differing = np.repeat(rows, np.maximum(lengths[0][rows], 0))[~alike(ours, theirs)]
    same[differing] = False
    return same


def _flags(column: pa.BooleanArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.array(column.to_numpy(zero_copy_only=False), dtype=bool)
