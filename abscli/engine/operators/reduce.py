"""The operator that aggregates by key."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from abscli.engine.errors import JobFailed
from abscli.engine.operators.rows import columns, joined, key_columns, numbered
from abscli.engine.operators.runnable import EMITTED_ROWS
from abscli.engine.state.aggregates import Overflow, ValueColumn, merged, result_type, running
from abscli.engine.state.key_table import Located
from abscli.engine.state.keyed_state import KeyedState, Rows, State
from formats.ids import TaskId
from formats.job.model import Aggregate, Aggregation, Emit, Operator


class Reduce:
    """Named aggregates by key; emits a row a changed key per epoch or batch, or a row a record."""

    def __init__(self, operator: Operator, task: TaskId, state: State) -> None:
        self._operator = operator
        self._task = task
        self.state: State | None = state
        inputs = [aggregate.column for aggregate in operator.aggregates if aggregate.column != "*"]
        self._needed = tuple(dict.fromkeys([*operator.key, *inputs]))

    def process(self, batch: pa.RecordBatch, first: int) -> pa.RecordBatch | None:
        assert self.state is not None
        rows, keys = numbered(batch, first), key_columns(batch, self.state.key, self._operator.id)
        for aggregate, _, kind in self._results(batch):
            # Now: what waits for the state of its keys may come to it after what comes later.
            self.state.kinds.setdefault(aggregate.name, kind)
        if self._operator.emit == Emit.RECORD:
            return joined([self._row_by_row(state, some) for state, some in self.state.divided(rows, keys)])
        if self._operator.emit == Emit.BATCH:
            return joined([self._changed(state, some) for state, some in self.state.divided(rows, keys)])
        columns(batch, self._needed, self._operator.id)
        for state, some in self.state.gathered(rows._replace(batch=batch.select(self._needed)), keys):
            self._add(state, some)
        return None

    def _add(self, state: KeyedState, rows: Rows) -> Located:
        """Take rows into a state, which has their keys; where it did."""
        located = state.locate(key_columns(rows.batch, state.key, self._operator.id), rows.hashes)
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
        keys = key_columns(rows.batch, state.key, self._operator.id)
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
                (values,) = columns(batch, (aggregate.column,), self._operator.id)
            try:
                kind = result_type(aggregate.function, values.type if values is not None else None)
            except TypeError as error:
                raise JobFailed(f"operator {self._operator.id}, output {aggregate.name}: {error}") from None
            yield aggregate, values, kind

    def flush(self, watermark: int | None) -> Iterator[pa.RecordBatch]:
        assert self.state is not None
        if self._operator.emit != Emit.EPOCH:
            return
        for table in self.state.changed_now(self._add):
            yield from table.drop_columns(table.column_names[:1]).to_batches(max_chunksize=EMITTED_ROWS)


def _batch(table: pa.Table) -> pa.RecordBatch:
    return table.combine_chunks().to_batches()[0]
