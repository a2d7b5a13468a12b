"""`abs restore`: carries a recovery plan out."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import (
    ANY_FILE,
    CHOSEN_FILE,
    NO_FILE,
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
    TakeOwnership,
    Verbose,
)
from abscli.cli.output import LogForm, Output, note, say, width

EXAMPLES = (
    ("abs restore plan.json --job job.yaml", "Restores an epoch of abs, after a question."),
    ("abs restore plan.json --to /srv/copy", "Writes a copy of a Flink or Spark checkpoint."),
)
EXIT_STATUS = exits.status(
    3, 4, 5, 6, 7, 10, 11, 12, 130, 143,
    _0="Restored; the new epoch, or the copy, is complete.",
    _2="Usage: invalid option, plan or job, or nobody can confirm: use --yes.",
    _3="A file of the plan is damaged, or parts of the output are missing.",
)
SEE_ALSO = ("plan-recovery", "run", "drill")
GUIDE = "runbooks/damaged-epoch.md"


class Until(StrEnum):
    """How far a restore goes."""

    DRAINED = "drained"
    END = "end"


def restore(
    plan: Annotated[str, typer.Argument(metavar="PLAN", help="Plan from 'abs plan-recovery --out'.")],
    job: Annotated[
        str | None,
        typer.Option("--job", metavar="JOB",
                     help="Job file; required for an abs store."),
        CHOSEN_FILE,
    ] = None,
    store: Annotated[
        list[str] | None,
        typer.Option("--store", metavar="PATH", show_default=False,
                     help="Remote location the plan may use; repeatable."),
        CHOSEN_FILE,
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="PATH", show_default=False,
                     help="Store or directory to restore into."),
        CHOSEN_FILE,
    ] = None,
    sink_to: Annotated[
        str | None,
        typer.Option("--sink-to", metavar="PATH", show_default=False,
                     help="Spark: new directory for the log of the file sink."),
        CHOSEN_FILE,
    ] = None,
    engine: EngineChoice = Engine.SPARK,
    master: Master = "local[*]",
    insecure: Insecure = False,
    until: Annotated[
        Until,
        typer.Option("--until", help="Stop after replay or at input end."),
        ANY_FILE,
    ] = Until.DRAINED,
    policy: PolicyChoice = None,
    state_memory: StateMemory = None,
    take_ownership: TakeOwnership = False,
    accept_missing_parts: AcceptMissingParts = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the plan; change nothing."), ANY_FILE
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask."), NO_FILE] = False,
    log_format: LogFormat = LogForm.TEXT,
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Execute a recovery plan.

    For a store of abs it restores state and logged records into a new complete epoch, from which 'abs run --resume'
    continues. It asks first, unless you give --yes. Code, sources and sinks are those of --job, never those of the
    store. For Flink and Spark it writes a verified copy to --to, and prints the command that starts a job from
    it; the checkpoint itself is only read. A plan whose files have changed is refused.
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
            take_ownership=take_ownership,
            accept_missing=accept_missing_parts,
            insecure=insecure,
            dry_run=dry_run,
            store=store or (),
        )

    def text() -> str:
        return planned.text(width=width(), job=job)

    if dry_run:
        show_plan(planned.encoded(), output, text, planned.recovery)
        note("the plan is valid; nothing was changed (--dry-run)")
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
