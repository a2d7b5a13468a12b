"""`abs validate`: is it whole and consistent?"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import (
    Broker,
    BrokerConfig,
    Master,
    OutputForm,
    Quiet,
    Ref,
    Verbose,
    at_least,
    duration,
)
from abscli.cli.output import Output
from abscli.cli.reading import AS_TYPED, Reading, reads

if TYPE_CHECKING:
    from abscli.api.store import Store

EXAMPLES = (
    ("abs validate snapshots", "Checks every epoch of a store."),
    ("abs validate snapshots@latest --quick", "Presence and sizes of the newest epoch, without reading its state."),
    ("abs validate checkpoint@latest --deep", "Of a Spark checkpoint: what Spark's own reader finds, too."),
    ("abs validate moved/chk-7 --path-map s3://old=s3://new", "A checkpoint of Flink whose shared files were moved."),
    ("abs validate savepoint-1 --for flink:2.2", "Before an upgrade: which state another Flink restores, and why not."),
    ("abs validate savepoint-1 --for flink:2.3 --schema classes.yaml", "Also what changed classes make of the state."),
    ("abs validate checkpoint --broker kafka-1:9092", "Also that Kafka has what the job reads next."),
    ("abs validate snapshots --max-age 10m --min-epochs 3", "For monitoring: also that epochs are fresh and enough."),
)
EXIT_STATUS = exits.status(
    3, 10, 12,
    _0="Whole and consistent.",
    _3="An epoch that was named is not whole; of a store: an epoch with a manifest is damaged, none can be restored, "
    "or --max-age or --min-epochs does not hold. With --strict: any finding. With --for: some state is not restored, "
    "or that is not known.",
)


@reads("search", "path_map", "uid")
def validate(
    ref: Ref,
    quick: Annotated[
        bool, typer.Option("--quick", help="Presence and sizes only; digests and rows are listed as unchecked.")
    ] = False,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Also ask Spark's own state reader, of a Spark checkpoint; starts a JVM."),
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Any finding counts, incomplete epochs and unreferenced files included.")
    ] = False,
    max_age: Annotated[
        float | None,
        typer.Option("--max-age", metavar="DURATION", parser=duration,
                     help="The newest complete epoch must not be older than this, such as 10m."),
    ] = None,
    min_epochs: Annotated[
        int | None,
        typer.Option("--min-epochs", metavar="N", parser=at_least(1),
                     help="The store must have this many epochs that can be restored."),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--for", metavar="SYSTEM:VERSION", show_default=False,
                     help="Ask instead whether this release restores the state, such as flink:2.2."),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option("--schema", metavar="FILE", show_default=False,
                     help="With --for: classes as the job will declare them, or a schema of Avro."),
    ] = None,
    broker: Broker = None,
    broker_config: BrokerConfig = None,
    master: Master = "local[*]",
    topology: Annotated[
        list[str] | None,
        typer.Option("--topology", metavar="PLAN", show_default=False,
                     help="Flink's plan of the job (REST: /jobs/ID/plan), which says what its regions are."),
    ] = None,
    reading: Reading = AS_TYPED,
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Check that epochs are whole and consistent.

    Completeness (each missing task is named), presence, sizes, row counts and digests of all files, and conservation:
    on every channel, records sent minus records received are the records logged. Digests say that the bytes are those
    that were written; conservation says that the cut is consistent. A check that the format does not allow is listed
    as unchecked; it does not pass.

    A regional checkpoint of Flink (FLIP-600) has state of older checkpoints where a region failed. Each region has to
    be of one checkpoint, the one that it names (region-mixed; which tasks a region has only the job graph says:
    --topology), no split may belong to two tasks (split-owned-twice), and what every task is to have alike, broadcast
    state and union state on which the tasks of a checkpoint agree, has to be alike (state-disagrees, which leaves the
    verdict as it is).

    --broker also asks a broker of Kafka: an epoch of a job, a Spark query or a Flink job that would go on with records
    that retention has taken, or in a partition that is gone or was made anew, has the finding 'input-lost' and is not
    restorable, though nothing of its own files is wrong.

    --for flink:2.2 (or 1.20, 2.0, 2.1, 2.3) asks another question, before an upgrade: a verdict for each state of each
    operator (restores, does not, unknown), with the way through the type to what it is about, the rows and bytes that
    are concerned, where the rule is from and what to do. What no rule speaks of restores if the job declares its state
    as it did, with the same classes. State is not read for that, but to count rows.

    --schema FILE beside it says what changed classes make of the state. The file has 'version: 1' and 'classes:
    {shop.Order: {id: long, user: string, items: "list<shop.Item>"}}', the fields of Pojos by name and type as the job
    will declare them (types as Java has them, or as 'abs inspect' shows them), or is a schema of Avro (.avsc), or a
    JSON list of them. Of Pojos a field may go or come, and may not have another type; a class keeps its whole name; of
    Avro the new schema has to read what the old one wrote. 'rows: {last-row: [long, string]}' beside the classes, or
    instead of them, says the fields of a state's rows by position, of Row as of SQL (['BIGINT', 'STRING']): neither
    their number nor their types may change. Keys and namespaces do not change at all. What is not in
    the file is taken to stay as it is. A file of which no class is in any state is refused.
    """
    from abscli.cli.output import emit_json, emit_marked, emit_ndjson, plain_ascii, progress, width
    from abscli.cli.plans import option_errors
    from abscli.text.columns import bar
    from abscli.text.validate import items

    store = reading.open(ref, topology=topology or ())
    store.check_options(deep=deep)
    if target is not None:
        others = {"--quick": quick, "--deep": deep, "--strict": strict, "--max-age": max_age is not None}
        others["--min-epochs"], others["--broker"] = min_epochs is not None, broker is not None
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

        report = store.validate(quick=quick, progress=more)
    if deep:
        with contextlib.ExitStack() as running:
            with progress() as show:
                reader = running.enter_context(store.own_reader(master, show))
            report = report.confirmed(reader)
    if broker is not None:
        with option_errors():
            report = store.held_against(report, broker, config=broker_config)
    unmet = report.unmet(strict=strict, max_age=max_age, min_epochs=min_epochs)
    if output is Output.TABLE:
        emit_marked(report.text(unmet=unmet, width=width(), ascii=plain_ascii()))
    else:
        result = report.to_json(unmet)
        emit_json(result) if output is Output.JSON else emit_ndjson(*items(result))
    if unmet:
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
