"""What changed classes make of state: Flink's rules for Pojos, and Avro's for schemas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from abscli.cli.main import main
from abscli.stores.flink.upgrading.schema_rules import SchemaRules
from formats.errors import FormatError
from formats.flink.state.meta import StateInfo, StateKind
from formats.flink.types.avro_schema import AvroSchema, differences
from formats.flink.types.declared import canonical, parse_declared
from formats.flink.types.logical_types import LogicalType
from formats.flink.types.serializer_classes import BASE, FLINK, JAVA, TABLE
from formats.flink.types.serializers import Snapshot
from formats.user_file.mistakes import BadFile
from tests.support.flink.cases import CANONICAL, OLD
from tests.support.schemas import checked

ORDER = {
    "address": "Orders$Address", "amount": "int", "gift": "boolean", "id": "long", "item": "String",
    "price": "java.lang.Double", "user": "String",
}  # fmt: skip
"""The fields of a Pojo of the snapshot, as Java calls their types."""


def asked(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, declared: dict[str, Any], code: int
) -> dict[str, dict[str, list[str]]]:
    """By state and rule the paths, of states that a rule of classes speaks of."""
    file = tmp_path / "classes.yaml"
    file.write_text(json.dumps({"version": 1, "classes": declared}))
    words = ["validate", str(CANONICAL), "--for", "flink:2.3", "--schema", str(file), "-o", "json"]
    done = main(words)
    out, err = capsys.readouterr()
    assert done == code, err
    paths: dict[str, dict[str, list[str]]] = {}
    for state in checked(out)["states"]:
        for why in state["reasons"]:
            paths.setdefault(state["state"], {}).setdefault(why["rule"], []).append(why["path"])
    return paths


def test_a_class_that_stays_says_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(capsys, tmp_path, {"Orders$Order": ORDER}, 0) == {}


def test_fields_may_come_and_go(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fields = {name: kind for name, kind in ORDER.items() if name != "gift"} | {"note": "String"}
    assert asked(capsys, tmp_path, {"Orders$Order": fields}, 0) == {
        "last-order": {
            "field-removed": ["value: PojoSerializer.gift: boolean"],
            "field-added": ["value: PojoSerializer.note: string"],
        }
    }


def test_a_field_of_another_type_and_a_class_elsewhere_are_refused_also_within_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    declared = {
        "Orders$Order": ORDER | {"amount": "long"}, "Orders$Address": {"street": "String", "zip": "String"},
        "shop.Orders$Rule": {"limit": "int", "name": "String"},
    }  # fmt: skip
    paths = asked(capsys, tmp_path, declared, 3)
    assert paths["last-order"] == {
        "field-type": [
            "value: PojoSerializer.amount: int -> long",
            "value: PojoSerializer.address -> PojoSerializer.zip: int -> string",
        ]
    }
    assert paths["rules"] == {
        "class-renamed": ["value: MapSerializer.value -> PojoSerializer (Orders$Rule): now shop.Orders$Rule"]
    }


def test_a_file_of_which_no_state_has_a_class_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "f").write_text("classes: {shop.Nothing: {id: long}}")
    assert main(["validate", str(CANONICAL), "--for", "flink:2.3", "--schema", str(tmp_path / "f")]) == 2
    assert "no state has a value of shop.Nothing; there are Orders$Address, Orders$Order" in " ".join(
        capsys.readouterr().err.split()
    )
    assert main(["validate", str(CANONICAL), "--schema", str(tmp_path / "f")]) == 2
    assert "--for" in capsys.readouterr().err


LONG = Snapshot("long", f"{BASE}LongSerializer$LongSerializerSnapshot", 3)
TEXT = Snapshot("string", f"{BASE}StringSerializer$StringSerializerSnapshot", 3)
USER = Snapshot("pojo", f"{JAVA}PojoSerializerSnapshot", 2, "shop.User", (LONG, TEXT), ("id", "name"))


def rules(info: StateInfo, key: Snapshot | None, declared: str) -> list[tuple[str, str]]:
    own = SchemaRules(parse_declared(declared.encode(), "f"), (2, 3))
    return [(why.rule.name, why.path) for why in own.of_state(info, key)]


def test_keys_do_not_evolve() -> None:
    info = StateInfo("s", StateKind.KEY_VALUE, "VALUE", value=LONG)
    assert rules(info, USER, "classes: {shop.User: {id: long}}") == [
        ("key-changed", "key: PojoSerializer.name: string")
    ]
    assert rules(info, USER, "classes: {shop.User: {id: long, name: string}}") == []
    broadcast = StateInfo("s", StateKind.BROADCAST, value=LONG, key=USER)
    assert [name for name, _ in rules(broadcast, USER, "classes: {shop.User: {id: long}}")] == ["field-removed"]
    timer = Snapshot("timer", f"{FLINK}streaming.api.operators.TimerSerializerSnapshot", 2, nested=(USER, TEXT))
    timers = StateInfo("_timer_state/event_user-timers", StateKind.PRIORITY_QUEUE, value=timer)
    assert [name for name, _ in rules(timers, USER, "classes: {shop.User: {id: long}}")] == ["key-changed"] * 2
    by_user = Snapshot("map", f"{BASE}MapSerializerSnapshot", 1, nested=(USER, LONG))
    entries = StateInfo("s", StateKind.KEY_VALUE, "MAP", value=by_user)
    assert [name for name, _ in rules(entries, TEXT, "classes: {shop.User: {id: long}}")] == ["map-key-changed"]


NAMES = Snapshot("row", f"{JAVA}RowSerializer$RowSerializerSnapshot", 4, nested=(LONG, TEXT), number=1)


def test_fields_of_rows_are_told_by_their_position() -> None:
    info = StateInfo("last", StateKind.KEY_VALUE, "VALUE", value=NAMES)
    assert rules(info, LONG, "rows: {last: [long, String]}") == []
    assert rules(info, LONG, "rows: {last: [long, int]}") == [("row-changed", "value: RowSerializer.f1: string -> int")]
    listed = Snapshot("list", f"{BASE}ListSerializerSnapshot", 1, nested=(NAMES,))
    several = StateInfo("last", StateKind.KEY_VALUE, "LIST", value=listed)
    assert rules(several, LONG, "rows: {last: [long]}") == [
        ("row-changed", "value: ListSerializer[] -> RowSerializer: 2 fields -> 1")
    ]


def test_rows_of_sql_are_told_by_the_types_of_sql(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    types = ["BIGINT", "STRING"]
    own = LogicalType("BIGINT"), LogicalType("VARCHAR", False)
    row = Snapshot("rowdata", f"{TABLE}RowDataSerializer$RowDataSerializerSnapshot", 3, types=own)
    info = StateInfo("acc", StateKind.KEY_VALUE, "VALUE", value=row)
    assert rules(info, LONG, "rows: {acc: [BIGINT, varchar(7) not null]}") == []
    assert rules(info, LONG, "rows: {acc: [BIGINT, STRING]}") == [
        ("row-changed", "value: RowDataSerializer.f1: VARCHAR NOT NULL -> STRING")
    ]
    (tmp_path / "f").write_text(json.dumps({"rows": {"no-such-state": types}}))
    assert main(["validate", str(CANONICAL), "--for", "flink:2.3", "--schema", str(tmp_path / "f")]) == 2
    assert "no state has a value of no-such-state" in capsys.readouterr().err


def record(*fields: dict[str, Any], name: str = "shop.Order") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name: str, kind: object, **more: object) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        ([field("a", "int")], [field("a", "long")], [(".a", "int -> long", True)]),
        ([field("a", "long")], [field("a", "int")], [(".a", "long -> int", False)]),
        ([field("a", "int")], [], [(".a", "gone: its values are dropped", True)]),
        ([], [field("a", "int", default=7)], [(".a", "new, it will be 7", True)]),
        ([], [field("a", "int")], [(".a", "new, and without a default", False)]),
        ([field("a", "int")], [field("b", "int", aliases=["a"])], []),
        ([field("a", "int")], [field("a", ["null", "int"])], []),
        ([field("a", ["null", "int"])], [field("a", "int")], [(".a", "null -> int", False)]),
        ([field("a", ["null", "int"])], [field("a", ["null", "long"])], [(".a", "int -> long", True)]),
        ([field("a", "string")], [field("a", ["null", "long"])], [(".a", "string is none of null, long", False)]),
        (
            [field("a", {"type": "array", "items": record(field("b", "int"), name="Item")})],
            [field("a", {"type": "array", "items": record(field("b", "boolean"), name="Item")})],
            [(".a[].b", "int -> boolean", False)],
        ),
        (
            [field("a", {"type": "enum", "name": "Level", "symbols": ["LOW", "HIGH"]})],
            [field("a", {"type": "enum", "name": "Level", "symbols": ["HIGH"]})],
            [(".a", "symbols that are gone: LOW", False)],
        ),
        ([field("next", ["null", "shop.Order"])], [field("next", ["null", "Order"])], []),
    ],
)  # fmt: skip
def test_schemas_of_avro_are_resolved_as_avro_does(
    before: list[dict[str, Any]], after: list[dict[str, Any]], wanted: list[tuple[str, str, bool]]
) -> None:
    schemas = [AvroSchema(json.dumps(record(*fields))) for fields in (before, after)]
    assert [tuple(difference) for difference in differences(*schemas)] == wanted


def test_the_schema_in_the_snapshot_is_held_against_the_given_one() -> None:
    name = f"{FLINK}formats.avro.typeutils.AvroSerializerSnapshot"
    order = Snapshot("opaque", name, 3, "shop.Order", text=json.dumps(record(field("id", "int"))))
    info = StateInfo("s", StateKind.KEY_VALUE, "VALUE", value=order)
    given = json.dumps(record(field("id", "long"), field("user", "string")))
    assert rules(info, TEXT, given) == [
        ("avro-evolved", "value: AvroSerializer.id: int -> long"),
        ("avro-incompatible", "value: AvroSerializer.user: new, and without a default"),
    ]
    moved = json.dumps(record(field("id", "int"), name="other.Order"))
    assert rules(info, TEXT, moved) == [
        ("avro-incompatible", "value: AvroSerializer: shop.Order is called other.Order")
    ]


def test_types_are_read_as_java_writes_them() -> None:
    assert canonical("java.util.Map<String, List<shop.Item>>") == "map<string,list<shop.Item>>"
    for text in ("list<", "a b", "", "list>"):
        with pytest.raises(ValueError, match="is not a type"):
            canonical(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "neither classes, rows, ttl nor a schema"),
        ("classes: [a]", "classes must be a mapping"),
        ("classes: {a: b}", "class a must be a mapping"),
        ("classes: {a: {b: 3}}", "a.b must be a type"),
        ("version: 2\nclasses: {}", "version must be 1"),
        ("other: 1\nclasses: {}", "unknown key 'other'"),
    ],
)
def test_a_file_that_does_not_hold_is_refused_with_the_place(text: str, message: str) -> None:
    with pytest.raises(BadFile, match=message):
        parse_declared(text.encode(), "f")


def test_a_schema_that_is_none_is_refused() -> None:
    with pytest.raises(FormatError, match="no schema of Avro"):
        parse_declared(b'{"type": "record"}', "f")


# -- TTL --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("release", "ttl", "rules"),
    [
        ("1.20", {"count": False, "note-ttl": True}, {}),
        ("2.3", {"count": True}, {"count": ("ttl-migrated", "with TTL in the job")}),
        ("2.3", {"note-ttl": False}, {"note-ttl": ("ttl-migrated", "without TTL in the job")}),
        ("2.2", {"count": True}, {"count": ("ttl-migrated", "with TTL in the job")}),
        ("2.1", {"per-item": True}, {"per-item": ("ttl-changed", "with TTL in the job")}),
        ("1.20", {"recent": True, "note-ttl": False},
         {"recent": ("ttl-changed", "with TTL in the job"), "note-ttl": ("ttl-changed", "without TTL in the job")}),
    ],
)  # fmt: skip
def test_a_ttl_may_be_switched_on_or_off_from_flink_2_2_on(
    release: str, ttl: dict[str, bool], rules: dict[str, tuple[str, str]], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    file = tmp_path / "classes.yaml"
    file.write_text(json.dumps({"version": 1, "ttl": ttl}))
    main(["validate", str(OLD), "--for", f"flink:{release}", "--schema", str(file), "-o", "json"])
    states = checked(capsys.readouterr().out)["states"]
    found = {
        state["state"]: (why["rule"], why["path"].rpartition(": ")[2])
        for state in states for why in state["reasons"] if why["rule"].startswith("ttl-")
    }  # fmt: skip
    assert found == rules
    assert all(
        (state["verdict"] == "does not") == (rules[state["state"]][0] == "ttl-changed")
        for state in states if state["state"] in rules
    )  # fmt: skip


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"ttl": {"count": "1h"}}, "ttl of count must be true or false"),
        ({"ttl": ["count"]}, "ttl must be a mapping of states to true or false"),
    ],
)
def test_a_ttl_is_true_or_false(declared: dict[str, Any], message: str) -> None:
    with pytest.raises(BadFile, match=message):
        parse_declared(json.dumps({"version": 1, **declared}).encode(), "f")


def test_a_ttl_of_no_state_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "classes.yaml"
    file.write_text(json.dumps({"version": 1, "ttl": {"nothing": True}}))
    assert main(["validate", str(OLD), "--for", "flink:2.3", "--schema", str(file)]) == 2
    assert "no state has a value of nothing" in capsys.readouterr().err
