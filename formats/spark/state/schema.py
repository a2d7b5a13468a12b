"""State schema files: the columns of the keys and values of each store, or of each column family of one.

Version 1: two JSON schemas; version 2: each in chunks of up to 65,535 bytes; version 3 (`transformWithState`, newer
joins): one entry a column family, with the ids of its schemas, how its keys are encoded, and the user's own key.
All numbers are big-endian; a text is its length in 2 bytes, then UTF-8 (Java's `writeUTF`).
"""

from __future__ import annotations

from dataclasses import dataclass

from formats.errors import Damaged, UnsupportedVersion
from formats.spark import layout
from formats.spark.ids import StorePartition
from formats.spark.logs import log as logs
from formats.spark.state.types import Type, struct_of

NEWEST = 3
_TIMES = {"TimestampAsPrefixKeyStateEncoderSpec": "front", "TimestampAsPostfixKeyStateEncoderSpec": "behind"}
_ENCODERS = {"NoPrefixKeyStateEncoderSpec", "PrefixKeyScanStateEncoderSpec", "RangeKeyScanStateEncoderSpec", *_TIMES}


@dataclass(frozen=True, slots=True)
class StateSchema:
    """Columns of one column family. name: `default` where a store has only one.

    name: of the column family, or `default` where a store has but one.
    key: the struct of its keys.
    value: the struct of its values.
    key_json: the text that `key` was parsed from.
    value_json: the text that `value` was parsed from.
    prefix: how many key columns RocksDB stores as a row of their own, in front.
    ordered: ordinals of key columns that are stored in front so that bytes sort as values do.
    decodable: whether the encoding of its keys is one that this program reads.
    time: where the last column, a time, is stored on its own: `front` or `behind`.
    number: of the value's schema, which rows that are written as Avro begin with.
    """

    name: str
    key: Type
    value: Type
    key_json: str
    value_json: str
    prefix: int = 0
    ordered: tuple[int, ...] = ()
    decodable: bool = True
    time: str | None = None
    number: int = 0


class _Input:
    """Reads what Java's DataOutputStream wrote."""

    def __init__(self, data: bytes, path: str) -> None:
        self.data, self.path, self.at = data, path, 0

    def number(self, width: int) -> int:
        if self.at + width > len(self.data):
            raise Damaged("ends in the middle of a schema", path=self.path, hint="it was cut short")
        self.at += width
        return int.from_bytes(self.data[self.at - width : self.at], "big")

    def text(self) -> str:
        size = self.number(2)
        if self.at + size > len(self.data):
            raise Damaged("ends in the middle of a text", path=self.path, hint="it was cut short")
        self.at += size
        try:
            return self.data[self.at - size : self.at].decode("utf-8")
        except UnicodeDecodeError:
            raise Damaged("has a text that is not UTF-8", path=self.path) from None

    def chunks(self) -> str:
        count = self.number(4)
        if count > len(self.data):
            raise Damaged(f"has a schema of {count} chunks", path=self.path)
        return "".join(self.text() for _ in range(count))

    def end(self) -> None:
        if self.at != len(self.data):
            raise Damaged(f"has {len(self.data) - self.at} bytes behind its end", path=self.path)


def parse_schema(data: bytes, path: str, prefix: int | None = 0) -> tuple[StateSchema, ...]:
    """The bytes of a schema file; EmptyLog, Damaged, UnsupportedVersion.

    prefix: what the operator's metadata says; None where there is none, and the columns have to tell.
    """
    if not data:
        raise logs.EmptyLog("is empty", path=path)
    source = _Input(data, path)
    version = source.text()
    if version in ("v1", "v2"):
        read = source.text if version == "v1" else source.chunks
        key, value = read(), read()
        source.end()
        columns = struct_of(key, path)
        if prefix is None:
            prefix = len(columns.fields) - 1 if of_sessions(columns) else 0
        schema = StateSchema(layout.DEFAULT_STORE, columns, struct_of(value, path), key, value, prefix)
        return (_checked(schema, path),)
    if version != "v3":
        is_version = version[:1] == "v" and version[1:].isdigit()
        message = f"is of version {version[:20]!r}; this program reads up to v{NEWEST}"
        raise (UnsupportedVersion if is_version else Damaged)(message, path=path)
    count = source.number(4)
    if count > len(data):
        raise Damaged(f"has {count} column families", path=path)
    families = tuple(_family(source, path) for _ in range(count))
    source.end()
    return families


def of_sessions(key: Type) -> bool:
    """Whether a key is that of session windows: the query's columns, by which they are looked up, then their start."""
    return bool(key.fields) and key.fields[-1].name == "sessionStartTime"


def _family(source: _Input, path: str) -> StateSchema:
    name = source.text()
    source.number(2)
    key = source.chunks()
    number = source.number(2)
    value = source.chunks()
    encoder = logs.parse(source.chunks(), path)
    source.chunks()
    kind = encoder.get("keyStateEncoderType")
    prefix = logs.number(encoder, "numColsPrefixKey", path) or 0
    ordinals = encoder.get("orderingOrdinals") or []
    if not isinstance(ordinals, list) or not all(isinstance(i, int) and i >= 0 for i in ordinals):
        raise Damaged(f"column family {name}: its ordering ordinals are not numbers", path=path)
    ordered = tuple(ordinals)
    time = _TIMES.get(kind) if isinstance(kind, str) else None
    schema = StateSchema(
        name, struct_of(key, path), struct_of(value, path), key, value, prefix, ordered, kind in _ENCODERS, time, number
    )
    if time is not None and (not schema.key.fields or schema.key.fields[-1].type.width != 8):
        raise Damaged(f"column family {name}: the last column of its key is not a time", path=path)
    return _checked(schema, path)


def _checked(schema: StateSchema, path: str) -> StateSchema:
    columns = len(schema.key.fields)
    if not 0 <= schema.prefix <= columns or any(i >= columns for i in schema.ordered):
        raise Damaged(f"{schema.name}: its key has {columns} columns, fewer than are named as its prefix", path=path)
    return schema


def schema_path(operator: int, store: str) -> str:
    """Of versions 1 and 2: it lies in the first partition only."""
    return f"{layout.store_dir(StorePartition(operator, 0, store))}/_metadata/schema"


def schema_v3_root(operator: int) -> str:
    """The folder of an operator's schemas of version 3, with a folder for each store."""
    return f"{layout.operator_dir(operator)}/_stateSchema"


def schema_v3_dir(operator: int, store: str) -> str:
    """Of version 3: `<batch>_<uuid>` for each batch that changed it."""
    return f"{schema_v3_root(operator)}/{store}"
