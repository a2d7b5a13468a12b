"""What `abscli` offers to programs: the examples in its documentation hold, on stores of all systems."""

from __future__ import annotations

import doctest
import importlib
import inspect
import os
import pkgutil
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import abscli
from abscli import api, errors
from abscli.api.jobs import RunningJob
from abscli.engine import keyed_functions
from abscli.jobs import job, streams
from formats.native import lock
from formats.native.store import NativeStore
from formats.storage import LocalStorage
from tests.support.guide.blocks import PAGES
from tests.support.imports import ROOT, imports
from tests.support.spark.data import copy_of
from tests.support.stores.json_system import JsonSystem, file_of, write_store
from tests.support.stores.small import make_store

JOB = """\
version: 1
job: reach
parallelism: 2
max_parallelism: 8
operators:
  lines:
    source: {type: text, path: in/*.txt}
  seen:
    from: {lines: {partition: hash, key: [line]}, seen: {partition: hash, key: [line]}}
    distinct: [line]
  out:
    parallelism: 1
    from: {seen: {partition: rebalance}}
    sink: {type: jsonl, path: out}
"""

FLINK = ROOT / "tests" / "data" / "flink"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the examples work in: a store, a plan of it, its job and an input."""
    monkeypatch.chdir(tmp_path)
    make_store("snapshots")
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("a\nb\na\n")
    abscli.open_store("snapshots").plan().save("plan.json")
    return tmp_path


def examples() -> Iterator[doctest.DocTest]:
    """Those of its modules, and the session of the guide's page."""
    for part in pkgutil.iter_modules(api.__path__):
        module = importlib.import_module(f"{api.__name__}.{part.name}")
        tests = doctest.DocTestFinder().find(module, f"api.{part.name}", globs=vars(module) | vars(api))
        yield from (test for test in tests if test.examples)
    page = PAGES / "reference" / "python-api.md"
    session = page.read_text(encoding="utf-8")
    yield doctest.DocTestParser().get_doctest(session, {}, page.name, str(page), 0)


@pytest.mark.parametrize("example", list(examples()), ids=lambda example: example.name)
def test_an_example_says_what_comes_out(example: doctest.DocTest, folder: Path) -> None:
    pages: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=pages.append)
    assert not pages, "".join(pages)


@pytest.mark.parametrize("name", abscli.__all__)
def test_every_public_name_is_there_and_says_what_it_is(name: str) -> None:
    assert getattr(abscli, name).__doc__
    assert name in dir(abscli)


def test_the_list_of_names_is_that_of_the_modules_that_have_them() -> None:
    modules = api, errors, job, keyed_functions, streams
    assert sorted(abscli.__all__) == sorted(name for module in modules for name in module.__all__)
    with pytest.raises(AttributeError, match="no attribute 'close_store'"):
        abscli.close_store  # type: ignore[attr-defined]  # noqa: B018


def test_every_public_method_is_documented() -> None:
    for kind in (member for name in abscli.__all__ if isinstance(member := getattr(abscli, name), type)):
        for name, member in inspect.getmembers(kind):
            if not name.startswith("_") and (callable(member) or isinstance(member, property)):
                assert member.__doc__, f"{kind.__name__}.{name}"


def test_the_version_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert abscli.__version__ == project["version"]


def test_importing_it_loads_nothing() -> None:
    code = "import sys, abscli; print(*(name for name in sys.modules if name.startswith(('abscli', 'formats'))))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["abscli"]


def test_both_packages_say_that_they_are_typed() -> None:
    assert (ROOT / "abscli" / "py.typed").exists()
    assert (ROOT / "formats" / "py.typed").exists()


@pytest.mark.parametrize(
    "command", ["inspect", "state", "validate", "diff", "plan_recovery", "restore", "gc", "rebuild", "demo"]
)
def test_a_command_opens_stores_as_a_notebook_does(command: str) -> None:
    path = ROOT / "abscli" / ("examples/scenario.py" if command == "demo" else f"commands/{command}.py")
    assert any(name.startswith("abscli.api.") for name in imports(path))
    assert not [name for name in imports(path) if name.startswith("abscli.stores.")]


