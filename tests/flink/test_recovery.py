"""Flink's checkpoints: which one is chosen, and copies that can be moved."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from abscli.report.findings import Code
from abscli.stores.flink.plan import plan_flink
from abscli.stores.flink.restore import check_plan
from abscli.stores.flink.restore import restore as restore_flink
from abscli.stores.reasons import NoPlan
from formats.errors import FormatError, StalePlan
from formats.flink.facts import file_handles, state_backend
from formats.flink.files.resolve import How, Place
from formats.flink.metadata.file import encode, parse
from formats.flink.metadata.handles import FileHandle, OperatorStateHandle, RelativeHandle, SegmentHandle
from formats.flink.plan import run_line
from formats.flink.store import FlinkStore
from formats.view import Status
from tests.support.archives import unpacked
from tests.support.commands import answer_of, run_command
from tests.support.flink.cases import (
    ALL,
    CANONICAL,
    CHANGELOG,
    HASHMAP,
    MERGED,
    OLD,
    check,
    codes,
    job_id_twice,
    largest,
)
from tests.support.flink.truth import DATA


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job's directory with one checkpoint, to be damaged."""
    folder = tmp_path / HASHMAP.name
    shutil.copytree(HASHMAP, folder)
    return folder


def content(store: FlinkStore, epoch: int) -> list[tuple[str, bytes]]:
    """What every handle of files gives, in order, with its task: the copy must give the same."""
    at = store.streams(epoch)
    return [
        (f"{operator.id}/{subtask.index}", at.read(handle))
        for operator, subtask, handle in file_handles(store.metadata(epoch))
    ]


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.parent.name)
def test_a_copy_holds_the_same_bytes_under_relative_handles_alone(path: Path, tmp_path: Path) -> None:
    store = FlinkStore(str(path))
    plan = plan_flink(store)
    done = restore_flink(plan, store, str(tmp_path / "copy"))
    shutil.move(tmp_path / "copy", tmp_path / "moved")
    copy = FlinkStore(str(tmp_path / "moved"))
    assert content(copy, plan.body.epoch) == content(store, plan.body.epoch)
    assert all(isinstance(handle, RelativeHandle) for _, _, handle in file_handles(copy.metadata(plan.body.epoch)))
    assert codes(check(copy)) == []
    assert plan_flink(copy).body.in_place
    claim = " -claimMode CLAIM" * (path == CHANGELOG)
    backend = " -Dstate.backend.type=hashmap" * (path not in (CHANGELOG, CANONICAL))
    assert done.command == f"flink run -s file://{tmp_path}/copy{claim}{backend} JOB.jar"
    if not any(isinstance(h, SegmentHandle) for _, _, h in file_handles(store.metadata(plan.body.epoch))):
        assert copy.metadata(plan.body.epoch) == store.metadata(plan.body.epoch)


def test_segments_of_merged_files_become_files_of_their_own(tmp_path: Path) -> None:
    store = FlinkStore(str(MERGED))
    before, after = store.metadata(3), None
    restore_flink(plan_flink(store), store, str(tmp_path / "copy"))
    after = FlinkStore(str(tmp_path / "copy")).metadata(3)
    segments = {handle for _, _, handle in file_handles(before)}
    assert len([p for p in (tmp_path / "copy").iterdir() if p.name != "_metadata"]) == len(segments)
    for operator in after.operators:
        for subtask in operator.subtasks:
            state: OperatorStateHandle | None = subtask.managed_operator
            assert state is None or (state.folders is None and isinstance(state.stream, RelativeHandle))


