"""The operator that aggregates by key and window of event time.

A window is put out with the first epoch whose barriers bring event time to its end, and once more with each epoch that
has brought it rows since, until it takes none any more: then it is removed. Whether a row is late follows from the
barriers alone, so that it does not depend on where batches end, nor on which of two inputs was faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from abscli.engine.failures import Failures
from abscli.engine.operators.accumulating import Accumulating
from abscli.engine.operators.rows import columns, key_columns
from abscli.engine.operators.runnable import EMITTED_ROWS, WithLate
from abscli.engine.operators.windows import Times, moments, put_in_order, windows_of, with_times
from abscli.engine.state.aggregates import Overflow
from abscli.engine.state.contract import State
from abscli.engine.state.key_table import Located, Slots
from abscli.engine.state.keyed_state import KeyedState, Rows
from formats.ids import TaskId
from formats.job.model import WINDOW_END, WINDOW_START, Operator


class Windowed:
    """Tumbling and sliding windows. watermark: what the last barriers brought. failures: takes the records that have no
    time, or with which a sum overflows in one of their windows; None: they end the run."""

    def __init__(self, operator: Operator, task: TaskId, state: State, failures: Failures | None = None) -> None:
        assert operator.window
        self._operator = operator
        self._failures = failures
        self._window = operator.window
        self._every = operator.window.every or operator.window.size
        self._aggregates = Accumulating(operator, task)
        self._needed = tuple(dict.fromkeys([*operator.key, *self._aggregates.needed]))
        self.state: State | None = state
        self.watermark: int | None = None

    def process(self, batch: pa.RecordBatch, first: int, origin: str = "") -> pa.RecordBatch | WithLate | None:
        assert self.state is not None
        timed, times = with_times(batch, first, self._window.time, self._operator.id, self._failures)
        rows, starts = windows_of(times, self._window.size, self._every)
        late = np.zeros(0, dtype=np.int64)
        if self.watermark is not None:
            takes = self._closes(starts) > self.watermark
            taken = np.zeros(len(times), dtype=bool)
            taken[rows[takes]] = True
            late, rows, starts = np.flatnonzero(~taken), rows[takes], starts[takes]
        if len(rows):
            self._add(timed, rows, starts)
        return WithLate(None, timed.batch.take(pa.array(late))) if len(late) else None

    def _add(self, timed: Rows, rows: Times, starts: Times) -> None:
        """rows: those that windows take, once for each that begins at one of the starts."""
        assert self.state is not None
        batch = timed.batch
        kind = batch.schema.field(self._window.time).type
        columns(batch, self._needed, self._operator.id)
        some = batch.select(self._needed).take(pa.array(rows))
        some = some.append_column(WINDOW_START, moments(starts, kind))
        self._aggregates.name_kinds(self.state, some)
        keys = key_columns(some, self.state.key, self._operator.id)
        # By the place among the rows that came: a record that fails is told with all of its columns.
        for state, places in self.state.divided(Rows(some, rows), keys):
            of_state, located = self._located(state, places, timed)
            if not len(located.slots):
                continue
            state.touch(located.slots)
            self._aggregates.add(state, of_state, located)
            # Due at its end also where that has come: it is put out again.
            state.set_due(located.slots, self._starts(of_state.batch)[located.first] + self._window.size)

    def _located(self, state: KeyedState, places: Rows, timed: Rows) -> tuple[Rows, Located]:
        """Rows with their numbers and the places of their windows, without those that fail in any of these."""
        rows = places._replace(numbers=timed.numbers[places.numbers])
        located = self._aggregates.locate(state, rows)
        if self._failures is None:
            return rows, located
        failing = self._aggregates.overflowing(state, rows, located, rows.numbers)
        if not failing:
            return rows, located
        for place in dict.fromkeys(places.numbers[failing].tolist()):
            self._failures.add(timed.batch.slice(place, 1), int(timed.numbers[place]), Overflow(place))
        rest = np.delete(np.arange(len(places.numbers)), failing)
        rows = Rows(rows.batch.take(pa.array(rest)), rows.numbers[rest])
        kept = self._aggregates.locate(state, rows)
        # A window that only such a record had begun is none.
        state.remove(np.setdiff1d(located.slots[located.new], kept.slots))
        return rows, kept

    def _closes(self, starts: Times) -> Times:
        """The event time from which on windows take no rows."""
        return starts + (self._window.size + self._window.lateness)

    def _starts(self, rows: pa.RecordBatch | pa.Table) -> Times:
        starts: Times = rows.column(WINDOW_START).cast(pa.int64()).to_numpy()
        return starts

    def flush(self, watermark: int | None) -> Iterator[pa.RecordBatch]:
        assert self.state is not None
        self.watermark = watermark
        if watermark is None:
            return
        for ripe in self.state.due(watermark, partial(self._ripe, watermark)):
            yield from ripe.to_batches(max_chunksize=EMITTED_ROWS)

    def _ripe(self, watermark: int, state: KeyedState, slots: Slots) -> pa.Table:
        """What is put out of these windows, which are due; they are put off then, or removed."""
        table = state.table(slots)
        starts = self._starts(table)
        ends, closes = starts + self._window.size, self._closes(starts)
        ripe = table.filter(pa.array(state.due_at(slots) == ends))
        closed = closes <= watermark
        state.touch(slots[~closed])
        state.set_due(slots[~closed], closes[~closed])
        state.remove(slots[closed])
        return self._shown(ripe, state.key)

    def _shown(self, table: pa.Table, key: tuple[str, ...]) -> pa.Table:
        """Rows of the state as they are put out."""
        shown = self._aggregates.shown(put_in_order(table, key), key)
        start = shown.column(WINDOW_START)
        end = moments(self._starts(shown) + self._window.size, start.type)
        return shown.add_column(shown.column_names.index(WINDOW_START) + 1, WINDOW_END, end)

    def close(self) -> None:
        if self.state is not None:
            self.state.close()
