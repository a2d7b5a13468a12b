"""The geometry of a job graph's picture: where boxes and labels stand and which way edges go, in plain numbers.

Data flows downwards. Edges leave a box at its bottom and arrive at the top of another; they move sideways only in the
gaps between rows, where no box stands. Back edges go up in lanes outside of all boxes that they pass: at the right, or
at the left where their ends are nearer to it. A picture in which data flows to the right is the same with x and y
exchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from abscli.draw.layers import arrange
from abscli.draw.placement import Extent, place

APART = 22.0  # between things in one row
LABEL_HEIGHT = 16.0
GAP = 16.0  # between rows: at least, and what a wide one is higher
STEEPNESS, STEEP_GAP = 0.09, 90.0
TRACK = 8.0  # between horizontal pieces of back edges
PORT = 14.0  # between ends of edges at one box
LANE = 16.0  # between lanes of back edges
LOOP = 20.0  # how far a self-loop reaches out
ROUND = 16.0


class Point(NamedTuple):
    """In pixels; y grows downwards."""

    x: float
    y: float


Piece = tuple[Point, ...]
"""A line of two points or a cubic Bézier curve of four."""


class Box(NamedTuple):
    """An operator's place."""

    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """Its right side."""
        return self.left + self.width

    @property
    def bottom(self) -> float:
        """Its lower side."""
        return self.top + self.height


class Link(NamedTuple):
    """An edge between nodes by number. A back edge may be a self-loop.

    label: what its label takes across the way of the data.
    along: what it takes along it.
    """

    source: int
    target: int
    label: float
    back: bool
    along: float = LABEL_HEIGHT


@dataclass(frozen=True, slots=True)
class Route:
    """An edge's way, from its source to the tip of its arrow, and the middle of its label."""

    pieces: tuple[Piece, ...]
    label: Point


@dataclass(frozen=True, slots=True)
class Layout:
    """boxes, routes: as the nodes and links were given; all of it lies between 0 and width, 0 and height."""

    boxes: tuple[Box, ...]
    routes: tuple[Route, ...]
    width: float
    height: float


def lay_out(sizes: Sequence[tuple[float, float]], links: Sequence[Link]) -> Layout:
    """The layout of boxes of these sizes (width, height). Links that are not back edges have no cycle."""
    return _Drawing(sizes, links).layout()


def lay_out_rightwards(sizes: Sequence[tuple[float, float]], links: Sequence[Link]) -> Layout:
    """The same with data that flows to the right."""
    upright = lay_out([(height, width) for width, height in sizes], links)
    boxes = tuple(Box(box.top, box.left, box.height, box.width) for box in upright.boxes)
    routes = tuple(
        Route(tuple(tuple(Point(y, x) for x, y in piece) for piece in route.pieces), Point(*route.label[::-1]))
        for route in upright.routes
    )
    return Layout(boxes, routes, upright.height, upright.width)


