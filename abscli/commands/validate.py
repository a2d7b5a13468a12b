"""`abs validate`: is it whole and consistent?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from abscli.commands import exits
from abscli.commands.options import FormatChoice, OutputForm, Quiet, Ref, Verbose, duration
from abscli.commands.output import Output

if TYPE_CHECKING:
    from abscli.check.findings import StoreReport
    from formats.native.evidence import Problem
    from formats.native.probe import Prober
    from formats.native.reader import NativeStore

EXAMPLES = (
    ("abs validate snapshots", "Checks every epoch of a store."),
    ("abs validate snapshots@latest --quick", "Presence and sizes of the newest epoch, without reading its state."),
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
        typer.Option("--min-epochs", metavar="N", min=1,
                     help="The store must have this many epochs that can be restored."),
    ] = None,
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
    from abscli.check.demands import unmet
    from abscli.commands.inspect import native_only
    from abscli.commands.output import emit_json, emit_ndjson, emit_text, plain_ascii, progress, width
    from abscli.render import validate as render
    from abscli.render.columns import size
    from formats.native.evidence import open_for_validation
    from formats.native.probe import Prober
    from formats.open import parse_reference, resolve_epoch
    from formats.storage import open_storage

    native_only(format)
    path, number = parse_reference(ref)
    store, problems = open_for_validation(open_storage(path))
    epoch = None if number is None else resolve_epoch(store, number)
    read = 0

    with progress() as show:

        def more(count: int) -> None:
            nonlocal read
            read += count
            show(f"checked {size(read)}")

        prober = Prober(store.storage, quick=quick, progress=more)
        report = check_all(store, problems, prober) if epoch is None else check_one(store, problems, epoch, prober)
    failed = unmet(report, epoch=epoch, strict=strict, max_age=max_age, min_epochs=min_epochs)
    job = store.job or None
    if output is Output.TABLE:
        emit_text(render.text(report, store=path, job=job, unmet=failed, width=width(), ascii=plain_ascii()))
    else:
        result = render.to_json(report, store=path, format=store.format, job=job, quick=quick, unmet=failed)
        emit_json(result) if output is Output.JSON else emit_ndjson(*render.items(result))
    if failed:
        raise typer.Exit(exits.FINDING)


def check_all(store: NativeStore, problems: tuple[Problem, ...], prober: Prober) -> StoreReport:
    """Every epoch, the store's own facts, and files that nothing refers to: these only in a store at rest, since a
    job that runs begins, completes and removes epochs while they are being read."""
    from abscli.check.store import check_store
    from formats.native.evidence import epoch_evidence, lasting_files, store_evidence

    at_rest = store.running_attempt() is None
    whole = store_evidence(store, problems)
    epochs = (found for n in store.epoch_numbers() if (found := epoch_evidence(store, n, prober)) is not None)
    return check_store(whole, epochs, lasting_files(store, whole) if at_rest else None)


def check_one(store: NativeStore, problems: tuple[Problem, ...], epoch: int, prober: Prober) -> StoreReport:
    """One epoch, against its parent where that is still there, and the store facts that it leans on."""
    from abscli.check.epoch import cut_in
    from abscli.check.store import check_store
    from formats.native.evidence import epoch_evidence, store_evidence
    from formats.native.probe import Prober

    found = epoch_evidence(store, epoch, prober)
    if found is None:
        raise store.no_epoch(epoch)
    parent = found.head.parent if found.head else 0
    before = None
    if parent in store.epoch_numbers():
        before = epoch_evidence(store, parent, Prober(store.storage, quick=True))
    cut = cut_in(before) if before and before.has_manifest else None
    facts = store_evidence(store, problems, found.head.attempt if found.head else 0)
    return check_store(facts, [found], earlier=[cut] if cut else [])
