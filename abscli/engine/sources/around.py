"""A source around another one."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa

from abscli.engine.sources.contract import NotYet, Source
from formats.view import Position


class Around:
    """A `Source` that is as the one inside, but for what it does otherwise."""

    def __init__(self, source: Source) -> None:
        self._source = source

    @property
    def finished(self) -> bool:
        return self._source.finished

    @property
    def positions(self) -> tuple[Position, ...]:
        return self._source.positions

    def cut(self) -> tuple[Position, ...]:
        """See `Source`."""
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
    def connector(self) -> dict[str, str] | None:
        return self._source.connector

    @property
    def watermark(self) -> int | None:
        return self._source.watermark

    def read(self) -> pa.RecordBatch | None:
        """See `Source`."""
        return self._source.read()

    def read_again(self, split: int, rows: int) -> pa.RecordBatch | NotYet | None:
        """See `Source`."""
        return self._source.read_again(split, rows)

    @property
    def held_up(self) -> tuple[float, str] | None:
        return self._source.held_up

    def close(self) -> None:
        """See `Source`."""
        self._source.close()

    def stop_at(self, offsets: Mapping[str, int] | None = None, *, lines: int | None = None) -> None:
        """See `Source`."""
        self._source.stop_at(offsets, lines=lines)
