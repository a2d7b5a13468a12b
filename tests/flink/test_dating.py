"""The age and the order of Flink's checkpoints: by number, unless a job id was used by several runs."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from formats.flink.dating import later_below, why_undated
from formats.flink.store import FlinkStore
from formats.view import Status
from tests.support.commands import answer_of, run_command
from tests.support.flink.cases import job_id_twice
from tests.support.flink.truth import DATA

MINUTE = 60.0


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return job_id_twice(tmp_path)


@pytest.mark.parametrize(
    ("modified", "newest", "later"),
    [
        ({1: 100.0, 2: 200.0, 3: 300.0}, 3, ()),
        ({5: 100.0, 6: 200.0, 3: 300.0}, 6, (3,)),
        ({5: 100.0, 6: 200.0, 2: 300.0, 3: 400.0}, 6, (3, 2)),
        ({5: 300.0, 6: 200.0}, 6, (5,)),
        ({6: 200.0, 3: 200.0}, 6, ()),
        ({6: 200.0, 3: 200.4}, 6, ()),
        ({3: 300.0}, 6, ()),
        ({6: 200.0}, 6, ()),
    ],
)
def test_a_lower_number_that_was_modified_later_is_a_candidate(
    modified: dict[int, float], newest: int, later: tuple[int, ...]
) -> None:
    assert later_below(modified, newest) == later


@pytest.mark.parametrize(
    ("modified", "others", "files", "reason"),
    [
        (100.0, [100.0], {"shared/a": 40.0, "chk-3/b": 100.0}, None),
        (100.0, [100.0, 160.0], {"chk-3/b": 99.0}, None),
        (None, [], {}, "no modification time"),
        (100.0, [100.0], {"chk-3/b": 100.5}, "older than chk-3/b"),
        (100.0, [100.0, 100.9], {"chk-3/b": 99.0}, "within one second"),
    ],
)
def test_a_time_counts_only_if_the_metadata_was_written_last(
    modified: float | None, others: list[float], files: dict[str, float], reason: str | None
) -> None:
    found = why_undated("chk-3/_metadata", modified, others, files)
    assert (found is None) == (reason is None)
    assert (reason or "") in (found or "")


@pytest.mark.parametrize(
    "command",
    [["inspect", "--latest-restorable"], ["plan-recovery"], ["drill"], ["state", "k-dbl"], ["inspect", "--stats"]],
    ids=" ".join,
)
def test_a_command_that_takes_the_newest_names_both_candidates(
    job: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run_command(command[0], capsys, job, *command[1:])
    assert (code, out) == (2, "")
    assert f"{job}@3 or {job}@6" in err
    assert "2026-11-27T11:36:25.000Z" in err
    assert "2026-11-27T11:35:28.000Z" in err


@pytest.mark.parametrize("number", [3, 6])
def test_a_checkpoint_that_is_named_is_the_one_that_is_meant(
    job: Path, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    for named in (f"{job}@{number}", job / f"chk-{number}"):
        assert run_command("plan-recovery", capsys, named)[0] == 0
        assert run_command("validate", capsys, named)[0] == 0


def test_validate_and_inspect_say_that_the_order_is_unknown(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = answer_of("validate", capsys, job)
    assert (page["latest_restorable"], page["candidates"], page["restorable"]) == (None, [3, 6], [3, 6])
    assert [epoch["triggered"] for epoch in page["epochs"]] == [None, None]
    assert [epoch["modified"] for epoch in page["epochs"]] == ["2026-11-27T11:36:25.000Z", "2026-11-27T11:35:28.000Z"]
    assert "WARNING: it is not known which checkpoint is the newest" in run_command("validate", capsys, job)[1]
    page = answer_of("inspect", capsys, job)
    assert (page["latest_complete"], page["candidates"]) == (None, [3, 6])
    assert "MODIFIED (UTC)" in run_command("inspect", capsys, job)[1]
    rows = answer_of("inspect", capsys, job.parent)["jobs"]
    assert "which checkpoint is the newest" in rows[0]["reason"]


def test_the_first_open_checkpoint_of_the_second_run_is_in_progress_and_no_orphan(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(job / "chk-3")
    (job / "chk-1").mkdir()
    (job / "chk-1" / "0d1ec4ae-0000-0000-0000-000000000000").write_bytes(b"x")
    store = FlinkStore(str(job))
    assert [row.status for row in store.epochs()] == [Status.IN_PROGRESS, Status.COMPLETE]
    (row,) = answer_of("inspect", capsys, job.parent)["jobs"]
    assert "chk-1" not in str(row["orphans"])
    assert run_command("gc", capsys, job, "--yes")[0] == 11, "the live run is protected"
    assert (job / "chk-1").exists()


def test_a_second_run_whose_checkpoints_have_passed_the_first_is_the_newest(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    later = time.time()
    shutil.copytree(job / "chk-3", job / "chk-7")
    for path in (*(job / "chk-7").iterdir(), job / "chk-7"):
        os.utime(path, (later, later))
    assert run_command("inspect", capsys, job, "--latest-restorable", "-q")[1] == f"{job}/chk-7\n"


def test_after_a_copy_that_kept_no_times_the_age_is_unknown_and_the_number_counts(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now = time.time()
    for path in job.rglob("*"):
        os.utime(path, (now, now))
    assert run_command("inspect", capsys, job, "--latest-restorable", "-q")[1] == f"{job}/chk-6\n"
    answer = answer_of("validate", capsys, job, "--max-age", "10m", code=3)
    assert "the age of 6 is not known: all checkpoints here were modified within one second" in answer["unsatisfied"][0]


@pytest.mark.parametrize("place", ["chk-6", "shared"])
def test_a_metadata_that_is_older_than_its_files_has_no_age(
    job: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(job / "chk-3")
    now = time.time()
    os.utime(job / "chk-6" / "_metadata", (now - MINUTE, now - MINUTE))
    for path in (job / place).iterdir():
        if path.name != "_metadata":
            os.utime(path, (now, now))
    answer = answer_of("validate", capsys, job, "--max-age", "10m", code=3)
    assert "is older than" in answer["unsatisfied"][0]
    assert "is older than" in answer["epochs"][0]["undated"]


def test_an_age_that_is_known_is_compared(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(job / "chk-3")
    answer = answer_of("validate", capsys, job, "--max-age", "10m", code=3)
    assert "the newest that can be restored is" in answer["unsatisfied"][0]
    now = time.time()
    os.utime(job / "chk-6" / "_metadata", (now, now))
    assert answer_of("validate", capsys, job, "--max-age", "10m")["unsatisfied"] == []


def test_one_time_for_all_files_of_a_single_checkpoint_is_no_age(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(DATA / "hashmap-savepoint-canonical", tmp_path / "s")
    (savepoint,) = (tmp_path / "s").iterdir()
    now = time.time()
    for path in savepoint.iterdir():
        os.utime(path, (now, now))
    answer = answer_of("validate", capsys, savepoint, "--max-age", "10m", code=3)
    assert "one modification time" in answer["unsatisfied"][0]
