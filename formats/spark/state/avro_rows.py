"""Rows that Spark writes as Avro (`encodingFormat=avro`, of transformWithState), made UnsafeRows: what reads those also
reads these, and hashes them as Spark does.

A row is a version byte 0, the number of its schema (2 bytes), and an Avro record whose columns, at any depth, are
unions of null and their type. Elements of arrays and values of maps are unions only if they are structs, arrays or
maps. Of a key in two parts the first has no schema's number. Numbers are zigzag varints, decimals fixed bytes.
Spark: `AvroStateEncoder`, `SchemaConverters.toAvroTypeWithDefaults`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from formats.spark.state.types import Field, Type
from formats.spark.state.types import struct as struct_type

SCHEMA = 2
"""Bytes of a schema's number."""
FAULTY = b"?"
"""In place of a row that does not read: no UnsafeRow is of this length."""

_SLOTS = {
    "boolean": "<B", "byte": "<b", "short": "<h", "integer": "<i", "date": "<i", "year-month": "<i", "float": "<f",
    "double": "<d",
}  # fmt: skip
_VARINTS = frozenset({
    "byte", "short", "integer", "date", "year-month", "long", "timestamp", "timestamp_ntz", "day-time", "time",
})  # fmt: skip
_PLAIN = frozenset({"boolean", "float", "double", "string", "binary", "decimal", "void"})
_DEEPEST = 64
_BINARY = Type("binary")
_COLUMN = Field("", _BINARY)


class _Bad(Exception):
    """The bytes are not what the schema says."""


def readable(of: Type) -> bool:
    """Decide if values of a type can be read. Keys of Avro's maps are strings."""
    if of.kind in ("struct", "array"):
        return all(readable(field.type) for field in of.fields)
    if of.kind == "map":
        return of.fields[0].type.kind == "string" and readable(of.fields[1].type)
    return of.kind in _VARINTS or of.kind in _PLAIN


def scanned_row(record: bytes, columns: int) -> bytes:
    """Return the UnsafeRow of the leading key columns of a range scan; `FAULTY` if the record does not parse.

    Avro has two binary columns for each of them: its sign, and its bytes. An UnsafeRow has both in one.
    """
    reader = _Reader(record)
    try:
        parts = [reader.nullable(_BINARY) for _ in range(2 * columns)]
    except _Bad:
        return FAULTY
    if None in parts or reader.at != len(record):
        return FAULTY
    return _row([sign + own for sign, own in zip(parts[::2], parts[1::2], strict=True)], [_COLUMN] * columns)


def unsafe_row(record: bytes, fields: Sequence[Field], wanted: Sequence[Field] | None = None) -> bytes:
    """Return the UnsafeRow of an Avro record; `FAULTY` if it does not parse up to its end.

    fields: with which it was written; wanted: of a newer schema that the row should have.
    """
    reader = _Reader(record)
    try:
        values = [reader.nullable(field.type) for field in fields]
        if wanted is not None and wanted != fields:
            values, fields = _evolved(values, struct_type(*fields), struct_type(*wanted)), wanted
        row = _row(values, fields)
    except (_Bad, struct.error, OverflowError, UnicodeDecodeError):
        return FAULTY
    return row if reader.at == len(record) else FAULTY


def _evolved(value: Any, written: Type, wanted: Type) -> Any:
    """Return a value as one of a newer type: columns of structs go by their names, and new ones are null."""
    if value is None or written == wanted or written.kind != wanted.kind:
        return value
    if written.kind == "struct":
        by_name = {field.name: (own, field.type) for own, field in zip(value, written.fields, strict=True)}
        return [_evolved(*by_name.get(field.name, (None, field.type)), field.type) for field in wanted.fields]
    if written.kind == "array":
        return [_evolved(item, written.fields[0].type, wanted.fields[0].type) for item in value]
    if written.kind == "map":
        return [(key, _evolved(item, written.fields[1].type, wanted.fields[1].type)) for key, item in value]
    return value


