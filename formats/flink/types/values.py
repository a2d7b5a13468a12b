"""Values as Flink's serializers write them: from a snapshot to a function that reads one value.

A `Codec` reads with `read(buffer, position) -> (value, position after it)`. Readers are closures put together once per
state; they check the bounds of what they copy and leave the rest to `struct`, so a buffer that ends too early raises
one of `BROKEN`. A value of a class with a format of its own raises `HiddenValue`. Values are what Arrow takes for the
codec's `shape`: numbers, text, bytes, lists, tuples for structs, lists of pairs for maps.

Sources: the `serialize` methods of Flink 2.3.0's serializers; checked on bytes that they wrote.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, NamedTuple, TypeAlias

from formats.errors import Damaged
from formats.flink.bytes import Reader
from formats.flink.java_object import JavaObject, read_value
from formats.flink.types.serializers import Snapshot
from formats.flink.types.strings import read_string, read_string_value
from formats.flink.types.times import date_text, instant_text, time_text

Read: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
Shape: TypeAlias = str | tuple[Any, ...]
"""`int64`, `string`, ...; `("list", shape)`; `("map", key, value)`; `("struct", ((name, shape), ...))`;
`("decimal", precision, scale)`; `opaque`: a struct of class, length and bytes."""

BROKEN: Final = (struct.error, IndexError, ValueError, ArithmeticError, RecursionError)
"""What reading bytes that are no such value raises."""

ROW_KINDS: Final = ("+I", "-U", "+U", "-D")


class HiddenValue(Exception):
    """A value that only its own class can read.

    name: of that class or its serializer.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Opaque(NamedTuple):
    """A value that is shown as its bytes.

    name: of the class that can read it.
    """

    name: str
    length: int
    data: bytes


MAY_HIDE: Final = "classes of the job's own (KryoSerializer)"
SUBCLASSES: Final = "subclasses that the snapshot does not describe"
POSSIBLY: Final = frozenset({MAY_HIDE, SUBCLASSES})
"""What a value may hold that only the job can read, where its class does not rule it out: only values show it."""


class Codec:
    """How one serializer's values are read.

    form: a `struct` letter where the value is just that.
    length: what Flink's `getLength` says (-1: variable).
    least: bytes that a value has at least.
    hides: a class that may be met inside and cannot be read.
    parts: codecs of the fields (structs), the element (lists), key and value (maps).
    framed: of a value that stands behind its length, the codec of the value alone.
    """

    __slots__ = ("form", "framed", "hides", "kind", "least", "length", "parts", "read", "shape", "snapshot")

    def __init__(
        self,
        kind: str,
        read: Read,
        shape: Shape,
        *,
        form: str | None = None,
        length: int = -1,
        least: int = 1,
        parts: tuple[Codec, ...] = (),
        hides: str | None = None,
        snapshot: Snapshot | None = None,
        framed: Codec | None = None,
    ) -> None:
        self.kind = kind
        self.read = read
        self.shape = shape
        self.form = form
        self.length = length
        self.least = least
        self.parts = parts
        self.hides: str | None = hides or next((part.hides for part in parts if part.hides), None)
        self.snapshot = snapshot
        self.framed = framed


# -- plain values -----------------------------------------------------------------------------------------


def fixed(kind: str, form: str, shape: Shape, snapshot: Snapshot | None = None) -> Codec:
    """A value of one `struct` letter."""
    layout = struct.Struct(">" + form)
    unpack, size = layout.unpack_from, layout.size

    def read(buf: bytes, pos: int) -> tuple[Any, int]:
        return unpack(buf, pos)[0], pos + size

    return Codec(kind, read, shape, form=form, length=size, least=size, snapshot=snapshot)


def frame(buf: bytes, pos: int) -> tuple[bytes, int]:
    """`i32 length | bytes`."""
    n = _I32(buf, pos)[0]
    pos += 4
    if not 0 <= n <= len(buf) - pos:
        raise IndexError(f"{n} bytes are due, {len(buf) - pos} are left")
    return buf[pos : pos + n], pos + n


_I32 = struct.Struct(">i").unpack_from
_I64 = struct.Struct(">q").unpack_from
_I64I32 = struct.Struct(">qi").unpack_from
_DATE = struct.Struct(">ibb").unpack_from
_TIME = struct.Struct(">bbbi").unpack_from
_MIN32, _MIN64 = -(1 << 31), -(1 << 63)
_TEN = (None, 0, 1, 10)


