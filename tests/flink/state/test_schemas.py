"""Values that have a schema of their own: Avro, Protobuf, the Scala API. State that real jobs wrote, as a savepoint and
in the heap's own layout (tests/flink_java/ValuesJob.java with Flink 2.3, ScalaJob.scala with 1.20)."""

from __future__ import annotations

import json
import struct
import tarfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abscli.cli.main import main
from formats.codec import protobuf
from formats.errors import Damaged, FormatError
from formats.flink.opening import open_flink
from formats.flink.store import FlinkStore
from formats.flink.types.avro import avro
from formats.flink.types.protobuf import message_type
from formats.flink.types.serializers import Snapshot
from formats.flink.types.values import BROKEN, Codec, HiddenValue, plain
from formats.storage import open_storage
from tests.support.archives import extract
from tests.support.flink.truth import DATA

KEYS = 6
STRUCT, FIELD = "google.protobuf.Struct", "google.protobuf.FieldDescriptorProto"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("values")
    with tarfile.open(DATA / "values.tar.xz") as archive:
        extract(archive, folder)
    return folder


def snapshot(data: Path, case: str, layout: str) -> Path:
    (folder,) = (data / case).glob("sp/*" if layout == "savepoint" else "ck/*/chk-*")
    return folder


LAYOUTS = pytest.mark.parametrize("layout", ["savepoint", "heap"])


def rows(path: Path, state: str, **options: tuple[str, ...]) -> dict[int, Any]:
    """Values by the number of their key."""
    store = open_flink(open_storage(str(path)), uid=("keep",), **options)
    epoch = store.resolve(None)
    return {
        int(row.get("key.f1", str(row.get("key", ""))[4:])): row["value"]
        for batch in store.state(epoch, "keep", state)
        for row in batch.to_pylist()
    }


# -- Avro -------------------------------------------------------------------------------------------------


def order(k: int, inner: bool) -> dict[str, Any]:
    """As the job made it."""
    return {
        "id": k - 3, "count": k * 1000, "price": k / 4, "weight": k / 2, "paid": k % 2 == 0,
        "note": None if k % 3 == 0 else f"caf\u00e9 {k}", "kind": "SMALL" if k % 2 == 0 else "LARGE",
        "code": bytes([1, 2, k]), "raw": bytes(k), "items": [{"name": f"item-{i}", "n": i} for i in range(k)],
        "tags": [(f"t{k}", k)] if k else [],
        "either": {"long": k, "string": None} if k % 2 == 0 else {"long": None, "string": f"text {k}"},
        "day": 19000 + k, "next": spelt(order(k + 1, False)) if inner else None,
    }  # fmt: skip


def spelt(value: dict[str, Any]) -> str:
    """A record within itself, as it is shown."""
    own = {
        name: part.hex() if isinstance(part, bytes) else dict(part) if name == "tags" else part
        for name, part in value.items()
    }
    own["either"] = next(one for one in value["either"].values() if one is not None)
    return json.dumps(own, ensure_ascii=False)


def days(value: dict[str, Any]) -> dict[str, Any]:
    """A row with its date as a number of days."""
    from datetime import date

    return value | {"day": (value["day"] - date(1970, 1, 1)).days}


@LAYOUTS
def test_records_of_avro_are_read_by_the_schema_that_the_snapshot_has(data: Path, layout: str) -> None:
    path = snapshot(data, "values", layout)
    if layout == "heap":  # a value of Kryo comes before it in each key group, and has no end
        types = {"type": kryo_types(data)}
    else:
        types = {}
    found = rows(path, "avro", **types)
    assert {k: days(value) for k, value in found.items()} == {k: order(k, True) for k in range(KEYS)}
    lists = rows(path, "avros", **types)
    assert {k: [days(one) for one in value] for k, value in lists.items()} == {
        k: [order(k, False), order(k + 1, False)] for k in range(KEYS)
    }


def avro_codec(schema: Any) -> Codec:
    return avro(Snapshot("avro", "AvroSerializerSnapshot", 3, "x", text=json.dumps(schema)))


