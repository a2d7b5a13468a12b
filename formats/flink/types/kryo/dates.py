"""How Kryo writes the bodies of dates and times, in 2.24 (`OLD`) and in 5.6 (`NEW`). Values are text, as in Java.

The older Kryo has no serializers for `java.time`: it writes the fields of a class in the order of their names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from formats.flink.types.kryo.input import NEW, OLD
from formats.flink.types.kryo.reading import Body, Reading
from formats.flink.types.times import date_text, instant_text, time_text

# -- as text ----------------------------------------------------------------------------------------------


def _nanos(value: int) -> int:
    if not 0 <= value < 1_000_000_000:
        raise ValueError(f"{value} nanoseconds")
    return value


def _day(year: int, month: int, day: int) -> str:
    if not (1 <= month <= 12 and 1 <= day <= 31):
        raise ValueError(f"month {month}, day {day}")
    return date_text(year, month, day)


def _clock(hour: int, minute: int, second: int, nanos: int) -> str:
    if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60):
        raise ValueError(f"a time of {hour}:{minute}:{second}")
    return time_text(hour, minute, second, _nanos(nanos))


def offset_text(seconds: int) -> str:
    """As `ZoneOffset.getId`."""
    if seconds == 0:
        return "Z"
    minutes, rest = divmod(abs(seconds), 60)
    sign = "-" if seconds < 0 else "+"
    return f"{sign}{minutes // 60:02d}:{minutes % 60:02d}" + (f":{rest:02d}" if rest else "")


def duration_text(seconds: int, nanos: int) -> str:
    """As `Duration.toString`."""
    total = seconds * 1_000_000_000 + _nanos(nanos)
    if total == 0:
        return "PT0S"
    sign = -1 if total < 0 else 1
    whole, fraction = divmod(abs(total), 1_000_000_000)
    hours, rest = divmod(whole, 3600)
    minutes, rest = divmod(rest, 60)
    text = "PT" + (f"{sign * hours}H" if hours else "") + (f"{sign * minutes}M" if minutes else "")
    if not rest and not fraction:
        return text
    digits = f".{fraction:09d}".rstrip("0") if fraction else ""
    return f"{text}{'-' if sign < 0 else ''}{rest}{digits}S"


def period_text(years: int, months: int, days: int) -> str:
    """As `Period.toString`."""
    parts = [f"{n}{unit}" for n, unit in ((years, "Y"), (months, "M"), (days, "D")) if n]
    return "P" + ("".join(parts) or "0D")


def _year_month(year: int, month: int) -> str:
    return _day(year, month, 1)[:-3]


def _zoned(local: str, offset: str, zone: str) -> str:
    return f"{local}{offset}" + ("" if zone == offset else f"[{zone}]")


# -- of both -----------------------------------------------------------------------------------------------


def _date(r: Reading) -> str:
    millis = r.positive_long()
    return instant_text(millis // 1000, millis % 1000 * 1_000_000)


def _timestamp(r: Reading) -> str:
    millis = r.positive_long()
    return instant_text(millis // 1000, _nanos(r.positive()))


def _calendar(r: Reading) -> str:
    zone = r.words()
    text = _date(r)
    r.boolean()  # lenient
    r.positive()  # first day of the week
    r.positive()  # minimal days in the first week
    r.long()  # change to the Gregorian calendar
    return f"{text}[{zone}]"


# -- of the newer Kryo ------------------------------------------------------------------------------------


def _new_date(r: Reading) -> str:
    return _day(r.positive(), r.signed_byte(), r.signed_byte())


def _new_time(r: Reading) -> str:
    """Ends, inverted, with the last part that is not zero."""
    hour = r.signed_byte()
    if hour < 0:
        return _clock(~hour, 0, 0, 0)
    minute = r.signed_byte()
    if minute < 0:
        return _clock(hour, ~minute, 0, 0)
    second = r.signed_byte()
    if second < 0:
        return _clock(hour, minute, ~second, 0)
    return _clock(hour, minute, second, r.positive())


def _new_date_time(r: Reading) -> str:
    return f"{_new_date(r)}T{_new_time(r)}"


def _new_offset(r: Reading) -> str:
    # quarters of an hour, as nearly all offsets are; 127 says that seconds follow
    quarters = r.signed_byte()
    return offset_text(r.fixed("i") if quarters == 127 else quarters * 900)


def _new_zoned(r: Reading) -> str:
    """The offset is not stored: it follows from the zone's rules."""
    local, zone = _new_date_time(r), r.words()
    return f"{local}{zone}" if zone == "Z" or zone[:1] in "+-" else f"{local}[{zone}]"


