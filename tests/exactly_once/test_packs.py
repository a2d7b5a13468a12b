"""Jobs whose state lies in packs, killed between a pack and the outcome, and with a worker that is replaced."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from abscli.engine.coordinator import Progress, Service
from abscli.engine.job import run_job
from abscli.report.findings import Code
from abscli.stores.native.copying import copy_store
from abscli.stores.native.repairing.repair import repair
from abscli.stores.native.repairing.repair_plan import plan_repair
from abscli.stores.recovery import JobFile
from formats.native.facts import PartFacts
from formats.native.store import NativeStore, files_of
from formats.storage import LocalStorage, open_writable
from formats.storage.ranges import range_of, whole_file
from formats.view import Status
from tests.support.jobs import lines
from tests.support.jobs.kills import check_counted, fan, write_rows
from tests.support.jobs.small import (
    inline,
    last_counts,
    open_gate,
    output_pairs,
    reach,
    word_count,
    write_graph,
    write_words,
)
from tests.support.objects.places import bucket_place
from tests.support.objects.servers import ObjectServer
from tests.support.stores.checked import job_file, validated

ROOT = Path(__file__).parents[2]

DYING = """
import os, signal, sys
from pathlib import Path
from abscli.engine import journal
from abscli.engine.job import run_job
from abscli.engine.state import packing
from formats.native import claims
from tests.support.jobs import lines
from tests.support.jobs.small import inline, word_count

folder, store, where, n = sys.argv[1:]
left = int(n)

def dying(plain):
    def call(*arguments, **options):
        global left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(*arguments, **options)
    return call

if where == "pack":
    packing.Packer._put = dying(packing.Packer._put)
elif where == "tasks":
    journal.put_tasks = dying(journal.put_tasks)
else:
    journal.complete = dying(journal.complete)
claims.SECONDS = 2.0
gate = lines.Gate()
gate.install(setattr)

def progress(now):
    gate.epochs = now.epochs

run_job(word_count(2), store, inline(Path(folder), workers=2, interval=0.05, keep=2), on_progress=progress)
"""

KILLED_WORKER = """
import sys
from pathlib import Path
from abscli.engine.job import JobOptions, run_job
from tests.support.jobs.kills import Kills, after, fan

folder, store = sys.argv[1:]
kills = Kills([(after(3), [1]), (after(5), [0])], Path(folder))
options = JobOptions(folder, "job.yaml", master="local[4]", interval=0.2, workers=2, keep=None)
outcome = run_job(fan(), store, options, kills.progress, kills.meet, on_news=kills.news)
assert outcome.finished
assert len(kills.pids) == 2 == len(kills.recoveries), (kills.pids, kills.recoveries)
"""


def child(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, timeout=600
    )


def packs_of(store: NativeStore, epoch: int) -> set[str]:
    """The files that ranges of an epoch lie in."""
    files = (file for part in store.parts(epoch) for file in files_of(part))
    return {whole_file(file.path) for file in files if range_of(file.path) is not None}


def findings(uri: str, job: JobFile) -> set[Code]:
    report = validated(uri, job)
    assert not report.damaged
    return {finding.code for finding in report.all_findings}


@pytest.mark.sample(2)
@pytest.mark.parametrize(("where", "n"), [("pack", 5), ("pack", 6), ("tasks", 3), ("outcome", 3)])
def test_a_job_that_is_killed_before_an_outcome_goes_on_exactly(
    tmp_path: Path, s3: ObjectServer, monkeypatch: pytest.MonkeyPatch, where: str, n: int
) -> None:
    """With SIGKILL: before a pack of an epoch, behind all of them, and behind the list of parts."""
    counts = write_words(tmp_path, files=2, lines=8 * lines.LINES_AN_EPOCH)
    uri = str(bucket_place(s3).root)
    dead = child(DYING, tmp_path, uri, where, n)
    assert dead.returncode == -signal.SIGKILL, dead.stderr[-2000:]
    store = NativeStore(open_writable(uri))
    left = store.epochs()[-1]
    assert left.status is Status.INCOMPLETE
    assert (left.missing == ()) == (where != "pack")
    whole = store.latest()
    assert whole is not None
    assert packs_of(store, whole)
    gate = lines.Gate(epochs=100)
    gate.install(monkeypatch.setattr)

    def progress(now: Progress) -> None:
        gate.epochs = 100 + now.epochs

    options = inline(tmp_path, workers=2, interval=0.05, keep=2, from_epoch=whole)
    assert run_job(word_count(2), uri, options, on_progress=progress).finished
    assert last_counts(tmp_path) == counts
    assert findings(uri, job_file(word_count(2), tmp_path)) == set()


@pytest.mark.sample(1)
@pytest.mark.parametrize("policy", ["aligned", "unaligned"])
def test_logs_lie_in_packs_as_well(tmp_path: Path, s3: ObjectServer, policy: str) -> None:
    """Of a loop of parallel tasks that turns while epochs are taken; stopped in the middle of it, and gone on with."""
    pairs = write_graph(tmp_path, turning=True)
    uri = str(bucket_place(s3).root)
    services: list[Service] = []

    def stop(now: Progress) -> None:
        if now.epochs >= 3 and services:
            services.pop().request_stop()

    options = inline(tmp_path, policy=policy, interval=0.05, keep=None)
    run_job(reach(), uri, options, on_progress=stop, on_service=services.append)
    store = NativeStore(open_writable(uri))
    epoch = store.latest()
    assert epoch is not None
    logged = [log for part in store.parts(epoch) for log in part.logs if log.file is not None]
    assert logged
    assert all(log.file and range_of(log.file.path) for log in logged)
    open_gate(tmp_path)
    assert run_job(reach(), uri, inline(tmp_path, policy=policy, from_epoch=epoch, keep=2)).finished
    assert sorted(output_pairs(tmp_path)) == sorted(pairs)
    assert findings(uri, job_file(reach(), tmp_path)) == set()


@pytest.mark.soak
@pytest.mark.minutes
def test_workers_of_spark_that_are_killed_are_replaced(tmp_path: Path, s3: ObjectServer) -> None:
    """Each time one that has put packs; epochs refer to ranges of packs of processes that are gone."""
    counts = write_rows(tmp_path)
    uri = str(bucket_place(s3).root)
    done = child(KILLED_WORKER, tmp_path, uri)
    assert done.returncode == 0, done.stderr[-3000:]
    check_counted(tmp_path, counts)
    store = NativeStore(open_writable(uri))
    complete = [epoch for epoch in store.epoch_numbers() if store.has_manifest(epoch)]
    processes = {Path(path).name.partition("-")[0] for epoch in complete for path in packs_of(store, epoch)}
    assert len(processes) >= 3
    assert findings(uri, job_file(fan(), tmp_path)) <= {Code.MISSING_ACK, Code.UNREFERENCED_FILE}


def test_a_store_of_packs_goes_on_in_a_directory_and_back(
    tmp_path: Path, s3: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There every file is one of its own, beside ranges of packs that came with the copy."""
    counts = write_words(tmp_path, files=2, lines=9 * lines.LINES_AN_EPOCH)
    uri = str(bucket_place(s3).root)
    gate = lines.Gate()
    gate.install(monkeypatch.setattr)
    services: list[Service] = []

    def progress(now: Progress) -> None:
        gate.epochs = now.epochs
        if now.epochs >= 3 and services:
            services.pop().request_stop()

    def run(store: str, from_epoch: int | None = None) -> int:
        gate.read.clear()
        options = inline(tmp_path, workers=2, interval=0.05, keep=3, from_epoch=from_epoch)
        run_job(word_count(2), store, options, on_progress=progress, on_service=services.append)
        newest = NativeStore(open_writable(store)).latest()
        assert newest is not None
        return newest

    first = run(uri)
    copy = str(tmp_path / "copy")
    copy_store(NativeStore(open_writable(uri)), None, copy)
    second = run(copy, first)
    there = NativeStore(open_writable(copy))
    assert packs_of(there, second)
    assert {path for part in there.parts(second) for path in files_alone(part)}
    back = str(bucket_place(s3).root)
    copy_store(there, None, back)
    gate.epochs = 100
    options = inline(tmp_path, workers=2, interval=0.05, keep=3, from_epoch=second)
    gate.read.clear()
    assert run_job(word_count(2), back, options).finished
    assert last_counts(tmp_path) == counts
    assert findings(back, job_file(word_count(2), tmp_path)) == set()


