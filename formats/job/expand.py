"""Operators to tasks, edges to channels: which tasks a job has, and which of them an edge joins."""

from __future__ import annotations

from collections.abc import Iterator

from formats.ids import ChannelId, TaskId
from formats.job.model import Edge, Operator, Partition, Topology


def tasks(topology: Topology) -> Iterator[tuple[Operator, int]]:
    """Every task of a job as its operator and subtask: by operator in declared order, then by subtask."""
    for operator in topology.operators:
        for index in range(operator.parallelism):
            yield operator, index


def task_ids(topology: Topology) -> list[TaskId]:
    """The same tasks, as ids."""
    return [TaskId(operator.id, index) for operator, index in tasks(topology)]


def neighbours(edge: Edge, index: int, parallelism: int) -> range:
    """Subtasks on the other side of an edge that subtask `index` has a channel with. parallelism: of that side."""
    return range(index, index + 1) if edge.partition is Partition.FORWARD else range(parallelism)


def channels_out(edge: Edge, index: int, parallelism: int) -> list[ChannelId]:
    """The channels from a subtask of the edge's source, in the order of their receivers. parallelism: of the target."""
    sender = TaskId(edge.source, index)
    return [ChannelId(sender, TaskId(edge.target, j)) for j in neighbours(edge, index, parallelism)]


def channels_in(edge: Edge, index: int, parallelism: int) -> list[ChannelId]:
    """The channels to a subtask of the edge's target, in the order of their senders. parallelism: of the source."""
    receiver = TaskId(edge.target, index)
    return [ChannelId(TaskId(edge.source, i), receiver) for i in neighbours(edge, index, parallelism)]


def size_of(topology: Topology) -> tuple[int, int]:
    """How many tasks and how many channels a job graph has."""
    width = {operator.id: operator.parallelism for operator in topology.operators}
    channels = sum(width[edge.source] * len(neighbours(edge, 0, width[edge.target])) for edge in topology.edges)
    return sum(width.values()), channels
