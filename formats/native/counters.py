"""The channels of an epoch with their counters, from the parts of its tasks: by name, or summed by edge."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain, product, repeat, starmap
from typing import NamedTuple

from formats.ids import ChannelId, TaskId, channel_name, subtask_names
from formats.job.model import Edge, Partition, Topology
from formats.native.facts import PartFacts
from formats.view import ChannelFacts, ChannelLine, ChannelTable, EdgeFacts


class Counters(NamedTuple):
    """What a task has sent and received.

    In the facts of a part they stand by the operator at the other end, since an epoch may have a thousand times more
    channels than tasks.

    sent, received: records by channel, in the order of the task's channels.
    """

    sent: dict[ChannelId, int]
    received: dict[ChannelId, int]

    def sent_by_operator(self) -> dict[str, tuple[int, ...]]:
        """As the facts of a part have it: by receiver's operator, in the order of its subtasks."""
        return _folded((channel.receiver.operator, count) for channel, count in self.sent.items())

    def received_by_operator(self) -> dict[str, tuple[int, ...]]:
        """As the facts of a part have it: by sender's operator, in the order of its subtasks."""
        return _folded((channel.sender.operator, count) for channel, count in self.received.items())


def _folded(counts: Iterable[tuple[str, int]]) -> dict[str, tuple[int, ...]]:
    rows: dict[str, list[int]] = {}
    for operator, count in counts:
        rows.setdefault(operator, []).append(count)
    return {operator: tuple(row) for operator, row in rows.items()}


Parts = Mapping[str, Sequence[PartFacts | None]]
"""By operator, in the order of the subtasks; None for a task that has no part."""


def by_operator(topology: Topology, parts: Sequence[PartFacts]) -> Parts:
    """Parts of tasks that the job graph does not have are left out."""
    by_id: dict[str, Sequence[PartFacts | None]] = {}
    start, tasks = 0, [part.task_name for part in parts]
    for op in topology.operators:  # a complete epoch has them in this order
        stop = start + op.parallelism
        if tasks[start:stop] != subtask_names(op.id, op.parallelism):
            return _sorted_out(topology, parts)
        by_id[op.id] = parts[start:stop]
        start = stop
    return by_id


def _sorted_out(topology: Topology, parts: Sequence[PartFacts]) -> Parts:
    own = {part.task_name: part for part in parts}
    return {op.id: [own.get(name) for name in subtask_names(op.id, op.parallelism)] for op in topology.operators}


def channel_facts(topology: Topology, parts: Parts) -> Iterator[ChannelFacts]:
    """Counters of every channel, by edge, sender, receiver; unknown where a side has not acked."""
    for edge in topology.edges:
        yield from _facts_of(edge, parts)


def channel_lines(
    topology: Topology, parts: Parts, back: Container[tuple[str, str]] | None
) -> Iterator[ChannelLine]:
    """The same under their names, which are glued from those of the tasks, for a million channels are put out. back:
    the back edges, as (source, target)."""
    for edge in topology.edges:
        sources, targets = (subtask_names(id, len(parts[id])) for id in (edge.source, edge.target))
        if edge.partition is Partition.FORWARD:
            names = list(map(channel_name, sources, targets))
        else:
            ends = [channel_name("", receiver) for receiver in targets]
            names = [sender + end for sender in sources for end in ends]
        marks = repeat(None if back is None else (edge.source, edge.target) in back)
        yield from map(ChannelLine, names, *_columns(edge, parts), marks)


def _facts_of(edge: Edge, parts: Parts) -> Iterator[ChannelFacts]:
    sources, targets = ([TaskId(id, i) for i in range(len(parts[id]))] for id in (edge.source, edge.target))
    pairs = zip(sources, targets, strict=False) if edge.partition is Partition.FORWARD else product(sources, targets)
    return map(ChannelFacts, starmap(ChannelId, pairs), *_columns(edge, parts))


def _columns(edge: Edge, parts: Parts) -> tuple[Iterable[int | None], Iterable[int | None], Iterable[int | None]]:
    """What was sent, received and logged on the channels of an edge, by sender, then by receiver."""
    senders, receivers = parts[edge.source], parts[edge.target]
    forward = edge.partition is Partition.FORWARD
    p, q = (1, 1) if forward else (len(senders), len(receivers))
    sent = _rows([part.sent.get(edge.target) if part else None for part in senders], q)
    received = _rows([part.received.get(edge.source) if part else None for part in receivers], p)
    logged = [None if part is None else 0 for part in receivers]
    if not forward:
        received = list(zip(*received, strict=True))
        logged *= p
    for log in (log for part in receivers if part and part.logs for log in part.logs):
        channel = log.channel
        i, j = channel.sender.subtask, channel.receiver.subtask
        if channel.edge == (edge.source, edge.target) and i < len(senders) and j < len(receivers):
            if not forward:
                logged[i * len(receivers) + j] = log.records
            elif i == j:
                logged[i] = log.records
    return chain.from_iterable(sent), chain.from_iterable(received), logged


def _rows(counts: list[tuple[int, ...] | None], channels: int) -> Sequence[tuple[int | None, ...]]:
    """A counter a channel; unknown where there is none."""
    counted = [row for row in counts if row is not None]
    if len(counted) == len(counts) and set(map(len, counted)) == {channels}:
        return counted
    return [(*(row or ())[:channels], *[None] * (channels - len(row or ()))) for row in counts]


class Channels(ChannelTable):
    """As `channel_facts`, made when they are asked for."""

    def __init__(self, topology: Topology, parts: Parts) -> None:
        self._topology = topology
        self._parts = parts
        self._made: tuple[ChannelFacts, ...] | None = None

    def _all(self) -> tuple[ChannelFacts, ...]:
        if self._made is None:
            self._made = tuple(channel_facts(self._topology, self._parts))
        return self._made

    def __len__(self) -> int:
        return sum(self._count(edge) for edge in self._topology.edges)

    def _count(self, edge: Edge) -> int:
        senders, receivers = len(self._parts[edge.source]), len(self._parts[edge.target])
        return min(senders, receivers) if edge.partition is Partition.FORWARD else senders * receivers

    def lines(self, back: Container[tuple[str, str]] | None) -> list[ChannelLine]:
        return list(channel_lines(self._topology, self._parts, back))

    def logged(self) -> Iterator[ChannelFacts]:
        for edge in self._topology.edges:
            if any(log.records for part in self._parts[edge.target] if part and part.logs for log in part.logs):
                yield from (channel for channel in _facts_of(edge, self._parts) if channel.logged)

    def edges(self) -> Iterator[EdgeFacts]:
        logged: dict[tuple[str, str], int] = {}
        for operator, parts in self._parts.items():
            for log in (log for part in parts if part and part.logs for log in part.logs):
                ends = (log.channel.sender.operator, operator)
                logged[ends] = logged.get(ends, 0) + log.records
        for edge in self._topology.edges:
            senders, receivers = self._parts[edge.source], self._parts[edge.target]
            count = self._count(edge)
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
    counted = [row for row in counts if row is not None]
    return sum(chain.from_iterable(counted)) if sum(map(len, counted)) == channels else None
