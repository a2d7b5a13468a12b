"""Flink's directory of all jobs: what each can be started from, and which files nothing needs."""

from __future__ import annotations

import os
import shutil
import time
from functools import partial
from pathlib import Path

import pytest

from formats.flink.references import unreferenced
from tests.support.commands import result_of, run_command
from tests.support.flink.times import set_times

DATA = Path(__file__).parents[1] / "data" / "flink"
HEAP, OPEN = "10d2f428c00a04dfaad672ff7b7e0dbc", "24c349cbab07786e4c710aef6bb480dd"
MOVED = "0f2efb032a00ce20cbfd47bb0810e860"
FOLDERS = {HEAP: "hashmap-checkpoint", OPEN: "in-progress", MOVED: "file-merging"}

run = partial(run_command, "inspect")
result = partial(result_of, "inspect")


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    """As `execution.checkpointing.dir` looks: a directory a job, one of them moved here from elsewhere."""
    root = tmp_path / "checkpoints"
    for job, folder in FOLDERS.items():
        shutil.copytree(DATA / folder / job, root / job)
    set_times(root / HEAP, time.time() - 60)
    return root


def orphan(job: Path, path: str, size: int = 100) -> Path:
    file = job / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"x" * size)
    return file


def test_each_job_is_listed_with_where_it_can_be_started(checkpoints: Path, capsys: pytest.CaptureFixture[str]) -> None:
    orphan(checkpoints / HEAP, "shared/aaaaaaaa-0000-0000-0000-000000000000", 700)
    orphan(checkpoints / HEAP, "taskowned/bbbbbbbb-0000-0000-0000-000000000000", 50)
    page = result(capsys, checkpoints)
    jobs = {job["name"]: job for job in page["jobs"]}
    assert set(jobs) == set(FOLDERS)
    heap = jobs[HEAP]["latest_restorable"]
    assert (heap["epoch"], heap["path"], heap["bytes"]) == (2, str(checkpoints / HEAP / "chk-2"), 68_904)
    assert heap["age"] >= 0
    assert jobs[HEAP]["orphans"] == {
        "files": 2, "bytes": 750, "folders": [
            {"folder": "shared", "files": 1, "bytes": 700}, {"folder": "taskowned", "files": 1, "bytes": 50},
        ],
    }  # fmt: skip
    assert jobs[OPEN]["latest_restorable"]["epoch"] == 2, "chk-3 was never completed"
    assert jobs[OPEN]["orphans"]["files"] == 0, "what lies in a checkpoint that may be under way is none"
    assert jobs[MOVED]["latest_restorable"] is None
    assert "it was moved" in jobs[MOVED]["reason"]
    assert jobs[HEAP]["bytes"] == sum(p.stat().st_size for p in (checkpoints / HEAP).rglob("*") if p.is_file())


