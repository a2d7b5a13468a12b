"""The verdict on one epoch, from the evidence alone."""

from __future__ import annotations

from collections.abc import Iterator

from abscli.planner.repeats import may_repeat
from abscli.report.findings import HARMLESS, Code, EpochReport, Finding
from abscli.stores.native.checks.conservation import POLICIES, check_conservation
from abscli.stores.native.checks.files import check_files
from abscli.stores.native.checks.growth import EXACT_POLICIES, check_growth
from abscli.stores.native.checks.parts import check_logs, check_parts, check_schedules
from abscli.stores.native.checks.positions import Cut, check_operators, check_positions, cut_of
from formats.native.counters import Channels, by_operator
from formats.native.evidence import EpochEvidence
from formats.view import Repeat, Status

_NEEDS_BYTES = (Code.DIGEST_MISMATCH, Code.ROW_MISMATCH, Code.MISPLACED_KEY)
_NEEDS_PARTS = (
    Code.MISSING_ACK,
    Code.MISSING_FILE,
    Code.SIZE_MISMATCH,
    *_NEEDS_BYTES,
    Code.MISSING_LOG,
    Code.CONSERVATION,
    Code.POSITION_REGRESSED,
)


def check_epoch(evidence: EpochEvidence, parent: Cut | None = None) -> EpochReport:
    """All checks on one epoch.

    parent: where its parent stood; None if that is not known, or there is none. Whether files are there that nothing
    refers to is a question to the whole store, and not answered here.
    """
    findings = [Finding(Code(p.code), p.task, None, p.path, p.message) for p in evidence.problems]
    unchecked: set[Code] = {Code.UNREFERENCED_FILE}
    if evidence.quick:
        unchecked.update(_NEEDS_BYTES)
    if evidence.head is None or evidence.parts is None:
        unchecked.update(_NEEDS_PARTS)
    if evidence.head is None:
        unchecked.add(Code.TOPOLOGY_MISSING)
    if evidence.status is Status.IN_PROGRESS:
        unchecked.add(Code.MISSING_ACK)
    findings += check_parts(evidence)
    findings += check_files(evidence)
    findings += _cut(evidence, unchecked)
    findings += _positions(evidence, parent, unchecked)
    return EpochReport(
        epoch=evidence.epoch,
        verdict=_verdict(evidence, findings),
        findings=tuple(findings),
        unchecked=tuple(code for code in Code if code in unchecked),
        triggered=evidence.head.triggered if evidence.head else None,
        reason=evidence.reason,
        policy=evidence.head.policy if evidence.head else None,
        repeats=_repeats(evidence),
    )


def cut_in(evidence: EpochEvidence) -> Cut | None:
    """Where the sources stood, for the children of this epoch; None if that cannot be read."""
    if evidence.head is None or evidence.parts is None:
        return None
    return cut_of(evidence.epoch, evidence.head.generation, evidence.head.policy, evidence.parts)


def _cut(evidence: EpochEvidence, unchecked: set[Code]) -> Iterator[Finding]:
    """Logs and counters."""
    if evidence.topology is None or evidence.parts is None or evidence.head is None:
        unchecked.update({Code.MISSING_LOG, Code.CONSERVATION, Code.MISSING_ACK, Code.MISPLACED_KEY})
        return
    yield from check_logs(evidence.topology, evidence.parts)
    yield from check_schedules(evidence.topology, evidence.parts, evidence.outcome if evidence.has_manifest else None)
    if evidence.head.policy in POLICIES:
        yield from check_conservation(evidence.topology, evidence.parts, evidence.head.policy)
    else:
        unchecked.add(Code.CONSERVATION)


def _repeats(evidence: EpochEvidence) -> tuple[Repeat, ...] | None:
    """What can repeat after a restore."""
    if evidence.topology is None or evidence.parts is None or evidence.head is None:
        return None
    parts = by_operator(evidence.topology, evidence.parts)
    return may_repeat(evidence.head.policy, Channels(evidence.topology, parts))


def _positions(evidence: EpochEvidence, parent: Cut | None, unchecked: set[Code]) -> Iterator[Finding]:
    head, parts = evidence.head, evidence.parts
    if head is None or parts is None or head.parent == 0:
        return
    if head.parent >= evidence.epoch:
        message = f"names epoch {head.parent} as its parent, which is not before it"
        yield Finding(Code.POSITION_REGRESSED, None, None, evidence.outcome, message)
    elif parent is None or parent.epoch != head.parent:
        unchecked.add(Code.POSITION_REGRESSED)
    elif parent.generation != head.generation:
        yield from check_operators(parent, parts, evidence.manifest.moved if evidence.manifest else {})
    else:
        yield from check_positions(parent, parts)
        if evidence.topology is not None:
            exact = {head.policy, parent.policy} <= EXACT_POLICIES
            yield from check_growth(evidence.topology, parent.epoch, parent.totals, parts, exact=exact)


def _verdict(evidence: EpochEvidence, findings: list[Finding]) -> Status:
    if evidence.has_manifest:
        return Status.DAMAGED if any(f.code not in HARMLESS for f in findings) else Status.COMPLETE
    return evidence.status
