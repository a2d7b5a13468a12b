"""What is in the way of running a `process`, from the job graph alone. Whether event time
comes to its timers is for `abscli.graph.timed` to say."""

from __future__ import annotations

from collections.abc import Iterator

from abscli.engine.errors import UsageError
from abscli.engine.sources.columns import schema_of
from formats.job.model import Kind, Topology
from formats.job.rules import OperatorFault


def process_faults(topology: Topology) -> Iterator[OperatorFault]:
    """Of all of them."""
    for op in topology.operators:
        if op.kind is not Kind.PROCESS:
            continue
        here = (str(op.kind), "function") if op.key else (str(op.kind),)
        if not op.key:
            message = f"operator {op.id} is a process without a key, which `abs run` does not support"
            yield OperatorFault(op.id, here, message, "add key: [column, ...], or make it a map or a flat_map")
        elif ":" not in (op.function or ""):
            message = f"operator {op.id}: {op.function} is a function of rows, and a process needs one of keys"
            yield OperatorFault(op.id, here, message, "name one of a module: module:function")
        try:
            schema_of(dict(op.kept.columns), f"operator {op.id}: state")
        except UsageError as error:
            yield OperatorFault(op.id, (str(op.kind), "state"), error.message, error.hint)
