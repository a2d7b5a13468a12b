"""`abs copy`: what is there is whole, what is missing comes the next time, and nothing else is written."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from abscli.stores.native.check import check
from abscli.stores.native.copying import copy_store
from abscli.stores.native.tagging import NativeTags
from formats.native import layout, lock
from formats.native.remove import remove_epoch
from formats.native.store import NativeStore
from formats.storage import LocalStorage
from tests.commands.test_jobs import ABS, PATIENCE, ROOT, abs_, make_turning_job
from tests.support.commands import answer_of, result_of, run_command
from tests.support.flink.cases import HASHMAP, latest
from tests.support.jobs.small import last_counts, open_gate
from tests.support.spark.data import copy_of
from tests.support.stores.small import FIRST, Build, loop_job, make_store, take_over

Capture = pytest.CaptureFixture[str]
copy = partial(run_command, "copy")
made = partial(answer_of, "copy")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Epochs 1, 2 and 4 complete, each on top of the files of the one before; 3 aborted, 5 incomplete."""
    path = tmp_path / "store"
    make_store(path)
    return path


def files(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file() and p.name != "lock"}


def whole(path: Path) -> list[int]:
    """Epochs that can be restored, of a store of which nothing is found."""
    report = check(LocalStorage(path), None, quick=False, progress=lambda read, total: None).report
    assert not report.all_findings
    return list(report.restorable)


def became(result: dict[str, object]) -> list[tuple[int, str]]:
    epochs = result["epochs"]
    assert isinstance(epochs, list)
    return [(row["epoch"], row["outcome"]) for row in epochs]


def test_a_copy_has_what_is_complete_and_the_next_one_what_is_missing(store: Path, capsys: Capture) -> None:
    run_command("tag", capsys, f"{store}@2", "good")
    to = store.parent / "copy"
    first = made(capsys, store, to)
    assert became(first) == [(1, "copied"), (2, "copied"), (4, "copied")]
    assert (first["new"], first["tags"], whole(to)) == (True, {"good": 2}, [1, 2, 4])
    source, target = files(store), files(to)
    assert {name: data for name, data in target.items() if name != layout.STORE}.items() <= source.items()
    assert sum(map(len, target.values())) == first["bytes"]
    assert run_command("diff", capsys, f"{store}@4", f"{to}@4", "--exit-code")[0] == 0
    before = files(to)
    again = made(capsys, store, to)
    assert (became(again), again["bytes"], files(to)) == ([(1, "present"), (2, "present"), (4, "present")], 0, before)
    later = take_over(Build(LocalStorage(store), loop_job()))
    later.complete(7, 4, base=4)
    more = made(capsys, store, to)
    assert [row for row in became(more) if row[1] == "copied"] == [(7, "copied")]
    assert whole(to) == [1, 2, 4, 7]
    assert before.items() <= files(to).items()
    assert [life.attempt for life in NativeStore(LocalStorage(to)).attempts()] == [1, 2]
    assert NativeStore(LocalStorage(to)).fences() == [5, 6]


def test_what_the_store_removes_stays_and_a_tag_that_moves_is_followed(store: Path, capsys: Capture) -> None:
    to = store.parent / "copy"
    run_command("tag", capsys, f"{store}@2", "good")
    made(capsys, store, to)
    run_command("tag", capsys, f"{store}@4", "good", "--move")
    run_command("gc", capsys, store, "--keep", "1", "--yes")
    assert made(capsys, store, to)["tags"] == {"good": 4}
    assert [(tag.name, tag.epoch) for tag in NativeTags(NativeStore(LocalStorage(to))).all()] == [("good", 4)]
    assert whole(to) == [1, 2, 4]
    assert result_of("gc", capsys, to, "--keep", "1", "--yes")["kept"] == [4]


def test_one_epoch_comes_with_all_that_it_needs_and_the_others_later(store: Path, capsys: Capture) -> None:
    run_command("tag", capsys, f"{store}@2", "good")
    to = store.parent / "copy"
    assert became(made(capsys, f"{store}@good", to)) == [(2, "copied")]
    assert (whole(to), NativeStore(LocalStorage(to)).epoch_numbers()) == ([2], [2])
    assert result_of("state", capsys, f"{to}@good", "seen") == result_of("state", capsys, f"{store}@2", "seen") | {
        "store": str(to)
    }
    assert became(made(capsys, store, to)) == [(1, "copied"), (2, "present"), (4, "copied")]
    assert whole(to) == [1, 2, 4]
    assert copy(capsys, f"{store}@5", store.parent / "other")[0] == 10
    assert not (store.parent / "other").exists()


