"""Values of Flink's `AvroSerializer`: its schema stands in the snapshot.

Flink does not write Avro's own binary form but numbers of fixed width: an int, a length, a number of a branch or of a
symbol in 4 bytes, a long in 8, big-endian. Only how many items a block of an array or map has is a varint; a block of
none ends them. Source: `DataOutputEncoder` of flink-avro 2.3.0; checked on state that it wrote.

A union with null is what the other branch is, or null; another union is a struct of its branches, of which one is not
null. A record within itself is JSON: Arrow has no such type.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, NamedTuple

from formats.codec.varint import read_varint
from formats.flink.types.avro_schema import AvroSchema, full_name, kind_of
from formats.flink.types.serializers import Snapshot
from formats.flink.types.values import Codec, Read, Shape, fixed, opaque

_I32: Final = struct.Struct(">i").unpack_from
_EMPTY_ITEMS: Final = 1_000_000
"""Items of no bytes that are believed."""
_DIGITS: Final = 38
"""Of Arrow's decimals."""

_FIXED: Final = {"boolean": ("?", "bool"), "int": ("i", "int32"), "long": ("q", "int64"), "float": ("f", "float32"),
                 "double": ("d", "float64")}  # fmt: skip
_LOGICAL: Final = {
    ("int", "date"): "date32", ("int", "time-millis"): "time32_ms",
    ("long", "timestamp-millis"): "timestamp_ms_utc", ("long", "timestamp-micros"): "timestamp_us_utc",
    ("long", "local-timestamp-millis"): "timestamp_ms", ("long", "local-timestamp-micros"): "timestamp_us",
}  # fmt: skip


class _Part(NamedTuple):
    """How values of one schema are read.

    least: bytes that one has at least.
    plain: from a value to what JSON has for it.
    """

    read: Read
    shape: Shape
    least: int
    plain: Callable[[Any], Any]


def avro(snapshot: Snapshot) -> Codec:
    """The reader of a serializer's values; of a schema that cannot be understood one that raises HiddenValue."""
    try:
        schema = AvroSchema(snapshot.text or "")
        part = _Parts(schema).part(schema.root)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return opaque(f"{snapshot.about} ({snapshot.short})", snapshot)
    return Codec("avro", part.read, part.shape, least=part.least, snapshot=snapshot)


def _same(value: Any) -> Any:
    return value


