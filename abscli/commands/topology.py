"""`abs topology`: a job's graph."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import Policy, Quiet, Verbose
from abscli.cli.output import emit_json, emit_ndjson, emit_text, note, plain_ascii, width

if TYPE_CHECKING:
    from abscli.graph.job_graph import JobGraph
    from formats.job.file import Check

EXAMPLES = (
    ("abs topology job.yaml", "The operators as a numbered list, with a rail for every back edge."),
    ("abs topology job.yaml -o json | jq .back_edges", "The edges that close a cycle."),
    ("abs topology job.yaml -o wide", "An operator a line, however long names are, with more of each."),
    ("abs topology job.yaml -o svg > job.svg", "A picture for a browser or a page, with back edges dashed."),
    ("abs topology job.py -o yaml", "What a job in Python is as a file of YAML; job.py is imported."),
    ("abs topology job.yaml --check", "Also whether it can be run: its functions load, its input is there."),
    ("abs topology job.yaml --guarantee", "What holds from each source to each sink, what weakens it, what to change."),
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
    WIDE = "wide"
    JSON = "json"
    NDJSON = "ndjson"
    DOT = "dot"
    MERMAID = "mermaid"
    SVG = "svg"
    YAML = "yaml"


_GUARANTEE_FORMS = (GraphForm.TABLE, GraphForm.JSON, GraphForm.NDJSON)


def topology(
    job: Annotated[
        str,
        typer.Argument(metavar="JOB", help="Job file: YAML, JSON, or Python, which is imported; or Flink's plan of a "
                       "job (JSON)."),
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
    guarantee: Annotated[
        bool,
        typer.Option("--guarantee",
                     help="In place of the graph show what holds from end to end: how often a record counts in state, "
                     "how often rows made of it are shown, and what weakens that."),
    ] = False,
    policy: Annotated[
        Policy | None,
        typer.Option("--policy", show_default=False,
                     help="With --guarantee: that of the run which is asked about; default: aligned."),
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Show a job's graph: operators, back edges and loops.

    Operators are listed in topological order with the edges that they read from. A back edge is one that closes a
    cycle, found by depth-first search from the sources in declared order. Tasks and channels are counted. The file is
    read, nothing is run: functions and inputs that it names need not exist. Lines are as wide as the terminal, and long
    names broken at their own marks; -o wide breaks no line, and has the largest number of tasks and whether there is
    state of each operator ("?" where the file does not say). In the picture (-o svg) data flows to the right, and how
    inputs are partitioned stands once on the box that they lead to, unless they differ.

    A file of Python (job.py) is imported, and so run, to get the job that it makes: do that with files that you trust.
    -o yaml prints the same job as a file of YAML, which may stand in its place.

    Flink's plans are read too: that of REST, /jobs/:id/plan, and that of getExecutionPlan().

    Every error of the file is reported at once. With --check these are also a function that cannot be loaded, a
    connector, kind of operator or mark that cannot be run, input or columns that are not there, and loops that never
    come to rest.

    --guarantee says for each sink from which sources a path leads to it, and what holds for all of these, which is what
    holds for the weakest part of any, loops included. STATE is how often a record counts in what operators keep, OUTPUT
    how often a row made of it is shown: a sink without transaction or id shows rows again, and state is exact all the
    same; under --policy at-least-once an operator with several inputs counts records again. What is weak is named, with
    what it means and what to change: sources that may not go back and operators and sinks of which nothing is known
    ("?"), operators marked 'deterministic: false', and what goes by the order of rows (first, last, collect, process,
    a ttl): with these every record counts once all the same, and rows shown are of one run.
    """
    from abscli.draw.topology_drawings import topology_dot, topology_mermaid
    from abscli.graph.job_graph import JobGraph
    from abscli.stores.registry import parse_job
    from abscli.text.topology import topology_json, topology_text, topology_wide

    if policy is not None and not guarantee:
        raise typer.BadParameter("it is said of a run: give --guarantee, too", param_hint="'--policy'")
    if guarantee and output not in _GUARANTEE_FORMS:
        forms = ", ".join(_GUARANTEE_FORMS)
        raise typer.BadParameter(f"--guarantee is no picture: give one of {forms}", param_hint="'--output'")
    read = parse_job(job, _faults(job) if check else None)
    graph = JobGraph.of(read.topology)
    if guarantee:
        _show_guarantee(graph, policy or Policy.ALIGNED, output)
        _note_checked(job, check)
        return
    match output:
        case GraphForm.TABLE:
            emit_text(topology_text(graph, width=width(), ascii_only=plain_ascii()))
        case GraphForm.WIDE:
            emit_text(topology_wide(graph, ascii_only=plain_ascii()))
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
        case GraphForm.YAML:
            from formats.job.written import job_yaml

            emit_text(job_yaml(*read))
    _note_checked(job, check)


def _note_checked(job: str, check: bool) -> None:
    if check:
        note(f"{job} can be run: its functions load, its input is there")


def _show_guarantee(graph: JobGraph, policy: Policy, form: GraphForm) -> None:
    from abscli.planner.guarantee import guarantee_of
    from abscli.protocol.policy import Policy as PolicyOfRun
    from abscli.text.guarantee import guarantee_items, guarantee_json, guarantee_text

    guarantee = guarantee_of(graph, PolicyOfRun(policy))
    if form is GraphForm.JSON:
        emit_json(guarantee_json(guarantee))
    elif form is GraphForm.NDJSON:
        emit_ndjson(*guarantee_items(guarantee))
    else:
        emit_text(guarantee_text(guarantee, width=width()))


def _faults(job: str) -> Check:
    from abscli.engine.runnable import all_faults
    from abscli.jobs.files import job_directory

    directory = job_directory(job)
    return lambda graph: all_faults(graph, directory, from_start=True)
