"""A worker is lost, and the job goes on: what restarts is the recovery set, and every result is exact (R10, C7, C8)."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from abscli.engine.coordinator import Progress
from abscli.engine.errors import EngineStopped, JobFailed
from abscli.engine.job import JobOptions, Outcome, run_job
from abscli.engine.losses.decisions import Recovery, Scope, texts
from abscli.stores.native.check import check_all
from formats.job.model import Topology
from formats.native.probe import Prober
from formats.native.store import NativeStore
from formats.storage import LocalStorage
from formats.view import Status
from tests.support.jobs.kills import Due, Kills, after, check_counted, check_rows, fan, pipelines, write_rows
from tests.support.jobs.small import (
    countdown,
    held_at,
    inline,
    last_counts,
    output_pairs,
    reach,
    skewed,
    write_countdown,
    write_graph,
    write_skewed,
)

pytestmark = pytest.mark.integration

STORE = "store"


def on_spark(folder: Path, context: Any, **more: object) -> JobOptions:
    defaults: dict[str, object] = {"context": context, "interval": 0.1, "workers": 2}
    return JobOptions(str(folder), "job.yaml", **{**defaults, **more})  # type: ignore[arg-type]


def store(folder: Path) -> NativeStore:
    return NativeStore(LocalStorage(folder / STORE))


def survive(
    topology: Topology,
    folder: Path,
    options: JobOptions,
    moments: Sequence[tuple[Due, Sequence[int]]],
    *,
    enough: int | None = None,
) -> tuple[Outcome, list[Recovery]]:
    """Run the job to its end while workers are killed; the store is whole after, and says what happened."""
    kills = Kills(moments, folder, enough=enough)
    outcome = run_job(topology, str(folder / STORE), options, kills.progress, kills.meet, on_news=kills.news)
    assert outcome.finished
    assert len(kills.pids) == sum(len(workers) for _, workers in moments)
    records = store(folder).recoveries()
    assert [(facts.number, facts.epoch, dict(facts.restart)) for facts in records] == [
        (recovery.number, recovery.epoch, texts(recovery.subtasks)) for recovery in kills.recoveries
    ]
    report = check_all(store(folder), (), Prober(store(folder).storage))
    found = Status.COMPLETE, Status.DAMAGED
    assert [finding for epoch in report.epochs for finding in epoch.findings if epoch.verdict in found] == []
    assert report.findings == ()
    return outcome, kills.recoveries


# -- which tasks ----------------------------------------------------------------------------------------------


@pytest.mark.fast(reason="one lost worker of the inline engine")
def test_receivers_keep_their_state_and_drop_what_comes_again(tmp_path: Path) -> None:
    counts = write_rows(tmp_path)
    _, (recovery,) = survive(fan(), tmp_path, inline(tmp_path), [(after(2), [0])])
    assert texts(recovery.subtasks) == {"rows": "0", "same": "0", "counts": "0", "out": "0"}
    assert recovery.untouched == 2
    check_counted(tmp_path, counts)


def test_what_has_nothing_to_do_with_the_lost_worker_goes_on(tmp_path: Path) -> None:
    counts = write_rows(tmp_path)
    _, (recovery,) = survive(pipelines(), tmp_path, inline(tmp_path), [(after(2), [1])])
    assert texts(recovery.subtasks) == {"rows": "1", "same": "1", "out": "1"}
    assert recovery.untouched == 3
    check_rows(tmp_path, counts)


def test_everything_goes_back_in_place_with_full(tmp_path: Path) -> None:
    counts = write_rows(tmp_path)
    options = inline(tmp_path, recovery=Scope.FULL)
    _, (recovery,) = survive(pipelines(), tmp_path, options, [(after(2), [1])])
    assert recovery.untouched == 0
    check_rows(tmp_path, counts)


@pytest.mark.parametrize("policy", ["aligned", "unaligned"])
def test_a_loop_is_exact(tmp_path: Path, policy: str) -> None:
    pairs = write_graph(tmp_path, turning=True)
    survive(reach(), tmp_path, inline(tmp_path, policy=policy), [(after(2, open_epoch=True), [1])])
    rows = output_pairs(tmp_path)
    assert len(rows) == len(set(rows))
    assert set(rows) == pairs


@pytest.mark.parametrize("policy", ["aligned", "unaligned"])
def test_a_loop_with_logs_and_a_rebalance_is_exact(tmp_path: Path, policy: str) -> None:
    counts = write_countdown(tmp_path, files=10, turning=True)
    survive(countdown(), tmp_path, inline(tmp_path, policy=policy), [(after(2, open_epoch=True), [0])])
    assert last_counts(tmp_path, "id") == counts


def test_a_worker_lost_while_an_epoch_stands_open(tmp_path: Path) -> None:
    counts = write_skewed(tmp_path)
    due: Due = lambda progress: held_at(tmp_path) is not None and bool(progress.open_epochs)  # noqa: E731
    survive(skewed(), tmp_path, inline(tmp_path), [(due, [1])], enough=0)  # what waits for the gate hears nothing
    assert last_counts(tmp_path) == counts


def test_at_least_once_loses_nothing(tmp_path: Path) -> None:
    counts = write_countdown(tmp_path, files=10, turning=True)
    options = inline(tmp_path, policy="at-least-once")
    survive(countdown(), tmp_path, options, [(after(2, open_epoch=True), [0])])
    last = last_counts(tmp_path, "id")
    assert all(last[id] >= count for id, count in counts.items())


# -- which moments --------------------------------------------------------------------------------------------


def test_two_workers_at_once_are_one_recovery(tmp_path: Path) -> None:
    counts = write_rows(tmp_path)
    options = inline(tmp_path, workers=3)
    _, (recovery,) = survive(pipelines(3), tmp_path, options, [(after(2), [0, 2])])
    assert texts(recovery.subtasks) == {"rows": "0,2", "same": "0,2", "out": "0,2"}
    assert recovery.workers == (0, 2)
    check_rows(tmp_path, counts)


def test_one_is_lost_while_another_recovers(tmp_path: Path) -> None:
    counts = write_rows(tmp_path)
    kills = Kills([(after(2), [0])], tmp_path)
    options = inline(tmp_path, workers=3)

    def news(event: object) -> None:
        kills.news(event)  # type: ignore[arg-type]
        if len(kills.begun) == 1 and len(kills.pids) == 1:
            kills.kill(1)

    outcome = run_job(pipelines(3), str(tmp_path / STORE), options, kills.progress, kills.meet, on_news=news)
    assert outcome.finished
    assert len(kills.begun) == 2
    assert texts(kills.recoveries[0].subtasks) == {"rows": "0-1", "same": "0-1", "out": "0-1"}
    check_rows(tmp_path, counts)


def test_before_the_first_epoch_everything_begins_again(tmp_path: Path) -> None:
    counts = write_rows(tmp_path)
    due: Due = lambda progress: progress.records > 0  # noqa: E731
    _, (recovery,) = survive(pipelines(), tmp_path, inline(tmp_path, interval=60.0), [(due, [1])])
    assert (recovery.epoch, recovery.untouched) == (0, 0)
    check_rows(tmp_path, counts)


def test_again_and_again(tmp_path: Path) -> None:
    counts = write_rows(tmp_path, files=1200)
    moments = [(after(n), [n % 2]) for n in (2, 3, 4, 5, 6)]
    options = inline(tmp_path, restarts=5)
    _, recoveries = survive(fan(), tmp_path, options, moments)
    assert len(recoveries) == 5
    check_counted(tmp_path, counts)


def test_a_resumed_job_recovers_as_well(tmp_path: Path) -> None:
    counts = write_rows(tmp_path)
    services: list[Any] = []

    def stop(progress: Progress) -> None:
        if progress.epochs >= 2:
            services[0].request_stop()

    first = run_job(fan(), str(tmp_path / STORE), inline(tmp_path), stop, services.append)
    assert not first.finished
    options = inline(tmp_path, from_epoch=first.epoch)
    _, (recovery,) = survive(fan(), tmp_path, options, [(after(0, open_epoch=True), [0])])
    assert recovery.untouched == 2
    check_counted(tmp_path, counts)


# -- how often ------------------------------------------------------------------------------------------------


def test_past_the_allowed_restarts_the_job_stops_and_names_the_epoch_to_go_on_from(tmp_path: Path) -> None:
    counts = write_rows(tmp_path)
    kills = Kills([(after(1), [0]), (after(2), [0])], tmp_path, enough=3)
    with pytest.raises(EngineStopped, match="tasks have been restarted once within 10 epochs") as caught:
        run_job(
            fan(), str(tmp_path / STORE), inline(tmp_path, restarts=1), kills.progress, kills.meet, on_news=kills.news
        )
    latest = store(tmp_path).latest()
    assert f"the last complete epoch is {latest}" in (caught.value.hint or "")
    assert len(store(tmp_path).recoveries()) == 1
    (tmp_path / "open").touch()
    run_job(fan(), str(tmp_path / STORE), inline(tmp_path, from_epoch=latest))
    check_counted(tmp_path, counts)


def test_without_restarts_a_lost_worker_ends_the_job(tmp_path: Path) -> None:
    write_rows(tmp_path)
    kills = Kills([(after(1), [1])], tmp_path, enough=1)
    with pytest.raises(EngineStopped, match=r"^worker 1 on \S+ \(process \d+\) was lost$"):
        run_job(fan(), str(tmp_path / STORE), inline(tmp_path, restarts=0), kills.progress, kills.meet)
    assert store(tmp_path).recoveries() == []


RAISES = """
from pathlib import Path
FOLDER = Path({folder!r})

