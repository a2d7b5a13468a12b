"""The event time of a source's rows: its column and unit, and how far rows come out of order."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any

import msgspec

from formats.durations import Duration, seconds_of
from formats.job.model import Operator
from formats.user_file import values as read
from formats.user_file.mistakes import Mistakes
from formats.user_file.nodes import Node, Scalar
from formats.user_file.values import Record, Shape, shape

_PATTERN = r"^(?=.*[1-9])([0-9]{1,6}(\.[0-9]{1,3})?(ms|s|m|h|d)){1,5}(?!\n)$"
_EXAMPLES = "for example 500ms, 10s, 5m or 1h30m"


@shape("duration", anyOf=[{"type": "string", "pattern": _PATTERN}, read.positive.reference()])
def duration(node: Node, label: str, mistakes: Mistakes) -> int | None:
    """Microseconds of `500ms`, `10s`, `5m`, `1h30m`, or of a whole number of seconds; above zero."""
    value = node.value if isinstance(node, Scalar) else None
    if isinstance(value, str):
        if re.search(_PATTERN, value):
            return microseconds_of(value)
        mistakes.add(node, f"{label} is not a duration greater than zero: {read.describe(node)}", _EXAMPLES)
        return None
    seconds = read.positive.read(node, label, mistakes)
    return None if seconds is None else microseconds_of(seconds)


def microseconds_of(duration: Duration) -> int:
    """Of a duration as a job has it."""
    return round(seconds_of(duration) * 1_000_000)


class TimeUnit(StrEnum):
    """The unit of numbers that count time since 1970-01-01T00:00:00Z."""

    SECOND = "s"
    MILLISECOND = "ms"
    MICROSECOND = "us"
    NANOSECOND = "ns"


_RECORD = Record(
    {
        "column": read.string, "unit": read.one_of(TimeUnit), "delay": duration, "idle": duration,
        "ordered": read.boolean,
    },
    {"column": "the column with the time of each row's event"},
    descriptions={
        "column": "Its type is a timestamp or a date; with `unit` it is a number.",
        "unit": "The column has numbers, which count this unit since 1970 (UTC). Downstream of the source it has "
        "timestamps.",
        "delay": "How much earlier than the latest before it a row's time may be; left out: not at all.",
        "idle": "A split that has had no row for so long keeps no window open; left out: it always does.",
        "ordered": "Whether splits follow each other in time, as files of one day each do: then one that has not begun "
        "keeps no window open.",
    },
)  # fmt: skip
EVENT_TIME: Shape[dict[str, Any]] = Shape(_RECORD.read, _RECORD.schema, "event_time")
"""Under `source`, of any type of connector whose rows have such a column."""


class EventTime(msgspec.Struct, frozen=True):
    """The event time of a source.

    unit: of a column of numbers; None for a column of timestamps or dates.
    delay, idle: microseconds; idle: None if no split ever is.
    ordered: whether splits follow each other in time.
    """

    column: str
    delay: int = 0
    idle: int | None = None
    ordered: bool = False
    unit: TimeUnit | None = None


def event_time_of(source: Operator) -> EventTime | None:
    """Return the event time of a source; None if it has none."""
    options = (source.connector or {}).get("event_time")
    if not options:
        return None
    times = {name: microseconds_of(options[name]) for name in ("delay", "idle") if name in options}
    unit = TimeUnit(options["unit"]) if "unit" in options else None
    return EventTime(options["column"], **times, ordered=options.get("ordered") is True, unit=unit)
