"""`abs drill`: proves that an epoch can be restored."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import (
    Engine,
    EngineChoice,
    Insecure,
    LogFormat,
    Master,
    OutputForm,
    Quiet,
    Ref,
    StateMemory,
    Verbose,
)
from abscli.cli.output import LogForm, Output, progress, width

EXAMPLES = (
    ("abs drill snapshots --job job.yaml", "Restores the newest epoch aside, runs it, compares, and cleans up."),
    ("abs drill snapshots@before-upgrade --job job.yaml --engine inline", "That epoch, without a JVM."),
    ("abs drill checkpoint --deep", "Of a Spark checkpoint: Spark's own reader reads the copy, too."),
    ("abs drill snapshots --job job.yaml -o json | jq .elapsed", "The seconds that it took."),
)
EXIT_STATUS = exits.status(
    3, 4, 6, 7, 10, 12, 130, 143,
    _0="Restorable: proved, of the newest epoch or of the one that was named.",
    _3="It is not: something differs or is damaged. Or the newest epoch is damaged, and an older one was proved.",
    _4="No epoch can be restored; the message says why.",
)


def drill(
    ref: Ref,
    job: Annotated[
        str | None,
        typer.Option("--job", metavar="JOB",
                     help="Job file, whose code restores; one of Python is imported. A store of abs needs it."),
    ] = None,
    engine: EngineChoice = Engine.SPARK,
    master: Master = "local[*]",
    insecure: Insecure = False,
    state_memory: StateMemory = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Of a Spark checkpoint: have Spark's own reader read the copy, too.")
    ] = False,
    log_format: LogFormat = LogForm.TEXT,
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Prove that an epoch can be restored.

    Of a store of abs the newest epoch on the job's line that is whole, or that of PATH@7, is copied into a scratch
    folder, each file held against its digest, and restored there by the job's own code: state is loaded, what was on
    its way is replayed, and a fresh epoch is taken. Sources read nothing; sinks write into the scratch folder and
    nowhere else. Then the state of both epochs is compared key by key, and where the sources stand. Of operators that
    replayed records reach only lost keys count as a difference. The scratch folder is removed. The store is only read;
    a job may run on it. What functions of the job do besides, such as calls to a service, is not kept from happening.

    Where the newest epoch is damaged the next older one is tried, and the command ends with 3 even if that is proved.

    Of Flink and Spark the copy that 'abs restore' makes is written to the scratch folder, all of it is checked, and its
    state compared with that of the checkpoint; Flink or Spark does not start. The page says what was not proved.

    The scratch folder lies in TMPDIR, and takes as much room as the epoch, twice; with a --master on other hosts TMPDIR
    has to lie where all of them see it. What a drill that was killed has left is removed by the next command that
    needs such a folder.
    """
    from abscli.api import open_store
    from abscli.cli.plans import option_errors
    from abscli.cli.running import emit_result, watching
    from abscli.stores import drills as page

    store = open_store(ref)
    store.check_options(deep=deep)
    with contextlib.ExitStack() as running:
        reader = None
        if deep:
            with progress() as show:
                reader = running.enter_context(store.own_reader(master, show))
        with option_errors(), watching() as watch:
            drilled = store.drill(
                job=job, engine=engine, master=master, state_memory=state_memory, insecure=insecure, reader=reader,
                watch=watch,
            )  # fmt: skip
    text = page.text(drilled, "epoch", width=width())
    emit_result(page.to_json(drilled), text, output)
    if not drilled.good:
        raise typer.Exit(exits.FINDING)
