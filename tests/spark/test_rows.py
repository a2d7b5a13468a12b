"""UnsafeRows, Spark's hashes and the checksums, against encoders and reference values."""

from __future__ import annotations

import datetime
import decimal
import struct as binary
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from xxhash import xxh3_64_intdigest, xxh32_intdigest

from formats.codec.crc32c import crc32c, crc32cs
from formats.spark.state import murmur3, unsafe_row
from formats.spark.state.families import Keys, list_items
from formats.spark.state.rules import Coding, Rule
from formats.spark.state.schema import StateSchema
from formats.spark.state.types import Field, Type, arrow_type, struct, struct_of
from formats.spark.state.unsafe_row import Rows
from tests.tiers import examples

WIDE = Type("decimal", precision=38, scale=2)
NARROW = Type("decimal", precision=12, scale=3)
LEAVES: dict[str, tuple[Type, st.SearchStrategy[Any]]] = {
    "boolean": (Type("boolean"), st.booleans()),
    "byte": (Type("byte"), st.integers(-128, 127)),
    "short": (Type("short"), st.integers(-(2**15), 2**15 - 1)),
    "integer": (Type("integer"), st.integers(-(2**31), 2**31 - 1)),
    "long": (Type("long"), st.integers(-(2**63), 2**63 - 1)),
    "float": (Type("float"), st.floats(width=32, allow_nan=False)),
    "double": (Type("double"), st.floats(allow_nan=False)),
    "string": (Type("string"), st.text(max_size=20)),
    "binary": (Type("binary"), st.binary(max_size=20)),
    "date": (Type("date"), st.dates()),
    "narrow": (NARROW, st.decimals(-(10**8), 10**8, places=3)),
    "wide": (WIDE, st.decimals(-(10**30), 10**30, places=2)),
    "timestamp_ntz": (Type("timestamp_ntz"), st.datetimes()),
    "day-time": (Type("day-time"), st.timedeltas(datetime.timedelta(-9999), datetime.timedelta(9999))),
    "void": (Type("void"), st.none()),
}

AVERAGES = st.sampled_from([0, unsafe_row.LONG])
"""Bytes of a value from which on values are copied one by one: all of them, too."""


def types() -> st.SearchStrategy[Type]:
    leaf = st.sampled_from([of for of, _ in LEAVES.values()])
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            inner.map(lambda of: Type("array", (Field("element", of),))),
            st.lists(inner, max_size=3).map(lambda of: struct(*(Field(f"f{i}", t) for i, t in enumerate(of)))),
            inner.map(lambda of: Type("map", (Field("key", Type("long")), Field("value", of)))),
        ),
        max_leaves=5,
    )


def values(of: Type) -> st.SearchStrategy[Any]:
    if of.kind == "array":
        return st.one_of(st.none(), st.lists(values(of.fields[0].type), max_size=4))
    if of.kind == "struct":
        return st.one_of(st.none(), st.fixed_dictionaries({f.name: values(f.type) for f in of.fields}))
    if of.kind == "map":
        keys = st.integers(-(2**63), 2**63 - 1)
        return st.one_of(st.none(), st.dictionaries(keys, values(of.fields[1].type), max_size=4))
    return st.one_of(st.none(), next(strategy for leaf, strategy in LEAVES.values() if leaf == of))


