"""The accumulators of `reduce`: one value a slot, with SQL's nulls; sums of integers overflow loudly."""

from __future__ import annotations

import sys
from typing import Any, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from abscli.engine.state.key_table import Slots
from formats.job.model import Aggregation

INT64 = 2**63
SAMPLE = 64
"""Values by which the size of others is judged."""


class ValueColumn:
    """A growable column of values by slot, null until set. Numbers lie in numpy arrays, other types as objects.
    room: for so many at first."""

    def __init__(self, kind: pa.DataType, room: int = 1024) -> None:
        self.type = kind
        numeric = pa.types.is_int64(kind) or pa.types.is_float64(kind)
        self._values: npt.NDArray[Any] = np.zeros(room, dtype=kind.to_pandas_dtype() if numeric else object)
        self._valid = np.zeros(room, dtype=bool)

    @property
    def nbytes(self) -> int:
        """In memory; of objects about, by a sample."""
        size = self._values.nbytes + self._valid.nbytes
        if self._values.dtype == object:
            sample = self._values[:: max(1, len(self._values) // SAMPLE)]
            size += sum(map(sys.getsizeof, sample.tolist())) * len(self._values) // len(sample)
        return size

    def take(self, slots: Slots) -> pa.Array:
        """A copy of the values of these slots."""
        self._reserve(slots)
        return pa.array(self._values[slots], type=self.type, mask=~self._valid[slots])

    def put(self, slots: Slots, values: pa.Array) -> None:
        """Set these slots; they are distinct."""
        self._reserve(slots)
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        self._valid[slots] = valid
        if self._values.dtype == object:
            # Not np.array: of values that are lists it would make a second dimension.
            objects = np.empty(len(values), dtype=object)
            objects[:] = values.to_pylist()
            self._values[slots] = objects
        else:
            self._values[slots] = pc.fill_null(values, 0).to_numpy(zero_copy_only=False)

    def _reserve(self, slots: Slots) -> None:
        need = int(slots.max()) + 1 if len(slots) else 0
        if need > len(self._valid):
            more = max(need, 2 * len(self._valid)) - len(self._valid)
            self._values = np.concatenate([self._values, np.zeros(more, dtype=self._values.dtype)])
            self._valid = np.concatenate([self._valid, np.zeros(more, dtype=bool)])


class Overflow(ArithmeticError):
    """A sum or count left the range of 64-bit integers. row: of the batch."""

    def __init__(self, row: int) -> None:
        super().__init__("the sum overflows 64-bit integers")
        self.row = row


def result_type(function: Aggregation, column: pa.DataType | None) -> pa.DataType:
    """The type of an aggregate over a column's type; TypeError if it cannot be summed."""
    match function:
        case Aggregation.COUNT:
            return pa.int64()
        case Aggregation.MIN | Aggregation.MAX:
            assert column is not None
            return pa.int64() if pa.types.is_integer(column) and not pa.types.is_uint64(column) else column
        case Aggregation.SUM:
            assert column is not None
            return _sum_type(column)
        case _:
            assert_never(function)


def _sum_type(column: pa.DataType) -> pa.DataType:
    if pa.types.is_floating(column):
        return pa.float64()
    if pa.types.is_integer(column) or pa.types.is_boolean(column) or pa.types.is_null(column):
        return pa.int64()
    raise TypeError(f"cannot sum a column of type {column}")


def running(
    function: Aggregation, values: pa.Array | None, groups: Slots, before: pa.Array
) -> pa.Array:
    """The aggregate after each row: `before` holds each group's value so far. Rows keep their order.

    A segmented scan in log2(longest group) passes over Arrow kernels. Overflow names the first row that overflows:
    sums near the bounds are added one by one, since a part of a sum may overflow where the sum does not.
    """
    if function == Aggregation.SUM and values is not None and pa.types.is_int64(before.type):
        column = values.cast(pa.int64())
        if _may_overflow(column, before):
            return _running_sum(column, groups, before)
    order = np.argsort(groups, kind="stable")
    sorted_groups = groups[order]
    starts = np.flatnonzero(np.r_[True, sorted_groups[1:] != sorted_groups[:-1]])
    rank = np.arange(len(order)) - np.repeat(starts, np.diff(np.r_[starts, len(order)]))
    kind = before.type
    if values is None:
        column = pa.array(np.ones(len(groups), dtype=np.int64))
    elif function == Aggregation.COUNT:
        column = values.is_valid().cast(pa.int64())
    else:
        column = values.cast(kind)
    scanned = column.take(pa.array(order))
    first = pa.array(rank == 0)
    # What was before goes into the first row of its group; the scan carries it on to the others.
    scanned = pc.if_else(first, _combine(function, before.take(pa.array(sorted_groups)), scanned), scanned)
    step, longest = 1, int(rank.max()) + 1 if len(rank) else 0
    while step < longest:
        shifted = pa.concat_arrays([pa.nulls(step, kind), scanned.slice(0, len(scanned) - step)])
        scanned = pc.if_else(pa.array(rank >= step), _combine(function, shifted, scanned), scanned)
        step *= 2
    back = np.empty(len(order), dtype=np.int64)
    back[order] = np.arange(len(order))
    return scanned.take(pa.array(back))


def _combine(function: Aggregation, left: pa.Array, right: pa.Array) -> pa.Array:
    match function:
        case Aggregation.MIN:
            return pc.min_element_wise(left, right)
        case Aggregation.MAX:
            return pc.max_element_wise(left, right)
        case Aggregation.SUM | Aggregation.COUNT:
            total = pc.add(pc.fill_null(left, 0), pc.fill_null(right, 0))
            both_null = pc.and_(pc.is_null(left), pc.is_null(right))
            return pc.if_else(both_null, pa.nulls(len(total), total.type), total)
        case _:
            assert_never(function)


def _running_sum(column: pa.Array, groups: Slots, before: pa.Array) -> pa.Array:
    totals: list[int | None] = before.to_pylist()
    rows: list[int | None] = []
    for row, (value, group) in enumerate(zip(column.to_pylist(), groups.tolist(), strict=True)):
        if value is not None:
            total = (totals[group] or 0) + value
            if not -INT64 <= total < INT64:
                raise Overflow(row)
            totals[group] = total
        rows.append(totals[group])
    return pa.array(rows, pa.int64())


def merged(function: Aggregation, values: pa.Array | None, groups: Slots, before: pa.Array) -> pa.Array:
    """Each group's value after a whole batch, given `before`: the last of its `running` values, at hash speed."""
    kind = before.type
    count = len(before)
    if function == Aggregation.COUNT:
        present = groups if values is None else groups[values.is_valid().to_numpy(zero_copy_only=False)]
        added = pa.array(np.bincount(present, minlength=count).astype(np.int64))
        return pc.add(pc.fill_null(before, 0), added)
    assert values is not None
    column = values.cast(kind)
    if function == Aggregation.SUM and pa.types.is_int64(kind) and _may_overflow(column, before):
        # Sums of Arrow wrap around in silence: near the bounds rows are added one by one, and the row is known.
        scan = running(function, values, groups, before)
        last = np.zeros(count, dtype=np.int64)
        last[groups] = np.arange(len(groups))
        return scan.take(pa.array(last))
    table = pa.table({"g": pa.array(groups), "v": column})
    grouped = table.group_by("g", use_threads=False).aggregate([("v", str(function))])
    # Arrow returns the groups in an order of its own.
    place = np.empty(count, dtype=np.int64)
    place[grouped.column("g").to_numpy()] = np.arange(count)
    partial = grouped.column(f"v_{function}").combine_chunks().take(pa.array(place))
    return _combine(function, before, partial.cast(kind))


def _may_overflow(column: pa.Array, before: pa.Array) -> bool:
    def largest(array: pa.Array) -> int:
        extremes = pc.min_max(array).as_py()
        return int(max(abs(extremes["min"] or 0), abs(extremes["max"] or 0)))

    return largest(before) + largest(column) * len(column) >= INT64
