"""Moments as facts have them: RFC 3339 in UTC, to the millisecond, such as `2026-11-21T08:14:03.120Z`."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta


def now() -> str:
    """This moment."""
    return rfc3339(time.time())


def rfc3339(at: float) -> str:
    """A Unix time."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def unix_time(moment: str | None) -> float | None:
    """Return a timestamp from a file as seconds since 1970; None if it is missing or not a timestamp."""
    try:
        return datetime.fromisoformat(moment or "").timestamp()
    except (ValueError, OverflowError):
        return None


def seconds_between(earlier: str, later: str) -> float:
    """Seconds from one moment to another, never negative."""
    return max(0.0, (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds())


_EPOCH = datetime.fromtimestamp(0, UTC)


def event_moment(microseconds: int) -> str:
    """An event time, since 1970, to the millisecond where that says it; as a number where no calendar has it."""
    try:
        at = _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return f"{microseconds} microseconds since 1970"
    precision = "microseconds" if microseconds % 1000 else "milliseconds"
    return at.isoformat(timespec=precision).replace("+00:00", "Z")
