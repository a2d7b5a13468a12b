"""Which tasks a loss takes with it: the planner's answer, as the simulator asks for it."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from abscli.planner.adjacency import Adjacency
from abscli.planner.local_set import local_set
from abscli.planner.placement import worker_of
from abscli.planner.ranges import EMPTY, Ranges
from abscli.planner.recovery_set import Restart, recovery_set
from abscli.sim.model import Model
from formats.decoding import decode
from formats.ids import ChannelId, TaskId
from formats.job.model import Topology


def recovery_of(model: Model, task: TaskId) -> tuple[frozenset[TaskId], frozenset[ChannelId]]:
    """The tasks that restart when one dies, and the channels from them to tasks that go on.

    `ordered_output` is a promise about an operator's code, which a stand-in does not keep: it is taken as not given.
    """
    return _recovery_of(model.key, task)


@lru_cache(maxsize=4096)
def _recovery_of(topology: bytes, task: TaskId) -> tuple[frozenset[TaskId], frozenset[ChannelId]]:
    graph = decode(topology, Topology)
    plain = tuple(msgspec.structs.replace(op, ordered_output=False) for op in graph.operators)
    graph = msgspec.structs.replace(graph, operators=plain)
    restarting = recovery_set(Adjacency.of(graph), {task.operator: Ranges.of([task.subtask])})
    lost = _tasks(restarting.restart)
    channels = Model(graph, {}).channels
    return lost, frozenset(c for c in channels if c.sender in lost and c.receiver not in lost)


def local_recovery_of(model: Model, tasks: frozenset[TaskId]) -> tuple[frozenset[TaskId], frozenset[TaskId]]:
    """The tasks that restart when these are lost and schedules are kept, and those of them that go back without taking
    their steps again."""
    return _local_recovery_of(model.key, tasks)


@lru_cache(maxsize=4096)
def _local_recovery_of(topology: bytes, tasks: frozenset[TaskId]) -> tuple[frozenset[TaskId], frozenset[TaskId]]:
    lost: dict[str, Ranges] = {}
    for task in tasks:
        lost[task.operator] = lost.get(task.operator, EMPTY) | Ranges.of([task.subtask])
    restarting = local_set(Adjacency.of(decode(topology, Topology)), lost)
    back = _tasks(restarting.back)
    return _tasks(restarting.again) | back, back


def _tasks(rows: tuple[Restart, ...]) -> frozenset[TaskId]:
    return frozenset(
        TaskId(row.operator, i) for row in rows for start, stop in row.subtasks.spans for i in range(start, stop)
    )


def worker_of_task(model: Model, task: TaskId, workers: int) -> int:
    """The worker that a task is on. Operators begin with different workers: one task each would all be on the first."""
    return worker_of(task.subtask + list(model.operators).index(task.operator), workers)
