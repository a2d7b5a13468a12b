"""Squarified treemaps (Bruls, Huizing and van Wijk 2000): areas as sizes, rectangles as square as they can be."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple


class Rect(NamedTuple):
    """A place, in the units of the whole."""

    x: float
    y: float
    width: float
    height: float

    def inside(self, margin: float, top: float = 0.0) -> Rect:
        """The same without a margin, and with more at its top; empty where there is no room."""
        width, height = max(self.width - 2 * margin, 0.0), max(self.height - 2 * margin - top, 0.0)
        return Rect(self.x + margin, self.y + margin + top, width, height)


def treemap(sizes: Sequence[float], whole: Rect) -> list[Rect]:
    """A place for each size, in the order given; sizes are best given the largest first. Those that are not above zero
    get no area."""
    result = [Rect(whole.x, whole.y, 0.0, 0.0)] * len(sizes)
    positive = [(i, size) for i, size in enumerate(sizes) if size > 0]
    total = sum(size for _, size in positive)
    if not total or whole.width <= 0 or whole.height <= 0:
        return result
    scale = whole.width * whole.height / total
    areas = [(i, size * scale) for i, size in positive]
    # Of what is left, so that the last row fills it however small it is.
    left = list(itertools.accumulate(reversed([area for _, area in areas])))[::-1]
    room, start = whole, 0
    while start < len(areas):
        stop = _row_end(areas, start, min(room.width, room.height))
        row = areas[start:stop]
        room = _lay_row(row, left[start], room, result)
        start = stop
    return result


def _row_end(areas: Sequence[tuple[int, float]], start: int, side: float) -> int:
    """How many go into a row along a side: as many as make its rectangles more square."""
    total = least = most = areas[start][1]
    worst = _worst(total, least, most, side)
    stop = start + 1
    while stop < len(areas):
        area = areas[stop][1]
        next_total, next_least, next_most = total + area, min(least, area), max(most, area)
        next_worst = _worst(next_total, next_least, next_most, side)
        if next_worst > worst:
            break
        total, least, most, worst = next_total, next_least, next_most, next_worst
        stop += 1
    return stop


def _worst(total: float, least: float, most: float, side: float) -> float:
    """How far from square the worst rectangle of a row is."""
    if not side or not least:
        return float("inf")
    return max(side * side * most / (total * total), total * total / (side * side * least))


def _lay_row(row: Sequence[tuple[int, float]], left: float, room: Rect, result: list[Rect]) -> Rect:
    """Puts a row along the shorter side, and gives the room that is left. left: its areas, and all behind it."""
    total = sum(area for _, area in row)
    across = room.width < room.height
    side, other = (room.width, room.height) if across else (room.height, room.width)
    depth = other * min(total / left, 1.0)
    along = room.x if across else room.y
    for i, area in row:
        length = side * area / total
        result[i] = Rect(along, room.y, length, depth) if across else Rect(room.x, along, depth, length)
        along += length
    if across:
        return Rect(room.x, room.y + depth, room.width, max(room.height - depth, 0.0))
    return Rect(room.x + depth, room.y, max(room.width - depth, 0.0), room.height)
