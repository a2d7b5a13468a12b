"""`abs restore`: carries a recovery plan out."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import (
    AcceptMissingParts,
    Engine,
    EngineChoice,
    Insecure,
    LogFormat,
    Master,
    OutputForm,
    PolicyChoice,
    Quiet,
    StateMemory,
    Verbose,
)
from abscli.cli.output import LogForm, Output, note, say, width

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
                     help="Job file: its code, and where sources and sinks are; one of Python is imported. A plan of a "
                     "store of abs needs it."),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="PATH", show_default=False,
                     help="Store that the restored epoch goes to, a directory or s3://BUCKET/PATH; default: the plan's "
                     "own. Of Flink and Spark: a new directory, or an empty place in a bucket."),
    ] = None,
    sink_to: Annotated[
        str | None,
        typer.Option("--sink-to", metavar="PATH", show_default=False,
                     help="Of a plan made with --sink: new directory for the log of the file sink."),
    ] = None,
    engine: EngineChoice = Engine.SPARK,
    master: Master = "local[*]",
    insecure: Insecure = False,
    until: Annotated[
        Until,
        typer.Option("--until", help="drained: stop when the logs are replayed; end: go on to the end of the input."),
    ] = Until.DRAINED,
    policy: PolicyChoice = None,
    state_memory: StateMemory = None,
    accept_missing_parts: AcceptMissingParts = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the plan against the store and say what would be done.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    log_format: LogFormat = LogForm.TEXT,
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Carry a recovery plan out.

    State is restored, the logs become the heads of their channels and are replayed, and a new complete epoch ends it;
    'abs run --resume' goes on from there. A plan whose inputs have changed is refused. The code that
    runs and the paths of sources and sinks are those of --job, never something from the store. Its topology is the
    plan's, but for operators that are new, or that its 'moved' and 'removed' speak of (see 'abs run').

    A repair (a plan made with --strategy repair) runs in this process, whatever the engine, and changes nothing before
    what it made is proved: against the counters of the parts that stay, and against what is left of those that it
    replaces. If they do not agree it is refused with exit code 4. What was damaged moves to aside/ in the store. The
    tasks are as many as they were in the epoch, whatever the job file says. 'abs run --resume' then goes on from the
    epoch itself.

    With a --master on other hosts what goes between them is encrypted, and Spark has to encrypt, too; --insecure does
    without (see 'abs run').

    A plan of a Spark checkpoint needs --to alone: a checked copy appears there in one step, without a JVM and without
    a question, since nothing that was there is touched. The query goes on from it when it is started with that folder
    as its checkpointLocation. Of a plan made with --sink the log of the file sink, brought back to the same batch, is
    written to --sink-to; the commands that put it in the place of OUTPUT/_spark_metadata are printed, to be run before
    the query is started.

    Of a plan for Flink a self-contained copy of the checkpoint is written to --to, with a new _metadata that refers to
    the copied files, and the 'flink run -s' line that starts a job from it is printed. The checkpoint is only read.

    Copies of Flink's and Spark's checkpoints may go into a bucket (s3://, s3a://, s3p://, gs://, abfs://), from there
    or from a directory; files in the copy that name others say the place as --to does, and Spark's
    by s3a:// where they did. A bucket renames nothing: the
    copy is written in its place, which has to be empty, and counts with its last file (_metadata of Flink, metadata of
    Spark), which is put when all else was checked. One that was broken off is no store for any command, and the same
    command with the same plan and --to finishes it: what is there is compared, and kept. Of several that go to one
    place at once one wins. Parts of large files that were under way when a process was killed stay in the bucket
    until its rules (AbortIncompleteMultipartUpload) remove them.
    """
    from abscli.api import read_plan
    from abscli.cli.output import emit_rows
    from abscli.cli.plans import option_errors, show_plan
    from abscli.cli.running import check_directory, emit_result, warn_of_clear, watching
    from abscli.engine.sinks.staged.printed import print_with
    from formats.bounds import bound_memory

    planned = read_plan(plan)
    if not planned.recovery.runs_job:
        bound_memory()  # what follows only reads; a job's state may be of any size
    elif to is not None:
        check_directory(to, "--to")
    with option_errors():
        prepared = planned.prepare(
            to,
            sink_to=sink_to,
            job=job,
            engine=engine,
            master=master,
            policy=policy,
            until=until,
            state_memory=state_memory,
            accept_missing=accept_missing_parts,
            insecure=insecure,
            dry_run=dry_run,
        )

    def text() -> str:
        return planned.text(width=width(), job=job)

    if dry_run:
        show_plan(planned.encoded(), output, text, planned.recovery)
        note("the plan holds; nothing was changed (--dry-run)")
        return
    if planned.recovery.runs_job and not yes:
        _ask(text(), f"Restore epoch {planned.epoch} in {planned.plan.store}?")
    warn_of_clear(insecure)
    print_with(emit_rows)
    with watching() as watch:
        restored = prepared.carry_out(watch)
    emit_result(restored.to_json(), restored.text(width=width()), output)
    for line in restored.notes:
        note(line)


def _ask(plan: str, question: str) -> None:
    import sys

    if not sys.stdin.isatty():
        raise typer.BadParameter("nobody can be asked here: give --yes to carry the plan out", param_hint="'--yes'")
    say(plan)
    if not typer.confirm(question, err=True):
        note("nothing was changed")
        raise typer.Exit(exits.INTERRUPTED)
