"""Java's `hashCode` of ids and times that are keys, from the text that they are shown as."""

from __future__ import annotations

import re
from typing import Final

_M32: Final = 0xFFFFFFFF
_INSTANT: Final = re.compile(r"([+-]?\d{4,})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d+))?Z?")


def _long(value: int) -> int:
    value &= (1 << 64) - 1
    return (value ^ value >> 32) & _M32


def uuid_hash(text: str) -> int:
    """`UUID.hashCode`."""
    value = int(text.replace("-", ""), 16)
    return _long((value >> 64 ^ value) & (1 << 64) - 1)


def _parts(text: str) -> tuple[int, int, int, int, int]:
    """Year, month, day, second of the day, nanosecond."""
    match = _INSTANT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a time")
    year, month, day, hour, minute, second = map(int, match.groups()[:6])
    return year, month, day, hour * 3600 + minute * 60 + second, int((match[7] or "").ljust(9, "0"))


def date_hash(text: str) -> int:
    """`LocalDate.hashCode`."""
    year, month, day, _, _ = _parts(f"{text}T00:00:00")
    return ((year & 0xFFFFF800) ^ ((year << 11) + (month << 6) + day)) & _M32


def time_hash(text: str) -> int:
    """`LocalTime.hashCode`."""
    _, _, _, second, nanos = _parts(f"1970-01-01T{text}")
    return _long(second * 1_000_000_000 + nanos)


def date_time_hash(text: str) -> int:
    """`LocalDateTime.hashCode`."""
    date, _, time = text.partition("T")
    return date_hash(date) ^ time_hash(time)


def _seconds(text: str) -> tuple[int, int]:
    """Seconds since 1970 and nanoseconds (Howard Hinnant, `days_from_civil`)."""
    year, month, day, second, nanos = _parts(text)
    year -= month <= 2
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    days = era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468
    return days * 86400 + second, nanos


def instant_hash(text: str) -> int:
    """`Instant.hashCode`."""
    seconds, nanos = _seconds(text)
    return (_long(seconds) + 51 * nanos) & _M32


def millis_hash(text: str) -> int:
    """`Date.hashCode`, which those of `java.sql` have, too."""
    seconds, nanos = _seconds(text)
    return _long(seconds * 1000 + nanos // 1_000_000)
