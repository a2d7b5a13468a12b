"""How long keys are kept: for a while behind the event time of their latest row.

A row that comes later than that finds its key new. So it does not matter how far the watermark has come by then, which
is a question of when epochs ended: at the barriers' watermark keys only leave the state, but for rows that are late.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from abscli.engine.failures import Failures
from abscli.engine.operators.rows import numbered
from abscli.engine.operators.windows import event_times, with_times
from abscli.engine.state.contract import State
from abscli.engine.state.key_table import Located, Slots
from abscli.engine.state.keyed_state import UNDUE, KeyedState, Rows
from formats.job.model import Operator

NONE: Slots = np.array([], dtype=np.int64)


class Expiry:
    """Of the keys of an operator; nothing where it keeps them for good. columns: of its input, that this needs."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator.id
        self._ttl = operator.ttl or None
        self.columns = () if self._ttl is None else (self._ttl.time,)

    def taken(self, batch: pa.RecordBatch, first: int, failures: Failures | None) -> Rows:
        """Rows with their numbers, from the first on; without those that have no time, where failures take them."""
        if self._ttl is None or failures is None:
            return numbered(batch, first)
        return with_times(batch, first, self._ttl.time, self._operator, failures)[0]

    def over(self, state: KeyedState, rows: Rows, located: Located) -> Slots:
        """The rows, ascending, that come when the time of their key is over, each given those before it."""
        if self._ttl is None or not rows.batch.num_rows:
            return NONE
        times, after = event_times(rows.batch, self._ttl.time, rows.numbers, self._operator), self._ttl.after
        due = state.due_at(located.slots)
        if times.max() < min(due.min(), times.min() + after):
            return NONE
        # Of each key what was latest, then its rows in their order. Of a new key that is its first row.
        latest = np.where(due == UNDUE, times[located.first], due - after)
        keys = np.concatenate([np.arange(len(latest)), located.groups])
        order = np.argsort(keys, kind="stable")
        keys, values = keys[order], np.concatenate([latest, times])[order]
        ranked, ranks = np.unique(values, return_inverse=True)
        first = keys * len(ranked)
        before = ranked[np.maximum.accumulate(first + ranks)[:-1] - first[:-1]]
        places = 1 + np.flatnonzero((keys[1:] == keys[:-1]) & (values[1:] - before >= after))
        return np.sort(order[places] - len(latest))

    def put_off(self, state: KeyedState, rows: Rows, located: Located) -> None:
        """Rows have come for keys of a state, which are there."""
        if self._ttl is None:
            return
        times = event_times(rows.batch, self._ttl.time, rows.numbers, self._operator)
        latest = np.full(len(located.slots), np.iinfo(np.int64).min, dtype=np.int64)
        np.maximum.at(latest, located.groups, times)
        before, due = state.due_at(located.slots), latest + self._ttl.after
        state.set_due(located.slots, np.where(before == UNDUE, due, np.maximum(before, due)))

    def expire(self, state: State, watermark: int | None) -> None:
        """Remove the keys whose time is over."""
        if self._ttl is None or watermark is None:
            return
        for _ in state.due(watermark, lambda part, slots: part.remove(slots)):
            pass