def test_a_checkpoint_of_flink_answers_the_same_questions(tmp_path: Path) -> None:
    place = next((FLINK / "hashmap-checkpoint").rglob("_metadata")).parent
    store = abscli.open_store(place / "_metadata")
    number = store.resolve()
    job = place.parent.name
    assert repr(store) == f"Store('{place}/_metadata', system='flink', job='{job}', 1 epoch, latest {number})"
    assert [epoch.number for epoch in store.epochs()] == [number]
    state = store.states()[0]
    table = store.state(state.operator, state.name)
    assert isinstance(table, pa.Table)
    assert store.rows(state).reader().read_all().num_rows == table.num_rows
    report = store.validate(number)
    assert report.restorable == (number,)
    assert not report.unsatisfied()
    assert "not all compared" in repr(store.diff(store))
    plan = store.plan()
    assert plan.epoch == number
    restored = store.restore(plan, tmp_path / "copy")
    assert repr(restored).startswith("Restored(")
    assert abscli.open_store(tmp_path / "copy").validate().restorable == (number,)


def test_a_checkpoint_of_spark_answers_the_same_questions(tmp_path: Path) -> None:
    store = abscli.open_store(copy_of("wc_rocks", tmp_path))
    number = store.resolve()
    assert store.latest == number
    assert store.epoch().operators
    (state, *_) = store.states()
    assert store.state(state, where="count > 13", columns=["word"]).num_rows == 3
    assert store.validate(quick=True).restorable
    assert store.epoch(number).validate().epochs[0].epoch == number
    assert store.diff(epoch=number, to=number).identical
    plan = store.plan()
    with pytest.raises(abscli.BadOption, match="--to"):
        store.restore(plan)
    with pytest.raises(abscli.OtherFormat, match="--uids means nothing"):
        store.owners("uids.txt")
    store.restore(plan, tmp_path / "copy")
    assert abscli.open_store(tmp_path / "copy").latest == plan.epoch
    with pytest.raises(abscli.BadOption, match="the plan is of"):
        abscli.open_store(tmp_path / "copy").restore(plan, tmp_path / "other")


def test_a_job_is_run_planned_and_restored(folder: Path) -> None:
    outcome = abscli.run_job("job.yaml", "made", engine="inline", interval=None)
    store = abscli.open_store("made@latest")
    plan = store.plan()
    assert plan.epoch == outcome.epoch
    restored = store.restore(plan, "again", job="job.yaml", engine="inline")
    assert restored.to_json()["parent"] == outcome.epoch
    again = abscli.open_store("again")
    assert store.state("seen").sort_by("line").to_pydict() == {"line": ["a", "b"]}
    assert again.state("seen").sort_by("line").to_pydict() == {"line": ["a", "b"]}


