"""The accumulators of `reduce`: one value a slot, with SQL's nulls; sums of integers overflow loudly.

What a mean is made of is kept, a sum and a count: `accumulators` takes outputs apart, `shown` puts them together again.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from abscli.engine.state.key_table import Slots
from abscli.engine.state.list_column import ListColumn, lengths_of, lists
from formats.job.model import LISTED, Aggregate, Aggregation

INT64 = 2**63
SAMPLE = 64
"""Values by which the size of others is judged."""


class ValueColumn:
    """A growable column of values by slot, null until set. Numbers and times lie in numpy arrays, other types as
    objects. room: for so many at first."""

    def __init__(self, kind: pa.DataType, room: int = 1024) -> None:
        self.type = kind
        self._stored = _stored_as(kind)
        dtype = object if self._stored is None else self._stored.to_pandas_dtype()
        self._values: npt.NDArray[Any] = np.zeros(room, dtype=dtype)
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
        if self._stored is None:
            return pa.array(self._values[slots], type=self.type, mask=~self._valid[slots])
        values = pa.array(self._values[slots], type=self._stored, mask=~self._valid[slots])
        return values if self._stored == self.type else values.view(self.type)

    def put(self, slots: Slots, values: pa.Array) -> None:
        """Set these slots; they are distinct."""
        self._reserve(slots)
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        self._valid[slots] = valid
        if self._stored is None:
            # Not np.array: of values that are lists it would make a second dimension.
            objects = np.empty(len(values), dtype=object)
            objects[:] = values.to_pylist()
            self._values[slots] = objects
        else:
            if values.type != self.type:
                values = values.cast(self.type)
            if self._stored != self.type:
                values = values.view(self._stored)
            self._values[slots] = values.fill_null(_zero(values.type)).to_numpy(zero_copy_only=False)

    def _reserve(self, slots: Slots) -> None:
        need = int(slots.max()) + 1 if len(slots) else 0
        if need > len(self._valid):
            more = max(need, 2 * len(self._valid)) - len(self._valid)
            self._values = np.concatenate([self._values, np.zeros(more, dtype=self._values.dtype)])
            self._valid = np.concatenate([self._valid, np.zeros(more, dtype=bool)])


def _zero(kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(0, pa.int8()).cast(kind)


def _stored_as(kind: pa.DataType) -> pa.DataType | None:
    """The type that numpy has for it; None where it has none."""
    types = pa.types
    if types.is_timestamp(kind) or types.is_time64(kind) or types.is_duration(kind) or types.is_date64(kind):
        return pa.int64()
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return pa.int32()
    plain = pa.types.is_integer(kind) or pa.types.is_float64(kind) or pa.types.is_float32(kind)
    return kind if plain or pa.types.is_boolean(kind) else None


def value_column(kind: pa.DataType, room: int = 1024) -> ValueColumn | ListColumn:
    """A column for values of this type. room: for so many at first."""
    return ListColumn(kind, room) if pa.types.is_list(kind) else ValueColumn(kind, room)


class Accumulator(NamedTuple):
    """What is kept of an output, or a part of it. name: of its column in the state. columns: of the input. limit: so
    many values it lists at most."""

    name: str
    function: Aggregation
    columns: tuple[str, ...]
    limit: int = LISTED


def accumulators(aggregate: Aggregate) -> tuple[Accumulator, ...]:
    """What is kept of an output; a mean is a sum and a count, of which rows can be added."""
    mean = Aggregation.SUM, Aggregation.COUNT
    parts = mean if aggregate.function is Aggregation.MEAN else (aggregate.function,)
    limit = aggregate.limit or LISTED
    return tuple(
        Accumulator(name, function, aggregate.columns, limit)
        for name, function in zip(aggregate.state, parts, strict=True)
    )


def shown(aggregate: Aggregate, state: Mapping[str, pa.Array | pa.ChunkedArray]) -> pa.Array | pa.ChunkedArray:
    """An output's values. state: columns of what is kept, by name."""
    if aggregate.function is not Aggregation.MEAN:
        return state[aggregate.name]
    total, count = (state[name].cast(pa.float64(), safe=False) for name in aggregate.state)
    return pc.divide(total, count)


def input_values(function: Aggregation, arrays: Sequence[pa.Array]) -> pa.Array | None:
    """What is accumulated of a batch, a value a row. arrays: the columns that it is made of.

    What `top_n` orders by another column is a struct of the two, null where either is.
    """
    if function is Aggregation.TOP_N:
        # 0.0 for -0.0: which of them came first depends on the inputs' order.
        arrays = [pc.add(a, pa.scalar(0.0, a.type)) if pa.types.is_floating(a.type) else a for a in arrays]
    if len(arrays) < 2:
        return arrays[0] if arrays else None
    absent = pc.or_(*(pc.is_null(array) for array in arrays))
    names = [str(number) for number in range(len(arrays))]
    return pa.StructArray.from_arrays([*arrays], names=names, mask=absent)


