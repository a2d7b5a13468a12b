"""Which columns flow along a job's edges, as far as they can be known before it runs.

A user's function may return anything: behind one nothing is known, until a `reduce` says what a row is again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from abscli.engine.errors import UsageError
from abscli.engine.operators.join_columns import JoinColumns
from abscli.engine.sources.columns import schema_of
from abscli.engine.sources.event_times import as_event_times
from abscli.engine.sources.making import SOURCE_TYPES, declared_schema
from abscli.engine.sources.numeric_times import emitted
from abscli.engine.state.aggregates import result_type
from abscli.graph.job_graph import JobGraph
from formats.job.model import (
    LATE,
    WINDOW_END,
    WINDOW_START,
    Aggregate,
    Join,
    Kind,
    Operator,
    Side,
    Topology,
)
from formats.job.rules import OperatorFault

WORDS = pa.schema([pa.field("word", pa.string())])
"""What the built-in `words` returns."""


def column_faults(topology: Topology, sources: Mapping[str, pa.Schema]) -> Iterator[OperatorFault]:
    """Keys and aggregates over columns that cannot be there, or that cannot be summed.

    sources: the columns of the source operators that are known.
    """
    graph = JobGraph.of(topology)
    for op, inputs in _flow(graph, sources):
        for edge in graph.inputs[op.id]:
            columns = inputs[edge.source]
            missing = [] if columns is None else [name for name in edge.key if name not in columns.names]
            if missing and edge.key != op.key:
                yield _missing(op, ("from", edge.source, "key"), missing[0], edge.source, columns)
        for source, columns in inputs.items():
            if columns is not None:
                yield from _operator_faults(op, source, columns)
        if op.join:
            yield from _join_faults(op, inputs)


def sink_columns(topology: Topology, sources: Mapping[str, pa.Schema]) -> Iterator[tuple[Operator, pa.Schema]]:
    """The columns that come to each sink from each of its inputs, as far as they are known. sources: as of
    `column_faults`."""
    for op, inputs in _flow(JobGraph.of(topology), sources):
        if op.kind is Kind.SINK:
            yield from ((op, columns) for columns in inputs.values() if columns is not None)


def _flow(
    graph: JobGraph, sources: Mapping[str, pa.Schema]
) -> Iterator[tuple[Operator, dict[str, pa.Schema | None]]]:
    """Each operator with what is known of the columns that its inputs send."""
    outputs: Outputs = {}
    for id in graph.order:
        op = graph.operators[id]
        inputs = {e.source: outputs.get((e.source, e.output or None)) for e in graph.inputs[id]}
        yield op, inputs
        outputs |= _outputs(op, inputs, sources)


Outputs = dict[tuple[str, str | None], pa.Schema | None]
"""The columns of operators' outputs, by the output's name, as an edge has it."""


def _outputs(op: Operator, inputs: Mapping[str, pa.Schema | None], sources: Mapping[str, pa.Schema]) -> Outputs:
    if op.kind is Kind.SOURCE:
        return {(op.id, None): sources.get(op.id)}
    if not op.join or len(inputs) != 2:
        columns = list(inputs.values())
        return {(op.id, None): _output(op, columns), (op.id, LATE): _alike(columns)}
    late: Outputs = {(op.id, side.late): columns for side, columns in _by_side(op.join, inputs).items()}
    try:
        return late | {(op.id, None): JoinColumns(op, _sides(op, inputs)).output}
    except UsageError:
        return late


def join_inputs(topology: Topology) -> dict[str, dict[Side, pa.Schema]]:
    """The columns of both sides of each join, as far as the job graph alone says them; UsageError where it does not.
    They are the same for all tasks and attempts."""
    return {op.id: _sides(op, inputs) for op, inputs in _joins(topology)}


def _joins(topology: Topology) -> Iterator[tuple[Operator, dict[str, pa.Schema | None]]]:
    """Each join with what is known of its two inputs' columns."""
    if not any(op.join for op in topology.operators):
        return
    for op, inputs in _flow(JobGraph.of(topology), columns_declared(topology)):
        if op.join and len(inputs) == 2:  # with fewer an input has a mistake of its own
            yield op, inputs


def columns_declared(topology: Topology) -> dict[str, pa.Schema]:
    """Return the columns of each source that the job file declares."""
    return {op.id: schema for op in topology.operators if (schema := _declared(op)) is not None}


