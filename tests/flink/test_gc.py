"""`abs gc` of Flink's jobs: nothing goes that a checkpoint may need, or that a job in flight may be about to name."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abscli.stores.flink.removing.garbage import RHYTHM, Job, collect, decide
from abscli.stores.removal import RemovalRequest
from formats.errors import StoreInUse
from formats.flink.references import References
from formats.storage import LocalStorage
from tests.support.commands import result_of, run_command

DATA = Path(__file__).parents[1] / "data" / "flink"
HEAP, OPEN = "10d2f428c00a04dfaad672ff7b7e0dbc", "24c349cbab07786e4c710aef6bb480dd"
DAY = 86400.0

run = partial(run_command, "gc")
result = partial(result_of, "gc")


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    """Two jobs that have been silent for ten days, each with orphans; of one, chk-3 was never completed."""
    root = tmp_path / "checkpoints"
    for job, folder in ((HEAP, "hashmap-checkpoint"), (OPEN, "in-progress")):
        shutil.copytree(DATA / folder / job, root / job)
        for name, size in (("shared/aaaa", 700), ("taskowned/job_1/bbbb", 50)):
            file = root / job / name
            file.parent.mkdir(parents=True)
            file.write_bytes(b"x" * size)
        silent(root / job, 10 * DAY)
    return root


def silent(path: Path, seconds: float) -> None:
    """As if nothing had been changed for so long."""
    then = time.time() - seconds
    for below in (*path.rglob("*"), path):
        os.utime(below, (then, then))


def files(path: Path) -> set[str]:
    return {str(p.relative_to(path)) for p in path.rglob("*") if p.is_file()}


def restorable(capsys: pytest.CaptureFixture[str], path: Path) -> list[int]:
    report = result_of("validate", capsys, path)
    return list(report["restorable"])


def test_it_is_shown_first_and_only_orphans_go(checkpoints: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files(checkpoints)
    told = result(capsys, checkpoints)
    assert (told["removed"], told["keep"], told["epochs"]) == (False, None, [])
    assert files(checkpoints) == before
    going = {orphan["path"] for orphan in told["orphans"] if orphan["removable"]}
    abandoned = {f"{OPEN}/chk-3/{path.name}" for path in (checkpoints / OPEN / "chk-3").iterdir()}
    assert going == {f"{job}/{name}" for job in (HEAP, OPEN) for name in ("shared/aaaa", "taskowned/job_1/bbbb")} | (
        abandoned
    )
    reasons = {orphan["path"]: orphan["reason"] for orphan in told["orphans"]}
    assert reasons[min(abandoned)] == "its checkpoint was never completed"
    assert told["bytes"] == sum((checkpoints / path).stat().st_size for path in going)
    done = result(capsys, checkpoints, "--yes")
    assert (done["removed"], done["bytes"]) == (True, told["bytes"])
    assert files(checkpoints) == before - going
    assert not (checkpoints / OPEN / "chk-3").exists()
    assert (checkpoints / OPEN / "shared").is_dir(), "a job that comes back finds its directories"
    assert [restorable(capsys, checkpoints / job) for job in (HEAP, OPEN)] == [[2], [2]]
    code, out, _ = run(capsys, checkpoints)
    assert (code, out.endswith("Nothing to remove.\n")) == (0, True)
    assert all(job["inactive"] > 9 * DAY for job in result(capsys, checkpoints)["jobs"]), "we left no trace of our own"


@pytest.mark.parametrize("touched", ["chk-2/_metadata", "shared", "", "taskowned/job_1/bbbb", "chk-3"])
def test_a_job_that_has_changed_anything_of_late_may_be_alive(
    checkpoints: Path, touched: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file or a directory: a checkpoint that begins, ends or fails changes one."""
    os.utime(checkpoints / OPEN / touched)
    before = files(checkpoints / OPEN)
    told = result(capsys, checkpoints)
    alive = {job["name"]: job["alive"] for job in told["jobs"]}
    assert alive[HEAP] is None
    assert "counts as dead after 24.0 h" in alive[OPEN]
    result(capsys, checkpoints, "--yes")
    assert files(checkpoints / OPEN) == before
    assert "shared/aaaa" not in files(checkpoints / HEAP)
    code, out, err = run(capsys, checkpoints / OPEN, "--yes")
    assert (code, out) == (11, "")
    assert f"--stopped {OPEN}" in err
    assert files(checkpoints / OPEN) == before


def test_a_job_whose_clock_is_ahead_may_be_alive(checkpoints: Path, capsys: pytest.CaptureFixture[str]) -> None:
    silent(checkpoints / HEAP, -2 * DAY)
    alive = {job["name"]: job["alive"] for job in result(capsys, checkpoints)["jobs"]}
    assert "ahead of this machine's clock" in alive[HEAP]
    code, _, err = run(capsys, checkpoints / HEAP, "--yes")
    assert (code, "ahead of this machine's clock" in err) == (11, True), err


