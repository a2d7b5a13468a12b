"""Making a worker's tasks: machines, queues, routes, operators, and what they are restored with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import pyarrow as pa
from msgspec import UNSET

from abscli.engine.channels.inbox import Barrier, Batch, Inbox
from abscli.engine.channels.messages import JobSpec
from abscli.engine.channels.routing import Route
from abscli.engine.columns import join_inputs
from abscli.engine.failures import Failures
from abscli.engine.local.steps import Place, Steps
from abscli.engine.operators.interval_join import IntervalJoin
from abscli.engine.operators.keyed_process import KeyedProcess
from abscli.engine.operators.making import MakeState, in_memory, keyed_by, make_operator
from abscli.engine.operators.runnable import Runnable
from abscli.engine.operators.sessions import Sessions
from abscli.engine.operators.table_lookup import TableLookup, check_table, own_key_groups, read_table
from abscli.engine.operators.windowed import Windowed
from abscli.engine.sinks.contract import Sink
from abscli.engine.sinks.making import make_sink
from abscli.engine.sinks.timed import TimedSink
from abscli.engine.sources.contract import Source
from abscli.engine.sources.kafka.topics import dealt
from abscli.engine.sources.making import make_source
from abscli.engine.sources.pacing import PacedSource
from abscli.engine.state.bounded_state import BoundedState
from abscli.engine.state.contract import State
from abscli.engine.state.memory import StateMemory
from abscli.engine.state.packing import Packer
from abscli.engine.state.restoring import Restored
from abscli.engine.task import RunningTask
from abscli.engine.waits import StepTimer
from abscli.graph.backedges import back_edges
from abscli.protocol.policy import Policy
from abscli.protocol.task import Task
from formats.ids import ChannelId, TaskId
from formats.job.expand import channels_in
from formats.job.model import KEYED, Kind, Operator, Side, as_sink
from formats.native.counters import Counters
from formats.native.facts import PartFacts
from formats.native.store import NativeStore
from formats.storage import Storage, open_writable

PARTS = 128
"""In which the state of a worker's tasks goes to disk, about: each that is there has a file open."""