def test_files_in_the_wrong_directory_are_found_and_the_copy_is_whole(job: Path, tmp_path: Path) -> None:
    """FLINK-39964: relative handles whose files lie in the savepoint that the job was started from."""
    savepoint = tmp_path / "savepoint-0f2efb-1c5dc2ff1ec9"
    savepoint.mkdir()
    moved = sorted(path for path in (job / "chk-2").iterdir() if path.name != "_metadata")[:5]
    for path in moved:
        shutil.move(path, savepoint)
    lost = FlinkStore(str(job))
    answer = plan_flink(lost)
    assert isinstance(answer, NoPlan)
    assert "--search DIR" in (answer.hint or "")
    store = FlinkStore(str(job), search=[str(savepoint)])
    assert store.epochs()[0].status is Status.DAMAGED
    report = check(store)
    assert set(codes(report)) == {Code.MISSING_FILE}
    assert "not where Flink looks" in report.report.epochs[0].findings[0].message
    plan = plan_flink(store)
    assert not plan.body.in_place
    assert plan.body.command is None
    assert plan.body.repairs[0].startswith("5 files are not where Flink looks")
    restore_flink(plan, store, str(tmp_path / "copy"))
    assert content(FlinkStore(str(tmp_path / "copy")), 2) == content(FlinkStore(str(HASHMAP)), 2)


