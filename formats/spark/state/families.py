"""How the keys and values of one column family lie in a state file, and where Spark's hash puts a key.

HDFS-backed files hold bare UnsafeRows. RocksDB puts, in front of a key: 2 bytes with the column family's id
(little-endian; only where a store has column families); then either the row behind a version byte 0, or, where keys
are scanned by prefix or range, the size of the row of the leading columns (4 bytes), that row and the row of the
others, each behind a version byte. Columns of a range scan are big-endian texts behind a byte for null (2), sign - (0)
or + (1). Joins of format 4 store the time of a key on its own, before or behind its row: 8 big-endian bytes, the sign
turned round. A value is its row behind a version byte; of a list, rows one after the other, each behind its size.
With row checksums, 4 bytes of CRC32C of key and value stand before each value, and of the key before each deleted key;
RocksDB puts the size of the value (4 bytes) behind it, for each item of a list. Spark: `RocksDBStateEncoder`,
`KeyValueChecksumEncoder`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from formats.codec.crc32c import crc32c, crc32cs
from formats.errors import ChecksumMismatch, Damaged
from formats.spark.state import murmur3
from formats.spark.state.avro_rows import FAULTY, SCHEMA, scanned_row, unsafe_row
from formats.spark.state.records import Records
from formats.spark.state.rules import Coding, Rule, composite
from formats.spark.state.types import Field, Type, struct
from formats.spark.state.unsafe_places import Faults, Values
from formats.spark.state.unsafe_row import Rows

if TYPE_CHECKING:
    import pyarrow as pa

VERSION_BYTE = 0
DELIMITER = 0x2C


def without_checksums(records: Records, rocks: bool, path: str) -> Records:
    """The records with their row checksums checked and taken off; Damaged where one does not hold."""
    keys: list[bytes] = []
    values: list[bytes | None] = []
    sums: list[int] = []
    summed: list[bytes] = []
    for i, (key, value) in enumerate(zip(records.keys, records.values, strict=True)):
        if value is None:
            _enough(key, 4, i, path)
            sums.append(int.from_bytes(key[:4], "little"))
            key = key[4:]
            summed.append(key)
        elif not rocks:
            _enough(value, 4, i, path)
            sums.append(int.from_bytes(value[:4], "little"))
            value = value[4:]
            summed.append(key + value)
        else:
            parts = []
            at = 0
            while at < len(value):
                _enough(value, at + 8, i, path)
                size = int.from_bytes(value[at + 4 : at + 8], "little")
                _enough(value, at + 8 + size, i, path)
                sums.append(int.from_bytes(value[at : at + 4], "little"))
                parts.append(value[at + 8 : at + 8 + size])
                summed.append(key + parts[-1])
                at = _next_item(key, value, at + 8 + size)
            value = b",".join(parts)
        keys.append(key)
        values.append(value)
    # All sums at once, at the end: one by one they would take most of the time.
    for got, written in zip(crc32cs(summed), sums, strict=True):
        if got != written:
            raise ChecksumMismatch(f"a row has CRC32C {got:08x}, {written:08x} was written with it", path=path)
    return records._replace(keys=keys, values=values)


def _next_item(key: bytes, value: bytes, at: int) -> int:
    """Where a list with checksums goes on: behind a delimiter, or, from version 2 of Spark's merge operator on, at
    once. A checksum may begin with the delimiter's byte."""
    if value[at : at + 1] != b",":
        return at
    size = int.from_bytes(value[at + 4 : at + 8], "little")
    item = value[at + 8 : at + 8 + size]
    at_once = len(item) == size and crc32c(key + item) == int.from_bytes(value[at : at + 4], "little")
    return at if at_once else at + 1


def _enough(data: bytes, size: int, record: int, path: str) -> None:
    if len(data) < size:
        raise Damaged(f"record {record} has no room for its checksum", path=path)


def list_items(value: bytes) -> list[bytes] | None:
    """The values of a list, each behind its version byte; None if the bytes are no list."""
    out = []
    at = 0
    while at < len(value):
        size = int.from_bytes(value[at : at + 4], "little")
        if at + 4 + size > len(value) or size < 1:
            return None
        out.append(value[at + 4 : at + 4 + size])
        at += 4 + size
        if at < len(value) and value[at] == DELIMITER:
            at += 1
    return out


