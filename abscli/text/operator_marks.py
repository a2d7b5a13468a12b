"""What an operator does by event time, and with records on which it fails, in a few words each."""

from __future__ import annotations

from typing import Any

from formats.durations import span_text
from formats.job.event_time import EventTime, event_time_of
from formats.job.model import DeadLetter, Join, Lookup, Operator, Ttl, Window, WindowKind


def marks_of(operator: Operator) -> list[str]:
    """A phrase for each; none of an operator of which neither is said."""
    event_time = event_time_of(operator) if operator.connector is not None else None
    marks = [_event_time(event_time)] if event_time is not None else []
    if operator.window:
        marks.append(_window(operator.window))
    if operator.join:
        marks.append(_join(operator.join))
    if operator.lookup:
        marks.append(f"{operator.lookup.how} lookup in {_table(operator.lookup)}")
    if operator.kept.time is not None:
        marks.append(f"timers by {operator.kept.time}")
    if operator.ttl:
        marks.append(f"keys kept for {span_text(operator.ttl.after)} by {operator.ttl.time}")
    if isinstance(operator.on_error, DeadLetter):
        marks.append(f"failing records to {operator.on_error.dead_letter}")
    elif operator.on_error == "skip":
        marks.append("failing records skipped")
    return marks


def marks_json(operator: Operator) -> dict[str, Any]:
    """The same for programs; null where it is not said."""
    event_time = event_time_of(operator) if operator.connector is not None else None
    lookup = operator.lookup or None
    return {
        "event_time": None if event_time is None else {
            "column": event_time.column, "delay": event_time.delay / 1e6,
            "idle": None if event_time.idle is None else event_time.idle / 1e6,
        },
        "window": _window_json(operator.window) if operator.window else None,
        "ttl": _ttl_json(operator.ttl) if operator.ttl else None,
        "join": _join_json(operator.join) if operator.join else None,
        "lookup": None if lookup is None else {"table": _table(lookup), "how": lookup.how.value},
        "timers": operator.kept.time,
        "on_error": _on_error_json(operator),
    }  # fmt: skip


def _event_time(event_time: EventTime) -> str:
    delay = f", up to {span_text(event_time.delay)} late" if event_time.delay else ""
    idle = f", idle after {span_text(event_time.idle)}" if event_time.idle is not None else ""
    unit = f" in {event_time.unit} since 1970" if event_time.unit is not None else ""
    return f"event time {event_time.column}{unit}{delay}{idle}"


def _window(window: Window) -> str:
    late = f", late rows for {span_text(window.lateness)}" if window.lateness else ""
    match window.kind:
        case WindowKind.SESSION:
            return f"sessions by {window.time}, ended by a gap of {span_text(window.size)}{late}"
        case WindowKind.SLIDING if window.every is not None:
            return f"windows of {span_text(window.size)} every {span_text(window.every)} by {window.time}{late}"
        case _:
            return f"windows of {span_text(window.size)} by {window.time}{late}"


def _join(join: Join) -> str:
    left, right = join.time
    by = left if left == right else f"{left} and {right}"
    late = f", late rows for {span_text(join.lateness)}" if join.lateness else ""
    within = f"{span_text(join.before)} before {join.left} to {span_text(join.after)} after"
    return f"{join.how} join on {by}: {within}{late}"


def _table(lookup: Lookup) -> str:
    return lookup.path or lookup.table or "a query"


def _window_json(window: Window) -> dict[str, Any]:
    return {
        "kind": window.kind.value, "time": window.time, "size": window.size / 1e6,
        "every": None if window.every is None else window.every / 1e6, "lateness": window.lateness / 1e6,
    }  # fmt: skip


def _ttl_json(ttl: Ttl) -> dict[str, Any]:
    return {"time": ttl.time, "after": ttl.after / 1e6}


def _join_json(join: Join) -> dict[str, Any]:
    return {
        "how": join.how.value, "left": join.left, "time": list(join.time), "before": join.before / 1e6,
        "after": join.after / 1e6, "lateness": join.lateness / 1e6,
    }  # fmt: skip


def _on_error_json(operator: Operator) -> dict[str, Any] | None:
    if isinstance(operator.on_error, DeadLetter):
        return {"skip": True, "dead_letter": operator.on_error.dead_letter}
    return {"skip": True, "dead_letter": None} if operator.on_error == "skip" else None
