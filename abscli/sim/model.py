"""The job as the simulator sees it: tasks, channels, and rows that follow every edge; operators are simple stand-ins.

A stand-in counts what it has seen (its keyed state) and passes every row on over every edge. Over a back edge a row
goes for a bounded number of rounds, and with the next value, so that it may belong to a peer. A `reduce` that emits
once an epoch keeps its rows until then. An operator with timers (of windows, outer joins, a keyed process) keeps a row,
as state that is removed again, until event time has passed it by `DELAY`, and sends on a row of that time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from msgspec.structs import replace

from abscli.graph.backedges import back_edges
from abscli.graph.timed import untimed, waits_for_time
from formats.ids import ChannelId, TaskId
from formats.job.expand import neighbours, task_ids
from formats.job.model import Edge, Kind, Operator, Partition, Topology, canonical

ROUNDS = 2
"""How often a row goes over back edges."""

DELAY = 2
"""By how much event time has to pass a row until its timer is due."""


class Record(NamedTuple):
    """A row on its way.

    rounds: how often it may still go over a back edge.
    """

    value: int
    rounds: int = 0

    def over(self, back: bool) -> Record:
        """What arrives over an edge."""
        return Record(self.value + 1, self.rounds - 1) if back else self

    def fired(self) -> Record:
        """What its timer sends on, at the time of the timer."""
        return self._replace(value=self.value + DELAY)

    def is_due(self, watermark: int | None) -> bool:
        """Whether its timer has come."""
        return watermark is not None and self.value + DELAY <= watermark


@dataclass(frozen=True, slots=True)
class Channel:
    """One channel.

    edge: its place among the topology's edges.
    """

    id: ChannelId
    edge: int
    back: bool


@dataclass(frozen=True)
class Model:
    """rows: of each source operator, by split; split k is read by subtask k mod parallelism."""

    topology: Topology
    rows: Mapping[str, tuple[tuple[Record, ...], ...]]

    @classmethod
    def of(cls, topology: Topology, records: int = 3, rounds: int = ROUNDS) -> Model:
        """records: of each split; every source has one split a subtask."""
        looped = rounds if back_edges(topology) else 0
        fed = {edge.target for edge in topology.edges}
        rows: dict[str, tuple[tuple[Record, ...], ...]] = {}
        value = 0
        for op in topology.operators:
            if op.id in fed:
                continue
            splits = []
            for _ in range(op.parallelism):
                splits.append(tuple(Record(value + k, looped) for k in range(records)))
                value += records
            rows[op.id] = tuple(splits)
        return cls(topology, rows)

    @cached_property
    def key(self) -> bytes:
        """Equal for equal jobs; the rows of a run never change."""
        return canonical(self.topology)

    @cached_property
    def back(self) -> frozenset[tuple[str, str]]:
        """(from, to) of the back edges."""
        return back_edges(self.topology)

    @cached_property
    def operators(self) -> dict[str, Operator]:
        """By id, in declared order."""
        return {op.id: op for op in self.topology.operators}

    @cached_property
    def tasks(self) -> tuple[TaskId, ...]:
        """All tasks, by operator."""
        return tuple(task_ids(self.topology))

    @cached_property
    def channels(self) -> dict[ChannelId, Channel]:
        """By id, in the order of the edges."""
        task = {id: id for id in self.tasks}  # one object for each, since equality of one object is seen at once
        channels: dict[ChannelId, Channel] = {}
        for at, edge in enumerate(self.topology.edges):
            width = self.operators[edge.target].parallelism
            for i in range(self.operators[edge.source].parallelism):
                for j in neighbours(edge, i, width):
                    id = ChannelId(task[TaskId(edge.source, i)], task[TaskId(edge.target, j)])
                    channels[id] = Channel(id, at, self.is_back(edge))
        return channels

    @cached_property
    def inputs(self) -> dict[TaskId, tuple[Channel, ...]]:
        """Of each task."""
        return {task: tuple(c for c in self.channels.values() if c.id.receiver == task) for task in self.tasks}

    @cached_property
    def outputs(self) -> dict[TaskId, tuple[Channel, ...]]:
        """Of each task."""
        return {task: tuple(c for c in self.channels.values() if c.id.sender == task) for task in self.tasks}

    @cached_property
    def routes(self) -> dict[TaskId, tuple[tuple[int, dict[int, ChannelId]], ...]]:
        """Of each task, its channels by the subtask at their end, for each edge that goes out of its operator."""
        return {
            task: tuple(
                (at, {c.id.receiver.subtask: c.id for c in self.outputs[task] if c.edge == at})
                for at, edge in enumerate(self.topology.edges)
                if edge.source == task.operator
            )
            for task in self.tasks
        }

    @cached_property
    def sources(self) -> tuple[TaskId, ...]:
        """Tasks without inputs."""
        return tuple(task for task in self.tasks if not self.inputs[task])

    @cached_property
    def sinks(self) -> frozenset[TaskId]:
        """Tasks whose rows become visible output: those of sinks, and of opaque operators that nothing reads from."""
        return frozenset(
            task for task in self.tasks
            if not self.outputs[task] and self.operator_of(task).kind in (Kind.SINK, Kind.OPAQUE)
        )  # fmt: skip

    def is_back(self, edge: Edge) -> bool:
        """Whether the edge closes a cycle."""
        return (edge.source, edge.target) in self.back

    def operator_of(self, task: TaskId) -> Operator:
        """The operator that a task is part of."""
        return self.operators[task.operator]

    def splits_of(self, task: TaskId) -> tuple[int, ...]:
        """The splits that a source task reads, in order."""
        return tuple(range(task.subtask, len(self.rows[task.operator]), self.operator_of(task).parallelism))

    @cached_property
    def timed(self) -> frozenset[str]:
        """Operators with timers; not those that rows of a loop come to, where event time does not tell what is late."""
        in_vain = {op.operator.id for op in untimed(self.topology) if op.loop}
        waiting = {op.id for op in self.topology.operators if waits_for_time(op) not in (None, "ttl")}
        return frozenset(waiting - in_vain)

    def has_timers(self, task: TaskId) -> bool:
        """Whether the task keeps rows until they are due."""
        return task.operator in self.timed

    def keeps_until_flush(self, task: TaskId) -> bool:
        """Whether the task's operator emits once an epoch."""
        op = self.operator_of(task)
        return self.has_timers(task) or (op.kind is Kind.REDUCE and op.emit == "epoch")

    def expected(self) -> dict[str, Counter[int]]:
        """What each operator sees in all, without an engine: every record along every path."""
        seen = {id: Counter[int]() for id in self.operators}
        todo = [(id, row) for id, splits in self.rows.items() for split in splits for row in split]
        while todo:
            operator, row = todo.pop()
            for edge in self.topology.edges:
                if edge.source != operator or (self.is_back(edge) and not row.rounds):
                    continue
                arrived = row.fired() if operator in self.timed else row.over(self.is_back(edge))
                copies = self.operators[edge.target].parallelism if edge.partition is Partition.BROADCAST else 1
                seen[edge.target][arrived.value] += copies
                todo += [(edge.target, arrived)] * copies
        return seen


def narrowed(topology: Topology, width: int) -> Topology:
    """The job with at most `width` subtasks an operator: what can go wrong with many goes wrong with two or three."""
    operators = tuple(replace(op, parallelism=min(op.parallelism, width)) for op in topology.operators)
    return replace(topology, operators=operators)
