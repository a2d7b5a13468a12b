"""Snapshots that Flink 1.20, 2.0 and 2.3 made, over backends, layouts, compression and changelogs: all are whole.

tests/flink_java/MatrixJob.java made them; what every key holds in the end follows from its number. The paths in them
are of a machine that is not here.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from abscli.cli.main import main
from abscli.report.findings import Code
from abscli.stores.flink.plan import plan_flink
from abscli.stores.flink.restore import restore as restore_flink
from abscli.stores.flink.verdict import check_epoch
from abscli.stores.reasons import NoPlan
from formats.flink.checks import stream_checks
from formats.flink.evidence import gather
from formats.flink.facts import file_handles
from formats.flink.files.folders import NotLookedAt
from formats.flink.files.resolve import How
from formats.flink.metadata.file import encode, parse
from formats.flink.metadata.handles import (
    ChangelogHandle,
    FileChangelogHandle,
    FileHandle,
    KeyedHandle,
    RelativeHandle,
    StreamHandle,
    changelogs,
    streams,
)
from formats.flink.store import FlinkStore
from formats.view import Status
from tests.support.flink.matrix import CASES, KEYS, Case, needs, opened, unpack
from tests.support.schemas import checked

UNREAD = {Code.DIGEST_MISMATCH, Code.ROW_MISMATCH, Code.POSITION_REGRESSED, Code.TOPOLOGY_MISSING}
"""What Flink's format does not let anyone check."""


@pytest.fixture(scope="module")
def data() -> Path:
    """The archive, unpacked: not to be changed."""
    return unpack()


def rows(store: FlinkStore, epoch: int, state: str) -> list[dict[str, Any]]:
    owner = next(o for o in store.metadata(epoch).operators if any(s.managed_keyed for s in o.subtasks))
    return [row for batch in store.state(epoch, owner.id, state) for row in batch.to_pylist()]


def values(store: FlinkStore, epoch: int, state: str) -> dict[int, Any]:
    """What a state holds, by the number of its key."""
    return {int(row["key"].removeprefix("key-")): row["value"] for row in rows(store, epoch, state)}


def test_the_matrix_is_what_it_says() -> None:
    assert {case.version for case in CASES} == {"1.20", "2.0", "2.3"}
    for version in ("1.20", "2.0", "2.3"):
        names = {case.name for case in CASES if case.version == version}
        assert {"hashmap", "hashmap-snappy", "rocksdb", "rocksdb-snappy", "rocksdb-incremental"} <= names
        assert {"changelog-files-compressed", "changelog-files-plain", "changelog-memory", "merging"} <= names
        assert sum(case.version == version and case.kind == "savepoint" for case in CASES) >= 8


@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_is_whole_and_nothing_of_it_stays_unread(data: Path, case: Case) -> None:
    needs(case)
    store, epoch = opened(data, case)
    report, why, _ = check_epoch(gather(store, epoch, checks=stream_checks()))
    assert (report.verdict, report.findings) == (Status.COMPLETE, ())
    assert Code.UNREADABLE not in why, why.get(Code.UNREADABLE)
    assert Code.MISPLACED_KEY not in why, why.get(Code.MISPLACED_KEY)
    assert set(why) - UNREAD <= {Code.CONSERVATION, Code.MISSING_LOG, Code.UNREFERENCED_FILE}


@pytest.mark.sample(15)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_holds_what_the_job_put_there(data: Path, case: Case) -> None:
    needs(case)
    store, epoch = opened(data, case)
    numbers = range(KEYS)
    assert values(store, epoch, "text") == {k: f"text {k}" for k in numbers}
    assert values(store, epoch, "sum") == {k: 1 + k for k in numbers}
    assert values(store, epoch, "list") == {k: [f"a{k}", "b,", ""] for k in numbers}
    assert values(store, epoch, "uuid") == {k: _uuid(k, -k) for k in numbers}
    assert values(store, epoch, "when") == {k: "2024-02-29T01:02:03" + (f".{k:09d}" if k else "") for k in numbers}
    assert values(store, epoch, "prices") == {k: [f"{k}.50", "1"] for k in numbers}
    assert {k: json.loads(v) for k, v in values(store, epoch, "any").items()} == {
        k: [["k", "PT0S" if k == 0 else f"PT{k}S"]] if k % 3 == 0 else ["a", 1, k] for k in numbers if k % 3 != 1
    }
    found = {(row["key"], row["map_key"]): row["value"] for row in rows(store, epoch, "map")}
    assert found == {(f"key-{k}", name): value for k in numbers for name, value in (("x", k), ("y", -k))}
    timers = next(s.name for s in store.states(epoch) if s.name and "event" in s.name and "timer" in s.name)
    assert sorted(row["timestamp"] for row in rows(store, epoch, timers)) == [7000 + k for k in numbers]


