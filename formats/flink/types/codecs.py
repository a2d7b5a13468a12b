"""From a serializer's snapshot to its codec."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from formats.flink.types import operator_codecs
from formats.flink.types.avro import avro
from formats.flink.types.composites import fields, list_codec, map_codec, members, struct_codec, timer_codec
from formats.flink.types.kryo.values import kryo
from formats.flink.types.logical_types import LogicalType
from formats.flink.types.pojo import pojo
from formats.flink.types.rows import binary_array, binary_map, binary_row, decimal_data, framed, shape, timestamp_data
from formats.flink.types.sequences import either, masked, maybe, read_list, read_pairs
from formats.flink.types.serializers import Snapshot, short_name
from formats.flink.types.strings import read_string
from formats.flink.types.values import Codec, Opaque, Read, Shape, fixed, frame, opaque, plain

_I64: Final = struct.Struct(">q").unpack_from
_I32: Final = struct.Struct(">i").unpack_from
_U64: Final = struct.Struct(">Q").unpack_from

_ARRAYS: Final = {
    "booleans": ("?", "bool"),
    "shorts": ("h", "int16"),
    "ints": ("i", "int32"),
    "longs": ("q", "int64"),
    "floats": ("f", "float32"),
    "doubles": ("d", "float64"),
}


def codec(snapshot: Snapshot) -> Codec:
    """The reader of a serializer's values; of a class with a format of its own one that raises HiddenValue."""
    plain_codec = plain(snapshot.kind, snapshot)
    if plain_codec is not None:
        return plain_codec
    if snapshot.kind in _ARRAYS:
        form, item = _ARRAYS[snapshot.kind]
        read = read_list(fixed("", form, item))
        return Codec(snapshot.kind, read, ("list", item), least=4, snapshot=snapshot)
    if (make := _KINDS.get(snapshot.kind)) is not None:
        composed = make(snapshot)
    elif (of_parts := operator_codecs.KINDS.get(snapshot.kind)) is not None:
        composed = of_parts(snapshot, parts_of(snapshot))
    else:
        return opaque(_class_name(snapshot), snapshot)
    if composed.snapshot is None:
        composed.snapshot = snapshot
    return composed


def _class_name(snapshot: Snapshot) -> str:
    """What an opaque value is called: its class, and whose format it is."""
    serializer = short_name(snapshot.name)
    return f"{snapshot.about} ({serializer})" if snapshot.about else serializer or "?"


def _numbered(n: int) -> tuple[str, ...]:
    return tuple(f"f{i}" for i in range(n))


def parts_of(snapshot: Snapshot) -> list[Codec]:
    """The codecs of the nested serializers."""
    return [codec(part) for part in snapshot.nested]


def _tuple(snapshot: Snapshot) -> Codec:
    parts = parts_of(snapshot)
    return struct_codec("tuple", _numbered(len(parts)), parts)


def _list(snapshot: Snapshot) -> Codec:
    return list_codec(codec(snapshot.nested[0]))


def _map(snapshot: Snapshot) -> Codec:
    return map_codec(codec(snapshot.nested[0]), codec(snapshot.nested[1]))


def _null_map(snapshot: Snapshot) -> Codec:
    key, value = codec(snapshot.nested[0]), codec(snapshot.nested[1])
    nullable = Codec("nullable", maybe(key, present=0), key.shape, hides=key.hides)
    read = read_pairs(nullable, value)
    # a null key is no key of an Arrow map
    item = ("struct", (("key", key.shape), ("value", value.shape)))
    return Codec("nullmap", read, ("list", item), least=4, parts=(key, value))


def _of_nullable(snapshot: Snapshot, present: int, kind: str) -> Codec:
    """Set and array: n values, each behind a flag."""
    item = codec(snapshot.nested[0])
    inner = Codec("nullable", maybe(item, present=present), item.shape, hides=item.hides)
    return Codec(kind, read_list(inner), ("list", item.shape), least=4, parts=(item,))


def _linked_list(snapshot: Snapshot) -> Codec:
    item = codec(snapshot.nested[0])
    if not snapshot.number:
        return list_codec(item)
    one = item.read

    def read(buf: bytes, pos: int) -> tuple[Any, int]:
        n = _I32(buf, pos)[0]
        end = pos + 4 + (n + 7) // 8
        if n < 0 or end > len(buf):
            raise IndexError(f"a list of {n} values")
        mask, pos = buf[pos + 4 : end], end
        out: list[Any] = []
        for i in range(n):
            if mask[i >> 3] >> (7 - (i & 7)) & 1:
                out.append(None)
            else:
                value, pos = one(buf, pos)
                out.append(value)
        return out, pos

    return Codec("list", read, ("list", item.shape), least=4, parts=(item,))


def _nullable(snapshot: Snapshot, present: int = 0) -> Codec:
    item = codec(snapshot.nested[0])
    read = maybe(item, present=present, padding=snapshot.number)
    length = -1 if item.length < 0 or not snapshot.number else 1 + item.length
    return Codec("nullable", read, item.shape, length=length, parts=(item,))


def _two(snapshot: Snapshot, tags: tuple[int, int], names: tuple[str, str]) -> Codec:
    first, second = parts_of(snapshot)
    return Codec(snapshot.kind, either(tags, first, second), fields(names, [first, second]), parts=(first, second))


def _row(snapshot: Snapshot, kinds: int = 2) -> Codec:
    parts = parts_of(snapshot)
    shapes = members(_numbered(len(parts)), parts)
    kind = (("row_kind", "string"),) if kinds else ()
    return Codec("row", masked(parts, kinds), ("struct", (*kind, *shapes)), parts=tuple(parts))


