"""`abs plan-recovery`: what must restart, and from where."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import Failed, OutputForm, Quiet, Verbose, at_least
from abscli.cli.output import Output, note, width
from abscli.cli.reading import AS_TYPED, Reading, reads

if TYPE_CHECKING:
    from abscli.api import RecoveryPlan

EXAMPLES = (
    ("abs plan-recovery snapshots --out plan.json", "The job is down: a plan back to the newest whole epoch."),
    ("abs plan-recovery snapshots@7 --out plan.json", "The same, to epoch 7."),
    ("abs plan-recovery snapshots@7 --strategy repair --out plan.json", "Make epoch 7 whole, which has lost a file."),
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


class Recovery(StrEnum):
    """What restarts when tasks of a running job are lost."""

    SET = "set"
    LOCAL = "local"


@reads("search", "path_map")
def plan_recovery(
    ref: Annotated[
        str | None,
        typer.Argument(metavar="REF", show_default=False,
                       help="Store, or one of its epochs (PATH@7); left out with --topology."),
    ] = None,
    topology: Annotated[
        str | None,
        typer.Option("--topology", metavar="JOB",
                     help="Plan from this job file, one of Python is imported, or Flink's plan JSON, alone; needs "
                     "--failed."),
    ] = None,
    failed: Failed = None,
    failed_worker: Annotated[
        list[int] | None,
        typer.Option("--failed-worker", metavar="N", parser=at_least(0),
                     help="A worker of the running job that is lost, by its number from 0: all of its tasks; "
                     "repeatable."),
    ] = None,
    recovery: Annotated[
        Recovery,
        typer.Option("--recovery",
                     help="Of a running job: the recovery set goes back (set), or the lost tasks take their steps "
                     "again, alone (local)."),
    ] = Recovery.SET,
    strategy: Annotated[
        Strategy,
        typer.Option("--strategy",
                     help="full: every task goes back; auto: the same. repair: make the epoch whole that is not."),
    ] = Strategy.AUTO,
    distrust: Annotated[
        list[str] | None,
        typer.Option("--distrust", metavar="TASK", help="Do not use this task's part of the epoch; repeatable."),
    ] = None,
    epoch: Annotated[
        int | None,
        typer.Option("--epoch", metavar="EPOCH", parser=at_least(0), help="The epoch to come by; as in PATH@7."),
    ] = None,
    parallelism: Annotated[
        list[str] | None,
        typer.Option("--parallelism", metavar="OP=N", help="Restore this operator with N tasks; repeatable."),
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
    set_offset: Annotated[
        list[str] | None,
        typer.Option("--set-offset", metavar="SOURCE:SPLIT=N",
                     help="Of a Spark checkpoint: go on from N in a partition of Kafka (0:orders-3=12), or from "
                          "version N of a Delta table (0:version=7); repeatable."),
    ] = None,
    name_source: Annotated[
        list[str] | None,
        typer.Option("--name-source", metavar="SOURCE=NAME",
                     help="Of a Spark checkpoint: a source gets this name (0=orders), so that others may come and go."),
    ] = None,
    sink: Annotated[
        str | None,
        typer.Option("--sink", metavar="OUTPUT",
                     help="Of a Spark checkpoint: the output of the query's file sink, whose log goes back as well."),
    ] = None,
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Write the plan to this file, for 'abs restore'.")
    ] = None,
    reading: Reading = AS_TYPED,
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Plan what must restart, and from where.

    With a store: the job is down, and the plan says how to get a whole epoch again. With --failed or --failed-worker:
    the job runs and these tasks have died; the plan names the tasks that must restart, the receivers that drop what
    they have already seen, and why. It is what 'abs run' does by itself when a worker is lost. With --topology the same
    is worked out from the graph alone.

    With --recovery local it is planned for a job whose workers keep schedules and frames: the lost tasks take their
    steps again, and all others stay. A lost task of an operator that is marked `deterministic: false` goes back without
    its steps, and so does all that receives from it, near or far; where a task that was not lost is among those,
    everything goes back, and the reasons say so. At least once everything goes back as well where both ends of a
    channel are lost and the receiver's copy is ahead of the sender's. It is the set that 'abs run --recovery local'
    restarts, but for what a store does not say: before its first complete epoch, where a worker has not kept all its
    frames, and where a function does something else the second time, 'abs run' takes everything back.

    With --strategy repair an epoch that is incomplete or damaged, or of which some parts are not to be used
    (--distrust), is made whole itself: the tasks whose parts are missing, and those that go with them, run again from
    the newest whole epoch before it up to its barrier; the other parts stay. The job must be down. It is refused, with
    exit code 4, where that cannot give what the epoch was.

    Of a Spark checkpoint: back to the newest batch from which a restart gives exact results (or @N), why not a newer
    one, what a copy is made of, and what the sink will see again. With --sink OUTPUT the log of a file sink (parquet,
    json, csv, ...), OUTPUT/_spark_metadata, goes back with it: a sink skips the batches that its log has, and would
    lose what they read now. Nothing else of the output is touched: files of later batches are no longer part of it.
    With --set-offset a source goes on from another place than where the batch ended; the plan says what is skipped
    or read twice. State stays that of the batch. A partition of Kafka can be set, and the version of a Delta table, all
    of whose changes are read from there on; other sources are refused with the reason.
    With --name-source for each source (0=orders 1=refunds, in the order in which the query names them) the copy has an
    offset log of version 2. From it Spark 4.2 and later start a query whose sources have these names (name() of
    readStream, with spark.sql.streaming.queryEvolution.enableSourceEvolution set to true), in any order, with one more
    or one less; Spark itself refuses to turn that on for a query that has run without it. Of sources that have names
    already single ones get another.
    Of Flink's checkpoints: the newest that is whole, why newer ones are not, and what a copy sets right.

    Nothing is changed. A plan lists every file and digest that it relies on; 'abs restore' refuses it when they have
    changed.
    """
    from abscli.api import open_store, plan_graph
    from abscli.cli.plans import option_errors
    from abscli.cli.running import watching

    if topology is not None:
        if ref is not None:
            raise typer.BadParameter("REF and --topology exclude each other", param_hint="'--topology'")
        if not failed:
            message = "a graph alone has no epochs: name the dead tasks with --failed"
            raise typer.BadParameter(message, param_hint="'--topology'")
        if failed_worker:
            message = "only a store says on how many workers its job runs: name the dead tasks with --failed"
            raise typer.BadParameter(message, param_hint="'--failed-worker'")
        _show(plan_graph(topology, failed, local=recovery is Recovery.LOCAL), output, out)
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
            name_source=name_source or (),
            sink=sink,
            search=reading.search or (),
            path_map=reading.path_map or (),
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
