"""Which tasks a loss takes with it: the planner's answer, as the simulator asks for it."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from abscli.planner.adjacency import Adjacency
from abscli.planner.ranges import Ranges
from abscli.planner.recovery_set import recovery_set
from abscli.sim.model import Model
from formats.ids import TaskId, task_name
from formats.job.model import Topology


def recovery_of(model: Model, task: str) -> tuple[frozenset[str], frozenset[str]]:
    """The tasks that restart when one dies, and the channels from them to tasks that go on.

    `ordered_output` is a promise about an operator's code, which a stand-in does not keep: it is taken as not given.
    """
    return _recovery_of(model.key, task)


@lru_cache(maxsize=4096)
def _recovery_of(topology: bytes, task: str) -> tuple[frozenset[str], frozenset[str]]:
    graph = msgspec.json.decode(topology, type=Topology)
    plain = tuple(msgspec.structs.replace(op, ordered_output=False) for op in graph.operators)
    graph = msgspec.structs.replace(graph, operators=plain)
    failed = TaskId.parse(task)
    restarting = recovery_set(Adjacency.of(graph), {failed.operator: Ranges.of([failed.subtask])})
    lost = frozenset(
        task_name(id, i) for id, subtasks in restarting.subtasks.items() for start, stop in subtasks.spans
        for i in range(start, stop)
    )  # fmt: skip
    channels = Model(graph, {}).channels.values()
    return lost, frozenset(c.name for c in channels if c.sender in lost and c.receiver not in lost)