def pad(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


def encode(fields: list[tuple[Type, Any]]) -> bytes:
    """An UnsafeRow, as Spark's writer lays it out."""
    bitmap = [0] * ((len(fields) + 63) // 64)
    fixed = 8 * len(bitmap) + 8 * len(fields)
    slots, area = b"", b""
    for i, (of, value) in enumerate(fields):
        if value is None:
            bitmap[i // 64] |= 1 << (i % 64)
            slots += bytes(8)
        elif of.width is not None:
            slots += pad(inline(of, value))
        else:
            body = pointed(of, value)
            slots += binary.pack("<II", len(body), fixed + len(area))
            area += pad(body)
    return b"".join(binary.pack("<Q", word) for word in bitmap) + slots + area


def inline(of: Type, value: Any) -> bytes:
    kind = of.kind
    if kind == "date":
        value = (value - datetime.date(1970, 1, 1)).days
    elif kind == "timestamp_ntz":
        value = (value - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)
    elif kind == "day-time":
        value = value // datetime.timedelta(microseconds=1)
    elif kind == "decimal":
        value = int(value.scaleb(of.scale, decimal.Context(60)))
    codes = {"boolean": "?", "byte": "b", "short": "h", "integer": "i", "date": "i", "float": "f", "double": "d"}
    return binary.pack("<" + codes.get(kind, "q"), value)


def pointed(of: Type, value: Any) -> bytes:
    if of.kind == "string":
        return str(value).encode()
    if of.kind == "binary":
        return bytes(value)
    if of.kind == "decimal":
        unscaled = int(value.scaleb(of.scale, decimal.Context(60)))
        return unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)
    if of.kind == "struct":
        return encode([(field.type, value[field.name]) for field in of.fields])
    if of.kind == "array":
        return array(of.fields[0].type, value)
    keys, items = array(of.fields[0].type, list(value)), array(of.fields[1].type, list(value.values()))
    return binary.pack("<q", len(keys)) + keys + items


def array(of: Type, items: list[Any]) -> bytes:
    bitmap = [0] * ((len(items) + 63) // 64)
    width = of.width or 8
    head = 8 + 8 * len(bitmap) + len(pad(bytes(width * len(items))))
    slots, area = b"", b""
    for i, item in enumerate(items):
        if item is None:
            bitmap[i // 64] |= 1 << (i % 64)
            slots += bytes(width)
        elif of.width is not None:
            slots += inline(of, item)
        else:
            body = pointed(of, item)
            slots += binary.pack("<II", len(body), head + len(area))
            area += pad(body)
    return binary.pack("<q", len(items)) + b"".join(binary.pack("<Q", w) for w in bitmap) + pad(slots) + area


@settings(max_examples=examples(150))
@given(st.data())
def test_rows_of_all_types_come_out_as_they_went_in(data: st.DataObject) -> None:
    columns = data.draw(st.lists(types(), min_size=1, max_size=4))
    table = data.draw(st.lists(st.tuples(*(values(of) for of in columns)), max_size=5))
    rows = Rows(
        [encode(list(zip(columns, row, strict=True))) for row in table],
        struct(*(Field(f"c{i}", of) for i, of in enumerate(columns))),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unsafe_row, "LONG", data.draw(AVERAGES))
        arrays = rows.arrays()
    assert rows.faults.first is None
    for i, of in enumerate(columns):
        arrays[i].validate(full=True)
        want = pa.array([plain(row[i]) for row in table], arrow_type(of))
        assert arrays[i].equals(want), (of, arrays[i], want)


def plain(value: Any) -> Any:
    """What pyarrow makes arrays of: maps as pairs."""
    if isinstance(value, dict) and not all(isinstance(key, str) for key in value):
        return [(key, plain(item)) for key, item in value.items()]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


@settings(max_examples=examples(300))
@given(st.data())
def test_no_bytes_lead_a_row_outside(data: st.DataObject) -> None:
    """Whatever the bytes, columns come out or a fault is named; nothing is followed beyond the row."""
    columns = data.draw(st.lists(types(), min_size=1, max_size=3))
    row = encode([(of, data.draw(values(of))) for of in columns])
    broken = bytearray(row)
    for _ in range(data.draw(st.integers(1, 4))):
        broken[data.draw(st.integers(0, len(row) - 1))] = data.draw(st.integers(0, 255))
    kept = bytes(broken[: data.draw(st.integers(0, len(row)))]) if data.draw(st.booleans()) else bytes(broken)
    fields = struct(*(Field(f"c{i}", of) for i, of in enumerate(columns)))
    rows = Rows([row, kept, row], fields)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unsafe_row, "LONG", data.draw(AVERAGES))
        rows.arrays()
    rows.hashes()
    assert set(rows.faults.why) <= {1}


REFERENCE: list[tuple[list[tuple[Type, Any]], int]] = [
    ([(Type("integer"), 1)], -559580957),
    ([(Type("long"), 1)], -1712319331),
    ([(Type("string"), None)], 42),
    ([(Type("string"), "a"), (Type("long"), 1)], 1838122449),
    ([(Type("double"), 1.5)], 1290763749),
    ([(Type("boolean"), True)], -559580957),
    ([(Type("date"), datetime.date(2026, 1, 1))], -80271844),
    ([(Type("timestamp_ntz"), datetime.datetime(2026, 1, 1))], -192643641),
    ([(Type("binary"), b"\1\2")], 1964783052),
    *(
        ([(Type("string"), word)], value)
        for word, value in {
            "barrier": 1202561600,
            "epoch": -841390786,
            "snapshot": -378960480,
            "stream": 65827218,
            "flink": -1901978243,
            "spark": 2101843105,
            "channel": 320169327,
            "token": -1856653472,
            "state": 512185349,
            "log": 727279631,
        }.items()
    ),
]


@pytest.mark.parametrize(("row", "value"), REFERENCE, ids=str)
def test_hashes_are_sparks(row: list[tuple[Type, Any]], value: int) -> None:
    rows = Rows([encode(row)] * 3, struct(*(Field("c", of) for of, _ in row)))
    hashes = rows.hashes()
    assert hashes is not None
    assert hashes.view(np.int32).tolist() == [value] * 3


def test_texts_of_many_lengths_hash_alike_alone_and_together() -> None:
    texts = ["x" * n + "é" * (n % 3) for n in range(40)]
    of = struct(Field("c", Type("string")))
    together = Rows([encode([(Type("string"), text)]) for text in texts], of).hashes()
    alone = [Rows([encode([(Type("string"), text)])], of).hashes() for text in texts]
    assert together is not None
    assert together.tolist() == [int(one[0]) for one in alone if one is not None]


def test_partitions_are_never_negative() -> None:
    hashes = np.array([-1, -7, 5], np.int32).view(np.uint32)
    assert murmur3.partition_of(hashes, 4).tolist() == [3, 1, 1]


def test_checksums_have_their_reference_values() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert xxh32_intdigest(b"", 0) == 0x02CC5D05
    assert xxh32_intdigest(b"Nobody inspects the spammish repetition", 0) == 0xE2293B2F
    assert xxh3_64_intdigest(b"") == 0x2D06800538D394C2


XXH3 = {
    1: 0xC44BDFF4074EECDB,
    3: 0x5F4299FC161C9CBB,
    5: 0xB075753A84CA0FBE,
    8: 0x3A1C2D7C85AF88F8,
    11: 0x1CF396AA4DE6198D,
    16: 0x8355E3A6F61770DB,
    30: 0x6186A5FC585CD212,
    64: 0x6187EB9089B0ED55,
    100: 0x004E4F921A64BD1C,
    128: 0x85C6174C7FF4C46B,
    129: 0xEC7642B431BA3E5A,
    240: 0x375A384D957FE865,
    241: 0x02E8CD95421C6D02,
    1024: 0xA870F92984398D22,
    1025: 0x78C86E91EE939852,
    4099: 0xD1A5C68A74A19CB8,
}


@pytest.mark.parametrize("length", XXH3)
def test_xxh3_has_its_reference_values_at_every_length_class(length: int) -> None:
    assert xxh3_64_intdigest((bytes(range(256)) * 20)[:length]) == XXH3[length]


@settings(max_examples=examples(60))
@given(st.binary(max_size=40_000), st.integers(1, 30))
def test_checksums_side_by_side_are_those_one_by_one(data: bytes, parts: int) -> None:
    size = len(data) // parts
    pieces = [data[i * size : (i + 1) * size] for i in range(parts)] * 2
    assert crc32cs(pieces) == [crc32c(piece) for piece in pieces]
    assert crc32c(data[100:], crc32c(data[:100])) == crc32c(data)


def test_keys_of_a_range_scan_are_numbers_again() -> None:
    """Sign, then big-endian; the bits of negative floats turned over; null last."""
    key = struct(Field("name", Type("string")), Field("at", Type("long")), Field("x", Type("double")))
    schema = StateSchema("timers", key, struct(), "", "", ordered=(1, 2))
    stored = []
    for at, x in ((-5, 1.5), (7, -2.25), (None, 0.0)):
        first = b"\2" + bytes(8) if at is None else bytes([at >= 0]) + binary.pack(">q", at)
        bits = binary.pack(">d", x)
        second = b"\1" + bits if x >= 0 else b"\0" + bytes(byte ^ 0xFF for byte in bits)
        front = encode([(Type("binary"), first), (Type("binary"), second)])
        back = encode([(Type("string"), "k")])
        stored.append(b"\4\0" + binary.pack("<i", len(front) + 1) + b"\0" + front + b"\0" + back)
    keys = Keys(stored, Coding(schema, True, 4))
    columns = {field.name: array.to_pylist() for field, array in keys.arrays()}
    assert columns == {"name": ["k"] * 3, "at": [-5, 7, None], "x": [1.5, -2.25, 0.0]}
    assert keys.faults.first is None
    assert keys.hashes(Rule(drop_last=2)) is not None


def test_items_of_a_list_are_found_with_and_without_delimiter() -> None:
    item = binary.pack("<i", 3) + b"\0ab"
    assert list_items(item + item + b"," + item) == [b"\0ab"] * 3
    assert list_items(item[:-1]) is None


def test_types_are_read_from_sparks_json() -> None:
    text = (
        '{"type":"struct","fields":['
        '{"name":"d","type":"decimal(20,3)"},{"name":"c","type":"string collate UTF8_LCASE"},'
        '{"name":"y","type":"interval year to month"},{"name":"t","type":"interval day to second"},'
        '{"name":"a","type":{"type":"array","elementType":"timestamp_ntz","containsNull":true}},'
        '{"name":"u","type":{"type":"udt","class":"X","sqlType":"long"}}]}'
    )
    kinds = [field.type.kind for field in struct_of(text, "x").fields]
    assert kinds == ["decimal", "string", "year-month", "day-time", "array", "long"]
