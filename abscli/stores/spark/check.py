"""Checks a Spark checkpoint: gathers the evidence, has it judged, and says of it what was asked for."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from abscli.report.findings import Code, Finding, StoreReport
from abscli.stores.base import Checked, Progress, Visit, unvisited
from abscli.stores.spark.verdict import judge
from formats.spark.evidence.gathering import gather
from formats.spark.ids import StorePartition
from formats.spark.store import SparkStore
from formats.storage import Storage
from formats.view import Status

SHARED_FROM = 10_000
"""State files from which on processes of their own are worth their start."""


def check(
    storage: Storage, epoch: int | str | None, *, quick: bool, progress: Progress, visit: Visit = unvisited
) -> Checked:
    """As `abscli.stores.base.System.check`."""
    store = SparkStore(storage)
    number = None if epoch is None else store.resolve(epoch)
    evidence = gather(
        store.checkpoint, quick=quick, progress=lambda read: progress(read, None), only=number,
        workers=workers(store, quick or number is not None),
    )  # fmt: skip
    report, why = judge(evidence)
    for one in store.epoch_numbers() if number is None else [number]:
        visit(store, one)
    if number is not None:
        report, why = only(report, number), {number: why[number]}
    return Checked(report, store.job, number, why)


def workers(store: SparkStore, quick: bool) -> int:
    """Processes among which the partitions are shared out; files are told from two partitions of each operator."""
    if quick:
        return 1
    files = 0
    for operator in store.checkpoint.operators().values():
        partitions = store.checkpoint.partitions(operator.id)
        for info in operator.stores:
            own = [len(store.checkpoint.state_files(StorePartition(operator.id, p, info.name))) for p in partitions[:2]]
            files += max(own, default=0) * len(partitions)
    return len(os.sched_getaffinity(0)) if files >= SHARED_FROM else 1


def only(report: StoreReport, epoch: int) -> StoreReport:
    """What concerns one batch, and the checkpoint as a whole."""
    return StoreReport(
        tuple(one for one in report.epochs if one.epoch == epoch),
        report.findings,
        report.unchecked,
        tuple(number for number in report.restorable if number == epoch),
    )


def with_findings(report: StoreReport, findings: Mapping[int, Sequence[Finding]]) -> StoreReport:
    """The report with what Spark's own reader found of some batches; none for a batch: its rows read well."""
    epochs = []
    for one in report.epochs:
        more = findings.get(one.epoch)
        if more:
            one = replace(one, findings=(*one.findings, *more), verdict=Status.DAMAGED)
        elif more is not None:
            one = replace(one, unchecked=tuple(code for code in one.unchecked if code is not Code.ROW_MISMATCH))
        epochs.append(one)
    kept = tuple(epoch for epoch in report.restorable if not findings.get(epoch))
    return StoreReport(tuple(epochs), report.findings, report.unchecked, kept)
