"""A job graph as a job file says it: the YAML of which `formats.job.file` makes the same graph again."""

from __future__ import annotations

from collections import Counter
from typing import Any

from msgspec import UNSET, to_builtins

from formats.errors import FormatError
from formats.job.changes import NO_CHANGES, Changes
from formats.job.file import MAX_PARALLELISM, VERSION
from formats.job.identifiers import ID
from formats.job.joins import join_document, lookup_document
from formats.job.model import KEYED, Aggregate, Aggregation, Edge, Emit, Kind, Operator, Partition, Topology
from formats.job.windows import ttl_document, window_document

WIDTH = 110
"""Columns of a line, where it can be broken."""


def job_yaml(topology: Topology, changes: Changes = NO_CHANGES) -> str:
    """The text of a job file. What its reader fills in by itself is left out."""
    import yaml

    lines = yaml.safe_dump(
        job_document(topology, changes), sort_keys=False, default_flow_style=None, allow_unicode=True, width=WIDTH
    )
    return str(lines)


def job_document(topology: Topology, changes: Changes = NO_CHANGES) -> dict[str, Any]:
    """What stands in the file, as plain values; FormatError for an id that no job file can have."""
    for op in topology.operators:
        if not ID.fullmatch(op.id):
            raise FormatError(f"operator {op.id!r} of another system has an id that no job file can have")
    parallelism = _most(op.parallelism for op in topology.operators)
    max_parallelism = _most(op.max_parallelism for op in topology.operators)
    if parallelism > max_parallelism:  # a file is refused for that, though every operator says something else
        parallelism = 1
    operators = {op.id: op for op in topology.operators}
    document: dict[str, Any] = {"version": VERSION, "job": topology.job}
    document |= {} if parallelism == 1 else {"parallelism": parallelism}
    document |= {} if max_parallelism == MAX_PARALLELISM else {"max_parallelism": max_parallelism}
    if changes.moved:
        document["moved"] = [{"from": move.before, "to": move.after} for move in changes.moved]
    if changes.removed:
        document["removed"] = list(changes.removed)
    document["operators"] = {
        op.id: {
            **_inputs([edge for edge in topology.edges if edge.target == op.id], operators),
            **_work(op, [edge.source for edge in topology.edges if edge.target == op.id]),
            **({} if op.parallelism == parallelism else {"parallelism": op.parallelism}),
            **({} if op.max_parallelism == max_parallelism else {"max_parallelism": op.max_parallelism}),
            **({} if op.deterministic else {"deterministic": False}),
            **({"ordered_output": True} if op.ordered_output else {}),
            **({"window": window_document(op.window)} if op.window else {}),
            **({"ttl": ttl_document(op.ttl)} if op.ttl else {}),
            **({} if op.on_error is UNSET else {"on_error": to_builtins(op.on_error)}),
        }
        for op in topology.operators
    }
    return document


def _most(numbers: Any) -> int:
    """The number that stands most often, the first of several."""
    return int(Counter(numbers).most_common(1)[0][0])


def _inputs(edges: list[Edge], operators: dict[str, Operator]) -> dict[str, Any]:
    options = {edge.source: _options(edge, operators) for edge in edges}
    if not edges:
        return {}
    if any(options.values()):
        return {"from": options}
    return {"from": edges[0].source if len(edges) == 1 else list(options)}


def _options(edge: Edge, operators: dict[str, Operator]) -> dict[str, Any]:
    """What the file has to say of an edge: nothing where its reader comes to the same."""
    source, target = operators[edge.source], operators[edge.target]
    alike = source.parallelism == target.parallelism
    keyed = target.kind in KEYED and bool(target.key)
    default = Partition.HASH if keyed else Partition.FORWARD if alike else Partition.REBALANCE
    options: dict[str, Any] = {} if edge.partition is default else {"partition": edge.partition.value}
    if edge.partition is Partition.HASH and not (keyed and edge.key == target.key):
        options["key"] = list(edge.key)
    options |= {"output": edge.output} if edge.output else {}
    return options | ({"replayable": True} if edge.replayable else {})


def output_document(aggregate: Aggregate) -> dict[str, Any]:
    """What stands under an output's name."""
    limit = "n" if aggregate.function is Aggregation.TOP_N else "limit"
    return {
        aggregate.function.value: aggregate.column,
        **({} if aggregate.limit is None else {limit: aggregate.limit}),
        **({} if aggregate.by is None else {"by": aggregate.by}),
    }


def _work(op: Operator, inputs: list[str]) -> dict[str, Any]:
    """What an operator does, under the name of its kind."""
    if op.kind is Kind.OPAQUE:
        return {}
    work: Any
    match op.kind:
        case Kind.SOURCE | Kind.SINK:
            work = op.connector
        case Kind.MAP | Kind.FILTER | Kind.FLAT_MAP:
            work = op.function
        case Kind.REDUCE:
            outputs = {one.name: output_document(one) for one in op.aggregates}
            work = {"key": list(op.key), **outputs}
            work |= {} if op.emit in (None, Emit.EPOCH) else {"emit": op.emit.value}
        case Kind.DISTINCT:
            work = list(op.key)
        case Kind.UNION:
            work = {}
        case Kind.JOIN if op.join:
            left = op.join.left
            work = join_document(op.join, op.key, next((id for id in inputs if id != left), left))
        case Kind.LOOKUP:
            assert op.lookup
            work = lookup_document(op.lookup)
        case Kind.PROCESS | Kind.JOIN if op.key:
            work = {
                "key": list(op.key),
                "function": op.function,
                **({"state": dict(op.kept.columns)} if op.kept.columns else {}),
                **({} if op.kept.time is None else {"time": op.kept.time}),
            }
        case Kind.PROCESS | Kind.JOIN:
            work = op.function
    return {op.kind.value: work}