class Overflow(ArithmeticError):
    """A sum or count left the range of 64-bit integers. row: of the batch."""

    def __init__(self, row: int) -> None:
        super().__init__("the sum overflows 64-bit integers")
        self.row = row


def result_type(function: Aggregation, *columns: pa.DataType, names: Sequence[str] = ()) -> pa.DataType:
    """The type of an aggregate over columns of these types; TypeError if they cannot be summed, or put in order.
    names: of the columns, where values of several are listed."""
    match function:
        case Aggregation.COUNT:
            return pa.int64()
        case Aggregation.MIN | Aggregation.MAX | Aggregation.FIRST | Aggregation.LAST:
            return _whole(columns[0])
        case Aggregation.SUM:
            return _sum_type(columns[0])
        case Aggregation.MEAN:
            _sum_type(columns[0])
            return pa.float64()
        case Aggregation.COLLECT:
            return pa.list_(_whole(columns[0]))
        case Aggregation.TOP_N:
            for column in columns:
                if pa.types.is_nested(column):
                    raise TypeError(f"cannot order by a column of type {column}")
            kinds = [_whole(column) for column in columns]
            return pa.list_(pa.struct(list(zip(names, kinds, strict=True))) if len(kinds) > 1 else kinds[0])
        case _:
            assert_never(function)


def _whole(column: pa.DataType) -> pa.DataType:
    """64 bits for whole numbers: what comes first says the type, and others may be wider."""
    return pa.int64() if pa.types.is_integer(column) and not pa.types.is_uint64(column) else column


def _sum_type(column: pa.DataType) -> pa.DataType:
    if pa.types.is_floating(column):
        return pa.float64()
    if pa.types.is_integer(column) or pa.types.is_boolean(column) or pa.types.is_null(column):
        return pa.int64()
    raise TypeError(f"cannot sum a column of type {column}")


