"""`abs topology`: a job's graph."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import Quiet, Verbose
from abscli.cli.output import emit_json, emit_ndjson, emit_text, note, plain_ascii, width

if TYPE_CHECKING:
    from formats.job.model import Topology

EXAMPLES = (
    ("abs topology job.yaml", "The operators as a numbered list, with a rail for every back edge."),
    ("abs topology job.yaml -o json | jq .back_edges", "The edges that close a cycle."),
    ("abs topology job.yaml -o svg > job.svg", "A picture for a browser or a page, with back edges dashed."),
    ("abs topology job.yaml --check", "Also whether it can be run: its functions load, its input is there."),
    ("curl -s localhost:8081/jobs/$JOB/plan > plan.json; abs topology plan.json", "A job that runs on Flink."),
    ("abs topology job.yaml -o dot | dot -Tpng > job.png", "Another picture, by way of Graphviz."),
)
EXIT_STATUS = exits.status(
    12,
    _0="The graph was shown.",
    _2="A bad option, or a file that does not hold: every error is named with its line and column.",
    _12="The file is of a newer version.",
)


class GraphForm(StrEnum):
    """The forms of a graph."""

    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"
    DOT = "dot"
    MERMAID = "mermaid"
    SVG = "svg"


def topology(
    job: Annotated[
        str, typer.Argument(metavar="JOB", help="Topology file, YAML or JSON; or Flink's plan of a job (JSON).")
    ],
    output: Annotated[
        GraphForm,
        typer.Option("--output", "-o", envvar="ABS_OUTPUT", help="Form of the graph on stdout."),
    ] = GraphForm.TABLE,
    check: Annotated[
        bool,
        typer.Option("--check",
                     help="Also find what 'abs run' would refuse; imports the job's modules and looks for its input."),
    ] = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Show a job's graph: operators, back edges and loops.

    Operators are listed in topological order with the edges that they read from. A back edge is one that closes a
    cycle, found by depth-first search from the sources in declared order. Tasks and channels are counted. The file is
    read, nothing is run: functions and inputs that it names need not exist.

    Flink's plans are read too: that of REST, /jobs/:id/plan, and that of getExecutionPlan().

    Every error of the file is reported at once. With --check these are also a function that cannot be loaded, a
    connector, kind of operator or mark that cannot be run, input or columns that are not there, and loops that never
    come to rest.
    """
    from abscli.draw.topology_drawings import topology_dot, topology_mermaid
    from abscli.graph.job_graph import JobGraph
    from abscli.stores.registry import parse_job
    from abscli.text.topology import topology_json, topology_text

    graph = JobGraph.of(_checked(job) if check else parse_job(job))
    match output:
        case GraphForm.TABLE:
            emit_text(topology_text(graph, width=width(), ascii_only=plain_ascii()))
        case GraphForm.JSON:
            emit_json(topology_json(graph))
        case GraphForm.NDJSON:
            whole = topology_json(graph)
            operators = whole.pop("operators")
            emit_ndjson(whole, ({"type": "operator", **operator} for operator in operators))
        case GraphForm.DOT:
            emit_text(topology_dot(graph))
        case GraphForm.MERMAID:
            emit_text(topology_mermaid(graph))
        case GraphForm.SVG:
            from abscli.draw.topology_svg import topology_svg

            emit_text(topology_svg(graph))
    if check:
        note(f"{job} can be run: its functions load, its input is there")


def _checked(job: str) -> Topology:
    """The job graph of a file that `abs run` accepts; BadFile with all that is in the way."""
    import os

    from abscli.engine.runnable import all_faults
    from abscli.stores.registry import foreign_graph
    from formats.bounds import read_user_file
    from formats.errors import OtherFormat
    from formats.job.file import MAX_BYTES, parse_topology_bytes

    data = read_user_file(job, MAX_BYTES, hint="give a topology file, YAML or JSON")
    if (foreign := foreign_graph(data, job)) is not None:
        title = foreign[0].words.title
        message = f"this is {title}'s plan of a job, which {title} runs; --check is of a topology file"
        raise OtherFormat(message, path=job)
    directory = os.path.dirname(os.path.abspath(job))
    return parse_topology_bytes(data, job, lambda graph: all_faults(graph, directory, from_start=True))
