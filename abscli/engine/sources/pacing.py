"""A source that reads so many lines for each epoch: where epochs end does not depend on how fast anything is."""

from __future__ import annotations

import time

import pyarrow as pa

from abscli.engine.sources.around import Around
from abscli.engine.sources.contract import NotYet, Source
from formats.view import Position

TURN_SECONDS = 0.001
"""For which a task that waits for the next epoch leaves the processor to those that take it."""


class PacedSource(Around):
    """Another source, read in small steps: after each it puts out nothing until it is cut.

    lines: of one step, at most.
    """

    def __init__(self, source: Source, lines: int) -> None:
        super().__init__(source)
        self._lines = lines
        self._pause: pa.RecordBatch | None = None

    def cut(self) -> tuple[Position, ...]:
        """See `Source`; the next step begins."""
        self._pause = None
        return self._source.cut()

    def read(self) -> pa.RecordBatch | None:
        """See `Source`; no rows while an epoch is awaited."""
        if self._pause is not None:
            time.sleep(TURN_SECONDS)
            return self._pause
        self._source.stop_at(lines=self._lines)
        rows = self._source.read()
        if rows is not None:
            self._pause = rows.slice(0, 0)
        return rows

    def read_again(self, split: int, rows: int) -> pa.RecordBatch | NotYet | None:
        """See `Source`; a step that is read again ends as it did."""
        self._source.stop_at()
        batch = self._source.read_again(split, rows)
        if batch is not None and not isinstance(batch, NotYet) and batch.num_rows:
            self._pause = batch.slice(0, 0)
        return batch
