"""The pictures of a report, as SVG without styles, scripts, links outward or ids: the page's one style sheet has their
looks, which its policy allows by digest. What a picture says stands in a title, for those who cannot see it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from abscli.draw import svg
from abscli.draw.layers import TooDense
from abscli.draw.topology_layout import APART, Box, Layout, Link, Route, lay_out
from abscli.draw.treemap import Rect, treemap
from abscli.pages.facts import EpochLine, Graph, Growth, Node, Piece, StateLine, Times
from abscli.pages.facts import Link as Edge
from abscli.text.cells import broken, cells, shortened
from abscli.text.columns import clean, number, seconds, size

LABEL, LABEL_LINES = 26, 3
LINE = 16.0
MARK = 40
"""Characters of why an operator is lit up, in a line of its box."""
STRIP = 960.0
"""Width of a picture."""
TALL, LOW = 92.0, 46.0
"""Heights of a row of epochs, where some durations are known, and where none is."""
PLOT, AXIS = 50.0, 56.0
"""Height of the longest duration of an axis, and width of the labels of the axis."""
STATUS_SIGN = {"complete": "✓", "incomplete": "○", "in-progress": "▸", "aborted": "⊘", "damaged": "✗"}
MARK_SIGN = {"damaged": "✗", "missing": "○", "restarts": "↻", "changed": "≠"}


def opened(width: float, height: float, title: str, classes: str) -> str:
    """The beginning of a picture."""
    return (
        f'<svg class="{classes}" role="img" viewBox="0 0 {svg.number(width)} {svg.number(height)}" '
        f'width="{svg.number(width)}" height="{svg.number(height)}"><title>{svg.escape(title)}</title>'
    )


# -- the job graph -------------------------------------------------------------------------------------------


class _Texts(NamedTuple):
    names: list[str]
    about: str
    mark: str


def graph(picture: Graph) -> str | None:
    """The job graph, data downwards, back edges dashed; None where it is too dense to be drawn."""
    at = {node.id: i for i, node in enumerate(picture.nodes)}
    edges = [edge for edge in picture.links if edge.source in at and edge.target in at]
    texts = [_texts(node) for node in picture.nodes]
    links = [
        Link(at[edge.source], at[edge.target], _label_width(_label(edge)), edge.back_edge or edge.source == edge.target)
        for edge in edges
    ]
    sizes = [_size(one) for one in texts]
    try:
        layout = lay_out(sizes, links) if links else _side_by_side(sizes)
    except TooDense:
        return None
    width, height = layout.width + 24, layout.height + 24
    parts = [opened(width, height, "Job graph", "graph"), '<g transform="translate(12 12)">']
    parts += [_edge(edge, route) for edge, route in zip(edges, layout.routes, strict=True)]
    parts += [_edge_label(edge, route) for edge, route in zip(edges, layout.routes, strict=True)]
    parts += [_node(*each) for each in zip(picture.nodes, texts, layout.boxes, strict=True)]
    return "".join([*parts, "</g></svg>"])


def _side_by_side(sizes: Sequence[tuple[float, float]]) -> Layout:
    """Boxes that nothing joins, in rows of a page's width."""
    boxes, x, y, high, wide = [], 0.0, 0.0, 0.0, 0.0
    for width, height in sizes:
        if x and x + width > STRIP:
            x, y, high = 0.0, y + high + APART, 0.0
        boxes.append(Box(x, y, width, height))
        x, high = x + width + APART, max(high, height)
        wide = max(wide, x - APART)
    return Layout(tuple(boxes), (), wide, y + high)


def _texts(node: Node) -> _Texts:
    tasks = None if node.parallelism is None else f"{node.parallelism:,} task{'s'[: node.parallelism != 1]}"
    about = " · ".join(filter(None, (node.kind, tasks, None if node.bytes is None else size(node.bytes))))
    lit = node.highlight
    mark = "" if lit is None else f"{MARK_SIGN.get(lit, '')} {shortened(node.text or lit, MARK)}"
    return _Texts(broken(clean(node.name or node.id), LABEL, LABEL_LINES), about, clean(mark))


