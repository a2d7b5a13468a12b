"""A source that keeps the latest event time of each of its splits, from which its watermark follows."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from abscli.engine.errors import JobFailed
from abscli.engine.sources.around import Around
from abscli.engine.sources.contract import NotYet, Source
from formats.ids import TaskId
from formats.job.event_time import EventTime
from formats.view import Position
from formats.watermark import END, HIGHEST, IDLE, LOWEST

_UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_DAY = 86_400 * 1_000_000


def as_event_times(column: pa.Array) -> pa.Array:
    """Times in microseconds since 1970, as int64, rounded down; null where there is none. TypeError for a column that
    has no times."""
    kind = column.type
    if pa.types.is_date(kind):
        return pc.multiply_checked(column.cast(pa.date32()).cast(pa.int32()).cast(pa.int64()), _DAY)
    if not pa.types.is_timestamp(kind):
        raise TypeError(f"expected a timestamp or a date, got {kind}")
    numbers = column.cast(pa.int64())
    if kind.unit == "ns":
        quotients = pc.divide(numbers, 1000)  # towards zero
        below = pc.greater(pc.multiply(quotients, 1000), numbers)
        return pc.subtract(quotients, below.cast(pa.int64()))
    return pc.multiply_checked(numbers, _UNITS[kind.unit])


class EventTimes(Around):
    """Another source, whose positions have the latest event time of each split. clock: in seconds."""

    def __init__(
        self,
        source: Source,
        event_time: EventTime,
        task: TaskId,
        positions: Iterable[Position] | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(source)
        self._event_time = event_time
        self._task = task
        self._clock = clock
        restored = positions or ()
        self._latest = {split.split: split.event_time for split in restored if split.event_time is not None}
        self._records = {split.split: split.records or 0 for split in source.positions}
        self._active = dict.fromkeys(self._records, clock())

    @property
    def positions(self) -> tuple[Position, ...]:
        return self._timed(self._source.positions)

    def cut(self) -> tuple[Position, ...]:
        """See `Source`."""
        return self._timed(self._source.cut())

    def _timed(self, positions: Iterable[Position]) -> tuple[Position, ...]:
        latest = self._latest
        return tuple(
            msgspec.structs.replace(at, event_time=latest[at.split]) if at.split in latest else at for at in positions
        )

    @property
    def watermark(self) -> int | None:
        """The lowest of its splits, but for those that are at their end, or idle; where they follow each other, of the
        last one that has begun."""
        unread = self._source.unread
        if not unread and self._source.finished:
            return END
        if not unread and self._source.watermark is not None:
            return self._source.watermark
        if not unread:  # files that are still to come follow those that were read
            latest = max(self._latest.values(), default=None)
            if self._event_time.idle is not None and len(self._quiet) == len(self._active):
                return IDLE
            return None if latest is None else self._behind(latest)
        if self._event_time.ordered:
            latest = max(self._latest.values(), default=None)
            return None if latest is None else self._behind(latest)
        idle = self._idle
        times = [self._latest.get(split) for split in unread if split not in idle]
        if not times:
            return IDLE
        if None in times:  # a split that has not begun may begin at any time
            return None
        return self._behind(min(latest for latest in times if latest is not None))

    def _behind(self, latest: int) -> int:
        """So far that nothing before it is late; the ends of time are no end of the input."""
        return min(max(latest - self._event_time.delay, LOWEST), HIGHEST)

    @property
    def _idle(self) -> Collection[str]:
        """Those that are quiet since they have no rows; others may be held up."""
        quiet = self._quiet
        return quiet & set(self._source.waiting) if quiet else ()

    @property
    def _quiet(self) -> set[str]:
        """Those of which nothing has come for as long as makes them idle."""
        if self._event_time.idle is None:
            return set()
        now = self._clock()
        for split in self._source.unread:
            self._active.setdefault(split, now)  # it has come since
        if self._source.held_up is not None:  # nobody can tell whether there are rows
            self._active = dict.fromkeys(self._active, now)
        since = now - self._event_time.idle / 1_000_000
        return {split for split, active in self._active.items() if active <= since}

    def read(self) -> pa.RecordBatch | None:
        """See `Source`."""
        rows = self._source.read()
        if rows is not None and rows.num_rows:
            self._look_at(rows)
        return rows

    def read_again(self, split: int, rows: int) -> pa.RecordBatch | NotYet | None:
        """See `Source`."""
        batch = self._source.read_again(split, rows)
        if batch is not None and not isinstance(batch, NotYet) and batch.num_rows:
            self._look_at(batch)
        return batch

    def _look_at(self, rows: pa.RecordBatch) -> None:
        times = self._times(rows)
        first, now = 0, self._clock()
        for split in self._source.positions:
            before, after = self._records.get(split.split, 0), split.records or 0
            if after > before:
                latest = pc.max(times.slice(first, after - before)).as_py()
                first += after - before
                self._records[split.split] = after
                self._active[split.split] = now
                if latest is not None:
                    self._latest[split.split] = max(latest, self._latest.get(split.split, latest))

    def _times(self, rows: pa.RecordBatch) -> pa.Array:
        name = self._event_time.column
        if name not in rows.schema.names:
            raise JobFailed(
                f"task {self._task}: no column {name!r} for event time among its rows, which have "
                f"{', '.join(rows.schema.names)}"
            )
        try:
            return as_event_times(rows.column(name))
        except (TypeError, pa.ArrowInvalid) as error:
            raise JobFailed(
                f"task {self._task}: column {name!r} cannot be event time: {error}",
                hint=f"declare the type of the column in the source's schema, such as {{{name}: timestamp}}; or, if it "
                f"has numbers, give their unit, such as event_time: {{column: {name}, unit: ms}}",
            ) from None