class _Drawing:
    """The steps of one layout."""

    def __init__(self, sizes: Sequence[tuple[float, float]], links: Sequence[Link]) -> None:
        self.sizes = sizes
        self.links = links
        self.down = [number for number, link in enumerate(links) if not link.back]
        self.loops = {link.source: number for number, link in enumerate(links) if link.source == link.target}
        self.up = [number for number, link in enumerate(links) if link.back and link.source != link.target]
        ends = {end for number in self.up for end in links[number][:2]}
        self.rows = arrange(len(sizes), [links[number][:2] for number in self.down], ends)
        extents = self._extents()
        self.x = place(self.rows, extents, APART)
        boxes = [[node for node in nodes if not self.rows.is_point(node)] for nodes in self.rows.rows[::2]]
        self.outermost = {True: {nodes[-1] for nodes in boxes}, False: {nodes[0] for nodes in boxes} - set(self.loops)}
        self.right = {number: self._is_right(number) for number in self.up}
        self.lanes = self._lanes(extents)
        self.track: dict[tuple[int, bool], float] = {}
        self._lay_rows()
        self.boxes = tuple(
            Box(self.x[node] - width / 2, self._middle(self.rows.row[node]) - height / 2, width, height)
            for node, (width, height) in enumerate(sizes)
        )

    def _extents(self) -> list[Extent]:
        extents = [Extent(0.0, 0.0)] * len(self.rows.row)
        for node, (width, _) in enumerate(self.sizes):
            loop = LOOP + 6 + self.links[self.loops[node]].label if node in self.loops else 0.0
            extents[node] = Extent(width / 2 + loop, width / 2)
        for chain, number in zip(self.rows.chains, self.down, strict=True):
            extents[chain[-2]] = Extent(self.links[number].label / 2, self.links[number].label / 2)
        return extents

    def _is_right(self, number: int) -> bool:
        """Whether the back edge goes up at the right side, where the layout has drawn its ends to."""
        left, right = (sum(end in self.outermost[side] for end in self.links[number][:2]) for side in (False, True))
        return right >= left

    def _lanes(self, extents: list[Extent]) -> dict[int, float]:
        """The x of each back edge's lane: beyond all that stands in the rows that it passes, short ones first, so
        that nested loops have nested lanes. Moves everything so that the least x is 0."""
        row = self.rows.row
        right = [max(self.x[node] + extents[node].right for node in nodes) for nodes in self.rows.rows]
        left = [min(self.x[node] - extents[node].left for node in nodes) for nodes in self.rows.rows]
        lanes = {}
        for number in sorted(self.up, key=lambda n: (row[self.links[n].source] - row[self.links[n].target], n)):
            source, target, label, *_ = self.links[number]
            passed = slice(row[target], row[source] + 1)
            if self.right[number]:
                lanes[number] = max(right[passed]) + LANE + label / 2
                right[passed] = [lanes[number] + label / 2] * len(right[passed])
            else:
                lanes[number] = min(left[passed]) - LANE - label / 2
                left[passed] = [lanes[number] - label / 2] * len(left[passed])
        start = min(left, default=0.0)
        self.width = max(right, default=0.0) - start
        self.x = [x - start for x in self.x]
        return {number: lane - start for number, lane in lanes.items()}

    def _outwards(self, number: int) -> float:
        """How far out a lane is, among those of its side."""
        return self.lanes[number] if self.right[number] else -self.lanes[number]

    def _lay_rows(self) -> None:
        """The top and height of each row; a gap is higher where edges go far sideways or back edges turn."""
        rows, row = self.rows, self.rows.row
        turns = [0] * (len(rows.rows) + 1)  # in the gap above each row, and below the last
        for number in sorted(self.up, key=self._outwards):
            source, target = self.links[number][:2]
            if source not in self.outermost[self.right[number]]:
                turns[row[source] + 1] += 1
                self.track[number, False] = turns[row[source] + 1] * TRACK
            if target not in self.outermost[self.right[number]]:
                turns[row[target]] += 1
                self.track[number, True] = turns[row[target]] * TRACK + 6
        aside = [0.0] * (len(rows.rows) + 1)
        for chain in rows.chains:
            for upper, lower in pairwise(chain):
                aside[row[lower]] = max(aside[row[lower]], abs(self.x[upper] - self.x[lower]))
        labels = [LABEL_HEIGHT] * len(rows.rows)
        for chain, number in zip(rows.chains, self.down, strict=True):
            labels[row[chain[-2]]] = max(labels[row[chain[-2]]], self.links[number].along)
        for number in (*self.up, *self.loops.values()):
            at = self._label_row(number)
            labels[at] = max(labels[at], self.links[number].along)
        y, self.top, self.high = 0.0, [], []
        for number, nodes in enumerate(rows.rows):
            inner = GAP + min(STEEP_GAP, STEEPNESS * aside[number]) if number else 0.0
            y += max(inner, (turns[number] + 2) * TRACK if turns[number] else 0.0)
            heights = [self.sizes[node][1] for node in nodes if not rows.is_point(node)]
            self.top.append(y)
            self.high.append(max([labels[number], *heights]))
            y += self.high[-1]
        self.height = y + ((turns[-1] + 1) * TRACK if turns[-1] else 0.0)

    def _middle(self, row: int) -> float:
        return self.top[row] + self.high[row] / 2

    def layout(self) -> Layout:
        """Routes between the boxes, once everything has its place."""
        self.bottoms, self.tops, self.sides = self._ports()
        routes: dict[int, Route] = {}
        for chain, number in zip(self.rows.chains, self.down, strict=True):
            routes[number] = self._downwards(chain, number)
        for number in self.up:
            routes[number] = self._upwards(number)
        for node, number in self.loops.items():
            routes[number] = self._around(self.boxes[node], self.links[number].label)
        return Layout(self.boxes, tuple(routes[n] for n in range(len(self.links))), self.width, self.height)

    def _ports(self) -> tuple[dict[int, float], dict[int, float], dict[tuple[int, bool], float]]:
        """By link the x at the bottom of its source, the x at the top of its target, and the y of a back edge's ends
        (link, whether at its target) at the sides of boxes."""
        below: list[list[tuple[float, int]]] = [[] for _ in self.sizes]
        above: list[list[tuple[float, int]]] = [[] for _ in self.sizes]
        beside: dict[tuple[int, bool], list[tuple[bool, float, int]]] = {}
        for chain, number in zip(self.rows.chains, self.down, strict=True):
            below[chain[0]].append((self.x[chain[1]], number))
            above[chain[-1]].append((self.x[chain[-2]], number))
        for number, lane in self.lanes.items():
            source, target = self.links[number][:2]
            right, outwards = self.right[number], self._outwards(number)
            far = (2 * self.width if right else 0.0) - lane  # outer lanes' ports are nearer to the middle: no crossing
            if source in self.outermost[right]:
                beside.setdefault((source, right), []).append((False, outwards, number))
            else:
                below[source].append((far, number))
            if target in self.outermost[right]:
                beside.setdefault((target, right), []).append((True, -outwards, number))
            else:
                above[target].append((far, number))
        bottoms: dict[int, float] = {}
        tops: dict[int, float] = {}
        sides: dict[tuple[int, bool], float] = {}
        for (node, _), at_side in beside.items():
            box = self.boxes[node]
            for at, (arrives, _, number) in enumerate(sorted(at_side), 1):
                sides[number, arrives] = box.top + box.height * at / (len(at_side) + 1)
        for node, box in enumerate(self.boxes):
            for ends, ports in ((below[node], bottoms), (above[node], tops)):
                ends.sort()
                xs = spread([x for x, _ in ends], self.x[node], box.width / 2 - 12)
                ports.update(zip((number for _, number in ends), xs, strict=True))
        return bottoms, tops, sides

    def _downwards(self, chain: tuple[int, ...], number: int) -> Route:
        source, target = self.boxes[chain[0]], self.boxes[chain[-1]]
        points = [Point(self.bottoms[number], source.bottom)]
        for node in chain:
            row = self.rows.row[node]
            top, bottom = self.top[row], self.top[row] + self.high[row]
            if node == chain[0]:
                points.append(Point(points[0].x, bottom))
            elif node == chain[-1]:
                points.append(Point(self.tops[number], top))
            else:
                points += (Point(self.x[node], top), Point(self.x[node], bottom))
        points.append(Point(self.tops[number], target.top))
        pieces: list[Piece] = []
        for a, b in pairwise(points):
            if abs(a.x - b.x) < 0.5:
                _straight(pieces, a, b)
            else:
                middle = (a.y + b.y) / 2
                pieces.append((a, Point(a.x, middle), Point(b.x, middle), b))
        return Route(tuple(pieces), Point(self.x[chain[-2]], self._middle(self.rows.row[chain[-2]])))

    def _upwards(self, number: int) -> Route:
        source, target = self.links[number][:2]
        lane = self.lanes[number]
        from_row, to_row = self.rows.row[source], self.rows.row[target]
        right = self.right[number]
        if source in self.outermost[right]:
            box, y = self.boxes[source], self.sides[number, False]
            corners = [Point(box.right if right else box.left, y), Point(lane, y)]
        else:
            x, y = self.bottoms[number], self.top[from_row] + self.high[from_row] + self.track[number, False]
            corners = [Point(x, self.boxes[source].bottom), Point(x, y), Point(lane, y)]
        if target in self.outermost[right]:
            box, y = self.boxes[target], self.sides[number, True]
            corners += (Point(lane, y), Point(box.right if right else box.left, y))
        else:
            x, y = self.tops[number], self.top[to_row] - self.track[number, True]
            corners += (Point(lane, y), Point(x, y), Point(x, self.boxes[target].top))
        return Route(rounded(corners, ROUND), Point(lane, self._middle(self._label_row(number))))

    def _label_row(self, number: int) -> int:
        """The row of a back edge's label: between two of boxes, or beside a box that it leads back to."""
        source, target = self.links[number][:2]
        middle = (self.rows.row[source] + self.rows.row[target]) // 2
        return middle if source == target else middle + 1 - middle % 2

    @staticmethod
    def _around(box: Box, label: float) -> Route:
        """A self-loop at the left side."""
        left, low, high = box.left - LOOP, box.top + box.height * 3 / 4, box.top + box.height / 4
        corners = [Point(box.left, low), Point(left, low), Point(left, high), Point(box.left, high)]
        return Route(rounded(corners, ROUND), Point(left - 6 - label / 2, box.top + box.height / 2))


