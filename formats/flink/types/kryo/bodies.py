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
from formats.flink.types.kryo.dates import DATES
from formats.flink.types.kryo.input import NEW, OLD
from formats.flink.types.kryo.names import BOXES, COLLECTIONS, ENUMS, MAPS, PRIMITIVES
from formats.flink.types.kryo.reading import Body, Reading
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


def _present(form: str) -> Body:
    return lambda r: r.fixed(form) if r.boolean() else None


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
    | DATES[OLD]
    | {
        "java.util.Arrays$ArrayList": _as_list,
        "java.util.concurrent.ConcurrentSkipListMap": _map,
        "java.util.regex.Pattern": _words,
        "java.util.UUID": lambda r: uuid_text(r.long(), r.long()),
        "java.util.Locale": _serialised_locale,
        "java.net.InetSocketAddress": lambda r: f"{r.words()}:{r.positive()}",
        # fields, in the order of their names
        "java.net.URL": _old_url,
        "java.util.Optional": _one,
        "java.util.OptionalInt": lambda r: _if(r.boolean(), r.integer()),
        "java.util.OptionalLong": lambda r: _if(r.boolean(), r.long()),
        "java.util.OptionalDouble": lambda r: _if(r.boolean(), r.fixed("d")),
    },
    NEW: _BOTH
    | DATES[NEW]
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