def _uuid(high: int, low: int) -> str:
    digits = f"{high & (1 << 64) - 1:016x}{low & (1 << 64) - 1:016x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


@pytest.mark.sample(12)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_can_be_planned_and_its_copy_is_as_whole(data: Path, case: Case, tmp_path: Path) -> None:
    needs(case)
    store, epoch = opened(data, case)
    plan = plan_flink(store, epoch=epoch, checks=stream_checks())
    copied = restore_flink(plan, store, str(tmp_path / "copy"))
    assert copied.files == plan.body.files
    copy = FlinkStore(str(tmp_path / "copy"))
    report, why, _ = check_epoch(gather(copy, copy.epoch_numbers()[0], checks=stream_checks()))
    assert (report.verdict, report.findings) == (Status.COMPLETE, ())
    assert Code.UNREADABLE not in why
    assert values(copy, copy.epoch_numbers()[0], "sum") == values(store, epoch, "sum")


# -- files of changes -------------------------------------------------------------------------------------

FILES = [case for case in CASES if case.name.startswith("changelog-files") and case.kind == "checkpoint"]


def streams_of_changes(store: FlinkStore, epoch: int) -> list[FileHandle]:
    found = []
    for operator in store.metadata(epoch).operators:
        for subtask in operator.subtasks:
            handle = subtask.managed_keyed
            for part in handle.changes if isinstance(handle, ChangelogHandle) else ():
                assert isinstance(part, FileChangelogHandle)
                found += [change.stream for change in part.streams if isinstance(change.stream, FileHandle)]
    return list(dict.fromkeys(found))


def test_files_of_changes_are_there_plain_and_compressed_and_shared_by_subtasks(data: Path) -> None:
    firsts = set()
    offsets = set()
    for case in FILES:
        store, epoch = opened(data, case)
        for stream in streams_of_changes(store, epoch):
            place = store.streams(epoch).place(stream)
            assert place is not None
            first = store.streams(epoch).read(stream, 0, 1)[0]
            assert (place.bytes == stream.size + 1) is (first == 0), "neither size counts the byte in front"
            firsts.add(first)
        for operator in store.metadata(epoch).operators:
            for subtask in operator.subtasks:
                if isinstance(subtask.managed_keyed, ChangelogHandle):
                    for part in subtask.managed_keyed.changes:
                        assert isinstance(part, FileChangelogHandle)
                        offsets.update(change.offset for change in part.streams)
    assert firsts == {0, 1}
    assert max(offsets) > 0


@pytest.mark.parametrize("compressed", [False, True])
def test_a_damaged_file_of_changes_is_found(data: Path, tmp_path: Path, compressed: bool) -> None:
    name = "changelog-files-compressed" if compressed else "changelog-files-plain"
    case = next(case for case in FILES if case.name == name and case.version == "2.3")
    folder = Path(shutil.copytree(data / case.version / case.name, tmp_path / case.name))
    moved = dataclasses.replace(case, folder=str(folder / case.folder.split("/", 2)[2]))
    store = FlinkStore(moved.folder, search=[str(folder)])
    assert store.only is not None
    place = store.streams(store.only).place(streams_of_changes(store, store.only)[0])
    assert place is not None
    file = Path(store.folders[place.folder].storage.root) / place.path
    whole = file.read_bytes()
    for broken, code in (
        (whole[:-1], Code.UNREADABLE if compressed else Code.SIZE_MISMATCH),
        (whole[:5], Code.SIZE_MISMATCH),
        (b"\7" + whole[1:], Code.UNREADABLE),
        (bytes([whole[0] ^ 1]) + whole[1:], None),
        (whole[:-20] + bytes(20), Code.UNREADABLE),
    ):
        file.write_bytes(broken)
        again = FlinkStore(moved.folder, search=[str(folder)])
        report, _, _ = check_epoch(gather(again, store.only, checks=stream_checks()))
        assert report.verdict is Status.DAMAGED, (len(broken), compressed)
        assert code is None or code in {finding.code for finding in report.findings}
        assert isinstance(plan_flink(again, checks=stream_checks()), NoPlan)


