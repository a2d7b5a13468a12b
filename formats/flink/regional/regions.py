"""Regions of a job: tasks that pipelined exchanges join, which Flink lets fail, and checkpoint (FLIP-600), together.

Source: Flink's `PipelinedRegionComputeUtil`, and `EdgeManagerBuildUtil` for which tasks an exchange joins.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from formats.flink.plan_json import JobPlan

VertexTask: TypeAlias = tuple[str, int]
"""A vertex of the plan, by its id there, and one of its tasks."""

POINTWISE: Final = frozenset({"FORWARD", "RESCALE"})
"""Exchanges in which a task reads from, or writes to, its own share alone; every other one joins all with all."""


def regions(plan: JobPlan) -> list[frozenset[VertexTask]]:
    """The tasks of a job by region, in the order of the plan."""
    parent: dict[VertexTask, VertexTask] = {
        (vertex.id, task): (vertex.id, task) for vertex in plan.nodes for task in range(vertex.parallelism)
    }

    def root(task: VertexTask) -> VertexTask:
        while parent[task] != task:
            parent[task] = parent[parent[task]]
            task = parent[task]
        return task

    width = {vertex.id: vertex.parallelism for vertex in plan.nodes}
    for vertex in plan.nodes:
        for source, shipped, kept in vertex.inputs:
            if kept:  # a region ends where an exchange is kept whole on disk
                continue
            pairs = _pointwise if shipped in POINTWISE else _all_to_all
            for sender, receiver in pairs(width[source], vertex.parallelism):
                parent[root((vertex.id, receiver))] = root((source, sender))
    grouped: dict[VertexTask, set[VertexTask]] = {}
    for task in parent:
        grouped.setdefault(root(task), set()).add(task)
    return [frozenset(tasks) for tasks in grouped.values()]


def _pointwise(senders: int, receivers: int) -> Iterator[tuple[int, int]]:
    """Who feeds whom: each of the fewer has a run of the more, as even as can be."""
    for receiver in range(receivers):
        if senders >= receivers:
            for sender in range(receiver * senders // receivers, (receiver + 1) * senders // receivers):
                yield sender, receiver
        else:
            yield receiver * senders // receivers, receiver


def _all_to_all(senders: int, receivers: int) -> Iterator[tuple[int, int]]:
    """Enough pairs to join all of them."""
    yield from ((sender, 0) for sender in range(senders))
    yield from ((0, receiver) for receiver in range(1, receivers))
