"""`abs plan-recovery`: what must restart, and from where."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import ANY_FILE, CHOSEN_FILE, Failed, Force, OutputForm, Quiet, Verbose, at_least
from abscli.cli.output import Output, note, width
from abscli.cli.reading import AS_TYPED, Reading, reads

if TYPE_CHECKING:
    from abscli.api import RecoveryPlan
    from formats.output_file import OutputFile

EXAMPLES = (
    ("abs plan-recovery checkpoints/0d9f... --out plan.json", "Plans a restore of the newest intact Flink checkpoint."),
    ("abs plan-recovery snapshots --failed counts/1", "Shows which tasks restart if this task fails."),
)
EXIT_STATUS = exits.status(
    3, 4, 10, 12,
    _0="There is a plan.",
    _3="A file that the plan needs is damaged.",
)
SEE_ALSO = ("restore", "validate", "run")
GUIDE = "runbooks/damaged-epoch.md"


class Strategy(StrEnum):
    """How a whole epoch is come by."""

    AUTO = "auto"
    FULL = "full"
    REPAIR = "repair"


class Recovery(StrEnum):
    """What restarts when tasks of a running job are lost."""

    SUBGRAPH = "subgraph"
    LOCAL = "local"


@reads("search", "path_map")
def plan_recovery(
    ref: Annotated[
        str | None,
        typer.Argument(metavar="REF", show_default=False,
                       help="Store or epoch, such as PATH@7 (not with --topology)."),
    ] = None,
    topology: Annotated[
        str | None,
        typer.Option("--topology", metavar="JOB",
                     help="Plan from a job file or Flink plan, without a store."),
        CHOSEN_FILE,
    ] = None,
    failed: Failed = None,
    failed_worker: Annotated[
        list[int] | None,
        typer.Option("--failed-worker", metavar="N", parser=at_least(0),
                     help="Number of a failed worker; repeatable."),
        ANY_FILE,
    ] = None,
    recovery: Annotated[
        Recovery,
        typer.Option("--recovery",
                     help="Running job: what to restart."),
        ANY_FILE,
    ] = Recovery.SUBGRAPH,
    strategy: Annotated[
        Strategy,
        typer.Option("--strategy",
                     help="Skip a damaged epoch, or repair it."),
        ANY_FILE,
    ] = Strategy.AUTO,
    distrust: Annotated[
        list[str] | None,
        typer.Option("--distrust", metavar="TASK", help="Treat TASK's snapshot as damaged; repeatable."),
        ANY_FILE,
    ] = None,
    epoch: Annotated[
        int | None,
        typer.Option("--epoch", metavar="EPOCH", parser=at_least(0), help="Epoch to recover (7 is PATH@7)."),
        ANY_FILE,
    ] = None,
    parallelism: Annotated[
        list[str] | None,
        typer.Option("--parallelism", metavar="OP=N", help="Restore operator OP with N tasks; repeatable."), ANY_FILE
    ] = None,
    query_id: Annotated[
        str | None,
        typer.Option("--query-id", metavar="UUID", help="Spark: query id, if the metadata file is lost."),
        ANY_FILE,
    ] = None,
    keep_in_flight: Annotated[
        bool,
        typer.Option("--keep-in-flight",
                     help="Spark: rerun the in-flight batch unchanged."),
        ANY_FILE,
    ] = False,
    set_offset: Annotated[
        list[str] | None,
        typer.Option("--set-offset", metavar="SOURCE:SPLIT=N",
                     help="Spark: set the next offset; repeatable."),
        ANY_FILE,
    ] = None,
    recreated: Annotated[
        list[str] | None,
        typer.Option("--recreated", metavar="SOURCE[=ID]",
                     help="Spark: topic or table was created again; repeatable."),
        ANY_FILE,
    ] = None,
    name_source: Annotated[
        list[str] | None,
        typer.Option("--name-source", metavar="SOURCE=NAME",
                     help="Spark: set the name of a source; repeatable."),
        ANY_FILE,
    ] = None,
    sink: Annotated[
        str | None,
        typer.Option("--sink", metavar="OUTPUT",
                     help="Spark: also rewind the log of this file sink."),
        CHOSEN_FILE,
    ] = None,
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Write the plan to this file."),
        CHOSEN_FILE,
    ] = None,
    force: Force = False,
    reading: Reading = AS_TYPED,
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Plan how to recover from a failure or damage.

    For a store whose job is down, it plans a restore of the newest intact epoch (or PATH@7), and shows why newer
    epochs cannot be used. --strategy repair plans to recompute the missing parts of an epoch. For Flink and Spark
    it plans a repaired copy. With --failed or --failed-worker it shows which tasks of a running job must restart.
    Nothing is changed: --out writes the plan for 'abs restore', which refuses it if the files have changed since.
    """
    from abscli.api import open_store, plan_graph
    from abscli.api.plans import plan_file
    from abscli.cli.plans import option_errors
    from abscli.cli.running import watching
    from formats.output_file import check_outside
    from formats.reference import parse_reference

    file = None if out is None else plan_file(out, force=force)
    if file is not None and out is not None:
        if ref is not None:
            check_outside(out, parse_reference(ref)[0])
        file.check()  # before the store is read, which may take minutes
    if topology is not None:
        if ref is not None:
            raise typer.BadParameter("REF and --topology exclude each other", param_hint="'--topology'")
        if not failed:
            message = "a graph alone has no epochs: name the dead tasks with --failed"
            raise typer.BadParameter(message, param_hint="'--topology'")
        if failed_worker:
            message = "only a store records the number of workers: list the failed tasks with --failed"
            raise typer.BadParameter(message, param_hint="'--failed-worker'")
        _show(plan_graph(topology, failed, local=recovery is Recovery.LOCAL), output, file)
        return
    if ref is None:
        raise typer.BadParameter("a store (REF) or --topology is needed", param_hint="'REF'")
    store = open_store(ref, format=reading.format)
    named = store.named
    if epoch is not None and isinstance(named, int) and epoch != named:
        raise typer.BadParameter(f"REF names epoch {named}, --epoch {epoch}", param_hint="'--epoch'")
    with option_errors(), watching() as watch:
        plan = store.plan(
            epoch if epoch is not None else named if isinstance(named, int) else None,
            failed=failed or (),
            failed_workers=failed_worker or (),
            local=recovery is Recovery.LOCAL,
            repair=strategy is Strategy.REPAIR,
            distrust=distrust or (),
            parallelism=parallelism or (),
            query_id=query_id,
            keep_in_flight=keep_in_flight,
            set_offset=set_offset or (),
            recreated=recreated or (),
            name_source=name_source or (),
            sink=sink,
            search=reading.search or (),
            path_map=reading.path_map or (),
            watch=watch,
        )
    _show(plan, output, file)


def _show(plan: RecoveryPlan, output: Output, file: OutputFile | None) -> None:
    from abscli.cli.plans import show_plan

    out = None if file is None else file.path
    if file is not None:
        plan.save(file.path, force=file.force)
    show_plan(plan.encoded(), output, lambda: plan.text(width=width(), plan_file=out), plan.recovery)
    if out is not None and output is Output.TABLE:
        note(f"plan written to {out}")
