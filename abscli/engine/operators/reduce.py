"""The operator that aggregates by key."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from abscli.engine.errors import JobFailed
from abscli.engine.failures import Failures
from abscli.engine.operators.last_out import LastOut
from abscli.engine.operators.rows import columns, joined, key_columns, numbered
from abscli.engine.operators.runnable import EMITTED_ROWS
from abscli.engine.state.aggregates import (
    Accumulator,
    Overflow,
    ValueColumn,
    accumulators,
    input_values,
    merged,
    overflowing,
    result_type,
    running,
    shown,
)
from abscli.engine.state.key_table import Located
from abscli.engine.state.keyed_state import KeyedState, Rows, State
from abscli.engine.state.list_column import ListColumn
from formats.ids import TaskId
from formats.job.model import Aggregation, Emit, Operator


class Reduce:
    """Named aggregates by key; emits a row a changed key per epoch or batch, or a row a record.

    last_out: what was last put out for keys, for who emits changes alone.
    failures: takes the records at which a sum overflows; None: that ends the run.
    """

    def __init__(
        self, operator: Operator, task: TaskId, state: State, last_out: LastOut | None = None,
        failures: Failures | None = None,
    ) -> None:  # fmt: skip
        self._operator = operator
        self._task = task
        self.state: State | None = state
        self._last_out = last_out
        self._failures = failures
        self._kept = [(output.name, one) for output in operator.aggregates for one in accumulators(output)]
        self._needed = tuple(dict.fromkeys([*operator.key, *(name for _, one in self._kept for name in one.columns)]))
        self._are_kept = all(output.state == (output.name,) for output in operator.aggregates)

    def process(self, batch: pa.RecordBatch, first: int) -> pa.RecordBatch | None:
        assert self.state is not None
        rows, keys = numbered(batch, first), key_columns(batch, self.state.key, self._operator.id)
        for one, _, kind in self._results(batch):
            # Now: what waits for the state of its keys may come to it after what comes later.
            self.state.kinds.setdefault(one.name, kind)
        if self._operator.emit == Emit.RECORD:
            each = [self._row_by_row(state, some) for state, some in self.state.divided(rows, keys)]
            return joined([output for output in each if output is not None])
        if self._operator.emit == Emit.BATCH:
            each = [self._changed(state, some) for state, some in self.state.divided(rows, keys)]
            return joined([output for output in each if output is not None])
        columns(batch, self._needed, self._operator.id)
        if self._failures is not None:
            # Whole, and at once: one that fails is a record of this channel, with all of its columns.
            work = self.state.divided(rows, keys)
        else:
            work = self.state.gathered(rows._replace(batch=batch.select(self._needed)), keys)
        for state, some in work:
            self._add(state, some)
        if self._last_out is not None:
            self._last_out.settle()
        return None

    def _add(self, state: KeyedState, rows: Rows) -> Located:
        """Take rows into a state, which has their keys; where it did, of those that it took."""
        return self._add_located(state, *self._located(state, rows))

    def _add_located(self, state: KeyedState, rows: Rows, located: Located) -> Located:
        if not rows.batch.num_rows:
            return located
        older = state.touch(located.slots)
        if self._last_out is not None and len(older):
            self._last_out.note(state.table(older))
        with self._overflow(rows):
            for one, values, column in self._accumulators(state, rows.batch):
                before = self._before(one.function, column, located)
                column.put(located.slots, merged(one.function, values, located.groups, before, one.limit))
        return located

    def _located(self, state: KeyedState, rows: Rows) -> tuple[Rows, Located]:
        """Rows with the places of their keys, without those that fail: the first row of a key never does."""
        located = state.locate(key_columns(rows.batch, state.key, self._operator.id), rows.hashes)
        if self._failures is None or not len(failing := self._overflowing(state, rows, located)):
            return rows, located
        for row in failing:
            self._failures.add(rows.batch.slice(row, 1), int(rows.numbers[row]), Overflow(row))
        rest = np.delete(np.arange(rows.batch.num_rows), failing)
        rows = Rows(rows.batch.take(pa.array(rest)), rows.numbers[rest])
        return rows, state.locate(key_columns(rows.batch, state.key, self._operator.id))

    def _overflowing(self, state: KeyedState, rows: Rows, located: Located) -> list[int]:
        """The rows with which a sum would overflow, given those before them that do not make one."""
        sums = [
            (values.cast(pa.int64()), column.take(located.slots))
            for one, values, kind in self._results(rows.batch)
            for column in [state.column(one.name, kind)]
            if one.function == Aggregation.SUM and values is not None and pa.types.is_int64(kind)
        ]
        return overflowing(sums, located.groups) if sums else []

    def _changed(self, state: KeyedState, rows: Rows) -> Rows | None:
        rows, located = self._located(state, rows)
        if not rows.batch.num_rows:
            return None
        self._add_located(state, rows, located)
        table = state.table(located.slots)
        return Rows(_batch(self._shown(table)), rows.numbers[located.first])

    def _row_by_row(self, state: KeyedState, rows: Rows) -> Rows | None:
        rows, located = self._located(state, rows)
        if not rows.batch.num_rows:
            return None
        keys = key_columns(rows.batch, state.key, self._operator.id)
        state.touch(located.slots)
        last = np.empty(len(located.slots), dtype=np.int64)
        last[located.groups] = np.arange(len(located.groups))
        arrays = {}
        with self._overflow(rows):
            for one, values, column in self._accumulators(state, rows.batch):
                before = self._before(one.function, column, located)
                after = running(one.function, values, located.groups, before, one.limit)
                column.put(located.slots, after.take(pa.array(last)))
                arrays[one.name] = after
        outputs = self._values_shown(arrays)
        return Rows(pa.record_batch([*keys, *outputs.values()], names=[*state.key, *outputs]), rows.numbers)

    def _shown(self, table: pa.Table) -> pa.Table:
        """What is put out. table: rows of the state."""
        if self._are_kept:
            return table.drop_columns(table.column_names[:1])
        columns = dict(zip(table.column_names, table.columns, strict=True))
        outputs = self._values_shown(columns)
        keys = [columns[name] for name in self._operator.key]
        return pa.table([*keys, *outputs.values()], names=[*self._operator.key, *outputs])

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

    def _before(self, function: Aggregation, column: ValueColumn | ListColumn, located: Located) -> pa.Array:
        before = column.take(located.slots)
        return pc.fill_null(before, 0) if function == Aggregation.COUNT else before

    def _accumulators(
        self, state: KeyedState, batch: pa.RecordBatch
    ) -> list[tuple[Accumulator, pa.Array | None, ValueColumn | ListColumn]]:
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

    def flush(self, watermark: int | None) -> Iterator[pa.RecordBatch]:
        assert self.state is not None
        if self._operator.emit not in (Emit.EPOCH, Emit.CHANGE):
            return
        for table in self.state.changed_now(self._add):
            if self._last_out is not None:
                table = self._last_out.differing(table)
            yield from self._shown(table).to_batches(max_chunksize=EMITTED_ROWS)
        if self._last_out is not None:
            self._last_out.forget()

    def close(self) -> None:
        if self.state is not None:
            self.state.close()
        if self._last_out is not None:
            self._last_out.forget()


def _batch(table: pa.Table) -> pa.RecordBatch:
    return table.combine_chunks().to_batches()[0]
