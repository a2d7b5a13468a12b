"""`abs topology`: a job's graph."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import ANY_FILE, CHOSEN_FILE, Policy, Quiet, Verbose
from abscli.cli.output import emit_json, emit_ndjson, emit_text, note, plain_ascii, width

if TYPE_CHECKING:
    from abscli.graph.job_graph import JobGraph
    from formats.job.file import Check

EXAMPLES = (
    ("abs topology job.yaml", "Lists the operators, with a line for every back edge."),
    ("abs topology job.yaml --guarantee", "Shows the guarantee of each sink, what weakens it, what to change."),
)
EXIT_STATUS = exits.status(
    12,
    _0="The graph was shown.",
    _2="Usage: invalid option or job file; all errors are listed.",
)
SEE_ALSO = ("run", "simulate")
GUIDE = "jobs/file.md"


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
        typer.Argument(metavar="JOB", help="Job file (YAML, JSON, Python), or Flink's plan of a job (JSON)."),
    ],
    output: Annotated[
        GraphForm,
        typer.Option("--output", "-o", envvar="ABS_OUTPUT", help="Output format."), ANY_FILE
    ] = GraphForm.TABLE,
    check: Annotated[
        bool | None,
        typer.Option("--check/--no-check", show_default=False,
                     help="Also check input and servers; or only the file itself."),
        CHOSEN_FILE,
    ] = None,
    guarantee: Annotated[
        bool,
        typer.Option("--guarantee",
                     help="Show delivery guarantees instead of the graph."),
        ANY_FILE,
    ] = False,
    policy: Annotated[
        Policy | None,
        typer.Option("--policy", metavar="POLICY", show_default=False,
                     help="For --guarantee."),
        ANY_FILE,
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Show a job's graph: operators, back edges and loops.

    The job file is read and all its errors are reported at once, with line and column. Nothing is run, and inputs need
    not exist. A Python file is imported, and so are modules with functions that are in the folder of the job file;
    --no-check does not import them. --check finds all that 'abs run' would refuse, and shows what weakens the delivery
    guarantee. Plans of Flink jobs (JSON) are shown, too. --guarantee shows the delivery guarantee of each sink instead
    of the graph, and what weakens it. -o svg draws a picture, and -o yaml converts a Python job.
    """
    from abscli.draw.topology_drawings import topology_dot, topology_mermaid
    from abscli.graph.job_graph import JobGraph
    from abscli.stores.registry import parse_job
    from abscli.text.topology import topology_json, topology_text, topology_wide

    if policy is not None and not guarantee:
        raise typer.BadParameter("it requires --guarantee", param_hint="'--policy'")
    if guarantee and output not in _GUARANTEE_FORMS:
        forms = ", ".join(_GUARANTEE_FORMS)
        raise typer.BadParameter(f"--guarantee is not a picture: use one of {forms}", param_hint="'--output'")
    read = parse_job(job, _faults(job, check), must_check=check is True)
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
    if check:
        _note_guarantee(graph)


def _note_checked(job: str, check: bool | None) -> None:
    if check:
        note(f"{job} can be run: its functions can be loaded and its input exists")


def _note_guarantee(graph: JobGraph) -> None:
    from abscli.planner.guarantee import guarantee_of
    from abscli.protocol.policy import Policy as PolicyOfRun
    from abscli.text.guarantee import guarantee_line

    note(guarantee_line(guarantee_of(graph, PolicyOfRun(Policy.ALIGNED))))


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


def _faults(job: str, check: bool | None) -> Check | None:
    from abscli.engine.runnable import all_faults, faults_without_input
    from abscli.jobs.files import job_directory

    if check is False:
        return None
    directory = job_directory(job)
    if check is None:
        return lambda graph: faults_without_input(graph, directory)
    return lambda graph: all_faults(graph, directory, from_start=True)
