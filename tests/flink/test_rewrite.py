"""Changed copies of snapshots: what a file of changes asks for is done, and all else stays as it was."""

from __future__ import annotations

import contextlib
import json
import shutil
import struct
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abscli.cli.main import main
from abscli.report.findings import Code
from abscli.stores.flink.verdict import check_epoch
from formats.flink.bytes import encode_utf
from formats.flink.checks import stream_checks
from formats.flink.connectors import old_kafka
from formats.flink.connectors.enumerators import enumerator
from formats.flink.connectors.splits import moved_to, read_element, splits
from formats.flink.evidence import gather
from formats.flink.facts import file_handles
from formats.flink.ids import operator_id
from formats.flink.metadata.file import encode
from formats.flink.metadata.handles import InlineHandle, KeyGroupsHandle, OperatorState
from formats.flink.rewriting.changes import (
    MoveOperator,
    RemoveOperator,
    RemoveSplit,
    RemoveState,
    SetPosition,
    parse_changes,
)
from formats.flink.rewriting.encoding import CannotEncode, encoded
from formats.flink.rewriting.enumerators import with_waiting
from formats.flink.rewriting.keys import plain
from formats.flink.rewriting.operators import Rewriter
from formats.flink.rewriting.prefix import CannotRewrite
from formats.flink.rewriting.resolve import Work
from formats.flink.rewriting.sink import Measured
from formats.flink.store import FlinkStore
from formats.flink.types.codecs import codec
from formats.flink.types.serializers import Snapshot
from formats.user_file.mistakes import BadFile
from tests.support.archives import extract
from tests.support.flink.cases import CANONICAL, CHANGELOG, HASHMAP, OLD, UNALIGNED, content
from tests.support.flink.matrix import CASES, Case, needs, opened, unpack
from tests.support.schemas import checked

SQL = next((HASHMAP.parents[1] / "sql").iterdir())
STATES = HASHMAP.parents[1] / "state"
"""Keys and namespaces that are both text, timers, time to live (tests/flink_java/StateJob.java)."""


NEWEST = [case for case in CASES if case.version == "2.3" and "changelog" not in case.name]


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("matrix"))


def rewritten(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, store: Path, changes: str, *options: object, code: int = 0
) -> dict[str, Any]:
    """What `abs rewrite` says of a file of changes; with code 0 the copy is at tmp_path / copy."""
    file = tmp_path / "changes.yaml"
    file.write_text("version: 1\n" + changes)
    done = main([*map(str, ["rewrite", store, "--changes", file, "--to", tmp_path / "copy", *options]), "-o", "json"])
    out, err = capsys.readouterr()
    assert done == code, err
    if code:
        assert not (tmp_path / "copy").exists()
    return checked(out) if code == 0 else checked(err.splitlines()[-1])


def keyed(matrix: Path, case: Case) -> tuple[dict[tuple[str, str | None], list[str]], str]:
    """What a snapshot of the matrix has, and the id of the operator that keeps it."""
    needs(case)
    store, _ = opened(matrix, case)
    before = content(store)
    (owner,) = {id for id, name in before if name == "list"}
    return before, owner