def spread(wanted: Sequence[float], middle: float, half: float) -> list[float]:
    """Ports at one side of a box, in order and apart, each drawn to the x that its edge comes from."""
    apart = min(PORT, 2 * half / max(1, len(wanted) - 1))
    if len(wanted) == 1:
        return [middle]
    ports: list[float] = []
    for x in wanted:
        near = middle + max(-half, min(half, (x - middle) * 0.3))
        ports.append(max(near, ports[-1] + apart) if ports else near)
    high = middle + half
    for at in range(len(ports) - 1, -1, -1):
        ports[at] = min(ports[at], high)
        high = ports[at] - apart
    return ports


def rounded(corners: Sequence[Point], radius: float) -> tuple[Piece, ...]:
    """Straight lines between corners, which are rounded."""
    pieces: list[Piece] = []
    last = corners[0]
    for before, corner, after in zip(corners, corners[1:], corners[2:], strict=False):
        room = min(radius, _distance(before, corner) / 2, _distance(corner, after) / 2)
        start, end = _towards(corner, before, room), _towards(corner, after, room)
        _straight(pieces, last, start)
        pieces.append((start, _towards(corner, start, room * 0.45), _towards(corner, end, room * 0.45), end))
        last = end
    _straight(pieces, last, corners[-1])
    return tuple(pieces)


def _straight(pieces: list[Piece], start: Point, end: Point) -> None:
    """Adds a line; one that goes on in the direction of the last becomes one with it."""
    if start == end:
        return
    if pieces and len(pieces[-1]) == 2 and pieces[-1][0].x == start.x == end.x:
        pieces[-1] = (pieces[-1][0], end)
    else:
        pieces.append((start, end))


def _distance(a: Point, b: Point) -> float:
    return abs(a.x - b.x) + abs(a.y - b.y)


def _towards(a: Point, b: Point, distance: float) -> Point:
    whole = _distance(a, b)
    return a if not whole else Point(a.x + (b.x - a.x) * distance / whole, a.y + (b.y - a.y) * distance / whole)
