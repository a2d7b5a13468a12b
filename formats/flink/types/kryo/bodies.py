"""How Kryo writes the bodies of the JDK's classes, class by class, in 2.24 (`OLD`) and in 5.6 (`NEW`).

Values are None, bool, int, float, str, bytes and lists of these (a map: pairs). What has a text of its own in Java has
that text. Where the older Kryo has no serializer for a class it writes its fields in the order of their names.

Source: `com.esotericsoftware.kryo.serializers` of 2.24.0 and 5.6.2, chill-java 0.7.6.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from formats.errors import Damaged
from formats.flink.bytes import Reader
from formats.flink.java_object import JavaObject, read_value
from formats.flink.types.kryo.input import NEW, OLD
from formats.flink.types.kryo.names import BOXES, COLLECTIONS, ENUMS, MAPS, PRIMITIVES
from formats.flink.types.kryo.reading import Body, Reading
from formats.flink.types.times import date_text, instant_text, time_text
from formats.flink.types.values import HiddenValue, int_text

# -- primitives and text ----------------------------------------------------------------------------------


def _box(form: str) -> Body:
    if form == "i":
        return lambda r: r.integer()
    if form == "q":
        return lambda r: r.long()
    if form == "?":
        return lambda r: r.boolean()
    if form == "b":
        return lambda r: r.signed_byte()
    if form == "H":
        return lambda r: chr(r.fixed("H"))
    return lambda r: r.fixed(form) if form else None


def _text(r: Reading) -> str | None:
    return r.text()


def _words(r: Reading) -> str:
    return r.words()


def _big(r: Reading) -> int | None:
    """A length + 1 (0: null) and the bytes of the number."""
    length = r.unsigned() - 1
    return None if length < 0 else int.from_bytes(r.take(length), "big", signed=True)


def _bigint(r: Reading) -> str | None:
    value = _big(r)
    return None if value is None else int_text(value)


def _bigdec(r: Reading) -> str | None:
    value = _big(r)
    if value is None:
        return None
    digits = tuple(map(int, int_text(abs(value))))
    return str(Decimal((int(value < 0), digits, -r.integer())))


def uuid_text(high: int, low: int) -> str:
    text = f"{high & (1 << 64) - 1:016x}{low & (1 << 64) - 1:016x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _class(r: Reading) -> str | None:
    """A class, and whether it is the primitive: the older Kryo says so of every class."""
    name = r.class_name()
    if r.version == OLD or name in BOXES:
        primitive = r.boolean()
        if primitive and name in BOXES:
            letters = {"?": "Z", "b": "B", "H": "C", "h": "S", "i": "I", "q": "J", "f": "F", "d": "D"}
            return PRIMITIVES.get(letters.get(BOXES[name], ""), "void")
    return name


# -- arrays -----------------------------------------------------------------------------------------------


def _array(item: Callable[[Reading], Any], least: int) -> Body:
    def read(r: Reading) -> list[Any] | None:
        length = r.unsigned() - 1
        if length < 0:
            return None
        r.check(length, least)
        return [item(r) for _ in range(length)]

    return read


def _bytes(r: Reading) -> bytes | None:
    length = r.unsigned() - 1
    return None if length < 0 else r.take(length)


def _chars(r: Reading) -> str | None:
    length = r.unsigned() - 1
    if length < 0:
        return None
    data = r.take(2 * length)
    return data.decode("utf-16-be" if r.version == OLD else "utf-16-le", "surrogatepass")


_ARRAYS: Final[dict[str, Body]] = {
    "[B": _bytes,
    "[C": _chars,
    "[S": _array(_box("h"), 2),
    "[I": _array(_box("i"), 1),
    "[J": _array(_box("q"), 1),
    "[F": _array(_box("f"), 4),
    "[D": _array(_box("d"), 8),
    "[Z": _array(_box("?"), 1),
}


# -- collections ------------------------------------------------------------------------------------------


def _collection(r: Reading, header: bool = False, may_be_null: bool = True) -> list[Any] | None:
    """header: a comparator stands before the elements; may_be_null: the newer Kryo says whether one of them is."""
    if r.version == OLD:
        if header:
            r.any()  # the comparator
        return [r.any() for _ in range(r.count())]
    # the flag: all elements are of one class, which then stands once, before them
    same, length = r.flagged()
    if length == 0:
        return None
    if header:
        r.any()
    length -= 1
    if length == 0:
        return []
    if not same:
        r.check(length)
        return [r.any() for _ in range(length)]
    name = r.class_name()  # all elements are of this class, or null
    if name is None:
        # nulls take no bytes, so that what is left of the data bounds nothing
        if length > 1 << 24:
            raise ValueError(f"{length} nulls")
        return [None] * length
    nullable = may_be_null and r.boolean()
    if name not in _EMPTY:
        r.check(length)
    # nor do these
    elif length > 1 << 24:
        raise ValueError(f"{length} empty values")
    return [r.object(name, nullable=nullable) for _ in range(length)]


def _sorted(r: Reading) -> list[Any] | None:
    return _collection(r, header=True)


def _without_nulls(r: Reading) -> list[Any] | None:
    return _collection(r, may_be_null=False)


def _map(r: Reading, header: bool = False) -> list[Any] | None:
    if r.version == OLD:
        if header:
            r.any()
        length = r.count(2)
    else:
        length = r.unsigned() - 1
        if length < 0:
            return None
        if header:
            r.any()
        r.check(length, 2)
    return [[r.any(), r.any()] for _ in range(length)]


def _sorted_map(r: Reading) -> list[Any] | None:
    return _map(r, header=True)


def _as_list(r: Reading) -> list[Any]:
    """`Arrays.asList` by chill: length, class of the array, elements."""
    length = r.unsigned()
    r.class_name()
    r.check(length)
    return [r.any() for _ in range(length)]


def _enum_set(r: Reading) -> list[Any]:
    name = r.class_name()
    length = r.count()
    constant = r.classes.body(name or "null")
    return [constant(r) for _ in range(length)]


def _enum(constants: tuple[str, ...]) -> Body:
    def read(r: Reading) -> str | None:
        number = r.unsigned()
        if number > len(constants):
            raise ValueError(f"constant {number - 1} of {len(constants)}")
        return constants[number - 1] if number else None

    return read


def _bits(r: Reading) -> list[int]:
    length = r.count(8)
    value = sum((r.fixed("q") & (1 << 64) - 1) << (64 * i) for i in range(length))
    return [i for i in range(value.bit_length()) if value >> i & 1]


def _serialised_locale(r: Reading) -> str:
    """By Java's own serialisation; of a second one in the same value the stream goes on, which is not followed."""
    reader = Reader(r.data, None, r.pos)
    if r.data[r.pos : r.pos + 4] != b"\xac\xed\0\5":
        raise HiddenValue("java.util.Locale, for the second time in a value (KryoSerializer)")
    try:
        value = read_value(reader)
    except Damaged as error:
        raise ValueError(error.message) from None
    fields = value.fields if isinstance(value, JavaObject) else {}
    r.pos = reader.pos
    return _locale(*(str(fields.get(name) or "") for name in ("language", "country", "variant")))


