"""Rails: lines at the left of a numbered list, one from the sender of each back edge up to its receiver."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

SELF = "self"
_UNICODE = {"top": "┌┬", "bottom": "└┴", "up": "│", "level": "─", "cross": "┼", "arrow": "▶", SELF: "↻"}
_ASCII = {"top": "++", "bottom": "++", "up": "|", "level": "-", "cross": "|", "arrow": ">", SELF: "@"}


@dataclass(frozen=True, slots=True)
class Rail:
    """From row `bottom` up to row `top` (the same row: a self-loop), in lane `lane`; lane 0 is next to the text."""

    top: int
    bottom: int
    lane: int


def lay(spans: list[tuple[int, int]], lanes: int) -> list[Rail]:
    """A lane for each span (top row, bottom row), none crossing another of its lane; short ones next to the text.

    Spans that find none of `lanes` free get no rail.
    """
    taken: list[list[tuple[int, int]]] = []
    rails = []
    for top, bottom in sorted(spans, key=lambda span: (span[1] - span[0], span)):
        for lane in range(lanes):
            if lane == len(taken):
                taken.append([])
            at = bisect_left(taken[lane], (top, bottom))
            free_above = at == 0 or taken[lane][at - 1][1] < top
            free_below = at == len(taken[lane]) or bottom < taken[lane][at][0]
            if free_above and free_below:
                taken[lane].insert(at, (top, bottom))
                rails.append(Rail(top, bottom, lane))
                break
    return rails


def draw(rails: list[Rail], rows: int, ascii_only: bool = False) -> list[tuple[str, str]]:
    """For each row the text at its left, and the text at the left of further lines of the same row.

    All texts are equally wide; none at all without rails.
    """
    if not rails:
        return [("", "")] * rows
    signs = _ASCII if ascii_only else _UNICODE
    lanes = max(rail.lane for rail in rails) + 1
    starts: list[list[Rail]] = [[] for _ in range(rows)]
    ends: list[list[Rail]] = [[] for _ in range(rows)]
    for rail in rails:
        starts[rail.top].append(rail)
        ends[rail.bottom].append(rail)
    active: set[int] = set()
    drawn = []
    for row in range(rows):
        line = [signs["up"] if lane in active else " " for lane in range(lanes)]
        corners = [rail.lane for rail in (*starts[row], *ends[row])]
        for lane in range(max(corners, default=0)):
            line[lane] = signs["cross"] if lane in active else signs["level"]
        for rail in starts[row]:
            line[rail.lane] = _corner(signs, "top", rail.lane < max(corners))
        for rail in ends[row]:
            kind = SELF if rail.top == rail.bottom else "bottom"
            line[rail.lane] = signs[SELF] if kind is SELF else _corner(signs, kind, rail.lane < max(corners))
        head = signs["arrow"] if starts[row] else signs["level"] if ends[row] else " "
        level = signs["level"] if corners else " "
        active |= {rail.lane for rail in starts[row]}
        active -= {rail.lane for rail in ends[row]}
        below = "".join(signs["up"] if lane in active else " " for lane in reversed(range(lanes)))
        drawn.append(("".join(reversed(line)) + level + head + " ", below + "   "))
    return drawn


def _corner(signs: dict[str, str], kind: str, passed: bool) -> str:
    """A corner, or a branch where the line of a lane further out passes."""
    return signs[kind][1 if passed else 0]
