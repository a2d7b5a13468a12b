"""A topology with all that is asked of it again and again: edges by operator, back edges, order, loops."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass

from abscli.graph.backedges import back_edges
from abscli.graph.loops import loops
from formats.job.model import Edge, Operator, Topology


@dataclass(frozen=True, slots=True)
class JobGraph:
    """Made once by `JobGraph.of`, then only read.

    operators: by id, in declared order.
    inputs: by operator, in the order of its `from`.
    outputs: by operator, in the order in which the consumers are declared.
    back: (from, to) of the back edges.
    order: operator ids in topological order over the other edges, the declared order deciding between equals.
    loops: operator ids by loop.
    """

    topology: Topology
    operators: Mapping[str, Operator]
    inputs: Mapping[str, tuple[Edge, ...]]
    outputs: Mapping[str, tuple[Edge, ...]]
    back: frozenset[tuple[str, str]]
    order: tuple[str, ...]
    loops: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, topology: Topology) -> JobGraph:
        """The graph of a topology; time grows as operators and edges do, but for the order's logarithm."""
        inputs: dict[str, list[Edge]] = {op.id: [] for op in topology.operators}
        outputs: dict[str, list[Edge]] = {op.id: [] for op in topology.operators}
        for edge in topology.edges:
            inputs[edge.target].append(edge)
            outputs[edge.source].append(edge)
        back = back_edges(topology)
        return cls(
            topology=topology,
            operators={op.id: op for op in topology.operators},
            inputs={id: tuple(edges) for id, edges in inputs.items()},
            outputs={id: tuple(edges) for id, edges in outputs.items()},
            back=back,
            order=_topological(topology, outputs, back),
            loops=tuple(map(tuple, loops(topology))),
        )

    def is_back(self, edge: Edge) -> bool:
        """Whether the edge closes a cycle."""
        return (edge.source, edge.target) in self.back


def _topological(
    topology: Topology, outputs: dict[str, list[Edge]], back: frozenset[tuple[str, str]]
) -> tuple[str, ...]:
    position = {op.id: at for at, op in enumerate(topology.operators)}
    missing = dict.fromkeys(position, 0)
    for edge in topology.edges:
        if (edge.source, edge.target) not in back:
            missing[edge.target] += 1
    ready = [position[id] for id, count in missing.items() if count == 0]
    order: list[str] = []
    while ready:
        id = topology.operators[heapq.heappop(ready)].id
        order.append(id)
        for edge in outputs[id]:
            if (id, edge.target) not in back:
                missing[edge.target] -= 1
                if missing[edge.target] == 0:
                    heapq.heappush(ready, position[edge.target])
    return tuple(order)
