"""Java's times as ISO 8601 text: exact to the nanosecond, and over all of Java's range (years to a thousand million).

Text, because Arrow's and Python's times hold neither: state often has `Long.MAX_VALUE` or `LocalDate.MAX` as a mark.
"""

from __future__ import annotations


def civil(days: int) -> tuple[int, int, int]:
    """Year, month, day of a day counted from 1970-01-01 (Howard Hinnant, `civil_from_days`)."""
    days += 719468
    era = days // 146097
    of_era = days - era * 146097
    year = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    return year + era * 400 + (month <= 2), month, day


def date_text(year: int, month: int, day: int) -> str:
    """As `LocalDate.toString`: a sign for years beyond 9999 and below 0."""
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{day:02d}"


def time_text(hour: int, minute: int, second: int, nanos: int) -> str:
    """As `LocalTime.toString`, but always with seconds: a fraction of 0, 3, 6 or 9 digits."""
    text = f"{hour:02d}:{minute:02d}:{second:02d}"
    if not nanos:
        return text
    if nanos % 1_000_000 == 0:
        return f"{text}.{nanos // 1_000_000:03d}"
    return f"{text}.{nanos // 1000:06d}" if nanos % 1000 == 0 else f"{text}.{nanos:09d}"


def instant_text(seconds: int, nanos: int, zone: str = "Z") -> str:
    """Seconds since 1970-01-01T00:00:00Z and nanoseconds."""
    days, rest = divmod(seconds, 86400)
    minutes, second = divmod(rest, 60)
    hour, minute = divmod(minutes, 60)
    return f"{date_text(*civil(days))}T{time_text(hour, minute, second, nanos)}{zone}"