class _Reader:
    """Avro's binary encoding, from the front."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.depth = 0

    def take(self, size: int) -> bytes:
        if size < 0 or self.at + size > len(self.data):
            raise _Bad
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            if shift > 63:
                raise _Bad

    def nullable(self, of: Type) -> Any:
        if of.kind == "void":  # Avro's null, which takes no bytes and is in no union
            return None
        branch = self.number()
        if branch not in (0, 1):
            raise _Bad
        return self.value(of) if branch else None

    def value(self, of: Type) -> Any:
        kind = of.kind
        if kind in _VARINTS:
            return self.number()
        if kind == "boolean":
            return self.take(1)[0]
        if kind in ("float", "double"):
            return struct.unpack("<f" if kind == "float" else "<d", self.take(4 if kind == "float" else 8))[0]
        if kind in ("string", "binary"):
            return self.take(self.number())
        if kind == "decimal":
            return int.from_bytes(self.take(_bytes_of(of.precision)), "big", signed=True)
        self.depth += 1
        if self.depth > _DEEPEST:
            raise _Bad
        value = self._nested(of)
        self.depth -= 1
        return value

    def _nested(self, of: Type) -> Any:
        if of.kind == "struct":
            return [self.nullable(field.type) for field in of.fields]
        items = []
        while count := self.number():
            if count < 0:  # then the block's size in bytes comes first
                self.number()
            for _ in range(min(abs(count), len(self.data) + 1)):
                if of.kind == "map":
                    items.append((self.take(self.number()), self._element(of.fields[1].type)))
                else:
                    items.append(self._element(of.fields[0].type))
        return items

    def _element(self, of: Type) -> Any:
        """Read an element of an array or a map: a union if its type has elements or columns of its own."""
        return self.nullable(of) if of.fields else self.value(of)


def _bytes_of(precision: int) -> int:
    """Of the fixed bytes of a decimal: as few as hold all of its digits."""
    size = 1
    while 2 ** (8 * size - 1) < 10**precision:
        size += 1
    return size


def _row(values: Sequence[Any], fields: Sequence[Field]) -> bytes:
    """An UnsafeRow, as `unsafe_places` describes it."""
    head = (len(fields) + 63) // 64 * 8
    return _laid_out(values, [field.type for field in fields], head, 8)


def _array(values: Sequence[Any], of: Type) -> bytes:
    head = (len(values) + 63) // 64 * 8
    width = of.width or 8
    return struct.pack("<q", len(values)) + _laid_out(values, [of] * len(values), head, width, before=8)


def _laid_out(values: Sequence[Any], types: Sequence[Type], head: int, width: int, *, before: int = 0) -> bytes:
    """A bitmap of nulls, slots, and what they point to. before: bytes that pointers count from in front of it."""
    nulls = bytearray(head)
    slots, area = bytearray(), bytearray()
    start = before + head + _padded(width * len(values))
    for n, (value, of) in enumerate(zip(values, types, strict=True)):
        if value is None:
            nulls[n // 8] |= 1 << n % 8
            slots += bytes(width)
        elif of.width is not None:
            own = struct.pack(_SLOTS.get(of.kind, "<q"), value)
            slots += own.ljust(width, b"\0")
        else:
            own = _pointed(value, of)
            slots += struct.pack("<Q", (start + len(area)) << 32 | len(own))
            area += own.ljust(16 if of.kind == "decimal" else _padded(len(own)), b"\0")
    return bytes(nulls) + bytes(slots).ljust(_padded(len(slots)), b"\0") + bytes(area)


def _pointed(value: Any, of: Type) -> bytes:
    if of.kind == "struct":
        return _row(value, of.fields)
    if of.kind == "array":
        return _array(value, of.fields[0].type)
    if of.kind == "map":
        keys = _array([key for key, _ in value], of.fields[0].type)
        return struct.pack("<q", len(keys)) + keys + _array([item for _, item in value], of.fields[1].type)
    if of.kind == "decimal":
        return int(value).to_bytes((int(value).bit_length() + 8) // 8, "big", signed=True)
    return bytes(value)


def _padded(size: int) -> int:
    return (size + 7) // 8 * 8
