"""A source that reads so many lines for each epoch: where epochs end does not depend on how fast anything is."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

import pyarrow as pa

from abscli.engine.sources.contract import NotYet, Source
from formats.view import Position

TURN_SECONDS = 0.001
"""For which a task that waits for the next epoch leaves the processor to those that take it."""


class PacedSource:
    """Another source, read in small steps: after each it puts out nothing until it is cut.

    lines: of one step, at most.
    """

    def __init__(self, source: Source, lines: int) -> None:
        self._source = source
        self._lines = lines
        self._pause: pa.RecordBatch | None = None

    @property
    def finished(self) -> bool:
        return self._source.finished

    @property
    def positions(self) -> tuple[Position, ...]:
        return self._source.positions

    def cut(self) -> tuple[Position, ...]:
        """As of `Source`; the next step begins."""
        self._pause = None
        return self._source.cut()

    @property
    def unread(self) -> Collection[str]:
        return self._source.unread

    @property
    def waiting(self) -> Collection[str]:
        return self._source.waiting

    @property
    def split(self) -> int:
        return self._source.split

    @property
    def watermark(self) -> int | None:
        return self._source.watermark

    @property
    def connector(self) -> dict[str, str] | None:
        return self._source.connector

    def read(self) -> pa.RecordBatch | None:
        """As of `Source`; no rows while an epoch is awaited."""
        if self._pause is not None:
            time.sleep(TURN_SECONDS)
            return self._pause
        self._source.stop_at(lines=self._lines)
        rows = self._source.read()
        if rows is not None:
            self._pause = rows.slice(0, 0)
        return rows

    def read_again(self, split: int, rows: int) -> pa.RecordBatch | NotYet | None:
        """As of `Source`; a step that is read again ends as it did."""
        self._source.stop_at()
        batch = self._source.read_again(split, rows)
        if batch is not None and not isinstance(batch, NotYet) and batch.num_rows:
            self._pause = batch.slice(0, 0)
        return batch

    def close(self) -> None:
        """As of `Source`."""
        self._source.close()

    def stop_at(self, offsets: Mapping[str, int] | None = None, *, lines: int | None = None) -> None:
        """As of `Source`, until the next step."""
        self._source.stop_at(offsets, lines=lines)

    @property
    def held_up(self) -> tuple[float, str] | None:
        return self._source.held_up
