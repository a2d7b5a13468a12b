"""`abs validate`: is it whole and consistent?"""

from __future__ import annotations

import contextlib
import time
from typing import Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import Master, OutputForm, PathMap, Quiet, Ref, Search, Uid, Verbose, at_least, duration
from abscli.cli.output import Output
from abscli.cli.reading import FormatChoice

EXAMPLES = (
    ("abs validate snapshots", "Checks every epoch of a store."),
    ("abs validate snapshots@latest --quick", "Presence and sizes of the newest epoch, without reading its state."),
    ("abs validate checkpoint@latest --deep", "Of a Spark checkpoint: what Spark's own reader finds, too."),
    ("abs validate moved/chk-7 --path-map s3://old=s3://new", "A checkpoint of Flink whose shared files were moved."),
    ("abs validate snapshots --max-age 10m --min-epochs 3", "For monitoring: also that epochs are fresh and enough."),
)
EXIT_STATUS = exits.status(
    3, 10, 12,
    _0="Whole and consistent.",
    _3="An epoch that was named is not whole; of a store: an epoch with a manifest is damaged, none can be restored, "
    "or --max-age or --min-epochs does not hold. With --strict: any finding.",
)


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
    master: Master = "local[*]",
    search: Search = None,
    path_map: PathMap = None,
    uid: Uid = None,
    format: FormatChoice = None,
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Check that epochs are whole and consistent.

    Completeness (each missing task is named), presence, sizes, row counts and digests of all files, and conservation:
    on every channel, records sent minus records received are the records logged. Digests say that the bytes are those
    that were written; conservation says that the cut is consistent. A check that the format does not allow is listed
    as unchecked; it does not pass.
    """
    from abscli.api import open_store
    from abscli.cli.output import emit_json, emit_marked, emit_ndjson, plain_ascii, progress, width
    from abscli.text.columns import bar
    from abscli.text.validate import items

    store = open_store(ref, format=format, search=search or (), path_map=path_map or (), uid=uid or ())
    store.check_options(deep=deep)

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
    unmet = report.unmet(strict=strict, max_age=max_age, min_epochs=min_epochs)
    if output is Output.TABLE:
        emit_marked(report.text(unmet=unmet, width=width(), ascii=plain_ascii()))
    else:
        result = report.to_json(unmet)
        emit_json(result) if output is Output.JSON else emit_ndjson(*items(result))
    if unmet:
        raise typer.Exit(exits.FINDING)