def _locale(language: str, country: str, variant: str) -> str:
    return "_".join([language, country, variant]).rstrip("_")


def _one(r: Reading) -> Any:
    return r.any()


def _pair(r: Reading) -> list[Any]:
    return [r.any(), r.any()]


# -- dates and times --------------------------------------------------------------------------------------


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


def _present(form: str) -> Body:
    return lambda r: r.fixed(form) if r.boolean() else None


_EMPTY: Final = frozenset(f"java.util.Collections$Empty{kind}" for kind in ("List", "Map", "Set"))

_BOTH: Final[dict[str, Body]] = {
    **{name: _box(form) for name, form in BOXES.items()},
    **_ARRAYS,
    **dict.fromkeys(COLLECTIONS, _collection),
    **dict.fromkeys(MAPS, _map),
    **{name: _enum(constants) for name, constants in ENUMS.items()},
    **dict.fromkeys(_EMPTY, lambda r: []),
    "java.lang.String": _text,
    "java.lang.StringBuilder": _text,
    "java.lang.StringBuffer": _text,
    "java.lang.Class": _class,
    "java.lang.Object": lambda r: "java.lang.Object",
    "java.math.BigInteger": _bigint,
    "java.math.BigDecimal": _bigdec,
    "java.util.TreeSet": _sorted,
    "java.util.PriorityQueue": _sorted,
    "java.util.TreeMap": _sorted_map,
    "java.util.RegularEnumSet": _enum_set,
    "java.util.JumboEnumSet": _enum_set,
    "java.util.BitSet": _bits,
    "java.util.Collections$SingletonList": lambda r: [r.any()],
    "java.util.Collections$SingletonSet": lambda r: [r.any()],
    "java.util.Collections$SingletonMap": lambda r: [_pair(r)],
    "java.util.AbstractMap$SimpleEntry": _pair,
    "java.util.AbstractMap$SimpleImmutableEntry": _pair,
    "java.util.KeyValueHolder": _pair,
    "java.util.Date": _date,
    "java.sql.Date": _date,
    "java.sql.Time": _date,
    "java.sql.Timestamp": _timestamp,
    "java.util.GregorianCalendar": _calendar,
    "java.util.TimeZone": _words,
    "java.util.SimpleTimeZone": _words,
    "sun.util.calendar.ZoneInfo": _words,
    "java.util.Currency": _text,
    "java.net.URI": _words,
    "java.util.concurrent.atomic.AtomicInteger": lambda r: r.integer(),
    "java.util.concurrent.atomic.AtomicLong": lambda r: r.long(),
    "java.util.concurrent.atomic.AtomicBoolean": lambda r: bool(r.integer()),
    "java.util.concurrent.atomic.AtomicReference": _one,
    "java.io.File": lambda r: r.object("java.lang.String", nullable=True),
    "java.util.Collections$ReverseComparator": lambda r: "reverse order",
    "java.util.Collections$ReverseComparator2": lambda r: ["reverse order of", r.any()],
    "java.util.Comparators$NaturalOrderComparator": _enum(("INSTANCE",)),
    "java.lang.String$CaseInsensitiveComparator": lambda r: "case-insensitive",
}

