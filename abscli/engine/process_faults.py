"""What is in the way of running a `process`, from the job graph alone."""

from __future__ import annotations

from collections.abc import Iterator

from abscli.engine.errors import UsageError
from abscli.engine.sources.columns import schema_of
from abscli.graph.job_graph import JobGraph
from formats.job.event_time import event_time_of
from formats.job.model import Kind, Operator, Topology
from formats.job.rules import OperatorFault


def process_faults(topology: Topology) -> Iterator[OperatorFault]:
    """Of all of them."""
    for op in topology.operators:
        if op.kind is not Kind.PROCESS:
            continue
        here = (str(op.kind), "function") if op.key else (str(op.kind),)
        if not op.key:
            message = f"operator {op.id} is a process without a key: it can be inspected and planned for, not run"
            yield OperatorFault(op.id, here, message, "add key: [column, ...], or make it a map or a flat_map")
        elif ":" not in (op.function or ""):
            message = f"operator {op.id}: {op.function} is a function of rows, and a process needs one of keys"
            yield OperatorFault(op.id, here, message, "name one of a module: module:function")
        try:
            schema_of(dict(op.kept.columns), f"operator {op.id}: state")
        except UsageError as error:
            yield OperatorFault(op.id, (str(op.kind), "state"), error.message, error.hint)
        if op.kept.time is not None or op.ttl:
            yield from _event_time_faults(topology, op)


def _event_time_faults(topology: Topology, op: Operator) -> Iterator[OperatorFault]:
    keys, needs = (("ttl",), "a time to live") if op.ttl else ((str(op.kind), "time"), "timers")
    graph = JobGraph.of(topology)
    if any(op.id in loop for loop in graph.loops):
        message = f"operator {op.id} has {needs}, and is part of a loop, in which event time does not go round"
        yield OperatorFault(op.id, keys, message, f"put what needs {needs} before the loop, or behind it")
    upstream, waiting = {op.id}, [op.id]
    while waiting:
        for edge in graph.inputs[waiting.pop()]:
            if edge.source not in upstream:
                upstream.add(edge.source)
                waiting.append(edge.source)
    for source in topology.operators:
        if source.id in upstream and source.kind is Kind.SOURCE and event_time_of(source) is None:
            message = f"operator {op.id} has {needs}, and its source {source.id} says nothing of event time"
            hint = f"name the column with it under the source of {source.id}, such as event_time: {{column: at}}"
            yield OperatorFault(op.id, keys, message, hint)
