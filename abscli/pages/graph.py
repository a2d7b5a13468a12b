"""The job graph of a report: operators with why they are lit up, edges with what is found of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec.structs

from abscli.graph.backedges import back_edges
from abscli.pages.facts import ChannelsLine, EpochLine, Graph, Link, Node, OperatorLine
from abscli.planner.ranges import Ranges
from abscli.report.findings import HARMLESS, Code, StoreReport
from abscli.report.standing import plural
from abscli.text.topology import partition_label
from formats.ids import AnyChannelId, EdgeId
from formats.job.model import Topology

NODES = 400
"""Operators beyond which a drawing shows nothing."""
EDGES = 2_000
NAMED = 3
"""Marks of one operator that are written out."""

DAMAGED, MISSING, RESTARTS, CHANGED = "damaged", "missing", "restarts", "changed"
_ORDER = (DAMAGED, MISSING, RESTARTS, CHANGED)

Marks = Mapping[str, tuple[str, str]]
"""Operator -> why it is lit up, as a word and a text."""


def graph_of(
    topology: Topology | None, operators: Sequence[OperatorLine], channels: Sequence[ChannelsLine], marks: Marks,
    wrong: Mapping[tuple[str, str], str],
) -> Graph:  # fmt: skip
    """The graph of an epoch: of its topology, else of what its channels say, else operators alone.

    wrong: edge -> what is found of it.
    """
    sizes = {operator.id: operator for operator in operators}
    logged = {(edge.source, edge.target): edge.logged for edge in channels}
    if topology is not None:
        back = back_edges(topology)
        nodes = [
            _node(op.id, sizes.get(op.id), marks, op.kind.value, op.parallelism) for op in topology.operators
        ]
        links = [
            Link(edge.source, edge.target, partition_label(edge), (edge.source, edge.target) in back,
                 logged.get((edge.source, edge.target)), wrong.get((edge.source, edge.target)))
            for edge in topology.edges
        ]  # fmt: skip
        return _bounded(nodes, links, None)
    nodes = [_node(operator.id, operator, marks) for operator in operators]
    ids = {node.id for node in nodes}
    links = [
        Link(edge.source, edge.target, None, bool(edge.back_edge), edge.logged, wrong.get((edge.source, edge.target)))
        for edge in channels if edge.source in ids and edge.target in ids
    ]  # fmt: skip
    note = "the checkpoint does not keep the job graph: these are the operators that have something in it"
    return _bounded(nodes, _without_cycles(nodes, links), note + (", and the channels that it names" if links else ""))


def marked(graph: Graph, marks: Marks) -> Graph:
    """The same with other operators lit up; those that it does not have are added."""
    nodes = [_lit(node, marks.get(node.id)) for node in graph.nodes]
    new = [Node(id, None, None, None, None, *mark) for id, mark in marks.items() if id not in {n.id for n in nodes}]
    return msgspec.structs.replace(graph, nodes=(*nodes, *new))


def marks_of(report: StoreReport, epochs: Iterable[EpochLine], unit: str) -> dict[str, tuple[str, str]]:
    """Return why operators are lit up: findings of their tasks, and tasks that have not acked. unit: the word of the
    system for an epoch."""
    where: dict[str, dict[str, list[int]]] = {}
    for epoch in report.epochs:
        for finding in epoch.findings:
            if finding.task is not None and finding.code not in HARMLESS and finding.code is not Code.MISSING_ACK:
                where.setdefault(finding.task.operator, {}).setdefault(str(finding.code), []).append(epoch.epoch)
    marks = {id: (DAMAGED, _epochs_text(codes, unit)) for id, codes in where.items()}
    newest = max((epoch.epoch for epoch in epochs), default=0)
    for epoch in report.epochs:
        if epoch.epoch != newest:
            continue
        lacking: dict[str, int] = {}
        for finding in epoch.findings:
            if finding.code is Code.MISSING_ACK and finding.task is not None:
                lacking[finding.task.operator] = lacking.get(finding.task.operator, 0) + 1
        for id, count in lacking.items():
            text = f"{count:,} task{'s'[: count != 1]} not in {unit} {newest}"
            marks.setdefault(id, (MISSING, text))
    return marks


def wrong_edges(report: StoreReport, unit: str) -> dict[tuple[str, str], str]:
    """Findings of channels, by edge."""
    where: dict[tuple[str, str], dict[str, list[int]]] = {}
    for epoch in report.epochs:
        for finding in epoch.findings:
            if finding.channel is not None and finding.code not in HARMLESS:
                for edge in _edges(finding.channel):
                    where.setdefault(edge, {}).setdefault(str(finding.code), []).append(epoch.epoch)
    return {edge: _epochs_text(codes, unit) for edge, codes in where.items()}


def _edges(channel: AnyChannelId | EdgeId) -> list[tuple[str, str]]:
    """The edge of a channel, or those that cannot be told apart."""
    if isinstance(channel, EdgeId):
        return [(sender, channel.receiver) for sender in channel.senders]
    return [channel.edge]


def _epochs_text(codes: Mapping[str, Sequence[int]], unit: str) -> str:
    texts = [
        f"{code} in {unit if len(set(epochs)) == 1 else plural(unit)} {Ranges.of(epochs).brief(NAMED)}"
        for code, epochs in sorted(codes.items())
    ]
    return "; ".join(texts[:NAMED]) + (f" and {len(texts) - NAMED} more" if len(texts) > NAMED else "")


def _node(
    id: str, line: OperatorLine | None, marks: Marks, kind: str | None = None, parallelism: int | None = None
) -> Node:
    if parallelism is None and line is not None:
        parallelism = line.parallelism
    name, size = (None, None) if line is None else (line.name, line.bytes)
    return _lit(Node(id, name, kind, parallelism, size), marks.get(id))


def _lit(node: Node, mark: tuple[str, str] | None) -> Node:
    return node if mark is None else msgspec.structs.replace(node, highlight=mark[0], text=mark[1])


def _bounded(nodes: Sequence[Node], links: Sequence[Link], note: str | None) -> Graph:
    """A graph that can be looked at: of a larger one the operators that are lit up first."""
    if len(nodes) <= NODES and len(links) <= EDGES:
        return Graph(tuple(nodes), tuple(links), note)
    place: dict[str | None, int] = {mark: i for i, mark in enumerate(_ORDER)}
    lit = sorted(nodes, key=lambda node: place.get(node.highlight, len(_ORDER)))[:NODES]
    text = f"{len(nodes):,} operators and {len(links):,} edges are too many to be drawn: those that are lit up are here"
    return Graph(tuple(lit), (), text)


def _without_cycles(nodes: Sequence[Node], links: Sequence[Link]) -> list[Link]:
    """The same, where an edge that closes a cycle is a back edge though nothing says so."""
    targets: dict[str, list[str]] = {node.id: [] for node in nodes}
    result = []
    for link in links:
        closes = link.back_edge or _reaches(targets, link.target, link.source)
        if not closes:
            targets[link.source].append(link.target)
        result.append(msgspec.structs.replace(link, back_edge=closes))
    return result


def _reaches(targets: Mapping[str, Sequence[str]], start: str, end: str) -> bool:
    seen, pending = {start}, [start]
    while pending:
        node = pending.pop()
        if node == end:
            return True
        for target in targets.get(node, ()):
            if target not in seen:
                seen.add(target)
                pending.append(target)
    return False
