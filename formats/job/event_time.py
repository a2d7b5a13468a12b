"""What a source's entry says of event time: in which column it stands, and how far rows come out of its order."""

from __future__ import annotations

from typing import Any

import msgspec

from formats.durations import seconds_of
from formats.job.model import Operator
from formats.user_file import values as read
from formats.user_file.mistakes import Mistakes
from formats.user_file.nodes import Node, Scalar, shown
from formats.user_file.values import Record, Shape, shape

LONGEST = 366 * 24 * 3600.0 * 100
"""Seconds: microseconds of it fit with those of any date that Arrow reads."""


@shape("duration", anyOf=[{"type": "string", "minLength": 1}, {"type": "number", "exclusiveMinimum": 0}])
def duration(node: Node, label: str, mistakes: Mistakes) -> int | None:
    """Microseconds of `500ms`, `10s`, `5m`, `1h`, `1d`, or of a number of seconds; above zero."""
    value = node.value if isinstance(node, Scalar) else None
    seconds: float | None = None
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        try:
            seconds = seconds_of(value)
        except ValueError:
            seconds = None
    if seconds is None:
        mistakes.add(node, f"{label} must be a duration, not {read.describe(node)}", "for example 500ms, 10s, 5m or 1h")
        return None
    if not 1e-6 <= seconds <= LONGEST:
        written = shown(node.text) if isinstance(node, Scalar) else seconds
        mistakes.add(node, f"{label} is {written}, which is not above zero or longer than a century")
        return None
    return round(seconds * 1_000_000)


_RECORD = Record(
    {"column": read.string, "delay": duration, "idle": duration},
    {"column": "the column with the time of each row's event"},
    descriptions={
        "column": "Its type is a timestamp or a date.",
        "delay": "How much earlier than the latest before it a row's time may be; 0s if it is left out.",
        "idle": "A split that has had no row for so long keeps no window open; left out: it always does.",
    },
)
EVENT_TIME: Shape[dict[str, Any]] = Shape(_RECORD.read, _RECORD.schema, "event_time")
"""Under `source`, of any type of connector whose rows have such a column."""


class EventTime(msgspec.Struct, frozen=True):
    """Of a source. delay, idle: microseconds; idle: None where no split ever is."""

    column: str
    delay: int = 0
    idle: int | None = None


def event_time_of(source: Operator) -> EventTime | None:
    """What a source says; None where it says nothing of event time."""
    options = (source.connector or {}).get("event_time")
    if not options:
        return None
    times = {name: round(seconds_of(options[name]) * 1_000_000) for name in ("delay", "idle") if name in options}
    return EventTime(options["column"], **times)
