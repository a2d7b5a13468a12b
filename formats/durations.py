"""Durations as people write them."""

from __future__ import annotations

import math
import re
from datetime import timedelta

Duration = float | str | timedelta
"""Seconds, `500ms` or `1h30m`, or Python's own."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|[smhd])?")


def duration_text(seconds: float) -> str:
    """So many seconds, above zero, as files have it: to the microsecond."""
    return f"{round(seconds)}s" if seconds == round(seconds) else f"{seconds * 1000:.3f}ms"


def duration_short(seconds: float) -> str:
    """The same as people type them: `1d`, `1h30m`, `36.5s`."""
    if seconds != round(seconds) or not seconds:
        return f"{seconds:g}s"
    left, parts = round(seconds), []
    for unit in ("d", "h", "m", "s"):
        count, left = divmod(left, round(_UNITS[unit]))
        parts += [f"{count}{unit}"] if count else []
    return "".join(parts)


def seconds_of(duration: Duration) -> float:
    """Seconds of `500ms`, `10s`, `5m`, `2h`, `1d` or `1h30m`; a number alone is seconds. ValueError otherwise."""
    if isinstance(duration, timedelta):
        return duration.total_seconds()
    written = str(duration).strip()
    parts = [(m[1], m[2]) for m in _PART.finditer(written)]
    whole = "".join(number + (unit or "") for number, unit in parts) == written
    if not parts or not whole or (len(parts) > 1 and not all(unit for _, unit in parts)):
        raise ValueError(f"{written!r} is not a duration such as 500ms, 10s, 5m or 1h30m")
    seconds = sum(float(number) * _UNITS[unit or "s"] for number, unit in parts)
    if not math.isfinite(seconds):
        raise ValueError(f"{written!r} is too long a duration")
    return seconds


_SPANS = (("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("ms", 1_000), ("us", 1))


def span_text(microseconds: int) -> str:
    """A duration as a job file has it: `1h30m`."""
    text, left = "", abs(microseconds)
    for unit, size in _SPANS:
        count, left = divmod(left, size)
        text += f"{count}{unit}" if count else ""
    return text or "0s"