def test_who_says_that_a_job_does_not_run_is_believed_but_young_files_stay(
    checkpoints: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.utime(checkpoints / OPEN / "shared" / "aaaa")
    told = result(capsys, checkpoints / OPEN, "--stopped", OPEN, "--yes")
    assert [orphan["path"] for orphan in told["orphans"] if not orphan["removable"]] == ["shared/aaaa"]
    assert (checkpoints / OPEN / "shared" / "aaaa").exists()
    result(capsys, checkpoints / OPEN, "--stopped", OPEN, "--min-age", "0s", "--yes")
    assert not (checkpoints / OPEN / "shared" / "aaaa").exists()
    code, _, err = run(capsys, checkpoints, "--stopped", "f" * 32)
    assert code == 2
    assert HEAP in err


def test_a_job_whose_checkpoints_are_far_apart_has_to_be_silent_for_longer(
    checkpoints: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = checkpoints / HEAP
    shutil.copytree(job / "chk-2", job / "chk-3")
    silent(job, 10 * DAY)
    os.utime(job / "chk-2" / "_metadata", (time.time() - 15 * DAY,) * 2)
    (seen,) = result(capsys, job)["jobs"]
    assert seen["min_inactive"] == pytest.approx(RHYTHM * 5 * DAY, rel=0.001)
    assert f"{RHYTHM} times its longest interval" in seen["alive"]


def test_files_that_another_job_has_claimed_stay_and_a_live_one_keeps_the_rest(
    checkpoints: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = checkpoints / ("a" * 32)
    (before / "shared").mkdir(parents=True)
    claimed = next(path.name for path in (checkpoints / HEAP / "chk-2").iterdir() if path.name != "_metadata")
    for name in (claimed, "cccc"):
        (before / "shared" / name).write_bytes(b"x")
    silent(before, 10 * DAY)
    told = result(capsys, before)
    assert [(orphan["path"], orphan["removable"]) for orphan in told["orphans"]] == [("shared/cccc", True)]
    os.utime(checkpoints / HEAP)
    told = result(capsys, before)
    assert [orphan["removable"] for orphan in told["orphans"]] == [False]
    assert f"{HEAP}, which may be alive, refers to its files" in told["jobs"][0]["alive"]


@pytest.mark.parametrize("named", ["checkpoint", "nothing"])
def test_a_job_that_claims_files_while_we_look_keeps_them(checkpoints: Path, named: str) -> None:
    """It was read before its first checkpoint was there, and the one that it claimed after that was gone: of a job that
    the user says does not run. What is to go is looked at again, once all of it is known."""
    old, new = checkpoints / HEAP, checkpoints / ("c" * 32)
    claimed = {path.name for path in (old / "chk-2").iterdir()} - {"_metadata"}
    for name in claimed:
        (old / "chk-2" / name).rename(old / "shared" / name)
    metadata = (old / "chk-2" / "_metadata").read_bytes()
    shutil.rmtree(old / "chk-2")
    (new / "shared").mkdir(parents=True)
    silent(old, 10 * DAY)
    steps: list[str] = []

    def show(step: str) -> None:
        steps.append(step)
        if len(steps) == 2 and named == "checkpoint":
            (new / "chk-7").mkdir()
            (new / "chk-7" / "_metadata").write_bytes(metadata)

    request = RemovalRequest(
        keep=None, older_than=None, min_age=None, stopped=(HEAP,), search=(), remove=True, show=show
    )
    refused = pytest.raises(StoreInUse, match=f"{new.name}, which may be alive, refers to its files")
    with refused if named == "checkpoint" else contextlib.nullcontext():
        collect([LocalStorage(str(old))], str(old), request)
    left = {path.name for path in old.rglob("*") if path.is_file()}
    assert left >= claimed if named == "checkpoint" else not old.exists()


def test_a_metadata_that_cannot_be_read_keeps_everything_wherever_it_lies(
    checkpoints: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other" / "savepoint-1"
    other.mkdir(parents=True)
    (other / "_metadata").write_bytes(b"damaged")
    assert result(capsys, checkpoints)["bytes"] > 0
    told = result(capsys, checkpoints, "--search", tmp_path / "other")
    assert told["bytes"] == 0
    assert "cannot be read" in told["unknown"]
    before = files(checkpoints)
    assert run(capsys, checkpoints, "--search", tmp_path / "other", "--yes")[0] == 3
    assert files(checkpoints) == before
    assert run(capsys, checkpoints, "--search", tmp_path / "nowhere")[0] in (2, 10)


def test_directories_that_are_searched_name_what_is_needed(
    checkpoints: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A checkpoint that was copied away still refers to files here."""
    job = checkpoints / HEAP
    away = tmp_path / "away" / "chk-2"
    shutil.copytree(job / "chk-2", away)
    (job / "chk-2" / "_metadata").unlink()
    silent(job, 10 * DAY)
    assert len(result(capsys, job)["orphans"]) > 2
    assert {orphan["path"] for orphan in result(capsys, job, "--search", away)["orphans"]} == {
        "shared/aaaa", "taskowned/job_1/bbbb",
    }  # fmt: skip


def test_all_of_a_job_goes_when_no_file_of_it_is_needed(checkpoints: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(checkpoints / HEAP / "chk-2")
    silent(checkpoints / HEAP, 10 * DAY)
    result(capsys, checkpoints / HEAP, "--yes")
    assert not (checkpoints / HEAP).exists()


def test_what_is_not_flinks_stays_and_links_are_not_followed(
    checkpoints: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine").write_text("x")
    (checkpoints / HEAP / "notes.txt").write_text("x")
    (checkpoints / HEAP / "shared" / "link").symlink_to(outside)
    (checkpoints / HEAP / "chk-2" / ".cccc.crc").write_text("x")
    for path in (checkpoints / HEAP, outside):
        silent(path, 10 * DAY)
    os.utime(checkpoints / HEAP / "shared" / "link", (0, 0), follow_symlinks=False)
    run(capsys, checkpoints / HEAP, "--yes")
    assert files(outside) == {"mine"}
    assert (checkpoints / HEAP / "notes.txt").exists()
    assert not (checkpoints / HEAP / "chk-2" / ".cccc.crc").exists()


def test_checkpoints_behind_links_count_or_keep_everything(
    checkpoints: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job that a link leads to is read as others are; a checkpoint that one leads to is not: it may need anything."""
    job = checkpoints / HEAP
    elsewhere = tmp_path / "elsewhere" / ("b" * 32)
    shutil.copytree(job / "chk-2", elsewhere / "chk-2")
    (job / "chk-2" / "_metadata").unlink()
    silent(job, 10 * DAY)
    assert len(result(capsys, job)["orphans"]) > 2
    (checkpoints / elsewhere.name).symlink_to(elsewhere)
    silent(elsewhere, 10 * DAY)
    assert len(result(capsys, job)["orphans"]) == 2, "the files of its chk-2 are needed"
    (checkpoints / elsewhere.name).unlink()
    (checkpoints / OPEN / "chk-9").symlink_to(elsewhere / "chk-2")
    told = result(capsys, job)
    assert told["bytes"] == 0
    assert "chk-9 cannot be read (it is a link" in told["unknown"]


@pytest.mark.parametrize("place", ["", HEAP, f"{HEAP}/chk-2", f"{HEAP}/shared"])
@pytest.mark.parametrize("name", ["notes", "chk-7"])
def test_links_in_a_circle_lead_to_nothing_and_stop_nobody(
    checkpoints: Path, place: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {orphan["path"] for orphan in result(capsys, checkpoints)["orphans"]}
    (checkpoints / place / name).symlink_to(f"{name}-back")
    (checkpoints / place / f"{name}-back").symlink_to(name)
    told = result(capsys, checkpoints, "--stopped", HEAP)
    assert before <= {orphan["path"] for orphan in told["orphans"]}
    assert told["unknown"] is None


def test_options_of_our_own_stores_mean_nothing_here(checkpoints: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--keep", "3"], ["--older-than", "1d"]):
        code, _, err = run(capsys, checkpoints, *words)
        assert code == 2
        assert "Flink removes them itself" in err
    code, _, err = run(capsys, checkpoints / HEAP / "chk-2")
    assert code == 2
    assert "name the directory of its job" in err


@pytest.mark.parametrize("columns", [80, 200])
def test_the_page_says_who_may_be_alive_and_what_to_type(
    checkpoints: Path, columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    os.utime(checkpoints / OPEN)
    code, out, _ = run(capsys, checkpoints)
    assert code == 0
    assert f"{HEAP}  no" in out
    assert f"{OPEN}  yes" in out
    assert out.endswith(f"Would go: 2 files, 750 B; nothing was changed\nNext: abs gc {checkpoints} --yes\n")
    assert all(len(line) <= columns for line in out.splitlines() if "/" not in line)


@given(
    st.lists(
        st.tuples(st.floats(0, 20 * DAY), st.none() | st.floats(0, 5 * DAY), st.sets(st.integers(0, 5))), max_size=5
    ),
    st.floats(0, 3 * DAY),
    st.booleans(),
)
def test_nothing_goes_of_a_job_that_was_not_silent_nor_of_one_whose_files_such_a_job_needs(
    jobs: list[tuple[float, float | None, set[int]]], min_age: float, blocked: bool
) -> None:
    now = 100 * DAY
    every = [
        Job(
            root=f"/d/{i:032x}", label="", own=References(frozenset(f"f{n}" for n in needs), {}, ()),
            changed=now - silence, interval=interval, every=frozenset({f"f{i}"}),
            orphans={f"shared/o{i}": (1, now - silence)},
        )
        for i, (silence, interval, needs) in enumerate(jobs)
    ]  # fmt: skip
    removal = decide(every, (), "why" if blocked else None, set(), min_age, now)
    live = {
        i for i, (silence, interval, _) in enumerate(jobs) if silence < max(min_age, RHYTHM * (interval or 0.0)) - 1e-6
    }
    gone = {i for i, orphan in enumerate(removal.orphans) if orphan.removable}
    assert not (gone and blocked)
    assert not gone & live
    for i in live:
        assert not gone & (jobs[i][2] - {i}), "a live job needs one of its files"
