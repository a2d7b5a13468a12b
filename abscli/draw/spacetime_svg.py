"""A space-time diagram as a picture: time runs to the right, messages are arrows between the tasks' lines."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from abscli.draw import svg
from abscli.draw.spacetime_layout import HANGING, LABEL_LIMIT, LEVEL, MARGIN, SIZE, Layout, Mark, laid_out
from abscli.sim.diagram import COORDINATOR, Diagram, Message
from abscli.text.cells import cells, shortened
from abscli.text.columns import clean

BEND = 14.0  # sideways, a line passed: what passes lines must not lie over what goes from line to line
BETWEEN_NUMBERS = 30.0  # of steps below the picture

_EPOCHS = (
    ("#1559b3", "#7fb4ff"),
    ("#b35309", "#ffb066"),
    ("#7a3ea8", "#cf9bff"),
    ("#0b7a75", "#5fd6cf"),
    ("#b0256f", "#ff8fc4"),
    ("#5f6b00", "#c9d64a"),
)
"""Colours by day and by night; one epoch after the other has the next."""

_RULES = (
    (".ink", "fill:none;stroke:currentColor;stroke-width:2.2"),
    (".ring", "stroke:currentColor;stroke-width:1.6"),
    (".full,.epoch text", "fill:currentColor"),
    (".band", "fill:none;stroke:currentColor;stroke-width:9;stroke-opacity:0.22;stroke-linecap:round"),
    (".through", "fill:none;stroke:currentColor;stroke-width:1.6;stroke-opacity:0.8"),
    (".bar", "fill:none;stroke-width:8;stroke-opacity:0.45"),
    (".number", "font-size:9px;font-weight:600"),
)
_COLOURS = (
    *((f".e{at}", "color", day, night) for at, (day, night) in enumerate(_EPOCHS)),
    (".ring", "fill", "#ffffff", "#14181d"),
    (".epoch text.on", "fill", "#ffffff", "#14181d"),
    (".waits", "stroke", "#e0a100", "#c98f00"),
    (".again", "stroke", "#3f9b3f", "#57b957"),
)

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

    What belongs to an epoch has its colour: barriers, which are bold; copies, squares with its number; the cut, a line
    through all copies; its beginning and end at the coordinator, a ring and a disc. Records are thin; dotted where the
    receiver drops them, since they have come before. A task's line is yellow while an input waits, green while the task
    takes again the steps of one that was lost, and dotted from a crash to the restore.
    """
    return _Picture(diagram, max_steps).document()


