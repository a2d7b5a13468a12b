"""The channels of an epoch with their counters, from the parts of its tasks: by name, or summed by edge."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import NamedTuple

from formats.ids import channel_name, edge_of, ends_of, operator_of, subtask_names
from formats.job.model import Edge, Partition, Topology
from formats.native.facts import PartFacts
from formats.view import ChannelFacts, ChannelTable, EdgeFacts


class Counters(NamedTuple):
    """What a task has sent and received.

    In the facts of a part they stand by the operator at the other end, since an epoch may have a thousand times more
    channels than tasks.

    sent, received: records by channel, in the order of the task's channels.
    """

    sent: dict[str, int]
    received: dict[str, int]

    def sent_by_operator(self) -> dict[str, tuple[int, ...]]:
        """As the facts of a part have it: by receiver's operator, in the order of its subtasks."""
        return _folded(self.sent, lambda sender, receiver: receiver)

    def received_by_operator(self) -> dict[str, tuple[int, ...]]:
        """As the facts of a part have it: by sender's operator, in the order of its subtasks."""
        return _folded(self.received, lambda sender, receiver: sender)


def _folded(counts: dict[str, int], other: Callable[[str, str], str]) -> dict[str, tuple[int, ...]]:
    rows: dict[str, list[int]] = {}
    for channel, count in counts.items():
        rows.setdefault(operator_of(other(*ends_of(channel))), []).append(count)
    return {operator: tuple(row) for operator, row in rows.items()}


Parts = Mapping[str, Sequence[PartFacts | None]]
"""By operator, in the order of the subtasks; None for a task that has no part."""


def by_operator(topology: Topology, parts: Sequence[PartFacts]) -> Parts:
    """Parts of tasks that the job graph does not have are left out."""
    by_id: dict[str, Sequence[PartFacts | None]] = {}
    start, tasks = 0, [part.task for part in parts]
    for op in topology.operators:  # a complete epoch has them in this order
        stop = start + op.parallelism
        if tasks[start:stop] != subtask_names(op.id, op.parallelism):
            return _sorted_out(topology, parts)
        by_id[op.id] = parts[start:stop]
        start = stop
    return by_id


def _sorted_out(topology: Topology, parts: Sequence[PartFacts]) -> Parts:
    own = {part.task: part for part in parts}
    return {op.id: [own.get(name) for name in subtask_names(op.id, op.parallelism)] for op in topology.operators}


def channel_facts(
    topology: Topology, parts: Parts, back: Container[tuple[str, str]] | None = None
) -> Iterator[ChannelFacts]:
    """Counters of every channel, by edge, sender, receiver; unknown where a side has not acked. back: the back edges,
    as (source, target)."""
    for edge in topology.edges:
        yield from _of_edge(edge, parts, None if back is None else (edge.source, edge.target) in back)


def _of_edge(edge: Edge, parts: Parts, back: bool | None = None) -> Iterator[ChannelFacts]:
    senders, receivers = parts[edge.source], parts[edge.target]
    sources, targets = (subtask_names(id, len(parts[id])) for id in (edge.source, edge.target))
    forward = edge.partition is Partition.FORWARD
    p, q = (1, 1) if forward else (len(senders), len(receivers))
    sent = _rows([part.sent.get(edge.target) if part else None for part in senders], q)
    received = _rows([part.received.get(edge.source) if part else None for part in receivers], p)
    unlogged = [None if part is None else 0 for part in receivers]
    logged = {log.channel: log.records for part in receivers if part for log in part.logs}
    if forward:
        names = list(map(channel_name, sources, targets))
    else:
        ends = [channel_name("", receiver) for receiver in targets]
        names = [sender + end for sender in sources for end in ends]
        received = list(zip(*received, strict=True))
        unlogged *= p
    return map(
        ChannelFacts,
        names,
        chain.from_iterable(sent),
        chain.from_iterable(received),
        map(logged.get, names, unlogged) if logged else unlogged,
        repeat(back),
    )


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

    def marked(self, back: Container[tuple[str, str]]) -> list[ChannelFacts]:
        return list(channel_facts(self._topology, self._parts, back))

    def logged(self) -> Iterator[ChannelFacts]:
        for edge in self._topology.edges:
            if any(log.records for part in self._parts[edge.target] if part and part.logs for log in part.logs):
                yield from (channel for channel in _of_edge(edge, self._parts) if channel.logged)

    def edges(self) -> Iterator[EdgeFacts]:
        logged: dict[tuple[str, str], int] = {}
        for operator, parts in self._parts.items():
            for log in (log for part in parts if part and part.logs for log in part.logs):
                ends = (edge_of(log.channel)[0], operator)
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
    counted = [row for row in counts if row is not None]
    return sum(chain.from_iterable(counted)) if sum(map(len, counted)) == channels else None
