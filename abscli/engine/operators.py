"""What each kind of operator does with a batch. Outputs never depend on where batches end (`emit: batch` says so)."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from abscli.engine.errors import JobFailed, UsageError
from abscli.engine.functions import Function, call, load
from abscli.engine.state.aggregates import Overflow, ValueColumn, merged, result_type, running
from abscli.engine.state.key_table import Located
from abscli.engine.state.keyed_state import KeyedState
from formats.ids import TaskId
from formats.job.model import Aggregation, Emit, Kind, Operator


class Runnable(Protocol):
    """One task's operator."""

    state: KeyedState | None

    def process(self, batch: pa.RecordBatch, first: int) -> pa.RecordBatch | None:
        """Rows out for rows in; `first` numbers the batch's first record, for messages."""

    def flush(self) -> pa.RecordBatch | None:
        """What is owed once an epoch, before its barrier."""


class RowWise:
    """map, filter, flat_map, union."""

    state: KeyedState | None = None

    def __init__(self, operator: Operator, task: TaskId, function: Function | None) -> None:
        self._operator = operator
        self._task = task
        self._function = function

    def process(self, batch: pa.RecordBatch, first: int) -> pa.RecordBatch | None:
        if self._function is None:
            return batch
        kind = self._operator.kind
        expected = pa.BooleanArray if kind is Kind.FILTER else pa.RecordBatch
        result = call(self._function, batch, expected, operator=self._operator.id, task=self._task, first=first)
        if kind is not Kind.FLAT_MAP and len(result) != batch.num_rows:
            raise JobFailed(
                f"operator {self._operator.id}, task {self._task}: the function returned {len(result)} rows "
                f"for {batch.num_rows}; a {kind} returns one a row"
            )
        return batch.filter(result) if kind is Kind.FILTER else result

    def flush(self) -> pa.RecordBatch | None:
        return None


class Distinct:
    """Lets a row pass the first time its key is seen."""

    def __init__(self, operator: Operator) -> None:
        self.state: KeyedState | None = KeyedState(operator.key, operator.max_parallelism)
        self._id = operator.id

    def process(self, batch: pa.RecordBatch, first: int) -> pa.RecordBatch | None:
        assert self.state is not None
        located = self.state.locate(_keys(batch, self.state.key, self._id))
        return batch.take(pa.array(np.sort(located.first[located.new])))

    def flush(self) -> pa.RecordBatch | None:
        return None


class Reduce:
    """Named aggregates by key; emits a row a changed key per epoch or batch, or a row a record."""

    def __init__(self, operator: Operator, task: TaskId) -> None:
        self._operator = operator
        self._task = task
        self.state: KeyedState | None = KeyedState(operator.key, operator.max_parallelism)

    def process(self, batch: pa.RecordBatch, first: int) -> pa.RecordBatch | None:
        state = self.state
        assert state is not None
        keys = _keys(batch, state.key, self._operator.id)
        located = state.locate(keys)
        state.touch(located.slots)
        try:
            if self._operator.emit == Emit.RECORD:
                return self._row_by_row(state, keys, batch, located)
            for _, function, values, column in self._aggregates(batch):
                column.put(
                    located.slots, merged(function, values, located.groups, self._before(function, column, located))
                )
        except Overflow as error:
            raise JobFailed(
                f"operator {self._operator.id}, task {self._task}, record {first + error.row} "
                f"{batch.slice(error.row, 1).to_pylist()[0]}: {error}"
            ) from None
        if self._operator.emit == Emit.BATCH:
            table = state.table(located.slots)
            return _batch(table.drop_columns(table.column_names[0]))
        return None

    def _row_by_row(
        self, state: KeyedState, keys: list[pa.Array], batch: pa.RecordBatch, located: Located
    ) -> pa.RecordBatch:
        last = np.empty(len(located.slots), dtype=np.int64)
        last[located.groups] = np.arange(len(located.groups))
        arrays = dict(zip(state.key, keys, strict=True))
        for name, function, values, column in self._aggregates(batch):
            rows = running(function, values, located.groups, self._before(function, column, located))
            column.put(located.slots, rows.take(pa.array(last)))
            arrays[name] = rows
        return pa.record_batch(list(arrays.values()), names=list(arrays))

    def _before(self, function: Aggregation, column: ValueColumn, located: Located) -> pa.Array:
        before = column.take(located.slots)
        return pc.fill_null(before, 0) if function == Aggregation.COUNT else before

    def _aggregates(self, batch: pa.RecordBatch) -> list[tuple[str, Aggregation, pa.Array | None, ValueColumn]]:
        assert self.state is not None
        result = []
        for aggregate in self._operator.aggregates:
            values = None
            if aggregate.column != "*":
                (values,) = _columns(batch, (aggregate.column,), self._operator.id)
            column = self.state.values.get(aggregate.name)
            if column is None:
                try:
                    kind = result_type(aggregate.function, values.type if values is not None else None)
                except TypeError as error:
                    raise JobFailed(f"operator {self._operator.id}, output {aggregate.name}: {error}") from None
                column = self.state.values[aggregate.name] = ValueColumn(kind)
            result.append((aggregate.name, aggregate.function, values, column))
        return result

    def flush(self) -> pa.RecordBatch | None:
        assert self.state is not None
        if self._operator.emit != Emit.EPOCH:
            return None
        table = self.state.changed_now()
        return None if table is None else _batch(table.drop_columns(table.column_names[0]))


def _columns(batch: pa.RecordBatch, names: tuple[str, ...], operator: str) -> list[pa.Array]:
    missing = [name for name in names if name not in batch.schema.names]
    if missing:
        raise JobFailed(
            f"operator {operator}: no column {missing[0]!r} in its input, which has {', '.join(batch.schema.names)}"
        )
    return [batch.column(name) for name in names]


def _keys(batch: pa.RecordBatch, names: tuple[str, ...], operator: str) -> list[pa.Array]:
    """Key columns, with 0.0 for -0.0: they are one key, and which of them came first depends on the inputs' order."""
    return [
        pc.add(column, pa.scalar(0.0, column.type)) if pa.types.is_floating(column.type) else column
        for column in _columns(batch, names, operator)
    ]


def _batch(table: pa.Table) -> pa.RecordBatch:
    return table.combine_chunks().to_batches()[0]


def make_operator(operator: Operator, task: TaskId, root: str) -> Runnable:
    """The runnable operator of a task that is neither source nor sink; UsageError for kinds that cannot be run."""
    match operator.kind:
        case Kind.MAP | Kind.FILTER | Kind.FLAT_MAP:
            assert operator.function is not None
            return RowWise(operator, task, load(operator.function, root))
        case Kind.UNION:
            return RowWise(operator, task, None)
        case Kind.DISTINCT:
            return Distinct(operator)
        case Kind.REDUCE:
            return Reduce(operator, task)
    raise UsageError(
        f"operator {operator.id} is {operator.kind}: it can be inspected and planned for, not run",
        hint="run knows source, map, filter, flat_map, reduce, distinct, union and sink",
    )
