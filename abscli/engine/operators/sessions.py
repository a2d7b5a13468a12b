"""The operator that aggregates by key and session: a window that ends when its key has had no row for a while.

Rows of a batch that belong together are one part of a session in the state, by its first row; parts of a key that touch
are made one before the next barrier, so that a session is the same whatever came in which batch. What is put out, and
when, is as of other windows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from abscli.engine.failures import Failures
from abscli.engine.operators.accumulating import Accumulating
from abscli.engine.operators.rows import columns, key_columns
from abscli.engine.operators.runnable import EMITTED_ROWS, WithLate
from abscli.engine.operators.session_sums import Record, Stretch, too_much
from abscli.engine.operators.windows import Times, moments, put_in_order, with_times
from abscli.engine.state.aggregates import INT64, Overflow
from abscli.engine.state.contract import State
from abscli.engine.state.key_table import KeyIndex, Slots
from abscli.engine.state.keyed_state import REMOVED, KeyedState, Rows
from formats.ids import TaskId
from formats.job.model import WINDOW_END, WINDOW_START, Operator
from formats.native.hashing import Hashes

NOW = REMOVED + 1
"""When a part of a session is due that has had rows since the last barrier."""


class _Parts(NamedTuple):
    """Rows in order of key and time. batch: with the start of the part that each is of. rows: which of their batch they
    are. ends: their times, with the gap."""

    batch: pa.RecordBatch
    rows: Slots
    ends: Times


class Sessions:
    """Session windows. watermark: what the last barriers brought. failures: takes the records that have no time, and
    those that are too much for a sum; None: they end the run."""

    def __init__(self, operator: Operator, task: TaskId, state: State, failures: Failures | None = None) -> None:
        assert operator.window
        self._operator = operator
        self._failures = failures
        self._window = operator.window
        # The sum of a part may leave 64 bits where that of its session does not.
        self._aggregates = Accumulating(operator, task, wraps=failures is not None)
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
        columns(timed.batch, self._needed, self._operator.id)
        parts = self._parts(timed, rows, times)
        self._aggregates.name_kinds(self.state, parts.batch)
        keys = key_columns(parts.batch, self.state.key, self._operator.id)
        for state, some in self.state.divided(Rows(parts.batch, np.arange(len(parts.rows))), keys):
            mine = _Parts(some.batch, parts.rows[some.numbers], parts.ends[some.numbers])
            failing = np.zeros(0, dtype=np.int64) if self._failures is None else self._too_much(state, mine)
            if not len(failing):
                self._add_parts(state, timed, mine, some.hashes)
                continue
            for row in failing.tolist():
                self._fail(timed, row)
            # Without them, those that are left may be parts of several sessions.
            is_left = ~np.isin(mine.rows, failing)
            left, ends = mine.rows[is_left], mine.ends[is_left]
            if len(left):
                self._add_parts(state, timed, self._parts(timed, left, ends - self._window.size))

    def _parts(self, timed: Rows, rows: Slots, times: Times) -> _Parts:
        """Rows of a batch as parts of sessions."""
        some = timed.batch.select(self._needed).take(pa.array(rows))
        of_key = KeyIndex().locate(key_columns(some, self._operator.key, self._operator.id)).groups
        order = np.lexsort((times, of_key))
        begins = _begins(of_key[order], times[order], times[order] + self._window.size)
        starts = times[order][begins][np.cumsum(begins) - 1]
        kind = timed.batch.schema.field(self._window.time).type
        batch = some.take(pa.array(order)).append_column(WINDOW_START, moments(starts, kind))
        return _Parts(batch, rows[order], times[order] + self._window.size)

    def _add_parts(self, state: KeyedState, timed: Rows, parts: _Parts, hashes: Hashes | None = None) -> None:
        rows = Rows(parts.batch, timed.numbers[parts.rows], hashes)
        located = self._aggregates.locate(state, rows)
        state.touch(located.slots)
        self._aggregates.add(state, rows, located)
        kind = parts.batch.schema.field(WINDOW_START).type
        last = state.column(WINDOW_END, kind)
        before = last.take(located.slots).cast(pa.int64()).fill_null(NOW).to_numpy()
        latest = before.copy()
        np.maximum.at(latest, located.groups, parts.ends)
        last.put(located.slots, moments(latest, kind))
        state.set_due(located.slots, NOW)

    # -- records that are too much for a sum ---------------------------------------------------------------------

    def _too_much(self, state: KeyedState, parts: _Parts) -> Slots:
        """The rows that no session can take."""
        sums = self._aggregates.sums(state, parts.batch)
        live = state.live()
        if all(_size(values) + _size(column.take(live)) < INT64 // 2 for values, column in sums):
            return np.zeros(0, dtype=np.int64)
        index = KeyIndex()
        keys = index.locate(key_columns(parts.batch, self._operator.key, self._operator.id))
        kept: dict[int, list[Stretch]] = {}
        if len(live):
            *of_state, starts = state.index.keys(live)
            located = index.locate(of_state)
            ends = state.column(WINDOW_END, starts.type).take(live)
            each = zip(
                located.slots[located.groups].tolist(), _numbers(starts), _numbers(ends),
                zip(*(_numbers(column.take(live)) for _, column in sums), strict=True), strict=True,
            )  # fmt: skip
            for key, start, end, of_part in each:
                kept.setdefault(key, []).append(Stretch(start, end, of_part))
        came = np.argsort(parts.rows)
        times = (parts.ends - self._window.size)[came].tolist()
        values = zip(*(_numbers(values.take(pa.array(came))) for values, _ in sums), strict=True)
        of_rows = keys.slots[keys.groups][came].tolist()
        records = [Record(*one) for one in zip(of_rows, times, values, strict=True)]
        failing: Slots = parts.rows[came][too_much(kept, records, self._window.size)]
        return failing

    def _fail(self, timed: Rows, row: int) -> None:
        assert self._failures is not None
        self._failures.add(timed.batch.slice(row, 1), int(timed.numbers[row]), Overflow(row))

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


def _size(values: pa.Array) -> float:
    """The sum of all values without their signs, about."""
    return float(np.abs(values.fill_null(0).to_numpy().astype(np.float64)).sum())


def _numbers(values: pa.Array) -> list[int]:
    """Whole numbers, or times in microseconds; 0 for null."""
    numbers: list[int] = values.cast(pa.int64()).fill_null(0).to_pylist()
    return numbers