def fields_of(*types: Any) -> dict[str, Any]:
    fields = [{"name": f"f{i}", "type": kind} for i, kind in enumerate(types)]
    return {"type": "record", "name": "R", "fields": fields}


def test_types_of_avro_that_the_job_did_not_have() -> None:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    time = {"type": "long", "logicalType": "timestamp-millis"}
    codec = avro_codec(fields_of("null", decimal, time, {"type": "array", "items": "null"}, ["null", "int", "string"]))
    bytes_of = struct.pack(">ih", 2, -1234) + struct.pack(">q", 5) + b"\x03\x00" + struct.pack(">ii", 1, -7)
    value, end = codec.read(bytes_of, 0)
    assert value == (None, Decimal("-12.34"), 5, [None, None, None], (-7, None))
    assert end == len(bytes_of)
    assert codec.shape[1][4] == ("f4", ("struct", (("int", "int32"), ("string", "string"))))


@pytest.mark.parametrize("schema", ["{", {"type": "record", "name": "R"}, {"type": "what"}, fields_of("no.such.Type")])
def test_a_schema_that_is_none_leaves_its_values_as_bytes(schema: Any) -> None:
    codec = avro(Snapshot("avro", "AvroSerializerSnapshot", 3, "shop.Order", text=json.dumps(schema)))
    assert codec.hides == "shop.Order (AvroSerializer)"
    with pytest.raises(HiddenValue):
        codec.read(b"\0\0\0\1", 0)


@given(st.binary(max_size=60))
def test_bytes_that_are_no_record_are_an_error_or_a_value(buf: bytes) -> None:
    schema = fields_of("string", {"type": "array", "items": ["null", "long"]}, {"type": "map", "values": "bytes"},
                       {"type": "array", "items": "null"})  # fmt: skip
    try:
        _, end = avro_codec(schema).read(buf, 0)
    except BROKEN:
        return
    assert end <= len(buf)


# -- Protobuf ---------------------------------------------------------------------------------------------


def kryo_types(data: Path) -> tuple[str, ...]:
    file = data / "values" / "descriptors.pb"
    return f"proto=protobuf({file}, {FIELD})", f"tree=protobuf({file}, {STRUCT})", f"bytes=protobuf({file},{STRUCT})"


@LAYOUTS
def test_messages_are_read_by_the_descriptor_that_is_given(data: Path, layout: str) -> None:
    path = snapshot(data, "values", layout)
    found = rows(path, "proto", type=kryo_types(data))
    assert {k: (v["name"], v["number"], v["type"], v["label"], v["options"]["packed"]) for k, v in found.items()} == {
        k: (f"field_{k}", k - 2, "TYPE_STRING", "LABEL_REPEATED", k % 2 == 0) for k in range(KEYS)
    }
    assert {v["extendee"] for v in found.values()} == {None}, "what is not there is null, in proto2"
    for state in ("tree", "bytes"):
        trees = rows(path, state, type=kryo_types(data))
        for k, value in trees.items():
            own = dict(value["fields"])
            assert own["n"]["number_value"] == k / 2
            assert own["n"]["string_value"] is None, "of a oneof there is one"
            within = [json.loads(one) for one in own["list"]["list_value"]["values"]]
            assert [(one["string_value"], one["bool_value"]) for one in within] == [("caf\u00e9", None), (None, True)]


@LAYOUTS
def test_without_a_descriptor_messages_are_bytes_with_the_reason(data: Path, layout: str) -> None:
    store = FlinkStore(str(snapshot(data, "values", layout)))
    epoch = store.resolve(None)
    (proto,) = [one for one in store.counted_states(epoch, "keep") if one.name == "proto"]
    assert "FieldDescriptorProto (KryoSerializer)" in str(proto.opaque)
    (behind,) = [one for one in store.counted_states(epoch, "keep") if one.name == "behind"]
    assert (behind.rows, behind.opaque) == (KEYS, None), "what lies behind is found again"
    assert "KryoSerializer" not in str(store.hidden(epoch, "numbers", "SourceReaderState"))