class _Parts:
    """Makes the readers of the parts of a schema.

    _open: records whose fields are being made, by name; within themselves they are looked up in `_made`.
    """

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._open: set[str] = set()
        self._made: dict[str, _Part] = {}

    def part(self, schema: Any) -> _Part:
        schema = self._schema.look_up(schema)
        kind = kind_of(schema)
        logical = schema.get("logicalType") if isinstance(schema, dict) else None
        match kind:
            case "null":
                return _Part(lambda buf, pos: (None, pos), "null", 0, _same)
            case "boolean" | "int" | "long" | "float" | "double":
                form, shape = _FIXED[kind]
                codec = fixed(kind, form, _LOGICAL.get((kind, str(logical)), shape))
                return _Part(codec.read, codec.shape, struct.calcsize(f">{form}"), _same)
            case "bytes" | "fixed":
                return self._bytes(schema, kind, logical)
            case "string":
                return _Part(_string, "string", 4, _same)
            case "enum":
                return _enum(schema["symbols"])
            case "array":
                return _array(self.part(schema["items"]))
            case "map":
                return _map(self.part(schema["values"]))
            case "union":
                return self._union(schema)
            case "record" | "error":
                return self._record(schema)
        raise ValueError(f"no type of Avro: {kind}")

    def _bytes(self, schema: Any, kind: str, logical: str | None) -> _Part:
        size = int(schema["size"]) if kind == "fixed" else None

        def read(buf: bytes, pos: int) -> tuple[bytes, int]:
            if size is None:
                length, pos = _length(buf, pos)
            else:
                length = size
            if length > len(buf) - pos:
                raise IndexError(f"{length} bytes, {len(buf) - pos} are left")
            return buf[pos : pos + length], pos + length

        least = 4 if size is None else size
        digits = int(schema.get("precision", 0)) if logical == "decimal" else 0
        if not 0 < digits <= _DIGITS:
            return _Part(read, "binary", least, bytes.hex)
        scale = int(schema.get("scale", 0))

        def decimal(buf: bytes, pos: int) -> tuple[Decimal, int]:
            data, pos = read(buf, pos)
            return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale), pos

        return _Part(decimal, ("decimal", digits, scale), least, str)

    def _union(self, branches: list[Any]) -> _Part:
        parts = [self.part(branch) for branch in branches]
        kinds = [kind_of(self._schema.look_up(branch)) for branch in branches]
        values = [i for i, kind in enumerate(kinds) if kind != "null"]

        def branch(buf: bytes, pos: int) -> tuple[int, Any, int]:
            index = _I32(buf, pos)[0]
            if not 0 <= index < len(parts):
                raise ValueError(f"branch {index} of {len(parts)}")
            value, pos = parts[index].read(buf, pos + 4)
            return index, value, pos

        if len(values) < 2:
            only = parts[values[0]] if values else parts[0]

            def read(buf: bytes, pos: int) -> tuple[Any, int]:
                _, value, pos = branch(buf, pos)
                return value, pos

            return _Part(read, only.shape, 4, lambda value: None if value is None else only.plain(value))

        def read_one(buf: bytes, pos: int) -> tuple[Any, int]:
            index, value, pos = branch(buf, pos)
            return None if kinds[index] == "null" else tuple(value if i == index else None for i in values), pos

        def plain(value: Any) -> Any:
            if value is None:
                return None
            return next((parts[i].plain(one) for i, one in zip(values, value, strict=True) if one is not None), None)

        names = self._branch_names([branches[i] for i in values])
        shape = ("struct", tuple((name, parts[i].shape) for name, i in zip(names, values, strict=True)))
        return _Part(read_one, shape, 4, plain)

    def _branch_names(self, branches: list[Any]) -> list[str]:
        """What branches are called: a named type by its own name, in full where several are called so."""
        schemas = [self._schema.look_up(branch) for branch in branches]
        whole = [full_name(one, "") if isinstance(one, dict) and "name" in one else kind_of(one) for one in schemas]
        short = [name.rpartition(".")[2] for name in whole]
        return short if len(set(short)) == len(short) else whole

    def _record(self, schema: dict[str, Any]) -> _Part:
        name = full_name(schema, "")
        if name in self._open:
            return self._within_itself(name)
        self._open.add(name)
        names = [str(field["name"]) for field in schema["fields"]]
        parts = [self.part(field["type"]) for field in schema["fields"]]
        self._open.discard(name)
        reads = [part.read for part in parts]

        def read(buf: bytes, pos: int) -> tuple[Any, int]:
            values = []
            for one in reads:
                value, pos = one(buf, pos)
                values.append(value)
            return tuple(values), pos

        def plain(value: Any) -> Any:
            return {n: part.plain(one) for n, part, one in zip(names, parts, value, strict=True)}

        shape = ("struct", tuple((n, part.shape) for n, part in zip(names, parts, strict=True)))
        self._made[name] = _Part(read, shape, sum(part.least for part in parts), plain)
        return self._made[name]

    def _within_itself(self, name: str) -> _Part:
        def read(buf: bytes, pos: int) -> tuple[str, int]:
            whole = self._made[name]
            value, pos = whole.read(buf, pos)
            return json.dumps(whole.plain(value), ensure_ascii=False, default=str), pos

        return _Part(read, "string", 0, json.loads)


def _length(buf: bytes, pos: int) -> tuple[int, int]:
    length = _I32(buf, pos)[0]
    if length < 0:
        raise ValueError(f"a length of {length}")
    return length, pos + 4


def _string(buf: bytes, pos: int) -> tuple[str, int]:
    length, pos = _length(buf, pos)
    if length > len(buf) - pos:
        raise IndexError(f"text of {length} bytes, {len(buf) - pos} are left")
    return buf[pos : pos + length].decode(), pos + length


def _enum(symbols: list[str]) -> _Part:
    def read(buf: bytes, pos: int) -> tuple[str, int]:
        index = _I32(buf, pos)[0]
        if not 0 <= index < len(symbols):
            raise ValueError(f"symbol {index} of {len(symbols)}")
        return symbols[index], pos + 4

    return _Part(read, "string", 4, _same)


def _blocks(buf: bytes, pos: int, least: int, read: Read) -> tuple[list[Any], int]:
    """The items of an array, or entries of a map: blocks, each behind how many it has, up to one of none."""
    items: list[Any] = []
    while True:
        count, pos = read_varint(buf, pos)
        if count == 0:
            return items, pos
        if count * least > len(buf) - pos or len(items) + count > max(len(buf), _EMPTY_ITEMS):
            raise IndexError(f"{count} items in {len(buf) - pos} bytes")
        for _ in range(count):
            item, pos = read(buf, pos)
            items.append(item)


def _array(item: _Part) -> _Part:
    return _Part(
        lambda buf, pos: _blocks(buf, pos, item.least, item.read),
        ("list", item.shape),
        1,
        lambda values: [item.plain(value) for value in values],
    )


def _map(value: _Part) -> _Part:
    def entry(buf: bytes, pos: int) -> tuple[tuple[str, Any], int]:
        key, pos = _string(buf, pos)
        one, pos = value.read(buf, pos)
        return (key, one), pos

    return _Part(
        lambda buf, pos: _blocks(buf, pos, 4 + value.least, entry),
        ("map", "string", value.shape),
        1,
        lambda pairs: {key: value.plain(one) for key, one in pairs},
    )
