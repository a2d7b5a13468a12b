"""BinaryRowData, BinaryArrayData and BinaryMapData: how Flink SQL keeps values, little-endian and in place.

A row: bits padded to 8 bytes (byte 0 is the row kind, bit 8 + i says that field i is null), then 8 bytes a field. What
does not fit into 8 bytes lies behind, and the field holds `offset << 32 | length`; text and bytes of up to 7 bytes
stand in the field itself, the highest byte 0x80 + length. An array: i32 n, null bits padded to 4 bytes, then n fields
of their own width. A map: i32 length of the key array, key array, value array. Offsets count from the value's start.

Source: `BinaryRowData`, `BinaryArrayData`, `BinarySegmentUtils` of Flink 2.3.0; checked on bytes that they wrote.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any, Final, TypeAlias

from formats.errors import Damaged
from formats.flink.types.logical_types import LogicalType
from formats.flink.types.times import instant_text
from formats.flink.types.values import ROW_KINDS, Opaque, Read, Shape, frame

Field: TypeAlias = Callable[[bytes, int, int], Any]
"""Reads a field of a section: (bytes, where the section begins, where the field lies)."""

_EXACT: Final = Context(prec=100)
_I16: Final = struct.Struct("<h").unpack_from
_I32: Final = struct.Struct("<i").unpack_from
_I64: Final = struct.Struct("<q").unpack_from

_NUMBERS: Final[dict[str, tuple[str, int, str]]] = {
    "TINYINT": ("b", 1, "int8"),
    "SMALLINT": ("h", 2, "int16"),
    "INTEGER": ("i", 4, "int32"),
    "BIGINT": ("q", 8, "int64"),
    "FLOAT": ("f", 4, "float32"),
    "DOUBLE": ("d", 8, "float64"),
    "DATE": ("i", 4, "date32"),
    "TIME": ("i", 4, "time32_ms"),
    "INTERVAL_MONTH": ("i", 4, "int32"),
    "INTERVAL_SECOND": ("q", 8, "int64"),
}


def shape(kind: LogicalType) -> Shape:
    """What the values of a SQL type are; see `values.Shape`. Rows begin with their row kind."""
    root = kind.root
    if root in _NUMBERS:
        return _NUMBERS[root][2]
    match root:
        case "BOOLEAN":
            return "bool"
        case "CHAR" | "VARCHAR" | "SYMBOL":
            return "string"
        case "BINARY" | "VARBINARY" | "BITMAP":
            return "binary"
        case "DECIMAL":
            if not (0 <= kind.precision <= 38 and 0 <= kind.scale <= max(kind.precision, 1)):
                raise Damaged(f"a decimal of precision {kind.precision} and scale {kind.scale}")
            return ("decimal", max(kind.precision, 1), kind.scale)
        case "TIMESTAMP" | "TIMESTAMP_LTZ":
            zone = "_utc" if root == "TIMESTAMP_LTZ" else ""
            return f"timestamp_ms{zone}" if kind.precision <= 3 else _fine(kind.precision, zone)
        case "ARRAY":
            return ("list", shape(kind.children[0]))
        case "MAP":
            return ("map", shape(kind.children[0]), shape(kind.children[1]))
        case "MULTISET":
            return ("map", shape(kind.children[0]), "int32")
        case "ROW" | "STRUCTURED":
            fields = zip(kind.names, (shape(child) for child in kind.children), strict=True)
            return ("struct", (("row_kind", "string"), *fields))
        case "NULL":
            return "null"
        case _:
            return "opaque"


def _fine(precision: int, zone: str) -> str:
    """Beyond microseconds 64 bits do not reach over SQL's years: text."""
    return f"timestamp_us{zone}" if precision <= 6 else "string"


# -- fields -----------------------------------------------------------------------------------------------


def _part(buf: bytes, base: int, at: int) -> tuple[int, int]:
    """Start and end of what a field points to; IndexError if that is not in the section's bytes."""
    word = _I64(buf, at)[0]
    # checked from below, too: Python takes a negative position for one from the end
    start, end = base + (word >> 32), base + (word >> 32) + (word & 0xFFFFFFFF)
    if not base <= start <= end <= len(buf):
        raise IndexError(f"a value at {start} to {end} of {len(buf)} bytes")
    return start, end


