"""`abs restore`: carries a recovery plan out."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import Engine, EngineChoice, Master, OutputForm, PolicyChoice, Quiet, Verbose
from abscli.cli.output import Output, note, say, width

if TYPE_CHECKING:
    from formats.plan import Plan

EXAMPLES = (
    ("abs restore plan.json --job job.yaml", "Restores, and asks before it changes the store."),
    ("abs restore plan.json --job job.yaml --dry-run", "Checks that the plan still holds, and changes nothing."),
    ("abs restore plan.json --to recovered-checkpoint", "A Spark checkpoint: a copy that ends with the plan's batch."),
    ("abs restore plan.json --to /srv/copy", "A plan for Flink: a copy that 'flink run -s' can start from."),
    ("abs restore plan.json --job job.yaml --to recovered --yes", "Into another store, without a question."),
)
EXIT_STATUS = exits.status(
    3, 4, 5, 6, 7, 10, 11, 12, 130, 143,
    _0="Restored; the new epoch is complete.",
    _2="A bad option, a plan or topology file that does not hold, a job that is not the plan's, or no --yes where "
    "nobody can be asked.",
    _3="A file that the plan relies on is damaged, or parts of the output that belong to its epoch are gone.",
)


class Until(StrEnum):
    """How far a restore goes."""

    DRAINED = "drained"
    END = "end"


def restore(
    plan: Annotated[str, typer.Argument(metavar="PLAN", help="Plan file, as 'abs plan-recovery --out' writes it.")],
    job: Annotated[
        str | None,
        typer.Option("--job", metavar="JOB",
                     help="Topology file of the job: its code, and where its sources and sinks are. A plan of a store "
                     "of abs needs it."),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="PATH", show_default=False,
                     help="Store that the restored epoch goes to; default: the plan's own. Of Flink and Spark: a new "
                     "directory."),
    ] = None,
    engine: EngineChoice = Engine.SPARK,
    master: Master = "local[*]",
    until: Annotated[
        Until,
        typer.Option("--until", help="drained: stop when the logs are replayed; end: go on to the end of the input."),
    ] = Until.DRAINED,
    policy: PolicyChoice = None,
    accept_missing_parts: Annotated[
        bool,
        typer.Option("--accept-missing-parts", help="Go on although parts of the output that belong to it are gone."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the plan against the store and say what would be done.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Carry a recovery plan out.

    State is restored, the logs become the heads of their channels and are replayed, and a new complete epoch ends it;
    'abs run --resume' goes on from there. A plan whose inputs have changed is refused. The code that
    runs and the paths of sources and sinks are those of --job, never something from the store.

    A plan of a Spark checkpoint needs --to alone: a checked copy appears there in one step, without a JVM and without
    a question, since nothing that was there is touched. The query goes on from it when it is started with that folder
    as its checkpointLocation.

    Of a plan for Flink a self-contained copy of the checkpoint is written to --to, with a new _metadata that refers to
    the copied files, and the 'flink run -s' line that starts a job from it is printed. The checkpoint is only read.
    """
    import os
    import shlex

    from abscli.cli.running import again_json, check_directory, emit_result, job_progress, note_taken_over
    from abscli.engine.job import JobOptions
    from abscli.planner.repeats import total
    from abscli.stores.flink.plan_file import is_flink_plan
    from abscli.stores.native import restore as recovery
    from formats.bounds import bound_memory, check_json, read_user_file
    from formats.job.file import parse_topology
    from formats.open import open_native
    from formats.plan import BadPlan, decode, schema_of

    data = read_user_file(plan)
    check_json(data, plan, kind=BadPlan)
    if schema_of(data) == "abs.spark-plan":
        bound_memory()  # what follows only reads; a job's state may be of any size
        from abscli.commands.spark_recovery import restore_checkpoint

        if job is not None:
            raise typer.BadParameter("a Spark query is started by its own program: leave it out", param_hint="'--job'")
        restore_checkpoint(data, plan, to, dry_run=dry_run, form=output)
        return
    if is_flink_plan(data):
        bound_memory()
        from abscli.commands import flink_recovery

        flink_recovery.restore(data, plan, to, output, dry_run=dry_run)
        return
    planned = decode(data, plan)
    if planned.store is None or planned.epoch is None:
        raise typer.BadParameter("the plan is from a graph alone, without a store: there is nothing to restore from",
                                 param_hint="'PLAN'")  # fmt: skip
    if job is None:
        raise typer.BadParameter(
            f"name the topology file of {planned.job!r}: code, and paths of sources and sinks, come from there, never "
            "from the store", param_hint="'--job'",
        )  # fmt: skip
    if to is not None:
        check_directory(to, "--to")
    topology, directory = parse_topology(job), os.path.dirname(os.path.abspath(job))
    store = open_native(planned.store, purpose="`abs restore`")
    recovery.check_plan(planned, store, topology)
    if dry_run:
        from abscli.cli.plans import show_plan
        from abscli.text.plan import items, plan_text

        word = shlex.quote(job)
        show_plan(data, output, lambda: plan_text(planned, width=width(), plan_file=plan, job=word), items)
        note("the plan holds; nothing was changed (--dry-run)")
        return
    if not yes:
        _ask(planned, plan)
    options = JobOptions(
        directory=directory,
        job_hint=shlex.quote(job) + (" --engine inline" if engine is Engine.INLINE else ""),
        engine=engine,
        master=master,
        policy=policy,
        keep=None,
        until="drained" if until is Until.DRAINED else "end",
        accept_missing=accept_missing_parts,
    )
    with job_progress(planned.job) as show:
        done = recovery.restore(planned, topology, options, to=to, on_progress=show, on_news=show.news)
    result = {
        "schema": "abs.restore", "version": "1.0", "store": done.store, "epoch": done.epoch, "parent": done.parent,
        "tasks": done.tasks, "state_rows": done.state_rows, "replayed": done.replayed,
        "elapsed": round(done.elapsed, 3), "finished": done.finished, "policy": done.policy,
        "repeats": again_json(done.repeats),
    }  # fmt: skip
    text = (
        f"restored epoch {done.parent} as epoch {done.epoch} in {done.elapsed:.1f} s: {done.tasks} tasks, "
        f"{done.state_rows:,} rows of state, {done.replayed:,} log records replayed"
    )
    if done.repeats:
        when = "came" if until is Until.END else "come"
        text += f"; {total(done.repeats):,} records {when} again, since epoch {done.parent} was taken at-least-once"
    emit_result(result, text, output)
    note_taken_over(done.taken_over)
    inline = " --engine inline" if engine is Engine.INLINE else ""
    if not done.finished or until is Until.DRAINED:
        where = shlex.quote(os.path.relpath(done.store) if not os.path.isabs(done.store) else done.store)
        note(f"next: abs run {shlex.quote(job)}{inline} --store {where} --resume")


def _ask(planned: Plan, path: str) -> None:
    import sys

    from abscli.text.plan import plan_text

    if not sys.stdin.isatty():
        raise typer.BadParameter("nobody can be asked here: give --yes to carry the plan out", param_hint="'--yes'")
    say(plan_text(planned, width=width(), plan_file=path))
    if not typer.confirm(f"Restore epoch {planned.epoch} in {planned.store}?", err=True):
        note("nothing was changed")
        raise typer.Exit(exits.INTERRUPTED)
