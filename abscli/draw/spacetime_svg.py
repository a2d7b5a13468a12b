"""A space-time diagram as a picture: time runs to the right, messages are arrows between the tasks' lines."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from abscli.draw import spacetime_legend as signs
from abscli.draw import svg
from abscli.draw.spacetime_cuts import against, cuts, logged, stretches
from abscli.draw.spacetime_layout import (
    HANGING,
    LABEL_LIMIT,
    LANE,
    LEVEL,
    MARGIN,
    SIZE,
    Layout,
    Mark,
    laid_out,
    words_begin,
)
from abscli.sim.diagram import Diagram, Message
from abscli.text.cells import cells, shortened
from abscli.text.columns import clean

BETWEEN_NUMBERS = 30.0  # of steps below the picture
MAX_STEPS, OF_A_TASK = 100, 10
"""How many steps are shown, at least and of each task, unless something else is asked for."""


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
    (".kept", "fill:currentColor;fill-opacity:0.1"),
    (".pressed", "fill-opacity:0.14"),
    (".undone", "fill-opacity:0.3"),
    (".band", "fill:none;stroke:currentColor;stroke-width:10;stroke-opacity:0.2;stroke-linecap:round"),
    (".cut", "fill:none;stroke:currentColor;stroke-width:2.6;stroke-dasharray:7 3.5"),
    (".logged", "fill:none;stroke:currentColor;stroke-width:1.6"),
    (".against", "fill:none;stroke-dasharray:4 3;stroke-width:1.6"),
    (".bar", "fill:none;stroke-width:8;stroke-opacity:0.55"),
    (".number", "font-size:9px;font-weight:600"),
)
_COLOURS = (
    *((f".e{at}", "color", day, night) for at, (day, night) in enumerate(_EPOCHS)),
    (".ring", "fill", "#ffffff", "#14181d"),
    (".undone,.pressed", "fill", "#8b949e", "#6b7680"),
    (".against", "stroke", "#b3121d", "#ff8088"),
    (".against-tip", "fill", "#b3121d", "#ff8088"),
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


def spacetime_svg(diagram: Diagram, *, max_steps: int | None = None) -> str:
    """A whole SVG document. max_steps: keeps the last ones, and says how many are left out; more of many tasks.

    What belongs to an epoch has its colour: barriers, which are bold; copies, squares with its number; the cut, a
    dashed line through all copies; the work that its snapshot keeps, the ground to the left of the cut; its beginning
    and end at the coordinator, a ring and a disc. Work that a failure has undone is on grey ground. Records are thin;
    in colour where they pass a cut and are logged; red where they pass it backwards; dotted where the receiver drops
    them, since they have come before. A task's line is yellow while an input waits, green while the task takes again
    the steps of one that was lost, and dotted from a crash to the restore. Many steps in which only records go are
    pressed together.
    """
    most = max(MAX_STEPS, OF_A_TASK * len(diagram.tasks)) if max_steps is None else max_steps
    return _Picture(diagram, most).document()


class _Picture:
    """The parts of one picture."""

    def __init__(self, diagram: Diagram, max_steps: int) -> None:
        self.diagram = diagram
        layout = laid_out(diagram, max_steps)
        self.layout: Layout = layout
        self.right = layout.ends[1]
        numbers = {moment.epoch for moment in diagram.moments if moment.epoch is not None}
        numbers |= {message.epoch for message in diagram.messages if message.epoch is not None}
        self.colour = {epoch: f"e{at % len(_EPOCHS)}" for at, epoch in enumerate(sorted(numbers))}
        self.logged, self.against = logged(diagram, layout.messages), against(diagram, layout.messages)
        self.stretches = stretches(diagram, layout)
        self.tips: list[str] = []  # drawn last: no label may hide where a message arrives
        self.areas: dict[tuple[int, int], set[_Area]] = {}
        for y in layout.tasks.values():
            self._cover(_Area(layout.ends[0], y - 2, layout.ends[1], y + 2))

    def document(self) -> str:
        """All of it."""
        layout = self.layout
        words = [part for mark in layout.marks for part in self._words(mark)]
        messages = [part for message in layout.messages for part in self._message(message)]
        drawn_cuts = self._cuts()
        parts = [svg.text(MARGIN, MARGIN + 14, clean(self.diagram.title), "title")]
        if count := layout.left_out:
            words_left_out = f"{count} earlier step{'s'[: count != 1]} left out"
            parts.append(svg.text(MARGIN, MARGIN + 30, words_left_out, "faint"))
        parts += [*self._ground(), *self._pressed()]
        for task in layout.tasks:
            parts += [*self._bars(task), *self._life(task)]
        parts += [*drawn_cuts, *messages, *words, *self.tips]
        parts += [self._mark(mark) for mark in layout.marks]
        parts += self._names()
        y = layout.bottom + (48 if drawn_cuts else 28)
        parts += self._axis(y)
        width = max(self.right, MARGIN + cells(self.diagram.title) * 15 * svg.SANS, 360.0)
        explained, y = signs.legend(self._entries(cut=bool(drawn_cuts)), MARGIN, y + 26, width)
        parts += explained
        verdict, y = self._verdict(y + 16)
        width = max(self.right, width) + MARGIN
        about = f"{len(layout.tasks)} lines, {len(layout.messages)} messages, {len(layout.steps)} steps"
        if self.diagram.violation:
            about += f"; violation: {self.diagram.violation}"
        parts += verdict
        return svg.drawing(width, y + MARGIN, self.diagram.title, about, parts, rules=_RULES, colours=_COLOURS)

    def _entries(self, *, cut: bool) -> list[signs.Entry]:
        """The signs that are used."""
        kinds = {mark.moment.kind for mark in self.layout.marks}
        shown = {moment.kind for moment in self.diagram.moments if moment.step in self.layout.steps}
        messages = self.layout.messages
        grounds = {stretch.epoch is None for stretch in self.stretches}
        has_markers = any(message.barrier and message.label.startswith("marker") for message in messages)
        used = {
            signs.MARKER if has_markers else signs.BARRIER: any(m.barrier for m in messages),
            signs.MESSAGE if has_markers else signs.RECORD: any(not m.barrier for m in messages),
            signs.COPY: "copy" in kinds,
            signs.CUT: cut,
            signs.KEPT: False in grounds,
            signs.UNDONE: True in grounds,
            signs.EPOCH: bool({"trigger", "complete"} & kinds),
            signs.WAITS: "block" in shown,
            signs.LOGGED: any(m in self.logged for m in messages),
            signs.AGAINST: any(m in self.against for m in messages),
            signs.LOST: "crash" in kinds,
            signs.AGAIN: "replayed" in kinds,
            signs.KNOWN: any(m.known for m in messages),
            signs.MISSED: any(m.received is None for m in messages),
            signs.PRESSED: bool(self.layout.pressed),
        }
        return [sign for sign, is_used in used.items() if is_used]

    def _names(self) -> list[str]:
        """On a ground of their own, since a page that is scrolled keeps them in sight."""
        left, top, bottom = self.layout.ends[0], MARGIN + 34, self.layout.bottom + LANE
        size = f'width="{svg.number(left - 4)}" height="{svg.number(bottom - top)}"'
        parts = [f'<g class="names"><rect class="plate" x="0" y="{svg.number(top)}" {size}/>']
        parts += [
            svg.text(left - 10, y + 4, self.layout.names[task], "mono end") for task, y in self.layout.tasks.items()
        ]
        return [*parts, "</g>"]

    def _ground(self) -> list[str]:
        """Behind each task's line, in the colour of the epoch that keeps its work; grey where it is undone."""
        parts, n = [], svg.number
        for stretch in self.stretches:
            y = self.layout.tasks[stretch.task] - LANE
            place = f'x="{n(stretch.start)}" y="{n(y)}" width="{n(stretch.end - stretch.start)}" height="{n(2 * LANE)}"'
            if stretch.epoch is None:
                parts.append(f'<rect class="undone" {place}/>')
            else:
                parts.append(f'<g class="epoch {self.colour[stretch.epoch]}"><rect class="kept" {place}/></g>')
        return parts

    def _pressed(self) -> list[str]:
        """Over all lines, where time goes by faster."""
        top = min(self.layout.tasks.values(), default=0.0) - LANE
        size = f'y="{svg.number(top)}" height="{svg.number(self.layout.bottom + LANE - top)}"'
        return [
            f'<rect class="pressed" x="{svg.number(part.start)}" width="{svg.number(part.end - part.start)}" {size}>'
            f"<title>{part.count} steps, pressed together</title></rect>"
            for part in self.layout.pressed
        ]

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
        """Numbers of steps, as many as there is room for; two strokes where time is pressed or steps are left out."""
        left, right = self.layout.ends
        parts = [svg.text(left - 10, y, "step", "small faint end")]
        parts.append(f'<path class="thin" d="{svg.path((((left, y - 14), (right, y - 14)),))}"/>')
        for part in self.layout.pressed:
            parts += _strokes((part.start + part.end) / 2, y - 14)
        if self.layout.left_out:
            parts += _strokes(left + 6, y - 14)
        last = -BETWEEN_NUMBERS
        for step, x in self.layout.steps.items():
            if x - last >= BETWEEN_NUMBERS and not any(p.start + 8 < x <= p.end - 4 for p in self.layout.pressed):
                parts.append(f'<path class="thin" d="{svg.path((((x, y - 17), (x, y - 11)),))}"/>')
                parts.append(svg.text(x, y, str(step), "small faint middle"))
                last = x
        return parts

    # -- moments ------------------------------------------------------------------------------------------

    def _words(self, mark: Mark) -> list[str]:
        """They begin at their moment, or a little behind it: messages come to it from the left."""
        line, x = self.layout.tasks[mark.moment.task], mark.x
        self._cover(_Area(x - 6, line - 6, x + 6, line + 6))
        if not mark.words:
            return []
        y, wide = line - 11 - mark.level * LEVEL, cells(mark.words) * SIZE
        begin = words_begin(mark.moment, x)
        self._cover(_Area(begin - 1, y - 9, begin + wide, y + 3))
        parts = []
        if mark.level:
            parts.append(f'<path class="thin dotted" d="{svg.path((((x, y + 2), (x, line - 5)),))}"/>')
        parts.append(svg.plate(begin + wide / 2, y - 3, wide, 11))
        look = "wrong-text" if mark.moment.kind in ("crash", "violation") else "faint"
        parts.append(svg.text(begin - 1, y, mark.words, f"small {look}"))
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
            pieces, before = ((start, end),), start
            places = [_between(start, end, t / 10) for t in (5, 4, 6, 3, 7, 2, 8, 1)]
        when = "not received" if message.received is None else f"received at step {message.received}"
        when += ", dropped: it has come before" if message.known else ""
        whole = f"{message.label}: {message.sender} to {message.receiver}, sent at step {message.sent}, {when}"
        ends = f'data-from="{svg.escape(message.sender)}" data-to="{svg.escape(message.receiver)}"'
        epoch = message.epoch if message.barrier else self.logged.get(message)
        colour = None if epoch is None else self.colour[epoch]
        kind = "message" if message.epoch is None else "barrier"
        kind += "" if colour is None else f" epoch {colour}"
        look, tip = "thin dotted" if message.known else "thin", "tip"
        if message.barrier:
            look = "ink"
        elif colour is not None:
            look, whole = "logged", f"{whole}, logged for epoch {epoch}"
        elif message in self.against:
            look, tip = "against", "against-tip"
            whole = f"{whole}, passes cut {self.against[message]} backwards"
        yield f'<g class="{kind}" data-step="{message.sent}" {ends}><title>{svg.escape(whole)}</title>'
        yield f'<path class="{look}" d="{svg.path(pieces)}"/>'
        if message.received is None:
            place = f'cx="{svg.number(end[0])}" cy="{svg.number(end[1])}"'
            self.tips.append(f'<circle class="box" data-step="{message.sent}" {place} r="3"/>')
        else:
            at = f'data-step="{message.received}"'
            head = svg.arrow_head(end, before, 9 if message.barrier else 6)
            if colour is None:
                self.tips.append(f'<path class="{tip}" {at} d="{head}"/>')
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
        """A line through the copies of each epoch, with its name below."""
        parts: list[str] = []
        for cut in cuts(self.diagram, self.layout):
            words = f"cut {cut.epoch}" + (f", {cut.copied} of {cut.expected}" if cut.copied < cut.expected else "")
            place = cut.places[-1][0], cut.places[-1][1] + 27
            while self._covered(_around(*place, words)):
                place = place[0] + 10, place[1]
            self._cover(_around(*place, words))
            self.right = max(self.right, _around(*place, words).right)
            path = svg.path(cut.pieces)
            parts.append(f'<g class="epoch {self.colour[cut.epoch]}" data-step="{cut.last_step}">')
            parts.append(f'<path class="band" d="{path}"/>')
            parts.append(f'<path class="cut" d="{path}"/>')
            parts.append(svg.text(place[0], place[1] + 4, words, "number middle") + "</g>")
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


def _strokes(x: float, y: float) -> list[str]:
    """A break of the axis."""
    lines = (svg.path((((x + aside - 2, y + 5), (x + aside + 2, y - 5)),)) for aside in (-2.5, 2.5))
    return [svg.plate(x, y, 5, 4), *(f'<path class="line" d="{line}"/>' for line in lines)]


def _around(x: float, y: float, words: str) -> _Area:
    half = cells(words) * SIZE / 2
    return _Area(x - half, y - 5.5, x + half, y + 5.5)


def _polygon(corners: Sequence[Point]) -> str:
    return svg.path(list(pairwise(corners))) + "Z"
