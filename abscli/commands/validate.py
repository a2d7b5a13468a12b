"""`abs validate`: is it whole and consistent?"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from abscli.cli import exits
from abscli.cli.options import (
    FormatChoice,
    Master,
    OutputForm,
    PathMap,
    Quiet,
    Ref,
    Search,
    Uid,
    Verbose,
    at_least,
    duration,
    looking,
)
from abscli.cli.output import Output

if TYPE_CHECKING:
    from abscli.report.findings import StoreReport
    from abscli.text.validate import Leftovers
    from formats.storage import Storage

LOOKED_UP = 10_000
"""Files that nothing refers to of which the sizes are looked up."""

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
    from abscli.cli.output import emit_json, emit_marked, emit_ndjson, plain_ascii, progress, width
    from abscli.report.demands import unmet
    from abscli.stores.registry import checker
    from abscli.text import validate as render
    from abscli.text.columns import bar
    from formats.open import parse_reference, recognise, usable
    from formats.storage import open_storage

    path, number = parse_reference(ref)
    storage = open_storage(path.removesuffix("/_metadata"))
    row = recognise(storage, format)
    extra = looking(search=search, path_map=path_map, uid=uid)
    usable(row, extra, path)

    with progress() as show:
        begun = time.monotonic()

        def more(read: int, total: int | None) -> None:
            show(f"checked {bar(read, total, time.monotonic() - begun)}")

        checked = checker(row.name)(storage, number, quick=quick, progress=more, looking=extra)
    report, job, epoch = checked.report, checked.job, checked.epoch
    if deep:
        from abscli.cli.asking import spark_of
        from abscli.stores.spark.check import with_findings
        from abscli.stores.spark.reader import deep_findings

        with spark_of(row.name, "--deep", master) as context:
            report = with_findings(report, deep_findings(context, storage, report))
    failed = unmet(report, epoch=epoch, strict=strict, max_age=max_age, min_epochs=min_epochs)
    said: dict[str, Any] = {"why": checked.why, "notes": checked.notes}
    if output is Output.TABLE:
        left = _leftovers(storage, row.name, path, report)
        emit_marked(render.text(report, store=path, format=row.name, job=job, unmet=failed, width=width(),
                                ascii=plain_ascii(), leftovers=left, **said))  # fmt: skip
    else:
        result = render.to_json(report, store=path, format=row.name, job=job, quick=quick, unmet=failed, **said)
        emit_json(result) if output is Output.JSON else emit_ndjson(*render.items(result))
    if failed:
        raise typer.Exit(exits.FINDING)


def _leftovers(storage: Storage, format: str, path: str, report: StoreReport) -> Leftovers | None:
    """Of files that nothing refers to: how large they are, and whether `abs gc` would remove them now."""
    import shlex

    from abscli.report.findings import Code
    from abscli.stores.native.garbage import KEEP, MIN_AGE, plan_removal
    from abscli.text.validate import Leftovers
    from formats.errors import FormatError
    from formats.native.store import NativeStore
    from formats.storage import LocalStorage

    paths = {f.path for f in report.all_findings if f.code is Code.UNREFERENCED_FILE and f.path is not None}
    if not paths:
        return None
    sizes = {name: size for name in sorted(paths)[:LOOKED_UP] if (size := storage.size(name)) is not None}
    command = f"abs gc {shlex.quote(path)}"
    if format != NativeStore.format:
        return Leftovers(sizes, f"abs inspect {shlex.quote(path)}")
    if not isinstance(storage, LocalStorage):
        return Leftovers(sizes, None, "stores behind a URI are read-only; abs gc runs where the store lies")
    try:
        removal = plan_removal(NativeStore(storage), KEEP, min_age=MIN_AGE)
    except FormatError as error:
        return Leftovers(sizes, None, f"abs gc removes nothing while the store's own facts are damaged ({error})")
    ours = [orphan for orphan in removal.orphans if orphan.path in paths]
    if any(orphan.goes for orphan in ours):
        return Leftovers(sizes, command)
    if ours:
        why_not = "written less than an hour ago: abs gc leaves it, somebody may be about to refer to it"
        return Leftovers(sizes, f"{command} --min-age 0s", why_not)
    blocked = "; ".join(f"epoch {epoch}: {why}" for epoch, why in sorted(removal.blocked.items())[-1:])
    return Leftovers(sizes, None, f"abs gc leaves it: {blocked or 'an epoch that is kept may need it'}")
