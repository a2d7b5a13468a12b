"""Named aggregates over rows of one key: what is kept of them in the state, and what is shown of that."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from abscli.engine.errors import JobFailed
from abscli.engine.operators.rows import columns, key_columns
from abscli.engine.state.aggregates import (
    Accumulator,
    Overflow,
    ValueColumn,
    accumulators,
    combined,
    input_values,
    merged,
    overflowing,
    result_type,
    running,
    shown,
)
from abscli.engine.state.contract import State
from abscli.engine.state.key_table import Located, Slots
from abscli.engine.state.keyed_state import KeyedState, Rows
from abscli.engine.state.list_column import ListColumn
from formats.ids import TaskId
from formats.job.model import Aggregation, Operator
from formats.native.state.tables import DUE, KEY_GROUP

Column = ValueColumn | ListColumn


class Accumulating:
    """The aggregates of one task. needed: the columns of its input that they are made of.

    wraps: sums go around the ends of 64 bits in silence, since its caller sees to it that they come back.
    """

    def __init__(self, operator: Operator, task: TaskId, *, wraps: bool = False) -> None:
        self._operator = operator
        self._task = task
        self._wraps = wraps
        self._kept = [(output.name, one) for output in operator.aggregates for one in accumulators(output)]
        self._are_kept = all(output.state == (output.name,) for output in operator.aggregates)
        self.needed = tuple(dict.fromkeys(name for _, one in self._kept for name in one.columns))

    def name_kinds(self, state: State, batch: pa.RecordBatch) -> None:
        """Have the state know the types of what is kept: what waits for it may come to it after what comes later."""
        for one, _, kind in self._results(batch):
            state.kinds.setdefault(one.name, kind)

    def add(self, state: KeyedState, rows: Rows, located: Located) -> None:
        """Take rows into the state of their keys, which are there."""
        with self._overflow(rows):
            for one, values, column in self._accumulators(state, rows.batch):
                before = self._before(one.function, column, located)
                after = merged(one.function, values, located.groups, before, one.limit, wraps=self._wraps)
                column.put(located.slots, after)

    def overflowing(
        self, state: KeyedState, rows: Rows, located: Located, records: Slots | None = None
    ) -> list[int]:
        """The rows with which a sum would overflow, given those before them that do not make one. records: as of
        `aggregates.overflowing`."""
        sums = [(values, column.take(located.slots)) for values, column in self.sums(state, rows.batch)]
        return overflowing(sums, located.groups, records) if sums else []

    def sums(self, state: KeyedState, batch: pa.RecordBatch) -> list[tuple[pa.Int64Array, Column]]:
        """Of whole numbers: what comes to them, and where they are kept."""
        return [
            (values.cast(pa.int64()), column)
            for one, values, column in self._accumulators(state, batch)
            if one.function == Aggregation.SUM and values is not None and pa.types.is_int64(column.type)
        ]

    def add_one_by_one(self, state: KeyedState, rows: Rows, located: Located) -> dict[str, pa.Array]:
        """As `add`; what is shown behind each row."""
        arrays = {}
        with self._overflow(rows):
            for one, values, column in self._accumulators(state, rows.batch):
                before = self._before(one.function, column, located)
                after = running(one.function, values, located.groups, before, one.limit)
                column.put(located.slots, after.take(pa.array(located.last)))
                arrays[one.name] = after
        return self._values_shown(arrays)

    def locate(self, state: KeyedState, rows: Rows) -> Located:
        """Where the rows' keys are, which are there from now on."""
        return state.locate(key_columns(rows.batch, state.key, self._operator.id), rows.hashes)

    def join(self, state: KeyedState, slots: Slots, groups: Slots, starts: Slots, ends: Slots) -> None:
        """Make one of several rows of the state: what rows of each group have comes to the first of it. starts, ends:
        of the stretches of time that rows are of; `first` goes by their starts, `last` by their ends."""
        heads = slots[np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]])]
        for _, one in self._kept:
            column = state.values[one.name]
            by = ends if one.function is Aggregation.LAST else starts
            order = np.lexsort((by, groups))
            rank = np.arange(len(order)) - np.repeat(*_runs(groups[order]))
            values = column.take(slots[order])
            total = values.filter(pa.array(rank == 0))
            for number in range(1, int(rank.max()) + 1):
                rows = np.flatnonzero(rank == number)
                places = np.unique(groups[order], return_inverse=True)[1][rows]
                sides = total.take(pa.array(places)), values.take(pa.array(rows))
                joined = combined(one.function, *sides, one.limit, wraps=self._wraps)
                total = _replaced(total, places, joined)
            column.put(heads, total)

    def shown(self, table: pa.Table, key: tuple[str, ...]) -> pa.Table:
        """What is put out: key columns and outputs. table: rows of the state."""
        columns = {name: table.column(name) for name in table.column_names if name not in (KEY_GROUP, DUE)}
        if self._are_kept:
            return table.select([*key, *(name for name in columns if name not in key)])
        outputs = self._values_shown(columns)
        return pa.table([*(columns[name] for name in key), *outputs.values()], names=[*key, *outputs])

    def _values_shown(self, columns: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
        return {output.name: shown(output, columns) for output in self._operator.aggregates}

    @contextlib.contextmanager
    def _overflow(self, rows: Rows) -> Iterator[None]:
        """While these rows are added: an overflow is told with the record."""
        try:
            yield
        except Overflow as error:
            raise JobFailed(
                f"operator {self._operator.id}, task {self._task}, record {rows.numbers[error.row]} "
                f"{rows.batch.slice(error.row, 1).to_pylist()[0]}: {error}"
            ) from None

    def _before(self, function: Aggregation, column: Column, located: Located) -> pa.Array:
        before = column.take(located.slots)
        return pc.fill_null(before, 0) if function == Aggregation.COUNT else before

    def _accumulators(
        self, state: KeyedState, batch: pa.RecordBatch
    ) -> list[tuple[Accumulator, pa.Array | None, Column]]:
        return [(one, values, state.column(one.name, kind)) for one, values, kind in self._results(batch)]

    def _results(self, batch: pa.RecordBatch) -> Iterator[tuple[Accumulator, pa.Array | None, pa.DataType]]:
        """What is kept, each with what comes to it, and the type that comes of that; JobFailed where none does."""
        for output, one in self._kept:
            arrays = columns(batch, one.columns, self._operator.id)
            try:
                kind = result_type(one.function, *(array.type for array in arrays), names=one.columns)
            except TypeError as error:
                raise JobFailed(f"operator {self._operator.id}, output {output}: {error}") from None
            yield one, input_values(one.function, arrays), kind


def _runs(groups: Slots) -> tuple[Slots, Slots]:
    """Where each run of equal numbers begins, and how long it is."""
    starts = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]])
    return starts, np.diff(np.r_[starts, len(groups)])


def _replaced(values: pa.Array, places: Slots, others: pa.Array) -> pa.Array:
    """The values with others in these distinct places."""
    rows = np.arange(len(values))
    rows[places] = len(values) + np.arange(len(places))
    return pa.concat_arrays([values, others]).take(pa.array(rows))
