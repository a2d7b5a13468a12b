"""Making a worker's tasks: machines, queues, routes, operators, and what they are restored with."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from abscli.engine.channels.inbox import Barrier, Batch, Inbox
from abscli.engine.channels.routing import Route
from abscli.engine.channels.wire import JobSpec
from abscli.engine.io.sinks import JsonLinesSink
from abscli.engine.io.sources import Source, make_source
from abscli.engine.operators import Runnable, make_operator
from abscli.engine.state.restoring import Restored
from abscli.engine.task import RunningTask
from abscli.graph.backedges import back_edges
from abscli.protocol.policy import Policy
from abscli.protocol.task import Task
from formats.ids import task_name
from formats.job.expand import channels_in
from formats.job.model import Kind, Operator
from formats.native.counters import Counters
from formats.native.facts import PartFacts
from formats.native.store import NativeStore
from formats.storage import LocalStorage


def build_tasks(
    spec: JobSpec,
    pool: ThreadPoolExecutor,
    *,
    mine: Callable[[int], bool],
    send: Callable[[str, Batch | Barrier], None],
    acked: Callable[[PartFacts, Counters, int], None],
    ended: Callable[[str], None],
    later: Callable[[Callable[[], None]], None],
) -> list[RunningTask]:
    """The tasks whose subtask number is `mine`, receivers before senders, restored from epoch `spec.parent`.

    Raises UsageError (kinds and functions that cannot be run), JobFailed, and the errors of `formats`.
    """
    topology = spec.topology
    storage = LocalStorage(spec.store)
    parts = NativeStore(storage).parts(spec.parent) if spec.parent else ()
    restored = Restored(storage, topology, parts)
    back = back_edges(topology)
    operators = {op.id: op for op in topology.operators}

    def inboxes(op: Operator, index: int) -> list[Inbox]:
        queues = []
        for edge in (e for e in topology.edges if e.target == op.id):
            for channel in channels_in(edge, index, operators[edge.source].parallelism):
                inbox = Inbox(
                    channel, back=(edge.source, edge.target) in back, next_record=restored.received(channel) + 1
                )
                for batch in restored.log(channel):
                    inbox.put(batch)
                queues.append(inbox)
        return queues

    def routes(op: Operator, index: int) -> list[Route]:
        part = restored.parts.get(task_name(op.id, index))
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
        name = task_name(op.id, index)
        part = restored.parts.get(name)
        source, sink, operator = _role(op, index, spec, part)
        if operator is not None and operator.state is not None:
            for table in restored.state(name):
                operator.state.load(table)
        queues, outs = inboxes(op, index), routes(op, index)
        machine = Task(
            name,
            [inbox.channel for inbox in queues],
            [channel for route in outs for channel in route.channels],
            [inbox.channel for inbox in queues if inbox.back],
            policy=Policy(spec.policy),
            first_epoch=spec.first_epoch,
            sent={channel: restored.sent(channel) for route in outs for channel in route.channels},
            received={inbox.channel: restored.received(inbox.channel) for inbox in queues},
            finished=part.finished if part else False,
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
            later=later,
            source=source,
            sink=sink,
            operator=operator,
            base=part.state if part else (),
            base_epoch=spec.parent,
        )

    return [
        task(op, index) for op in reversed(topology.operators) for index in range(op.parallelism) if mine(index)
    ]


def _role(
    op: Operator, index: int, spec: JobSpec, part: PartFacts | None
) -> tuple[Source | None, JsonLinesSink | None, Runnable | None]:
    if op.kind is Kind.SOURCE:
        positions, connector = (part.positions, part.connector) if part else (None, None)
        return make_source(op, index, spec.directory, positions, connector), None, None
    if op.kind is Kind.SINK:
        return None, JsonLinesSink(op, index, spec.directory, spec.attempt_id), None
    return None, None, make_operator(op, task_name(op.id, index), spec.root)
