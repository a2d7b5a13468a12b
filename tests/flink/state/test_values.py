"""Values as Flink's serializers write them: bytes that Flink 2.3.0 itself wrote, and what they stand for."""

from __future__ import annotations

import contextlib
import json
import lzma
import random
import struct
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import Damaged, FormatError
from formats.flink.bytes import Reader
from formats.flink.state.columns import Column, arrow_type, batch
from formats.flink.state.keys import hash_of, key_group
from formats.flink.types.codecs import codec
from formats.flink.types.composites import list_codec, map_codec
from formats.flink.types.logical_types import LogicalType
from formats.flink.types.python_types import named_types, read_type
from formats.flink.types.rows import binary_row, shape
from formats.flink.types.sequences import masked
from formats.flink.types.serializers import Snapshot, Unknown, read_versioned
from formats.flink.types.values import BROKEN, Codec, HiddenValue, Opaque, plain
from tests.support.flink.state_truth import compare
from tests.support.flink.truth import DATA

VECTORS = {
    vector["name"]: vector
    for vector in map(json.loads, lzma.decompress((DATA / "vectors.jsonl.xz").read_bytes()).splitlines())
}

NO_HASH = {"enum", "pojo", "pojoregistered", "pojosubclass"}
"""Keys of these types exist, and no one but their class knows their hash."""


def made(name: str) -> Codec:
    return codec(read_versioned(Reader(bytes.fromhex(VECTORS[name]["snapshot"]))))


def shown(found: Codec, value: Any) -> Any:
    """A value as a column of its codec shows it."""
    column = Column("value", found.shape, "values")
    return batch([column], {"values": [value]}, "a vector").to_pylist()[0]["value"]


@pytest.mark.parametrize("name", VECTORS)
def test_a_snapshot_that_flink_wrote_is_read_to_its_last_byte(name: str) -> None:
    reader = Reader(bytes.fromhex(VECTORS[name]["snapshot"]))
    read_versioned(reader)
    assert reader.left == 0


@pytest.mark.parametrize("name", VECTORS)
def test_values_that_flink_wrote_are_read_as_what_they_were(name: str) -> None:
    found = made(name)
    for value in VECTORS[name]["values"]:
        data = bytes.fromhex(value["hex"])
        read, end = found.read(data + b"what follows", 0)
        assert end == len(data)
        verdict = compare(shown(found, read), value["is"])
        assert verdict == ("opaque" if value["is"] == "opaque" else "equal"), (read, value["is"])


@pytest.mark.parametrize("name", VECTORS)
def test_the_length_of_a_type_is_what_flink_says(name: str) -> None:
    assert made(name).length == VECTORS[name]["length"]


@pytest.mark.parametrize("name", VECTORS)
def test_a_key_that_can_be_hashed_has_flinks_hash_and_key_group(name: str) -> None:
    found = made(name)
    hashed = hash_of(found)
    if name in NO_HASH:
        assert hashed is None
    for value in VECTORS[name]["values"]:
        if hashed is not None and value["hash"] is not None:
            data = bytes.fromhex(value["hex"])
            read, end = found.read(data, 0)
            assert hashed(data, 0, end, read) == value["hash"] & 0xFFFFFFFF
            assert key_group(hashed(data, 0, end, read), 128) == value["group"]


def test_the_usual_types_of_keys_can_be_hashed() -> None:
    for name in ("string", "long", "int", "short", "bigdec", "tuple3", "tuplenested", "row", "rowkey", "rowdatakey"):
        assert hash_of(made(name)) is not None, name


@pytest.mark.parametrize("name", VECTORS)
def test_a_value_cut_short_is_broken_and_never_another_value_of_all_its_bytes(name: str) -> None:
    found = made(name)
    for value in VECTORS[name]["values"]:
        data = bytes.fromhex(value["hex"])
        for length in range(len(data)):
            try:
                _, end = found.read(data[:length], 0)
            except BROKEN:
                continue
            assert end > length or found.least == 0, "a part was taken for the whole"


def flips(data: bytes, name: str, most: int = 150) -> Iterator[bytes]:
    """Copies with one bit turned, at `most` places that depend on the name alone."""
    dice = random.Random(name)
    for at in dice.sample(range(len(data)), min(len(data), most)):
        yield data[:at] + bytes([data[at] ^ (1 << dice.randrange(8))]) + data[at + 1 :]


