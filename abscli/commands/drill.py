"""`abs drill`: proves that an epoch can be restored."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import (
    CHOSEN_FILE,
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
    ("abs drill snapshots --job job.yaml --engine inline", "Proves that the newest epoch can be restored."),
    ("abs drill checkpoint --deep", "Reads the copy of a Spark checkpoint with Spark's reader."),
)
EXIT_STATUS = exits.status(
    3, 4, 6, 7, 10, 12, 130, 143,
    _0="Proved to be restorable.",
    _3="Not restorable, or only an older epoch is.",
    _4="No epoch can be restored; the error gives the reason.",
)
SEE_ALSO = ("restore", "copy", "validate")
GUIDE = "operations/monitoring.md"


def drill(
    ref: Ref,
    job: Annotated[
        str | None,
        typer.Option("--job", metavar="JOB",
                     help="Job file; required for an abs store."),
        CHOSEN_FILE,
    ] = None,
    engine: EngineChoice = Engine.SPARK,
    master: Master = "local[*]",
    insecure: Insecure = False,
    state_memory: StateMemory = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also read the copy with Spark's own reader."),
        CHOSEN_FILE,
    ] = False,
    log_format: LogFormat = LogForm.TEXT,
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Prove that an epoch can be restored.

    It copies the newest intact epoch (or PATH@7) to a scratch directory, restores it there with the job's own code,
    takes a new epoch, and compares the state key by key. Sources read nothing, and sinks write to the scratch
    directory only. The store is only read, also while its job runs. Side effects of the job's functions, such as
    calls to a service, are not prevented. For Flink and Spark it verifies and compares the copy that 'abs restore'
    makes, without their engines.
    """
    from abscli.api import open_store
    from abscli.cli.plans import option_errors
    from abscli.cli.running import emit_result, watching
    from abscli.stores import drills as page
    from formats.bounds import bound_memory

    store = open_store(ref)
    store.check_options(deep=deep)
    if not deep and not store.system.recovery().runs_job:
        bound_memory()  # what follows only reads; a job's state, and Spark's own reader, may take more
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
