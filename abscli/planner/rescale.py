"""What becomes of an epoch when operators get another number of tasks: who inherits its state, logs and splits. Pure.

A rescale begins a new generation with an epoch that says of the new tasks what an older one said of the old tasks:

- State goes to the owner of its key group, by reference to the files that are there.
- Logged records stay with their receiver where the number of receivers is the same. Else those of a hash edge go to the
  owner of their key, those of a rebalance edge to the receivers in turn, those of a broadcast edge to every receiver,
  if all old ones have the same before them; those of a forward edge to the task that owns their key in the receiver's
  state, or in the sender's where the receiver has none, and to nobody where neither has.
- Logs of a sender that vanishes go to one that stays, in the order of each old channel.
- Splits of sources are dealt out anew, with their positions.
- Counters begin anew: records of logs count as sent on their new channel, and as not received.

The engine carries it out on files, the simulator on its own records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from formats.ids import ChannelId, TaskId
from formats.job.expand import neighbours
from formats.job.model import Edge, Operator, Partition, Topology, key_group_range
from formats.native.facts import LogFacts, PartFacts, StateFileFacts, header
from formats.native.state.references import referred
from formats.view import Position, Repeat
from formats.watermark import lowest

T = TypeVar("T")

Pair = tuple[int, int]
"""The subtasks at the ends of a channel of an edge that is known."""

RoutedLogs = Mapping[tuple[str, str], Mapping[Pair, LogFacts]]
"""By edge (source, target) and channel."""


class Change(NamedTuple):
    """An operator that gets another number of tasks."""

    operator: str
    before: int
    after: int


def changes(old: Topology, new: Topology) -> tuple[Change, ...]:
    """The operators of both that have another parallelism in the new one."""
    width = {op.id: op.parallelism for op in old.operators}
    return tuple(
        Change(op.id, width[op.id], op.parallelism)
        for op in new.operators
        if width.get(op.id, op.parallelism) != op.parallelism
    )


def with_parallelism(topology: Topology, parallelism: Mapping[str, int]) -> Topology:
    """The job with these numbers of tasks in place of its own."""
    operators = tuple(
        msgspec.structs.replace(op, parallelism=parallelism.get(op.id, op.parallelism)) for op in topology.operators
    )
    return msgspec.structs.replace(topology, operators=operators)


# -- logs -----------------------------------------------------------------------------------------------------


class How(StrEnum):
    """How the logged records of an edge find their receivers."""

    KEEP = "keep"
    KEY = "key"
    TURN = "turn"
    COPY = "copy"


class Rule(NamedTuple):
    """Of one edge.

    key: columns by which the receiver is found, of KEY.
    max_parallelism: key groups of that key.
    paired: a channel joins two tasks of one number, so that the sender is found with the receiver.
    """

    how: How
    key: tuple[str, ...] = ()
    max_parallelism: int = 0
    paired: bool = False


def rule_of(edge: Edge, old: Mapping[str, Operator], new: Mapping[str, Operator]) -> Rule | None:
    """How logs of the edge are routed; None where nothing says where a record of it belongs. old, new: operators by
    id."""
    source, target = old[edge.source], old[edge.target]
    paired = edge.partition is Partition.FORWARD
    if new[edge.target].parallelism == target.parallelism:
        return Rule(How.KEEP, paired=paired)
    match edge.partition:
        case Partition.HASH:
            return Rule(How.KEY, edge.key, target.max_parallelism)
        case Partition.REBALANCE:
            return Rule(How.TURN)
        case Partition.BROADCAST:
            return Rule(How.COPY)
        case Partition.FORWARD:
            owner = next((op for op in (target, source) if op.key), None)
            return Rule(How.KEY, owner.key, owner.max_parallelism, paired=True) if owner else None


class Spread(Protocol[T]):
    """What can be done with a log, whatever it is made of."""

    def by_key(self, log: T, rule: Rule, width: int) -> Iterable[tuple[int, T]]:
        """Its records by the task of `width` that owns their key, those of each in their order."""

    def in_turn(self, log: T, first: int, width: int) -> Iterable[tuple[int, T]]:
        """Its records dealt out, the first one to task `first` modulo `width`."""

    def count(self, log: T) -> int:
        """Its records."""

    def alike(self, logs: Sequence[T]) -> bool:
        """Whether all have the same records in the same order."""


def heir(sender: int, senders: int) -> int:
    """The sender of a new generation that takes over the logs of an old one: itself, if it is still there."""
    return sender % senders


def reroute(
    rule: Rule, logs: Mapping[Pair, T], receivers: int, width: tuple[int, int], spread: Spread[T]
) -> dict[Pair, list[T]] | None:
    """The logs of one edge by new channel, in order; None if those of a broadcast are not alike.

    logs: that are not empty, by old channel. receivers: how many there were. width: senders and receivers now.
    """
    routed: dict[Pair, list[T]] = {}
    turn = 0
    for sender, group in groupby(sorted(logs), key=lambda pair: pair[0]):
        channels = [(receiver, logs[sender, receiver]) for _, receiver in group]
        if rule.how is How.COPY:
            if len(channels) != receivers or not spread.alike([log for _, log in channels]):
                return None
            channels = channels[:1]
        for receiver, log in channels:
            pieces: Iterable[tuple[int, T]]
            match rule.how:
                case How.KEEP:
                    pieces = [(receiver, log)]
                case How.COPY:
                    pieces = [(j, log) for j in range(width[1])]
                case How.TURN:
                    pieces = spread.in_turn(log, turn, width[1])
                    turn += spread.count(log)
                case How.KEY:
                    pieces = spread.by_key(log, rule, width[1])
            for j, piece in pieces:
                pair = (j, j) if rule.paired else (heir(sender, width[0]), j)
                routed.setdefault(pair, []).append(piece)
    return routed


# -- parts ----------------------------------------------------------------------------------------------------


class Identity(NamedTuple):
    """The epoch that is made, and the attempt that makes it."""

    epoch: int
    attempt: int
    attempt_id: str


def lifted(
    old: Topology,
    new: Topology,
    parts: Mapping[str, Sequence[PartFacts]],
    logs: RoutedLogs,
    identity: Identity,
    repeats: Sequence[Repeat] = (),
) -> tuple[PartFacts, ...]:
    """What the new tasks have of an epoch, by operator as declared, then subtask.

    parts: by operator, in the order of the old subtasks. logs: routed, with an entry for every channel of a back edge.
    repeats: what the state holds of records that come again; they are told of a channel of the same edge.
    """
    width = {op.id: op.parallelism for op in new.operators}
    excess = _excess(new, width, repeats)
    made = []
    for op, before in ((op, old.operator(op.id)) for op in new.operators):
        mine = parts[op.id]
        positions = _positions(mine, op.parallelism)
        for index in range(op.parallelism):
            state, rows = _state(before, mine, op.parallelism, index)
            same = op.parallelism == before.parallelism
            made.append(PartFacts(
                epoch=identity.epoch,
                attempt=identity.attempt,
                task_name=str(TaskId(op.id, index)),
                state=state,
                rows=rows,
                logs=tuple(
                    log
                    for edge in new.edges if edge.target == op.id
                    for (_, receiver), log in sorted(logs.get((edge.source, edge.target), {}).items())
                    if receiver == index
                ),
                sent={
                    edge.target: tuple(
                        _records(logs, edge, (index, j)) for j in neighbours(edge, index, width[edge.target])
                    )
                    for edge in new.edges if edge.source == op.id
                },
                received={
                    edge.source: tuple(
                        excess.get((edge.source, edge.target, i, index), 0)
                        for i in neighbours(edge, index, width[edge.source])
                    )
                    for edge in new.edges if edge.target == op.id
                },
                positions=positions[index] if not same else mine[index].positions,
                round_robin={
                    edge.target: 0
                    for edge in new.edges if edge.source == op.id and edge.partition is Partition.REBALANCE
                },
                connector=next((part.connector for part in mine if part.connector is not None), None),
                sink=(),
                finished=mine[index].finished if same else all(part.finished for part in mine),
                alignment=0.0,
                sync=0.0,
                async_=0.0,
                attempt_id=identity.attempt_id,
                schedule=None,
                # Nothing is late for it that was not for one of those that it takes over from.
                watermark=mine[index].watermark if same else lowest(part.watermark for part in mine),
                skipped=mine[index].skipped if same else sum(part.skipped for part in mine) if index == 0 else 0,
                **header(PartFacts),
            ))  # fmt: skip
    return tuple(made)


def _records(logs: RoutedLogs, edge: Edge, pair: Pair) -> int:
    log = logs.get((edge.source, edge.target), {}).get(pair)
    return log.records if log else 0


def _excess(
    new: Topology, width: Mapping[str, int], repeats: Sequence[Repeat]
) -> dict[tuple[str, str, int, int], int]:
    """Records that receivers have and that come again, by edge and new channel."""
    forward = {(edge.source, edge.target) for edge in new.edges if edge.partition is Partition.FORWARD}
    excess: dict[tuple[str, str, int, int], int] = {}
    for repeat in repeats:
        channel = repeat.channel
        assert isinstance(channel, ChannelId)  # in a store of abs both ends are known
        source, target = channel.edge
        sender, receiver = heir(channel.sender.subtask, width[source]), channel.receiver.subtask % width[target]
        key = source, target, sender, sender if channel.edge in forward else receiver
        excess[key] = excess.get(key, 0) + repeat.records
    return excess


def _positions(parts: Sequence[PartFacts], width: int) -> list[tuple[Position, ...] | None]:
    """The splits of a source by new task, as a source deals them out at its start: in order of their names."""
    if all(part.positions is None for part in parts):
        return [None] * width
    splits = sorted((split for part in parts for split in part.positions or ()), key=attrgetter("split"))
    return [tuple(splits[index::width]) for index in range(width)]


def _state(
    before: Operator, parts: Sequence[PartFacts], width: int, index: int
) -> tuple[tuple[StateFileFacts, ...], int | None]:
    """The files of a new task, and its live keys if these are known without a look."""
    if width == before.parallelism:
        return parts[index].state, parts[index].rows
    own = key_group_range(index, width, before.max_parallelism)
    state: list[StateFileFacts] = []
    rows: int | None = 0
    for number in range(*(group * before.parallelism // before.max_parallelism + i for i, group in
                          ((0, own.start), (1, own.stop - 1)))):  # fmt: skip
        groups = key_group_range(number, before.parallelism, before.max_parallelism)
        files = [file for old in parts[number].state if (file := referred(old, groups, own)) is not None]
        state += files
        whole = own.start <= groups.start and groups.stop <= own.stop
        live = parts[number].rows if whole else None if files else 0
        rows = None if rows is None or live is None else rows + live
    return tuple(state), rows
