"""Loops: the strongly connected parts that have a cycle (Tarjan 1972)."""

from __future__ import annotations

from collections.abc import Iterator

from formats.job.model import Topology


def loops(topology: Topology) -> list[list[str]]:
    """Operators that can reach each other, one list a loop; ids and loops in declared order.

    A part of one operator is a loop only if it has a self-loop. Iterative, linear in operators and edges.
    """
    position = {op.id: at for at, op in enumerate(topology.operators)}
    successors: list[list[int]] = [[] for _ in topology.operators]
    for edge in topology.edges:
        successors[position[edge.source]].append(position[edge.target])
    parts = (sorted(part) for part in _strong_parts(successors))
    cyclic = sorted(part for part in parts if len(part) > 1 or part[0] in successors[part[0]])
    return [[topology.operators[at].id for at in part] for part in cyclic]


def _strong_parts(successors: list[list[int]]) -> Iterator[list[int]]:
    """Every strongly connected part, single nodes too. low: the earliest visited node on the stack within reach."""
    visited = [-1] * len(successors)
    low = [0] * len(successors)
    pending: list[int] = []
    on_pending = [False] * len(successors)
    clock = 0
    for root in range(len(successors)):
        if visited[root] >= 0:
            continue
        path: list[tuple[int, Iterator[int]]] = [(root, iter(successors[root]))]
        visited[root] = low[root] = clock
        clock += 1
        pending.append(root)
        on_pending[root] = True
        while path:
            node, following = path[-1]
            target = next(following, None)
            if target is None:
                path.pop()
                if path:
                    parent = path[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == visited[node]:
                    part: list[int] = []
                    while not part or part[-1] != node:
                        part.append(pending.pop())
                        on_pending[part[-1]] = False
                    yield part
            elif visited[target] < 0:
                visited[target] = low[target] = clock
                clock += 1
                pending.append(target)
                on_pending[target] = True
                path.append((target, iter(successors[target])))
            elif on_pending[target]:
                low[node] = min(low[node], visited[target])