class _Picture:
    """The parts of one picture."""

    def __init__(self, diagram: Diagram, max_steps: int | None) -> None:
        self.diagram = diagram
        layout = laid_out(diagram, max_steps, MARGIN + 20)
        self.layout: Layout = layout
        self.right = layout.ends[1]
        numbers = {moment.epoch for moment in diagram.moments if moment.epoch is not None}
        numbers |= {message.epoch for message in diagram.messages if message.epoch is not None}
        self.colour = {epoch: f"e{at % len(_EPOCHS)}" for at, epoch in enumerate(sorted(numbers))}
        self.tips: list[str] = []  # drawn last: no label may hide where a message arrives
        self.areas: dict[tuple[int, int], set[_Area]] = {}
        for y in layout.tasks.values():
            self._cover(_Area(layout.ends[0], y - 2, layout.ends[1], y + 2))

    def document(self) -> str:
        """All of it."""
        layout = self.layout
        words = [part for mark in layout.marks for part in self._words(mark)]
        messages = [part for message in layout.messages for part in self._message(message)]
        cuts = self._cuts()
        parts = [svg.text(MARGIN, MARGIN + 14, clean(self.diagram.title), "title")]
        if count := layout.left_out:
            words_left_out = f"{count} earlier step{'s'[: count != 1]} left out"
            parts.append(svg.text(MARGIN, MARGIN + 30, words_left_out, "faint"))
        for task, place in layout.tasks.items():
            parts.append(svg.text(layout.ends[0] - 10, place + 4, layout.names[task], "mono end"))
            parts += [*self._bars(task), *self._life(task)]
        parts += [*cuts, *messages, *words, *self.tips]
        parts += [self._mark(mark) for mark in layout.marks]
        y = layout.bottom + (46 if cuts else 26)
        parts += self._axis(y)
        width = max(self.right, MARGIN + cells(self.diagram.title) * 15 * svg.SANS, 360.0)
        for line in textwrap.wrap("; ".join(self._legend()), int((width - MARGIN) / (11 * svg.SANS))):
            y += 18
            parts.append(svg.text(MARGIN, y, line, "faint"))
        verdict, y = self._verdict(y + 16)
        width = max(self.right, width) + MARGIN
        about = f"{len(layout.tasks)} lines, {len(layout.messages)} messages, {len(layout.steps)} steps"
        if self.diagram.violation:
            about += f"; violation: {self.diagram.violation}"
        parts += verdict
        return svg.drawing(width, y + MARGIN, self.diagram.title, about, parts, rules=_RULES, colours=_COLOURS)

    def _legend(self) -> list[str]:
        """What the signs mean that are used."""
        kinds = {mark.moment.kind for mark in self.layout.marks}
        shown = {moment.kind for moment in self.diagram.moments if moment.step in self.layout.steps}
        messages = self.layout.messages
        words = ["time runs to the right"]
        words += ["a colour is an epoch"] if self.colour else []
        words += ["bold: barrier"] if any(m.barrier for m in messages) else []
        words += ["square: copy"] if "copy" in kinds else []
        words += ["ring and disc: it begins and is complete"] if {"trigger", "complete"} & kinds else []
        words += ["yellow: an input waits"] if "block" in shown else []
        words += ["cross: lost"] if "crash" in kinds else []
        words += ["green: steps taken again"] if "replayed" in kinds else []
        words += ["dotted: come before, dropped"] if any(m.known for m in messages) else []
        words += ["open circle: not received"] if any(m.received is None for m in messages) else []
        return words

    # -- a task's line ------------------------------------------------------------------------------------

    def _life(self, task: str) -> list[str]:
        """Dotted from a crash to the next restore, and at the edge behind which steps are left out."""
        (left, right), y = self.layout.ends, self.layout.tasks[task]
        first = min(self.layout.steps, default=0)
        alive = True
        for moment in sorted(self.diagram.moments, key=lambda moment: moment.step):
            if moment.task == task and moment.step < first:
                alive = moment.kind != "crash" and (alive or moment.kind == "restore")
        start, parts = left, []
        if self.layout.left_out:
            parts.append(f'<path class="thin dotted" d="{svg.path((((left, y), (left + 12, y)),))}"/>')
            start = left + 12
        changes = [(mark.x, mark.moment.kind) for mark in self.layout.marks if mark.moment.task == task]
        for x, kind in [*sorted(changes, key=lambda change: change[0]), (right, "end")]:
            if kind == "end" or (alive and kind == "crash") or (not alive and kind == "restore"):
                look = "line" if alive else "thin dotted"
                parts.append(f'<path class="{look}" d="{svg.path((((start, y), (x, y)),))}"/>')
                start, alive = x, not alive
        return parts

    def _bars(self, task: str) -> list[str]:
        """While an input waits for the others, and while steps are taken again."""
        y, parts, blocked = self.layout.tasks[task], [], 0
        waits: float | None = None
        again: float | None = None

        def bar(start: float, end: float, look: str) -> str:
            return f'<path class="bar {look}" d="{svg.path((((start, y), (max(end, start + 3), y)),))}"/>'

        moments = [moment for moment in self.diagram.moments if moment.task == task]
        for moment in sorted(moments, key=lambda moment: moment.step):
            x = self.layout.x(moment.step)
            blocked += {"block": 1, "unblock": -1}.get(moment.kind, 0)
            if moment.kind in ("crash", "restore"):
                blocked = 0
            if blocked > 0 and waits is None:
                waits = x
            elif blocked <= 0 and waits is not None:
                parts += [bar(waits, x, "waits")] if x > self.layout.ends[0] else []
                waits = None
            if moment.kind == "restore":
                again = x if moment.steps_again else None
            elif moment.kind == "replayed" and again is not None:
                parts += [bar(again, x, "again")] if x > self.layout.ends[0] else []
        return parts if waits is None else [*parts, bar(waits, self.layout.ends[1], "waits")]

    def _axis(self, y: float) -> list[str]:
        """Numbers of steps, as many as there is room for."""
        parts, last = [svg.text(self.layout.ends[0] - 10, y, "step", "small faint end")], -BETWEEN_NUMBERS
        for step, x in self.layout.steps.items():
            if x - last >= BETWEEN_NUMBERS:
                parts.append(svg.text(x, y, str(step), "small faint middle"))
                last = x
        return parts

    # -- moments ------------------------------------------------------------------------------------------

    def _words(self, mark: Mark) -> list[str]:
        """They begin at their moment: messages come to it from the left."""
        line, x = self.layout.tasks[mark.moment.task], mark.x
        self._cover(_Area(x - 6, line - 6, x + 6, line + 6))
        if not mark.words:
            return []
        y, wide = line - 11 - mark.level * LEVEL, cells(mark.words) * SIZE
        self._cover(_Area(x - 1, y - 9, x + wide, y + 3))
        parts = []
        if mark.level:
            parts.append(f'<path class="thin dotted" d="{svg.path((((x, y + 2), (x, line - 5)),))}"/>')
        parts.append(svg.plate(x + wide / 2, y - 3, wide, 11))
        look = "wrong-text" if mark.moment.kind in ("crash", "violation") else "faint"
        parts.append(svg.text(x - 1, y, mark.words, f"small {look}"))
        return parts

    def _mark(self, mark: Mark) -> str:
        """The sign of a moment, and what it is in words."""
        moment, x, y, n = mark.moment, mark.x, self.layout.tasks[mark.moment.task], svg.number
        whole = svg.escape(f"step {moment.step}, {moment.task}: {moment.label or moment.kind}")
        group = f'<g data-step="{moment.step}"><title>{whole}</title>'
        if moment.epoch is not None:
            group = f'<g class="epoch {self.colour[moment.epoch]}" data-step="{moment.step}"><title>{whole}</title>'
        if moment.epoch is not None and moment.kind in ("copy", "trigger", "complete"):
            return group + _numbered(moment.kind, x, y, str(moment.epoch)) + "</g>"
        match moment.kind:
            case "crash":
                lines = (svg.path((((x - 6, y - d), (x + 6, y + d)),)) for d in (6, -6))
                sign = "".join(f'<path class="bold wrong crash" d="{line}"/>' for line in lines)
            case "violation":
                sign = f'<path class="wrong-text" d="{_polygon([(x - 7, y + 6), (x, y - 7), (x + 7, y + 6)])}"/>'
            case "restore" | "replayed":
                sign = f'<circle class="box" cx="{n(x)}" cy="{n(y)}" r="4.5"/>'
            case _:
                look = "tip" if moment.epoch is None else "full"
                sign = f'<circle class="{look}" cx="{n(x)}" cy="{n(y)}" r="2.5"/>'
        return group + sign + "</g>"

    # -- messages -----------------------------------------------------------------------------------------

    def _message(self, message: Message) -> Iterable[str]:
        layout = self.layout
        start_y, end_y = layout.tasks[message.sender], layout.tasks[message.receiver]
        start = layout.x(message.sent) if message.sent in layout.steps else layout.ends[0], start_y
        if message.received is None:
            end = min(start[0] + 30, self.right), start_y + (end_y - start_y) * 0.6
        else:
            end = layout.x(message.received), end_y
        if message.sender == message.receiver:
            low = start_y + HANGING
            end = max(end[0], start[0] + 14), start_y if message.received is not None else start_y + HANGING / 2
            pieces: tuple[tuple[Point, ...], ...] = ((start, (start[0], low), (end[0], low), end),)
            before, places = (end[0], low), [((start[0] + end[0]) / 2, low - 4)]
        else:
            order = list(layout.tasks)
            rows = abs(order.index(message.sender) - order.index(message.receiver))
            dx, dy = end[0] - start[0], end[1] - start[1]
            bend = BEND * min(rows - 1, 3) / max(1.0, (dx * dx + dy * dy) ** 0.5) if message.received is not None else 0
            aside = (-abs(dy) * bend, dx * bend if dy > 0 else -dx * bend)
            # No part of a message may lie before it was sent.
            curve = tuple(
                (max(start[0], x + aside[0]), y + aside[1]) for x, y in (_between(start, end, t) for t in (0.35, 0.65))
            )
            pieces, before = ((start, *(curve if bend else ()), end),), curve[1]
            places = [_along(pieces[0], t / 10) for t in (5, 4, 6, 3, 7, 2, 8, 1)]
        when = "not received" if message.received is None else f"received at step {message.received}"
        when += ", dropped: it has come before" if message.known else ""
        whole = f"{message.label}: {message.sender} to {message.receiver}, sent at step {message.sent}, {when}"
        ends = f'data-from="{svg.escape(message.sender)}" data-to="{svg.escape(message.receiver)}"'
        kind = "message" if message.epoch is None else f"barrier epoch {self.colour[message.epoch]}"
        look = "ink" if message.barrier else "thin dotted" if message.known else "thin"
        yield f'<g class="{kind}" data-step="{message.sent}" {ends}><title>{svg.escape(whole)}</title>'
        yield f'<path class="{look}" d="{svg.path(pieces)}"/>'
        if message.received is None:
            place = f'cx="{svg.number(end[0])}" cy="{svg.number(end[1])}"'
            self.tips.append(f'<circle class="box" data-step="{message.sent}" {place} r="3"/>')
        else:
            at, colour = f'data-step="{message.received}"', self.colour.get(message.epoch or 0)
            head = svg.arrow_head(end, before, 9 if message.barrier else 6)
            if colour is None:
                self.tips.append(f'<path class="tip" {at} d="{head}"/>')
            else:
                self.tips.append(f'<g class="epoch {colour}" {at}><path class="full" d="{head}"/></g>')
        if layout.is_small:
            words = shortened(clean(message.label), LABEL_LIMIT)
            x, y = min(places, key=lambda place: self._covered(_around(place[0], place[1], words)))
            self._cover(_around(x, y, words))
            yield svg.plate(x, y, cells(words) * SIZE, 11) + svg.text(x, y + 3.5, words, "small middle")
        yield "</g>"

    def _covered(self, area: _Area) -> float:
        """How much of it other labels and lines cover already."""
        near = {other for tile in area.tiles() for other in self.areas.get(tile, ())}
        return sum(sorted(area.shared(other) for other in near))

    def _cover(self, area: _Area) -> None:
        for tile in area.tiles():
            self.areas.setdefault(tile, set()).add(area)

    # -- the whole ----------------------------------------------------------------------------------------

    def _cuts(self) -> list[str]:
        """For each epoch a line through its copies, from two on; a task that has copied it twice counts with the last.

        An epoch of which some copies are left out, being too early, has a line through the others.
        """
        copied: dict[int, set[str]] = {}
        for moment in self.diagram.moments:
            if moment.kind == "copy" and moment.epoch is not None:
                copied.setdefault(moment.epoch, set()).add(moment.task)
        copies: dict[int, dict[str, Point]] = {}
        whole_at: dict[int, int] = {}
        for mark in sorted(self.layout.marks, key=lambda mark: mark.x):
            if mark.moment.kind == "copy" and mark.moment.epoch is not None:
                place = mark.x, self.layout.tasks[mark.moment.task]
                copies.setdefault(mark.moment.epoch, {})[mark.moment.task] = place
                whole_at[mark.moment.epoch] = mark.moment.step
        parts: list[str] = []
        expected = len([task for task in self.layout.tasks if task != COORDINATOR])
        for epoch, drawn in sorted(copies.items()):
            if len(drawn) == 1 < expected:
                continue
            places = sorted(drawn.values(), key=lambda place: place[1])
            first, last = places[0], places[-1]
            line = [(first[0], first[1] - 16), *places, (last[0], last[1] + 16)]
            pieces = []
            for a, b in pairwise(line):
                middle = (a[1] + b[1]) / 2
                pieces.append((a, (a[0], middle), (b[0], middle), b))
            words = f"cut {epoch}" + (f", {len(copied[epoch])} of {expected}" if len(copied[epoch]) < expected else "")
            place = last[0], last[1] + 24
            while self._covered(_around(*place, words)):
                place = place[0] + 10, place[1]
            self._cover(_around(*place, words))
            self.right = max(self.right, _around(*place, words).right)
            path = svg.path(pieces)
            parts.append(f'<g class="epoch {self.colour[epoch]}" data-step="{whole_at[epoch]}">')
            parts.append(f'<path class="band" d="{path}"/>')
            parts.append(f'<path class="through" d="{path}"/>')
            parts.append(svg.text(place[0], place[1] + 4, words, "small middle") + "</g>")
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


