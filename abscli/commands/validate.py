"""`abs validate`: is it whole and consistent?"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import (
    ANY_FILE,
    CHOSEN_FILE,
    Broker,
    BrokerConfig,
    Master,
    OutputForm,
    Quiet,
    Ref,
    SinkJob,
    Verbose,
    at_least,
    duration,
)
from abscli.cli.output import Output
from abscli.cli.reading import AS_TYPED, Reading, reads

if TYPE_CHECKING:
    from abscli.api.store import Store

EXAMPLES = (
    ("abs validate checkpoints/0d9f...", "Checks every checkpoint of a Flink job."),
    ("abs validate snapshots --job job.yaml --max-age 10m",
     "Checks a store and its sinks, and that epochs are recent."),
)
EXIT_STATUS = exits.status(
    3, 10, 12,
    _0="Intact and consistent.",
    _3="Damaged, a requirement is not met, or --for: state is not restored.",
)
SEE_ALSO = ("inspect", "plan-recovery", "report")
GUIDE = "operations/monitoring.md"


@reads("search", "path_map", "uid")
def validate(
    ref: Ref,
    quick: Annotated[
        bool, typer.Option("--quick", help="Check only that files exist and have the right size."),
        ANY_FILE,
    ] = False,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Also read with Spark's own reader; starts a JVM."),
        CHOSEN_FILE,
    ] = False,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Fail if there is any finding."),
        ANY_FILE,
    ] = False,
    max_age: Annotated[
        float | None,
        typer.Option("--max-age", metavar="DURATION", parser=duration,
                     help="Maximum age of the newest complete epoch."),
        ANY_FILE,
    ] = None,
    min_epochs: Annotated[
        int | None,
        typer.Option("--min-epochs", metavar="N", parser=at_least(1),
                     help="Minimum number of restorable epochs."),
        ANY_FILE,
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--for", metavar="SYSTEM:VERSION", show_default=False,
                     help="Check if a version (flink:2.2) can restore the state."),
        ANY_FILE,
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option("--schema", metavar="FILE", show_default=False,
                     help="With --for: file with the new classes or Avro schema."),
        CHOSEN_FILE,
    ] = None,
    job: SinkJob = None,
    broker: Broker = None,
    broker_config: BrokerConfig = None,
    master: Master = "local[*]",
    topology: Annotated[
        list[str] | None,
        typer.Option("--topology", metavar="PLAN", show_default=False,
                     help="Flink's plan of the job (JSON), to find its regions."),
        CHOSEN_FILE,
    ] = None,
    reading: Reading = AS_TYPED,
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Check that epochs are intact and consistent.

    It checks that all tasks and files are present, verifies sizes, row counts and checksums, and checks conservation:
    on every channel, records sent minus records received are the records logged. Checks that a format does not allow
    are listed as unchecked. Nothing is changed, and without --job and --broker nothing outside the store is
    contacted. --job also asks the sinks whether they have the rows of the epochs. --for flink:2.2 instead checks
    whether another Flink version restores the state.
    """
    from abscli.cli.output import emit_json, emit_marked, emit_ndjson, emit_text, plain_ascii, progress, width
    from abscli.cli.plans import option_errors
    from abscli.text.columns import bar
    from abscli.text.validate import items, verdict_text

    store = reading.open(ref, topology=topology or ())
    store.check_options(deep=deep)
    if target is not None:
        others = {"--quick": quick, "--deep": deep, "--strict": strict, "--max-age": max_age is not None}
        others["--min-epochs"], others["--broker"] = min_epochs is not None, broker is not None
        others["--job"] = job is not None
        _upgrade(store, target, schema, [name for name, given in others.items() if given], output)
        return
    if schema is not None:
        raise typer.BadParameter("goes with --for: name the release, such as flink:2.3", param_hint="'--schema'")

    if broker_config is not None and broker is None:
        raise typer.BadParameter("goes with --broker: name one", param_hint="'--broker-config'")
    with progress() as show:
        begun = time.monotonic()

        def more(read: int, total: int | None) -> None:
            show(f"checked {bar(read, total, time.monotonic() - begun)}")

        report = store.validate(job=job, quick=quick, progress=more)
    if deep:
        with contextlib.ExitStack() as running:
            with progress() as show:
                reader = running.enter_context(store.own_reader(master, show))
            report = report.confirmed(reader)
    if broker is not None:
        with option_errors():
            report = store.held_against(report, broker, config=broker_config)
    unsatisfied = report.unsatisfied(strict=strict, max_age=max_age, min_epochs=min_epochs)
    if output is Output.TABLE and quiet and not unsatisfied:
        emit_text("\n".join(verdict_text(report.standing, (), width())))
    elif output is Output.TABLE:
        emit_marked(report.text(unsatisfied=unsatisfied, width=width(), ascii=plain_ascii(), verbose=verbose > 0))
    else:
        result = report.to_json(unsatisfied)
        emit_json(result) if output is Output.JSON else emit_ndjson(*items(result))
    if unsatisfied:
        raise typer.Exit(exits.FINDING)


def _upgrade(store: Store, target: str, schema: str | None, others: list[str], output: Output) -> None:
    from abscli.cli.output import width
    from abscli.cli.plans import option_errors
    from abscli.cli.running import emit_result

    if others:
        raise typer.BadParameter(f"asks another question, for which {others[0]} means nothing", param_hint="'--for'")
    with option_errors():
        report = store.upgrade(target, schema=schema)
    emit_result(report.to_json(), report.text(width()), output)
    if not report.restores:
        raise typer.Exit(exits.FINDING)
