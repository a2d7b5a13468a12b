"""Changed copies of snapshots: keys go, have other values and are new, and are hashed into other key groups."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from abscli.report.findings import Code
from abscli.stores.flink.verdict import check_epoch
from formats.flink.checks import stream_checks
from formats.flink.evidence import gather
from formats.flink.ids import operator_id
from formats.flink.metadata.file import encode
from formats.flink.rewriting.changes import (
    RemoveState,
)
from formats.flink.rewriting.operators import Rewriter
from formats.flink.rewriting.resolve import Work
from formats.flink.store import FlinkStore
from tests.support.flink.cases import CANONICAL, content
from tests.support.flink.matrix import CASES, Case, needs, opened
from tests.support.flink.rewritten import NEWEST, SQL, keyed, rewritten


@pytest.mark.sample(5)
@pytest.mark.parametrize("case", NEWEST, ids=str)
def test_a_key_goes_one_has_another_value_and_one_is_new_in_every_layout(
    matrix: Path, case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, owner = keyed(matrix, case)
    lines = f"""removed:
- {{operator: {owner}, key: key-3}}
- {{operator: {owner}, state: list, key: {{key: key-4}}}}
- {{operator: {owner}, state: map, key: key-6, map_key: x}}
set:
- {{operator: {owner}, state: map, key: key-6, map_key: y, value: 77}}
- {{operator: {owner}, state: map, key: key-6, map_key: new, value: 78}}
- {{operator: {owner}, state: text, key: key-5, value: "another, caf\u00e9"}}
- {{operator: {owner}, state: sum, key: key-5, value: -7}}
- {{operator: {owner}, state: list, key: key-5, value: [a, ""]}}
- {{operator: {owner}, state: text, key: brand-new, value: x}}
"""
    done = rewritten(capsys, tmp_path, matrix / case.folder, lines, "--search", matrix / case.version / case.name)
    after = content(FlinkStore(str(tmp_path / "copy")))
    wanted = {"text": "another, caf\u00e9", "sum": -7, "list": ["a", ""]}
    for (id, name), rows in before.items():
        kept = [json.loads(row) for row in rows]
        if id == owner:
            kept = [row for row in kept if row["key"] != "key-3" and (name, row["key"]) != ("list", "key-4")]
            kept = [row | {"value": wanted[name]} if name in wanted and row["key"] == "key-5" else row for row in kept]
            kept += [{"key": "brand-new", "value": "x"}] if name == "text" else []
            if name == "map":
                kept = [row for row in kept if row["key"] != "key-6"]
                kept += [{"key": "key-6", "map_key": entry, "value": n} for entry, n in (("y", 77), ("new", 78))]
        assert after[id, name] == sorted(json.dumps(row, default=str) for row in kept), name
    new = done["changes"][-1]
    assert (new["before"], new["after"], new["rows"]) == (None, '"x"', 0)
    assert (done["changes"][5]["before"], done["changes"][6]["after"]) == ('"text 5"', "-7")
    assert [(c["before"], c["after"], c["rows"]) for c in done["changes"][2:5]] == [
        ("map", None, 1), ("-6", "77", 1), (None, "78", 0),
    ]  # fmt: skip


@pytest.mark.sample(5)
@pytest.mark.parametrize("case", NEWEST, ids=str)
def test_a_key_that_is_not_there_leaves_the_operator_as_flink_wrote_it(
    matrix: Path, case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needs(case)
    store, epoch = opened(matrix, case)
    (owner,) = {id for id, name in content(store) if name == "list"}
    lines = f"removed: [{{operator: {owner}, key: nobody}}, {{operator: {owner}, state: map, key: key-6, map_key: q}}]"
    done = rewritten(capsys, tmp_path, matrix / case.folder, lines, "--search", matrix / case.version / case.name)
    assert [c["no_effect"] for c in done["changes"]] == ["the operator has no such key"] * 2
    assert done["written"] == []
    assert not list((tmp_path / "copy").glob("rewritten-*"))
    copy = FlinkStore(str(tmp_path / "copy"))
    for before, after in zip(
        store.find_operator(epoch, owner).subtasks, copy.find_operator(copy.resolve(None), owner).subtasks, strict=True
    ):
        assert type(after.managed_keyed) is type(before.managed_keyed)


def test_keys_with_fields_and_sql_rows_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = FlinkStore(str(SQL))
    before = content(store)
    (owner,) = {id for id, name in before if name == "deduplicate-state"}
    first = json.loads(before[owner, "deduplicate-state"][0])["key.f0"]
    rewritten(capsys, tmp_path, SQL, f"removed: [{{operator: {owner}, key: {{f0: '{first}'}}}}]")
    after = content(FlinkStore(str(tmp_path / "copy")))
    assert after == {
        key: [row for row in rows if key[0] != owner or json.loads(row)["key.f0"] != first]
        for key, rows in before.items()
    }


@pytest.mark.parametrize("removal_first", [True, False])
def test_what_goes_does_so_before_what_is_set_comes_wherever_it_stands(
    removal_first: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The key begins anew: with one state, and with one entry of its map."""
    removed = "removed: [{operator: totals, key: user-7}, {operator: totals, state: per-item, key: user-9}]\n"
    new = (
        "set: [{operator: totals, state: count, key: user-7, value: 12}, "
        "{operator: totals, state: per-item, key: user-9, map_key: item-1, value: 5}]\n"
    )
    lines = removed + new if removal_first else new + removed
    rewritten(capsys, tmp_path, CANONICAL, lines)
    first = (tmp_path / "copy").rename(tmp_path / "first")
    before, after = content(FlinkStore(str(CANONICAL))), content(FlinkStore(str(first)))
    for (id, state), rows in before.items():
        kept = [json.loads(row) for row in rows]
        if id == operator_id("totals"):
            kept = [row for row in kept if row["key"] != "user-7" and (state, row["key"]) != ("per-item", "user-9")]
            kept += {
                "count": [{"key": "user-7", "value": 12}],
                "per-item": [{"key": "user-9", "map_key": "item-1", "value": 5}],
            }.get(str(state), [])
        assert after[id, state] == sorted(json.dumps(row, default=str) for row in kept), state
    rewritten(capsys, tmp_path, first, lines)
    assert content(FlinkStore(str(tmp_path / "copy"))) == after, "and again"


