"""Checks a native store: gathers the evidence, and has it judged."""

from __future__ import annotations

from collections.abc import Iterator

from abscli.report.findings import StoreReport
from abscli.stores.base import Checked, Progress, Visit, unvisited
from abscli.stores.native.checks.named_parts import SinkParts
from abscli.stores.native.checks.sinks import with_sinks
from abscli.stores.native.store_verdict import check_store
from abscli.stores.native.verdict import cut_in
from abscli.stores.recovery import JobFile
from formats.errors import FormatError
from formats.native import layout
from formats.native.evidence import (
    EpochEvidence,
    Problem,
    epoch_evidence,
    lasting_files,
    open_for_validation,
    store_evidence,
)
from formats.native.facts import ManifestFacts
from formats.native.probe import Prober
from formats.native.store import NativeStore, files_of
from formats.storage import Storage, walk


def check(
    storage: Storage, epoch: int | str | None, *, quick: bool, progress: Progress, visit: Visit = unvisited,
    job: JobFile | None = None,
) -> Checked:  # fmt: skip
    """As `abscli.stores.base.System.check`."""
    store, problems = open_for_validation(storage)
    store.looks_once()
    sinks = SinkParts()
    number = None if epoch is None else store.resolve(epoch)
    read, total = 0, None if quick else _bytes(store, number)

    def more(count: int) -> None:
        nonlocal read
        read += count
        # A job that runs writes on, and a file that tasks share is read again for a row group that only one names.
        progress(read, None if total is None else max(read, total))

    def expected(count: int) -> None:
        nonlocal total
        total = None if total is None else total + count

    prober = Prober(storage, quick=quick, progress=more, expected=expected)
    if number is None:
        report, at_rest = check_all(store, problems, prober, sinks, visit), store.running_attempt() is None
    else:
        report, at_rest = check_one(store, problems, number, prober), False
        visit(store, number)
    report, why = with_sinks(
        store, report, prober, job=job, at_rest=at_rest, sinks=sinks if number is None else None
    )
    return Checked(report, store.job or None, number, why)


def _bytes(store: NativeStore, epoch: int | None) -> int | None:
    """Bytes that a check will read, as far as they can be told beforehand."""
    if epoch is None:
        return sum(entry.size or 0 for entry in walk(store.storage))
    try:
        files = {file.path: file.bytes or 0 for part in store.parts(epoch) for file in files_of(part)}
        own = [layout.topology(store.topology_sha256(epoch))]
        own += [store.manifest(epoch).tasks_file.path] if store.has_manifest(epoch) else []
        return sum(files.values()) + sum(store.storage.size(path) or 0 for path in own)
    except FormatError:
        return None


def check_all(
    store: NativeStore, problems: tuple[Problem, ...], prober: Prober,
    sinks: SinkParts | None = None, visit: Visit = unvisited,
) -> StoreReport:  # fmt: skip
    """Every epoch, the store's own facts, and files that nothing refers to: these only in a store at rest, since a
    job that runs begins, completes and removes epochs while they are being read.

    sinks: gets the parts of sinks that epochs name, where these could be read.
    """
    at_rest = store.running_attempt() is None
    whole = store_evidence(store, problems)

    def each() -> Iterator[EpochEvidence]:
        for number in store.epoch_numbers():
            evidence = epoch_evidence(store, number, prober)
            if evidence is None:
                continue
            if sinks is not None and isinstance(evidence.head, ManifestFacts):
                sinks.add(evidence.head, evidence.parts)
            visit(store, number)
            yield evidence

    return check_store(whole, each(), lasting_files(store, whole) if at_rest else None)


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
