"""Whole jobs on Spark, with workers that are killed by SIGKILL."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import abscli
from abscli.engine.channels import wire
from abscli.engine.coordinator import Progress, Service
from abscli.engine.errors import EngineStopped, JobFailed, UsageError
from abscli.engine.job import JobOptions, run_job
from abscli.stores.native.plan import plan_recovery
from abscli.stores.native.restore import restore
from formats.ids import TaskId
from formats.job.model import Topology
from formats.native.store import NativeStore
from formats.storage import LocalStorage
from formats.view import Status
from tests.support.jobs.small import (
    held_at,
    last_counts,
    open_gate,
    output_pairs,
    reach,
    skewed,
    word_count,
    write_graph,
    write_skewed,
    write_words,
)
from tests.support.waiting import wait_for

pytestmark = pytest.mark.minutes

STORE = "store"


def options(folder: Path, context: Any, **more: object) -> JobOptions:
    defaults: dict[str, object] = {"context": context, "interval": 0.1, "workers": 2}
    return JobOptions(str(folder), "job.yaml", **{**defaults, **more})  # type: ignore[arg-type]


def store(folder: Path) -> NativeStore:
    return NativeStore(LocalStorage(folder / STORE))


class Killer:
    """Kills a worker's Python process once, when `due` says so."""

    def __init__(self, due: Callable[[Progress], bool], worker: int = 1) -> None:
        self.pid = 0
        self._due = due
        self._worker = worker
        self._service: Service | None = None

    def meet(self, service: Service) -> None:
        self._service = service

    def progress(self, progress: Progress) -> None:
        if not self.pid and self._service is not None and self._due(progress):
            self.pid = self._service.pids()[self._worker]
            assert self.pid != os.getpid()
            os.kill(self.pid, signal.SIGKILL)


def run_and_kill(
    topology: Topology, folder: Path, context: Any, due: Callable[[Progress], bool], worker: int = 1, **more: object
) -> EngineStopped:
    killer = Killer(due, worker)
    with pytest.raises(EngineStopped) as caught:
        run_job(
            topology, str(folder / STORE), options(folder, context, restarts=0, **more), killer.progress, killer.meet
        )
    assert f"process {killer.pid}" in caught.value.message
    return caught.value


def in_an_epoch(progress: Progress) -> bool:
    return progress.epochs >= 1 and bool(progress.open_epochs)


def held_in_an_epoch(folder: Path) -> Callable[[Progress], bool]:
    """True when a job of `skewed` stands in its middle, and the next epoch has been begun."""
    return lambda progress: held_at(folder) is not None and bool(progress.open_epochs)


def test_word_count_is_exact(tmp_path: Path, spark: Any) -> None:
    counts = write_words(tmp_path)
    outcome = run_job(word_count(), str(tmp_path / STORE), options(tmp_path, spark))
    assert outcome.finished
    assert last_counts(tmp_path) == counts


def test_a_worker_killed_in_an_epoch_costs_nothing_but_time(tmp_path: Path, spark: Any) -> None:
    counts = write_skewed(tmp_path)
    error = run_and_kill(skewed(), tmp_path, spark, held_in_an_epoch(tmp_path))
    assert "--resume" in (error.hint or "")
    latest = store(tmp_path).latest()
    assert latest == held_at(tmp_path)
    assert f"the last complete epoch is {latest}" in (error.hint or "")
    open_gate(tmp_path)
    resumed = run_job(skewed(), str(tmp_path / STORE), options(tmp_path, spark, from_epoch=latest))
    assert resumed.finished
    assert last_counts(tmp_path) == counts


def test_an_open_epoch_still_says_who_has_acked(tmp_path: Path, spark: Any) -> None:
    write_skewed(tmp_path)
    run_and_kill(skewed(), tmp_path, spark, held_in_an_epoch(tmp_path))
    newest = store(tmp_path).epochs()[-1]
    assert newest.status is Status.INCOMPLETE
    assert newest.acked is not None
    assert newest.expected == 8
    assert len(newest.missing) == newest.expected - newest.acked
    assert TaskId("words", 1) in newest.missing  # its worker stood still


@pytest.mark.fast(reason="the one session of Spark: run, SIGKILL to a worker, restored, compared")
def test_a_killed_loop_is_planned_restored_and_resumed_to_every_pair_once(tmp_path: Path, spark: Any) -> None:
    pairs = write_graph(tmp_path, nodes=500, degree=3, turning=True)
    run_and_kill(reach(), tmp_path, spark, in_an_epoch, interval=0.05)
    open_gate(tmp_path)
    plan = plan_recovery(store(tmp_path))
    done = restore(plan, reach(), options(tmp_path, spark, until="drained", keep=None))
    assert done.parent == plan.body.epoch
    assert store(tmp_path).manifest(done.epoch).log_records == 0
    again = restore(plan, reach(), options(tmp_path, spark, until="drained", keep=None))
    assert again.parent == done.epoch  # a restore of the same plan goes on with what the first one made
    run_job(reach(), str(tmp_path / STORE), options(tmp_path, spark, from_epoch=again.epoch))
    rows = output_pairs(tmp_path)
    assert len(rows) == len(set(rows))
    assert set(rows) == pairs