class Dies(LocalStorage):
    """The process ends when so many files have been written."""

    left = 0

    def put(self, path: str, data: bytes | memoryview, *, replace: bool = False) -> None:
        if self.left == 0:
            raise KeyboardInterrupt
        self.left -= 1
        super().put(path, data, replace=replace)


@pytest.mark.sample(1)
@pytest.mark.parametrize("older", [False, True], ids=["a new copy", "an older copy"])
def test_a_copy_that_is_killed_is_whole_or_says_that_it_is_not_and_is_gone_on_with(
    store: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, older: bool
) -> None:
    run_command("tag", capsys, f"{store}@2", "good")
    to, was, undisturbed = tmp_path / "copy", tmp_path / "was", tmp_path / "undisturbed"
    if older:
        made(capsys, store, was)
    take_over(Build(LocalStorage(store), loop_job())).complete(7, 4, base=4)
    made(capsys, store, undisturbed)
    expected = {name: data for name, data in files(undisturbed).items() if name != layout.STORE}
    seen = set()
    for written in range(100):
        shutil.rmtree(to, ignore_errors=True)
        if older:
            shutil.copytree(was, to)
        to.mkdir(exist_ok=True)
        with monkeypatch.context() as patch:
            patch.setattr("abscli.stores.native.copying._place", lambda store, place: Dies(place))
            patch.setattr(Dies, "left", written)
            patch.setattr("abscli.stores.native.copying.WORKERS", 1)
            try:
                copy_store(NativeStore(LocalStorage(store)), None, str(to))
            except KeyboardInterrupt:
                killed = True
            else:
                killed = False
        if (to / layout.STORE).exists():
            report = check(LocalStorage(to), None, quick=False, progress=lambda read, total: None).report
            assert not report.damaged, written
            assert set(report.restorable) >= ({1, 2, 4} if older else {1, 2, 4, 7})
            seen.add("whole")
        else:
            assert not older
            code, _, err = run_command("inspect", capsys, to)
            assert code == 10
            assert "no" in err
            seen.add("no store")
        copy_store(NativeStore(LocalStorage(store)), None, str(to))
        assert {name: data for name, data in files(to).items() if name != layout.STORE} == expected, written
        if not killed:
            break
    else:
        pytest.fail("a hundred writes were not enough")
    assert seen == ({"whole"} if older else {"whole", "no store"})


def test_what_is_damaged_is_not_copied_and_what_is_damaged_in_the_copy_is_mended(store: Path, capsys: Capture) -> None:
    to = store.parent / "copy"
    state = layout.state(4, "seen/0", FIRST)
    data = (store / state).read_bytes()
    (store / state).write_bytes(data[:-20] + bytes([data[-20] ^ 1]) + data[-19:])
    result = made(capsys, store, to, code=3)
    assert became(result) == [(1, "copied"), (2, "copied"), (4, "damaged")]
    assert "has SHA-256" in copy(capsys, store, to)[1].replace("\n", "").replace("  ", " ")
    assert whole(to) == [1, 2]
    (store / state).write_bytes(data)
    lost = layout.state(1, "seen/0", FIRST)
    (to / lost).write_bytes(b"")
    assert became(made(capsys, store, to)) == [(1, "present"), (2, "present"), (4, "copied")]
    assert whole(to) == [1, 2, 4]
    (to / lost).unlink()
    assert became(made(capsys, f"{store}@1", to)) == [(1, "copied")]
    assert whole(to) == [1, 2, 4]
    for path in store.glob("epochs/*/*/tasks.json"):
        path.write_bytes(b"{}")
    code, _, err = copy(capsys, store, store.parent / "nothing")
    assert code == 3
    assert "no epoch could be copied" in err


