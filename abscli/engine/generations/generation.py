"""The first epoch of a generation: what was taken of other tasks and channels, as the tasks of the job have it now.

It refers to the files that are there. Its counters begin anew: what is sent and not received on a channel is its log,
and what was received too often stays so. It is complete before any record moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from abscli.engine.journal import Journal
from abscli.graph.backedges import back_edges
from abscli.planner.succession import Fate, Succession
from formats.ids import ChannelId, TaskId
from formats.job.expand import neighbours
from formats.job.model import Edge, Partition, Topology
from formats.native.facts import AttemptFacts, LogFacts, PartFacts, header
from formats.native.writer import put_part
from formats.storage import Storage


class Opening(NamedTuple):
    """What a generation begins with.

    policy: how the epoch was taken that it is made of.
    parts: without an epoch and an attempt of their own yet.
    origins: by the ids of operators, those that they had in that epoch; who is not among them is new.
    removed: the operators of that epoch that are gone on purpose.
    """

    policy: str
    parts: tuple[PartFacts, ...]
    origins: dict[str, str]
    removed: tuple[str, ...]

    @property
    def moved(self) -> dict[str, str]:
        """The operators that have another id, by the one that they had."""
        return {before: after for after, before in self.origins.items() if before != after}


def opening(change: Succession, new: Topology, parts: Sequence[PartFacts], policy: str) -> Opening:
    """The epoch that has these parts, as the first one of the job `new`. change: what becomes of it there."""
    before = {part.task: part for part in parts}
    origins = {heir: operator for operator, heir in change.heirs.items()}
    edges = {(edge.now.source, edge.now.target): edge.before for edge in change.edges if edge.now is not None}
    widths = {op.id: op.parallelism for op in new.operators}
    counters = _Counters(before)
    for edge in new.edges:
        counters.add(edge, edges.get((edge.source, edge.target)), widths)
    back = back_edges(new)
    made = []
    for op in new.operators:
        inputs = [edge for edge in new.edges if edge.target == op.id]
        outputs = [edge for edge in new.edges if edge.source == op.id]
        for index in range(op.parallelism):
            origin = before.get(TaskId(origins[op.id], index)) if op.id in origins else None
            task = TaskId(op.id, index)
            turns = {
                edge.target: origin.round_robin.get(edges[edge.source, edge.target].target, 0)
                if origin and (edge.source, edge.target) in edges
                else 0
                for edge in outputs
            }
            logs = [log for edge in inputs for log in _logs(edge, index, widths, counters.logs, edges, back)]
            part = PartFacts(
                epoch=0,
                attempt=0,
                attempt_id="",
                task_name=str(task),
                state=origin.state if origin else (),
                rows=origin.rows if origin else 0,
                logs=tuple(sorted(logs, key=lambda log: log.channel_name)),
                sent={edge.target: tuple(counters.sent[task, edge.target]) for edge in outputs},
                received={edge.source: tuple(counters.received[task, edge.source]) for edge in inputs},
                positions=origin.positions if origin else None,
                round_robin=turns,
                connector=origin.connector if origin else None,
                sink=(),
                finished=origin.finished if origin else False,
                alignment=0.0,
                sync=0.0,
                async_=0.0,
                schedule=None,
                watermark=origin.watermark if origin else None,
                skipped=origin.skipped if origin else 0,
                **header(PartFacts),
            )
            made.append(part)
    removed = tuple(row.operator for row in change.operators if row.outcome is Fate.REMOVED)
    return Opening(policy, tuple(made), origins, removed)


def publish(journal: Journal, storage: Storage, attempt: AttemptFacts, opening: Opening) -> None:
    """Make it the first epoch of the attempt, complete as any other. Raises as `Journal.complete`."""
    epoch = attempt.first_epoch
    journal.begin(epoch, opening.policy)
    for part in opening.parts:
        put_part(storage, msgspec.structs.replace(part, epoch=epoch, attempt=attempt.attempt, attempt_id=attempt.id))
    journal.complete(epoch, idle=False, moved=opening.moved, removed=opening.removed)


def _logs(
    edge: Edge,
    index: int,
    widths: Mapping[str, int],
    logs: Mapping[ChannelId, LogFacts],
    origins: Mapping[tuple[str, str], Edge],
    back: frozenset[tuple[str, str]] | set[tuple[str, str]],
) -> list[LogFacts]:
    """The logs of the channels of an edge into one task, under the names that these have now."""
    ends = edge.source, edge.target
    result = []
    for i in neighbours(edge, index, widths[edge.source]):
        channel = ChannelId(TaskId(edge.source, i), TaskId(edge.target, index))
        log = logs.get(_before(origins[ends], i, index)) if ends in origins else None
        if log is not None and log.records:
            result.append(LogFacts(str(channel), log.records, log.file))
        elif ends in back:
            result.append(LogFacts(str(channel), 0, None))
    return result


def _before(edge: Edge, sender: int, receiver: int) -> ChannelId:
    return ChannelId(TaskId(edge.source, sender), TaskId(edge.target, receiver))


class _Counters:
    """What tasks of the generation have sent and received, by task and neighbour, in the order of its subtasks."""

    def __init__(self, before: Mapping[TaskId, PartFacts]) -> None:
        self.sent: dict[tuple[TaskId, str], list[int]] = {}
        self.received: dict[tuple[TaskId, str], list[int]] = {}
        self.logs = {log.channel: log for part in before.values() for log in part.logs}
        self._before = before

    def add(self, edge: Edge, origin: Edge | None, widths: Mapping[str, int]) -> None:
        """The channels of an edge. origin: the one that it was; None for a new one."""
        for i in range(widths[edge.source]):
            for j in neighbours(edge, i, widths[edge.target]):
                sent, received = (0, 0) if origin is None else self._anew(origin, i, j)
                self.sent.setdefault((TaskId(edge.source, i), edge.target), []).append(sent)
                self.received.setdefault((TaskId(edge.target, j), edge.source), []).append(received)

    def _anew(self, edge: Edge, i: int, j: int) -> tuple[int, int]:
        """Sent and received on a channel as if it had begun with the records of its log."""
        sender, receiver = self._before[TaskId(edge.source, i)], self._before[TaskId(edge.target, j)]
        forward = edge.partition is Partition.FORWARD
        sent = sender.sent[edge.target][0 if forward else j]
        received = receiver.received[edge.source][0 if forward else i]
        log = self.logs.get(_before(edge, i, j))
        logged = log.records if log else 0
        return logged, logged - (sent - received)
