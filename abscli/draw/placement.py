"""Where the nodes of ordered rows stand from left to right: long edges straight, all else near its neighbours.

Brandes and Köpf, *Fast and simple horizontal coordinate assignment* (2001): nodes are aligned into vertical blocks in
four ways (from above and from below, from the left and from the right), each is packed, and the mean of the two middle
ones is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from abscli.draw.layers import Rows


@dataclass(frozen=True, slots=True)
class Extent:
    """How far a node reaches to the left and to the right of where its edges are attached."""

    left: float
    right: float


def place(rows: Rows, extents: Sequence[Extent], gap: float) -> list[float]:
    """The x of each node; in a row all stand in their order and at least `gap` apart. The least left end is 0."""
    if not extents:
        return []
    above, below = rows.neighbours()
    at = rows.places()
    crossed = _crossed(rows, above, at)
    layouts = []
    for downwards in (True, False):
        for mirrored in (False, True):
            neighbours = above if downwards else below
            lines = [nodes[::-1] if mirrored else nodes for nodes in (rows.rows if downwards else rows.rows[::-1])]
            root = _align(lines, neighbours, [-a for a in at] if mirrored else at, crossed)
            sides = [Extent(e.right, e.left) for e in extents] if mirrored else extents
            x = _pack(lines, root, sides, gap)
            layouts.append([-value for value in x] if mirrored else x)
    return _balanced(layouts, extents)


def _crossed(rows: Rows, above: list[list[int]], at: list[int]) -> set[tuple[int, int]]:
    """Edge pieces (upper, lower) that cross a piece between two points of a long edge: the long edge stays straight."""
    crossed = set()
    for upper, lower in pairwise(rows.rows):
        start, left = 0, 0
        for place, node in enumerate(lower):
            inner = next((at[n] for n in above[node] if rows.is_point(n)), None) if rows.is_point(node) else None
            if inner is None and place < len(lower) - 1:
                continue
            right = len(upper) if inner is None else inner
            for other in lower[start : place + 1]:
                for end in above[other]:
                    both = rows.is_point(end) and rows.is_point(other)
                    if not both and not left <= at[end] <= right:
                        crossed.add((end, other))
            start, left = place + 1, right
    return crossed


def _align(
    lines: Sequence[Sequence[int]], neighbours: list[list[int]], at: list[int], crossed: set[tuple[int, int]]
) -> list[int]:
    """The block that each node belongs to, by its first node: a node joins its median neighbour's if that is free."""
    root = list(range(len(at)))
    for line in lines:
        last: float = float("-inf")
        for node in line:
            ends = sorted(neighbours[node], key=at.__getitem__)
            middle = len(ends) - 1
            for end in dict.fromkeys((ends[middle // 2], ends[(middle + 1) // 2])) if ends else ():
                free = root[node] == node and at[end] > last
                if free and (end, node) not in crossed and (node, end) not in crossed:
                    root[node] = root[end]
                    last = at[end]
    return root


def _pack(lines: Sequence[Sequence[int]], root: list[int], extents: Sequence[Extent], gap: float) -> list[float]:
    """The x of each node: blocks as far to the left as they can go, then back towards the block at their right."""
    following: dict[int, dict[int, float]] = {block: {} for block in root}
    missing = dict.fromkeys(following, 0)
    for line in lines:
        for left, right in pairwise(line):
            here = following[root[left]]
            if root[right] not in here:
                missing[root[right]] += 1
            distance = extents[left].right + gap + extents[right].left
            here[root[right]] = max(here.get(root[right], 0.0), distance)
    order = [block for block, count in missing.items() if not count]
    x = dict.fromkeys(following, 0.0)
    for block in order:
        for other, distance in following[block].items():
            x[other] = max(x[other], x[block] + distance)
            missing[other] -= 1
            if not missing[other]:
                order.append(other)
    for block in reversed(order):
        if following[block]:
            x[block] = max(x[block], min(x[other] - distance for other, distance in following[block].items()))
    return [x[block] for block in root]


def _balanced(layouts: list[list[float]], extents: Sequence[Extent]) -> list[float]:
    """The mean of the two middle values of each node, once all four stand over the narrowest."""
    ends = [
        (
            min(value - e.left for value, e in zip(x, extents, strict=True)),
            max(value + e.right for value, e in zip(x, extents, strict=True)),
        )
        for x in layouts
    ]
    low, high = min(ends, key=lambda end: end[1] - end[0])
    moved = []
    for number, (x, (left, right)) in enumerate(zip(layouts, ends, strict=True)):
        shift = high - right if number % 2 else low - left
        moved.append([value + shift for value in x])
    middle = [sum(sorted(values)[1:3]) / 2 for values in zip(*moved, strict=True)]
    edge = min(value - e.left for value, e in zip(middle, extents, strict=True))
    return [value - edge for value in middle]
