"""The channels of an epoch with their counters, from the parts of its tasks: by name, or summed by edge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import overload

from formats.native.facts import PartFacts
from formats.topology import Edge, Partition, Topology, channel_name, task_name
from formats.view import ChannelFacts, EdgeFacts


def neighbours(edge: Edge, index: int, parallelism: int) -> range:
    """Subtasks on the other side of an edge that subtask `index` has a channel with."""
    return range(index, index + 1) if edge.partition is Partition.FORWARD else range(parallelism)


Parts = Mapping[str, Sequence[PartFacts | None]]
"""By operator, in the order of the subtasks; None for a task that has no part."""


def by_operator(topology: Topology, parts: Sequence[PartFacts]) -> Parts:
    """Parts of tasks that the job graph does not have are left out."""
    found: dict[str, list[PartFacts | None]] = {op.id: [None] * op.parallelism for op in topology.operators}
    for part in parts:
        operator, _, subtask = part.task.rpartition("/")
        mine = found.get(operator)
        if mine is not None and subtask.isdecimal() and int(subtask) < len(mine):
            mine[int(subtask)] = part
    return found


def channel_facts(topology: Topology, parts: Parts) -> Iterator[ChannelFacts]:
    """Counters of every channel, by edge, sender, receiver; unknown where a side has not acked."""
    logged = {log.channel: log.records for of in parts.values() for part in of if part for log in part.logs}
    for edge in topology.edges:
        p, q = len(parts[edge.source]), len(parts[edge.target])
        forward = edge.partition is Partition.FORWARD
        receivers = [task_name(edge.target, j) for j in range(q)]
        received = [part.received.get(edge.source, ()) if part else None for part in parts[edge.target]]
        for i in range(p):
            sender = task_name(edge.source, i)
            part = parts[edge.source][i]
            sent = part.sent.get(edge.target, ()) if part else ()
            for position, j in enumerate(neighbours(edge, i, q)):
                name = channel_name(sender, receivers[j])
                row, back = received[j], 0 if forward else i
                yield ChannelFacts(
                    name,
                    sent[position] if position < len(sent) else None,
                    row[back] if row is not None and back < len(row) else None,
                    logged.get(name, 0) if row is not None else None,
                )


class Channels(Sequence[ChannelFacts]):
    """As `channel_facts`, made when they are asked for: an epoch may have a thousand times more channels than tasks."""

    def __init__(self, topology: Topology, parts: Parts) -> None:
        self._topology = topology
        self._parts = parts
        self._made: tuple[ChannelFacts, ...] | None = None

    def _all(self) -> tuple[ChannelFacts, ...]:
        if self._made is None:
            self._made = tuple(channel_facts(self._topology, self._parts))
        return self._made

    def __iter__(self) -> Iterator[ChannelFacts]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    @overload
    def __getitem__(self, index: int) -> ChannelFacts: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[ChannelFacts, ...]: ...
    def __getitem__(self, index: int | slice) -> ChannelFacts | tuple[ChannelFacts, ...]:
        return self._all()[index]

    def edges(self) -> Iterator[EdgeFacts]:
        """Sums by edge, without a name for every channel."""
        logged: dict[tuple[str, str], int] = {}
        for operator, parts in self._parts.items():
            for log in (log for part in parts if part and part.logs for log in part.logs):
                ends = (log.channel.partition("->")[0].rpartition("/")[0], operator)
                logged[ends] = logged.get(ends, 0) + log.records
        for edge in self._topology.edges:
            senders, receivers = self._parts[edge.source], self._parts[edge.target]
            forward = edge.partition is Partition.FORWARD
            count = len(senders) if forward else len(senders) * len(receivers)
            yield EdgeFacts(
                source=edge.source,
                target=edge.target,
                channels=count,
                sent=_total([part.sent.get(edge.target) if part else None for part in senders], count),
                received=_total([part.received.get(edge.source) if part else None for part in receivers], count),
                logged=None if None in receivers else logged.get((edge.source, edge.target), 0),
            )


def _total(counts: Sequence[tuple[int, ...] | None], channels: int) -> int | None:
    """The sum; None if a task, or a channel, has not said."""
    known = [row for row in counts if row is not None]
    return sum([sum(row) for row in known]) if sum([len(row) for row in known]) == channels else None
