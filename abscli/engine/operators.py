"""What each kind of operator does with a batch. Outputs never depend on where batches end (`emit: batch` says so)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from abscli.engine.errors import JobFailed, UsageError
from abscli.engine.functions import Function, call, load
from abscli.engine.state.aggregates import Overflow, ValueColumn, merged, result_type, running
from abscli.engine.state.key_table import Located
from abscli.engine.state.keyed_state import KeyedState, Rows, State
from formats.ids import TaskId
from formats.job.model import Aggregate, Aggregation, Emit, Kind, Operator


class Runnable(Protocol):
    """One task's operator."""

    state: State | None

    def process(self, batch: pa.RecordBatch, first: int) -> pa.RecordBatch | None:
        """Rows out for rows in; `first` numbers the batch's first record, for messages."""

    def flush(self) -> Iterator[pa.RecordBatch]:
        """What is owed once an epoch, before its barrier, piece by piece; nothing is processed before the last."""


EMITTED_ROWS = 1 << 16
"""Of what is emitted at the end of an epoch, in one batch."""

MakeState = Callable[[Operator], State]
"""The keyed state of a task of an operator."""


def in_memory(operator: Operator) -> State:
    """All of it."""
    return KeyedState(operator.key, operator.max_parallelism)


class RowWise:
    """map, filter, flat_map, union."""

    state: State | None = None

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

    def flush(self) -> Iterator[pa.RecordBatch]:
        yield from ()


class Distinct:
    """Lets a row pass the first time its key is seen."""

    def __init__(self, operator: Operator, state: State) -> None:
        self.state: State | None = state
        self._id = operator.id

    def process(self, batch: pa.RecordBatch, first: int) -> pa.RecordBatch | None:
        assert self.state is not None
        outputs = []
        for state, rows in self.state.divided(_numbered(batch, first), _keys(batch, self.state.key, self._id)):
            located = state.locate(_keys(rows.batch, state.key, self._id), rows.hashes)
            places = np.sort(located.first[located.new])
            outputs.append(Rows(rows.batch.take(pa.array(places)), rows.numbers[places]))
        return _joined(outputs)

    def flush(self) -> Iterator[pa.RecordBatch]:
        yield from ()