@pytest.mark.parametrize("name", VECTORS)
def test_a_flipped_bit_gives_a_value_or_is_broken(name: str) -> None:
    found = made(name)
    for value in VECTORS[name]["values"]:
        for data in flips(bytes.fromhex(value["hex"]), name):
            with contextlib.suppress(HiddenValue, *BROKEN):
                found.read(data, 0)


@pytest.mark.parametrize("name", VECTORS)
def test_a_flipped_snapshot_is_read_or_refused(name: str) -> None:
    for data in flips(bytes.fromhex(VECTORS[name]["snapshot"]), name):
        with contextlib.suppress(FormatError, Unknown):
            codec(read_versioned(Reader(data)))


# -- round trips of encodings that are ours ---------------------------------------------------------------


def varint(n: int) -> bytes:
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def java_string(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    data = text.encode("utf-16-be", "surrogatepass")
    units = [data[i] << 8 | data[i + 1] for i in range(0, len(data), 2)]
    return varint(len(units) + 1) + b"".join(map(varint, units))


def kind(name: str) -> Codec:
    found = plain(name)
    assert found is not None
    return found


@given(st.none() | st.text(st.characters(exclude_categories=())))
def test_any_java_string_is_read_back(text: str | None) -> None:
    data = java_string(text)
    assert kind("string").read(data + b"x", 0) == (text, len(data))


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_any_list_of_longs_is_read_back(values: list[int]) -> None:
    data = struct.pack(f">i{len(values)}q", len(values), *values)
    assert list_codec(kind("long")).read(data, 0) == (values, len(data))


@given(st.dictionaries(st.text(), st.none() | st.integers(-(2**31), 2**31 - 1)))
def test_any_map_is_read_back(values: dict[str, int | None]) -> None:
    data = struct.pack(">i", len(values))
    for key, value in values.items():
        data += java_string(key) + (b"\1" if value is None else b"\0" + struct.pack(">i", value))
    assert map_codec(kind("string"), kind("int")).read(data, 0) == (list(values.items()), len(data))


@given(st.integers())
def test_any_big_integer_is_read_back(value: int) -> None:
    size = value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)
    data = struct.pack(">i", len(size) + 4) + size
    assert kind("bigint").read(data, 0) == (str(value), len(data))


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=20), st.integers(0, 3))
def test_any_row_is_read_back(values: list[int | None], row_kind: int) -> None:
    bits = [bool(row_kind & 1), bool(row_kind & 2), *(value is None for value in values)]
    bits += [False] * (-len(bits) % 8)
    mask = bytes(sum(bit << (7 - i) for i, bit in enumerate(bits[at : at + 8])) for at in range(0, len(bits), 8))
    data = mask + b"".join(struct.pack(">q", value) for value in values if value is not None)
    read = masked([kind("long")] * len(values), 2)
    assert read(data, 0) == ((("+I", "-U", "+U", "-D")[row_kind], *values), len(data))


def test_a_count_beyond_the_bytes_costs_nothing() -> None:
    for promised in (2**31 - 1, -1):
        with pytest.raises(ValueError, match="values in"):
            list_codec(kind("string")).read(struct.pack(">i", promised) + b"\1\1", 0)
    with pytest.raises(ValueError):
        list_codec(kind("nullvalue")).read(struct.pack(">i", 2**31 - 1), 0)


def test_half_a_surrogate_pair_is_shown_escaped() -> None:
    value, _ = kind("string").read(java_string("a\ud800b"), 0)
    assert shown(kind("string"), value) == "a\\ud800b"


