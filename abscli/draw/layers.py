"""Rows for the drawing of a graph without cycles, and the order within each row (Sugiyama, Tagawa and Toda 1981)."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

from formats.errors import FormatError

SWEEPS, PATIENCE = 16, 6  # at most; without a gain
WORK = 400_000
"""Nodes that all sweeps together may visit: a huge graph gets fewer sweeps, not more time."""
MAX_POINTS = 200_000
"""Places that edges go through, in all: a drawing of more is a black square of a gigabyte."""
DENSE = 500
"""Pairs of edges at two neighbours from which on their crossings do not count for an exchange."""


class TooDense(FormatError):
    """So many long edges that a drawing would show nothing."""

    def __init__(self, points: int) -> None:
        super().__init__(
            f"the graph is too dense to be drawn: its edges need {points:,} points, a drawing has at most "
            f"{MAX_POINTS:,}",
            hint="write the graph with -o dot, -o mermaid or -o json",
        )


@dataclass(frozen=True, slots=True)
class Rows:
    """Nodes 0 to count-1 are those given, in even rows; the others are points that edges go through.

    rows: nodes from left to right; row: of each node; chains: for each edge the nodes from its source to its target,
    one a row. The last but one of a chain is in the odd row above the target: the place of the edge's label.
    """

    count: int
    rows: tuple[tuple[int, ...], ...]
    row: tuple[int, ...]
    chains: tuple[tuple[int, ...], ...]

    def is_point(self, node: int) -> bool:
        """Whether an edge goes through it, and it is none of the nodes given."""
        return node >= self.count

    def places(self) -> list[int]:
        """The index of each node within its row."""
        at = [0] * len(self.row)
        for nodes in self.rows:
            for place, node in enumerate(nodes):
                at[node] = place
        return at

    def neighbours(self) -> tuple[list[list[int]], list[list[int]]]:
        """The nodes in the row above, and in the row below, that each node is connected with."""
        above: list[list[int]] = [[] for _ in self.row]
        below: list[list[int]] = [[] for _ in self.row]
        for chain in self.chains:
            for upper, lower in pairwise(chain):
                above[lower].append(upper)
                below[upper].append(lower)
        return above, below


def arrange(count: int, edges: Sequence[tuple[int, int]], outer: Collection[int] = ()) -> Rows:
    """Rows in which edges point downwards and cross little. edges: (from, to) without a cycle.

    outer: nodes that something at the right side is attached to; they are drawn to the right end of their row.
    The result depends on nothing but the arguments. TooDense if nobody could see anything in it.
    """
    row = [2 * layer for layer in layers(count, edges)]
    points_needed = sum(row[target] - row[source] - 1 for source, target in edges)
    if points_needed > MAX_POINTS:
        raise TooDense(points_needed)
    chains = []
    for source, target in edges:
        points = range(len(row), len(row) + row[target] - row[source] - 1)
        row.extend(range(row[source] + 1, row[target]))
        chains.append((source, *points, target))
    start = Rows(count, _first_order(count, row, chains), tuple(row), tuple(chains))
    return Rows(count, _fewest_crossings(start, frozenset(outer)), start.row, start.chains)


def layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """A layer for each node, above those of all nodes that it feeds: as near to the sources as can be.

    A node with more outputs than inputs stands next to the nearest node that it feeds, which shortens edges.
    """
    targets: list[list[int]] = [[] for _ in range(count)]
    inputs = [0] * count
    for source, target in edges:
        targets[source].append(target)
        inputs[target] += 1
    missing = list(inputs)
    order = [node for node in range(count) if not missing[node]]
    layer = [0] * count
    for node in order:
        for target in targets[node]:
            layer[target] = max(layer[target], layer[node] + 1)
            missing[target] -= 1
            if not missing[target]:
                order.append(target)
    if len(order) < count:
        raise ValueError("the graph has a cycle")
    # From the sinks up, so that what a node is moved next to stands where it stays.
    for node in reversed(order):
        if len(targets[node]) > inputs[node]:
            layer[node] = min(layer[target] for target in targets[node]) - 1
    # Moves may have left layers empty.
    number = {old: new for new, old in enumerate(sorted(set(layer)))}
    return [number[old] for old in layer]


def crossings(rows: Sequence[Sequence[int]], below: Sequence[Sequence[int]], at: Sequence[int]) -> int:
    """How often edges cross between neighbouring rows. at: the place of each node in its row."""
    total = 0
    for nodes in rows:
        seen: list[int] = []
        # Two edges cross if the one that starts further left ends further right: for each node, how many ends of
        # those before it lie to the right of its own.
        for node in nodes:
            ends = sorted([at[lower] for lower in below[node]])
            for end in ends:
                total -= bisect_right(seen, end)
            total += len(seen) * len(ends)
            for end in ends:
                insort(seen, end)
    return total


def _first_order(count: int, row: list[int], chains: list[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """Depth first, from the nodes without inputs as given: what belongs together comes to stand together."""
    following: list[list[tuple[int, ...]]] = [[] for _ in range(count)]
    fed = set()
    for chain in chains:
        following[chain[0]].append(chain)
        fed.add(chain[-1])
    rows: list[list[int]] = [[] for _ in range(max(row, default=-1) + 1)]
    seen = [False] * count
    for start in range(count):
        pending: list[tuple[int, ...]] = [(start,)] if start not in fed else []
        while pending:
            *points, node = pending.pop()
            for point in points:
                rows[row[point]].append(point)
            if not seen[node]:
                seen[node] = True
                rows[row[node]].append(node)
                pending += [chain[1:] for chain in reversed(following[node])]
    return tuple(map(tuple, rows))


def _fewest_crossings(start: Rows, outer: frozenset[int]) -> tuple[tuple[int, ...], ...]:
    """The best of some sweeps, down and up, each of which puts nodes at the mean place of their neighbours."""
    above, below = start.neighbours()
    at = start.places()
    rows = [list(nodes) for nodes in start.rows]
    best, least = start.rows, _cost(rows, below, at, outer, start.count)
    last_gain = 0
    for sweep in range(min(SWEEPS, max(2, WORK // (1 + len(start.row))))):
        # A sweep may make it worse before the next makes it better, so a few are borne with.
        if not least or sweep - last_gain > PATIENCE:
            break
        down = sweep % 2 == 0
        numbers = range(1, len(rows)) if down else range(len(rows) - 2, -1, -1)
        for number in numbers:
            fixed = len(rows[number - 1 if down else number + 1])
            _reorder(rows[number], above if down else below, at, outer, fixed, sweep % 4 > 1)
        _swap(rows, above, below, at)
        cost = _cost(rows, below, at, outer, start.count)
        if cost < least:
            best, least, last_gain = tuple(map(tuple, rows)), cost, sweep
    return best


def _cost(
    rows: Sequence[Sequence[int]], below: list[list[int]], at: list[int], outer: frozenset[int], count: int
) -> int:
    """Crossings, and outer nodes that other nodes hide from their side."""
    hidden = 0
    for nodes in rows:
        given = [node for node in nodes if node < count]
        hidden += sum(node in outer for node in given[:-1])
    return crossings(rows, below, at) + hidden


def _reorder(
    nodes: list[int], neighbours: list[list[int]], at: list[int], outer: frozenset[int], fixed: int, mirrored: bool
) -> None:
    """Sorts one row by the mean place of the neighbours in the fixed row; nodes without any stay where they are.

    mirrored: between equals the order is turned round, so that sweeps try both.
    """
    free, keys = [], []
    for place, node in enumerate(nodes):
        others = neighbours[node]
        if len(others) == 1 and node not in outer:
            middle = float(at[others[0]])
        elif others or node in outer:
            ends = [at[other] for other in others] + [fixed] * (node in outer)
            middle = sum(ends) / len(ends)
        else:
            continue
        free.append(place)
        keys.append((middle, -place if mirrored else place, node))
    keys.sort()
    for place, (_, _, node) in zip(free, keys, strict=True):
        nodes[place] = node
    for place, node in enumerate(nodes):
        at[node] = place


def _swap(rows: list[list[int]], above: list[list[int]], below: list[list[int]], at: list[int]) -> None:
    """Exchanges neighbours where that takes crossings away."""
    for nodes in rows:
        for place in range(len(nodes) - 1):
            left, right = nodes[place], nodes[place + 1]
            gain = 0
            for side in (above, below):
                lefts, rights = side[left], side[right]
                if len(lefts) == len(rights) == 1:  # two points of long edges: by far the most frequent case
                    a, b = at[lefts[0]], at[rights[0]]
                    gain += (a > b) - (a < b)
                elif len(lefts) * len(rights) <= DENSE:
                    ends = [at[other] for other in rights]
                    gain += sum((a > b) - (a < b) for a in (at[other] for other in lefts) for b in ends)
            if gain > 0:
                nodes[place], nodes[place + 1] = right, left
                at[left], at[right] = place + 1, place