class Reduce:
    """Named aggregates by key; emits a row a changed key per epoch or batch, or a row a record."""

    def __init__(self, operator: Operator, task: TaskId, state: State) -> None:
        self._operator = operator
        self._task = task
        self.state: State | None = state
        columns = [aggregate.column for aggregate in operator.aggregates if aggregate.column != "*"]
        self._needed = tuple(dict.fromkeys([*operator.key, *columns]))

    def process(self, batch: pa.RecordBatch, first: int) -> pa.RecordBatch | None:
        assert self.state is not None
        rows, keys = _numbered(batch, first), _keys(batch, self.state.key, self._operator.id)
        for aggregate, _, kind in self._results(batch):
            # Now: what waits for the state of its keys may come to it after what comes later.
            self.state.kinds.setdefault(aggregate.name, kind)
        if self._operator.emit == Emit.RECORD:
            return _joined([self._row_by_row(state, some) for state, some in self.state.divided(rows, keys)])
        if self._operator.emit == Emit.BATCH:
            return _joined([self._changed(state, some) for state, some in self.state.divided(rows, keys)])
        _columns(batch, self._needed, self._operator.id)
        for state, some in self.state.gathered(rows._replace(batch=batch.select(self._needed)), keys):
            self._add(state, some)
        return None

    def _add(self, state: KeyedState, rows: Rows) -> Located:
        """Take rows into a state, which has their keys; where it did."""
        located = state.locate(_keys(rows.batch, state.key, self._operator.id), rows.hashes)
        state.touch(located.slots)
        with self._overflow(rows):
            for _, function, values, column in self._aggregates(state, rows.batch):
                before = self._before(function, column, located)
                column.put(located.slots, merged(function, values, located.groups, before))
        return located

    def _changed(self, state: KeyedState, rows: Rows) -> Rows:
        located = self._add(state, rows)
        table = state.table(located.slots)
        return Rows(_batch(table.drop_columns(table.column_names[0])), rows.numbers[located.first])

    def _row_by_row(self, state: KeyedState, rows: Rows) -> Rows:
        keys = _keys(rows.batch, state.key, self._operator.id)
        located = state.locate(keys, rows.hashes)
        state.touch(located.slots)
        last = np.empty(len(located.slots), dtype=np.int64)
        last[located.groups] = np.arange(len(located.groups))
        arrays = dict(zip(state.key, keys, strict=True))
        with self._overflow(rows):
            for name, function, values, column in self._aggregates(state, rows.batch):
                after = running(function, values, located.groups, self._before(function, column, located))
                column.put(located.slots, after.take(pa.array(last)))
                arrays[name] = after
        return Rows(pa.record_batch(list(arrays.values()), names=list(arrays)), rows.numbers)

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

    def _before(self, function: Aggregation, column: ValueColumn, located: Located) -> pa.Array:
        before = column.take(located.slots)
        return pc.fill_null(before, 0) if function == Aggregation.COUNT else before

    def _aggregates(
        self, state: KeyedState, batch: pa.RecordBatch
    ) -> list[tuple[str, Aggregation, pa.Array | None, ValueColumn]]:
        return [
            (aggregate.name, aggregate.function, values, state.column(aggregate.name, kind))
            for aggregate, values, kind in self._results(batch)
        ]

    def _results(self, batch: pa.RecordBatch) -> Iterator[tuple[Aggregate, pa.Array | None, pa.DataType]]:
        """Each aggregate with its column, and the type that comes of that; JobFailed where none does."""
        for aggregate in self._operator.aggregates:
            values = None
            if aggregate.column != "*":
                (values,) = _columns(batch, (aggregate.column,), self._operator.id)
            try:
                kind = result_type(aggregate.function, values.type if values is not None else None)
            except TypeError as error:
                raise JobFailed(f"operator {self._operator.id}, output {aggregate.name}: {error}") from None
            yield aggregate, values, kind

    def flush(self) -> Iterator[pa.RecordBatch]:
        assert self.state is not None
        if self._operator.emit != Emit.EPOCH:
            return
        for table in self.state.changed_now(self._add):
            yield from table.drop_columns(table.column_names[:1]).to_batches(max_chunksize=EMITTED_ROWS)


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


def _numbered(batch: pa.RecordBatch, first: int) -> Rows:
    return Rows(batch, np.arange(first, first + batch.num_rows))


def _joined(outputs: list[Rows]) -> pa.RecordBatch | None:
    """What was put out for parts of a batch, in the order of the records that it was put out for."""
    if len(outputs) < 2:
        return outputs[0].batch if outputs else None
    order = np.argsort(np.concatenate([output.numbers for output in outputs]))
    return pa.concat_batches([output.batch for output in outputs]).take(pa.array(order))


def _batch(table: pa.Table) -> pa.RecordBatch:
    return table.combine_chunks().to_batches()[0]


def make_operator(operator: Operator, task: TaskId, root: str, make_state: MakeState = in_memory) -> Runnable:
    """The runnable operator of a task that is neither source nor sink; UsageError for kinds that cannot be run."""
    match operator.kind:
        case Kind.MAP | Kind.FILTER | Kind.FLAT_MAP:
            assert operator.function is not None
            return RowWise(operator, task, load(operator.function, root))
        case Kind.UNION:
            return RowWise(operator, task, None)
        case Kind.DISTINCT:
            return Distinct(operator, make_state(operator))
        case Kind.REDUCE:
            return Reduce(operator, task, make_state(operator))
    raise UsageError(
        f"operator {operator.id} is {operator.kind}: it can be inspected and planned for, not run",
        hint="run knows source, map, filter, flat_map, reduce, distinct, union and sink",
    )