def test_a_huge_big_integer_is_shown_in_full() -> None:
    value = 7**20000
    size = value.to_bytes(value.bit_length() // 8 + 1, "big")
    text, _ = kind("bigint").read(struct.pack(">i", len(size) + 4) + size, 0)
    assert len(text) == 16902
    assert int(text[-18:]) == value % 10**18


def test_serializers_nested_without_end_are_refused() -> None:
    name = b"org.apache.flink.api.common.typeutils.base.ListSerializerSnapshot"
    head = struct.pack(">H", len(name)) + name + struct.pack(">iiiiii", 3, 911108, 1, 1333245, 1, 1)
    with pytest.raises(Damaged, match="deep"):
        read_versioned(Reader(head * 2000))


# -- types that the user names ----------------------------------------------------------------------------

PYTHON = [
    ("long", "0000000000000320", 800),
    ("string", "00000005636166c3a9", "café"),
    ("int", "ffffffff", -1),
    ("double", "3fe0000000000000", 0.5),
    ("boolean", "01", True),
    ("bytes", "000000020102", b"\x01\x02"),
    ("decimal", "00000004312e3530", "1.50"),
    ("date", "00004d46", 19782),
    ("timestamp", "0000018df261f6fc", 1709168523004),
    ("instant", "000000000000000500000007", "1970-01-01T00:00:05.000000007Z"),
    ("tuple(long, string)", "00000000000000010000000178", (1, "x")),
    ("row(id: long, name: string, n: int)", "50000000000000000100000003", ("+U", 1, None, 3)),
    ("array(long)", "0000000301000000000000000100010000000000000003", [1, None, 3]),
    ("list<string>", "0000000200000001610000000162", ["a", "b"]),
    ("map(string, long)", "000000020000000161000000000000000001000000016201", [("a", 1), ("b", None)]),
    ("local_date", "000007e8021d", "2024-02-29"),
    ("local_time", "01020300000fa0", "01:02:03.000004"),
    ("local_datetime", "000007e8021d01020300000000", "2024-02-29T01:02:03"),
    ("time", "0036ee80", 3600000),
]
"""Bytes that PyFlink 2.3.0's coders wrote."""


@pytest.mark.parametrize(("text", "data", "value"), PYTHON)
def test_what_pyflinks_coders_wrote_is_read_by_the_type_that_the_user_names(text: str, data: str, value: Any) -> None:
    assert read_type(text).read(bytes.fromhex(data), 0) == (value, len(data) // 2)


def test_a_pickle_stays_bytes() -> None:
    value, _ = read_type("pickled").read(bytes.fromhex("0000000580044b012e"), 0)
    assert value == Opaque("pickle", 5, bytes.fromhex("80044b012e"))


def test_a_named_type_stands_in_the_place_of_stored_bytes() -> None:
    apply = named_types({"count": "long"})["count"]
    stored = list_codec(kind("bytes"))
    data = struct.pack(">iiq", 1, 8, 800)
    assert apply(stored).read(data, 0) == ([800], len(data))
    apply = named_types({"seen": "map(string, int)"})["seen"]
    inner = apply(map_codec(kind("bytes"), kind("bytes")))
    data = struct.pack(">ii", 1, 5) + bytes.fromhex("0000000161") + b"\0" + struct.pack(">ii", 4, 7)
    assert inner.read(data, 0) == ([("a", 7)], len(data))


def test_a_named_type_that_does_not_use_all_bytes_is_refused() -> None:
    apply = named_types({"count": "int"})["count"]
    with pytest.raises(ValueError, match="8 bytes, of which the type named for 'count' uses 4"):
        apply(kind("bytes")).read(struct.pack(">iq", 8, 800), 0)


@pytest.mark.parametrize(
    "text", ["", "lang", "row(", "row(long", "row(long,)", "map(long)", "long long", "row(a:long,a:int)", "list()", "$"]
)
def test_a_text_that_is_no_type_says_why(text: str) -> None:
    with pytest.raises(ValueError, match="type"):
        read_type(text)


def test_a_type_of_any_depth_is_read_or_refused() -> None:
    with pytest.raises(ValueError, match="deep"):
        read_type("list(" * 5000 + "long" + ")" * 5000)


def test_every_shape_has_an_arrow_type() -> None:
    for name in VECTORS:
        arrow_type(made(name).shape)
    unknown = codec(Snapshot("opaque", "com.example.MySerializer$Snapshot", 1))
    assert str(arrow_type(unknown.shape)) == "struct<class: string, length: int64, bytes: binary>"


def test_a_decimal_of_a_scale_that_nothing_has_is_broken_not_a_crash() -> None:
    row = bytes(8) + (16 << 32 | 16).to_bytes(8, "little") + (10**38 - 1).to_bytes(16, "big")
    assert binary_row((LogicalType("DECIMAL", True, 38, 3),))(row)[1] == Decimal("9" * 35 + ".999")
    with pytest.raises(BROKEN):
        binary_row((LogicalType("DECIMAL", True, 38, 1 << 30),))(row)
    for precision, scale in ((39, 0), (-1, 0), (5, 6), (5, -1)):
        with pytest.raises(Damaged, match="decimal of precision"):
            shape(LogicalType("DECIMAL", True, precision, scale))
