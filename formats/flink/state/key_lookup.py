"""Which key groups hold the keys that a condition names, so that no others are read.

The inverse of `keys`: from the text of a key's columns to its value, its `hashCode` and its group. SQL's keys hash by
the bytes of their binary row, which is written here for the types whose form is plain. None wherever that is not
certain: then all is read, and the answer is the same.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from formats.errors import FormatError
from formats.flink.state.columns import arrow_type
from formats.flink.state.keys import key_group, value_hash, words_hash
from formats.flink.types.logical_types import LogicalType
from formats.flink.types.values import Codec
from formats.query.predicate import literal

_INEXACT: Final = frozenset({"double", "float"})
"""Kinds of which two values are equal and hash apart: 0.0 and -0.0."""


def groups_of(keys: Sequence[Mapping[str, str]], codec: Codec, max_parallelism: int) -> list[int] | None:
    """The key groups of these keys, ascending. keys: text by column name (`key`, or `key.f0`, ...)."""
    groups = set()
    for key in keys:
        code = _hash(key, codec)
        if code is None:
            return None
        groups.add(key_group(code, max_parallelism))
    return sorted(groups)


def _hash(key: Mapping[str, str], codec: Codec) -> int | None:
    if isinstance(codec.shape, str) or codec.shape[0] != "struct":
        members = [("key", codec.shape)]
    else:
        members = [(f"key.{name}", shape) for name, shape in codec.shape[1] if name != "row_kind"]
    # a condition on some of the columns alone names no key, and equal doubles may hash apart
    if set(key) != {name for name, _ in members} or any(part.kind in _INEXACT for part in (codec, *codec.parts)):
        return None
    try:
        values = [literal(key[name], arrow_type(shape), name).as_py() for name, shape in members]
    except FormatError:
        return None
    if codec.kind == "rowdata" and codec.snapshot is not None:
        row = binary_row_of(codec.snapshot.types, values)
        return None if row is None else words_hash(row)
    hash_value = value_hash(codec)
    if hash_value is None:
        return None
    if members[0][0] == "key":
        return hash_value(values[0])
    with_kind = len(codec.shape[1]) > len(members)
    return hash_value(("+I", *values) if with_kind else tuple(values))


_FIXED: Final = {
    "BOOLEAN": "<?7x",
    "TINYINT": "<b7x",
    "SMALLINT": "<h6x",
    "INTEGER": "<i4x",
    "BIGINT": "<q",
}
_TEXT: Final[dict[str, Callable[[Any], bytes]]] = {
    "CHAR": str.encode,
    "VARCHAR": str.encode,
    "BINARY": bytes,
    "VARBINARY": bytes,
}


def binary_row_of(kinds: Sequence[LogicalType], values: Sequence[Any]) -> bytes | None:
    """The bytes of an inserted `BinaryRowData`, as `BinaryRowWriter` makes them; None for types not known here. values:
    none of them null."""
    header = (len(kinds) + 71) // 64 * 8
    fixed = bytearray()
    behind = bytearray()
    start = header + 8 * len(kinds)
    for kind, value in zip(kinds, values, strict=True):
        if kind.root in _FIXED:
            fixed += struct.pack(_FIXED[kind.root], value)
        elif kind.root in _TEXT:
            data = _TEXT[kind.root](value)
            if len(data) <= 7:
                fixed += data.ljust(7, b"\0") + bytes([0x80 | len(data)])
            else:
                fixed += struct.pack("<q", start + len(behind) << 32 | len(data))
                behind += data.ljust((len(data) + 7) // 8 * 8, b"\0")
        else:
            return None
    return bytes(header) + bytes(fixed + behind)
