"""A restored epoch under another parallelism: a new generation, whose counters begin anew.

Keyed state goes to the owner of its key. Logged records of hash and rebalance edges are routed anew and count as sent
on their new channel; a broadcast log is taken over only when all receivers have the same; an operator with a forward
edge keeps its parallelism.
"""

from __future__ import annotations

from itertools import count

import msgspec

from abscli.sim.disk import Snapshot
from abscli.sim.model import Model, Record
from abscli.sim.task import Part
from formats.ids import TaskId, channel_name, operator_of, task_name
from formats.job.model import Edge, Partition


def may_rescale(model: Model, operator: str) -> bool:
    """Whether an operator's parallelism is free. Targets of a broadcast would see another number of rows: not here."""
    edges = [e for e in model.topology.edges if operator in (e.source, e.target)]
    return all(
        e.partition is not Partition.FORWARD and (e.partition is not Partition.BROADCAST or e.target != operator)
        for e in edges
    )


def with_parallelism(model: Model, operator: str, parallelism: int) -> Model:
    """The job with another number of subtasks; the splits of its sources stay."""
    operators = tuple(
        msgspec.structs.replace(op, parallelism=parallelism) if op.id == operator else op
        for op in model.topology.operators
    )
    return Model(msgspec.structs.replace(model.topology, operators=operators), model.rows)


def rescaled(old: Model, new: Model, snapshot: Snapshot) -> Snapshot | None:
    """The epoch as tasks of the new job restore it; None if a log cannot be taken over."""
    logs: dict[str, tuple[Record, ...]] = {}
    for edge in old.topology.edges:
        routed = _rerouted(edge, old, new, snapshot)
        if routed is None:
            return None
        logs |= routed
    parts, seen = {}, {}
    for task in new.tasks:
        positions: dict[int, int] = {}
        counts: dict[int, int] = {}
        id = new.ids[task]
        width = new.operators[id.operator].parallelism
        before = [part for name, part in snapshot.parts.items() if operator_of(name) == id.operator]
        for part in before:
            positions |= {k: at for k, at in part.positions if k % width == id.subtask}
            for value, times in snapshot.seen[part.task].items():
                if value % width == id.subtask:
                    counts[value] = counts.get(value, 0) + times
        parts[task] = Part(
            task=task,
            epoch=snapshot.epoch,
            attempt=0,
            base=0,
            changed=(),
            positions=tuple(sorted(positions.items())),
            finished=all(part.finished for part in before),
            turns=(),
            sent=tuple((c.name, len(logs.get(c.name, ()))) for c in new.outputs[task]),
            received=tuple((c.name, 0) for c in new.inputs[task]),
            logs=tuple((c.name, logs[c.name]) for c in new.inputs[task] if logs.get(c.name)),
        )
        seen[task] = counts
    return Snapshot(snapshot.epoch, parts, seen)


def _rerouted(edge: Edge, old: Model, new: Model, snapshot: Snapshot) -> dict[str, tuple[Record, ...]] | None:
    """The logs of one edge by new channel."""
    senders, receivers = new.operators[edge.source].parallelism, new.operators[edge.target].parallelism
    routed: dict[str, tuple[Record, ...]] = {}
    turn = count()
    for i in range(old.operators[edge.source].parallelism):
        sender = task_name(edge.source, i)
        channels = [c for c in old.outputs[sender] if c.edge == old.topology.edges.index(edge)]
        logs = [snapshot.log(c.name, c.receiver) for c in channels]
        heir = task_name(edge.source, i % senders)
        if edge.partition is Partition.BROADCAST:
            if len(set(logs)) > 1:
                return None
            for j in range(receivers):
                name = channel_name(heir, task_name(edge.target, j))
                routed[name] = routed.get(name, ()) + logs[0]
            continue
        for channel, log in zip(channels, logs, strict=True):
            for record in log:
                if edge.partition is Partition.HASH:
                    target = record.value % receivers
                elif edge.partition is Partition.REBALANCE:
                    target = next(turn) % receivers
                else:
                    target = TaskId.parse(channel.receiver).subtask
                name = channel_name(heir, task_name(edge.target, target))
                routed[name] = (*routed.get(name, ()), record)
    return routed