def test_a_copy_of_something_else_or_that_has_gone_on_is_left_alone(store: Path, capsys: Capture) -> None:
    to, other = store.parent / "copy", store.parent / "other"
    made(capsys, store, to)
    own = Build(LocalStorage(to), loop_job(), attempt=2)
    own.begin(first_epoch=7, parent=4)
    own.complete(7, 4)
    before = files(to)
    code, _, err = copy(capsys, store, to)
    assert code == 2
    assert "has diverged" in err
    assert files(to) == before
    make_store(other)
    Build(LocalStorage(other), loop_job(), attempt=3).begin(first_epoch=9, parent=4)
    (store.parent / "files").mkdir()
    (store.parent / "files" / "mine.txt").write_text("mine")
    refused = {
        other: "has diverged", store: "lie in one another", store / "epochs": "lie in one another",
        store / "inside": "which the command reads", store.parent / "files": "contains 'mine.txt'",
        store.parent / "files" / "mine.txt": "it is a file", store.parent: "lie in one another",
    }  # fmt: skip
    for path, message in refused.items():
        code, _, err = copy(capsys, store, path)
        assert (code, message in err) == (2, True), (path, err)
    assert (store.parent / "files" / "mine.txt").read_text() == "mine"
    assert not (store / "inside").exists()
    with lock.exclusive(LocalStorage(other)):
        assert copy(capsys, store, other)[0] == 11
    assert copy(capsys, store.parent / "nowhere", store.parent / "new")[0] == 10
    assert not (store.parent / "new").exists()


class Removes(LocalStorage):
    """The job that runs removes an epoch when the n-th file is read."""

    left = 0
    epoch = 1

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        self.left -= 1
        if self.left == 0:
            needed = {f.path for part in NativeStore(LocalStorage(self.root)).parts(4) for f in part.state}
            remove_epoch(LocalStorage(self.root), self.epoch, needed)
        return super().read(path, offset, length)


@pytest.mark.sample(1)
@pytest.mark.parametrize("epoch", [1, 2])
def test_an_epoch_that_is_removed_meanwhile_is_left_out(tmp_path: Path, epoch: int) -> None:
    outcomes = set()
    for step in range(1, 80, 3):
        store, to = tmp_path / f"{step}", tmp_path / f"{step}-copy"
        make_store(store)
        storage = Removes(store)
        opened = NativeStore(storage)
        storage.epoch, storage.left = epoch, step
        copied = copy_store(opened, None, str(to))
        rows = {row.epoch: row.outcome.value for row in copied.epochs}
        there = sorted(number for number, what in rows.items() if what == "copied")
        assert whole(to) == there
        assert {1, 2, 4} - {epoch} <= set(there)
        outcomes.add(rows.get(epoch))
        if storage.left > 0:
            break
    assert {"copied", "removed"} <= outcomes


@pytest.mark.integration
def test_a_live_store_is_copied_and_the_job_goes_on_from_the_copy_exactly(
    tmp_path: Path, capsys: Capture
) -> None:
    counts = make_turning_job(tmp_path)
    job, store, to = tmp_path / "job.yaml", tmp_path / "store", tmp_path / "copy"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ABS_")} | {"PYTHONPATH": str(ROOT)}
    runs = [*ABS, "run", str(job), "--store", str(store), "--engine", "inline", "--interval", "20ms", "--keep", "2"]
    running = subprocess.Popen(runs, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + PATIENCE
        while not any(store.glob("epochs/*/outcome.json")):
            assert running.poll() is None, running.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.02)
        for _ in range(3):
            done = abs_("copy", store, to, "-o", "json")
            assert done.returncode == 0, done.stderr
            rows = became(json.loads(done.stdout))
            assert {what for _, what in rows} <= {"copied", "present", "removed"}
            validated = abs_("validate", to)
            assert validated.returncode == 0, validated.stdout
    finally:
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=PATIENCE)
    assert whole(to)
    shown = answer_of("validate", capsys, to, "--job", job)
    assert "of which this is a copy" in shown["epochs"][-1]["why_unchecked"]["unreferenced-sink-part"]
    open_gate(tmp_path)
    gone_on = abs_("run", job, "--store", to, "--engine", "inline", "--resume")
    assert gone_on.returncode == 0, gone_on.stderr
    assert Counter(last_counts(tmp_path, "id")) == counts
    refused = abs_("run", job, "--store", store, "--engine", "inline", "--resume")
    assert refused.returncode == 2
    assert "--take-ownership" in refused.stderr
    assert abs_("copy", store, to).returncode == 2


def test_copies_of_other_systems_are_those_of_restore(tmp_path: Path, capsys: Capture) -> None:
    checkpoint = copy_of("words", tmp_path / "spark")
    assert copy(capsys, checkpoint, tmp_path / "copied")[0] == 0
    assert run_command("validate", capsys, tmp_path / "copied")[0] == 0
    code, _, err = copy(capsys, checkpoint, tmp_path / "copied")
    assert code == 2
    assert "already exists" in err
    assert copy(capsys, latest(HASHMAP), tmp_path / "flink")[0] == 0
    assert run_command("validate", capsys, tmp_path / "flink")[0] == 0