# -- fields of the older Kryo -----------------------------------------------------------------------------


def _part(r: Reading, name: str) -> str:
    """A field of a class of `java.time` that none extends."""
    value: str = r.object(f"java.time.{name}", nullable=True)
    return value


def _old_date(r: Reading) -> str:
    # in the order of the fields' names, as everything below
    day, month, year = r.fixed("h"), r.fixed("h"), r.integer()
    return _day(year, month, day)


def _old_time(r: Reading) -> str:
    hour, minute, nanos, second = r.signed_byte(), r.signed_byte(), r.integer(), r.signed_byte()
    return _clock(hour, minute, second, nanos)


def _swapped(r: Reading, text: Callable[[int, int], str]) -> str:
    nanos = _nanos(r.integer())
    return text(r.long(), nanos)


def _reversed(r: Reading) -> str:
    days, months, years = r.integer(), r.integer(), r.integer()
    return period_text(years, months, days)


def _month_year(r: Reading) -> str:
    month = r.integer()
    return _year_month(r.integer(), month)


def _day_month(r: Reading) -> str:
    day = r.integer()
    return f"-{_day(0, r.integer(), day)[4:]}"


def _after(r: Reading, name: str) -> str:
    offset = _part(r, "ZoneOffset")
    return f"{_part(r, name)}{offset}"


_BOTH: Final[dict[str, Body]] = {
    "java.util.Date": _date,
    "java.sql.Date": _date,
    "java.sql.Time": _date,
    "java.sql.Timestamp": _timestamp,
    "java.util.GregorianCalendar": _calendar,
}

DATES: Final[dict[int, dict[str, Body]]] = {
    OLD: _BOTH
    | {
        "java.time.LocalDate": _old_date,
        "java.time.LocalTime": _old_time,
        "java.time.LocalDateTime": lambda r: f"{_part(r, 'LocalDate')}T{_part(r, 'LocalTime')}",
        "java.time.Instant": lambda r: _swapped(r, instant_text),
        "java.time.Duration": lambda r: _swapped(r, duration_text),
        "java.time.Period": _reversed,
        "java.time.Year": lambda r: f"{r.integer()}",
        "java.time.YearMonth": _month_year,
        "java.time.MonthDay": _day_month,
        "java.time.ZoneOffset": lambda r: offset_text(r.integer()),
        "java.time.ZoneRegion": lambda r: r.object("java.lang.String", nullable=True),
        "java.time.OffsetTime": lambda r: _after(r, "LocalTime"),
        "java.time.OffsetDateTime": lambda r: f"{_part(r, 'LocalDateTime')}{_part(r, 'ZoneOffset')}",
        "java.time.ZonedDateTime": lambda r: _zoned(_part(r, "LocalDateTime"), _part(r, "ZoneOffset"), r.any()),
    },
    NEW: _BOTH
    | {
        "java.time.LocalDate": _new_date,
        "java.time.LocalTime": _new_time,
        "java.time.LocalDateTime": _new_date_time,
        "java.time.Instant": lambda r: instant_text(r.positive_long(), _nanos(r.positive())),
        "java.time.Duration": lambda r: duration_text(r.fixed("q"), r.positive()),
        "java.time.Period": lambda r: period_text(r.positive(), r.positive(), r.positive()),
        "java.time.Year": lambda r: f"{r.positive()}",
        "java.time.YearMonth": lambda r: _year_month(r.positive(), r.signed_byte()),
        "java.time.MonthDay": lambda r: f"-{_day(0, r.signed_byte(), r.signed_byte())[4:]}",
        "java.time.ZoneOffset": _new_offset,
        "java.time.ZoneRegion": lambda r: r.words(),
        "java.time.OffsetTime": lambda r: f"{_new_time(r)}{_new_offset(r)}",
        "java.time.OffsetDateTime": lambda r: f"{_new_date_time(r)}{_new_offset(r)}",
        "java.time.ZonedDateTime": _new_zoned,
    },
}
"""By version and class."""