def _size(texts: _Texts) -> tuple[float, float]:
    wide = max(
        *(cells(name) * 13 * svg.MONO for name in texts.names), cells(texts.about) * 11 * svg.SANS,
        cells(texts.mark) * 11 * svg.SANS,
    )  # fmt: skip
    lines = len(texts.names) + bool(texts.about) + bool(texts.mark)
    return max(wide + 28, 96.0), LINE * lines + 16


def _label(edge: Edge) -> str:
    logged = f"{number(edge.logged)} logged" if edge.logged else ""
    words = shortened(clean(edge.partition or ""), LABEL)
    return " · ".join(filter(None, (words, logged, "✗" if edge.problem else "")))


def _label_width(label: str) -> float:
    return cells(label) * 10 * svg.SANS + 6 if label else 0.0


def _edge(edge: Edge, route: Route) -> str:
    *_, before, tip = route.pieces[-1]
    classes = "edge" + " back" * edge.back_edge + " damaged" * (edge.problem is not None)
    about = f"{edge.source} to {edge.target}" + (f": {edge.problem}" if edge.problem else "")
    return (
        f'<g class="{classes}"><title>{svg.escape(about)}</title><path d="{svg.path(route.pieces)}"/>'
        f'<path class="tip" d="{svg.arrow_head(tip, before)}"/></g>'
    )


def _edge_label(edge: Edge, route: Route) -> str:
    label = _label(edge)
    if not label:
        return ""
    x, y = route.label
    return svg.plate(x, y, _label_width(label), 14) + svg.text(x, y + 3.5, label, "label")


def _node(node: Node, texts: _Texts, box: Box) -> str:
    middle = box.left + box.width / 2
    rounded = box.height / 2 if node.kind in ("source", "sink") else 6.0
    place = f'x="{svg.number(box.left)}" y="{svg.number(box.top)}" width="{svg.number(box.width)}"'
    title = " ".join(filter(None, (node.id, node.name or "", node.text or "")))
    parts = [
        f'<g class="node {node.highlight or ""}"><title>{svg.escape(title)}</title>',
        f'<rect {place} height="{svg.number(box.height)}" rx="{svg.number(min(rounded, 20.0))}"/>',
    ]
    y = box.top + 21
    for name in texts.names:
        parts.append(svg.text(middle, y, name, "name"))
        y += LINE
    for line, classes in ((texts.about, "about"), (texts.mark, "mark")):
        if line:
            parts.append(svg.text(middle, y, line, classes))
            y += LINE
    return "".join([*parts, "</g>"])


# -- epochs --------------------------------------------------------------------------------------------------