def test_a_plain_file_of_changes_of_another_size_is_found_without_reading_it(data: Path, tmp_path: Path) -> None:
    case = next(case for case in FILES if case.name == "changelog-files-plain" and case.version == "1.20")
    folder = Path(shutil.copytree(data / case.version / case.name, tmp_path / case.name))
    file = max((folder / "dstl").rglob("*"), key=lambda path: path.stat().st_size if path.is_file() else 0)
    file.write_bytes(file.read_bytes()[:-7])
    store = FlinkStore(str(folder / case.folder.split("/", 2)[2]), search=[str(folder)])
    assert store.only is not None
    report, _, _ = check_epoch(gather(store, store.only, quick=True))
    assert {finding.code for finding in report.findings} == {Code.SIZE_MISMATCH}


# -- copies of the changelog backend's state --------------------------------------------------------------

OF_CHANGELOG = [case for case in CASES if case.name.startswith("changelog") and case.kind == "checkpoint"]


@pytest.mark.sample(12)
@pytest.mark.parametrize("case", OF_CHANGELOG, ids=str)
def test_a_copy_names_files_of_the_changelog_backend_by_their_whole_path(
    data: Path, case: Case, tmp_path: Path
) -> None:
    store, epoch = opened(data, case)
    plan = plan_flink(store, epoch=epoch)
    copied = restore_flink(plan, store, str(tmp_path / "copy"))
    for command in (plan.body.command, copied.command):
        assert command is None or " -claimMode CLAIM " in command, "it fails at its first checkpoint"
    metadata = FlinkStore(str(tmp_path / "copy")).metadata(epoch)
    below = {stream for handle in changelogs(metadata) for stream in streams(handle)}
    files = {stream.path for stream in below if isinstance(stream, FileHandle)}
    assert {path.rpartition("/")[0] for path in files} <= {f"file:{tmp_path}/copy"}
    assert not any(isinstance(stream, RelativeHandle) for stream in below), "later checkpoints would repeat it"
    assert any("whole path" in text for text in copied.repairs) is bool(files)
    rest = {stream for _, _, stream in file_handles(metadata)} - below
    assert all(isinstance(stream, RelativeHandle) for stream in rest)

    shutil.move(tmp_path / "copy", tmp_path / "moved")
    moved = FlinkStore(str(tmp_path / "moved"))
    again = plan_flink(moved)
    assert again.body.in_place is not bool(files)
    restore_flink(again, moved, str(tmp_path / "again"))
    whole = FlinkStore(str(tmp_path / "again"))
    assert plan_flink(whole).body.in_place
    needs(case)
    assert values(whole, epoch, "sum") == values(store, epoch, "sum")


@pytest.mark.parametrize("case", [case for case in CASES if not case.name.startswith("changelog")][:2], ids=str)
def test_nothing_else_is_claimed(data: Path, case: Case, tmp_path: Path) -> None:
    store, epoch = opened(data, case)
    plan = plan_flink(store, epoch=epoch)
    assert not plan.body.claim
    assert "CLAIM" not in restore_flink(plan, store, str(tmp_path / "copy")).command


def test_relative_paths_of_changes_are_mended_before_a_job_starts_from_them(data: Path, tmp_path: Path) -> None:
    store, epoch = opened(data, outside(data))
    relative = tmp_path / "relative"
    restore_flink(plan_flink(store, epoch=epoch), store, str(relative))
    with_changes(relative, lambda stream: RelativeHandle(stream.path.rpartition("/")[2], stream.size, True))
    plan = plan_flink(FlinkStore(str(relative)))
    assert (plan.body.in_place, plan.body.command) == (False, None)
    assert "relative paths" in plan.body.repairs[0]
    restore_flink(plan, FlinkStore(str(relative)), str(tmp_path / "mended"))
    assert plan_flink(FlinkStore(str(tmp_path / "mended"))).body.in_place


# -- what lies outside of the folder that was named -------------------------------------------------------


def outside(data: Path) -> Case:
    return next(case for case in FILES if case.name == "changelog-files-plain" and case.version == "2.3")


