"""Moments as facts have them: RFC 3339 in UTC, to the millisecond, such as `2026-11-21T08:14:03.120Z`."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def now() -> str:
    """This moment."""
    return rfc3339(time.time())


def rfc3339(at: float) -> str:
    """A Unix time."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def seconds_between(earlier: str, later: str) -> float:
    """Seconds from one moment to another, never negative."""
    return max(0.0, (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds())
