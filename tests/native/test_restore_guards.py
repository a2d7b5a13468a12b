"""What `abs restore` refuses: paths that a store chooses, files that are not its own, a job that has run since."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from abscli.engine import attempt
from abscli.engine.coordinator import Service
from abscli.engine.errors import EngineError
from abscli.engine.job import run_job
from abscli.stores.native.plan import plan_recovery
from abscli.stores.native.restore import check_plan, restore
from formats.errors import Damaged, StalePlan
from formats.native import layout
from formats.native.sink import STAGED
from formats.native.store import NativeStore
from formats.plan import encode
from formats.storage import LocalStorage
from tests.commands.test_jobs import JOB, abs_, fingerprint
from tests.support.jobs.small import inline, last_counts, word_count, write_words
from tests.support.stores.hostile import ROOT, change, change_tasks


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    write_words(folder)
    (folder / "job.yaml").write_text(JOB)
    run_job(word_count(), str(folder / "store"), inline(folder, keep=None))
    return folder


@pytest.fixture
def job(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "job")
    return tmp_path / "job"


def opened(job: Path) -> NativeStore:
    return NativeStore(LocalStorage(job / "store"))


def test_a_plan_of_a_native_store_needs_the_job_file(job: Path) -> None:
    """Also where no code is needed: else the store would say which files are read and which folders are written."""
    (job / "plan.json").write_bytes(encode(plan_recovery(opened(job))))
    before = fingerprint(job)
    for more in (("--yes",), ("--dry-run",)):
        done = abs_("restore", job / "plan.json", "--engine", "inline", *more)
        assert done.returncode == 2
        assert "--job" in done.stderr
    assert fingerprint(job) == before


def test_only_what_a_sink_staged_is_deleted_from_its_staging_folder(job: Path) -> None:
    staged = job / "out" / STAGED
    staged.mkdir(exist_ok=True)
    life = opened(job).attempts()[0].id
    (staged / life).mkdir(exist_ok=True)
    ours = [f"{life}/part-00000-0000000099.jsonl", f"{life}/.open-00001-0123abcd"]
    others = ["notes.txt", "part-1.jsonl", ".open-00001-0123abcd.bak", "part-00000-0000000099.jsonl.gz"]
    others += [".open-00001-0123abcd", "part-00000-0000000098.jsonl"]  # of no attempt
    for name in (*ours, *others):
        (staged / name).write_text("x")
    (staged / "kept").mkdir()
    run_job(word_count(), str(job / "store"), inline(job, keep=None, from_epoch=opened(job).latest()))
    there = {str(path.relative_to(staged)) for path in staged.rglob("*")}
    assert there >= {*others, "kept"}
    assert not there & set(ours)


@pytest.mark.parametrize("split", ["../secret.txt", "{absolute}", "in/../../secret.txt", "job.yaml"])
def test_a_store_does_not_choose_which_files_a_source_reads(job: Path, split: str) -> None:
    secret = job.parent / "secret.txt"
    secret.write_text("the secret\n")
    named = split.format(absolute=secret)

    def point_elsewhere(parts: list[dict[str, Any]]) -> None:
        source = next(part for part in parts if part["task"] == "lines/0")
        source["finished"] = False
        source["positions"].append({"split": named, "offset": 0, "records": 0})

    epoch = opened(job).latest()
    assert epoch is not None
    change_tasks(job / "store", epoch, point_elsewhere)
    before = last_counts(job)
    with pytest.raises(EngineError, match="does not match the file") as refused:
        run_job(word_count(), str(job / "store"), inline(job, keep=None, from_epoch=epoch))
    assert refused.value.exit_code == 3
    assert last_counts(job) == before


def test_a_plan_holds_until_the_job_runs_again_and_says_that_it_has(job: Path) -> None:
    """Every file that the plan lists is still there and whole: it is the new attempt alone that makes it stale."""
    store = opened(job)
    plan = plan_recovery(store)
    check_plan(plan, store)
    run_job(word_count(), str(job / "store"), inline(job, keep=None, from_epoch=plan.body.epoch))
    with pytest.raises(StalePlan, match=r"the job has run since: there is attempts/000002\.json"):
        check_plan(plan, opened(job))


def test_a_plan_that_lists_too_little_of_its_epoch_is_refused(job: Path) -> None:
    import msgspec

    store = opened(job)
    plan = plan_recovery(store)
    state = next(item for item in plan.relies_on if item.path.endswith(".parquet"))
    fewer = msgspec.structs.replace(plan, relies_on=tuple(item for item in plan.relies_on if item != state))
    with pytest.raises(StalePlan, match="does not list every file"):
        check_plan(fewer, store)


def test_a_job_that_runs_between_the_check_and_the_restore_is_noticed_under_the_lock(job: Path) -> None:
    """The command checks before it asks; only what holds once the store is held counts."""
    plan = plan_recovery(opened(job))
    run_job(word_count(), str(job / "store"), inline(job, keep=None, from_epoch=plan.body.epoch))
    before = fingerprint(job)
    with pytest.raises(StalePlan, match="the job has run since"):
        restore(plan, word_count(), inline(job, keep=None))
    assert fingerprint(job) == before


def test_a_record_that_claims_a_thousand_million_epochs_does_not_have_them_fenced_one_by_one(job: Path) -> None:
    change(job / "store" / layout.attempt(1), lambda facts: facts.update(first_epoch=10**9))
    before = fingerprint(job)
    options = inline(job, keep=None, from_epoch=opened(job).latest(), accept_missing=True)
    with pytest.raises(Damaged, match="have started, but none from"):
        run_job(word_count(), str(job / "store"), options)
    assert not {name for name in fingerprint(job) if name not in before and "attempts" in name}


def test_as_many_numbers_as_an_attempt_fences_at_most_are_fenced(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    latest = opened(job).latest() or 0
    change(job / "store" / layout.attempt(1), lambda facts: facts.update(first_epoch=latest + 4))
    more = opened(job).highest_number() - opened(job).undecided_from()
    monkeypatch.setattr(attempt, "MAX_FENCES", more - 1)
    with pytest.raises(Damaged, match="have started, but none from"):
        run_job(word_count(), str(job / "store"), inline(job, keep=None, from_epoch=0))
    monkeypatch.setattr(attempt, "MAX_FENCES", more)
    run_job(word_count(), str(job / "store"), inline(job, keep=None, from_epoch=0, take_ownership=True))
    assert set(range(latest + 1, latest + 4)) <= set(opened(job).fences())


# -- a restore that was broken off --------------------------------------------------------------------------


def killed(job: Path, when: str, *more: object) -> None:
    """A restore of the plan whose process is killed with SIGKILL: when it has recorded its attempt, when it has
    taken the sinks over, or when it has completed an epoch."""
    places = {"attempt": '(attempt, "put_attempt")', "sinks": '(Outputs, "take")', "epoch": '(journal, "complete")'}
    code = (
        "import os, signal, sys\n"
        "import abscli.engine.attempt as attempt\n"
        "from abscli.engine.sinks.outputs import Outputs\n"
        "import abscli.engine.journal as journal\n"
        f"place = {places[when]}\n"
        "inner = getattr(*place)\n"
        "def last(*given, **named):\n"
        "    done = inner(*given, **named)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "setattr(*place, last)\n"
        "from abscli.cli.main import main\n"
        "main(sys.argv[1:])\n"
    )
    words = ["restore", job / "plan.json", "--job", job / "job.yaml", "--engine", "inline", "--yes", *more]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ABS_")} | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code, *map(str, words)], env=environment, timeout=120)
    assert done.returncode == -signal.SIGKILL


def restored(job: Path, *more: object) -> subprocess.CompletedProcess[str]:
    return abs_("restore", job / "plan.json", "--job", job / "job.yaml", "--engine", "inline", "--yes", *more)


@pytest.fixture
def planned(tmp_path: Path) -> tuple[Path, Counter[str]]:
    """A job that was stopped half-way, and a plan for it."""
    counts = write_words(tmp_path, files=4, lines=4000)
    (tmp_path / "job.yaml").write_text(JOB)
    stopped = inline(tmp_path, keep=None, interval=0.05)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("abscli.engine.sources.files.line_files.CHUNK", 4096)
        run_job(
            word_count(), str(tmp_path / "store"), stopped,
            on_progress=lambda progress: ask_to_stop() if progress.epochs >= 2 else None,
            on_service=running.append,
        )  # fmt: skip
    (tmp_path / "plan.json").write_bytes(encode(plan_recovery(opened(tmp_path))))
    return tmp_path, counts


running: list[Service] = []


def ask_to_stop() -> None:
    running[-1].request_stop()


@pytest.mark.sample(2)
@pytest.mark.parametrize("where", ["the same store", "a copy"])
@pytest.mark.parametrize("when", ["attempt", "sinks", "epoch"])
def test_a_restore_that_was_killed_goes_on_with_the_same_plan(
    planned: tuple[Path, Counter[str]], when: str, where: str
) -> None:
    job, counts = planned
    more = () if where == "the same store" else ("--to", job / "copy")
    store = job / ("store" if where == "the same store" else "copy")
    for _ in range(2):
        killed(job, when, *more)
    done = restored(job, *more)
    assert done.returncode == 0, done.stderr
    done = abs_("run", job / "job.yaml", "--store", store, "--engine", "inline", "--resume")
    assert done.returncode == 0, done.stderr
    assert last_counts(job) == counts
    done = restored(job, *more)
    assert (done.returncode, "the job has run since" in done.stderr) == ((2, False) if more else (5, True))


def test_a_restore_of_another_plan_makes_this_one_stale(planned: tuple[Path, Counter[str]]) -> None:
    job, _ = planned
    first = opened(job).epoch_numbers()[0]
    mine = (job / "plan.json").read_bytes()
    (job / "plan.json").write_bytes(encode(plan_recovery(opened(job), epoch=first)))
    killed(job, "attempt")
    (job / "plan.json").write_bytes(mine)
    done = restored(job)
    assert done.returncode == 5
    assert "the job has run since: there is attempts/000002.json" in done.stderr


def test_a_copy_is_whole_or_not_there(planned: tuple[Path, Counter[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    job, _ = planned
    plan = plan_recovery(opened(job))
    monkeypatch.setattr("abscli.stores.native.restore.put_store", lambda *given: 1 / 0)
    before = sorted(path.name for path in job.iterdir())
    with pytest.raises(ZeroDivisionError):
        restore(plan, word_count(), inline(job, keep=None), to=str(job / "copy"))
    assert sorted(path.name for path in job.iterdir()) == before


@pytest.mark.sample(1)
@pytest.mark.parametrize("to", [None, "copy"])
def test_a_plan_that_names_its_store_by_a_uri_is_carried_out_as_its_rehearsal_says(job: Path, to: str | None) -> None:
    import msgspec

    plan = plan_recovery(opened(job))
    (job / "plan.json").write_bytes(encode(msgspec.structs.replace(plan, store=f"file://{plan.store}")))
    words = ["restore", job / "plan.json", "--job", job / "job.yaml", "--engine", "inline"]
    words += [] if to is None else ["--to", job / to]
    assert abs_(*words, "--dry-run").returncode == 0
    done = abs_(*words, "--yes")
    assert done.returncode == 0, done.stderr


def test_a_plan_file_that_is_not_there_says_how_plans_are_made(tmp_path: Path) -> None:
    done = abs_("restore", tmp_path / "plan.json", "--dry-run")
    assert done.returncode == 2
    assert "hint: abs plan-recovery ... --out FILE writes plans" in done.stderr


@pytest.mark.parametrize(("to", "code"), [("file://{job}/copy", 0), ("viewfs://cluster/copy", 2)])
def test_a_copy_is_made_where_a_uri_says_or_nowhere(job: Path, to: str, code: int) -> None:
    (job / "plan.json").write_bytes(encode(plan_recovery(opened(job))))
    words = ("restore", "plan.json", "--job", "job.yaml", "--engine", "inline", "--yes", "--to", to.format(job=job))
    done = abs_(*words, cwd=job)
    assert (done.returncode, (job / "copy").exists()) == (code, code == 0), done.stderr
    assert not {path.name for path in job.iterdir()} & {"file:", "viewfs:"}
