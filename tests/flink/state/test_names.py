"""Keyed and operator state of one operator may have one name: Flink keeps the two apart, and so does every command."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from formats.flink.metadata.file import encode
from formats.flink.store import FlinkStore
from tests.support.commands import result_of
from tests.support.flink.cases import HASHMAP, latest
from tests.support.flink.operator_state import operator_state

Capture = pytest.CaptureFixture[str]
NAME = "count"
"""A keyed state of `totals`, and here a list of each of its tasks, too."""


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    job = Path(shutil.copytree(HASHMAP, tmp_path / HASHMAP.name))
    chk = latest(job)
    metadata = FlinkStore(str(chk)).metadata(FlinkStore(str(chk)).epoch_numbers()[0])
    operators = []
    for operator in metadata.operators:
        if operator.uid == "totals":
            subtasks = tuple(
                msgspec.structs.replace(
                    one, managed_operator=operator_state(NAME, "SPLIT_DISTRIBUTE", f"a{one.index}", f"b{one.index}")
                )
                for one in operator.subtasks
            )
            operator = msgspec.structs.replace(operator, subtasks=subtasks)
        operators.append(operator)
    (chk / "_metadata").write_bytes(encode(msgspec.structs.replace(metadata, operators=tuple(operators))))
    return chk


def rows_of(capsys: Capture, snapshot: Path, state: str) -> list[dict[str, object]]:
    rows = result_of("state", capsys, snapshot, "totals", "--state", state)["rows"]
    assert isinstance(rows, list)
    return rows


def test_each_of_the_two_has_a_name_by_which_it_is_read(snapshot: Path, capsys: Capture) -> None:
    texts = [row["value"] for row in rows_of(capsys, snapshot, f"{NAME}@operator")]
    parallelism = len(texts) // 2
    assert sorted(map(str, texts)) == sorted(f"{text}{i}" for text in "ab" for i in range(parallelism))
    before = rows_of(capsys, latest(HASHMAP), NAME)
    assert rows_of(capsys, snapshot, NAME) == before
    key = str(before[0]["key"])
    one = result_of("state", capsys, snapshot, "totals", "--state", NAME, "--key", key)["rows"]
    assert one == [before[0]]


def test_lists_of_states_and_statistics_tell_the_two_apart(snapshot: Path, capsys: Capture) -> None:
    listed = result_of("state", capsys, snapshot)["states"]
    mine = [(one["name"], one["kind"]) for one in listed if one["operator"] == "totals" and NAME in one["name"]]
    assert mine == [(NAME, "value"), (f"{NAME}@operator", "list")]
    for words in (["--stats"], ["--operator", "totals"]):
        text = str(result_of("inspect", capsys, snapshot, *words))
        assert text.count(f"'{NAME}@operator'") == 1


def test_all_states_at_once_have_a_file_each_with_its_own_rows(snapshot: Path, capsys: Capture, tmp_path: Path) -> None:
    out = tmp_path / "tables"
    written = result_of("state", capsys, snapshot, "totals", "--all", "--out", out)["written"]
    files = {one["state"]: one["file"] for one in written}
    assert "value" in pq.read_table(files[NAME]).column_names
    values = pq.read_table(files[f"{NAME}@operator"]).column("value").to_pylist()
    assert {"a0", "b0"} <= set(values)


def test_what_differs_in_the_one_is_not_said_of_the_other(snapshot: Path, capsys: Capture) -> None:
    operators = result_of("diff", capsys, latest(HASHMAP), snapshot)["operators"]
    (mine,) = (one for one in operators if one["id"] == "totals")
    changes = {state["state"]: state["added"] for state in mine["states"]}
    assert changes.get(NAME, 0) == 0
    assert changes[f"{NAME}@operator"] > 0