def build_tasks(
    spec: JobSpec,
    pool: ThreadPoolExecutor,
    *,
    epoch: int,
    first_epoch: int,
    mine: Callable[[str, int], bool],
    send: Callable[[ChannelId, Batch | Barrier], None],
    acked: Callable[[PartFacts, Counters, int, Place | None, bool], None],
    ended: Callable[[TaskId], None],
    caught_up: Callable[[ChannelId], None],
    later: Callable[[Callable[[], None]], None],
    make: Callable[..., Task] = Task,
    steps: Callable[[TaskId], Steps | None] = lambda task: None,
    again: Callable[[TaskId], bool] = lambda task: False,
    may_show: Callable[[], None] = lambda: None,
    memory: StateMemory | None = None,
    packer: Packer | None = None,
    sink_steps: StepTimer | None = None,
) -> list[RunningTask]:
    """The tasks (operator, subtask) that are `mine`, receivers before senders, restored from `epoch`.

    first_epoch: barriers below it do not count for them.

    make: makes their machines.
    steps: of a task: where it notes them, and those that it takes again.
    again: of a task: whether it is to take the steps again that it took from its copy on, with the counters of that.
    may_show: called before others can see what they write; it may raise.
    memory: for their keyed state, which goes to disk beyond it; None: all of it stays in memory.
    packer: puts what they write together; None: each file is put alone.
    sink_steps: times the steps of their sinks.

    Raises UsageError (kinds and functions that cannot be run), JobFailed, and the errors of `formats`.
    """
    topology = spec.topology
    storage = open_writable(spec.store, may_show=may_show)
    parts = NativeStore(storage).parts(epoch) if epoch else ()
    restored = Restored(storage, topology, parts)
    splits: dict[str, set[str]] = {}
    for part in parts:
        splits.setdefault(part.task.operator, set()).update(at.split for at in part.positions or ())
    back = back_edges(topology)
    operators = {op.id: op for op in topology.operators}
    joins = join_inputs(topology)
    # Of all that may be here, not of those that are made now: a task that takes its steps again has the same parts.
    keyed = sum(-(-op.parallelism // spec.workers) for op in topology.operators if op.kind in KEYED)
    make_state = in_memory if memory is None else partial(_bounded, memory, max(1, PARTS // max(1, keyed)))

    def received(channel: ChannelId) -> int:
        return (restored.taken if again(channel.receiver) else restored.received)(channel)

    def inboxes(op: Operator, index: int) -> list[Inbox]:
        queues = []
        for edge in (e for e in topology.edges if e.target == op.id):
            for channel in channels_in(edge, index, operators[edge.source].parallelism):
                inbox = Inbox(
                    channel, back=(edge.source, edge.target) in back, next_record=received(channel) + 1
                )
                for batch in restored.log(channel):
                    inbox.put(batch)
                queues.append(inbox)
        return queues

    def routes(op: Operator, index: int) -> list[Route]:
        part = restored.part(TaskId(op.id, index))
        return [
            Route(
                edge,
                index,
                operators[edge.target].parallelism,
                operators[edge.target].max_parallelism,
                turn=part.round_robin.get(edge.target, 0) if part else 0,
                back=(edge.source, edge.target) in back,
            )
            for edge in topology.edges
            if edge.source == op.id
        ]

    def task(op: Operator, index: int) -> RunningTask:
        name = TaskId(op.id, index)
        part = restored.part(name)
        splits_of: Collection[str] = splits.get(op.id, ())
        role = _role(op, index, spec, part, storage, may_show, make_state, splits_of, joins)
        sink = role.sink
        if sink is not None and sink_steps is not None:
            sink = TimedSink(sink, op.id, sink_steps)
        operator = role.operator
        if operator is not None and operator.state is not None:
            for table in restored.state(name):
                if isinstance(operator, IntervalJoin):
                    operator.resume(table)
                operator.state.load(table)
        if isinstance(operator, Windowed | Sessions | IntervalJoin | KeyedProcess):
            operator.watermark = part.watermark if part else None
        queues, outs = inboxes(op, index), routes(op, index)
        machine = make(
            name,
            [inbox.channel for inbox in queues],
            [channel for route in outs for channel in route.channels],
            [inbox.channel for inbox in queues if inbox.back],
            policy=Policy(spec.policy),
            first_epoch=first_epoch,
            sent={channel: restored.sent(channel) for route in outs for channel in route.channels},
            received={inbox.channel: received(inbox.channel) for inbox in queues},
            finished=part.finished if part else False,
            watermark=part.watermark if part else None,
        )
        return RunningTask(
            machine,
            queues,
            outs,
            storage,
            spec.attempt,
            spec.attempt_id,
            pool,
            send=send,
            acked=acked,
            ended=ended,
            caught_up=caught_up,
            later=later,
            source=role.source,
            sink=sink,
            operator=operator,
            failures=role.failures,
            base=part.state if part else (),
            base_epoch=epoch,
            whole=spec.whole,
            steps=steps(name),
            packer=packer,
        )

    return [
        task(op, index) for op in reversed(topology.operators) for index in range(op.parallelism) if mine(op.id, index)
    ]


class _Role(NamedTuple):
    """What a task does. sink: of one that is no sink itself, where its dead letters go."""

    source: Source | None = None
    operator: Runnable | None = None
    sink: Sink | None = None
    failures: Failures | None = None


def _role(
    op: Operator,
    index: int,
    spec: JobSpec,
    part: PartFacts | None,
    storage: Storage,
    may_show: Callable[[], None],
    make_state: MakeState,
    splits: Collection[str],
    joins: Mapping[str, Mapping[Side, pa.Schema]],
) -> _Role:
    task, sink = TaskId(op.id, index), None
    if (writes := as_sink(op)) is not None:
        sink = make_sink(
            writes, index, spec.directory, spec.attempt_id, may_show, job=spec.topology.job, storage=storage,
            sinks_in=spec.sinks_in,
        )
    failures = None if op.on_error is UNSET else Failures(task, sink, part.skipped if part else 0)
    if op.kind is Kind.SOURCE:
        positions, connector = (part.positions, part.connector) if part else (None, None)
        if positions is None and (begin := spec.begin.get(op.id)) is not None:
            positions = dealt(op, index, begin)
        source = make_source(op, index, spec.directory, positions, connector, splits, failures)
        return _Role(source if spec.pace is None else PacedSource(source, spec.pace), None, sink, failures)
    if op.kind is Kind.SINK:
        return _Role(sink=sink)
    if op.lookup:
        table = read_table(op, spec.directory)
        check_table(op, table, part.connector if part else None, spec.directory)
        inputs = [edge for edge in spec.topology.edges if edge.target == op.id]
        return _Role(None, TableLookup(op, task, table, own_key_groups(op, index, inputs)), sink, failures)
    return _Role(None, make_operator(op, task, spec.root, make_state, failures, joins.get(op.id)), sink, failures)


def _bounded(memory: StateMemory, parts: int, op: Operator) -> State:
    groups = -(-op.max_parallelism // op.parallelism)
    key, expires = keyed_by(op)
    return BoundedState(key, op.max_parallelism, memory, -(-groups // parts), expires=expires)
