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
from abscli.engine.state.key_table import Located, Slots
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
        if self._operator.emit in (Emit.RECORD, Emit.BATCH):
            put_out = self._row_by_row if self._operator.emit == Emit.RECORD else self._changed
            divided = self.state.divided(rows, keys)
            return joined([output for state, some in divided for output in put_out(state, some)])
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

    def _add(self, state: KeyedState, rows: Rows) -> None:
        """Take rows into a state, which has their keys."""
        for some, located in self._lives(state, rows):
            self._add_located(state, some, located)

    def _add_located(self, state: KeyedState, rows: Rows, located: Located) -> None:
        self._touch(state, located.slots)
        self._aggregates.add(state, rows, located)
        self._expiry.put_off(state, rows, located)

    def _touch(self, state: KeyedState, slots: Slots) -> None:
        older = state.touch(slots)
        if self._last_out is not None and len(older):
            self._last_out.note(state.table(older))

    def _lives(self, state: KeyedState, rows: Rows) -> Iterator[tuple[Rows, Located]]:
        """Rows with the places of their keys, without those that fail: the first row of a key never does.

        In parts, each to be taken into the state before the next is asked for: a row that comes when the time of its
        key is over is of the next part, and the key is forgotten before.
        """
        while rows.batch.num_rows:
            located = self._aggregates.locate(state, rows)
            over = self._expiry.over(state, rows, located)
            part, rest = rows, None
            if len(over):
                end = np.full(len(located.slots), rows.batch.num_rows)
                np.minimum.at(end, located.groups[over], over)
                stays = np.arange(rows.batch.num_rows) < end[located.groups]
                part, rest = _some(rows, np.flatnonzero(stays)), _some(rows, np.flatnonzero(~stays))
            taken = located if rest is None else self._aggregates.locate(state, part)
            if failing := self._failing(state, part, taken):
                rows = _some(rows, np.flatnonzero(~np.isin(rows.numbers, failing)))
                continue
            if part.batch.num_rows:
                yield part, taken
            if rest is None:
                return
            gone = located.slots[np.unique(located.groups[over])]
            self._touch(state, gone)
            state.remove(gone)
            rows = rest

    def _failing(self, state: KeyedState, rows: Rows, located: Located) -> list[int]:
        """The numbers of rows that fail, which are told. Where keys are kept for a while only the first of each key:
        without it others may come when the time of their key is over."""
        if self._failures is None:
            return []
        failing = np.array(self._aggregates.overflowing(state, rows, located), dtype=np.int64)
        if self._expiry.columns:
            failing = failing[np.unique(located.groups[failing], return_index=True)[1]]
        for row in failing.tolist():
            self._failures.add(rows.batch.slice(row, 1), int(rows.numbers[row]), Overflow(row))
        numbers: list[int] = rows.numbers[failing].tolist()
        return numbers

    def _changed(self, state: KeyedState, rows: Rows) -> Iterator[Rows]:
        for some, located in self._lives(state, rows):
            self._add_located(state, some, located)
            table = self._aggregates.shown(state.table(located.slots), state.key)
            yield Rows(table.combine_chunks().to_batches()[0], some.numbers[located.first])

    def _row_by_row(self, state: KeyedState, rows: Rows) -> Iterator[Rows]:
        for some, located in self._lives(state, rows):
            state.touch(located.slots)
            self._expiry.put_off(state, some, located)
            outputs = self._aggregates.add_one_by_one(state, some, located)
            keys = key_columns(some.batch, state.key, self._operator.id)
            yield Rows(pa.record_batch([*keys, *outputs.values()], names=[*state.key, *outputs]), some.numbers)

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


def _some(rows: Rows, places: Slots) -> Rows:
    return Rows(rows.batch.take(pa.array(places)), rows.numbers[places])
