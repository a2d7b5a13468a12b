"""Changed copies of snapshots: operators and states move and go, and all else stays as it was."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from abscli.cli.main import main
from formats.flink.facts import file_handles
from formats.flink.ids import operator_id
from formats.flink.metadata.handles import KeyGroupsHandle
from formats.flink.store import FlinkStore
from tests.support.flink.cases import CANONICAL, HASHMAP, OLD, content
from tests.support.flink.matrix import CASES, Case
from tests.support.flink.rewritten import STATES, keyed, rewritten


def test_an_operator_has_another_uid_and_all_else_is_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = rewritten(capsys, tmp_path, HASHMAP, "moved: [{from: totals, to: sums}]")
    assert [(c["action"], c["operator"], c["no_effect"]) for c in done["changes"]] == [("moved", "totals", None)]
    before, after = FlinkStore(str(HASHMAP)), FlinkStore(str(tmp_path / "copy"))
    moved = {operator_id("totals"): operator_id("sums")}
    assert content(after) == {(moved.get(id, id), name): rows for (id, name), rows in content(before).items()}
    assert after.find_operator(after.resolve(None), "sums").uid == "sums"
    assert done["command"] == f"flink run -s file://{tmp_path}/copy -Dstate.backend.type=hashmap JOB.jar"


def test_a_uid_that_only_its_hash_proves_is_moved_in_metadata_that_stores_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rewritten(capsys, tmp_path, OLD, "moved: [{from: totals, to: sums}]")
    copy = FlinkStore(str(tmp_path / "copy"))
    (operator,) = [o for o in copy.metadata(4).operators if o.id == operator_id("sums")]
    assert (operator.uid, copy.metadata(4).version) == (None, 4)


def test_an_operator_moves_to_a_hash_and_by_its_hash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rewritten(capsys, tmp_path, HASHMAP, f"moved: [{{from: {operator_id('totals')}, to: '{'0' * 31}a'}}]")
    copy = FlinkStore(str(tmp_path / "copy"))
    assert copy.find_operator(copy.resolve(None), "0" * 31 + "a").uid is None


def test_an_operator_goes_with_all_that_it_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = rewritten(capsys, tmp_path, HASHMAP, "removed: [types, op-state]")
    before, after = FlinkStore(str(HASHMAP)), FlinkStore(str(tmp_path / "copy"))
    gone = {operator_id("types"), operator_id("op-state")}
    assert content(after) == {key: rows for key, rows in content(before).items() if key[0] not in gone}
    assert done["before"]["operators"] - done["after"]["operators"] == 2
    assert done["before"]["bytes"] - done["after"]["bytes"] == sum(c["bytes"] for c in done["changes"])
    sizes = [path.stat().st_size for path in (tmp_path / "copy").iterdir() if path.name != "_metadata"]
    assert (done["files"], done["bytes"]) == (len(sizes), sum(sizes))


def test_a_damaged_operator_can_be_removed_and_without_that_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = Path(shutil.copytree(CANONICAL, tmp_path / "broken"))
    files = file_handles(FlinkStore(str(broken)).metadata(3))
    lost = next(handle.path for operator, _, handle in files if operator.uid == "types")
    (broken / lost).unlink()
    error = rewritten(capsys, tmp_path, broken, "moved: [{from: totals, to: sums}]", code=4)
    assert lost in error["message"]
    rewritten(capsys, tmp_path, broken, "removed: [types]")


@pytest.mark.sample(12)
@pytest.mark.parametrize("case", [case for case in CASES if "changelog" not in case.name], ids=str)
def test_one_state_goes_from_every_layout(
    matrix: Path, case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, owner = keyed(matrix, case)
    lines = f"removed: [{{operator: {owner}, state: list}}, {{operator: {owner}, state: map}}]"
    done = rewritten(capsys, tmp_path, matrix / case.folder, lines, "--search", matrix / case.version / case.name)
    copy = FlinkStore(str(tmp_path / "copy"))
    assert content(copy) == {key: rows for key, rows in before.items() if key not in {(owner, "list"), (owner, "map")}}
    assert [(c["before"], c["rows"]) for c in done["changes"]] == [("list", 20), ("map", 40)]
    for subtask in copy.find_operator(copy.resolve(None), owner).subtasks:
        assert subtask.managed_keyed is None or isinstance(subtask.managed_keyed, KeyGroupsHandle)


@pytest.mark.parametrize("name", ["heap-compressed", "rocksdb"])
def test_keys_and_namespaces_that_are_both_text_stay_apart(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "rocksdb":
        pytest.importorskip("rocksdict", reason="needs the package rocksdict")
    for folder in sorted((STATES / name).iterdir()):
        store = FlinkStore(str(folder))
        before = content(store)
        (owner,) = {id for id, state in before if state == "v"}
        rewritten(capsys, tmp_path, folder, f"removed: [{{operator: {owner}, state: v}}]")
        assert content(FlinkStore(str(tmp_path / "copy"))) == {
            key: rows for key, rows in before.items() if key != (owner, "v")
        }
        shutil.rmtree(tmp_path / "copy")


@pytest.mark.parametrize("name", ["heap-compressed", "rocksdb"])
def test_an_entry_of_a_map_is_found_behind_a_key_and_a_namespace_that_are_text(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "rocksdb":
        pytest.importorskip("rocksdict", reason="needs the package rocksdict")
    folder = next(path for path in (STATES / name).iterdir() if path.name.startswith("savepoint"))
    before = content(FlinkStore(str(folder)))
    (owner,) = {id for id, state in before if state == "m"}
    row = json.loads(before[owner, "m"][0])
    lines = f"removed: [{{operator: {owner}, state: m, key: '{row['key']}', map_key: '{row['map_key']}'}}]"
    rewritten(capsys, tmp_path, folder, lines)
    after = content(FlinkStore(str(tmp_path / "copy")))
    assert after == {key: rows[1:] if key == (owner, "m") else rows for key, rows in before.items()}


def test_operator_state_goes_and_the_others_of_its_stream_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = "removed: [{operator: op-state, state: buffer}, {operator: op-state, state: rules-broadcast}]"
    done = rewritten(capsys, tmp_path, HASHMAP, lines)
    before, after = content(FlinkStore(str(HASHMAP))), content(FlinkStore(str(tmp_path / "copy")))
    gone = {(operator_id("op-state"), "buffer"), (operator_id("op-state"), "rules-broadcast")}
    assert after == {key: rows for key, rows in before.items() if key not in gone}
    assert [(c["before"], c["rows"]) for c in done["changes"]] == [("list", 10), ("broadcast", 2)]


def test_a_file_does_for_its_own_copy_too_and_says_that_nothing_is_left_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = "moved: [{from: totals, to: sums}]\nremoved: [types, {operator: op-state, state: buffer}]"
    rewritten(capsys, tmp_path, HASHMAP, lines)
    first = (tmp_path / "copy").rename(tmp_path / "first")
    done = rewritten(capsys, tmp_path, first, lines)
    assert [c["no_effect"] for c in done["changes"]] == [
        "the snapshot has sums already", "the snapshot has no such operator", "the operator has no such state",
    ]  # fmt: skip
    assert content(FlinkStore(str(tmp_path / "copy"))) == content(FlinkStore(str(first)))


def test_what_moves_into_the_place_of_another_stays_there_when_the_file_is_used_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = "removed: [totals]\nmoved: [{from: join, to: totals}]"
    rewritten(capsys, tmp_path, HASHMAP, lines)
    first = (tmp_path / "copy").rename(tmp_path / "first")
    done = rewritten(capsys, tmp_path, first, lines)
    assert [c["no_effect"] for c in done["changes"]] == ["it is what join became", "the snapshot has totals already"]
    assert content(FlinkStore(str(tmp_path / "copy"))) == content(FlinkStore(str(first)))


def test_what_has_moved_is_meant_by_its_old_name_when_the_file_is_used_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (
        "moved: [{from: totals, to: sums}]\n"
        "removed: [{operator: totals, state: count}]\n"
        "set: [{operator: totals, max_parallelism: 32}, {operator: totals, state: sum, key: user-1, value: 7}]"
    )
    rewritten(capsys, tmp_path, CANONICAL, lines)
    first = (tmp_path / "copy").rename(tmp_path / "first")
    done = rewritten(capsys, tmp_path, first, lines)
    assert [c["no_effect"] for c in done["changes"]] == [
        "the snapshot has sums already", "the operator has no such state", "it has that already", None,
    ]  # fmt: skip
    assert content(FlinkStore(str(tmp_path / "copy"))) == content(FlinkStore(str(first)))


def test_an_operator_that_has_the_uid_already_does_not_move(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for old, new in (("Totals per user", "totals"), ("totals", operator_id("totals")), ("totals", "totals")):
        done = rewritten(capsys, tmp_path, HASHMAP, f"moved: [{{from: {old}, to: {new}}}]")
        assert [c["no_effect"] for c in done["changes"]] == ["it has that already"]
        shutil.rmtree(tmp_path / "copy")


def test_a_copy_is_rewritten_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the first wrote has names that the second must not give away."""
    rewritten(capsys, tmp_path, CANONICAL, "removed: [{operator: totals, state: sum}, {operator: join, state: pair}]")
    first = (tmp_path / "copy").rename(tmp_path / "first")
    rewritten(capsys, tmp_path, first, "removed: [{operator: totals, state: count}]")
    gone = {(operator_id("totals"), "sum"), (operator_id("join"), "pair"), (operator_id("totals"), "count")}
    before = content(FlinkStore(str(CANONICAL)))
    assert content(FlinkStore(str(tmp_path / "copy"))) == {k: rows for k, rows in before.items() if k not in gone}


def test_a_dry_run_says_the_same_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = "removed: [{operator: totals, state: sum}]"
    dry = rewritten(capsys, tmp_path, CANONICAL, lines, "--dry-run")
    assert (dry["to"], dry["command"], dry["files"]) == (None, None, None)
    assert not (tmp_path / "copy").exists()
    done = rewritten(capsys, tmp_path, CANONICAL, lines)
    assert [dry[name] for name in ("changes", "before", "after")] == [
        done[name] for name in ("changes", "before", "after")
    ]
    assert main(["rewrite", str(CANONICAL), "--changes", str(tmp_path / "changes.yaml")]) == 0
    out = capsys.readouterr().out
    rows = len(content(FlinkStore(str(CANONICAL)))[operator_id("totals"), "sum"])
    assert f"line 2: removed totals, state sum: reducing, {rows:,} rows" in " ".join(out.split())
    assert "Nothing was written. Next: abs rewrite" in out