def int_text(value: int) -> str:
    """A number of any size in decimal digits."""
    return str(value) if value.bit_length() < 14000 else str(Decimal(value))


def _big(buf: bytes, pos: int) -> tuple[int | None, int]:
    """`i32 0`: null, 1 to 3: 0, 1 and 10, else length + 4 and the bytes of the number."""
    n = _I32(buf, pos)[0]
    pos += 4
    if 0 <= n <= 3:
        return _TEN[n], pos
    if not 4 < n <= len(buf) - pos + 4:
        raise IndexError(f"a number of {n - 4} bytes, {len(buf) - pos} are left")
    end = pos + n - 4
    return int.from_bytes(buf[pos:end], "big", signed=True), end


def read_bigint(buf: bytes, pos: int) -> tuple[str | None, int]:
    value, pos = _big(buf, pos)
    return None if value is None else int_text(value), pos


def read_bigdec(buf: bytes, pos: int) -> tuple[str | None, int]:
    value, pos = _big(buf, pos)
    if value is None:
        return None, pos
    scale = _I32(buf, pos)[0]
    digits = tuple(map(int, int_text(abs(value))))
    return str(Decimal((int(value < 0), digits, -scale))), pos + 4


def _nullable_long(text: Callable[[int], str]) -> Read:
    def read(buf: bytes, pos: int) -> tuple[str | None, int]:
        value = _I64(buf, pos)[0]
        return None if value == _MIN64 else text(value), pos + 8

    return read