BODIES: Final[dict[int, dict[str, Body]]] = {
    OLD: _BOTH
    | {
        "java.util.Arrays$ArrayList": _as_list,
        "java.util.concurrent.ConcurrentSkipListMap": _map,
        "java.util.regex.Pattern": _words,
        "java.util.UUID": lambda r: uuid_text(r.long(), r.long()),
        "java.util.Locale": _serialised_locale,
        "java.net.InetSocketAddress": lambda r: f"{r.words()}:{r.positive()}",
        # fields, in the order of their names
        "java.time.LocalDate": lambda r: _old_date(r),
        "java.time.LocalTime": lambda r: _old_time(r),
        "java.time.LocalDateTime": lambda r: f"{_part(r, 'LocalDate')}T{_part(r, 'LocalTime')}",
        "java.time.Instant": lambda r: _swapped(r, instant_text),
        "java.time.Duration": lambda r: _swapped(r, duration_text),
        "java.time.Period": lambda r: _reversed(r),
        "java.time.Year": lambda r: f"{r.integer()}",
        "java.time.YearMonth": lambda r: _month_year(r),
        "java.time.MonthDay": lambda r: _day_month(r),
        "java.time.ZoneOffset": lambda r: offset_text(r.integer()),
        "java.time.ZoneRegion": lambda r: r.object("java.lang.String", nullable=True),
        "java.time.OffsetTime": lambda r: _after(r, "LocalTime"),
        "java.time.OffsetDateTime": lambda r: f"{_part(r, 'LocalDateTime')}{_part(r, 'ZoneOffset')}",
        "java.time.ZonedDateTime": lambda r: _zoned(_part(r, "LocalDateTime"), _part(r, "ZoneOffset"), r.any()),
        "java.net.URL": lambda r: _old_url(r),
        "java.util.Optional": _one,
        "java.util.OptionalInt": lambda r: _if(r.boolean(), r.integer()),
        "java.util.OptionalLong": lambda r: _if(r.boolean(), r.long()),
        "java.util.OptionalDouble": lambda r: _if(r.boolean(), r.fixed("d")),
    },
    NEW: _BOTH
    | {
        "java.util.Arrays$ArrayList": _collection,
        **{name: _without_nulls for name in COLLECTIONS if "ImmutableCollections" in name},
        "java.util.concurrent.ConcurrentSkipListMap": _sorted_map,
        # its flags follow
        "java.util.regex.Pattern": lambda r: (r.words(), r.positive())[0],
        "java.util.UUID": lambda r: uuid_text(r.fixed("q"), r.fixed("q")),
        "java.util.Locale": lambda r: _locale(r.words(), r.words(), r.words()),
        "java.net.InetSocketAddress": lambda r: f"{r.words()}:{r.positive()}",
        "java.net.URL": _words,
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
        "java.time.ZoneRegion": _words,
        "java.time.OffsetTime": lambda r: f"{_new_time(r)}{_new_offset(r)}",
        "java.time.OffsetDateTime": lambda r: f"{_new_date_time(r)}{_new_offset(r)}",
        "java.time.ZonedDateTime": _new_zoned,
        "java.util.Optional": _one,
        "java.util.OptionalInt": _present("i"),
        "java.util.OptionalLong": _present("q"),
        "java.util.OptionalDouble": _present("d"),
        "sun.nio.cs.UTF_8": _words,
        "sun.nio.cs.US_ASCII": _words,
        "sun.nio.cs.ISO_8859_1": _words,
        "sun.nio.cs.UTF_16": _words,
    },
}
"""By version and class."""

TEXTS: Final = frozenset(
    name
    for name in (
        *ENUMS,
        *(name for name in BODIES[NEW] if name.startswith("java.time.")),
        "java.time.ZoneId",
        "java.lang.String",
        "java.lang.StringBuilder",
        "java.lang.StringBuffer",
        "java.lang.Class",
        "java.math.BigInteger",
        "java.math.BigDecimal",
        "java.util.UUID",
        "java.util.Date",
        "java.sql.Date",
        "java.sql.Time",
        "java.sql.Timestamp",
        "java.util.Calendar",
        "java.util.GregorianCalendar",
        "java.util.TimeZone",
        "java.util.Locale",
        "java.util.Currency",
        "java.util.regex.Pattern",
        "java.net.URI",
        "java.net.URL",
        "java.net.InetSocketAddress",
        "java.io.File",
    )
)
"""Classes whose values are text as they are; of others the text is JSON."""


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


def _if(there: bool, value: Any) -> Any:
    return value if there else None


def _old_url(r: Reading) -> str:
    def text() -> str | None:
        value: str | None = r.object("java.lang.String", nullable=True)
        return value

    authority, file = text(), text()
    r.integer()  # hash code
    text()  # host
    r.integer()  # port
    protocol, ref = text(), text()
    return f"{protocol}:" + (f"//{authority}" if authority else "") + (file or "") + (f"#{ref}" if ref else "")