@pytest.mark.parametrize("columns", [80, 200])
def test_the_page_fits_and_says_what_it_leaves_out(
    checkpoints: Path, columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    orphan(checkpoints / HEAP, "shared/aaaaaaaa-0000-0000-0000-000000000000", 700)
    monkeypatch.setenv("COLUMNS", str(columns))
    code, out, _ = run(capsys, checkpoints)
    assert code == 0
    assert all(len(line) <= columns for line in out.splitlines() if "/" not in line)
    assert f"  {HEAP}: shared/ 1 file, 700 B\n" in out
    assert ("not shown in 80 columns: EPOCHS, WRITTEN (UTC), FILES" in out) == (columns == 80)


@pytest.mark.parametrize("choice", [["--stats"], ["--trend"], ["--broker", "127.0.0.1:1"], ["--operator", "totals"]])
def test_what_is_asked_of_one_store_is_not_answered_with_the_list_of_all(
    checkpoints: Path, capsys: pytest.CaptureFixture[str], choice: list[str]
) -> None:
    code, out, err = run(capsys, checkpoints, *choice)
    assert (code, out) == (10, "")
    assert "no store here" in err
    assert f"pass the path of a store, such as {checkpoints}" in err


def test_the_path_alone_is_printed_and_flink_would_start_from_it(
    checkpoints: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = checkpoints / OPEN / "chk-2"
    assert run(capsys, checkpoints / OPEN, "--latest-restorable", "-q")[:2] == (0, f"{wanted}\n")
    assert run(capsys, wanted, "--latest-restorable", "--verify", "-q") == (0, f"{wanted}\n", "")
    told = result(capsys, checkpoints / OPEN, "--latest-restorable")
    assert (told["schema"], told["path"]) == ("abs.restorable", str(wanted))


def test_a_file_that_is_lost_makes_it_an_older_checkpoint_or_none(
    checkpoints: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = checkpoints / HEAP
    shutil.copytree(job / "chk-2", job / "chk-3")
    assert run(capsys, job, "--latest-restorable", "-q")[1] == f"{job / 'chk-3'}\n"
    victim = next(path for path in sorted((job / "chk-3").iterdir()) if path.name != "_metadata")
    victim.write_bytes(victim.read_bytes()[:-1])
    assert run(capsys, job, "--latest-restorable", "-q")[1] == f"{job / 'chk-2'}\n"
    assert run(capsys, f"{job}@3", "--latest-restorable", "-q")[0] == 4
    (job / "chk-2" / victim.name).unlink()
    code, out, err = run(capsys, job, "--latest-restorable", "-q")
    assert (code, out) == (4, "")
    assert victim.name in err
    assert "abs validate" in err


def test_what_was_moved_is_passed_over_for_flink_would_not_find_it(
    checkpoints: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, checkpoints / MOVED, "--latest-restorable")
    assert (code, out) == (4, "")
    assert "plan-recovery" in err


def test_of_several_jobs_none_is_guessed(checkpoints: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, checkpoints, "--latest-restorable")
    assert (code, out) == (2, "")
    assert "different operators" in err
    assert HEAP in err
    shutil.rmtree(checkpoints / OPEN)
    assert run(capsys, checkpoints, "--latest-restorable", "-q")[1] == f"{checkpoints / HEAP / 'chk-2'}\n"


def at(path: Path, then: float) -> None:
    """A job that wrote at that time and at no other."""
    for below in (*path.rglob("*"), path):
        os.utime(below, (then, then))


def test_lives_of_one_job_one_after_the_other_are_told_from_jobs_beside_each_other(
    checkpoints: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for job in (OPEN, MOVED):
        shutil.rmtree(checkpoints / job)
    again = checkpoints / ("e" * 32)
    shutil.copytree(checkpoints / HEAP, again)
    now = time.time()
    at(checkpoints / HEAP, now - 1000)
    at(again, now - 10)
    assert run(capsys, checkpoints, "--latest-restorable", "-q")[1] == f"{again / 'chk-2'}\n"
    os.utime(checkpoints / HEAP, (now, now))
    code, _, err = run(capsys, checkpoints, "--latest-restorable")
    assert code == 2
    assert "some wrote at the same time" in err


def test_a_job_that_has_claimed_anothers_checkpoint_needs_its_files(
    checkpoints: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The files of a job whose own checkpoints are gone, to which those of the next job refer."""
    names = [path.name for path in (checkpoints / HEAP / "chk-2").iterdir() if path.name != "_metadata"]
    before = checkpoints / ("a" * 32)
    for name in names:
        orphan(before, f"shared/{name}", 5)
    orphan(before, "shared/cccccccc-0000-0000-0000-000000000000", 7)
    jobs = {job["name"]: job for job in result(capsys, checkpoints)["jobs"]}
    assert jobs[before.name]["orphans"]["bytes"] == 7
    (checkpoints / HEAP / "chk-2" / "_metadata").write_bytes(b"damaged")
    jobs = {job["name"]: job for job in result(capsys, checkpoints)["jobs"]}
    assert jobs[before.name]["orphans"] is None, "what a _metadata refers to that cannot be read is not known"


def test_only_files_where_flink_keeps_state_can_be_orphans() -> None:
    files = {"shared/a": 1, "shared/.b.crc": 1, "shared/.c.crc": 1, "notes.txt": 1, "chk-1/_metadata": 1, "mine/d": 1,
             "chk-1/e": 1, "taskowned/job_1/f": 1}  # fmt: skip
    assert set(unreferenced(files, [frozenset({"b"})])) == {"shared/a", "shared/.c.crc", "chk-1/e", "taskowned/job_1/f"}


def test_stores_of_other_systems_are_listed_likewise(
    checkpoints: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from tests.support.stores.small import make_store

    make_store(checkpoints / "own")
    page = result(capsys, checkpoints)
    (own,) = [job for job in page["jobs"] if job["name"] == "own"]
    assert (own["format"], own["latest_restorable"]["path"]) == ("abs", f"{checkpoints / 'own'}@4")
    code, _, err = run(capsys, tmp_path / "nowhere", "--latest-restorable")
    assert code == 10
    assert "no such store" in err