def test_an_operator_has_another_uid_and_all_else_is_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = rewritten(capsys, tmp_path, HASHMAP, "moved: [{from: totals, to: sums}]")
    assert [(c["action"], c["operator"], c["spent"]) for c in done["changes"]] == [("moved", "totals", None)]
    before, after = FlinkStore(str(HASHMAP)), FlinkStore(str(tmp_path / "copy"))
    moved = {operator_id("totals"): operator_id("sums")}
    assert content(after) == {(moved.get(id, id), name): rows for (id, name), rows in content(before).items()}
    assert after.find_operator(after.resolve(None), "sums").uid == "sums"
    assert done["command"] == f"flink run -s file://{tmp_path}/copy JOB.jar"


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
    assert [c["spent"] for c in done["changes"]] == [
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
    assert [c["spent"] for c in done["changes"]] == ["it is what join became", "the snapshot has totals already"]
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
    assert [c["spent"] for c in done["changes"]] == [
        "the snapshot has sums already", "the operator has no such state", "it has that already", None,
    ]  # fmt: skip
    assert content(FlinkStore(str(tmp_path / "copy"))) == content(FlinkStore(str(first)))


def test_an_operator_that_has_the_uid_already_does_not_move(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for old, new in (("Totals per user", "totals"), ("totals", operator_id("totals")), ("totals", "totals")):
        done = rewritten(capsys, tmp_path, HASHMAP, f"moved: [{{from: {old}, to: {new}}}]")
        assert [c["spent"] for c in done["changes"]] == ["it has that already"]
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


# -- sources ----------------------------------------------------------------------------------------------


def positions(store: FlinkStore) -> dict[str, int | None]:
    """Where each split is read on."""
    epoch = store.resolve(None)
    return {
        split.id or "?": split.next
        for operator in store.metadata(epoch).operators
        for subtask in operator.subtasks
        for split in splits(subtask, store.streams(epoch)) or ()
    }


def test_a_split_is_read_on_elsewhere_and_another_goes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = positions(FlinkStore(str(UNALIGNED)))
    one, other = sorted(before)
    lines = (
        f"set: [{{operator: numbers, split: '{one}', position: 42}}]\n"
        f"removed: [{{operator: numbers, split: '{other}'}}, {{operator: numbers, split: gone-1}}]"
    )
    done = rewritten(capsys, tmp_path, UNALIGNED, lines)
    assert positions(FlinkStore(str(tmp_path / "copy"))) == {one: 42}
    assert [(c["split"], c["before"], c["after"], c["spent"]) for c in done["changes"]] == [
        (one, f"at {before[one]}", "at 42", None),
        (other, f"at {before[other]}", None, None),
        ("gone-1", None, None, "the operator has no such split"),
    ]
    assert any("enumerator" in note for note in done["notes"])


def test_a_kafka_partition_takes_an_offset_and_words() -> None:
    body = encode_utf("orders")
    split = len(body).to_bytes(2, "big") + body + struct.pack(">iqq", 3, 100, -(1 << 63))
    data = struct.pack(">ii", 0, len(split)) + split
    element = struct.pack(">i", len(data)) + data
    moved = moved_to(element, 7)
    assert moved is not None
    assert read_element(element).next == 100
    assert read_element(moved) == msgspec.structs.replace(read_element(element), next=7)
    (line,) = parse_changes(b"version: 1\nset: [{operator: o, split: orders-3, position: earliest}]", "f").lines
    assert isinstance(line, SetPosition)
    assert line.position == -2


@pytest.mark.parametrize("times", [(5, 6), ()])
@pytest.mark.parametrize("position", [(), (-1, 7), (64, 2)])
def test_a_file_is_read_again_but_for_some_of_its_records(times: tuple[int, ...], position: tuple[int, ...]) -> None:
    def text(value: str) -> bytes:
        return bytes([1, len(value) + 1]) + value.encode()

    path = b"\1" + text("s3") + b"\0" + text("shop") + struct.pack(">i", -1) + text("/in/a.txt") + b"\0\0"
    hosts = struct.pack(">ih", 1, 4) + b"host"
    fields = struct.pack(f">{2 + len(times)}q", 100, 50, *times)
    end = struct.pack(f">?{len(position)}q", bool(position), *position)
    body = struct.pack(">h", 3) + b"001" + path + fields + hosts + end
    data = struct.pack(">ii", 1, len(body)) + body
    element = struct.pack(">i", len(data)) + data
    split = read_element(element)
    assert (split.kind, split.id) == ("file", "s3://shop/in/a.txt:100")
    assert split.next == (7 if position == (-1, 7) else None if position else 0)
    moved = moved_to(element, 3)
    assert moved is not None
    assert (read_element(moved).next, read_element(moved).id) == (3, split.id)
    assert moved_to(element, -1) is None


def coordinator(version: int, state: bytes) -> OperatorState:
    data = struct.pack(">iii", 1, version, len(state)) + state
    return OperatorState("0" * 32, None, None, 1, 1, InlineHandle("state", data), ())


def utf(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


@pytest.mark.parametrize("connector", ["file", "numbers", "kafka-2", "kafka-3", "kinesis"])
def test_a_split_that_no_task_has_yet_goes_or_is_read_on_elsewhere(
    connector: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the file source as it wrote it, of the others as our own writer does; two wait, and what tasks have stays."""
    with tarfile.open(HASHMAP.parents[1] / "connectors.tar.xz") as archive:
        extract(archive, tmp_path)
    (folder,) = (tmp_path / "files").iterdir()
    store = FlinkStore(str(folder))
    source = store.find_operator(store.resolve(None), "lines")
    partitions = [utf("orders") + struct.pack(">i", number) for number in range(3)]
    if connector == "numbers":
        source = coordinator(1, struct.pack(">i", 2) + utf("7") + struct.pack(">qq", 3, 9) + utf("8") + bytes(16))
    elif connector == "kafka-2":
        body = b"".join(one + struct.pack(">i", number) for number, one in enumerate(partitions))
        source = coordinator(2, struct.pack(">i", 3) + body + b"\1")
    elif connector == "kafka-3":
        bodies = [one + struct.pack(">qq", -2, -(1 << 63)) for one in partitions]
        framed = [struct.pack(">i", len(one)) + one + struct.pack(">i", i) for i, one in enumerate(bodies)]
        source = coordinator(3, struct.pack(">ii", 3, 0) + b"".join(framed) + b"\0")
    elif connector == "kinesis":
        shards = b""
        for number in range(3):
            split = utf("arn:aws:kinesis:us-east-1:1:stream/orders") + utf(f"shard-{number}") + utf("LATEST") + b"\0"
            split += struct.pack(">i", 0) + utf("0") + utf("9") + b"\0"
            shards += struct.pack(">i", len(split)) + split + struct.pack(">i", number)
        source = coordinator(1, b"\1" + utf("shard-2") + struct.pack(">ii", 3, 2) + shards)
    before = enumerator(source)
    assert before is not None
    one, other, *_ = before.splits
    assert with_waiting(source, lambda split, body: body) == source.coordinator, "byte for byte"
    work = Work(source)
    work.splits = {one.id or "": RemoveSplit(operator="o", split=one.id or "")}
    copy = rewriter().changed(work)
    after = enumerator(copy)
    assert after is not None
    assert after == msgspec.structs.replace(before, splits=before.splits[1:])
    position = SetPosition(operator="o", split=other.id or "", position=5)
    work.splits = {other.id or "": position}
    if connector in ("kafka-2", "kinesis"):
        with pytest.raises(CannotRewrite, match="position is not known"):
            rewriter().changed(work)
        return
    if connector == "numbers":
        with pytest.raises(CannotRewrite, match="ends at 0, position 5 is behind that"):
            rewriter().changed(work)
        work.splits = {one.id or "": SetPosition(operator="o", split=one.id or "", position=5)}
        other = one
    own = rewriter()
    after = enumerator(own.changed(work))
    assert after is not None
    assert {split.id: split.next for split in after.splits} == {
        split.id: 5 if split.id == other.id else split.next for split in before.splits
    }
    (met,) = own.met.values()
    stood = {"file": "at 0", "numbers": "at 3", "kafka-3": "at earliest"}
    assert (met.before, met.after) == (f"with no task yet, {stood[connector]}", "at 5")


def rewriter() -> Rewriter:
    """Of an operator without keyed state, whose streams are not asked for."""
    store = FlinkStore(str(HASHMAP))
    epoch = store.resolve(None)
    return Rewriter(store.metadata(epoch), store.streams(epoch), Measured())


def test_positions_of_the_old_source_of_kafka_go_and_are_set() -> None:
    """FlinkKafkaConsumer keeps the offset that was read last; Kafka's words stand for numbers of its own."""
    old = bytes.fromhex("5701879998ff0802016f72646572f30000000000000019")
    assert old_kafka.read_position(old_kafka.position_moved_to(old, 40)).next == 40
    for number, word in ((-1, "latest"), (-2, "earliest"), (-3, "committed")):
        moved = old_kafka.read_position(old_kafka.position_moved_to(old, number))
        assert (moved.id, moved.next, moved.position) == ("orders-1", None, word)


# -- keys -------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("case", NEWEST, ids=str)
def test_a_key_that_is_not_there_leaves_the_operator_as_flink_wrote_it(
    matrix: Path, case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needs(case)
    store, epoch = opened(matrix, case)
    (owner,) = {id for id, name in content(store) if name == "list"}
    lines = f"removed: [{{operator: {owner}, key: nobody}}, {{operator: {owner}, state: map, key: key-6, map_key: q}}]"
    done = rewritten(capsys, tmp_path, matrix / case.folder, lines, "--search", matrix / case.version / case.name)
    assert [c["spent"] for c in done["changes"]] == ["the operator has no such key"] * 2
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


SHAPES = st.recursive(
    st.sampled_from(["string", "long", "int", "short", "byte", "boolean", "double", "bytes"]).map(
        lambda kind: Snapshot(kind, kind, 3)
    ),
    lambda inner: st.one_of(
        inner.map(lambda part: Snapshot("list", "list", 1, nested=(part,))),
        st.lists(inner, min_size=1, max_size=4).map(lambda parts: Snapshot("tuple", "tuple", 2, nested=tuple(parts))),
        st.lists(inner, min_size=1, max_size=4).map(
            lambda parts: Snapshot("row", "row", 3, nested=tuple(parts), number=1)
        ),
        st.lists(inner, min_size=1, max_size=4).map(
            lambda parts: Snapshot(
                "pojo", "pojo", 2, "Order", tuple(parts), tuple(f"field{i}" for i in range(len(parts)))
            )
        ),
    ),
    max_leaves=6,
)  # fmt: skip
TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def values_of(snapshot: Snapshot) -> st.SearchStrategy[Any]:
    """Values as `abs state -o json` prints them."""
    match snapshot.kind:
        case "string":
            return TEXT
        case "boolean":
            return st.booleans()
        case "double":
            return st.floats(allow_nan=False)
        case "bytes":
            return st.binary().map(lambda data: "0x" + data.hex())
        case "list":
            return st.lists(values_of(snapshot.nested[0]), max_size=3)
        case "pojo":
            fields = zip(snapshot.names, snapshot.nested, strict=True)
            return st.fixed_dictionaries({name: st.none() | values_of(part) for name, part in fields})
        case "tuple":
            return st.fixed_dictionaries({f"f{i}": values_of(part) for i, part in enumerate(snapshot.nested)})
        case "row":
            parts = {f"f{i}": st.none() | values_of(part) for i, part in enumerate(snapshot.nested)}
            return st.fixed_dictionaries({"row_kind": st.just("+I"), **parts})
        case kind:
            bits = {"long": 63, "int": 31, "short": 15, "byte": 7}[kind]
            return st.integers(-(1 << bits), (1 << bits) - 1)


@given(st.data())
def test_a_value_that_is_written_is_the_value_that_is_read(data: st.DataObject) -> None:
    snapshot = data.draw(SHAPES)
    value = data.draw(values_of(snapshot))
    one = codec(snapshot)
    written = encoded(one, value)
    back, end = one.read(written, 0)
    assert end == len(written)
    assert plain(one, back) == value


@given(SHAPES, st.none() | st.booleans() | st.integers() | TEXT | st.lists(st.integers()) | st.just({"f9": 1}))
def test_a_value_of_another_type_is_refused_and_nothing_else_happens(snapshot: Snapshot, value: Any) -> None:
    with contextlib.suppress(CannotEncode):
        encoded(codec(snapshot), value)


# -- key groups -------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("store", "lines", "message"),
    [
        (HASHMAP, "moved: [{from: totals, to: join}]", "'join' is an operator of the snapshot, which stays"),
        (HASHMAP, "moved: [{from: nobody, to: noone}]", "neither 'nobody' nor 'noone' is there"),
        (HASHMAP, "moved: [{from: totals, to: join}, {from: join, to: totals}]", "is also moved from"),
        (HASHMAP, f"moved: [{{from: totals, to: join}}, {{from: {operator_id('join')}, to: totals}}]", "is also moved"),
        (HASHMAP, "moved: [{from: Totals per user, to: join}, {from: join, to: a}]", "is also moved from"),
        (HASHMAP, "moved: [{from: totals, to: x}, {from: join, to: x}]", "two lines move to 'x'"),
        (HASHMAP, "moved: [{from: totals, to: x}]\nremoved: [{operator: x, state: sum}]", "'x' is what 'totals'"),
        (HASHMAP, "moved: [{from: totals, to: x}]\nset: [{operator: x, max_parallelism: 9}]", "'x' is what 'totals'"),
        (HASHMAP, "removed: [totals, {operator: totals, state: sum}]", "'totals' is removed in line 2"),
        (HASHMAP, "removed: [totals, totals]", "a second line removes 'totals'"),
        (HASHMAP, "removed: [{operator: totals}]", "names an operator alone"),
        (HASHMAP, "gone: [totals]", "unknown key 'gone'"),
        (HASHMAP, "set: [{operator: nobody, max_parallelism: 7}]", "no operator 'nobody'"),
        (HASHMAP, "set: [{operator: totals, max_parallelism: 1}]", "'totals' has 2 tasks"),
        (HASHMAP, "set: [{operator: totals, state: sum}]", "an entry of set has state"),
        (HASHMAP, "removed: [{operator: totals, state: sum, split: x}]", "which do not go together"),
        (HASHMAP, "set: [{operator: src-orders, split: x, position: 3}]", "it has no split 'x'"),
        (HASHMAP, "set: [{operator: src-orders, split: x, position: -3}]", "a whole number from 0 on"),
        (UNALIGNED, "set: [{operator: counter, max_parallelism: 99}]", "the checkpoint is unaligned"),
        (CANONICAL, "set: [{operator: totals, state: sum, key: user-1, value: x}]", "'x' is no"),
        (CANONICAL, "set: [{operator: totals, state: nothing, key: user-1, value: x}]", "it has no state 'nothing'"),
        (CANONICAL, "set: [{operator: totals, state: per-item, key: user-1, value: {}}]", "only its keys as wholes"),
        (CANONICAL, "removed: [{operator: totals, state: sum, key: user-1, map_key: x}]", "is no map"),
        (CANONICAL, "set: [{operator: totals, state: opaque, key: user-1, value: 1}]", "are not written here"),
        (CANONICAL, "removed: [{operator: totals, key: {user: 1}}]", "the key has the columns key"),
        (CANONICAL, "set: [{operator: totals, state: sum, key: user-1, value: 1}, "
         "{operator: totals, state: sum, key: {key: user-1}, value: 2}]", "are of the same key of state 'sum'"),
        (CANONICAL, "set: [{operator: totals, state: sum, key: user-1, value: 1}]\nremoved: "
         "[{operator: totals, state: sum, key: {key: user-1}}]", "lines 2 and 3 are of the same key"),
        (HASHMAP, "moved: totals", "moved must be a list"),
        (CHANGELOG, "removed: [{operator: history, state: last}]", "changelog backend"),
        (HASHMAP, "removed: [{operator: totals, state: sum}]", "(KryoSerializer), whose ends only its class knows"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_reason(
    store: Path, lines: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in rewritten(capsys, tmp_path, store, lines, code=2)["message"]


def test_a_reason_that_many_operators_share_is_given_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = "set:\n" + "".join(
        f"- {{operator: {one.id}, max_parallelism: 99}}\n"
        for one in FlinkStore(str(UNALIGNED)).metadata(FlinkStore(str(UNALIGNED)).resolve(None)).operators
    )
    message = rewritten(capsys, tmp_path, UNALIGNED, lines, code=2)["message"]
    assert message.count("the checkpoint is unaligned") == 1
    assert ", lines 3 to " in message
    assert " more operators: max_parallelism" in message


def test_an_unaligned_checkpoint_says_what_goes_with_an_operator(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = rewritten(capsys, tmp_path, UNALIGNED, "removed: [slow]", "--dry-run")
    assert any("in flight" in note for note in done["notes"])


def test_a_file_of_changes_is_read_with_the_line_of_each() -> None:
    text = b"version: 1\nmoved:\n- {from: a, to: b}\nremoved:\n- c\n- {operator: d, state: e}\n"
    assert parse_changes(text, "f").lines == (
        MoveOperator(operator="a", to="b", line=3, column=3),
        RemoveOperator(operator="c", line=5, column=3),
        RemoveState(operator="d", state="e", line=6, column=3),
    )
    with pytest.raises(BadFile, match="f:1:1: changes: version is missing"):
        parse_changes(b"removed: [a]", "f")


def test_a_store_of_another_system_is_not_rewritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    golden = Path(__file__).parents[1] / "data" / "golden-store-2"
    assert "not rewritten" in rewritten(capsys, tmp_path, golden, "", code=2)["message"]