def millis_text(value: int) -> str:
    """Milliseconds since 1970 as an instant."""
    return instant_text(value // 1000, value % 1000 * 1_000_000)


def read_timestamp(buf: bytes, pos: int) -> tuple[str | None, int]:
    """`java.sql.Timestamp`: milliseconds, and the nanoseconds of the second (which hold the milliseconds again)."""
    millis, nanos = _I64I32(buf, pos)
    if not 0 <= nanos < 1_000_000_000 and millis != _MIN64:
        raise ValueError(f"{nanos} nanoseconds")
    return None if millis == _MIN64 else instant_text(millis // 1000, nanos), pos + 12


def read_instant(buf: bytes, pos: int) -> tuple[str | None, int]:
    seconds, nanos = _I64I32(buf, pos)
    if seconds == _MIN64:
        return None, pos + 12
    if not 0 <= nanos < 1_000_000_000:
        raise ValueError(f"{nanos} nanoseconds")
    return instant_text(seconds, nanos), pos + 12


def read_localdate(buf: bytes, pos: int) -> tuple[str | None, int]:
    year, month, day = _DATE(buf, pos)
    if year == _MIN32:
        return None, pos + 6
    if not (1 <= month <= 12 and 1 <= day <= 31):
        raise ValueError(f"month {month}, day {day}")
    return date_text(year, month, day), pos + 6


def read_localtime(buf: bytes, pos: int) -> tuple[str | None, int]:
    hour, minute, second, nanos = _TIME(buf, pos)
    if hour == -128:
        return None, pos + 7
    if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60 and 0 <= nanos < 1_000_000_000):
        raise ValueError(f"a time of {hour}:{minute}:{second}")
    return time_text(hour, minute, second, nanos), pos + 7


def read_localdatetime(buf: bytes, pos: int) -> tuple[str | None, int]:
    date, pos = read_localdate(buf, pos)
    time, pos = read_localtime(buf, pos)
    return None if date is None or time is None else f"{date}T{time}", pos


def read_utf8(buf: bytes, pos: int) -> tuple[str, int]:
    data, pos = frame(buf, pos)
    return data.decode("utf-8", "backslashreplace"), pos


def _void(buf: bytes, pos: int) -> tuple[None, int]:
    buf[pos]  # the byte is there
    return None, pos + 1


def _char(buf: bytes, pos: int) -> tuple[str, int]:
    return chr(buf[pos] << 8 | buf[pos + 1]), pos + 2


def boolean(buf: bytes, pos: int) -> bool:
    """A byte that is 0 or 1; ValueError otherwise."""
    byte = buf[pos]
    if byte > 1:
        raise ValueError(f"{byte} where 0 or 1 is due")
    return byte == 1


def _variant(buf: bytes, pos: int) -> tuple[tuple[bytes, bytes], int]:
    n, m = _I32(buf, pos)[0], _I32(buf, pos + 4)[0]
    pos += 8
    if n < 0 or m < 0 or n + m > len(buf) - pos:
        raise IndexError("a variant ends too early")
    return (buf[pos : pos + n], buf[pos + n : pos + n + m]), pos + n + m


def _java(buf: bytes, pos: int) -> tuple[Opaque, int]:
    reader = Reader(buf, None, pos)
    try:
        value = read_value(reader)
    except Damaged as error:
        raise ValueError(error.message) from None
    name = value.class_name if isinstance(value, JavaObject) else "java"
    return Opaque(name, reader.pos - pos, buf[pos : reader.pos]), reader.pos


_SORTED = struct.Struct(">Q").unpack_from


def _sorted_long(buf: bytes, pos: int) -> tuple[int, int]:
    return _SORTED(buf, pos)[0] + _MIN64, pos + 8


_FIXED: Final = {
    "byte": ("b", "int8"),
    "short": ("h", "int16"),
    "int": ("i", "int32"),
    "long": ("q", "int64"),
    "float": ("f", "float32"),
    "double": ("d", "float64"),
    "days": ("i", "date32"),
    "millisofday": ("i", "time32_ms"),
    "countwindow": ("q", "int64"),
}

_PLAIN: Final[dict[str, tuple[Read, Shape, int, int]]] = {
    "string": (read_string, "string", -1, 1),
    "boolean": (lambda buf, pos: (boolean(buf, pos), pos + 1), "bool", 1, 1),
    "char": (_char, "string", 2, 2),
    "bigint": (read_bigint, "string", -1, 4),
    "bigdec": (read_bigdec, "string", -1, 4),
    "date": (_nullable_long(millis_text), "string", 8, 8),
    "sqldate": (_nullable_long(millis_text), "string", 8, 8),
    "sqltime": (_nullable_long(millis_text), "string", 8, 8),
    "sqltimestamp": (read_timestamp, "string", 12, 12),
    "localdate": (read_localdate, "string", 6, 6),
    "localtime": (read_localtime, "string", 7, 7),
    "localdatetime": (read_localdatetime, "string", 13, 13),
    "instant": (read_instant, "string", 12, 12),
    "uuid": (lambda buf, pos: (_hex16(buf, pos), pos + 16), "string", 16, 16),
    "void": (_void, "null", 1, 1),
    "tuple0": (_void, "null", 1, 1),
    "voidnamespace": (_void, "null", 0, 1),
    "globalwindow": (_void, "null", 1, 1),
    "nullvalue": (lambda buf, pos: (None, pos), "null", 0, 0),
    "bytes": (frame, "binary", -1, 4),
    "utf8": (read_utf8, "string", -1, 4),
    "variant": (_variant, ("struct", (("value", "binary"), ("metadata", "binary"))), -1, 8),
    "java": (_java, "opaque", -1, 5),
    "sortedlong": (_sorted_long, "int64", 8, 8),
}


def _hex16(buf: bytes, pos: int) -> str:
    high, low = _I64(buf, pos)[0] & (1 << 64) - 1, _I64(buf, pos + 8)[0] & (1 << 64) - 1
    text = f"{high:016x}{low:016x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def plain(kind: str, snapshot: Snapshot | None = None) -> Codec | None:
    """The codec of a kind without parts; None if it has some. `value:`: of Flink's own mutable boxes (LongValue)."""
    if kind == "value:string":
        return Codec(kind, read_string_value, "string", snapshot=snapshot)
    if kind.startswith("value:"):
        inner = plain(kind.removeprefix("value:"), snapshot)
        if inner is not None:
            inner.kind = kind  # a hash code of its own
        return inner
    if kind in _FIXED:
        form, shape = _FIXED[kind]
        return fixed(kind, form, shape, snapshot)
    if kind in _PLAIN:
        read, value_shape, length, least = _PLAIN[kind]
        return Codec(kind, read, value_shape, length=length, least=least, snapshot=snapshot)
    return None


def opaque(name: str, snapshot: Snapshot | None = None) -> Codec:
    """A class with a format of its own: reading it raises HiddenValue."""

    def read(buf: bytes, pos: int) -> tuple[Any, int]:
        raise HiddenValue(name)

    return Codec("opaque", read, "opaque", least=0, hides=name, snapshot=snapshot)
