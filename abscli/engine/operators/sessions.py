"""The operator that aggregates by key and session: a window that ends when its key has had no row for a while.

Rows of a batch that belong together are one part of a session in the state, by its first row; parts of a key that touch
are made one before the next barrier, so that a session is the same whatever came in which batch. What is put out, and
when, is as of other windows.
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
from abscli.engine.operators.windows import Times, moments, put_in_order, with_times
from abscli.engine.state.key_table import KeyIndex, Slots
from abscli.engine.state.keyed_state import REMOVED, KeyedState, Rows, State
from formats.ids import TaskId
from formats.job.model import WINDOW_END, WINDOW_START, Operator

NOW = REMOVED + 1
"""When a part of a session is due that has had rows since the last barrier."""


class Sessions:
    """Session windows. watermark: what the last barriers brought. failures: takes the records that have no time; None:
    they end the run."""

    def __init__(self, operator: Operator, task: TaskId, state: State, failures: Failures | None = None) -> None:
        assert operator.window
        self._operator = operator
        self._failures = failures
        self._window = operator.window
        self._aggregates = Accumulating(operator, task)
        self._needed = tuple(dict.fromkeys([*operator.key, *self._aggregates.needed]))
        self.state: State | None = state
        self.watermark: int | None = None

    def process(self, batch: pa.RecordBatch, first: int, origin: str = "") -> pa.RecordBatch | WithLate | None:
        assert self.state is not None
        timed, times = with_times(batch, first, self._window.time, self._operator.id, self._failures)
        late = np.zeros(len(times), dtype=bool)
        if self.watermark is not None:
            late = times + (self._window.size + self._window.lateness) <= self.watermark
        rows = np.flatnonzero(~late)
        if len(rows):
            self._add(timed, rows, times[rows])
        return WithLate(None, timed.batch.filter(pa.array(late))) if late.any() else None

    def _add(self, timed: Rows, rows: Slots, times: Times) -> None:
        assert self.state is not None
        batch = timed.batch
        kind = batch.schema.field(self._window.time).type
        columns(batch, self._needed, self._operator.id)
        some = batch.select(self._needed).take(pa.array(rows))
        of_key = KeyIndex().locate(key_columns(some, self._operator.key, self._operator.id)).groups
        order = np.lexsort((times, of_key))
        begins = _begins(of_key[order], times[order], times[order] + self._window.size)
        session = np.cumsum(begins) - 1
        starts = times[order][begins][session]
        some = some.take(pa.array(order)).append_column(WINDOW_START, moments(starts, kind))
        ends = times[order] + self._window.size
        self._aggregates.name_kinds(self.state, some)
        keys = key_columns(some, self.state.key, self._operator.id)
        # The number of a row leads to its time as well: both go with it to the part of the state that has its key.
        places = np.arange(len(rows))
        for state, of_state in self.state.divided(Rows(some, places), keys):
            numbered_rows = of_state._replace(numbers=timed.numbers[rows[order][of_state.numbers]])
            located = self._aggregates.locate(state, numbered_rows)
            state.touch(located.slots)
            self._aggregates.add(state, numbered_rows, located)
            last = state.column(WINDOW_END, moments(ends[:0], kind).type)
            before = last.take(located.slots).cast(pa.int64()).fill_null(NOW).to_numpy()
            latest = before.copy()
            np.maximum.at(latest, located.groups, ends[of_state.numbers])
            last.put(located.slots, moments(latest, kind))
            state.set_due(located.slots, NOW)

    def flush(self, watermark: int | None) -> Iterator[pa.RecordBatch]:
        assert self.state is not None
        self.watermark = watermark
        for ripe in self.state.due(NOW if watermark is None else watermark, partial(self._settled, watermark)):
            yield from ripe.to_batches(max_chunksize=EMITTED_ROWS)

    def _settled(self, watermark: int | None, state: KeyedState, due: Slots) -> pa.Table:
        """Make parts of one session one, and what is put out of those that end."""
        key, starts, ends, slots = self._of_their_keys(state, due)
        begins = _begins(key, starts, ends)
        session = np.cumsum(begins) - 1
        waiting = np.isin(slots, due)
        counts = np.zeros(session[-1] + 1, dtype=bool)
        counts[session[waiting]] = True  # others have had nothing, and end later
        fresh = np.zeros(len(counts), dtype=bool)
        times = state.due_at(slots)
        fresh[session[(times == NOW) | (times == ends)]] = True
        heads = slots[begins]
        last = np.full(len(counts), NOW, dtype=np.int64)
        np.maximum.at(last, session, ends)
        members = counts[session]
        state.touch(slots[members])
        joins = members & ~begins
        if joins.any():
            several = np.bincount(session) > 1
            some = members & several[session]
            self._aggregates.join(state, slots[some], session[some], starts[some], ends[some])
            column = state.column(WINDOW_END, state.kinds[WINDOW_END])
            column.put(heads[counts], moments(last[counts], column.type))
            state.remove(slots[joins])
        ended = np.zeros(len(counts), dtype=bool) if watermark is None else last <= watermark
        ripe = state.table(heads[counts & ended & fresh])
        closes = last + self._window.lateness
        closed = counts & ended & (closes <= (NOW if watermark is None else watermark))
        state.set_due(heads[counts & ~closed], np.where(ended, closes, last)[counts & ~closed])
        state.remove(heads[closed])
        return self._aggregates.shown(put_in_order(ripe, state.key), (*state.key, WINDOW_END))

    def _of_their_keys(self, state: KeyedState, due: Slots) -> tuple[Slots, Times, Times, Slots]:
        """All parts of the keys of which some are due, in order of key and start: key, start, end and slot of each."""
        live = state.live()
        keys = state.index.keys(live)
        key = KeyIndex(1 << max(4, len(live).bit_length())).locate(keys[:-1]).groups
        wanted = np.flatnonzero(np.isin(key, key[np.searchsorted(live, due)]))
        slots = live[wanted]
        starts: Times = keys[-1].cast(pa.int64()).to_numpy()[wanted]
        ends: Times = state.values[WINDOW_END].take(slots).cast(pa.int64()).to_numpy()
        order = np.lexsort((starts, key[wanted]))
        return key[wanted][order], starts[order], ends[order], slots[order]

    def close(self) -> None:
        if self.state is not None:
            self.state.close()


def _begins(key: Slots, starts: Times, ends: Times) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether a session begins at each of these stretches, in order of key, then of start: none of the same key that
    stands before it touches it."""
    # A running maximum of the ends within each key: of their ranks, behind the key's number.
    rank = np.unique(ends, return_inverse=True)
    latest = np.maximum.accumulate(key.astype(np.int64) * len(rank[0]) + rank[1])
    begins = np.ones(len(key), dtype=bool)
    before = rank[0][latest[:-1] % len(rank[0])] if len(rank[0]) else ends[:0]
    begins[1:] = (key[1:] != key[:-1]) | (starts[1:] > before)
    return begins