def test_files_on_another_machine_are_not_looked_at_and_not_called_lost(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = outside(data)
    folder = data / case.folder
    assert main(["validate", str(folder), "-o", "json"]) == 3, "nor is it known to be whole"
    (epoch,) = checked(capsys.readouterr().out)["epochs"]
    assert (epoch["verdict"], epoch["findings"]) == ("complete", [])
    assert {"missing-file", "size-mismatch", "unreadable"} <= set(epoch["unchecked"])
    assert "--search /mnt/ckpt/data" in epoch["why_unchecked"]["missing-file"]
    assert main(["plan-recovery", str(folder)]) == 4
    assert "--search" in capsys.readouterr().err
    search = ["--search", str(data / case.version / case.name / "dstl")]
    assert main(["validate", str(folder), *search, "-o", "json"]) == 0
    told = checked(capsys.readouterr().out)
    assert "missing-file" not in told["epochs"][0]["unchecked"]
    assert main(["plan-recovery", str(folder), *search]) == 0


def with_changes_at(folder: Path, place: str) -> None:
    """Let a `_metadata` say that files of changes lie in a directory."""
    with_changes(folder, lambda stream: replace(stream, path=f"{place}/{stream.path.rpartition('/')[2]}"))


def with_changes(folder: Path, named: Callable[[FileHandle], StreamHandle]) -> None:
    """Let a `_metadata` name files of changes otherwise."""

    def changed(handle: KeyedHandle | None) -> KeyedHandle | None:
        if isinstance(handle, FileChangelogHandle):
            parts = []
            for part in handle.streams:
                assert isinstance(part.stream, FileHandle)
                parts.append(replace(part, stream=named(part.stream)))
            return replace(handle, streams=tuple(parts))
        if isinstance(handle, ChangelogHandle):
            return replace(handle, changes=tuple(map(changed, handle.changes)))
        return handle

    metadata = parse((folder / "_metadata").read_bytes())
    operators = [
        replace(o, subtasks=tuple(replace(s, managed_keyed=changed(s.managed_keyed)) for s in o.subtasks))
        for o in metadata.operators
    ]
    (folder / "_metadata").write_bytes(encode(replace(metadata, operators=tuple(operators))))


def test_files_of_this_machine_are_looked_at_by_their_names_and_never_opened(data: Path, tmp_path: Path) -> None:
    case = outside(data)
    folder, elsewhere = Path(shutil.copytree(data / case.folder, tmp_path / "chk-9")), tmp_path / "changes"
    elsewhere.mkdir()
    for file in (data / case.version / case.name / "dstl").rglob("*-*-*"):
        shutil.copy(file, elsewhere)
    with_changes_at(folder, f"file:{elsewhere}")
    store = FlinkStore(str(folder))
    evidence = gather(store, store.epoch_numbers()[0], checks=stream_checks())
    report, why, _ = check_epoch(evidence)
    assert (report.verdict, report.findings) == (Status.COMPLETE, ())
    assert {file.how for file in evidence.files if file.closed} == {How.OUTSIDE}
    assert Code.MISSING_FILE not in why, "they are there, with their sizes"
    assert f"--search {elsewhere}" in why[Code.UNREADABLE]
    answer = plan_flink(store, checks=stream_checks())
    assert isinstance(answer, NoPlan)
    assert f"--search {elsewhere} --out plan.json; to start without a copy: flink run" in (answer.hint or "")
    searched = FlinkStore(str(folder), search=[str(elsewhere)])
    restore_flink(plan_flink(searched, checks=stream_checks()), searched, str(tmp_path / "copy"))
    owner = next(o for o in store.metadata(evidence.epoch).operators if any(s.managed_keyed for s in o.subtasks))
    with pytest.raises(NotLookedAt) as caught:
        list(store.state(evidence.epoch, owner.id, "sum"))
    assert "--search" in (caught.value.hint or "")

    lost = next(elsewhere.iterdir())
    lost.unlink()
    again = FlinkStore(str(folder))
    report, _, _ = check_epoch(gather(again, evidence.epoch))
    assert {finding.code for finding in report.findings} == {Code.MISSING_FILE}, "its directory is here, and it is not"


@pytest.mark.parametrize("place", ["s3://bucket/changes", "hdfs://namenode:8020/changes", "/nowhere/on/this/machine"])
def test_paths_that_need_another_machine_are_not_looked_at(data: Path, tmp_path: Path, place: str) -> None:
    case = outside(data)
    folder = Path(shutil.copytree(data / case.folder, tmp_path / "chk-9"))
    with_changes_at(folder, place)
    store = FlinkStore(str(folder))
    report, why, _ = check_epoch(gather(store, store.epoch_numbers()[0], checks=stream_checks()))
    assert (report.verdict, report.findings) == (Status.COMPLETE, ())
    assert "--search" in why[Code.MISSING_FILE]
