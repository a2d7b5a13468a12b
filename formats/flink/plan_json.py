"""Flink's own plans of a job as JSON: REST `/jobs/:id/plan` (vertices, chained) and `getExecutionPlan()` (operators).

A REST vertex is called by the hash of the first operator of its chain, the id that a checkpoint has for that operator;
the others of the chain are named in its description, without their ids. An execution plan has numbers for ids, and
names. Neither has uids, keys, or the max parallelism.

Source: Flink's JsonPlanGenerator and JSONGenerator; REST answers of Flink 1.20 and 2.3.
"""

from __future__ import annotations

import html
import json
import re
from typing import Any

import msgspec

from formats.errors import FormatError
from formats.flink.ids import OperatorHash, hash_in
from formats.job.model import Edge, Kind, Operator, Partition, Topology

ID_CHARACTERS = 40
"""A name that is longer does not stand for its vertex; the id does."""

_SHIPPED = {
    "FORWARD": Partition.FORWARD,
    "HASH": Partition.HASH,
    "BROADCAST": Partition.BROADCAST,
}
_BY_PREFIX = re.compile(r"^[\s|:+\\-]*(?:[+\\]?- )?")


class Vertex(msgspec.Struct, frozen=True):
    """One vertex.

    id: as the plan has it.
    hash: of its first operator, None in an execution plan.
    names: of the operators that are chained in it, the first first.
    inputs: (id, how it is shipped, whether it is kept on disk).
    """

    id: str
    hash: OperatorHash | None
    names: tuple[str, ...]
    parallelism: int
    inputs: tuple[tuple[str, str, bool], ...]


class JobPlan(msgspec.Struct, frozen=True):
    """A job as Flink plans it."""

    job: str
    nodes: tuple[Vertex, ...]


def is_plan(data: bytes) -> bool:
    """Whether a file looks like a plan of Flink's, by its first members."""
    if data.lstrip()[:1] != b"{":
        return False
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return False
    body = document.get("plan", document) if isinstance(document, dict) else None
    return isinstance(body, dict) and isinstance(body.get("nodes"), list)


def read_plan(data: bytes, path: str) -> JobPlan:
    """The plan; FormatError says what is wrong with it."""
    try:
        document = json.loads(data)
        body = document.get("plan", document)
        nodes = tuple(_vertex(node) for node in body["nodes"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        problem = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise FormatError(f"not a plan of Flink's: {problem}", path=path) from None
    if not nodes:
        raise FormatError("a plan without operators", path=path)
    ids = {node.id for node in nodes}
    if len(ids) != len(nodes):
        raise FormatError("two operators of one id", path=path)
    for node in nodes:
        for source, _, _ in node.inputs:
            if source not in ids:
                raise FormatError(f"operator {node.id} reads from {source}, which is not there", path=path)
    return JobPlan(str(body.get("name") or document.get("name") or "flink"), nodes)


def _vertex(node: dict[str, Any]) -> Vertex:
    id, parallelism = str(node["id"]), node["parallelism"]
    if not isinstance(parallelism, int) or not 1 <= parallelism <= 1 << 15:
        raise ValueError(f"operator {id} has the parallelism {parallelism!r}")
    names = _chain(str(node.get("description") or "")) or (str(node.get("contents") or node.get("type") or id),)
    if "predecessors" in node or "pact" in node:
        names = tuple(dict.fromkeys((str(node.get("type") or id), *names)))
    inputs = tuple(
        (
            str(one["id"]),
            str(one.get("ship_strategy") or "").upper(),
            str(one.get("exchange") or "").lower().startswith("blocking"),
        )
        for one in (*node.get("inputs", ()), *node.get("predecessors", ()))
    )
    return Vertex(id, hash_in(id), names, parallelism, inputs)


def _chain(description: str) -> tuple[str, ...]:
    """The operators of a chain: lines of HTML, indented by `+- ` and `:- `."""
    lines = (html.unescape(line) for line in re.split(r"<br\s*/?>|\n", description))
    return tuple(name for line in lines if (name := _BY_PREFIX.sub("", line).strip()))


def topology(plan: JobPlan) -> Topology:
    """The plan as a job graph of operators of which no more is known (`opaque`).

    An operator is called by its first name where that is short and no other has it, else by its id. Max parallelism is
    what Flink takes unless it is told (1.5 times the parallelism, up to a power of two, at least 128). What is neither
    forward, hash nor broadcast may reach any task (`rebalance`). Raises FormatError where no source is.
    """
    firsts = [node.names[0] for node in plan.nodes]
    called = {
        node.id: name if firsts.count(name) == 1 and _short(name) else node.id
        for node, name in zip(plan.nodes, firsts, strict=True)
    }
    width = {node.id: node.parallelism for node in plan.nodes}
    edges: dict[tuple[str, str], Edge] = {}
    for node in plan.nodes:
        for source, shipped, kept in node.inputs:
            partition = _SHIPPED.get(shipped, Partition.REBALANCE)
            if partition is Partition.FORWARD and width[source] != width[node.id]:
                partition = Partition.REBALANCE
            key = ("?",) if partition is Partition.HASH else ()
            ends = called[source], called[node.id]
            before = edges.get(ends)
            if before is None or before.partition is Partition.FORWARD:
                edges[ends] = Edge(*ends, partition, key, kept)
    operators = tuple(
        Operator(
            id=called[node.id],
            kind=Kind.OPAQUE,
            parallelism=node.parallelism,
            max_parallelism=_max_parallelism(node.parallelism),
            name=f"{node.id}: {', '.join(node.names)}",
        )
        for node in plan.nodes
    )
    if all(node.inputs for node in plan.nodes):
        raise FormatError("no source: every operator has inputs")
    return Topology(plan.job, operators, tuple(edges.values()))


def _short(name: str) -> bool:
    return len(name) <= ID_CHARACTERS and name.isprintable() and "->" not in name and "/" not in name


def _max_parallelism(parallelism: int) -> int:
    wanted = parallelism + parallelism // 2
    return min(max(1 << (wanted - 1).bit_length(), 128), 1 << 15)
