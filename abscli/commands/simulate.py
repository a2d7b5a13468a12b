"""`abs simulate`: a job's protocol under a seeded scheduler with failures."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import ANY_FILE, CHOSEN_FILE, Force, OutputForm, Policy, Quiet, Verbose, at_least
from abscli.cli.output import Output, emit_json, emit_ndjson, emit_text, note, plain_ascii, progress, width

if TYPE_CHECKING:
    from abscli.sim.diagram import Diagram
    from formats.output_file import OutputFile

EXAMPLES = (
    ("abs simulate job.yaml", "Simulates a thousand runs under each policy."),
    ("abs simulate --check trace.jsonl", "Verifies the trace of a real run."),
)
EXIT_STATUS = exits.status(
    3, 12,
    _0="No violation.",
    _3="A violation; --check: the trace disagrees; --strict: an event is missing.",
)
SEE_ALSO = ("run", "topology")
GUIDE = "reference/simulator.md"


class Example(StrEnum):
    """Systems that come with abs."""

    SINGLE_TOKEN = "single-token"


class Crash(StrEnum):
    """Which failures may happen, as `abscli.sim.campaign` knows them; that takes longer to import."""

    ANY = "any"
    FULL = "full"
    PARTIAL = "partial"
    RESCALE = "rescale"
    NONE = "none"


class Recovery(StrEnum):
    """What restarts at a loss."""

    SUBGRAPH = "subgraph"
    LOCAL = "local"


def simulate(
    job: Annotated[
        str | None,
        typer.Argument(metavar="JOB", show_default=False,
                       help="Job file: YAML, JSON, or Python (its code is run)."),
    ] = None,
    example: Annotated[
        Example | None,
        typer.Option("--example", help="Run the example of Chandy and Lamport (1985)."),
        ANY_FILE,
    ] = None,
    runs: Annotated[
        int, typer.Option("--runs", metavar="N", parser=at_least(1), help="Runs per policy."), ANY_FILE
    ] = 1000,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", parser=at_least(0), help="Seed of the first run."),
        ANY_FILE,
    ] = 0,
    policy: Annotated[
        Policy | None,
        typer.Option("--policy", metavar="POLICY", help="Only this policy.", show_default=False),
        ANY_FILE,
    ] = None,
    crash: Annotated[
        Crash,
        typer.Option("--crash", help="What may fail."),
        ANY_FILE,
    ] = Crash.ANY,
    records: Annotated[
        int, typer.Option("--records", metavar="N", parser=at_least(0), help="Rows per source task."), ANY_FILE
    ] = 3,
    subtasks: Annotated[
        int, typer.Option("--subtasks", metavar="N", parser=at_least(1), help="Maximum tasks per operator."),
        ANY_FILE,
    ] = 2,
    recovery: Annotated[
        Recovery,
        typer.Option("--recovery", help="What to restart on failure."),
        ANY_FILE,
    ] = Recovery.SUBGRAPH,
    workers: Annotated[
        int,
        typer.Option("--workers", metavar="N", parser=at_least(2),
                     help="Number of workers, for --recovery local."),
        ANY_FILE,
    ] = 3,
    exhaustive: Annotated[
        bool,
        typer.Option("--exhaustive", help="Try every interleaving, with one failure."),
        ANY_FILE,
    ] = False,
    max_states: Annotated[
        int,
        typer.Option("--max-states", metavar="N", parser=at_least(1), help="Limit of --exhaustive."),
        ANY_FILE,
    ] = 1_000_000,
    trace: Annotated[
        bool, typer.Option("--trace", help="Show the last run as a diagram."), ANY_FILE
    ] = False,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="FILE", help="Write the diagram: .svg or .html."),
        CHOSEN_FILE,
    ] = None,
    force: Force = False,
    check: Annotated[
        list[str] | None,
        typer.Option("--check", metavar="FILE", show_default=False,
                     help="Trace of a real run to verify; repeatable."),
        CHOSEN_FILE,
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="With --check: fail if an expected event is missing."),
        ANY_FILE,
    ] = False,
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Simulate the snapshot protocol of a job with failures.

    It runs the state machines of 'abs run' on the job's graph, under a seeded scheduler that delays and loses messages
    and crashes tasks. Every run is checked: snapshots are consistent, and state and output equal a run without
    failures. A violation exits with code 3, and prints the seed, the shortest trace and a diagram. The job itself is
    not run; counters replace its operators. --exhaustive tries every interleaving of a small job. --check verifies the
    trace of a real run ('abs run --trace') instead.
    """
    from abscli.jobs.files import read_job
    from abscli.protocol.policy import Policy as Protocol
    from abscli.sim import report
    from abscli.sim.campaign import Failures
    from abscli.sim.model import Model, narrowed
    from abscli.text import simulate as render
    from abscli.text.columns import counted

    if check:
        if job is not None or example is not None:
            raise typer.BadParameter("traces are checked by themselves", param_hint="'--check'")
        _check(check, output, strict=strict)
        return
    file = None if out is None else _picture_file(out, force=force)
    if (job is None) == (example is None):
        raise typer.BadParameter("give a topology file, or --example", param_hint="JOB")
    if job is None:
        _single_token(output, file)
        return
    topology = read_job(job).topology
    narrow = narrowed(topology, subtasks)
    if narrow != topology:
        note(f"operators are simulated with at most {counted(subtasks, 'subtask')} (--subtasks)")
    model = Model.of(narrow, records)
    failures = Failures(crash)
    simulated_workers = workers if recovery is Recovery.LOCAL else 0
    policies = list(Protocol) if policy is None else [Protocol(policy)]
    with progress() as show:
        if exhaustive:
            result = report.every_interleaving(model, policies, failures, max_states, show, simulated_workers)
        else:
            seeds = range(seed, seed + runs)
            result = report.random_runs(model, policies, failures, seeds, show, simulated_workers)
    picture: Diagram | None = None
    if result.finding is not None:
        picture = result.finding.diagram
    elif trace or out is not None:
        picture = report.one_run(model, policies[0], failures, seed + runs - 1, simulated_workers)
    if output is Output.JSON:
        emit_json(render.simulated_json(result))
    elif output is Output.NDJSON:
        emit_ndjson(*render.items(result))
    else:
        shown = picture if trace or result.finding else None
        emit_text(render.simulated_text(result, width=width(), ascii=plain_ascii(), picture=shown))
    if file is not None and picture is not None:
        _write(picture, file)
    if result.finding is not None:
        raise typer.Exit(exits.FINDING)


