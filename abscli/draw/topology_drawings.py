"""The job graph for drawing programs: Graphviz (dot) and Mermaid; back edges are dashed."""

from __future__ import annotations

from abscli.graph.job_graph import JobGraph
from abscli.text.operator_marks import marks_of
from abscli.text.topology import partition_label, show
from formats.job.model import Kind, Operator

_SHAPES = {Kind.SOURCE: "invhouse", Kind.SINK: "house"}


def topology_dot(graph: JobGraph) -> str:
    """A digraph for `dot`. Back edges do not count for its layers, so a loop reads in the direction of its data."""
    lines = [f"digraph {_quoted(graph.topology.job)} {{", "  rankdir=LR;", '  node [shape=box, fontname="sans-serif"];']
    for op in graph.topology.operators:
        shape = f", shape={_SHAPES[op.kind]}" if op.kind in _SHAPES else ""
        lines.append(f"  {_quoted(op.id)} [label={_quoted(op.id, _about(op), *marks_of(op))}{shape}];")
    for edge in graph.topology.edges:
        dashed = ", style=dashed, constraint=false" if graph.is_back(edge) else ""
        label = _quoted(partition_label(edge))
        lines.append(f"  {_quoted(edge.source)} -> {_quoted(edge.target)} [label={label}{dashed}];")
    return "\n".join([*lines, "}"]) + "\n"


def topology_mermaid(graph: JobGraph) -> str:
    """A flowchart. Nodes are called n1, n2, ... in declared order: Mermaid's own words (`end`) cannot be ids."""
    lines = ["flowchart LR"]
    names = {op.id: f"n{number}" for number, op in enumerate(graph.topology.operators, 1)}
    for op in graph.topology.operators:
        lines.append(f'  {names[op.id]}["{_entities(op.id)}{_lines(op)}"]')
    for edge in graph.topology.edges:
        arrow = "-.->" if graph.is_back(edge) else "-->"
        label = _entities(partition_label(edge))
        lines.append(f'  {names[edge.source]} {arrow}|"{label}"| {names[edge.target]}')
    return "\n".join(lines) + "\n"


def _about(op: Operator) -> str:
    return f"{op.kind.value}, {op.parallelism} task{'' if op.parallelism == 1 else 's'}"


def _lines(op: Operator) -> str:
    return "".join(f"<br/>{_entities(line)}" for line in (_about(op), *marks_of(op)))


def _quoted(*lines: str) -> str:
    """One quoted DOT string; a backslash would start an escape of Graphviz's own."""
    safe = (show(line).replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return '"' + "\\n".join(safe) + '"'


def _entities(text: str) -> str:
    """Text in which no character can end a Mermaid label or mean markup."""
    return "".join(char if char.isalnum() or char in " .,_-()" else f"#{ord(char)};" for char in show(text))
