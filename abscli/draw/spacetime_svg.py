"""A space-time diagram as a picture: time runs to the right, messages are arrows between the tasks' lines."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from abscli.draw import svg
from abscli.sim.diagram import COORDINATOR, Diagram, Message, Moment
from abscli.text.cells import cells, shortened
from abscli.text.columns import clean
from abscli.text.spacetime import window

NARROW, WIDE, ROOM = 46.0, 84.0, 1000.0  # from one step to the next: as wide as the room for all of them allows
APART = 11.0  # between the moments of one step at one task
MARGIN, ROW, LEVEL = 20.0, 62.0, 12.0  # LEVEL: of labels above each other
LABEL_LIMIT, NAME_LIMIT = 30, 24
SIZE = 10 * svg.SANS
BEND = 14.0  # sideways, a line passed: what passes lines must not lie over what goes from line to line
HANGING = 26.0  # how far a task's message to itself hangs below its line

Point = tuple[float, float]


class _Area(NamedTuple):
    """What a label covers."""

    left: float
    top: float
    right: float
    bottom: float

    def shared(self, other: _Area) -> float:
        """The size of what both cover."""
        wide = min(self.right, other.right) - max(self.left, other.left)
        high = min(self.bottom, other.bottom) - max(self.top, other.top)
        return wide * high if wide > 0 and high > 0 else 0.0

    def tiles(self) -> Iterator[tuple[int, int]]:
        """The squares of a grid that it lies in."""
        for x in range(int(self.left // 100), int(self.right // 100) + 1):
            for y in range(int(self.top // 100), int(self.bottom // 100) + 1):
                yield x, y


def spacetime_svg(diagram: Diagram, *, max_steps: int | None = 80) -> str:
    """A whole SVG document. max_steps: keeps the last ones, and says how many are left out.

    Barriers are bold and dashed, other messages thin; a message without a receipt ends in an open circle. The copies of
    one epoch are joined by its cut; their epoch is the last number in their text. A crash is a cross, after which the
    task's line is dotted until it is restored.
    """
    return _Picture(diagram, max_steps).document()


class _Picture:
    """The parts of one picture."""

    def __init__(self, diagram: Diagram, max_steps: int | None) -> None:
        self.diagram = diagram
        self.steps, self.left_out = window(diagram, max_steps)
        self.tasks = diagram.lines()
        self.names = {task: shortened(clean(task), NAME_LIMIT) for task in self.tasks}
        self.left = MARGIN + 16 + max((cells(name) for name in self.names.values()), default=0) * 11 * svg.MONO
        shown = set(self.steps)
        self.moments = [moment for moment in diagram.moments if moment.step in shown]
        self.messages = [m for m in diagram.messages if m.sent in shown or m.received in shown]
        self.step = max(NARROW, min(WIDE, ROOM / max(1, len(self.steps))))
        self.step_x = self._step_x()
        self.right = max(self.step_x.values(), default=self.left) + self.step
        self.at = self._moment_x()
        self.level = self._levels()
        self.heading = self._heading()
        self.y = self._task_y()
        self.tips: list[str] = []  # drawn last: no label may hide where a message arrives
        self.areas: dict[tuple[int, int], set[_Area]] = {}
        for y in self.y.values():
            self._cover(_Area(self.left, y - 2, self.right, y + 2))

    # -- places -------------------------------------------------------------------------------------------

    def _step_x(self) -> dict[int, float]:
        """The x of each step; a step with several moments at one task is as wide as they need."""
        most: dict[int, int] = {}
        count: dict[tuple[int, str], int] = {}
        for moment in self.moments:
            key = moment.step, moment.task
            count[key] = count.get(key, 0) + 1
            most[moment.step] = max(most.get(moment.step, 1), count[key])
        x, places = self.left + self.step, {}
        for step in self.steps:
            places[step] = x
            x += self.step + (most.get(step, 1) - 1) * APART
        return places

    def _moment_x(self) -> list[float]:
        """The x of each moment: those of one step at one task stand side by side, in order."""
        before: dict[tuple[int, str], int] = {}
        places = []
        for moment in self.moments:
            key = moment.step, moment.task
            places.append(self.step_x[moment.step] + before.get(key, 0) * APART)
            before[key] = before.get(key, 0) + 1
        return places

    def _levels(self) -> list[int]:
        """How high above its line each moment's label stands, so that none covers another."""
        ends: dict[str, list[float]] = {task: [] for task in self.tasks}
        levels = [0] * len(self.moments)
        for at in sorted(range(len(self.moments)), key=lambda at: (self.at[at], at)):
            end = self.at[at] + cells(_words(self.moments[at])) * SIZE + 6
            taken = ends[self.moments[at].task]
            level = next((n for n, last in enumerate(taken) if last <= self.at[at]), len(taken))
            taken[level : level + 1] = [end]
            levels[at] = level
            self.right = max(self.right, end)
        return levels

    def _task_y(self) -> dict[str, float]:
        y, places = MARGIN + 16 * len(self.heading) + 8, {}
        hanging = {message.sender for message in self.messages if message.sender == message.receiver}
        for task in self.tasks:
            highest = max((n for n, m in zip(self.level, self.moments, strict=True) if m.task == task), default=0)
            y += ROW + highest * LEVEL
            places[task] = y
            y += HANGING if task in hanging else 0.0
        self.bottom = y
        return places

    # -- parts --------------------------------------------------------------------------------------------

    def document(self) -> str:
        """All of it."""
        labels = self._moment_labels()
        messages = [part for message in self.messages for part in self._message(message)]
        cuts = self._cuts()
        y = self.bottom + (42 if cuts else 22)
        parts = [svg.text(MARGIN, MARGIN + 14, self.heading[0], "title")]
        parts += [svg.text(MARGIN, MARGIN + 14 + 16 * n, line, "faint") for n, line in enumerate(self.heading) if n]
        for task, place in self.y.items():
            parts.append(svg.text(self.left - 10, place + 4, self.names[task], "mono end"))
            parts += self._life(task)
        parts += [*cuts, *messages, *labels, *self.tips]
        parts += [_mark(moment, x, self.y[moment.task]) for moment, x in zip(self.moments, self.at, strict=True)]
        parts.append(svg.text(self.left - 10, y, "step", "small faint end"))
        parts += [svg.text(x, y, str(step), "small faint middle") for step, x in self.step_x.items()]
        verdict, y = self._verdict(y + 16)
        width = max(self.right, *(cells(line) * 11 * svg.SANS + MARGIN for line in self.heading[1:]), 360.0)
        width = max(width, MARGIN + cells(self.heading[0]) * 15 * svg.SANS) + MARGIN
        about = f"{len(self.tasks)} lines, {len(self.messages)} messages, {len(self.steps)} steps"
        if self.diagram.violation:
            about += f"; violation: {self.diagram.violation}"
        return svg.drawing(width, y + MARGIN, self.diagram.title, about, [*parts, *verdict])

    def _heading(self) -> list[str]:
        """The title, then what the lines mean that are used."""
        kinds = {moment.kind for moment in self.moments}
        words = ["time runs to the right"]
        words += ["bold dashes: barrier"] if any(m.barrier for m in self.messages) else []
        words += ["open circle: not received"] if any(m.received is None for m in self.messages) else []
        words += ["square: copy", "wide band: cut"] if "copy" in kinds else []
        words += ["cross: crash"] if "crash" in kinds else []
        lines = [clean(self.diagram.title), "; ".join(words)]
        if self.left_out:
            lines.append(f"{self.left_out} earlier step{'s'[: self.left_out != 1]} left out")
        return lines

    def _life(self, task: str) -> list[str]:
        """The line of a task: dotted from a crash to the next restore."""
        first = self.steps[0] if self.steps else 0
        earlier = [m for m in self.diagram.moments if m.task == task and m.step < first]
        alive = True
        for moment in sorted(earlier, key=lambda m: m.step):
            alive = moment.kind != "crash" and (alive or moment.kind == "restore")
        y, start, parts = self.y[task], self.left, []
        here = [(x, m.kind) for x, m in zip(self.at, self.moments, strict=True) if m.task == task]
        for x, kind in [*sorted(here, key=lambda place: place[0]), (self.right, "end")]:
            if kind == "end" or (alive and kind == "crash") or (not alive and kind == "restore"):
                look = "line" if alive else "thin dotted"
                parts.append(f'<path class="{look}" d="{svg.path((((start, y), (x, y)),))}"/>')
                start, alive = x, not alive
        return parts

    def _moment_labels(self) -> list[str]:
        """They begin at their moment: messages come to it from the left."""
        parts = []
        for moment, x, level in zip(self.moments, self.at, self.level, strict=True):
            words, line = _words(moment), self.y[moment.task]
            y, wide = line - 9 - level * LEVEL, cells(words) * SIZE
            self._cover(_Area(x - 1, y - 9, x + wide, y + 3))
            self._cover(_Area(x - 6, line - 6, x + 6, line + 6))
            if level:
                parts.append(f'<path class="thin dotted" d="{svg.path((((x, y + 2), (x, line - 5)),))}"/>')
            parts.append(svg.plate(x + wide / 2, y - 3, wide, 11))
            look = "wrong-text" if moment.kind in ("crash", "violation") else "faint"
            whole = f"step {moment.step}, {moment.task}: {moment.label or moment.kind}"
            parts.append(f"<g><title>{svg.escape(whole)}</title>{svg.text(x - 1, y, words, f'small {look}')}</g>")
        return parts

    def _message(self, message: Message) -> Iterable[str]:
        start_y, end_y = self.y[message.sender], self.y[message.receiver]
        start = self.step_x.get(message.sent, self.left), start_y
        if message.received is None:
            end = min(start[0] + NARROW, self.right), start_y + (end_y - start_y) * 0.6
        else:
            end = self.step_x.get(message.received, self.right), end_y
        if message.sender == message.receiver:
            low = start_y + HANGING
            end = max(end[0], start[0] + NARROW / 2), start_y if message.received is not None else start_y + HANGING / 2
            pieces: tuple[tuple[Point, ...], ...] = ((start, (start[0], low), (end[0], low), end),)
            before, places = (end[0], low), [((start[0] + end[0]) / 2, low - 4)]
        else:
            rows = abs(self.tasks.index(message.sender) - self.tasks.index(message.receiver))
            dx, dy = end[0] - start[0], end[1] - start[1]
            bend = BEND * min(rows - 1, 3) / max(1.0, (dx * dx + dy * dy) ** 0.5) if message.received is not None else 0
            aside = (-abs(dy) * bend, dx * bend if dy > 0 else -dx * bend)
            curve = tuple((x + aside[0], y + aside[1]) for x, y in (_between(start, end, t) for t in (0.35, 0.65)))
            pieces, before = ((start, *(curve if bend else ()), end),), curve[1]
            places = [_along(pieces[0], t / 10) for t in (5, 4, 6, 3, 7, 2, 8, 1)]
        words = shortened(clean(message.label), LABEL_LIMIT)
        x, y = min(places, key=lambda place: self._covered(_around(place[0], place[1], words)))
        self._cover(_around(x, y, words))
        when = "not received" if message.received is None else f"received at step {message.received}"
        whole = f"{message.label}: {message.sender} to {message.receiver}, sent at step {message.sent}, {when}"
        ends = f'data-from="{svg.escape(message.sender)}" data-to="{svg.escape(message.receiver)}"'
        kind, look = ("barrier", "bold dashed") if message.barrier else ("message", "line")
        yield f'<g class="{kind}" {ends}><title>{svg.escape(whole)}</title>'
        yield f'<path class="{look}" d="{svg.path(pieces)}"/>'
        if message.received is None:
            self.tips.append(f'<circle class="box" cx="{svg.number(end[0])}" cy="{svg.number(end[1])}" r="3.5"/>')
        else:
            head = svg.arrow_head(end, before, 10 if message.barrier else 8)
            self.tips.append(f'<path class="tip" d="{head}"/>')
        yield svg.plate(x, y, cells(words) * SIZE, 11) + svg.text(x, y + 3.5, words, "small middle") + "</g>"

    def _covered(self, area: _Area) -> float:
        """How much of it other labels and lines cover already."""
        near = {other for tile in area.tiles() for other in self.areas.get(tile, ())}
        return sum(sorted(area.shared(other) for other in near))

    def _cover(self, area: _Area) -> None:
        for tile in area.tiles():
            self.areas.setdefault(tile, set()).add(area)

    def _cuts(self) -> list[str]:
        """For each epoch a line through its copies; a task that has copied it twice counts with the last.

        An epoch of which some copies are left out, being too early, has a line through the others.
        """
        copied: dict[int, set[str]] = {}
        for moment in self.diagram.moments:
            if (epoch := _epoch(moment)) is not None:
                copied.setdefault(epoch, set()).add(moment.task)
        copies: dict[int, dict[str, Point]] = {}
        for x, moment in sorted(zip(self.at, self.moments, strict=True), key=lambda place: place[0]):
            if (epoch := _epoch(moment)) is not None:
                copies.setdefault(epoch, {})[moment.task] = (x, self.y[moment.task])
        parts: list[str] = []
        for epoch, drawn in sorted(copies.items()):
            places = sorted(drawn.values(), key=lambda place: place[1])
            first, last = places[0], places[-1]
            line = [(first[0], first[1] - 16), *places, (last[0], last[1] + 16)]
            pieces = []
            for a, b in pairwise(line):
                middle = (a[1] + b[1]) / 2
                pieces.append((a, (a[0], middle), (b[0], middle), b))
            expected = len([task for task in self.tasks if task != COORDINATOR])
            words = f"cut {epoch}" + (f", {len(copied[epoch])} of {expected}" if len(copied[epoch]) < expected else "")
            place = last[0], last[1] + 22
            while self._covered(_around(*place, words)):
                place = place[0] + 10, place[1]
            self._cover(_around(*place, words))
            self.right = max(self.right, _around(*place, words).right)
            parts.append(f'<g class="epoch"><path class="cut" d="{svg.path(pieces)}"/>')
            parts.append(svg.text(place[0], place[1] + 4, words, "small middle cut-name") + "</g>")
        return parts

    def _verdict(self, y: float) -> tuple[list[str], float]:
        if self.diagram.violation is None:
            return [], y
        room = int(max(60, min(140, (self.right - MARGIN) / (11 * svg.SANS))))
        lines = textwrap.wrap(f"VIOLATION: {clean(self.diagram.violation)}", room)
        width = max(cells(line) for line in lines) * 11 * svg.SANS + 20
        self.right = max(self.right, MARGIN + width)
        high = 15.0 * len(lines) + 12
        frame = (
            f'<rect class="bold wrong" x="{svg.number(MARGIN)}" y="{svg.number(y)}" '
            f'width="{svg.number(width)}" height="{svg.number(high)}" rx="4"/>'
        )
        words = [svg.text(MARGIN + 10, y + 18 + 15 * n, line, "wrong-text") for n, line in enumerate(lines)]
        return [f'<g class="violation">{frame}', *words, "</g>"], y + high


