"""The operator that passes on the first row of each key."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from abscli.engine.failures import Failures
from abscli.engine.operators.expiry import Expiry
from abscli.engine.operators.rows import joined, key_columns
from abscli.engine.state.contract import State
from abscli.engine.state.keyed_state import Rows
from formats.job.model import Operator


class Distinct:
    """Lets a row pass the first time its key is seen. failures: takes those that have no time, where keys are kept for
    a while; None: they end the run."""

    def __init__(self, operator: Operator, state: State, failures: Failures | None = None) -> None:
        self.state: State | None = state
        self._id = operator.id
        self._expiry = Expiry(operator)
        self._failures = failures

    def process(self, batch: pa.RecordBatch, first: int, origin: str = "") -> pa.RecordBatch | None:
        assert self.state is not None
        outputs = []
        taken = self._expiry.taken(batch, first, self._failures)
        for state, rows in self.state.divided(taken, key_columns(taken.batch, self.state.key, self._id)):
            located = state.locate(key_columns(rows.batch, state.key, self._id), rows.hashes)
            places = np.sort(located.first[located.new])
            if self._expiry.columns:
                places = np.union1d(places, self._expiry.over(state, rows, located))
                state.touch(located.slots)  # when they are due is part of the state
                self._expiry.put_off(state, rows, located)
            outputs.append(Rows(rows.batch.take(pa.array(places)), rows.numbers[places]))
        return joined(outputs)

    def flush(self, watermark: int | None) -> Iterator[pa.RecordBatch]:
        assert self.state is not None
        self._expiry.expire(self.state, watermark)
        yield from ()

    def close(self) -> None:
        if self.state is not None:
            self.state.close()
