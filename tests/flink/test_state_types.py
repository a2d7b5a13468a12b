"""The table of states in `abs inspect CHECKPOINT`: the key type of an operator once, the value type of each state."""

from __future__ import annotations

import msgspec
import pytest

from abscli.stores.flink.text.inspect import _states
from formats.flink.facts import DescribedOperator
from formats.flink.store import FlinkStore
from tests.support.commands import run_command
from tests.support.flink.cases import HASHMAP

FIELDS = [f"field{i}" for i in range(24)]
LONG_KEY = {
    "serializer": "PojoSerializer", "class": "shop.OrderKey", "names": FIELDS,
    "nested": [{"serializer": "StringSerializer"} for _ in FIELDS],
}  # fmt: skip


@pytest.mark.parametrize("width", [80, 120, 240])
def test_a_key_of_many_fields_does_not_cut_the_value_types_away(width: int) -> None:
    raw = FlinkStore(str(HASHMAP)).raw(2)["operators"]
    (totals,) = [msgspec.convert(one, DescribedOperator) for one in raw if one["operator-uid"] == "totals"]
    states = [
        msgspec.structs.replace(state, serializers={**state.serializers, "key": LONG_KEY}) if state.keyed else state
        for state in totals.states
    ]
    lines = _states([msgspec.structs.replace(totals, states=states)], width)
    text = "\n".join(lines)
    assert text.count("Pojo OrderKey") == 1
    for value in ("Tuple2<Long, Long>", "List<Tuple2<Long, Int>>", "Map<String, Long>"):
        assert text.count(value) == 1
    if width == 80:
        assert "field23: String" in " ".join(text.split()), "the whole key is shown"
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize(("columns", "header"), [("80", False), ("160", True)])
def test_key_and_value_types_are_columns_if_they_fit(
    columns: str, header: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    out = run_command("inspect", capsys, HASHMAP / "chk-2")[1]
    (head,) = [line for line in out.splitlines() if line.split()[:3] == ["OPERATOR", "STATE", "KIND"]]
    assert (head.split()[3:] == ["KEY", "VALUE"]) is header
    assert ("  key: String\n" in out) is not header
