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
    ("abs simulate --example single-token", "Every snapshot of the 1985 paper's system is one of its four states."),
    ("abs simulate job.yaml --runs 100000 -o json | jq .rows", "For a night or for CI, on all cores."),
)
EXIT_STATUS = exits.status(
    2, 12,
    _0="No property was violated.",
    _3="A property was violated: seed, the shortest trace that was found, and its diagram are shown.",
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


def simulate(
    job: Annotated[
        str | None,
        typer.Argument(metavar="JOB", show_default=False, help="Topology file, YAML or JSON; not with --example."),
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
    exhaustive: Annotated[
        bool, typer.Option("--exhaustive", help="Every interleaving instead of random ones, with one failure anywhere.")
    ] = False,
    worlds: Annotated[
        int, typer.Option("--worlds", metavar="N", parser=at_least(1), help="States after which --exhaustive gives up.")
    ] = 1_000_000,
    trace: Annotated[bool, typer.Option("--trace", help="Show the last run as a space-time diagram.")] = False,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="FILE", help="Write the diagram as SVG: of a violation, or of the last run."),
    ] = None,
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
    `deterministic: false` and `replayable` edges count; `ordered_output` is taken as not given, since a stand-in does
    not keep that promise.
    """
    from abscli.protocol.policy import Policy as Protocol
    from abscli.sim import report
    from abscli.sim.campaign import Failures
    from abscli.sim.model import Model, narrowed
    from abscli.text import simulate as render
    from formats.job.file import parse_topology

    if (job is None) == (example is None):
        raise typer.BadParameter("give a topology file, or --example", param_hint="JOB")
    if job is None:
        _single_token(output)
        return
    topology = parse_topology(job)
    narrow = narrowed(topology, subtasks)
    if narrow != topology:
        note(f"operators are simulated with at most {subtasks} subtasks (--subtasks)")
    model = Model.of(narrow, records)
    failures = Failures(crash)
    policies = list(Protocol) if policy is None else [Protocol(policy)]
    with progress() as show:
        if exhaustive:
            result = report.every_interleaving(model, policies, failures, worlds, show)
        else:
            result = report.random_runs(model, policies, failures, range(seed, seed + runs), show)
    picture: Diagram | None = None
    if result.finding is not None:
        picture = result.finding.diagram
    elif trace or out is not None:
        picture = report.one_run(model, policies[-1], failures, seed + runs - 1)
    if output is Output.JSON:
        emit_json(render.simulated_json(result))
    elif output is Output.NDJSON:
        emit_ndjson(*render.items(result))
    else:
        shown = picture if trace or result.finding else None
        emit_text(render.simulated_text(result, width=width(), ascii=plain_ascii(), picture=shown))
    if out is not None and picture is not None:
        from abscli.draw.spacetime_svg import spacetime_svg
        from formats.disk import writing

        with writing(out), open(out, "w", encoding="utf-8") as file:
            file.write(spacetime_svg(picture))
        note(f"wrote {out}")
    if result.finding is not None:
        raise typer.Exit(exits.FINDING)


def _single_token(output: Output) -> None:
    from abscli.sim.chandy_lamport.systems import single_token
    from abscli.text.simulate import token_json, token_text

    result = single_token()
    if output is Output.TABLE:
        emit_text(token_text(result, width()))
    elif output is Output.JSON:
        emit_json(token_json(result))
    else:
        emit_ndjson(token_json(result))
    if not result.holds:
        raise typer.Exit(exits.FINDING)
