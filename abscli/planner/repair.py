"""What a repair runs again, and what its end has to agree with: pure, over the parts of an epoch that can be trusted.

The set is closed under senders, over `replayable` edges as well: a store keeps no output that could come in their
place. So nothing enters the set, and what leaves it is dropped; it leaves it only behind replay-deterministic tasks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from abscli.planner.adjacency import Adjacency
from abscli.planner.determinism import replay_deterministic
from abscli.planner.plan import failed_subtasks
from abscli.planner.recovery_set import RecoverySet, recovery_set
from formats.ids import ChannelId, TaskId
from formats.job.expand import channels_in
from formats.job.model import IN_ORDER, Emit, Kind, Operator, Partition, Topology, forgets
from formats.native.facts import PartFacts


@dataclass(frozen=True, slots=True)
class RepairSet:
    """What runs again.

    recovery: the tasks and the channels that leave them, as of a recovery.
    tasks: all of them, in the order of the graph.
    repeatable: those of them whose output comes again record by record.
    """

    recovery: RecoverySet
    tasks: tuple[TaskId, ...]
    repeatable: frozenset[TaskId]


def repair_set(topology: Topology, missing: Sequence[TaskId]) -> RepairSet:
    """The recovery set of the missing parts; none where nothing is missing."""
    edges = tuple(msgspec.structs.replace(edge, replayable=False) for edge in topology.edges)
    graph = Adjacency.of(msgspec.structs.replace(topology, edges=edges))
    recovery = recovery_set(graph, failed_subtasks(graph, missing)) if missing else RecoverySet((), ())
    again = recovery.subtasks
    tasks = tuple(TaskId(id, index) for id in graph.operators if id in again for index in again[id])
    deterministic = replay_deterministic(graph)
    return RepairSet(recovery, tasks, frozenset(task for task in tasks if task.operator in deterministic))


@dataclass(frozen=True, slots=True)
class Cut:
    """What is known of where an epoch has to be cut.

    offsets: by source task, how far it had read each split; a source that is not there may stop anywhere else.
    received: by task and channel, the records that it had taken.
    sent: by channel, the records that its sender had put on it.
    ended: the sources that had come to their end.
    connectors: by source task, what it needs besides positions.
    """

    offsets: Mapping[TaskId, Mapping[str, int]]
    received: Mapping[TaskId, Mapping[ChannelId, int]]
    sent: Mapping[ChannelId, int]
    ended: Collection[TaskId]
    connectors: Mapping[TaskId, dict[str, str] | None]


def cut_of(topology: Topology, again: RepairSet, trusted: Mapping[TaskId, PartFacts]) -> Cut:
    """Where the tasks that run again have to stop. trusted: the parts whose numbers can be believed.

    Only what comes again record by record, or stays, binds: behind a shuffle counts may differ from run to run.
    """
    width = {op.id: op.parallelism for op in topology.operators}
    received: dict[TaskId, dict[ChannelId, int]] = {}
    sent: dict[ChannelId, int] = {}
    for edge in topology.edges:
        for index in range(width[edge.target]):
            task = TaskId(edge.target, index)
            part = trusted.get(task)
            if part is None or (task in again.tasks and task not in again.repeatable):
                continue
            logged = {log.channel: log.records for log in part.logs}
            channels = channels_in(edge, index, width[edge.source])
            for channel, count in zip(channels, part.received.get(edge.source, ()), strict=False):
                sent[channel] = count + logged.get(channel, 0)
                if task in again.repeatable:
                    received.setdefault(task, {})[channel] = count
    sources = {task: part for task in again.tasks if (part := trusted.get(task)) is not None
               and part.positions is not None}  # fmt: skip
    offsets = {task: dict(_offsets(part)) for task, part in sources.items()}
    ended = frozenset(task for task, part in sources.items() if part.finished)
    connectors = {task: part.connector for task, part in sources.items()}
    return Cut(offsets, received, sent, ended, connectors)


def _offsets(part: PartFacts) -> Iterator[tuple[str, int]]:
    for position in part.positions or ():
        yield position.split, position.offset or 0


def _has_one_order(graph: Adjacency, op: Operator, ordered: Collection[str]) -> bool:
    """Whether each of its tasks gets its rows in one order, whenever they come again."""
    return graph.input_channels(op.id) <= 1 and all(edge.source in ordered for edge in graph.inputs[op.id])


def settled_contents(topology: Topology, back: Collection[tuple[str, str]]) -> frozenset[str]:
    """The operators whose state and rows up to a cut are the same set whenever the sources are cut alike, whatever the
    order in which inputs are read. For an aligned cut; a loop may be cut after any of its rounds.
    """
    graph = Adjacency.of(topology)
    ordered = replay_deterministic(graph)
    loops = {operator for edge in back for operator in edge}
    settled: set[str] = set()
    rows: set[str] = set()
    more = True
    while more:  # until nothing is added: a graph has few operators, and they may be declared in any order
        more = False
        for id, op in graph.operators.items():
            if id in settled or id in loops or op.kind in (Kind.OPAQUE, Kind.PROCESS, Kind.JOIN):
                continue
            if not op.deterministic or (op.connector or {}).get("deterministic") is False:
                continue
            # Which task gets a row over `rebalance` depends on the row's place in its sender's output.
            if not all(
                edge.source in rows and (edge.partition is not Partition.REBALANCE or edge.source in ordered)
                for edge in graph.inputs[id]
            ):
                continue
            # At which row a sum overflows hangs on the order, too, where it goes on without that row.
            by_order = any(one.function in IN_ORDER for one in op.aggregates) or op.on_error is not msgspec.UNSET
            by_order = by_order or forgets(op)
            if not _has_one_order(graph, op, ordered) and by_order and op.kind is Kind.REDUCE:
                continue
            settled.add(id)
            # Of a key the row that comes first passes, and running values depend on what came before.
            at_barriers = op.emit in (Emit.EPOCH, Emit.CHANGE)
            if op.kind is not Kind.DISTINCT and (op.kind is not Kind.REDUCE or at_barriers):
                rows.add(id)
            more = True
    return frozenset(settled)
