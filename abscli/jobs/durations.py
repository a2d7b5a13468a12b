"""Durations that programs give."""

from __future__ import annotations

from abscli.engine.errors import UsageError
from formats.durations import Duration, seconds_of


def positive_seconds(name: str, duration: Duration) -> float:
    """UsageError for one that is none, or not above zero. name: of the argument."""
    try:
        seconds = seconds_of(duration)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None
    if seconds <= 0:
        raise UsageError(f"{name} must be greater than zero, but is {duration!r}")
    return seconds