def files_alone(part: PartFacts) -> set[str]:
    return {file.path for file in files_of(part) if range_of(file.path) is None}


def test_an_epoch_whose_pack_is_damaged_is_repaired_in_a_copy(
    tmp_path: Path, s3: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A range of one task: it and whom it hears from run again from ranges of older packs, and the other parts, in the
    same packs, stay."""
    write_words(tmp_path, files=2, lines=9 * lines.LINES_AN_EPOCH)
    uri = str(bucket_place(s3).root)
    gate = lines.Gate()
    gate.install(monkeypatch.setattr)
    services: list[Service] = []

    def progress(now: Progress) -> None:
        gate.epochs = now.epochs
        if now.epochs >= 3 and services:
            services.pop().request_stop()

    options = inline(tmp_path, workers=2, interval=0.05, keep=None)
    run_job(word_count(2), uri, options, on_progress=progress, on_service=services.append)
    copy = tmp_path / "copy"
    copy_store(NativeStore(open_writable(uri)), None, str(copy))
    store = NativeStore(LocalStorage(copy))
    newest = store.latest()
    assert newest is not None
    before = {task: sorted(rows(store, newest, task)) for task in (0, 1)}
    victim = next(part for part in store.parts(newest) if str(part.task) == "counts/0")
    place = range_of(victim.state[-1].path)
    assert place is not None
    data = bytearray((copy / place.file).read_bytes())
    data[place.offset + place.length // 2] ^= 1
    (copy / place.file).write_bytes(bytes(data))
    plan = plan_repair(NativeStore(LocalStorage(copy)))
    assert plan.body.epoch == newest
    assert plan.body.failed == ("counts/0",)
    gate.epochs = 100
    gate.read.clear()
    repair(plan, word_count(2), str(tmp_path))
    mended = NativeStore(LocalStorage(copy))
    assert {task: sorted(rows(mended, newest, task)) for task in (0, 1)} == before
    assert findings(str(copy), job_file(word_count(2), tmp_path)) == set()


def rows(store: NativeStore, epoch: int, subtask: int) -> list[tuple[str, int]]:
    """The live state of a task that counts."""
    task = next(rows for part, rows in store.task_rows(epoch, "counts") if part.task.subtask == subtask)
    table = task.read(task.own, ["word", "n"])
    return list(zip(table.column("word").to_pylist(), table.column("n").to_pylist(), strict=True))