def _enum(snapshot: Snapshot) -> Codec:
    names = snapshot.names

    def read(buf: bytes, pos: int) -> tuple[str, int]:
        i = _I32(buf, pos)[0]
        if not 0 <= i < len(names):
            raise ValueError(f"constant {i} of {len(names)}")
        return names[i], pos + 4

    return Codec("enum", read, "string", length=4, least=4)


def _scala_enum(snapshot: Snapshot) -> Codec:
    names = dict(zip(snapshot.numbers, snapshot.names, strict=True))

    def read(buf: bytes, pos: int) -> tuple[str, int]:
        number = _I32(buf, pos)[0]
        if number not in names:
            raise ValueError(f"constant {number} of {', '.join(map(str, names))}")
        return names[number], pos + 4

    return Codec("enum", read, "string", least=4)


def _time_window(snapshot: Snapshot) -> Codec:
    return struct_codec("timewindow", ("start", "end"), [fixed("long", "q", "int64"), fixed("long", "q", "int64")])


def _ttl(snapshot: Snapshot) -> Codec:
    return struct_codec("ttl", ("last_access", "value"), parts_of(snapshot))


def _timer(snapshot: Snapshot) -> Codec:
    return timer_codec(*parts_of(snapshot))


# -- table serializers ------------------------------------------------------------------------------------


def _framed(snapshot: Snapshot, read: Callable[[bytes], Any], value_shape: Shape) -> Codec:
    return Codec(snapshot.kind, framed(read), value_shape, least=4, snapshot=snapshot)


def _row_data(snapshot: Snapshot) -> Codec:
    kinds = snapshot.types
    whole = LogicalType("ROW", names=_numbered(len(kinds)), children=kinds)
    return _framed(snapshot, binary_row(kinds), shape(whole))


def _array_data(snapshot: Snapshot) -> Codec:
    return _framed(snapshot, binary_array(snapshot.types[0]), shape(LogicalType("ARRAY", children=snapshot.types)))


def _map_data(snapshot: Snapshot) -> Codec:
    kinds = snapshot.types
    return _framed(snapshot, binary_map(kinds[0], kinds[1]), shape(LogicalType("MAP", children=kinds)))


def _blob(name: str) -> Read:
    def read(buf: bytes, pos: int) -> tuple[Any, int]:
        data, pos = frame(buf, pos)
        return Opaque(name, len(data), data), pos

    return read


def _binary_row(snapshot: Snapshot) -> Codec:
    return Codec("binaryrow", _blob(f"BinaryRowData of {snapshot.number} fields"), "opaque", least=4)


def _raw_value(snapshot: Snapshot) -> Codec:
    return Codec("rawvalue", _blob(_class_name(snapshot.nested[0])), "opaque", least=4)


def _decimal(snapshot: Snapshot) -> Codec:
    read = decimal_data(snapshot.number, snapshot.number2)
    return Codec("decimaldata", read, shape(LogicalType("DECIMAL", True, snapshot.number, snapshot.number2)), least=4)


def _timestamp(snapshot: Snapshot) -> Codec:
    kind = LogicalType("TIMESTAMP", True, snapshot.number)
    length = 8 if snapshot.number <= 3 else 12
    return Codec("timestampdata", timestamp_data(snapshot.number), shape(kind), length=length, least=length)


def _window_key(snapshot: Snapshot) -> Codec:
    return struct_codec("windowkey", ("window", "key"), [fixed("long", "q", "int64"), codec(snapshot.nested[0])])


def _chars(snapshot: Snapshot) -> Codec:
    def read(buf: bytes, pos: int) -> tuple[str, int]:
        n = _I32(buf, pos)[0]
        if not 0 <= 2 * n <= len(buf) - pos - 4:
            raise IndexError(f"{n} characters")
        end = pos + 4 + 2 * n
        return buf[pos + 4 : end].decode("utf-16-be", "surrogatepass"), end

    return Codec("chars", read, "string", least=4)


def _strings(snapshot: Snapshot) -> Codec:
    return Codec("strings", read_list(Codec("", read_string, "string")), ("list", "string"), least=4)


def _same(snapshot: Snapshot) -> Codec:
    return codec(snapshot.nested[0])


_KINDS: Final[dict[str, Callable[[Snapshot], Codec]]] = {
    "tuple": _tuple,
    "sequence": _tuple,
    "list": _list,
    "map": _map,
    "nullmap": _null_map,
    "set": lambda snapshot: _of_nullable(snapshot, 0, "set"),
    "array": lambda snapshot: _of_nullable(snapshot, 1, "array"),
    "traversable": lambda snapshot: _of_nullable(snapshot, 1, "array"),
    "try": lambda snapshot: _two(snapshot, (1, 0), ("success", "failure")),
    "scalaenum": _scala_enum,
    "linkedlist": _linked_list,
    "nullable": _nullable,
    "option": lambda snapshot: _nullable(snapshot, present=1),
    "either": lambda snapshot: _two(snapshot, (1, 0), ("left", "right")),
    "union": lambda snapshot: _two(snapshot, (1, 2), ("one", "two")),
    "row": lambda snapshot: _row(snapshot, 2 if snapshot.number else 0),
    "maskedrow": _row,
    "enum": _enum,
    "pojo": lambda snapshot: pojo(snapshot, codec),
    "kryo": kryo,
    "avro": avro,
    "ttl": _ttl,
    "timer": _timer,
    "timewindow": _time_window,
    "same": _same,
    "rowdata": _row_data,
    "arraydata": _array_data,
    "mapdata": _map_data,
    "binaryrow": _binary_row,
    "rawvalue": _raw_value,
    "decimaldata": _decimal,
    "timestampdata": _timestamp,
    "windowkey": _window_key,
    "chars": _chars,
    "strings": _strings,
}