def pass_on(batch):
    if not (FOLDER / "open").exists() and not FOLDER.joinpath("raised").exists():
        import time; time.sleep(0.01)
    if "k13" in batch["key"].to_pylist() and {condition}:
        (FOLDER / "raised").touch()
        raise ValueError("the table is not there")
    return batch
"""


def test_a_function_that_fails_once_is_tried_again(tmp_path: Path) -> None:
    counts = write_rows(tmp_path)
    condition = 'not FOLDER.joinpath("raised").exists()'
    (tmp_path / "slow.py").write_text(RAISES.format(folder=str(tmp_path), condition=condition))
    outcome = run_job(fan(), str(tmp_path / STORE), inline(tmp_path))
    assert outcome.finished
    (facts,) = store(tmp_path).recoveries()
    assert "operator same, task same/0" in facts.cause
    assert "the table is not there" in facts.cause
    check_counted(tmp_path, counts)


def test_a_function_that_fails_at_the_same_record_again_ends_the_job(tmp_path: Path) -> None:
    write_rows(tmp_path)
    (tmp_path / "slow.py").write_text(RAISES.format(folder=str(tmp_path), condition="True"))
    with pytest.raises(JobFailed, match=r"task same/0, record .* the table is not there"):
        run_job(fan(), str(tmp_path / STORE), inline(tmp_path))


# -- real processes -------------------------------------------------------------------------------------------

SPARK_JOBS: dict[str, tuple[Callable[[], Topology], int]] = {"fan": (fan, 2), "pipelines": (pipelines, 3)}


@pytest.mark.parametrize("job", SPARK_JOBS)
def test_a_python_worker_gets_sigkill(tmp_path: Path, spark: Any, job: str) -> None:
    counts = write_rows(tmp_path)
    topology, untouched = SPARK_JOBS[job]
    _, (recovery,) = survive(topology(), tmp_path, on_spark(tmp_path, spark), [(after(2), [0])])
    assert recovery.untouched == untouched
    (check_counted if job == "fan" else check_rows)(tmp_path, counts)


@pytest.mark.parametrize("policy", ["aligned", "unaligned"])
def test_a_loop_on_spark_survives_two_kills(tmp_path: Path, spark: Any, policy: str) -> None:
    pairs = write_graph(tmp_path, turning=True)
    moments = [(after(2, open_epoch=True), [1]), (after(4), [0])]
    survive(reach(), tmp_path, on_spark(tmp_path, spark, policy=policy), moments)
    rows = output_pairs(tmp_path)
    assert len(rows) == len(set(rows))
    assert set(rows) == pairs


def test_a_worker_that_stands_still_is_replaced(tmp_path: Path, spark: Any) -> None:
    counts = write_rows(tmp_path)
    kills = Kills([(after(2), [])], tmp_path)
    stopped: list[int | None] = []

    def progress(state: Progress) -> None:
        if state.epochs >= 2 and not stopped:
            stopped.append(kills.pid(0))
            assert stopped[0] is not None
            os.kill(stopped[0], signal.SIGSTOP)
        kills.progress(state)

    options = on_spark(tmp_path, spark, worker_timeout=6.0)
    outcome = run_job(pipelines(), str(tmp_path / STORE), options, progress, kills.meet, on_news=kills.news)
    assert outcome.finished
    (recovery,) = kills.recoveries
    assert "sent no heartbeat" in recovery.cause
    assert f"process {stopped[0]}" in recovery.cause
    assert recovery.untouched == 3
    check_rows(tmp_path, counts)


@pytest.mark.parametrize("scope", [Scope.SUBGRAPH, Scope.LOCAL, Scope.FULL])
def test_no_worker_is_started_that_would_have_no_tasks(tmp_path: Path, scope: Scope) -> None:
    """It could be lost, and nothing could restart."""
    counts = write_rows(tmp_path, files=60)
    options = inline(tmp_path, interval=0.05, workers=3, recovery=scope)
    kills = Kills([(after(2, open_epoch=True), [1])], tmp_path)
    run_job(pipelines(), str(tmp_path / STORE), options, kills.progress, kills.meet, on_news=kills.news)
    assert [recovery.workers for recovery in kills.recoveries] == [(1,)]
    (attempt,) = (tmp_path / STORE / "attempts").iterdir()
    assert json.loads(attempt.read_text())["workers"] == 2
    check_rows(tmp_path, counts)


def test_killed_threads_are_gone(tmp_path: Path) -> None:
    counts = write_rows(tmp_path)
    before = threading.active_count()
    survive(fan(), tmp_path, inline(tmp_path), [(after(2), [0]), (after(4), [1])])
    check_counted(tmp_path, counts)
    assert threading.active_count() <= before