def running(
    function: Aggregation, values: pa.Array | None, groups: Slots, before: pa.Array, limit: int = LISTED
) -> pa.Array:
    """The aggregate after each row: `before` holds each group's value so far. Rows keep their order. limit: so many
    values are listed at most.

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
    elif pa.types.is_list(kind) and function in _LISTS:
        present = values.is_valid()
        column = lists(kind, _listed(values, kind).filter(present), np.where(present.to_numpy(False), 1, -1))
    else:
        column = values.cast(kind)
    scanned = column.take(pa.array(order))
    first = pa.array(rank == 0)
    # What was before goes into the first row of its group; the scan carries it on to the others.
    scanned = pc.if_else(first, _combine(function, before.take(pa.array(sorted_groups)), scanned, limit), scanned)
    step, longest = 1, int(rank.max()) + 1 if len(rank) else 0
    while step < longest:
        shifted = pa.concat_arrays([pa.nulls(step, kind), scanned.slice(0, len(scanned) - step)])
        scanned = pc.if_else(pa.array(rank >= step), _combine(function, shifted, scanned, limit), scanned)
        step *= 2
    back = np.empty(len(order), dtype=np.int64)
    back[order] = np.arange(len(order))
    return scanned.take(pa.array(back))


def combined(
    function: Aggregation, left: pa.Array, right: pa.Array, limit: int = LISTED, *, wraps: bool = False
) -> pa.Array:
    """The value of the rows that two values are of, the left ones first; ArrowInvalid for a sum that overflows, unless
    it `wraps` around."""
    if not wraps and function is Aggregation.SUM and pa.types.is_int64(left.type):
        pc.add_checked(left, right)
    return _combine(function, left, right, limit)


def _combine(function: Aggregation, left: pa.Array, right: pa.Array, limit: int) -> pa.Array:
    """The value of the rows that two values are of, the left ones first."""
    match function:
        case Aggregation.FIRST:
            return pc.coalesce(left, right)
        case Aggregation.LAST:
            return pc.coalesce(right, left)
        case Aggregation.COLLECT | Aggregation.TOP_N:
            rows = [np.repeat(np.arange(len(side)), np.maximum(lengths_of(side), 0)) for side in (left, right)]
            values = pa.concat_arrays([left.flatten(), right.flatten()])
            return _lists_of(function, left.type, values, np.concatenate(rows), len(left), limit)
        case Aggregation.MIN:
            return pc.min_element_wise(left, right)
        case Aggregation.MAX:
            return pc.max_element_wise(left, right)
        case Aggregation.SUM | Aggregation.COUNT:
            total = pc.add(pc.fill_null(left, 0), pc.fill_null(right, 0))
            both_null = pc.and_(pc.is_null(left), pc.is_null(right))
            return pc.if_else(both_null, pa.nulls(len(total), total.type), total)
        case Aggregation.MEAN:
            raise ValueError("cannot merge mean values: merge their sums and counts instead")
        case _:
            assert_never(function)


_LISTS = frozenset({Aggregation.COLLECT, Aggregation.TOP_N})


def _listed(values: pa.Array, kind: pa.ListType) -> pa.Array:
    """As a list of this type has them."""
    item = kind.value_type
    if not pa.types.is_struct(item) or values.type.equals(item):
        return values.cast(item)
    columns = [column.cast(field.type) for column, field in zip(values.flatten(), item, strict=True)]
    return pa.StructArray.from_arrays(columns, fields=list(item), mask=values.is_null())


def _lists_of(
    function: Aggregation, kind: pa.ListType, values: pa.Array, groups: Slots, count: int, limit: int
) -> pa.ListArray:
    """The values of each of `count` groups, in order, at most `limit` of them; null where there is none."""
    if function is Aggregation.COLLECT:
        order = np.argsort(groups, kind="stable")
    else:
        # By the last column of it, then by the others: rows that are alike in all may change places.
        columns = values.flatten()[::-1] if pa.types.is_struct(values.type) else [values]
        names = ["group", "by", "value"][: len(columns) + 1]
        directions = zip(names, ["ascending", "descending", "ascending"], strict=False)
        table = pa.table([pa.array(groups), *columns], names=names)
        order = pc.sort_indices(table, sort_keys=list(directions)).to_numpy().astype(np.int64)
    ordered = groups[order]
    sizes = np.bincount(ordered, minlength=count)
    rank = np.arange(len(ordered)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    sizes = np.minimum(sizes, limit)
    return lists(kind, values.take(pa.array(order[rank < limit])), np.where(sizes, sizes, -1))


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


def overflowing(
    sums: Sequence[tuple[pa.Array, pa.Array]], groups: Slots, records: Slots | None = None
) -> list[int]:
    """The rows with which any of the sums would overflow: each is left out of all of them, and those behind it count
    without it. sums: of values as int64, and of what each group's sum was before. records: ascending, of which record
    each row is, where several may be of one, which is left out as a whole."""
    if not any(_may_overflow(column, before) for column, before in sums):
        return []
    totals = [before.to_pylist() for _, before in sums]
    columns = [column.to_pylist() for column, _ in sums]
    numbers = range(len(groups)) if records is None else records.tolist()
    failing: list[int] = []
    for _, of_record in groupby(range(len(groups)), key=numbers.__getitem__):
        rows = list(of_record)
        after = [
            (total, group, (total[group] or 0) + values[row])
            for row in rows
            for group in (int(groups[row]),)
            for total, values in zip(totals, columns, strict=True)
            if values[row] is not None
        ]
        if all(-INT64 <= value < INT64 for _, _, value in after):
            for total, group, value in after:
                total[group] = value
        else:
            failing += rows
    return failing


def merged(
    function: Aggregation, values: pa.Array | None, groups: Slots, before: pa.Array, limit: int = LISTED, *,
    wraps: bool = False,
) -> pa.Array:  # fmt: skip
    """Each group's value after a whole batch, given `before`: the last of its `running` values, at hash speed. wraps: a
    sum that leaves 64 bits goes around their ends."""
    kind = before.type
    count = len(before)
    if function == Aggregation.COUNT:
        present = groups if values is None else groups[values.is_valid().to_numpy(zero_copy_only=False)]
        added = pa.array(np.bincount(present, minlength=count).astype(np.int64))
        return pc.add(pc.fill_null(before, 0), added)
    assert values is not None
    if function in _LISTS:
        present = values.is_valid()
        fresh = _listed(values, kind).filter(present)
        held = np.repeat(np.arange(count), np.maximum(lengths_of(before), 0))
        of_all = np.concatenate([held, groups[present.to_numpy(zero_copy_only=False)]])
        return _lists_of(function, kind, pa.concat_arrays([before.flatten(), fresh]), of_all, count, limit)
    column = values.cast(kind)
    if function in (Aggregation.FIRST, Aggregation.LAST):
        place = np.full(count, -1, dtype=np.int64)
        rows = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
        rows = rows[::-1] if function == Aggregation.FIRST else rows
        place[groups[rows]] = rows  # of several the one that is set last stays
        return _combine(function, before, column.take(pa.array(place, mask=place < 0)), limit)
    if not wraps and function == Aggregation.SUM and pa.types.is_int64(kind) and _may_overflow(column, before):
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
    return _combine(function, before, partial.cast(kind), limit)


def _may_overflow(column: pa.Array, before: pa.Array) -> bool:
    def largest(array: pa.Array) -> int:
        extremes = pc.min_max(array).as_py()
        return int(max(abs(extremes["min"] or 0), abs(extremes["max"] or 0)))

    return largest(before) + largest(column) * len(column) >= INT64