def _is_page(path: str) -> bool:
    return path.lower().endswith((".html", ".htm"))


def _picture_file(path: str, *, force: bool) -> OutputFile:
    from abscli.draw import spacetime_html, svg
    from formats.output_file import OutputFile, beginning_with

    beginning = spacetime_html.BEGINNING if _is_page(path) else svg.BEGINNING
    file = OutputFile(path, beginning_with("diagram", beginning.encode()), force)
    file.check()  # before the simulation, which may take hours
    return file


def _write(picture: Diagram, file: OutputFile) -> None:
    from abscli.draw.spacetime_html import spacetime_html
    from abscli.draw.spacetime_svg import spacetime_svg
    from formats.output_file import write_whole

    text = spacetime_html(picture) if _is_page(file.path) else spacetime_svg(picture)
    write_whole(file, text.encode())
    note(f"wrote {file.path}")


def _check(paths: list[str], output: Output, *, strict: bool) -> None:
    from abscli.sim.traces import check_traces
    from abscli.text import traces
    from formats.redaction import refuse_credentials_in

    refuse_credentials_in(tuple(paths), "--check")
    campaign = check_traces(paths)
    if output is Output.TABLE:
        emit_text(traces.text(campaign, width()))
    elif output is Output.JSON:
        emit_json(traces.to_json(campaign))
    else:
        emit_ndjson(traces.to_json(campaign))
    if campaign.first is not None or (strict and campaign.absent):
        raise typer.Exit(exits.FINDING)


def _single_token(output: Output, file: OutputFile | None) -> None:
    from abscli.sim.chandy_lamport.systems import single_token, token_on_its_way
    from abscli.text.simulate import token_json, token_text

    result = single_token()
    if output is Output.TABLE:
        emit_text(token_text(result, width()))
    elif output is Output.JSON:
        emit_json(token_json(result))
    else:
        emit_ndjson(token_json(result))
    if file is not None:
        _write(token_on_its_way(), file)
    if not result.holds:
        raise typer.Exit(exits.FINDING)
