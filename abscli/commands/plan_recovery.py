"""`abs plan-recovery`: what must restart, and from where."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import Failed, OutputForm, PathMap, Quiet, Search, Verbose
from abscli.cli.output import Output, note, width
from abscli.cli.reading import FormatChoice, read_options

if TYPE_CHECKING:
    from abscli.cli.reading import StoreFormat
    from formats.plan import Plan

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
        int | None, typer.Option("--epoch", metavar="N", min=0, help="The epoch to come by; as in PATH@N.")
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
    if topology is not None:
        if ref is not None:
            raise typer.BadParameter("REF and --topology exclude each other", param_hint="'--topology'")
        if not failed:
            what = "a graph alone has no epochs: name the dead tasks with --failed"
            raise typer.BadParameter(what, param_hint="'--topology'")
        _show(_from_graph(topology, failed), output, out)
        return
    if ref is None:
        raise typer.BadParameter("a store (REF) or --topology is needed", param_hint="'REF'")
    kind = _kind(ref, format)
    if kind == "spark":
        from abscli.commands.spark_recovery import plan_checkpoint
        from formats.reference import parse_reference

        for given, name in ((failed, "--failed"), (distrust, "--distrust"), (parallelism, "--parallelism"),
                            (strategy is Strategy.REPAIR, "--strategy")):  # fmt: skip
            if given:
                raise typer.BadParameter("not of a Spark checkpoint: all of a query goes back", param_hint=f"'{name}'")
        path, named = parse_reference(ref)
        plan_checkpoint(path, named, epoch, query_id, path_map or [], keep_in_flight, output, out)
        return
    if query_id or keep_in_flight:
        raise typer.BadParameter("only of a Spark checkpoint", param_hint="'--query-id', '--keep-in-flight'")
    if kind == "flink":
        if failed or distrust or parallelism or strategy is Strategy.REPAIR:
            what = "of Flink's checkpoints a whole one is chosen: only --epoch, --search and --path-map apply"
            raise typer.BadParameter(what, param_hint="'REF'")
        from abscli.commands import flink_recovery
        from formats.reference import parse_reference

        path, named = parse_reference(ref)
        extra = read_options(search=search, path_map=path_map)
        flink_recovery.plan(path, epoch if epoch is not None else named, extra, output, out)
        return
    if search or path_map:
        what = "only files of Flink's and Spark's checkpoints are looked for"
        raise typer.BadParameter(what, param_hint="'--search'")
    _show(_from_store(ref, failed, strategy, distrust, epoch, parallelism, format), output, out)


def _kind(ref: str, format: StoreFormat | None) -> str:
    from abscli.stores.registry import recognise, storage_at
    from formats.reference import parse_reference

    path, _ = parse_reference(ref)
    return recognise(storage_at(path), format).name


def _from_store(
    ref: str,
    failed: list[str] | None,
    strategy: Strategy,
    distrust: list[str] | None,
    epoch: int | None,
    parallelism: list[str] | None,
    format: StoreFormat | None,
) -> Plan:
    from abscli.stores.native.own import open_native
    from abscli.stores.native.plan import plan_failed, plan_recovery
    from formats.reference import parse_reference

    if strategy is Strategy.REPAIR:
        raise typer.BadParameter("this version plans full recoveries, not repairs", param_hint="'--strategy'")
    if parallelism:
        raise typer.BadParameter("this version restores with the parallelism that an epoch has",
                                 param_hint="'--parallelism'")  # fmt: skip
    path, named = parse_reference(ref)
    store = open_native(path, format, purpose="`abs plan-recovery`")
    if failed:
        if distrust or epoch is not None or isinstance(named, int):
            raise typer.BadParameter("a running job goes on from its newest whole epoch: leave @N, --epoch and "
                                     "--distrust out", param_hint="'--failed'")  # fmt: skip
        return plan_failed(store, failed)
    if epoch is not None and isinstance(named, int) and epoch != named:
        raise typer.BadParameter(f"REF names epoch {named}, --epoch {epoch}", param_hint="'--epoch'")
    if store.running_attempt() is not None:
        note(f"a job runs on {path} now: this plan is stale at its next start; --failed TASK plans for a running job")
    number = epoch if epoch is not None else named if isinstance(named, int) else None
    if distrust:
        return plan_recovery(store, distrust=distrust, below=number)
    return plan_recovery(store, epoch=number)


def _from_graph(topology: str, failed: list[str]) -> Plan:
    from datetime import UTC, datetime

    from abscli.planner.plan import plan_partial
    from abscli.stores.registry import parse_job

    created = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return plan_partial(parse_job(topology), failed, created=created)


def _show(plan: Plan, form: Output, out: str | None) -> None:
    from abscli.cli.plans import write_plan
    from abscli.text.plan import items, plan_text
    from formats.plan import encode

    write_plan(encode(plan), form, out, lambda: plan_text(plan, width=width(), plan_file=out), items)
