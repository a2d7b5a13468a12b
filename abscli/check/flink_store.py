"""Checks what Flink left: gathers the evidence, and has it judged."""

from __future__ import annotations

from collections.abc import Iterator

from abscli.check.flink import check_store
from abscli.check.formats import Checked, Progress
from formats.flink.checks import stream_checks
from formats.flink.evidence import EpochEvidence, gather
from formats.flink.opening import open_flink
from formats.flink.store import FlinkStore
from formats.open import NOTHING, Looking, resolve_epoch
from formats.storage import Storage


def check(
    storage: Storage, epoch: int | str | None, *, quick: bool, progress: Progress, looking: Looking = NOTHING
) -> Checked:
    """The checker of `abscli.check.formats`. A `chk-N` or a savepoint that is named by its path alone is that epoch."""
    store = open_flink(storage, **{name: value for name, value in looking._asdict().items() if value})
    number = None if epoch is None else resolve_epoch(store, epoch)
    numbers = store.epoch_numbers() if number is None else [number]
    found = check_store(_evidence(store, numbers, quick, progress), store.listing() if number is None else None)
    why = {n: {str(code): said for code, said in reasons.items()} for n, reasons in found.why.items()}
    return Checked(found.report, store.job, store.only if number is None else number, why, found.notes)


def _evidence(store: FlinkStore, numbers: list[int], quick: bool, progress: Progress) -> Iterator[EpochEvidence]:
    checks = stream_checks()
    seen: dict[str, int] = {}
    for number in numbers:
        evidence = gather(store, number, quick=quick, checks=checks)
        seen.update((file.path, file.found or 0) for file in evidence.files)
        progress(sum(seen.values()), None)
        yield evidence
