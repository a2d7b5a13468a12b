"""`abs simulate`: a job's protocol under a seeded scheduler with failures."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import OutputForm, Policy, Quiet, Verbose, at_least
from abscli.cli.output import Output, emit_json, emit_ndjson, emit_text, note, plain_ascii, progress, width

if TYPE_CHECKING:
    from abscli.sim.diagram import Diagram

EXAMPLES = (
    ("abs simulate job.yaml", "A thousand runs under each policy, with crashes, losses and rescaled restores."),
    ("abs simulate job.yaml --policy aligned --seed 42 --runs 1 --trace", "One run, step by step, as a diagram."),
    ("abs simulate job.yaml --exhaustive --subtasks 1 --records 2", "Every interleaving of a small one, one failure."),
    ("abs simulate job.yaml --recovery local --crash partial", "Workers are lost, and only their tasks restart."),
    ("abs simulate job.yaml --seed 42 --runs 1 --out run.html", "The same as a page to go through, step by step."),
    ("abs simulate --example single-token --out token.svg", "A run of it as a picture: the token is on its way."),
    ("abs simulate --example single-token", "Every snapshot of the 1985 paper's system is one of its four states."),
    ("abs simulate job.yaml --runs 100000 -o json | jq .rows", "For a night or for CI, on all cores."),
)
EXIT_STATUS = exits.status(
    2, 12,
    _0="No property was violated.",
    _3="A property was violated: seed, the shortest trace that was found, and its diagram are shown. With --check: a "
    "line of a trace disagrees; with --strict also: a situation has never happened.",
)


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

    SET = "set"
    LOCAL = "local"


def simulate(
    job: Annotated[
        str | None,
        typer.Argument(metavar="JOB", show_default=False,
                       help="Job file: YAML, JSON, or Python, which is imported; not with --example."),
    ] = None,
    example: Annotated[
        Example | None,
        typer.Option("--example", help="In place of a job: Chandy and Lamport's own system of 1985, searched whole."),
    ] = None,
    runs: Annotated[
        int, typer.Option("--runs", metavar="N", parser=at_least(1), help="Runs under each policy.")
    ] = 1000,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", parser=at_least(0), help="Of the first run; the next has the next.")
    ] = 0,
    policy: Annotated[
        Policy | None, typer.Option("--policy", help="Only this policy.", show_default="all three")
    ] = None,
    crash: Annotated[
        Crash,
        typer.Option("--crash", help="What may fail: everything at once (full), single tasks while the rest goes on "
                                     "(partial), with another parallelism after it (rescale)."),
    ] = Crash.ANY,
    records: Annotated[
        int, typer.Option("--records", metavar="N", parser=at_least(0), help="Rows of each source task.")
    ] = 3,
    subtasks: Annotated[
        int, typer.Option("--subtasks", metavar="N", parser=at_least(1), help="Tasks of an operator, at most.")
    ] = 2,
    recovery: Annotated[
        Recovery,
        typer.Option("--recovery", help="What restarts at a loss: a task and its recovery set (set), or the tasks of a "
                                        "lost worker alone, which take their steps again (local)."),
    ] = Recovery.SET,
    workers: Annotated[
        int, typer.Option("--workers", metavar="N", parser=at_least(2), help="With --recovery local: how many.")
    ] = 3,
    exhaustive: Annotated[
        bool, typer.Option("--exhaustive", help="Every interleaving instead of random ones, with one failure anywhere.")
    ] = False,
    worlds: Annotated[
        int, typer.Option("--worlds", metavar="N", parser=at_least(1), help="States after which --exhaustive gives up.")
    ] = 1_000_000,
    trace: Annotated[bool, typer.Option("--trace", help="Show the last run as a space-time diagram.")] = False,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="FILE", help="Write the diagram of a violation, or of the last run, as a picture "
                                                   "(x.svg) or as a page to go through step by step (x.html)."),
    ] = None,
    check: Annotated[
        list[str] | None,
        typer.Option("--check", metavar="FILE", show_default=False,
                     help="In place of a job: a trace that 'abs run --trace' made, held against the machines; several "
                     "times for a campaign."),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="With --check: 3 also where one of the situations has never happened.")
    ] = False,
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Run a job's protocol under a seeded scheduler with failures.

    The state machines are those of `abs run`; operators are stand-ins that count what they see and pass it on. The
    scheduler picks the next event from the seed: which channel delivers and how much, what is slow, which write or ack
    is late or lost, when tasks or everything die. In every run it is checked that each cut is consistent, that
    snapshots and the job end, that state and output are those of a run without failures (at-least-once: nothing lost),
    that no older attempt completes an epoch, and that visible output never goes back. The same seed and version give
    the same run.

    A violation is a bug in abs: it is shown with its seed, the shortest trace that was found and a space-time diagram.
    The run that --trace and --out draw is the last one, under the first policy (aligned unless --policy says
    otherwise). In a picture what belongs to an epoch has its colour: its barriers, which are bold, and the cut, a
    dashed line through its copies; to the left of it, on coloured ground, is the work that its snapshot keeps, on grey
    ground work that a failure has undone. Records are thin; in colour where they pass a cut and are logged, red where
    they pass it backwards, as under at-least-once they may. Long stretches of records alone are pressed together, with
    a mark. A page (x.html) has a cursor that goes from step to step (arrow keys, or a click), with the state of each
    task.
    --check holds what a real job did against the same machines: each is made again and told what it was told, and has
    to answer what it answered; at every manifest the cut is checked as in a simulated run, and what tasks saw of each
    other has to fit. Of 'abs run --recovery local' also the steps that are taken again are followed: they have to come
    to all that those who went on had of a lost task, with barriers where they stood. The first line that disagrees is
    shown. Counted is what such a run should have come to before one
    relies on it: epochs given up, losses while others recover, logs that are restored.

    --recovery local puts the tasks on workers that log the order of their steps, tell each other with every frame, and
    keep what they have sent since the newest complete epoch. A lost worker's tasks take the same steps again; that
    nobody else goes back is checked, and that they come to the state in which they were. Where not all is kept (in some
    seeds there is a bound) everything restarts; with a lost task of an operator that is marked `deterministic: false`
    all that receives from it, near or far, goes back too. Counted is what runs came to. The rules are L1 to L11 of the
    protocol's page.

    `deterministic: false` and `replayable` edges count; `ordered_output` is taken as not given, since a stand-in does
    not keep that promise.
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
    if (job is None) == (example is None):
        raise typer.BadParameter("give a topology file, or --example", param_hint="JOB")
    if job is None:
        _single_token(output, out)
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
            result = report.every_interleaving(model, policies, failures, worlds, show, simulated_workers)
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
    if out is not None and picture is not None:
        _write(picture, out)
    if result.finding is not None:
        raise typer.Exit(exits.FINDING)


def _write(picture: Diagram, path: str) -> None:
    from abscli.draw.spacetime_html import spacetime_html
    from abscli.draw.spacetime_svg import spacetime_svg
    from formats.disk import writing

    with writing(path), open(path, "w", encoding="utf-8") as file:
        file.write(spacetime_html(picture) if path.lower().endswith((".html", ".htm")) else spacetime_svg(picture))
    note(f"wrote {path}")


def _check(paths: list[str], output: Output, *, strict: bool) -> None:
    from abscli.sim.traces import check_traces
    from abscli.text import traces

    campaign = check_traces(paths)
    if output is Output.TABLE:
        emit_text(traces.text(campaign, width()))
    elif output is Output.JSON:
        emit_json(traces.to_json(campaign))
    else:
        emit_ndjson(traces.to_json(campaign))
    if campaign.first is not None or (strict and campaign.absent):
        raise typer.Exit(exits.FINDING)


def _single_token(output: Output, out: str | None) -> None:
    from abscli.sim.chandy_lamport.systems import single_token, token_on_its_way
    from abscli.text.simulate import token_json, token_text

    result = single_token()
    if output is Output.TABLE:
        emit_text(token_text(result, width()))
    elif output is Output.JSON:
        emit_json(token_json(result))
    else:
        emit_ndjson(token_json(result))
    if out is not None:
        _write(token_on_its_way(), out)
    if not result.holds:
        raise typer.Exit(exits.FINDING)
