"""Checks what Flink left: gathers the evidence, and has it judged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from abscli.stores.base import Checked, Progress, Visit, unvisited
from abscli.stores.flink.verdict import check_store, no_rivals
from formats.errors import FormatError
from formats.flink.channels import has_channels
from formats.flink.checks import stream_checks
from formats.flink.evidence import EpochEvidence, gather
from formats.flink.in_flight import Tally, tallies
from formats.flink.opening import open_flink
from formats.flink.store import FlinkStore
from formats.reference import NOTHING, ReadOptions
from formats.storage import Storage

NEIGHBOURS = 3
"""Unaligned checkpoints on either side that are read to see whether a law of conservation holds there, too."""


def check(
    storage: Storage, epoch: int | str | None, *, quick: bool, progress: Progress, options: ReadOptions = NOTHING,
    visit: Visit = unvisited,
) -> Checked:  # fmt: skip
    """As `abscli.stores.base.System.check`. A `chk-N` or a savepoint that is named by its path alone is that epoch."""
    asked = options.given()
    store = open_flink(storage, **asked)
    number = None if epoch is None else store.resolve(epoch)
    numbers = store.epoch_numbers() if number is None else [number]
    files = store.listing() if number is None else None
    counted = {} if quick else _counted(store if store.epoch is None else open_flink(store.storage, **asked), numbers)
    evidence = _evidence(store, numbers, quick, progress, visit)
    verdict = check_store(evidence, files, counted, store.rivals if number is None else no_rivals)
    why = {n: {str(code): reason for code, reason in reasons.items()} for n, reasons in verdict.why.items()}
    return Checked(verdict.report, store.job, store.only if number is None else number, why, verdict.notes)


def _counted(store: FlinkStore, numbers: list[int]) -> dict[int, Tally]:
    """Tallies of the unaligned checkpoints among these, and of the NEIGHBOURS around each that may bear it out."""
    unaligned = []
    for number in store.epoch_numbers():
        with suppress(FormatError):
            if has_channels(store.metadata(number)):
                unaligned.append(number)
    at = [i for i, number in enumerate(unaligned) if number in numbers]
    return tallies(store, [n for i, n in enumerate(unaligned) if any(abs(i - j) <= NEIGHBOURS for j in at)])


def _evidence(
    store: FlinkStore, numbers: list[int], quick: bool, progress: Progress, visit: Visit
) -> Iterator[EpochEvidence]:
    checks = stream_checks()
    done = 0

    def more(count: int) -> None:
        nonlocal done
        done += count
        progress(done, None)

    for number in numbers:
        store.streams(number).on_read = more
        evidence = gather(store, number, quick=quick, checks=checks)
        visit(store, number)
        yield evidence
