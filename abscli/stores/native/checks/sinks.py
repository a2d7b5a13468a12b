"""Sinks: what the targets that the user's job file names have, compared with what complete epochs name.

Without a job file nothing outside the store is looked at, and every sink is unchecked.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import assert_never

import msgspec.structs

from abscli.engine.sinks.delivered.targets import title_of
from abscli.engine.sinks.places import place_of
from abscli.planner.lineage import maker
from abscli.report.findings import Code, Finding, SinkReport, SinkVerdict, StoreReport
from abscli.stores.native.checks import deliveries, part_files
from abscli.stores.native.checks.named_parts import (
    NamedOutput,
    NamedPart,
    SinkFindings,
    SinkParts,
    Way,
    way_of,
)
from abscli.stores.native.targets import NOT_NAMED, Targets, newest_id, sink_ids
from abscli.stores.recovery import JobFile
from formats.errors import FormatError
from formats.job.model import Operator
from formats.native.probe import Prober
from formats.native.sink import Stretch
from formats.native.store import NativeStore
from formats.view import Status

Reasons = dict[int, dict[str, str]]
"""Why output is not checked: epoch -> code -> reason, as `abscli.stores.base.Checked` has them."""


def with_sinks(
    store: NativeStore, report: StoreReport, prober: Prober, *, job: JobFile | None, at_rest: bool,
    sinks: SinkParts | None = None,
) -> tuple[StoreReport, Reasons]:  # fmt: skip
    """Add the findings and the verdict of every sink to a report, and the reasons why output is not checked.

    job: the job file that the user named; None contacts nothing.
    at_rest: the whole store is checked and no job runs on it.
    sinks: the parts that epochs name, where they have been read.

    Raises OtherJob for the file of another job.
    """
    targets = None if job is None else Targets.of(store, job)
    sinks = SinkParts.read(store, report) if sinks is None else sinks
    try:
        attempts, unknown = store.attempts(), "which attempts made the output is not known: none is recorded"
    except FormatError as error:
        attempts, unknown = [], f"which attempts made the output is not known: {error}"
    by_sink = sinks.by_sink(report)
    output = NamedOutput(store, report, attempts, by_sink, at_rest)
    reasons: dict[int, dict[str, list[str]]] = {}
    for id in sorted({*by_sink, *(newest_id(id, sinks.moved) for id in sink_ids(store))}):
        sink = None if targets is None else targets.sink_for(id)
        if targets is None:
            found = _unchecked(output, id, f"sink {id}: {NOT_NAMED}")
            row = SinkReport(id, None, SinkVerdict.UNCHECKED, NOT_NAMED)
        elif sink is None:
            reason = "the job file has no such sink"
            found = _unchecked(output, id, f"sink {id}: {reason}")
            row = SinkReport(id, None, SinkVerdict.UNCHECKED, reason)
        elif not attempts:
            found = _unchecked(output, id, unknown)
            row = SinkReport(sink.id, _title(sink, targets), SinkVerdict.UNKNOWN, unknown)
        else:
            found = _check(output, id, sink, targets, prober)
            row = SinkReport(sink.id, _title(sink, targets), *_verdict(found))
        report = _with(report, found, row)
        for epoch, code, reason in found.unchecked:
            reasons.setdefault(epoch, {}).setdefault(str(code), []).append(reason)
    return report, {epoch: {code: "; ".join(why) for code, why in of.items()} for epoch, of in sorted(reasons.items())}


def _check(output: NamedOutput, id: str, sink: Operator, targets: Targets, prober: Prober) -> SinkFindings:
    """Ask the target of one sink. id: of the sink in the newest epoch."""
    way = way_of(sink)
    match way:
        case Way.DELIVERED:
            found = deliveries.check_deliveries(output, sink, targets)
        case Way.FILE:
            found = part_files.check_files(output, id, sink, targets.directory, prober)
        case _:
            assert_never(way)
    # Parts of another way are of a time when the sink had another type: the job file does not name that target.
    reason = f"sink {id}: the job file names a target of another type"
    other = {(part.epoch, code_of(part)): reason for part in output.by_sink.get(id, ()) if part.way is not way}
    return dataclasses.replace(found, unchecked=(*found.unchecked, *((*key, why) for key, why in other.items())))


def _unchecked(output: NamedOutput, id: str, reason: str) -> SinkFindings:
    """Mark the output of a sink as unchecked in every epoch that names some."""
    keys = dict.fromkeys((part.epoch, code_of(part)) for part in output.by_sink.get(id, ()))
    return SinkFindings(unchecked=[(*key, reason) for key in keys])


def code_of(part: NamedPart) -> Code:
    """Return the finding that a part would have that its target lacks."""
    return Code.SINK_PART_MISSING if part.file.staged is None else Code.SINK_PART_PENDING


def _title(sink: Operator, targets: Targets) -> str:
    path = (sink.connector or {}).get("path")
    return title_of(sink) if path is None else place_of(targets.directory, path)


def _verdict(found: SinkFindings) -> tuple[SinkVerdict, str | None]:
    """Sum up the findings on one target; the gravest counts."""
    if found.unasked is not None:
        return found.unasked
    codes = {finding.code for _, finding in found.of_epochs} | {finding.code for finding in found.of_store}
    for code, verdict in _GRAVEST_FIRST:
        if code in codes:
            return verdict, None
    # A part whose place cannot be looked at keeps the target from being called exact.
    reason = next((reason for _, _, reason in found.unchecked), None)
    return (SinkVerdict.EXACT, None) if reason is None else (SinkVerdict.UNKNOWN, reason)


_GRAVEST_FIRST = (
    (Code.SINK_PART_MISSING, SinkVerdict.INCOMPLETE),
    (Code.UNREFERENCED_SINK_PART, SinkVerdict.FOREIGN),
    (Code.SINK_PART_PENDING, SinkVerdict.PENDING),
)


def _with(report: StoreReport, found: SinkFindings, row: SinkReport) -> StoreReport:
    """Add what the check of one target says to the report."""
    skipped: dict[int, set[Code]] = {}
    for epoch, code, _ in found.unchecked:
        skipped.setdefault(epoch, set()).add(code)
    epochs = tuple(
        msgspec.structs.replace(one, unchecked=(*one.unchecked, *sorted(skipped[one.epoch] - set(one.unchecked))))
        if one.epoch in skipped
        else one
        for one in report.epochs
    )
    report = msgspec.structs.replace(
        report, epochs=epochs, findings=(*report.findings, *found.of_store), sinks=(*report.sinks, row)
    )
    return _accused(report, found.of_epochs, found.history)


def _accused(
    report: StoreReport, findings: Iterable[tuple[int, Finding]], history: Sequence[Stretch]
) -> StoreReport:
    """Add findings that take away from epochs. Neither these epochs nor the later ones of the same history can be
    restored without a loss of output."""
    by_epoch: dict[int, list[Finding]] = {}
    for epoch, finding in findings:
        by_epoch.setdefault(epoch, []).append(finding)
    if not by_epoch:
        return report
    epochs = tuple(
        msgspec.structs.replace(row, verdict=Status.DAMAGED, findings=(*row.findings, *by_epoch[row.epoch]))
        if row.epoch in by_epoch
        else row
        for row in report.epochs
    )
    oldest = min(by_epoch)
    restorable = tuple(n for n in report.restorable if n < oldest or maker(history, n) is None)
    return msgspec.structs.replace(report, epochs=epochs, restorable=restorable)
