"""The job graph as a picture: data flows to the right, back edges are dashed and lead back below or above."""

from __future__ import annotations

from collections.abc import Sequence

from abscli.draw import svg
from abscli.draw.topology_layout import LABEL_HEIGHT, Box, Link, Route, lay_out_rightwards
from abscli.graph.job_graph import JobGraph
from abscli.text.cells import broken, cells, shortened
from abscli.text.operator_marks import marks_of
from abscli.text.topology import partition_label, show, topology_summary
from formats.job.model import Edge, Kind, Operator, Partition

MARGIN = 20.0
ID_LIMIT, ID_LINES = 28, 3  # characters of an id in one line, and lines; the whole id is its tooltip
LABEL_LIMIT = 28
MARK_LIMIT = 48
LINE = 15.0


def topology_svg(graph: JobGraph) -> str:
    """A whole SVG document; the same graph gives the same bytes."""
    operators = graph.topology.operators
    edges = graph.topology.edges
    at = {op.id: number for number, op in enumerate(operators)}
    loop = {id: number for number, ids in enumerate(graph.loops, 1) for id in ids}
    shared = {op.id: _shared_label(graph.inputs[op.id]) for op in operators}
    texts = [_texts(op, loop.get(op.id), shared[op.id]) for op in operators]
    labels = ["" if shared[edge.target] else _label_of(edge) for edge in edges]
    links = [
        Link(at[edge.source], at[edge.target], _room(edge, label), graph.is_back(edge), _label_width(label))
        for edge, label in zip(edges, labels, strict=True)
    ]
    layout = lay_out_rightwards([_size(*lines) for lines in texts], links)

    heading = [show(graph.topology.job), topology_summary(graph)]
    explained = ["dashed: back edge, which closes a cycle"] if graph.back else []
    if any(edge.partition is Partition.FORWARD for edge in edges):
        explained.append("an edge without a name: forward, from subtask i to subtask i")
    legend = "; ".join(explained)
    top = MARGIN + (64 if legend else 48)
    width = max(layout.width, *(cells(line) * 7.5 for line in (*heading, legend))) + 2 * MARGIN
    left = (width - layout.width) / 2
    parts = [
        svg.text(MARGIN, MARGIN + 14, heading[0], "title"),
        svg.text(MARGIN, MARGIN + 32, heading[1], "faint"),
    ]
    if legend:
        parts.append(svg.text(MARGIN, MARGIN + 48, legend, "faint"))
    parts.append(f'<g transform="translate({svg.number(left)} {svg.number(top)})">')
    drawn = list(zip(edges, labels, layout.routes, strict=True))
    parts += [_line(edge, route, graph.is_back(edge)) for edge, _, route in drawn]
    parts += [_label(edge, label, route) for edge, label, route in drawn if label]
    for op, lines, box in zip(operators, texts, layout.boxes, strict=True):
        parts.append(_box(op, *lines, box, op.id in loop))
    parts.append("</g>")
    about = f"Job graph of {show(graph.topology.job)}: {heading[1]}. Data flows to the right; back edges are dashed."
    return svg.drawing(width, top + layout.height + MARGIN, f"Job graph of {show(graph.topology.job)}", about, parts)


def _shared_label(edges: Sequence[Edge]) -> str:
    """How all inputs of an operator are partitioned: said once, on its box; `""` if each edge has to say it."""
    labels = {_label_of(edge) for edge in edges}
    return labels.pop() if len(labels) == 1 and not any(edge.output for edge in edges) else ""


def _label_of(edge: Edge) -> str:
    if edge.partition is Partition.FORWARD:
        return edge.output or ""
    return shortened(partition_label(edge), LABEL_LIMIT)


def _texts(op: Operator, loop: int | None, label: str) -> tuple[list[str], str, str, list[str]]:
    """The lines of its id, what it is, how its inputs are partitioned if that is the same of all, and what it does by
    event time and with records on which it fails."""
    about = f"{op.kind.value}, {op.parallelism} task{'' if op.parallelism == 1 else 's'}"
    about += f", loop {loop}" if loop else ""
    return broken(op.id, ID_LIMIT, ID_LINES), about, label, [show(mark) for mark in marks_of(op)]


def _size(names: list[str], about: str, label: str, marks: list[str]) -> tuple[float, float]:
    small = (_label_width(shortened(text, MARK_LIMIT)) for text in (label, *marks))
    wide = max(*(cells(name) * 13 * svg.MONO for name in names), cells(about) * 11 * svg.SANS, *small)
    return max(wide + 28, 90.0), LINE * (len(names) + bool(label) + len(marks)) + 30


def _room(edge: Edge, label: str) -> float:
    """Across an edge's line: its label stands above it; that of a loop beyond its bow."""
    return 0.0 if not label else LABEL_HEIGHT if edge.source == edge.target else 2 * LABEL_HEIGHT


def _label_width(label: str) -> float:
    return cells(label) * 10 * svg.SANS + 6


def _line(edge: Edge, route: Route, back: bool) -> str:
    *_, before, tip = route.pieces[-1]
    kind, colour, tip_colour = ("back edge", " dashed back", "back-tip") if back else ("edge", "", "tip")
    ends = f'data-from="{svg.escape(edge.source)}" data-to="{svg.escape(edge.target)}"'
    title = f"{edge.source} to {edge.target}: {partition_label(edge)}" + (" (back edge)" if back else "")
    return (
        f'<g class="{kind}" {ends}><title>{svg.escape(title)}</title>'
        f'<path class="line{colour}" d="{svg.path(route.pieces)}"/>'
        f'<path class="{tip_colour}" d="{svg.arrow_head(tip, before)}"/></g>'
    )


def _label(edge: Edge, label: str, route: Route) -> str:
    """Above the line, which goes straight there; that of a loop beyond its bow."""
    x, y = route.label
    y -= 0.0 if edge.source == edge.target else 9.0
    return svg.plate(x, y, _label_width(label) - 6, 12) + svg.text(x, y + 3.5, label, "small faint middle")


def _box(
    op: Operator, names: list[str], about: str, label: str, marks: list[str], box: Box, looped: bool
) -> str:
    """Sources and sinks have round ends: the job begins and ends there."""
    x, corner = box.left + box.width / 2, box.height / 2 if op.kind in (Kind.SOURCE, Kind.SINK) else 6
    place = f'x="{svg.number(box.left)}" y="{svg.number(box.top)}"'
    size = f'width="{svg.number(box.width)}" height="{svg.number(box.height)}" rx="{svg.number(corner)}"'
    bottom = box.bottom - 10 - LINE * len(marks)
    return "".join(
        (
            f'<g class="operator" data-operator="{svg.escape(op.id)}">',
            f"<title>{svg.escape('; '.join([f'{op.id}: {about}', *marks]))}</title>",
            f'<rect class="box{" looped" if looped else ""}" {place} {size}/>',
            *(svg.text(x, box.top + 20 + LINE * line, name, "mono name middle") for line, name in enumerate(names)),
            *([svg.text(x, bottom - LINE, label, "small faint middle")] if label else ()),
            svg.text(x, bottom, about, "faint middle"),
            *(
                svg.text(x, bottom + LINE * line, shortened(mark, MARK_LIMIT), "small faint middle")
                for line, mark in enumerate(marks, 1)
            ),
            "</g>",
        )
    )