def _numbered(kind: str, x: float, y: float, epoch: str) -> str:
    """A square for a copy, a ring for the beginning of an epoch, a disc for its end."""
    n, half = svg.number, 4.5 + 2.6 * len(epoch)
    box = f'x="{n(x - half)}" y="{n(y - 7)}" width="{n(2 * half)}" height="14"'
    if kind == "copy":
        shape = f'<rect class="full copy" {box} rx="1.5"/>'
    else:
        shape = f'<rect class="{"ring" if kind == "trigger" else "full"}" {box} rx="7"/>'
    return shape + svg.text(x, y + 3.2, epoch, f"number middle{'' if kind == 'trigger' else ' on'}")


def _between(a: Point, b: Point, part: float) -> Point:
    return a[0] + (b[0] - a[0]) * part, a[1] + (b[1] - a[1]) * part


def _along(curve: Sequence[Point], part: float) -> Point:
    """The point of a Bézier curve (de Casteljau)."""
    while len(curve) > 1:
        curve = [_between(a, b, part) for a, b in pairwise(curve)]
    return curve[0]


def _around(x: float, y: float, words: str) -> _Area:
    half = cells(words) * SIZE / 2
    return _Area(x - half, y - 5.5, x + half, y + 5.5)


def _polygon(corners: Sequence[Point]) -> str:
    return svg.path(list(pairwise(corners))) + "Z"
