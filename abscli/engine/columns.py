"""Which columns flow along a job's edges, as far as they can be known before it runs.

A user's function may return anything: behind one nothing is known, until a `reduce` says what a row is again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from abscli.engine.state.aggregates import result_type
from abscli.graph.job_graph import JobGraph
from formats.job.model import Aggregate, Kind, Operator, Topology
from formats.job.rules import OperatorFault

WORDS = pa.schema([pa.field("word", pa.string())])
"""What the built-in `words` returns."""


def column_faults(topology: Topology, sources: Mapping[str, pa.Schema]) -> Iterator[OperatorFault]:
    """Keys and aggregates over columns that cannot be there, or that cannot be summed.

    sources: the columns of the source operators that are known.
    """
    graph = JobGraph.of(topology)
    outputs: dict[str, pa.Schema | None] = {}
    for id in graph.order:
        op = graph.operators[id]
        inputs = {e.source: outputs.get(e.source) for e in graph.inputs[id]}
        for edge in graph.inputs[id]:
            columns = inputs[edge.source]
            missing = [] if columns is None else [name for name in edge.key if name not in columns.names]
            if missing and edge.key != op.key:
                yield _missing(op, ("from", edge.source, "key"), missing[0], edge.source, columns)
        for source, columns in inputs.items():
            if columns is not None:
                yield from _operator_faults(op, source, columns)
        outputs[id] = sources.get(id) if op.kind is Kind.SOURCE else _output(op, list(inputs.values()))


def _missing(op: Operator, keys: tuple[str, ...], name: str, source: str, columns: pa.Schema) -> OperatorFault:
    return OperatorFault(
        op.id, keys, f"operator {op.id}: no column {name!r} in what {source} sends",
        f"{source} sends {', '.join(columns.names)}",
    )  # fmt: skip


def _operator_faults(op: Operator, source: str, columns: pa.Schema) -> Iterator[OperatorFault]:
    here = (str(op.kind),) if op.kind is Kind.DISTINCT else (str(op.kind), "key")
    missing = [name for name in op.key if name not in columns.names]
    if missing:
        yield _missing(op, here, missing[0], source, columns)
    if op.function == "words" and "line" not in columns.names:
        yield _missing(op, (str(op.kind),), "line", source, columns)
    if op.kept.time is not None and op.kept.time not in columns.names:
        yield _missing(op, (str(op.kind), "time"), op.kept.time, source, columns)
    for output in op.aggregates:
        at = (str(op.kind), output.name, output.function)
        missing = [name for name in output.columns if name not in columns.names]
        if missing:
            option = str(output.function) if missing[0] == output.column else "by"
            yield _missing(op, (str(op.kind), output.name, option), missing[0], source, columns)
        else:
            try:
                _output_type(output, columns)
            except TypeError as error:
                yield OperatorFault(op.id, at, f"operator {op.id}, output {output.name}: {error}")


def _output_type(output: Aggregate, columns: pa.Schema) -> pa.DataType:
    """Of an output of a `reduce` over these columns; TypeError."""
    return result_type(
        output.function, *(columns.field(name).type for name in output.columns), names=output.columns
    )


def _output(op: Operator, inputs: list[pa.Schema | None]) -> pa.Schema | None:
    """The columns that an operator puts out; None where they cannot be known, or a fault has been told of them."""
    first = inputs[0] if inputs else None
    alike = first if first is not None and all(columns is None or columns.equals(first) for columns in inputs) else None
    if op.function == "words":
        return WORDS
    if op.kind in (Kind.UNION, Kind.DISTINCT, Kind.FILTER) or op.function == "identity":
        return alike
    if op.kind is not Kind.REDUCE or alike is None:
        return None
    if any(name not in alike.names for name in op.key):
        return None
    fields = [alike.field(name) for name in op.key]
    for output in op.aggregates:
        if any(name not in alike.names for name in output.columns):
            return None
        try:
            kind = _output_type(output, alike)
        except TypeError:
            return None
        fields.append(pa.field(output.name, kind))
    return pa.schema(fields)