def _between(a: Point, b: Point, part: float) -> Point:
    return a[0] + (b[0] - a[0]) * part, a[1] + (b[1] - a[1]) * part


def _along(curve: Sequence[Point], part: float) -> Point:
    """The point of a Bézier curve (de Casteljau)."""
    while len(curve) > 1:
        curve = [_between(a, b, part) for a, b in pairwise(curve)]
    return curve[0]


def _epoch(moment: Moment) -> int | None:
    """Of which epoch this is a copy."""
    numbers = re.findall("[0-9]{1,18}", moment.label) if moment.kind == "copy" else []
    return int(numbers[-1]) if numbers else None


def _words(moment: Moment) -> str:
    return shortened(clean(moment.label) or moment.kind, LABEL_LIMIT)


def _around(x: float, y: float, words: str) -> _Area:
    half = cells(words) * SIZE / 2
    return _Area(x - half, y - 5.5, x + half, y + 5.5)


def _mark(moment: Moment, x: float, y: float) -> str:
    """A square for a copy, a cross for a crash, a triangle for a violation, a circle for a restore, else a dot."""
    n = svg.number
    if moment.kind == "copy":
        return f'<rect class="tip copy" x="{n(x - 5)}" y="{n(y - 5)}" width="10" height="10"/>'
    if moment.kind == "crash":
        return "".join(
            f'<path class="bold wrong crash" d="{svg.path((((x - 6, y - d), (x + 6, y + d)),))}"/>' for d in (6, -6)
        )
    if moment.kind == "violation":
        return f'<path class="wrong-text" d="{_polygon([(x - 7, y + 6), (x, y - 7), (x + 7, y + 6)])}"/>'
    look = "box" if moment.kind == "restore" else "tip"
    return f'<circle class="{look}" cx="{n(x)}" cy="{n(y)}" r="{4.5 if look == "box" else 3}"/>'


def _polygon(corners: Sequence[Point]) -> str:
    return svg.path(list(pairwise(corners))) + "Z"
