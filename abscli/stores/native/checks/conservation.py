"""Conservation: the counters of a cut agree with its logs, channel by channel, and so show that it is consistent.

Within a generation, for every channel of an epoch (design: the paper's feasibility, arXiv 1506.08603 section 4, in
counts):

    sent - received = logged        aligned and unaligned everywhere; at-least-once on back edges
    sent - received <= 0            at-least-once on regular channels: records may repeat, none may be lost
    logged = 0                      on regular channels, except under unaligned

Linear in the channels; names are made only for those that fail.
"""

from __future__ import annotations

from collections.abc import Iterator

from abscli.graph.backedges import back_edges
from abscli.report.findings import Code, Finding
from formats.ids import ChannelId, TaskId
from formats.job.expand import neighbours
from formats.job.model import Edge, Topology
from formats.native.facts import PartFacts

POLICIES = frozenset({"aligned", "unaligned", "at-least-once"})


def check_conservation(topology: Topology, parts: tuple[PartFacts, ...], policy: str) -> Iterator[Finding]:
    """Every channel of which both ends have a part. policy: one of POLICIES."""
    by_task = {part.task: part for part in parts}
    width = {op.id: op.parallelism for op in topology.operators}
    logged = {(part.task, log.channel): log.records for part in parts for log in part.logs}
    back = back_edges(topology)
    for edge in topology.edges:
        yield from _counts(edge, by_task, width)
        yield from _edge(edge, by_task, width, logged, policy, back=(edge.source, edge.target) in back)


def _counts(edge: Edge, by_task: dict[TaskId, PartFacts], width: dict[str, int]) -> Iterator[Finding]:
    """As many counters as there are channels."""
    for i in range(width[edge.source]):
        part = by_task.get(TaskId(edge.source, i))
        channels = len(neighbours(edge, i, width[edge.target]))
        if part is not None and (count := len(part.sent.get(edge.target, ()))) != channels:
            message = f"{count} counters of what was sent to {edge.target}, which it has {channels} channels to"
            yield Finding(Code.CONSERVATION, part.task, None, None, message)
    for j in range(width[edge.target]):
        part = by_task.get(TaskId(edge.target, j))
        channels = len(neighbours(edge, j, width[edge.source]))
        if part is not None and (count := len(part.received.get(edge.source, ()))) != channels:
            message = f"{count} counters of what was received from {edge.source}, which it has {channels} channels from"
            yield Finding(Code.CONSERVATION, part.task, None, None, message)


def _edge(
    edge: Edge,
    by_task: dict[TaskId, PartFacts],
    width: dict[str, int],
    logged: dict[tuple[TaskId, ChannelId], int],
    policy: str,
    *,
    back: bool,
) -> Iterator[Finding]:
    senders = [by_task.get(TaskId(edge.source, i)) for i in range(width[edge.source])]
    may_log = back or policy == "unaligned"
    may_repeat = policy == "at-least-once" and not back
    for j in range(width[edge.target]):
        task = TaskId(edge.target, j)
        receiver = by_task.get(task)
        if receiver is None:
            continue
        received = receiver.received.get(edge.source, ())
        for position, i in enumerate(neighbours(edge, j, width[edge.source])):
            sender = senders[i]
            place = neighbours(edge, i, width[edge.target]).index(j)
            sent = sender.sent.get(edge.target, ()) if sender else ()
            channel = ChannelId(TaskId(edge.source, i), task) if receiver.logs else None
            log = logged.get((task, channel), 0) if channel else 0
            if log and not may_log:
                yield _finding(edge, i, receiver, f"{log} records are logged on a regular channel, where none may be")
            if position >= len(received) or place >= len(sent):
                continue
            flying = sent[place] - received[position]
            if flying == log or (may_repeat and flying <= 0):
                continue
            law = "at most 0" if may_repeat else f"{log}, what is logged"
            equation = f"sent {sent[place]} - received {received[position]} = {flying}"
            yield _finding(edge, i, receiver, f"{equation}, not {law}")


def _finding(edge: Edge, sender: int, receiver: PartFacts, message: str) -> Finding:
    channel = ChannelId(TaskId(edge.source, sender), receiver.task)
    return Finding(Code.CONSERVATION, receiver.task, channel, None, message)