def _declared(op: Operator) -> pa.Schema | None:
    if op.kind is not Kind.SOURCE or (op.connector or {}).get("type") not in SOURCE_TYPES:
        return None
    try:
        declared = declared_schema(op)
    except UsageError:  # reported with its source
        return None
    return None if declared is None else emitted(op, declared)


def _by_side(join: Join, inputs: Mapping[str, pa.Schema | None]) -> dict[Side, pa.Schema | None]:
    return {Side.LEFT if source == join.left else Side.RIGHT: columns for source, columns in inputs.items()}


def _sides(op: Operator, inputs: Mapping[str, pa.Schema | None]) -> dict[Side, pa.Schema]:
    """The columns of a join's sides; UsageError where nobody says them."""
    assert op.join
    sides = {}
    for source, known in inputs.items():
        declared, columns = op.join.columns.get(source), known
        if declared is not None:
            columns = schema_of(declared, f"operator {op.id}, columns of {source}")
        if columns is None:
            raise UsageError(
                f"operator {op.id}: the types of the columns that {source} emits are unknown before the job runs, but "
                "the join needs them",
                hint=f"declare the types in the join: columns: {{{source}: {{column: type, ...}}}}",
            )
        sides[Side.LEFT if source == op.join.left else Side.RIGHT] = columns
    return sides


def join_faults(topology: Topology) -> Iterator[OperatorFault]:
    """Joins whose columns the job graph does not say, or do not go together."""
    for op, inputs in _joins(topology):
        try:
            JoinColumns(op, _sides(op, inputs))
        except UsageError as error:
            yield OperatorFault(op.id, (str(Kind.JOIN),), error.message, error.hint)


def _join_faults(op: Operator, inputs: Mapping[str, pa.Schema | None]) -> Iterator[OperatorFault]:
    """What the columns of sources that are known by now have against what a join says of them."""
    assert op.join
    for source, columns in inputs.items():
        declared = op.join.columns.get(source)
        missing = [name for name in declared or () if columns is not None and name not in columns.names]
        if missing and columns is not None:
            yield _missing(op, (str(Kind.JOIN), "columns", source, missing[0]), missing[0], source, columns)


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
    yield from _time_column_faults(op, source, columns)
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


def _time_column_faults(op: Operator, source: str, columns: pa.Schema) -> Iterator[OperatorFault]:
    option, name = ("window", op.window.time) if op.window else ("ttl", op.ttl.time) if op.ttl else ("", "")
    if not option:
        return
    if name not in columns.names:
        yield _missing(op, (option, "time"), name, source, columns)
        return
    try:
        as_event_times(pa.array([], columns.field(name).type))
    except TypeError as error:
        message = f"operator {op.id}: column {name!r} of {source} cannot be event time: {error}"
        hint = "declare its type in the source's schema, or cast it in a map"
        yield OperatorFault(op.id, (option, "time"), message, hint)


def _output_type(output: Aggregate, columns: pa.Schema) -> pa.DataType:
    """Of an output of a `reduce` over these columns; TypeError."""
    return result_type(
        output.function, *(columns.field(name).type for name in output.columns), names=output.columns
    )


def _output(op: Operator, inputs: list[pa.Schema | None]) -> pa.Schema | None:
    """The columns that an operator puts out; None where they cannot be known, or a fault has been told of them."""
    alike = _alike(inputs)
    if op.function == "words":
        return WORDS
    if op.kind in (Kind.UNION, Kind.DISTINCT, Kind.FILTER) or op.function == "identity":
        return alike
    if op.kind is not Kind.REDUCE or alike is None:
        return None
    if any(name not in alike.names for name in op.key):
        return None
    fields = [alike.field(name) for name in op.key]
    if op.window:
        if op.window.time not in alike.names:
            return None
        kind = alike.field(op.window.time).type
        moment = pa.timestamp("us", kind.tz if pa.types.is_timestamp(kind) else None)
        fields += [pa.field(WINDOW_START, moment), pa.field(WINDOW_END, moment)]
    for output in op.aggregates:
        if any(name not in alike.names for name in output.columns):
            return None
        try:
            kind = _output_type(output, alike)
        except TypeError:
            return None
        fields.append(pa.field(output.name, kind))
    return pa.schema(fields)


def _alike(inputs: list[pa.Schema | None]) -> pa.Schema | None:
    """The columns that all inputs have; None where they cannot be known, or differ."""
    first = inputs[0] if inputs else None
    same = first is not None and all(columns is None or columns.equals(first) for columns in inputs)
    return first if same else None