class Keys:
    """Keys of one column family, split into columns in the order of the schema."""

    def __init__(self, keys: list[bytes], coding: Coding) -> None:
        schema = coding.schema
        self.coding = coding
        self.faults = Faults(len(keys))
        fields = schema.key.fields
        skip = 0 if coding.family is None else 2
        if coding.avro is not None:
            keys = [_key_of_avro(key, skip, coding) for key in keys]
        if not coding.rocks:
            rows = Rows(keys, schema.key)
            self._columns = [(rows, column) for column in rows.columns]
        elif schema.time is not None:
            self._timed(keys, skip, schema.time == "front")
        elif schema.ordered:
            self._split(keys, skip, schema.ordered)
        elif 0 < schema.prefix < len(fields):
            self._split(keys, skip, tuple(range(schema.prefix)))
        else:
            keys = self._behind_version(keys, skip)
            rows = Rows(keys, schema.key)
            self._columns = [(rows, column) for column in rows.columns]

    def _behind_version(self, keys: list[bytes], skip: int) -> list[bytes]:
        wrong = np.array([len(key) <= skip or key[skip] != VERSION_BYTE for key in keys], np.bool_)
        self.faults.mark(np.arange(len(keys)), wrong, "its key does not begin with the version byte 0")
        return [key[skip + 1 :] for key in keys]

    def _split(self, keys: list[bytes], skip: int, front: tuple[int, ...]) -> None:
        """Keys of two rows: the columns in front, then the others."""
        fields = self.coding.schema.key.fields
        heads, tails = [], []
        rest = [i for i in range(len(fields)) if i not in front]
        wrong = np.zeros(len(keys), np.bool_)
        for n, key in enumerate(keys):
            size = int.from_bytes(key[skip : skip + 4], "little")
            head, tail = key[skip + 4 : skip + 4 + size], key[skip + 4 + size :]
            wrong[n] = len(head) < size or head[:1] != b"\0" or (tail[:1] != b"\0" if rest else tail != b"")
            heads.append(head[1:])
            tails.append(tail[1:])
        self.faults.mark(np.arange(len(keys)), wrong, "its key is not two rows behind a size")
        first = [fields[i] for i in front]
        if self.coding.schema.ordered:
            texts = struct(*(Field(field.name, Type("binary")) for field in first))
            head_rows = self._ordered(Rows(heads, texts), first)
        else:
            head_rows = Rows(heads, struct(*first))
        columns: dict[int, tuple[Rows, Values]] = {
            i: (head_rows, column) for i, column in zip(front, head_rows.columns, strict=True)
        }
        if rest:
            tail_rows = Rows(tails, struct(*(fields[i] for i in rest)))
            columns.update({i: (tail_rows, c) for i, c in zip(rest, tail_rows.columns, strict=True)})
        self._columns = [columns[i] for i in range(len(fields))]

    def _timed(self, keys: list[bytes], skip: int, front: bool) -> None:
        """Keys of a row and a time."""
        fields = self.coding.schema.key.fields
        wrong = np.array([len(key) < skip + 9 for key in keys], np.bool_)
        self.faults.mark(np.arange(len(keys)), wrong, "its key has no room for a time")
        if front:
            times = [key[skip : skip + 8] for key in keys]
            rows = [key[:skip] + key[skip + 8 :] for key in keys]
        else:
            times = [key[-8:] for key in keys]
            rows = [key[:-8] for key in keys]
        keyed = Rows(self._behind_version(rows, skip), struct(*fields[:-1]))
        raw = np.frombuffer(b"".join(time.ljust(8, b"\0") for time in times), ">u8").astype(np.uint64)
        # Made a row of one column, so that the time is decoded and hashed as any other: its bitmap, then the slot.
        words = np.zeros((len(keys), 2), np.uint64)
        words[:, 1] = raw ^ np.uint64(1 << 63)
        data = words.tobytes()
        stamped = Rows([data[16 * n : 16 * n + 16] for n in range(len(keys))], struct(fields[-1]))
        self._columns = [*((keyed, column) for column in keyed.columns), (stamped, stamped.columns[0])]

    def _ordered(self, texts: Rows, fields: list[Field]) -> Rows:
        """Rows of numbers from the texts whose bytes sort as the numbers do."""
        count = len(texts.faults.bad)
        bitmap = (len(fields) + 63) // 64
        words = np.zeros((count, bitmap + len(fields)), np.int64)
        for i, (field, column) in enumerate(zip(fields, texts.columns, strict=True)):
            width = field.type.width or 0
            wrong = column.null | (column.size != width + 1)
            self.faults.mark(
                np.arange(count), wrong, f"key column {field.name} is not written as a range scan needs it"
            )
            if wrong.any() or not count:
                continue
            raw = texts.data[column.start[:, None] + np.arange(width + 1)]
            mark = raw[:, 0]
            self.faults.mark(np.arange(count), mark > 2, f"key column {field.name} has neither sign nor null")
            number = np.zeros((count, 8), np.uint8)
            # Big-endian behind the mark, so backwards up to it.
            number[:, :width] = raw[:, :0:-1]
            if field.type.kind in ("float", "double"):
                # Spark turns round the bits of negative floats, without which bytes would sort them backwards.
                number[mark == 0, :width] ^= 0xFF
            number[mark == 2] = 0
            words[:, bitmap + i] = number.view(np.int64)[:, 0]
            words[:, i // 64] |= np.where(mark == 2, np.int64(1) << np.int64(i % 64), 0)
        for row, why in texts.faults.why.items():
            self.faults.bad[row] = True
            self.faults.why.setdefault(row, why)
        raw_rows = words.tobytes()
        size = words.shape[1] * 8
        return Rows([raw_rows[n * size : (n + 1) * size] for n in range(count)], struct(*fields))

    def arrays(self) -> list[tuple[Field, pa.Array]]:
        """The columns; of keys that are a key and a user's key, the columns of both. See `faults` first."""
        out: list[tuple[Field, pa.Array]] = []
        flat = composite(self.coding.schema.key)
        for field, (rows, column) in zip(self.coding.schema.key.fields, self._columns, strict=True):
            inside = rows.inner(column) if flat else None
            if inside is None:
                out.append((field, rows._arrow(column)))
            else:
                out += [(f, rows._arrow(c)) for f, c in zip(field.type.fields, inside, strict=True)]
        self._collect()
        return out

    def _collect(self) -> None:
        for rows, _ in self._columns:
            for row, why in rows.faults.why.items():
                self.faults.bad[row] = True
                self.faults.why.setdefault(row, why)

    def hashes(self, rule: Rule) -> murmur3.Words | None:
        """Spark's hash of what the rule takes of the keys; None where that cannot be said."""
        h = murmur3.seeds(len(self.faults.bad))
        if rule.inner is None:
            columns = self._columns[: len(self._columns) - rule.drop_last]
        else:
            rows, column = self._columns[rule.inner]
            inside = rows.inner(column)
            if inside is not None and rule.twice:
                inside = rows.inner(inside[0])
            if inside is None:
                return None
            columns = [(rows, values) for values in inside]
        for rows, values in columns:
            done = rows.hashes([values], h)
            if done is None:
                return None
            h = done
        return h


def _key_of_avro(key: bytes, skip: int, coding: Coding) -> bytes:
    """Return a key with UnsafeRows in place of the Avro records in it."""
    fields, ordered = coding.schema.key.fields, coding.schema.ordered
    front = ordered or tuple(range(coding.schema.prefix))
    rest = [field for i, field in enumerate(fields) if i not in front]
    if not front or not (rest or ordered):
        return key[: skip + 1] + unsafe_row(key[skip + 1 + SCHEMA :], fields)
    end = skip + 4 + int.from_bytes(key[skip : skip + 4], "little")
    record = key[skip + 5 : end]
    head = scanned_row(record, len(front)) if ordered else unsafe_row(record, [fields[i] for i in front])
    head = key[skip + 4 : skip + 5] + head
    tail = key[end : end + 1] + unsafe_row(key[end + 1 + SCHEMA :], rest) if rest else key[end:]
    return key[:skip] + len(head).to_bytes(4, "little") + head + tail


def value_rows(values: list[bytes], coding: Coding) -> Rows:
    """Values of one column family, lists already taken apart."""
    if coding.avro is not None:
        values = [_value_of_avro(value, coding.avro, coding.schema.value) for value in values]
    return Rows(values, coding.schema.value, 1 if coding.rocks else 0)


def _value_of_avro(value: bytes, types: Mapping[int, Type], wanted: Type) -> bytes:
    """Return a value with an UnsafeRow of the wanted type in place of the Avro record in it."""
    written = types.get(int.from_bytes(value[1 : 1 + SCHEMA], "little"))
    record = value[1 + SCHEMA :]
    return value[:1] + (FAULTY if written is None else unsafe_row(record, written.fields, wanted.fields))
