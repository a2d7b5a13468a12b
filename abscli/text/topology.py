"""The job graph as JSON and as a numbered list with rails for its back edges."""

from __future__ import annotations

from typing import Any

from abscli.graph.job_graph import JobGraph
from abscli.text.cells import broken, cells
from abscli.text.operator_marks import marks_json, marks_of
from abscli.text.topology_rails import draw, lay
from formats.job.expand import size_of
from formats.job.model import Edge, Operator, Partition
from formats.version import FORMAT_VERSION

HEAD = ("#", "operator", "kind", "tasks", "inputs")
TIMES = "time and failures"
ENDLESS = 1_000_000
"""Columns of a page that no line is broken for."""
GAP = "  "


def topology_json(graph: JobGraph) -> dict[str, Any]:
    """The `abs.topology` object; operators and edges in declared order."""
    tasks, channels = size_of(graph.topology)
    return {
        "schema": "abs.topology",
        "version": FORMAT_VERSION,
        "job": graph.topology.job,
        "operators": [
            {
                "id": op.id,
                "kind": op.kind.value,
                "parallelism": op.parallelism,
                "max_parallelism": op.max_parallelism,
                "stateful": op.stateful,
                "name": op.name,
                **marks_json(op),
            }
            for op in graph.topology.operators
        ],
        "edges": [
            {
                "from": edge.source,
                "to": edge.target,
                "partition": edge.partition.value,
                "key": list(edge.key),
                "replayable": edge.replayable,
                "back_edge": graph.is_back(edge),
            }
            for edge in graph.topology.edges
        ],
        "back_edges": [{"from": e.source, "to": e.target} for e in graph.topology.edges if graph.is_back(e)],
        "loops": [list(loop) for loop in graph.loops],
        "tasks": tasks,
        "channels": channels,
    }


def topology_wide(graph: JobGraph, *, ascii_only: bool = False) -> str:
    """As `topology_text`, an operator a line however long it is, with more of each operator."""
    lines = _text(graph, width=ENDLESS, ascii_only=ascii_only, marks=False)
    marks = ["; ".join(map(show, marks_of(graph.operators[id]))) for id in graph.order]
    room = max(len(TIMES), *map(cells, marks)) if any(marks) else 0
    about = ["max tasks  state  ", *(_more(graph.operators[id]) for id in graph.order)]
    if room:
        about = [
            more + mark + " " * (room - cells(mark)) + GAP for more, mark in zip(about, [TIMES, *marks], strict=True)
        ]
    column = lines[2].index(HEAD[4])
    rows = range(2, 2 + len(about))
    for row, more in zip(rows, about, strict=True):
        lines[row] = lines[row][:column].ljust(column) + more + lines[row][column:]
    return "\n".join(lines) + "\n"


def _more(op: Operator) -> str:
    stateful = {True: "yes", False: "no", None: "?"}[op.stateful]
    return f"{op.max_parallelism:>9}  {stateful:<5}  "


def topology_text(graph: JobGraph, *, width: int = 80, ascii_only: bool = False) -> str:
    """Operators in topological order, numbered, with rails for back edges, then loops and a summary.

    width: columns; only names too long for it make a line longer. Every back edge is named among the inputs as well.
    Behind the list stands what operators do by event time, and with records on which they fail.
    """
    return "\n".join(_text(graph, width=width, ascii_only=ascii_only, marks=True)) + "\n"