def without_state_in_one_task(store: FlinkStore, folder: Path, names: tuple[str, ...], *, raw: bool = False) -> Path:
    """A copy of a snapshot in which the last task of the operator that keeps keys lacks states of these names, or, of
    none, all keyed state; raw: the first has it as raw keyed state as well."""
    epoch = store.resolve(None)
    metadata = store.metadata(epoch)
    (owner,) = {id for id, name in content(store) if name == "list"}
    operators = []
    for operator in metadata.operators:
        if operator.id == owner:
            first, last = operator.subtasks[0], operator.subtasks[-1]
            assert last.managed_keyed is not None
            if raw:
                first = msgspec.structs.replace(first, raw_keyed=first.managed_keyed)
            keyed = None
            if raw:
                keyed = last.managed_keyed
            elif names:
                gone = Work(operator, states={name: RemoveState(operator="o", state=name) for name in names})
                own = Rewriter(metadata, store.streams(epoch), Folder(folder))
                keyed = own.changed(gone).subtasks[-1].managed_keyed
            last = msgspec.structs.replace(last, managed_keyed=keyed)
            operator = msgspec.structs.replace(operator, subtasks=(first, *operator.subtasks[1:-1], last))
        operators.append(operator)
    shutil.copytree(store.path, folder, dirs_exist_ok=True)
    (folder / "_metadata").write_bytes(encode(msgspec.structs.replace(metadata, operators=tuple(operators))))
    return folder


class Folder:
    """Where new streams are written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(exist_ok=True)

    def write_pieces(self, name: str, pieces: Iterable[bytes]) -> int:
        return (self.path / name).write_bytes(b"".join(pieces))


@pytest.mark.parametrize("names", [(), ("list", "sum")], ids=["no-state", "fewer-states"])
@pytest.mark.parametrize("most", [7, 1000])
def test_keys_are_hashed_anew_though_a_task_has_less_state_than_others(
    most: int, names: tuple[str, ...], matrix: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A task that has had no use for a state has none of it; keys of others may belong to it then."""
    case = next(case for case in CASES if (case.version, case.name, case.kind) == ("2.3", "hashmap", "savepoint"))
    store, _ = opened(matrix, case)
    source = without_state_in_one_task(store, tmp_path / "source", names)
    before = content(FlinkStore(str(source)))
    (owner,) = {id for id, name in before if name == "list"}
    assert before != content(store)
    rewritten(capsys, tmp_path, source, f"set: [{{operator: {owner}, max_parallelism: {most}}}]")
    copy = FlinkStore(str(tmp_path / "copy"))
    assert content(copy) == before
    operator = copy.find_operator(copy.resolve(None), owner)
    assert [subtask.managed_keyed is None for subtask in operator.subtasks] == [False, False]


def test_a_key_of_all_states_does_not_go_where_its_timers_are_raw_state(
    matrix: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = next(case for case in CASES if (case.version, case.name, case.kind) == ("2.3", "hashmap", "savepoint"))
    before, owner = keyed(matrix, case)
    source = without_state_in_one_task(opened(matrix, case)[0], tmp_path / "source", (), raw=True)
    assert any('"key-3"' in row for row in before[owner, "list"])
    error = rewritten(capsys, tmp_path, source, f"removed: [{{operator: {owner}, key: key-3}}]", code=2)
    assert "which may be timers of that key" in error["message"]
    rewritten(capsys, tmp_path, source, f"removed: [{{operator: {owner}, state: list, key: key-3}}]")


@pytest.mark.sample(8)
@pytest.mark.parametrize("most", [7, 1000])
@pytest.mark.parametrize("case", [case for case in NEWEST if "unaligned" not in case.name], ids=str)
def test_keys_are_hashed_into_another_number_of_key_groups(
    matrix: Path, case: Case, most: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is written is checked against the hashes of its keys before it appears."""
    before, owner = keyed(matrix, case)
    lines = f"set: [{{operator: {owner}, max_parallelism: {most}}}]"
    rewritten(capsys, tmp_path, matrix / case.folder, lines, "--search", matrix / case.version / case.name)
    copy = FlinkStore(str(tmp_path / "copy"))
    assert content(copy) == before
    operator = copy.find_operator(copy.resolve(None), owner)
    assert operator.max_parallelism == most
    report, why, _ = check_epoch(gather(copy, copy.resolve(None), checks=stream_checks()))
    assert (report.findings, Code.MISPLACED_KEY in why) == ((), False)
