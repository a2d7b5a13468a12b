"""Operators that are not deterministic when a worker is lost: planner and engine name the same tasks, and one that is
not marked so is noticed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from abscli.engine.channels.messages import Status
from abscli.engine.coordinator import Progress
from abscli.engine.job import run_job
from abscli.engine.losses.decisions import texts
from abscli.engine.telemetry.news import Recovered
from abscli.protocol.events import TimedOut
from formats.job.model import Edge, Kind, Partition, Topology
from tests.engine.recovering.alone import check_alone, local, planned, planned_reasons, widened
from tests.engine.recovering.test_live import STORE, store, survive
from tests.support.jobs.kills import Kills, after, check_counted, check_rows, fan, pipelines, write_rows
from tests.support.jobs.small import countdown, inline, last_counts, output_rows, write_countdown

pytestmark = pytest.mark.integration


def marked(topology: Topology, id: str, **changes: object) -> Topology:
    """The job with one operator changed: by default, marked as not deterministic."""
    changes = changes or {"deterministic": False}
    changed = msgspec.structs.replace(topology.operator(id), **changes)
    return msgspec.structs.replace(
        topology, operators=tuple(changed if operator.id == id else operator for operator in topology.operators)
    )


AWAY = "operator same is marked `deterministic: false`, and counts/1 has received from same/0"
SOURCE = {"connector": {"type": "jsonl", "path": "in/*.jsonl", "deterministic": False}}

COUNTS = """
import itertools, time
import pyarrow as pa
from pathlib import Path
OPEN = Path({folder!r}) / "open"
calls = itertools.count()

def pass_on(batch):
    if not OPEN.exists():
        time.sleep(0.01)
    return batch.set_column(1, "id", pa.array([next(calls)] * batch.num_rows))