@pytest.mark.parametrize("path", [HASHMAP / "chk-2", CANONICAL], ids=["checkpoint", "savepoint"])
def test_lost_properties_are_written_anew_as_they_were(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / path.name
    shutil.copytree(path, folder)
    data = (folder / "_metadata").read_bytes()
    (folder / "_metadata").write_bytes(data[:-40])
    store = FlinkStore(str(folder))
    (finding,) = check(store).report.epochs[0].findings
    assert finding.code is Code.MANIFEST_UNREADABLE
    assert "all operators are whole" in finding.message
    plan = plan_flink(store)
    assert "properties" in plan.body.repairs[0]
    restore_flink(plan, store, str(tmp_path / "copy"))
    assert (tmp_path / "copy" / "_metadata").read_bytes() == data


def test_the_newest_whole_checkpoint_is_chosen_and_newer_ones_are_explained(job: Path) -> None:
    for number in (3, 4):
        shutil.copytree(job / "chk-2", job / f"chk-{number}")
    (job / "chk-5").mkdir()
    gone = largest(job / "chk-4").name
    (job / "chk-4" / gone).unlink()
    (job / "chk-3" / "_metadata").write_bytes(b"I`g-")
    # the file that chk-4 lacks lies in chk-2 too, with its name and size: a copy can be whole
    plan = plan_flink(FlinkStore(str(job)))
    assert plan.body.epoch == 4
    assert [row.epoch for row in plan.body.skipped] == [5]
    for chk in ("chk-2", "chk-3"):
        (job / chk / gone).unlink()
    shutil.copy(HASHMAP / "chk-2" / gone, job / "chk-2" / "renamed")
    answer = plan_flink(FlinkStore(str(job)))
    assert isinstance(answer, NoPlan)
    assert "no checkpoint is intact" in answer.message
    shutil.move(job / "chk-2" / "renamed", job / "chk-2" / gone)
    answer = plan_flink(FlinkStore(str(job)), epoch=3)
    assert isinstance(answer, NoPlan)
    assert "3 cannot be restored: its _metadata cannot be read: ends too early" in answer.message


def test_the_source_is_only_read(job: Path, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in job.rglob("*")}
    store = FlinkStore(str(job))
    plan = plan_flink(store)
    restore_flink(plan, store, str(tmp_path / "copy"))
    for target in (job / "copy", job / "chk-2", job):
        with pytest.raises(FormatError, match="the command reads"):
            restore_flink(plan, store, str(target))
    assert {path: path.stat().st_mtime_ns for path in job.rglob("*")} == before


def test_a_directory_with_anything_in_it_is_not_written_to(job: Path, tmp_path: Path) -> None:
    store = FlinkStore(str(job))
    (tmp_path / "copy").mkdir()
    restore_flink(plan_flink(store), store, str(tmp_path / "copy"))
    with pytest.raises(FormatError, match="not an empty directory"):
        restore_flink(plan_flink(store), store, str(tmp_path / "copy"))


def test_a_copy_that_fails_leaves_nothing_behind(job: Path, tmp_path: Path) -> None:
    store = FlinkStore(str(job))
    plan = plan_flink(store)

    def stop(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        restore_flink(plan, store, str(tmp_path / "copy"), progress=stop)
    assert not (tmp_path / "copy").exists()


def test_a_plan_is_stale_when_the_metadata_is_another(job: Path, tmp_path: Path) -> None:
    store = FlinkStore(str(job))
    plan = plan_flink(store)
    path = job / "chk-2" / "_metadata"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StalePlan):
        restore_flink(plan, FlinkStore(str(job)), str(tmp_path / "copy"))


@pytest.mark.parametrize("change", ["no digest", "another directory"])
def test_a_plan_by_hand_for_something_else_than_its_checkpoint_is_not_carried_out(
    change: str, job: Path, tmp_path: Path
) -> None:
    store = FlinkStore(str(job))
    plan = plan_flink(store)
    if change == "no digest":
        plan, message = msgspec.structs.replace(plan, relies_on=()), "does not list chk-2/_metadata"
    else:
        command = run_line("/elsewhere/chk-2", claim=False, backend="hashmap") if plan.body.in_place else None
        body = msgspec.structs.replace(plan.body, directory="/elsewhere/chk-2", command=command)
        plan, message = msgspec.structs.replace(plan, body=body), f"is in {job}/chk-2, expected /elsewhere/chk-2"
    with pytest.raises(StalePlan, match=message):
        check_plan(plan, store)
    with pytest.raises(StalePlan, match=message):
        restore_flink(plan, store, str(tmp_path / "copy"))
    assert not (tmp_path / "copy").exists()


def test_names_that_collide_in_the_copy_get_a_number(tmp_path: Path) -> None:
    from formats.flink.rewrite import copies

    places = {
        FileHandle("file:/a/x", 1): Place(0, "a/x", 1, How.WRITTEN),
        FileHandle("file:/b/x", 1): Place(0, "b/x", 1, How.WRITTEN),
        FileHandle("file:/b/_metadata", 1): Place(0, "b/_metadata", 1, How.WRITTEN),
    }
    assert [copy.target for copy in copies(places).values()] == ["x", "x-2", "file"]


def test_an_old_format_is_kept_when_a_snapshot_is_copied(tmp_path: Path) -> None:
    store = FlinkStore(str(OLD))
    restore_flink(plan_flink(store), store, str(tmp_path / "copy"))
    metadata = parse((tmp_path / "copy" / "_metadata").read_bytes())
    assert metadata.version == 4
    assert encode(metadata) == (OLD / "chk-4" / "_metadata").read_bytes()


@pytest.mark.parametrize(
    ("store", "backend"),
    [
        (HASHMAP, "hashmap"),
        (MERGED, "hashmap"),
        (OLD, "hashmap"),
        (CANONICAL, None),
        (None, "rocksdb"),
        (next((DATA / "state" / "changelog-materialized").iterdir()), "hashmap"),
    ],
    ids=lambda value: value.parent.name if isinstance(value, Path) else str(value),
)
def test_the_command_and_the_text_name_the_state_backend_that_the_checkpoint_needs(
    store: Path | None, backend: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = store or job_id_twice(tmp_path) / "chk-3"
    plan, copy = tmp_path / "plan.json", tmp_path / "copy"
    option = f" -Dstate.backend.type={backend} JOB.jar"
    code, out, _ = run_command("plan-recovery", capsys, store, "--out", plan)
    assert code == 0
    assert (option in out) == (backend is not None and "Flink can restore it where it lies" in out)
    _, out, _ = run_command("restore", capsys, plan, "--to", copy)
    assert (option in out) == (backend is not None)
    assert (f"    abs rewrite {copy} --layout canonical --to NEWDIR\n" in out) == (backend is not None)
    if backend == "rocksdb":
        command = answer_of("rewrite", capsys, copy, "--layout", "canonical", "--to", tmp_path / "any")["command"]
        assert "state.backend" not in command, "every backend reads a canonical savepoint"


def test_forst_is_told_from_rocksdb_by_where_its_files_are() -> None:
    (checkpoint,) = (unpacked(DATA / "versions.tar.xz") / "2.2-forst").glob("*/chk-*/_metadata")
    assert state_backend(parse(checkpoint.read_bytes())) == "forst"
