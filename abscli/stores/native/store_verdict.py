"""The verdict on a store: its epochs, its own facts, what nothing refers to, and what can be restored."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import msgspec

from abscli.report.findings import Code, EpochReport, Finding, StoreReport
from abscli.stores.native.checks.positions import Cut
from abscli.stores.native.verdict import check_epoch, cut_in
from formats.ids import TaskId
from formats.job.expand import task_ids
from formats.native import layout
from formats.native.evidence import EpochEvidence, StoreEvidence
from formats.view import Status


@dataclasses.dataclass(slots=True)
class _Referenced:
    """What the epochs account for.

    open_homes: folders whose epoch is open, and its tasks are not known.
    open_packs: folders whose epoch is open.
    open_parts: the tasks of an open epoch, each with its folder.
    sure: whether all that has been complete could be read.
    """

    paths: set[str]
    open_homes: set[str] = dataclasses.field(default_factory=set)
    open_packs: set[str] = dataclasses.field(default_factory=set)
    open_parts: set[tuple[str, TaskId]] = dataclasses.field(default_factory=set)
    sure: bool = True

    def add(self, evidence: EpochEvidence) -> None:
        self.paths.update(evidence.paths())
        if evidence.has_manifest:
            self.paths.add(layout.tasks_file(evidence.epoch, evidence.home))
            self.sure &= evidence.parts is not None
            return
        home = layout.home(evidence.epoch, evidence.home)
        self.open_packs.add(home)
        if evidence.topology is None:
            self.open_homes.add(home)
        else:
            self.open_parts.update((home, task) for task in task_ids(evidence.topology))

    def has(self, path: str) -> bool:
        """Whether a file is accounted for. What the tasks of an open epoch have begun to write is."""
        if path in self.paths or layout.is_lock(path):
            return True
        if path.startswith(f"{layout.WRITTEN}/"):
            return True
        if path.partition("/parts/")[0] in self.open_homes:
            return True
        if (pack := layout.pack_of(path)) is not None:
            return pack.home in self.open_packs
        part = layout.part_of(path)
        return part is not None and (part.home, part.task) in self.open_parts


def check_store(
    store: StoreEvidence,
    epochs: Iterable[EpochEvidence],
    files: Iterable[str] | None = None,
    earlier: Iterable[Cut] = (),
) -> StoreReport:
    """All checks on a store. epochs: ascending, taken one at a time, so that one is in memory at a time.

    files: the names of all files, asked for after the epochs; None when `epochs` are not all there are, so that
    nothing can be said about files that none refers to. earlier: cuts of parents that are not themselves checked.
    """
    reports: dict[int, EpochReport] = {}
    parents: dict[int, int] = {}
    cuts = {cut.epoch: cut for cut in earlier}
    referenced = _Referenced({layout.STORE})
    attempts = {attempt.attempt: attempt.id for attempt in store.attempts}
    findings = [Finding(Code(p.code), p.task, None, p.path, p.message) for p in store.problems]
    unread = {problem.path for problem in store.problems}
    for evidence in epochs:
        head = evidence.head
        report = check_epoch(evidence, cuts.get(head.parent) if head else None)
        reports[evidence.epoch] = report
        referenced.add(evidence)
        if head is not None:
            parents[evidence.epoch] = head.parent
            record = layout.attempt(head.attempt)
            if evidence.has_manifest and (stood := cut_in(evidence)) is not None:
                cuts[evidence.epoch] = stood
            if head.attempt not in attempts and record not in unread:
                unread.add(record)
                message = f"the record of attempt {head.attempt}, which took epoch {evidence.epoch}, is not there"
                findings.append(Finding(Code.MISSING_FILE, None, None, record, message))
            elif attempts.get(head.attempt, head.attempt_id) != head.attempt_id:
                message = f"says attempt {head.attempt_id[:12]}…, {record} says {attempts[head.attempt][:12]}…"
                stranger = Finding(Code.MANIFEST_UNREADABLE, None, None, evidence.outcome, message)
                reports[evidence.epoch] = _with(report, stranger)
    findings += _tags(store, reports)
    unchecked: tuple[Code, ...] = ()
    if files is not None and referenced.sure:
        referenced.paths.update(layout.attempt(number) for number in attempts)
        referenced.paths.update(layout.topology(attempt.topology_sha256) for attempt in store.attempts)
        referenced.paths.update(unread)
        referenced.paths.update(store.fences)
        referenced.paths.update(store.recoveries)
        referenced.paths.update(layout.tag(tag.epoch, tag.name) for tag in store.tags)
        _orphans([name for name in files if not referenced.has(name)], reports, findings)
    else:
        unchecked = (Code.UNREFERENCED_FILE,)
    unbroken = _chains(reports, parents) if store.readable else set()
    restorable = tuple(n for n, report in reports.items() if report.whole and n in unbroken)
    return StoreReport(tuple(reports.values()), tuple(findings), unchecked, restorable)


def _tags(store: StoreEvidence, reports: dict[int, EpochReport]) -> Iterator[Finding]:
    """Tags whose epoch should have stayed, and is not there."""
    for tag in store.tags:
        report = reports.get(tag.epoch)
        if report is None or report.verdict not in (Status.COMPLETE, Status.DAMAGED):
            message = f"epoch {tag.epoch} is tagged {tag.name}, and is not complete here any more"
            yield Finding(Code.MISSING_FILE, None, None, layout.outcome(tag.epoch), message)


def _with(report: EpochReport, finding: Finding) -> EpochReport:
    """The report with a finding that takes away from the epoch."""
    verdict = Status.DAMAGED if report.verdict is Status.COMPLETE else report.verdict
    return msgspec.structs.replace(report, verdict=verdict, findings=(*report.findings, finding))


def _orphans(names: list[str], reports: dict[int, EpochReport], findings: list[Finding]) -> None:
    """Files that nothing refers to: told with their epoch if there is one, and no damage to it."""
    by_epoch: dict[int, list[Finding]] = {n: [] for n in reports}
    for name in names:
        epoch = layout.epoch_of(name)
        ours = epoch is not None and epoch in by_epoch
        why = "nothing refers to it" if ours or epoch is None else f"nothing refers to it: there is no epoch {epoch}"
        finding = Finding(Code.UNREFERENCED_FILE, None, None, name, why)
        (by_epoch[epoch] if epoch is not None and ours else findings).append(finding)
    for epoch, more in by_epoch.items():
        report = reports[epoch]
        checked = tuple(code for code in report.unchecked if code is not Code.UNREFERENCED_FILE)
        reports[epoch] = msgspec.structs.replace(report, findings=(*report.findings, *more), unchecked=checked)


def _chains(reports: dict[int, EpochReport], parents: dict[int, int]) -> set[int]:
    """Epochs on whose way no position went back, as far as their parents are still there."""
    unbroken: set[int] = set()
    for epoch, report in reports.items():
        parent = parents.get(epoch, 0)
        regressed = any(finding.code is Code.POSITION_REGRESSED for finding in report.findings)
        if not regressed and (parent in unbroken or parent not in reports):
            unbroken.add(epoch)
    return unbroken
