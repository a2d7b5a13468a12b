"""Back edges by depth-first search."""

from __future__ import annotations

from collections.abc import Iterator

from formats.job.model import Kind, Topology


def back_edges(topology: Topology) -> frozenset[tuple[str, str]]:
    """Edges (from, to) that close a cycle: those into an operator that is on the search's current path.

    The search starts from the sources in declared order, then from any operator not reached yet; successors are
    visited in the order in which the consumers are declared. Iterative: a long chain does not overflow a stack.
    """
    successors: dict[str, list[str]] = {op.id: [] for op in topology.operators}
    fed = {edge.target for edge in topology.edges}
    for edge in topology.edges:
        successors[edge.source].append(edge.target)
    sources = [op.id for op in topology.operators if op.kind is Kind.SOURCE or op.id not in fed]
    closing: set[tuple[str, str]] = set()
    seen: set[str] = set()
    on_path: set[str] = set()
    for start in (*sources, *successors):
        if start in seen:
            continue
        seen.add(start)
        on_path.add(start)
        path: list[tuple[str, Iterator[str]]] = [(start, iter(successors[start]))]
        while path:
            node, following = path[-1]
            target = next(following, None)
            if target is None:
                on_path.discard(node)
                path.pop()
            elif target in on_path:
                closing.add((node, target))
            elif target not in seen:
                seen.add(target)
                on_path.add(target)
                path.append((target, iter(successors[target])))
    return frozenset(closing)