def test_a_snapshot_whose_values_are_all_known_can_be_checked_to_its_last_byte(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = snapshot(data, "scala", "heap")
    assert main(["validate", str(path), "-o", "json"]) == 0
    (epoch,) = json.loads(capsys.readouterr().out)["epochs"]
    assert epoch["verdict"] == "complete"
    # only a failure, which no value is, would be of Kryo
    assert "were not read" not in epoch["why_unchecked"].get("unreadable", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("protobuf(FILE, no.such.Message)", "has no message no.such.Message; it has google.protobuf."),
        ("protobuf(/no/such/file, a.B)", "cannot be read"),
        ("protobuf(SNAPSHOT, a.B)", "is not a FileDescriptorSet"),
    ],
)
def test_a_descriptor_that_does_not_fit_is_said(data: Path, words: str, message: str) -> None:
    words = words.replace("FILE", str(data / "values" / "descriptors.pb"))
    words = words.replace("SNAPSHOT", str(snapshot(data, "values", "savepoint") / "_metadata"))
    with pytest.raises(FormatError, match=message):
        rows(snapshot(data, "values", "savepoint"), "tree", type=(f"tree={words}",))


def rewritten(
    capsys: pytest.CaptureFixture[str], folder: Path, path: Path, changes: str, *types: str
) -> tuple[int, str]:
    """Exit code and answer of `abs rewrite`; the copy is at folder / copy."""
    (folder / "changes.yaml").write_text("version: 1\n" + changes)
    words = [word for text in types for word in ("--type", text)]
    code = main(["rewrite", str(path), "--changes", str(folder / "changes.yaml"), "--to", str(folder / "copy"), *words])
    out, err = capsys.readouterr()
    return code, out + err


