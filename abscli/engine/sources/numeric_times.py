"""A source whose event time is a column of numbers, such as milliseconds since 1970: it emits timestamps."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from abscli.engine.errors import JobFailed
from abscli.engine.sources.around import Around
from abscli.engine.sources.contract import NotYet, Source
from abscli.engine.sources.event_times import as_event_times
from formats.ids import TaskId
from formats.job.event_time import EventTime, TimeUnit, event_time_of
from formats.job.model import Operator

TIME = pa.timestamp("us")
_PER_UNIT = {TimeUnit.SECOND: 1_000_000, TimeUnit.MILLISECOND: 1_000, TimeUnit.MICROSECOND: 1}


def emitted(operator: Operator, read: pa.Schema) -> pa.Schema:
    """Return the columns of a source's rows. read: the columns before numbers are converted."""
    event_time = event_time_of(operator)
    if event_time is None or event_time.unit is None or event_time.column not in read.names:
        return read
    place = read.get_field_index(event_time.column)
    return read.set(place, pa.field(event_time.column, TIME))


def is_number(kind: pa.DataType) -> bool:
    """Tell whether a column of this type can count time."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def as_times(column: pa.Array, unit: TimeUnit) -> pa.Array:
    """Convert numbers to timestamps in microseconds, rounded down. Raises ArrowInvalid if one is out of range."""
    if pa.types.is_floating(column.type):
        if unit is not TimeUnit.NANOSECOND:
            return pc.floor(pc.multiply(column, float(_PER_UNIT[unit]))).cast(pa.int64()).cast(TIME)
        column = pc.floor(column)
    numbers = column.cast(pa.int64())
    if unit is not TimeUnit.NANOSECOND:
        return pc.multiply_checked(numbers, _PER_UNIT[unit]).cast(TIME)
    return as_event_times(numbers.cast(pa.timestamp("ns"))).cast(TIME)


class NumericTimes(Around):
    """Another source, with timestamps in place of the numbers of one column."""

    def __init__(self, source: Source, event_time: EventTime, task: TaskId) -> None:
        super().__init__(source)
        assert event_time.unit is not None
        self._column, self._unit = event_time.column, event_time.unit
        self._task = task

    def read(self) -> pa.RecordBatch | None:
        """See `Source`."""
        rows = self._source.read()
        return None if rows is None else self._converted(rows)

    def read_again(self, split: int, rows: int) -> pa.RecordBatch | NotYet | None:
        """See `Source`."""
        batch = self._source.read_again(split, rows)
        return self._converted(batch) if isinstance(batch, pa.RecordBatch) else batch

    def _converted(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        place = rows.schema.get_field_index(self._column)
        if place < 0:
            return rows  # `EventTimes` reports that the column is missing
        column = rows.column(place)
        if not is_number(column.type):
            raise JobFailed(
                f"task {self._task}: column {self._column!r} has values of type {column.type}, but event_time has "
                f"unit: {self._unit}",
                hint="remove `unit`, which is for columns of numbers",
            )
        try:
            times = as_times(column, self._unit)
        except pa.ArrowInvalid:
            raise JobFailed(
                f"task {self._task}: column {self._column!r} has {self._out_of_range(column)}, which is no time in "
                f"{self._unit} since 1970",
                hint="fix the value; or set another `unit` in event_time",
            ) from None
        return rows.set_column(place, pa.field(self._column, TIME), times)

    def _out_of_range(self, column: pa.Array) -> str:
        for value in column:
            try:
                as_times(pa.array([value], column.type), self._unit)
            except pa.ArrowInvalid:
                return str(value.as_py())
        return "a value"