@pytest.mark.soak
@pytest.mark.parametrize("kills", [3])
def test_killed_again_and_again(tmp_path: Path, spark: Any, kills: int) -> None:
    pairs = write_graph(tmp_path, nodes=600, degree=3, turning=True)
    for _ in range(kills):
        latest = store(tmp_path).latest() if (tmp_path / STORE).exists() else None
        run_and_kill(reach(), tmp_path, spark, in_an_epoch, worker=0, interval=0.05, from_epoch=latest)
    open_gate(tmp_path)
    run_job(reach(), str(tmp_path / STORE), options(tmp_path, spark, from_epoch=store(tmp_path).latest()))
    rows = output_pairs(tmp_path)
    assert len(rows) == len(set(rows))
    assert set(rows) == pairs


def settled(folder: Path) -> list[tuple[Path, int]]:
    """The files of a store and their sizes, once the workers of a job that was killed have ended their last write."""
    seen: list[list[tuple[Path, int]]] = [[]]

    def is_settled() -> bool:
        time.sleep(0.5)
        try:
            seen.append(sorted((path, path.stat().st_size) for path in folder.rglob("*") if path.is_file()))
        except FileNotFoundError:
            return False  # a temporary file got its name
        return seen[-1] == seen[-2] and not any(path.name.startswith(".tmp-") for path, _ in seen[-1])

    wait_for(is_settled)
    return seen[-1]


def test_a_restore_into_another_store_leaves_the_first_alone(tmp_path: Path, spark: Any) -> None:
    pairs = write_graph(tmp_path, nodes=500, degree=3, turning=True)
    run_and_kill(reach(), tmp_path, spark, in_an_epoch, interval=0.05)
    open_gate(tmp_path)
    before = settled(tmp_path / STORE)
    plan = plan_recovery(store(tmp_path))
    copy = tmp_path / "copy"
    done = restore(plan, reach(), options(tmp_path, spark, until="end", keep=None), to=str(copy))
    assert settled(tmp_path / STORE) == before
    assert NativeStore(LocalStorage(copy)).manifest(done.epoch).idle
    rows = output_pairs(tmp_path)
    assert set(rows) == pairs
    assert len(rows) == len(pairs)


SLOW_STEPS = """
import os

CALLS = Path({folder!r}) / "calls"
quick_steps = steps


def steps(batch):
    with CALLS.open("a") as calls:
        calls.write(f"{{os.getpid()}} begun\\n")
    time.sleep(4)
    rows = quick_steps(batch)
    with CALLS.open("a") as calls:
        calls.write(f"{{os.getpid()}} ended\\n")
    return rows
"""


def test_a_job_is_not_over_before_its_workers_have_ended(tmp_path: Path, spark: Any) -> None:
    write_graph(tmp_path, turning=True)
    with (tmp_path / "reaching.py").open("a") as module:
        module.write(SLOW_STEPS.format(folder=str(tmp_path)))

    def calls(word: str) -> Counter[int]:
        lines = (tmp_path / "calls").read_text().splitlines() if (tmp_path / "calls").exists() else []
        return Counter(int(line.split()[0]) for line in lines if line.endswith(word))

    def both_in_a_call(progress: Progress) -> bool:
        return len(calls("begun") - calls("ended")) == 2

    error = run_and_kill(reach(), tmp_path, spark, both_in_a_call)
    unfinished = calls("begun") - calls("ended")
    assert len(unfinished) == 1, "a worker that was not killed was still in the user's function"
    assert f"process {next(iter(unfinished))}" in error.message


def test_more_workers_than_slots_are_refused_at_once(tmp_path: Path, spark: Any) -> None:
    write_words(tmp_path)
    with pytest.raises(UsageError, match="5 workers need 5 slots, but the master has only 4"):
        run_job(word_count(8), str(tmp_path / STORE), options(tmp_path, spark, workers=5))


def test_a_function_that_raises_in_a_worker_is_named(tmp_path: Path, spark: Any) -> None:
    write_graph(tmp_path)
    (tmp_path / "reaching.py").write_text("def steps(batch):\n    raise KeyError('no such node')\n")
    with pytest.raises(JobFailed, match=r"operator steps, task steps/\d, record 1 .*no such node"):
        run_job(reach(), str(tmp_path / STORE), options(tmp_path, spark))


def test_a_stranger_at_the_door_is_turned_away(tmp_path: Path, spark: Any) -> None:
    import socket

    counts = write_words(tmp_path)

    def knock(service: Service) -> None:
        for data in (b"GET / HTTP/1.0\r\n\r\n", b"\0" * 64, wire.HEADER.pack(0, 0, 12) + b'{"type":"x"}'):
            with socket.create_connection(service.address) as sock:
                sock.sendall(data)

    outcome = run_job(word_count(), str(tmp_path / STORE), options(tmp_path, spark), on_service=knock)
    assert outcome.finished
    assert last_counts(tmp_path) == counts


def test_workers_import_what_a_file_of_python_makes_a_job_of(tmp_path: Path, spark: Any) -> None:
    (tmp_path / "sparkjob.py").write_text(
        "import pyarrow as pa\nimport pyarrow.compute as pc\nfrom abscli import Job, count\n\n\n"
        "def split(batch):\n"
        '    return pa.record_batch([pc.split_pattern(batch["line"], " ").flatten()], names=["word"])\n\n\n'
        'job = Job("words", parallelism=2)\nwords = job.text("in/*.txt").flat_map(split)\n'
        'words.group_by("word").agg(n=count()).to_jsonl("out")\n'
    )
    counts = write_words(tmp_path, lines=20)
    outcome = abscli.run_job(tmp_path / "sparkjob.py", tmp_path / "store", context=spark, interval="500ms")
    assert outcome.finished
    assert last_counts(tmp_path) == counts
