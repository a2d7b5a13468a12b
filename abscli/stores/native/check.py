"""Checks a native store: gathers the evidence, and has it judged."""

from __future__ import annotations

from abscli.report.findings import StoreReport
from abscli.stores.base import Checked, Progress
from abscli.stores.native.checks.outputs import with_output
from abscli.stores.native.store_verdict import check_store
from abscli.stores.native.verdict import cut_in
from formats.errors import FormatError
from formats.native.evidence import Problem, epoch_evidence, lasting_files, open_for_validation, store_evidence
from formats.native.probe import Prober
from formats.native.store import NativeStore, files_of
from formats.storage import Storage, walk


def check(storage: Storage, epoch: int | str | None, *, quick: bool, progress: Progress) -> Checked:
    """As `abscli.stores.base.System.check`."""
    store, problems = open_for_validation(storage)
    number = None if epoch is None else store.resolve(epoch)
    read, total = 0, None if quick else _bytes(store, number)

    def more(count: int) -> None:
        nonlocal read
        read += count
        progress(read, total)

    prober = Prober(storage, quick=quick, progress=more)
    if number is None:
        report, at_rest = check_all(store, problems, prober), store.running_attempt() is None
    else:
        report, at_rest = check_one(store, problems, number, prober), False
    report, why = with_output(store, report, prober, at_rest=at_rest)
    return Checked(report, store.job or None, number, why)


def _bytes(store: NativeStore, epoch: int | None) -> int | None:
    """Bytes that a check will read, as far as they can be told beforehand."""
    if epoch is None:
        return sum(entry.size or 0 for entry in walk(store.storage))
    try:
        files = {file.path: file.bytes or 0 for part in store.parts(epoch) for file in files_of(part)}
    except FormatError:
        return None
    return sum(files.values())


def check_all(store: NativeStore, problems: tuple[Problem, ...], prober: Prober) -> StoreReport:
    """Every epoch, the store's own facts, and files that nothing refers to: these only in a store at rest, since a
    job that runs begins, completes and removes epochs while they are being read."""
    at_rest = store.running_attempt() is None
    whole = store_evidence(store, problems)
    epochs = (epoch for n in store.epoch_numbers() if (epoch := epoch_evidence(store, n, prober)) is not None)
    return check_store(whole, epochs, lasting_files(store, whole) if at_rest else None)


def check_one(store: NativeStore, problems: tuple[Problem, ...], epoch: int, prober: Prober) -> StoreReport:
    """One epoch, against its parent where that is still there, and the store facts that it leans on."""
    evidence = epoch_evidence(store, epoch, prober)
    if evidence is None:
        raise store.no_epoch(epoch)
    parent = evidence.head.parent if evidence.head else 0
    before = None
    if parent in store.epoch_numbers():
        before = epoch_evidence(store, parent, Prober(store.storage, quick=True))
    cut = cut_in(before) if before and before.has_manifest else None
    facts = store_evidence(store, problems, evidence.head.attempt if evidence.head else 0)
    return check_store(facts, [evidence], earlier=[cut] if cut else [])
