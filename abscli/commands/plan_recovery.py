"""`abs plan-recovery`: what must restart, and from where."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import Failed, OutputForm, PathMap, Quiet, Search, Verbose, at_least
from abscli.cli.output import Output, note, width
from abscli.cli.reading import FormatChoice

if TYPE_CHECKING:
    from abscli.api import RecoveryPlan

EXAMPLES = (
    ("abs plan-recovery snapshots --out plan.json", "The job is down: a plan back to the newest whole epoch."),
    ("abs plan-recovery snapshots@7 --out plan.json", "The same, to epoch 7."),
    ("abs plan-recovery snapshots --failed counts/1", "The job runs and one task has died: what must restart."),
    ("abs plan-recovery checkpoint --out plan.json", "A Spark query: a plan back to the newest exact batch."),
    ("abs plan-recovery checkpoint --path-map /old=/new --out plan.json", "The same, with its inputs at a new place."),
    ("abs plan-recovery checkpoints/0d9f... --search savepoints --out plan.json", "Flink's newest whole checkpoint."),
    ("abs plan-recovery --topology job.yaml --failed counts/1 -o json", "The same from the graph alone."),
)
EXIT_STATUS = exits.status(
    3, 4, 10, 12,
    _0="There is a plan.",
    _2="A bad option, an unknown task, or a topology file that does not hold.",
    _3="A file that the plan needs is damaged.",
)


class Strategy(StrEnum):
    """How a whole epoch is come by."""

    AUTO = "auto"
    FULL = "full"
    REPAIR = "repair"


def plan_recovery(
    ref: Annotated[
        str | None,
        typer.Argument(metavar="REF", show_default=False,
                       help="Store, or one of its epochs (PATH@7); left out with --topology."),
    ] = None,
    topology: Annotated[
        str | None,
        typer.Option("--topology", metavar="JOB",
                     help="Plan from this topology file, or Flink's plan JSON, alone; needs --failed."),
    ] = None,
    failed: Failed = None,
    strategy: Annotated[
        Strategy,
        typer.Option("--strategy", help="full: every task goes back; auto: the same. repair: not in this version."),
    ] = Strategy.AUTO,
    distrust: Annotated[
        list[str] | None,
        typer.Option("--distrust", metavar="TASK", help="Do not use this task's part of the epoch; repeatable."),
    ] = None,
    epoch: Annotated[
        int | None, typer.Option("--epoch", metavar="N", parser=at_least(0), help="The epoch to come by; as in PATH@N.")
    ] = None,
    parallelism: Annotated[
        list[str] | None,
        typer.Option("--parallelism", metavar="OP=N", help="Not in this version: restore this operator with N tasks."),
    ] = None,
    query_id: Annotated[
        str | None,
        typer.Option("--query-id", metavar="UUID", help="Of a Spark checkpoint that has lost its own: the query's id."),
    ] = None,
    keep_in_flight: Annotated[
        bool,
        typer.Option("--keep-in-flight",
                     help="Of a Spark checkpoint: the batch after N runs again with exactly the input that it had."),
    ] = False,
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Write the plan to this file, for 'abs restore'.")
    ] = None,
    search: Search = None,
    path_map: PathMap = None,
    format: FormatChoice = None,
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Plan what must restart, and from where.

    With a store: the job is down, and the plan says how to get a whole epoch again. With --failed: the job runs and
    these tasks have died; the plan names the tasks that must restart, the receivers that drop what they have already
    seen, and why. With --topology the same is worked out from the graph alone.

    Of a Spark checkpoint: back to the newest batch from which a restart gives exact results (or @N), why not a newer
    one, what a copy is made of, and what the sink will see again.
    Of Flink's checkpoints: the newest that is whole, why newer ones are not, and what a copy sets right.

    Nothing is changed. A plan lists every file and digest that it relies on; 'abs restore' refuses it when they have
    changed.
    """
    from abscli.api import open_store, plan_graph
    from abscli.cli.plans import option_errors
    from abscli.cli.running import watching
    from formats.reference import parse_reference

    if topology is not None:
        if ref is not None:
            raise typer.BadParameter("REF and --topology exclude each other", param_hint="'--topology'")
        if not failed:
            message = "a graph alone has no epochs: name the dead tasks with --failed"
            raise typer.BadParameter(message, param_hint="'--topology'")
        _show(plan_graph(topology, failed), output, out)
        return
    if ref is None:
        raise typer.BadParameter("a store (REF) or --topology is needed", param_hint="'REF'")
    path, named = parse_reference(ref)
    if epoch is not None and isinstance(named, int) and epoch != named:
        raise typer.BadParameter(f"REF names epoch {named}, --epoch {epoch}", param_hint="'--epoch'")
    store = open_store(path, format=format)
    with option_errors(), watching() as watch:
        plan = store.plan(
            epoch if epoch is not None else named if isinstance(named, int) else None,
            failed=failed or (),
            repair=strategy is Strategy.REPAIR,
            distrust=distrust or (),
            parallelism=parallelism or (),
            query_id=query_id,
            keep_in_flight=keep_in_flight,
            search=search or (),
            path_map=path_map or (),
            watch=watch,
        )
    _show(plan, output, out)


def _show(plan: RecoveryPlan, output: Output, out: str | None) -> None:
    from abscli.cli.plans import show_plan

    if out is not None:
        plan.save(out)
    show_plan(plan.encoded(), output, lambda: plan.text(width=width(), plan_file=out), plan.recovery)
    if out is not None and output is Output.TABLE:
        note(f"plan written to {out}")
