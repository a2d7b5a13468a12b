"""The operator that aggregates by key."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from abscli.engine.failures import Failures
from abscli.engine.operators.accumulating import Accumulating
from abscli.engine.operators.expiry import Expiry
from abscli.engine.operators.last_out import LastOut
from abscli.engine.operators.rows import columns, joined, key_columns
from abscli.engine.operators.runnable import EMITTED_ROWS
from abscli.engine.state.aggregates import Overflow
from abscli.engine.state.contract import State
from abscli.engine.state.key_table import Located
from abscli.engine.state.keyed_state import KeyedState, Rows
from formats.ids import TaskId
from formats.job.model import Emit, Operator


class Reduce:
    """Named aggregates by key; emits a row a changed key per epoch or batch, or a row a record.

    last_out: what was last put out for keys, for who emits changes alone.
    failures: takes the records at which a sum overflows, or that have no time where keys are kept for a while; None:
    these end the run.
    """

    def __init__(
        self, operator: Operator, task: TaskId, state: State, last_out: LastOut | None = None,
        failures: Failures | None = None,
    ) -> None:  # fmt: skip
        self._operator = operator
        self.state: State | None = state
        self._last_out = last_out
        self._failures = failures
        self._aggregates = Accumulating(operator, task)
        self._expiry = Expiry(operator)
        self._needed = tuple(dict.fromkeys([*operator.key, *self._aggregates.needed, *self._expiry.columns]))

    def process(self, batch: pa.RecordBatch, first: int, origin: str = "") -> pa.RecordBatch | None:
        assert self.state is not None
        rows = self._expiry.taken(batch, first, self._failures)
        batch, keys = rows.batch, key_columns(rows.batch, self.state.key, self._operator.id)
        self._aggregates.name_kinds(self.state, batch)
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
        self._aggregates.add(state, rows, located)
        self._expiry.put_off(state, rows, located)
        return located

    def _located(self, state: KeyedState, rows: Rows) -> tuple[Rows, Located]:
        """Rows with the places of their keys, without those that fail: the first row of a key never does."""
        located = self._aggregates.locate(state, rows)
        if self._failures is None or not len(failing := self._aggregates.overflowing(state, rows, located)):
            return rows, located
        for row in failing:
            self._failures.add(rows.batch.slice(row, 1), int(rows.numbers[row]), Overflow(row))
        rest = np.delete(np.arange(rows.batch.num_rows), failing)
        rows = Rows(rows.batch.take(pa.array(rest)), rows.numbers[rest])
        return rows, self._aggregates.locate(state, rows)

    def _changed(self, state: KeyedState, rows: Rows) -> Rows | None:
        rows, located = self._located(state, rows)
        if not rows.batch.num_rows:
            return None
        self._add_located(state, rows, located)
        table = self._aggregates.shown(state.table(located.slots), state.key)
        return Rows(table.combine_chunks().to_batches()[0], rows.numbers[located.first])

    def _row_by_row(self, state: KeyedState, rows: Rows) -> Rows | None:
        rows, located = self._located(state, rows)
        if not rows.batch.num_rows:
            return None
        state.touch(located.slots)
        self._expiry.put_off(state, rows, located)
        outputs = self._aggregates.add_one_by_one(state, rows, located)
        keys = key_columns(rows.batch, state.key, self._operator.id)
        return Rows(pa.record_batch([*keys, *outputs.values()], names=[*state.key, *outputs]), rows.numbers)

    def flush(self, watermark: int | None) -> Iterator[pa.RecordBatch]:
        assert self.state is not None
        if self._operator.emit in (Emit.EPOCH, Emit.CHANGE):
            yield from self._put_out(self.state)
        self._expiry.expire(self.state, watermark)

    def _put_out(self, state: State) -> Iterator[pa.RecordBatch]:
        for table in state.changed_now(self._add):
            if self._last_out is not None:
                table = self._last_out.differing(table)
            yield from self._aggregates.shown(table, state.key).to_batches(max_chunksize=EMITTED_ROWS)
        if self._last_out is not None:
            self._last_out.forget()

    def close(self) -> None:
        if self.state is not None:
            self.state.close()
        if self._last_out is not None:
            self._last_out.forget()
