"""A restored epoch under another parallelism, by the rules that the engine goes by (`abscli.planner.rescale`).

Keyed state goes to the owner of its key, logs are routed anew, counters begin anew. An operator with a forward edge
keeps its parallelism: one alone changes at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import msgspec

from abscli.planner.rescale import Rule, reroute, rule_of
from abscli.sim.disk import Snapshot
from abscli.sim.model import Model, Record
from abscli.sim.task import Part
from formats.ids import ChannelId, TaskId
from formats.job.model import Edge, Partition
from formats.watermark import lowest

Log = tuple[Record, ...]


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
    logs: dict[ChannelId, tuple[Record, ...]] = {}
    for edge in old.topology.edges:
        routed = _rerouted(edge, old, new, snapshot)
        if routed is None:
            return None
        logs |= routed
    parts, seen, waiting = {}, {}, {}
    for task in new.tasks:
        positions: dict[int, int] = {}
        counts: dict[int, int] = {}
        rows: dict[Record, int] = {}
        width = new.operator_of(task).parallelism
        before = [part for other, part in snapshot.parts.items() if other.operator == task.operator]
        for part in before:
            positions |= {k: at for k, at in part.positions if k % width == task.subtask}
            for value, times in snapshot.seen[part.task].items():
                if value % width == task.subtask:
                    counts[value] = counts.get(value, 0) + times
            for row, times in snapshot.waiting.get(part.task, {}).items():
                if row.value % width == task.subtask:
                    rows[row] = rows.get(row, 0) + times
        parts[task] = Part(
            task=task,
            epoch=snapshot.epoch,
            attempt=0,
            base=0,
            changed=(),
            positions=tuple(sorted(positions.items())),
            finished=all(part.finished for part in before),
            turns=(),
            sent=tuple((c.id, len(logs.get(c.id, ()))) for c in new.outputs[task]),
            received=tuple((c.id, 0) for c in new.inputs[task]),
            logs=tuple((c.id, logs[c.id]) for c in new.inputs[task] if logs.get(c.id)),
            watermark=lowest(part.watermark for part in before),
        )
        seen[task] = counts
        if rows:
            waiting[task] = rows
    return Snapshot(snapshot.epoch, parts, seen, waiting)


def _rerouted(edge: Edge, old: Model, new: Model, snapshot: Snapshot) -> dict[ChannelId, tuple[Record, ...]] | None:
    """The logs of one edge by new channel."""
    rule = rule_of(edge, old.operators, new.operators)
    place = old.topology.edges.index(edge)
    senders = (TaskId(edge.source, i) for i in range(old.operators[edge.source].parallelism))
    channels = [channel.id for sender in senders for channel in old.outputs[sender] if channel.edge == place]
    logs = {(id.sender.subtask, id.receiver.subtask): log for id in channels if (log := snapshot.log(id))}
    width = new.operators[edge.source].parallelism, new.operators[edge.target].parallelism
    if rule is None:
        return None if logs else {}
    routed = reroute(rule, logs, old.operators[edge.target].parallelism, width, _Rows())
    if routed is None:
        return None
    return {
        ChannelId(TaskId(edge.source, i), TaskId(edge.target, j)): tuple(chain.from_iterable(pieces))
        for (i, j), pieces in routed.items()
    }


class _Rows:
    """`abscli.planner.rescale.Spread` of the simulator's logs; the key of a record is its value."""

    def by_key(self, log: Log, rule: Rule, width: int) -> Iterable[tuple[int, Log]]:
        return [(record.value % width, (record,)) for record in log]

    def in_turn(self, log: Log, first: int, width: int) -> Iterable[tuple[int, Log]]:
        return [((first + k) % width, (record,)) for k, record in enumerate(log)]

    def count(self, log: Log) -> int:
        return len(log)

    def alike(self, logs: Sequence[Log]) -> bool:
        return len(set(logs)) == 1
