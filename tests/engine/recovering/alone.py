"""What restarted when a worker was lost, and what the planner says would."""

from __future__ import annotations

from pathlib import Path

from abscli.engine.losses.decisions import Recovery, Scope, texts
from abscli.planner.ranges import EMPTY, Ranges
from abscli.stores.native.plan import plan_failed
from abscli.stores.reasons import NoPlan
from formats.job.model import Topology
from tests.engine.recovering.test_live import store

local: dict[str, object] = {"recovery": Scope.LOCAL}


def check_alone(recovery: Recovery, topology: Topology, *workers: int, of: int = 2) -> None:
    """The tasks of these workers restarted, no other did, and they took their steps again."""
    expected = {
        operator.id: ",".join(str(i) for i in range(operator.parallelism) if i % of in workers)
        for operator in topology.operators
    }
    assert texts(recovery.subtasks) == {id: subtasks for id, subtasks in expected.items() if subtasks}
    assert recovery.again is not None


def widened(recovery: Recovery) -> str:
    assert recovery.untouched == 0
    assert recovery.again is None
    _, _, reason = recovery.cause.partition("everything restarts, since ")
    return reason


def planned(folder: Path, *workers: int) -> dict[str, str]:
    """What `plan-recovery --failed-worker --recovery local` says restarts, ranges by operator."""
    plan = plan_failed(store(folder), (), workers, local=True)
    assert not isinstance(plan, NoPlan)
    restart: dict[str, Ranges] = {}
    for row in plan.body.restart:
        restart[row.operator] = restart.get(row.operator, EMPTY) | Ranges.parse(row.subtasks)
    return texts(restart)


def planned_reasons(folder: Path, *workers: int) -> set[str]:
    plan = plan_failed(store(folder), (), workers, local=True)
    assert not isinstance(plan, NoPlan)
    return {row.reason for row in plan.body.restart}
