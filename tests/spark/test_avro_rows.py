"""Avro's rows become the UnsafeRows that Spark would write of the same values."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from formats.spark.state.avro_rows import FAULTY, scanned_row, unsafe_row
from formats.spark.state.types import Field, Type
from formats.spark.state.types import struct as struct_type
from formats.spark.state.unsafe_row import Rows

RANGES = {"byte": 7, "short": 15, "integer": 31, "long": 63}
"""Whole numbers, and the bits that they have beside the sign."""


def zigzag(value: int) -> bytes:
    value = value << 1 if value >= 0 else ((-value) << 1) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def avro(value: Any, of: Type, *, union: bool = True) -> bytes:
    """A value in Avro's binary encoding, of a type that may be null or not."""
    if union:
        return zigzag(0) if value is None else zigzag(1) + avro(value, of, union=False)
    if of.kind in RANGES:
        return zigzag(value)
    if of.kind == "boolean":
        return bytes([value])
    if of.kind == "double":
        return struct.pack("<d", value)
    if of.kind in ("string", "binary"):
        data = value.encode() if of.kind == "string" else value
        return zigzag(len(data)) + data
    if of.kind == "struct":
        return b"".join(avro(value[field.name], field.type) for field in of.fields)
    if of.kind == "array":
        items = b"".join(avro(item, of.fields[0].type, union=bool(of.fields[0].type.fields)) for item in value)
    else:
        key, item = (field.type for field in of.fields)
        items = b"".join(avro(k, key, union=False) + avro(v, item, union=bool(item.fields)) for k, v in value)
    return (zigzag(len(value)) + items if value else b"") + zigzag(0)


plain = st.sampled_from([*map(Type, RANGES), Type("boolean"), Type("double"), Type("string"), Type("binary")])


def nested(inner: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
    structs = st.lists(inner, min_size=1, max_size=3).map(
        lambda types: struct_type(*(Field(f"f{n}", of) for n, of in enumerate(types)))
    )
    arrays = inner.map(lambda of: Type("array", (Field("element", of),)))
    maps = inner.map(lambda of: Type("map", (Field("key", Type("string")), Field("value", of))))
    return st.one_of(structs, arrays, maps)


types = st.recursive(plain, nested, max_leaves=5)


def values(of: Type, *, null: bool = True) -> st.SearchStrategy[Any]:
    if of.kind in RANGES:
        own: st.SearchStrategy[Any] = st.integers(-(2 ** RANGES[of.kind]), 2 ** RANGES[of.kind] - 1)
    elif of.kind == "struct":
        own = st.fixed_dictionaries({field.name: values(field.type) for field in of.fields})
    elif of.kind == "array":
        own = st.lists(values(of.fields[0].type, null=bool(of.fields[0].type.fields)), max_size=4)
    elif of.kind == "map":
        entry = st.tuples(st.text(max_size=4), values(of.fields[1].type, null=bool(of.fields[1].type.fields)))
        own = st.lists(entry, max_size=3, unique_by=lambda one: one[0])
    else:
        own = {
            "boolean": st.booleans(), "double": st.floats(allow_nan=False), "string": st.text(max_size=12),
            "binary": st.binary(max_size=12),
        }[of.kind]  # fmt: skip
    return own | st.none() if null else own


@given(st.data())
def test_rows_come_out_as_they_were(data: st.DataObject) -> None:
    own = data.draw(st.lists(types, min_size=1, max_size=4))
    fields = [Field(f"c{n}", of) for n, of in enumerate(own)]
    row = [data.draw(values(of)) for of in own]
    record = b"".join(avro(value, of) for value, of in zip(row, own, strict=True))
    rows = Rows([unsafe_row(record, fields)], struct_type(*fields))
    arrays = rows.arrays()
    assert rows.faults.why == {}
    assert [array.to_pylist()[0] for array in arrays] == row


@given(st.data())
def test_a_row_that_is_cut_or_has_more_is_none(data: st.DataObject) -> None:
    fields = [Field("n", Type("long")), Field("s", Type("string"))]
    record = avro(data.draw(st.integers(-9, 9)), fields[0].type) + avro(data.draw(st.text(max_size=5)), fields[1].type)
    cut = data.draw(st.integers(0, len(record) - 1))
    assert unsafe_row(record[:cut], fields) == FAULTY
    assert unsafe_row(record + b"\0", fields) == FAULTY
    rows = Rows([FAULTY], struct_type(*fields))
    rows.arrays()
    assert rows.faults.why


def test_decimals_are_of_as_few_bytes_as_their_digits_need() -> None:
    small, wide = Type("decimal", precision=10, scale=2), Type("decimal", precision=30, scale=5)
    digits = (-12345).to_bytes(5, "big", signed=True), (10**29).to_bytes(13, "big", signed=True)
    record = b"".join(zigzag(1) + one for one in digits)
    fields = [Field("small", small), Field("wide", wide)]
    one, other = Rows([unsafe_row(record, fields)], struct_type(*fields)).arrays()
    assert [str(array.to_pylist()[0]) for array in (one, other)] == ["-123.45", f"{10**24}.00000"]


def test_a_column_of_nulls_takes_no_bytes() -> None:
    fields = [Field("__dummy__", Type("void")), Field("n", Type("long"))]
    (nothing, numbers) = Rows([unsafe_row(avro(7, fields[1].type), fields)], struct_type(*fields)).arrays()
    assert (nothing.to_pylist(), numbers.to_pylist()) == ([None], [7])


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=3), st.integers(0, 3))
def test_the_leading_columns_of_a_range_scan_are_a_sign_and_bytes_each(numbers: list[int], cut: int) -> None:
    binary = Type("binary")
    parts = [(bytes([number >= 0]), number.to_bytes(8, "big", signed=True)) for number in numbers]
    record = b"".join(avro(part, binary) for pair in parts for part in pair)
    columns = struct_type(*(Field(f"c{n}", binary) for n in range(len(numbers))))
    arrays = Rows([scanned_row(record, len(numbers))], columns).arrays()
    assert [array.to_pylist()[0] for array in arrays] == [sign + own for sign, own in parts]
    for wrong in (record[: len(record) - 1 - cut], record + b"\0", b"\0" + record):
        assert scanned_row(wrong, len(numbers)) == FAULTY


def test_columns_of_an_older_schema_go_by_their_names() -> None:
    long, text = Type("long"), Type("string")
    old, new = [Field("s", text), Field("n", long)], [Field("extra", long), Field("n", long), Field("s", text)]
    inner = Field("inner", struct_type(*old)), Field("inner", struct_type(*new))
    listed = Field("listed", Type("array", (inner[0],))), Field("listed", Type("array", (inner[1],)))
    value = {"s": "a", "n": 7}
    record = b"".join(
        avro(one, field.type) for one, field in zip([value, [value, None]], [inner[0], listed[0]], strict=True)
    )
    wanted = [inner[1], listed[1]]
    rows = Rows([unsafe_row(record, [inner[0], listed[0]], wanted)], struct_type(*wanted))
    expected = {"extra": None, "n": 7, "s": "a"}
    assert [array.to_pylist()[0] for array in rows.arrays()] == [expected, [expected, None]]
