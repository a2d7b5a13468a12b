"""What an operator of a task does, whatever its kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import pyarrow as pa

from abscli.engine.state.contract import State
from formats.job.model import LATE


class WithLate(NamedTuple):
    """What an operator puts out, and rows that came too late for it. output: of the operator, that has these."""

    rows: pa.RecordBatch | None
    late: pa.RecordBatch
    output: str = LATE


class Runnable(Protocol):
    """One task's operator."""

    state: State | None

    def process(self, batch: pa.RecordBatch, first: int, origin: str = "") -> pa.RecordBatch | WithLate | None:
        """Rows out for rows in; `first` numbers the batch's first record, for messages. origin: the operator that has
        sent them."""

    def flush(self, watermark: int | None) -> Iterator[pa.RecordBatch]:
        """What is owed once an epoch, before its barrier, piece by piece; nothing is processed before the last.

        watermark: to which event time comes with that barrier (`formats.watermark`).
        """

    def close(self) -> None:
        """Let go of memory and files."""


EMITTED_ROWS = 1 << 16
"""Of what is emitted at the end of an epoch, in one batch."""