def test_a_job_goes_on_from_its_newest_whole_epoch(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = abscli.run_job("job.yaml", "made", engine="inline", interval=None, resume=True)
    assert (first.parent, first.records) == (0, 3)
    second = abscli.run_job("job.yaml", "made", engine="inline", interval=None, resume=True)
    assert (second.parent, second.records) == (first.epoch, 0)
    assert not caplog.messages
    tasks = NativeStore(LocalStorage("made")).manifest(second.epoch).tasks_file.path
    (Path("made") / tasks).write_bytes(b"other")
    third = abscli.run_job("job.yaml", "made", engine="inline", interval=None, resume=True)
    assert third.parent == first.epoch
    assert caplog.messages[-1] == f"resuming from epoch {first.epoch}"
    with pytest.raises(abscli.BadOption, match="exclude each other"):
        abscli.run_job("job.yaml", "made", engine="inline", resume=True, from_epoch=1)


def test_who_starts_a_job_gets_it_and_its_processes(folder: Path) -> None:
    jobs: list[RunningJob] = []
    abscli.run_job("job.yaml", "made", engine="inline", interval=None, workers=2, on_start=jobs.append)
    (job,) = jobs
    assert job.pids() == {0: os.getpid(), 1: os.getpid()}


def test_a_store_is_seen_as_it_is_now_when_it_is_refreshed(tmp_path: Path) -> None:
    place = copy_of("wc_rocks", tmp_path)
    store = abscli.open_store(place)
    before = store.epochs()
    number = before[-1].number
    for log in ("offsets", "commits"):
        shutil.copy(place / log / str(number), place / log / str(number + 1))
    assert [epoch.number for epoch in store.refresh().epochs()] == [*(e.number for e in before), number + 1]


def test_what_may_go_from_a_store_goes(folder: Path) -> None:
    store = abscli.open_store("snapshots")
    garbage = store.garbage(keep=1)
    assert repr(garbage).startswith(f"Garbage('snapshots', {len(garbage.epochs)} epochs and ")
    assert "may go" in repr(garbage)
    assert str(garbage).endswith("Next: abs gc snapshots --keep-last 1 --yes")
    assert [epoch.number for epoch in store.epochs()] == [1, 2, 3, 4, 5]
    gone = store.gc(keep=1)
    assert gone.removed
    assert gone.epochs == garbage.epochs
    assert [epoch.number for epoch in store.epochs()] == list(gone.kept) == list(garbage.kept)
    with pytest.raises(abscli.BadOption, match="is one epoch"):
        abscli.open_store("snapshots@4").gc()
    with pytest.raises(abscli.BadOption, match="name the directory of its job"):
        abscli.open_store(next((FLINK / "hashmap-checkpoint").rglob("_metadata")).parent).garbage()
    with pytest.raises(abscli.OtherFormat, match="does not support stores of format ledger"):
        JsonSystem().collect([], "ledger", garbage.asked)


def test_nothing_goes_and_nothing_is_made_anew_while_a_job_runs(folder: Path) -> None:
    store = abscli.open_store("snapshots")
    with lock.exclusive(LocalStorage("snapshots")):
        for call in (store.garbage, store.gc, lambda: abscli.rebuild("snapshots")):
            with pytest.raises(abscli.StoreInUse):
                call()


def test_books_that_are_lost_beyond_help_are_named(folder: Path) -> None:
    shutil.rmtree("snapshots/topologies")
    rebuilt = abscli.rebuild("snapshots", dry_run=True)
    assert not rebuilt.whole
    assert "file lost" in repr(rebuilt)
    assert "Cannot be rebuilt" in str(rebuilt)


def test_a_stale_plan_is_refused(folder: Path) -> None:
    store = abscli.open_store("snapshots")
    plan = store.plan()
    next(iter(Path("snapshots/epochs/0000000004").rglob("*.parquet"))).write_bytes(b"other")
    with pytest.raises(abscli.StalePlan):
        plan.prepare(job="job.yaml")


def test_a_store_that_cannot_be_read_is_shown_and_checked(folder: Path) -> None:
    Path("snapshots/abs-store.json").unlink()
    store = abscli.open_store("snapshots")
    assert repr(store).startswith("Store('snapshots', system='abs', cannot be read: ")
    assert store.validate().unsatisfied()
    with pytest.raises(abscli.NotFound):
        store.epochs()


def test_a_system_that_nobody_planned_for_is_opened_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from abscli.stores import registry

    monkeypatch.setattr(registry, "SYSTEMS", (*registry.SYSTEMS, JsonSystem()))
    store = abscli.open_store(write_store(tmp_path / "ledger"))
    assert store.state("totals", where="n >= 2", columns=["word"]).to_pydict() == {"word": ["a", "b"]}
    (tmp_path / "ledger" / file_of(3)).write_text("{}")
    assert repr(store.plan()) == f"RecoveryPlan('{tmp_path}/ledger', system='ledger', relies on 3 files)"