@LAYOUTS
def test_a_key_goes_from_state_whose_values_end_where_a_type_that_is_named_says(
    data: Path, layout: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, lines = snapshot(data, "values", layout), "removed: [{operator: keep, key: key-2}]"
    if layout == "heap":
        code, answer = rewritten(capsys, tmp_path, path, lines)
        assert (code, "whose ends only its class knows" in answer) == (2, True)
    assert rewritten(capsys, tmp_path, path, lines, *kryo_types(data))[0] == 0
    for state in ("proto", "tree", "bytes", "behind"):
        before = rows(path, state, type=kryo_types(data))
        after = rows(tmp_path / "copy", state, type=kryo_types(data))
        assert after == {key: value for key, value in before.items() if key != 2}, state


@pytest.mark.parametrize(
    ("kind", "value", "stored", "shown"),
    [
        ("long", "7", b"\0\0\0\0\0\0\0\7", 7),
        ("string", "caf\u00e9", b"\0\0\0\5caf\xc3\xa9", "caf\u00e9"),
        ("row(long, string)", "{f0: 7, f1: null}", b"\x10\0\0\0\0\0\0\0\7", {"row_kind": "+I", "f0": 7, "f1": None}),
        ("list(int)", "[1, 2]", b"\0\0\0\2\0\0\0\1\0\0\0\2", [1, 2]),
    ],
)
def test_a_value_is_written_into_bytes_as_the_type_that_is_named(
    data: Path, tmp_path: Path, kind: str, value: str, stored: bytes, shown: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    path = snapshot(data, "values", "savepoint")
    others = ", ".join(f"{{operator: keep, state: bytes, key: key-{k}}}" for k in range(KEYS) if k != 1)
    lines = f"removed: [{others}]\nset: [{{operator: keep, state: bytes, key: key-1, value: {value}}}]"
    assert rewritten(capsys, tmp_path, path, lines, f"bytes={kind}")[0] == 0
    assert rows(tmp_path / "copy", "bytes") == {1: stored}
    assert rows(tmp_path / "copy", "bytes", type=(f"bytes={kind}",)) == {1: shown}


def test_a_message_is_read_by_its_descriptor_and_not_written(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = "set: [{operator: keep, state: tree, key: key-1, value: {fields: []}}]"
    code, answer = rewritten(capsys, tmp_path, snapshot(data, "values", "savepoint"), lines, *kryo_types(data))
    assert (code, "are not written here" in answer) == (2, True)


def varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def nested(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def described(*fields: bytes, syntax: str = "proto3") -> bytes:
    """A FileDescriptorSet with one message, `M`."""
    message = nested(1, b"M") + b"".join(nested(2, field) for field in fields)
    return nested(1, nested(1, b"f.proto") + nested(4, message) + nested(12, syntax.encode()))


def field(name: str, number: int, kind: int, *, repeated: bool = False) -> bytes:
    label = varint(3 if repeated else 1)
    return nested(1, name.encode()) + b"\x18" + varint(number) + b"\x20" + label + b"\x28" + varint(kind)


def read_as(folder: Path, descriptors: bytes, data: bytes) -> Any:
    (folder / "m.pb").write_bytes(descriptors)
    stored = plain("bytes")
    assert stored is not None
    codec = message_type(str(folder / "m.pb"), "M")(stored)
    return codec.read(struct.pack(">i", len(data)) + data, 0)[0]


def test_numbers_packed_or_not_signed_or_turned_and_defaults_are_what_proto3_says(tmp_path: Path) -> None:
    types = described(
        field("a", 1, 5), field("b", 2, 18), field("c", 3, 13, repeated=True), field("d", 4, 15),
        field("e", 5, 1, repeated=True), field("g", 6, 9), field("h", 7, 8),
    )  # fmt: skip
    data = b"\x08" + varint((1 << 64) - 5) + b"\x10" + varint(9) + b"\x1a\x03\x01\x96\x01" + b"\x18\x07"
    data += b"\x25" + struct.pack("<i", -2) + b"\x2a\x10" + struct.pack("<dd", 0.5, -1.5)
    data += varint(99 << 3 | 2) + b"\x02hi"  # which the descriptor does not name
    assert read_as(tmp_path, types, data) == (-5, -5, [1, 150, 7], -2, [0.5, -1.5], "", False)
    assert read_as(tmp_path, types, b"") == (0, 0, [], 0, [], "", False)
    assert read_as(tmp_path, types.replace(b"proto3", b"proto2"), b"")[:2] == (None, None)


def test_a_field_of_another_form_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="field a is a BYTES, not a VARINT"):
        read_as(tmp_path, described(field("a", 1, 5)), b"\x0a\x01x")


@given(st.binary(max_size=40))
def test_bytes_that_are_no_message_are_damage_or_fields_within_them(buf: bytes) -> None:
    try:
        found = list(protobuf.fields(buf))
    except Damaged:
        return
    assert sum(len(value) for _, _, value in found if isinstance(value, bytes)) <= len(buf)


# -- the Scala API ----------------------------------------------------------------------------------------


def scala_order(k: int) -> dict[str, Any]:
    """As the job made it: fields of a case class have no names in the snapshot."""
    return {
        "f0": k - 3, "f1": {"f0": f"street {k}", "f1": 1000 + k}, "f2": None if k % 3 == 0 else f"caf\u00e9 {k}",
        "f3": [{"f0": f"item-{i}", "f1": i} for i in range(k)], "f4": [{"f0": f"t{k}", "f1": k}] if k else [],
        "f5": list(range(k)),
        "f6": {"left": k, "right": None} if k % 2 == 0 else {"left": None, "right": f"text {k}"},
        "f7": "low" if k % 2 == 0 else "high", "f8": [k / 2] * k, "f9": [k] * k,
    }  # fmt: skip


@LAYOUTS
def test_case_classes_and_collections_of_scala_are_read(data: Path, layout: str) -> None:
    path = snapshot(data, "scala", layout)
    assert rows(path, "order") == {k: scala_order(k) for k in range(KEYS)}
    assert rows(path, "option") == {k: None if k % 2 == 0 else {"f0": "only", "f1": k} for k in range(KEYS)}
    assert rows(path, "attempt") == {k: {"success": k, "failure": None} for k in range(KEYS)}
    assert rows(path, "behind") == {k: k for k in range(KEYS)}