def _text(graph: JobGraph, *, width: int, ascii_only: bool, marks: bool) -> list[str]:
    place = {id: at for at, id in enumerate(graph.order)}
    spans = [(place[target], place[source]) for source, target in graph.back]
    rails = lay(spans, lanes=max(4, width // 8))
    lines = [show(graph.topology.job), ""]
    lines += _table(graph, draw(rails, len(graph.order), ascii_only), width)
    lines.append("")
    if hidden := len(spans) - len(rails):
        lines += _wrap(f"{_count(hidden, 'back edge')} without a rail: too many for the width; see the inputs", width)
    for id in graph.order if marks else ():
        if phrases := marks_of(graph.operators[id]):
            lines += _wrap(show(f"{id}: {'; '.join(phrases)}"), width)
    for number, loop in enumerate(graph.loops, 1):
        lines += _wrap(f"loop {number}: {', '.join(loop)}", width)
    lines += _wrap(topology_summary(graph), width)
    return [line.rstrip() for line in lines]


def partition_label(edge: Edge) -> str:
    """`hash(word)`, `forward`, or `late forward` of an output that is not the sender's main one."""
    way = f"hash({', '.join(map(show, edge.key))})" if edge.partition is Partition.HASH else edge.partition.value
    return f"{edge.output} {way}" if edge.output else way


def show(text: str) -> str:
    """A name with what cannot be shown escaped, so that no name can steer a terminal."""
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


def topology_summary(graph: JobGraph) -> str:
    tasks, channels = size_of(graph.topology)
    return ", ".join(
        (
            _count(len(graph.order), "operator"),
            _count(tasks, "task"),
            _count(channels, "channel"),
            _count(len(graph.back), "back edge"),
            _count(len(graph.loops), "loop"),
        )
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _table(graph: JobGraph, rails: list[tuple[str, str]], width: int) -> list[str]:
    rows = []
    for number, id in enumerate(graph.order, 1):
        op = graph.operators[id]
        rows.append((str(number), id, op.kind.value, str(op.parallelism)))
    number_width, id_width, kind_width, task_width = (
        max(len(HEAD[at]), *(len(row[at]) for row in rows)) for at in range(4)
    )
    rail_width = len(rails[0][0])
    fixed = number_width + rail_width + kind_width + task_width + 4 * len(GAP)
    id_width = max(len(HEAD[1]), min(id_width, (width - fixed) * 2 // 5))
    input_width = max(20, width - fixed - id_width)
    heads = (HEAD[0].rjust(number_width), GAP, " " * rail_width, HEAD[1].ljust(id_width), GAP)
    lines = ["".join((*heads, HEAD[2].ljust(kind_width), GAP, HEAD[3].rjust(task_width), GAP, HEAD[4]))]
    for row, (first, more) in zip(rows, rails, strict=True):
        names = broken(row[1], id_width, len(row[1]))
        inputs = _fill([_input(graph, edge) for edge in graph.inputs[row[1]]] or ["-"], input_width)
        inputs = [
            part for line in inputs for part in (_wrap(line, input_width) if cells(line) > input_width else [line])
        ]
        for at in range(max(len(names), len(inputs))):
            shown, kind, count = (row[0], row[2], row[3]) if at == 0 else ("", "", "")
            lines.append(
                f"{shown:>{number_width}}{GAP}{first if at == 0 else more}"
                f"{names[at] if at < len(names) else '':<{id_width}}{GAP}{kind:<{kind_width}}{GAP}"
                f"{count:>{task_width}}{GAP}{inputs[at] if at < len(inputs) else ''}"
            )
    return lines


def _input(graph: JobGraph, edge: Edge) -> str:
    marks = [name for name, is_so in (("back", graph.is_back(edge)), ("replayable", edge.replayable)) if is_so]
    return f"{edge.source} {partition_label(edge)}" + (f" ({', '.join(marks)})" if marks else "")


def _wrap(text: str, width: int) -> list[str]:
    """Broken between words, and a word that is wider than the line at its own marks."""
    words = [part for word in text.split(" ") for part in broken(word, max(8, width - 2), max(1, len(word)))]
    return _fill(words, width, " ", "  ")


def _fill(parts: list[str], width: int, between: str = ", ", indent: str = "") -> list[str]:
    """The parts joined, broken between parts only; a part wider than `width` has a line of its own."""
    lines: list[str] = []
    line, used = parts[0], cells(parts[0])
    for part in parts[1:]:
        size = cells(part)
        if used + len(between) + size + len(between.rstrip()) <= width:
            line, used = line + between + part, used + len(between) + size
        else:
            lines.append(line + between.rstrip())
            line, used = indent + part, len(indent) + size
    return [*lines, line]