def strip(epochs: Sequence[EpochLine], unit: str) -> str:
    """A bar for each epoch, coloured and signed by its status, with its duration as height where durations are known;
    a click leads to its line. unit: the word of the system for an epoch."""
    count = max(len(epochs), 1)
    longest = max((epoch.duration for epoch in epochs if epoch.duration is not None), default=None)
    top = rounded_up(longest) if longest else None
    left = AXIS if top else 0.0
    pitch = min(max((STRIP - left) / count, 6.0), 40.0)
    across = max(int((STRIP - left) / pitch + 1e-6), 1)
    rows = -(-count // across)
    tall = TALL if top else LOW
    width = left + (across if rows > 1 else count) * pitch
    title = f"{len(epochs):,} bars, one per {unit}, coloured by status"
    parts = [opened(max(width, 80.0), rows * tall, title + (", height by duration" if top else ""), "strip")]
    for row in range(rows if top else 0):
        parts += _axis((row + 1) * tall - 18, width, top or 0.0)
    for i, epoch in enumerate(epochs):
        x, base = left + i % across * pitch, (i // across + 1) * tall - 18
        high = 14.0 if top is None else 3.0 if epoch.duration is None else max(PLOT * epoch.duration / top, 1.0)
        status = epoch.verdict or epoch.status
        took = "" if epoch.duration is None else f", took {seconds(epoch.duration)}"
        bar = (
            f'<a href="#epoch-{epoch.epoch}"><title>{epoch.epoch} {svg.escape(status)}{took}</title>'
            f'<rect class="s-{svg.escape(status)}" x="{svg.number(x + 1)}" y="{svg.number(base - high)}" '
            f'width="{svg.number(max(pitch - 2, 2.0))}" height="{svg.number(high)}"/>'
        )
        sign = STATUS_SIGN.get(status, "")
        if pitch >= 12 and status != "complete":
            bar += svg.text(x + pitch / 2, base - high - 3, sign, "sign")
        parts.append(bar + "</a>")
        labelled = pitch >= 24 or i % max(across // 16, 1) == 0
        if labelled:
            parts.append(svg.text(max(x + pitch / 2, 3.2 * len(str(epoch.epoch))), base + 13, str(epoch.epoch), "axis"))
    return "".join([*parts, "</svg>"])


def rounded_up(value: float) -> float:
    """Return the end of an axis of seconds: 1, 2 or 5 times a power of ten, in the unit in which it is shown."""
    unit = 1.0 if value < 120 else 60.0 if value < 7200 else 3600.0 if value < 172_800 else 86_400.0
    power: float = unit * 10.0 ** math.floor(math.log10(value / unit))
    return next((step * power for step in (1, 2, 5) if step * power >= value * (1 - 1e-9)), 10 * power)


def _axis(base: float, width: float, top: float) -> Iterator[str]:
    """Lines at nought, at half and at the end of the axis, each with its duration."""
    for part in (0.0, 0.5, 1.0):
        y = base - PLOT * part
        label = seconds(part * top) if part else "0 s"
        yield f'<path class="grid" d="M{svg.number(AXIS - 4)} {svg.number(y)}H{svg.number(width)}"/>'
        yield svg.text(AXIS - 8, y + 3.5, label, "scale")


def bar(times: Times | None, duration: float | None, longest: float) -> str:
    """Where the time of one epoch went, in parts of the longest; empty where nothing is known."""
    if times is None or longest <= 0:
        return ""
    spans = (("rest", times.other), ("alignment", times.alignment), ("copy", times.sync), ("write", times.async_))
    words = ", ".join(f"{_PART[name]} {seconds(value)}" for name, value in spans)
    x, parts = 0.0, []
    for name, value in spans:
        if value:
            width = 160 * value / longest
            if width >= 0.05:
                parts.append(f'<rect class="t-{name}" x="{svg.number(x)}" width="{svg.number(max(width, 0.6))}"/>')
            x += width
    return (
        f'<svg class="bar" role="img" viewBox="0 0 160 10"><title>{svg.escape(times.task)}: {words}</title>'
        f"{''.join(parts)}</svg>"
    )


_PART = {"rest": "barrier on its way and commit", "alignment": "aligning", "copy": "copying", "write": "writing"}


def curve(one: Growth) -> str:
    """The bytes of an operator's state over the epochs, from nought to the labelled maximum."""
    known = [(i, value) for i, (_, value) in enumerate(one.points) if value is not None]
    if len(known) < 2:
        return ""
    top = max(value for _, value in known) or 1
    span = max(len(one.points) - 1, 1)
    left, right, high, base = CURVE_AXIS, CURVE_AXIS + 156.0, 6.0, 30.0
    points = " ".join(
        f"{svg.number(left + (right - left) * i / span)},{svg.number(base - (base - high) * value / top)}"
        for i, value in known
    )
    across = f"M{svg.number(left)} {{}}H{svg.number(right)}".format
    grid = "".join(f'<path class="grid" d="{across(svg.number(y))}"/>' for y in (high, base))
    labels = svg.text(left - 5, high + 4, size(top), "scale") + svg.text(left - 5, base + 3, "0", "scale")
    first, last = one.points[0][0], one.points[-1][0]
    return (
        f'<svg class="curve" role="img" viewBox="0 0 220 36" width="220" height="36">'
        f"<title>{first} to {last}, at most {size(top)}</title>{grid}{labels}"
        f'<polyline points="{points}"/></svg>'
    )


CURVE_AXIS = 58.0
"""Width of the labels of a curve's axis."""


# -- sizes ---------------------------------------------------------------------------------------------------


WIDE, HIGH, HEAD = 960.0, 300.0, 18.0
BOLD = 7.4
"""Width of a character above an area."""
NAMED = 8
"""Characters of a name that are worth a size beside them."""
CELLS = 600
"""Rectangles of a treemap."""
UNEVEN = 2
"""Times the median from which on a key group or a task is marked."""


def sizes(states: Sequence[StateLine]) -> str:
    """States by their bytes, within them key groups or tasks; empty where no size is known."""
    measured = [state for state in states if state.bytes]
    if not measured:
        return ""
    places = treemap([float(state.bytes or 0) for state in measured], Rect(0, 0, WIDE, HIGH))
    parts = [opened(WIDE, HIGH, "Sizes of state: an area each", "treemap")]
    left = CELLS
    for i, (state, place) in enumerate(zip(measured, places, strict=True)):
        name = " ".join(filter(None, (state.name or state.operator, state.state)))
        about = f"{name}: {size(state.bytes)}, {number(state.rows)} rows"
        pieces = [piece for piece in state.pieces if piece.bytes][:left]
        left -= len(pieces)
        parts.append(f'<g class="k{i % 6}"><title>{svg.escape(about)}</title>{_rect(place.inside(1), "state")}')
        parts += _pieces(name, state, pieces, place.inside(3, HEAD if place.height > 40 else 0.0))
        if place.width > 60 and place.height > 20:
            parts.append(svg.text(place.x + 7, place.y + 15, _headed(clean(name), state.bytes, place), "state-label"))
        parts.append("</g>")
    return "".join([*parts, "</svg>"])


def _headed(name: str, amount: int | None, place: Rect) -> str:
    """A name that has room above its area, and how much it is, where that has some, too."""
    room = max(int((place.width - 12) / BOLD), 4)
    beside = room - len(size(amount)) - 1
    return f"{shortened(name, beside)} {size(amount)}" if beside >= NAMED else shortened(name, room)


def _pieces(name: str, state: StateLine, pieces: Sequence[Piece], room: Rect) -> Iterator[str]:
    """Key groups or tasks of a state; what is not named of it takes its share, so that areas can be compared."""
    if not pieces or room.width < 12 or room.height < 12:
        return
    rest = max((state.bytes or 0) - sum(piece.bytes or 0 for piece in pieces), 0)
    middle = pieces[len(pieces) // 2].bytes or 0
    places = treemap([*(float(piece.bytes or 0) for piece in pieces), float(rest)], room)
    for piece, at in zip(pieces, places, strict=False):
        of = f" of task {piece.subtask}" if state.by == "key group" else ""
        about = f"{name}, {state.by} {piece.number}{of}: {size(piece.bytes)}, {number(piece.rows)} rows"
        hot = " hot" if len(pieces) > 3 and (piece.bytes or 0) > UNEVEN * middle else ""
        yield f"<g><title>{svg.escape(about)}</title>{_rect(at.inside(0.5), f'piece{hot}')}</g>"
        if at.width > 30 and at.height > 14:
            yield svg.text(at.x + 4, at.y + 12, str(piece.number), "piece-label")


def _rect(place: Rect, classes: str) -> str:
    return (
        f'<rect class="{classes}" x="{svg.number(place.x)}" y="{svg.number(place.y)}" '
        f'width="{svg.number(place.width)}" height="{svg.number(place.height)}"/>'
    )