def _bytes(buf: bytes, base: int, at: int) -> bytes:
    # little-endian: the last byte of the field is its highest, and no offset reaches its top bit
    mark = buf[at + 7]
    if mark & 0x80:
        n = mark & 0x7F
        if n > 7:
            raise ValueError(f"{n} bytes within 7")
        return buf[at : at + n]
    start, end = _part(buf, base, at)
    return buf[start:end]


def _text(buf: bytes, base: int, at: int) -> str:
    return _bytes(buf, base, at).decode("utf-8", "backslashreplace")


def _boolean(buf: bytes, base: int, at: int) -> bool:
    return buf[at] != 0


def _decimal(precision: int, scale: int) -> Field:
    # so many digits fit into 64 bits, that is into the field itself
    if precision <= 18:
        return lambda buf, base, at: Decimal(_I64(buf, at)[0]).scaleb(-scale, _EXACT)

    def read(buf: bytes, base: int, at: int) -> Decimal:
        start, end = _part(buf, base, at)
        if end - start > 16:
            raise ValueError(f"a decimal of {end - start} bytes")
        return Decimal(int.from_bytes(buf[start:end], "big", signed=True)).scaleb(-scale, _EXACT)

    return read


def timestamp(millis: int, nanos: int, precision: int, *, zone: str = "") -> Any:
    """What stands for a timestamp in the shape of its precision. nanos: of the millisecond."""
    if precision <= 3:
        return millis
    if not 0 <= nanos < 1_000_000:
        raise ValueError(f"{nanos} nanoseconds in a millisecond")
    if precision <= 6:
        micros = millis * 1000 + nanos // 1000
        if not -(1 << 63) <= micros < 1 << 63:
            raise OverflowError(f"{millis} milliseconds")
        return micros
    return instant_text(millis // 1000, millis % 1000 * 1_000_000 + nanos, zone)


def _timestamp(precision: int, zone: str) -> Field:
    if precision <= 3:
        return lambda buf, base, at: _I64(buf, at)[0]

    def read(buf: bytes, base: int, at: int) -> Any:
        word = _I64(buf, at)[0]
        start = base + (word >> 32)
        if start < base:
            raise IndexError("a timestamp before its row")
        return timestamp(_I64(buf, start)[0], word & 0xFFFFFFFF, precision, zone=zone)

    return read


def _opaque(name: str) -> Field:
    def read(buf: bytes, base: int, at: int) -> Opaque:
        data = _bytes(buf, base, at)
        return Opaque(name, len(data), data)

    return read


def _null(buf: bytes, base: int, at: int) -> None:
    return None


def _section(read: Callable[[bytes], Any]) -> Field:
    def field(buf: bytes, base: int, at: int) -> Any:
        start, end = _part(buf, base, at)
        return read(buf[start:end])

    return field


def _field(kind: LogicalType) -> Field:
    root = kind.root
    if root in _NUMBERS:
        unpack = struct.Struct("<" + _NUMBERS[root][0]).unpack_from
        return lambda buf, base, at: unpack(buf, at)[0]
    match root:
        case "BOOLEAN":
            return _boolean
        case "CHAR" | "VARCHAR" | "SYMBOL":
            return _text
        case "BINARY" | "VARBINARY" | "BITMAP":
            return _bytes
        case "DECIMAL":
            return _decimal(kind.precision, kind.scale)
        case "TIMESTAMP":
            return _timestamp(kind.precision, "")
        case "TIMESTAMP_LTZ":
            return _timestamp(kind.precision, "Z")
        case "ARRAY":
            return _section(binary_array(kind.children[0]))
        case "MAP":
            return _section(binary_map(kind.children[0], kind.children[1]))
        case "MULTISET":
            return _section(binary_map(kind.children[0], LogicalType("INTEGER")))
        case "ROW" | "STRUCTURED":
            return _section(binary_row(kind.children))
        case "NULL":
            return _null
        case _:
            return _opaque(kind.class_name or root)


# -- rows, arrays, maps -----------------------------------------------------------------------------------


def binary_row(kinds: tuple[LogicalType, ...]) -> Callable[[bytes], tuple[Any, ...]]:
    """Reads a row that fills its buffer: (row kind, fields...)."""
    n = len(kinds)
    # 8 bits of the row kind and one for each field, in whole words of 64
    header = (n + 71) // 64 * 8
    width = header + 8 * n
    fields = [(1 << (i + 8), _field(kind), header + 8 * i) for i, kind in enumerate(kinds)]

    # numbers of a row without nulls are read at once; what lies elsewhere is skipped there and read by itself
    forms = [_NUMBERS.get(kind.root) for kind in kinds]
    numbers = struct.Struct("<" + "".join(f"{form[0]}{8 - form[1]}x" if form else "8x" for form in forms)).unpack_from
    others = [(i, field, at) for i, (_, field, at) in enumerate(fields) if forms[i] is None]

    def read(buf: bytes) -> tuple[Any, ...]:
        if len(buf) < width:
            raise IndexError(f"a row of {n} fields needs {width} bytes, not {len(buf)}")
        bits = int.from_bytes(buf[:header], "little")
        # nothing but a row kind: no field is null
        if bits <= 3:
            values = list(numbers(buf, header))
            for i, field, at in others:
                # ascending, so that by now each index is that of the whole row
                values.insert(i, field(buf, 0, at))
            return (ROW_KINDS[bits], *values)
        if bits & 0xFF > 3:
            raise ValueError(f"row kind {bits & 0xFF}")
        row = [None if bits & bit else field(buf, 0, at) for bit, field, at in fields]
        return (ROW_KINDS[bits & 0xFF], *row)

    return read


def _width(kind: LogicalType) -> int:
    if kind.root in _NUMBERS:
        return _NUMBERS[kind.root][1]
    return 1 if kind.root == "BOOLEAN" else 8


def binary_array(kind: LogicalType) -> Callable[[bytes], list[Any]]:
    """Reads an array that fills its buffer."""
    width, field = _width(kind), _field(kind)

    def read(buf: bytes) -> list[Any]:
        n = _I32(buf, 0)[0]
        first = 4 + (n + 31) // 32 * 4
        if n < 0 or first + n * width > len(buf):
            raise IndexError(f"an array of {n} values in {len(buf)} bytes")
        bits = int.from_bytes(buf[4:first], "little")
        return [None if bits >> i & 1 else field(buf, 0, first + i * width) for i in range(n)]

    return read


def binary_map(key: LogicalType, value: LogicalType) -> Callable[[bytes], list[tuple[Any, Any]]]:
    """Reads a map that fills its buffer, as pairs."""
    keys, values = binary_array(key), binary_array(value)

    def read(buf: bytes) -> list[tuple[Any, Any]]:
        n = _I32(buf, 0)[0]
        if not 0 <= n <= len(buf) - 4:
            raise IndexError(f"keys of {n} bytes in {len(buf)}")
        left, right = keys(buf[4 : 4 + n]), values(buf[4 + n :])
        if len(left) != len(right):
            raise ValueError(f"{len(left)} keys and {len(right)} values")
        return list(zip(left, right, strict=True))

    return read


def framed(read: Callable[[bytes], Any]) -> Read:
    """`i32 length | section`."""

    def framed_read(buf: bytes, pos: int) -> tuple[Any, int]:
        data, pos = frame(buf, pos)
        return read(data), pos

    return framed_read


def decimal_data(precision: int, scale: int) -> Read:
    """`DecimalDataSerializer`: an i64, or beyond 18 digits a frame."""
    # on its own a value is written big-endian, as Java does; only within a row is it little-endian
    big = struct.Struct(">q").unpack_from

    def read(buf: bytes, pos: int) -> tuple[Decimal, int]:
        if precision <= 18:
            return Decimal(big(buf, pos)[0]).scaleb(-scale, _EXACT), pos + 8
        data, pos = frame(buf, pos)
        if len(data) > 16:
            raise ValueError(f"a decimal of {len(data)} bytes")
        return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale, _EXACT), pos

    return read


def timestamp_data(precision: int) -> Read:
    """`TimestampDataSerializer`: i64 milliseconds, and beyond milliseconds i32 nanoseconds."""
    short, long = struct.Struct(">q").unpack_from, struct.Struct(">qi").unpack_from

    def read(buf: bytes, pos: int) -> tuple[Any, int]:
        if precision <= 3:
            return short(buf, pos)[0], pos + 8
        millis, nanos = long(buf, pos)
        return timestamp(millis, nanos, precision), pos + 12

    return read