"""


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("topology", "lost", "reason"),
    [
        (fan(), 0, None),
        (fan(), 1, None),
        (marked(fan(), "same"), 0, AWAY),
        (marked(fan(), "same"), 1, None),
        (marked(fan(), "rows", **SOURCE), 0, AWAY.replace("same", "rows")),
        (marked(fan(), "out"), 0, None),
    ],
    ids=["all are", "all are, behind them", "it is lost", "another is lost", "its source", "its sink"],
)
def test_planner_and_engine_name_the_same_tasks(
    tmp_path: Path, topology: Topology, lost: int, reason: str | None
) -> None:
    """An operator that is not deterministic matters where it is lost, and where what it put out has gone elsewhere."""
    counts = write_rows(tmp_path)
    _, (recovery,) = survive(topology, tmp_path, inline(tmp_path, **local), [(after(2, open_epoch=True), [lost])])
    assert texts(recovery.subtasks) == planned(tmp_path, lost)
    if reason is None:
        check_alone(recovery, topology, lost)
    else:
        assert widened(recovery) == reason
        assert planned_reasons(tmp_path, lost) == {"failed", f"everything restarts, since {reason}"}
    check_counted(tmp_path, counts)


@pytest.mark.parametrize("policy", ["aligned", "unaligned", "at-least-once"])
def test_what_was_put_out_to_lost_tasks_alone_may_be_something_else_now(tmp_path: Path, policy: str) -> None:
    """What went back begins a new line of steps, and is lost again as soon as it is there, before the next epoch."""
    counts = write_rows(tmp_path)
    topology = marked(pipelines(), "same")
    kills = Kills([(after(2, open_epoch=True), [1])], tmp_path, enough=2)

    def news(event: Any) -> None:
        kills.news(event)
        if isinstance(event, Recovered) and len(kills.pids) == 1:
            kills.kill(1)

    options = inline(tmp_path, policy=policy, **local)
    assert run_job(topology, str(tmp_path / STORE), options, kills.progress, kills.meet, on_news=news).finished
    assert len(kills.recoveries) == len(kills.pids) == 2
    for recovery in kills.recoveries:
        check_alone(recovery, topology, 1)
    assert planned(tmp_path, 1) == texts(kills.recoveries[0].subtasks)
    check_rows(tmp_path, counts)


def test_a_task_that_rolled_back_replays_the_steps_that_it_took_afterwards(tmp_path: Path) -> None:
    """All workers fail: `counts` rolls back with `same` and takes other steps. Then one worker fails alone, before the
    next epoch is complete."""
    counts = write_rows(tmp_path)
    topology = marked(marked(fan(), "same"), "out", parallelism=1)
    edges = (*topology.edges[:2], Edge("counts", "out", Partition.REBALANCE))
    topology = msgspec.structs.replace(topology, edges=edges)
    kills = Kills([(after(2, open_epoch=True), [0, 1])], tmp_path, enough=2)
    heard: list[Status] = []

    def progress(state: Progress) -> None:
        kills.progress(state)
        if len(kills.recoveries) != 1 or len(kills.pids) != 2:
            return
        assert kills._service is not None
        for epoch in state.open_epochs:
            kills._service._do(TimedOut(epoch))
        heard.append(state.by_worker[0])
        if heard[-1].records > heard[0].records:
            kills.kill(1)

    options = inline(tmp_path, **local)
    assert run_job(topology, str(tmp_path / STORE), options, progress, kills.meet, on_news=kills.news).finished
    first, second = kills.recoveries
    assert first.untouched == 0
    assert first.again is not None
    check_alone(second, topology, 1)
    assert second.again is not None
    assert second.again.steps
    check_counted(tmp_path, counts)


def test_of_what_was_put_out_to_lost_tasks_alone_nothing_is_compared(tmp_path: Path) -> None:
    """The numbers that the function draws are others now: each row comes out once, with one of them."""
    counts = write_rows(tmp_path)
    (tmp_path / "slow.py").write_text(COUNTS.format(folder=str(tmp_path)))
    topology = marked(pipelines(), "same")
    _, (recovery,) = survive(topology, tmp_path, inline(tmp_path, **local), [(after(2, open_epoch=True), [1])])
    check_alone(recovery, topology, 1)
    assert len(output_rows(tmp_path)) == sum(counts.values())


def test_a_loop_goes_on_beside_a_lost_operator_that_is_not_deterministic(tmp_path: Path) -> None:
    """The one that is marked stands behind the loop, and what it receives from there is kept."""
    counts = write_countdown(tmp_path, files=10, turning=True)
    sink = next(operator.id for operator in countdown().operators if operator.kind is Kind.SINK)
    topology = marked(countdown(), sink)
    _, (recovery,) = survive(topology, tmp_path, inline(tmp_path, **local), [(after(2, open_epoch=True), [0])])
    check_alone(recovery, topology, 0)
    assert last_counts(tmp_path, "id") == counts


def test_two_losses_at_once_are_planned_as_the_engine_has_it(tmp_path: Path) -> None:
    counts = write_rows(tmp_path)
    topology = marked(pipelines(3), "same")
    _, (recovery,) = survive(topology, tmp_path, inline(tmp_path, workers=3, **local), [(after(2), [0, 2])])
    check_alone(recovery, topology, 0, 2, of=3)
    assert texts(recovery.subtasks) == planned(tmp_path, 0, 2)
    check_rows(tmp_path, counts)


def test_a_function_that_counts_its_calls_is_noticed_and_named(tmp_path: Path) -> None:
    counts = write_rows(tmp_path)
    (tmp_path / "slow.py").write_text(COUNTS.format(folder=str(tmp_path)))
    kills = Kills([(after(2), [0])], tmp_path)
    options = inline(tmp_path, interval=0.3, **local)
    assert run_job(fan(), str(tmp_path / STORE), options, kills.progress, kills.meet, on_news=kills.news).finished
    (recovery,) = kills.recoveries
    assert widened(recovery).startswith("task same/0 does not emit the same output on same/0->counts/1 again: the fra")
    check_counted(tmp_path, counts)
    assert any("task same/0" in facts.cause for facts in store(tmp_path).recoveries())
