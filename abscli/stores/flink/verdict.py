"""The verdict on Flink's checkpoints, from the evidence alone.

Flink keeps no digests, row counts or counters of records, so those checks are unchecked, each with the reason, and
never passed. A file that lies elsewhere than Flink would look, but is whole, is told in `notes`: `abs restore` writes a
copy that refers to it rightly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from abscli.report.findings import HARMLESS, Code, EpochReport, Finding, StoreReport
from abscli.stores.flink.conservation import conserved
from formats.flink.evidence import FIELDS, EpochEvidence, FileEvidence
from formats.flink.files.folders import COPY_ELSEWHERE
from formats.flink.files.resolve import How, directory_of
from formats.flink.in_flight import Tally
from formats.flink.metadata.handles import key_groups
from formats.flink.regional.origins import words as taken_over_words
from formats.ids import TaskId
from formats.job.model import key_group_range
from formats.view import Status

NEVER: dict[Code, str] = {
    Code.DIGEST_MISMATCH: "Flink writes no digests: a flipped byte within a value shows nowhere",
    Code.ROW_MISMATCH: "Flink writes no numbers of rows",
    Code.CONSERVATION: "Flink counts no records, and none were kept in flight",
    Code.POSITION_REGRESSED: "checkpoints of Flink do not name the one before",
    Code.TOPOLOGY_MISSING: "the metadata does not contain the job graph",
}
"""What the format does not allow to check, and why."""

NOT_READ: dict[Code, str] = {
    Code.UNREADABLE: "the streams were not read",
    Code.MISPLACED_KEY: "the keys were not read",
    Code.CONSERVATION: "in-flight data was not read",
}

NO_TALLIES: Final[Mapping[int, Tally]] = MappingProxyType({})

NAMED = 4
"""States that a finding about a file names."""


def no_rivals(newest: int) -> tuple[int, ...]:
    """Return none: a checkpoint that the user named is the one that is meant."""
    return ()


class FlinkReport(msgspec.Struct, frozen=True):
    """What the check says of a store of Flink's.

    report: as of any store.
    why: epoch -> code -> why it is unchecked.
    notes: epoch -> what Flink would trip over though nothing is lost, and which laws of conservation hold.
    """

    report: StoreReport
    why: dict[int, dict[Code, str]]
    notes: dict[int, tuple[str, ...]]


def check_epoch(
    evidence: EpochEvidence, tallies: Mapping[int, Tally] = NO_TALLIES
) -> tuple[EpochReport, dict[Code, str], tuple[str, ...]]:
    """One checkpoint, why things are unchecked, and what its records in flight prove. tallies: see `check_store`."""
    why = dict(NEVER)
    if evidence.metadata is None:
        return *_without(evidence, why), ()
    if not evidence.read:
        why.update(NOT_READ)
    why.update({Code(code): reason for code, reason in evidence.unchecked.items()})
    read = [Finding(Code(p.code), p.task, p.channel, p.path, p.message) for p in evidence.problems]
    misplaced = {finding.task for finding in read if finding.code is Code.MISPLACED_KEY}
    findings = [
        *_properties(evidence),
        *_files(evidence),
        *read,
        *(finding for finding in _key_groups(evidence) if finding.task not in misplaced),
    ]
    verdict = Status.DAMAGED if any(f.code not in HARMLESS for f in findings) else Status.COMPLETE
    why[Code.UNREFERENCED_FILE] = "asked of the whole store"
    holds: tuple[str, ...] = ()
    mine = tallies.get(evidence.epoch)
    if mine is not None and mine.unaligned:
        others = [tally for epoch, tally in sorted(tallies.items()) if epoch != evidence.epoch]
        laws = conserved(mine, others, evidence.names)
        findings += laws.findings  # which do not change the verdict: a law that was learned is no proof
        holds = laws.holds
        why.pop(Code.CONSERVATION)
        if laws.why is not None:
            why[Code.CONSERVATION] = laws.why
    reason = _not_known(evidence) if verdict is Status.COMPLETE else None
    return _report(evidence, verdict, findings, why, reason), why, holds


def check_store(
    epochs: Iterable[EpochEvidence],
    files: dict[str, int] | None = None,
    tallies: Mapping[int, Tally] = NO_TALLIES,
    rivals: Callable[[int], tuple[int, ...]] = no_rivals,
) -> FlinkReport:
    """All checkpoints, taken one at a time, ascending.

    files: every file of the store, by path; None when not all epochs are given, so that nothing can be said of files
    that none refers to. tallies: of these checkpoints and of others of their job, by epoch.
    rivals: `FlinkStore.rivals`, asked of the restorable checkpoint with the highest number.
    """
    reports: dict[int, EpochReport] = {}
    why: dict[int, dict[Code, str]] = {}
    notes: dict[int, tuple[str, ...]] = {}
    referenced: set[str] = set()
    unknown: set[int] = set()
    open_homes: list[str] = []
    sure = True
    for evidence in epochs:
        reports[evidence.epoch], why[evidence.epoch], holds = check_epoch(evidence, tallies)
        notes[evidence.epoch] = (*_notes(evidence), *(f"conservation holds: {equation}" for equation in holds))
        if _not_known(evidence) is not None:
            unknown.add(evidence.epoch)
        referenced.add(evidence.path)
        referenced.update(file.path for file in evidence.files)
        if evidence.status in (Status.IN_PROGRESS, Status.INCOMPLETE):
            open_homes.append(evidence.home + "/")
        elif evidence.metadata is None:
            sure = False
    findings: list[Finding] = []
    if files is not None and sure:
        message = "no checkpoint that is here refers to it" + (", one that is open may" if open_homes else "")
        for path in sorted(files):
            if path not in referenced and not path.startswith(tuple(open_homes)):
                findings.append(Finding(Code.UNREFERENCED_FILE, None, None, path, message))
        for epoch, report in reports.items():
            rest = tuple(code for code in report.unchecked if code is not Code.UNREFERENCED_FILE)
            reports[epoch] = msgspec.structs.replace(report, unchecked=rest)
            why[epoch].pop(Code.UNREFERENCED_FILE, None)
        unchecked: tuple[Code, ...] = ()
    else:
        unchecked = (Code.UNREFERENCED_FILE,)
    restorable = tuple(n for n, report in reports.items() if report.whole and n not in unknown)
    rival = rivals(restorable[-1]) if restorable else ()
    candidates = (*rival, restorable[-1]) if rival else ()
    whole = StoreReport(tuple(reports.values()), tuple(findings), unchecked, restorable, candidates=candidates)
    return FlinkReport(whole, why, notes)


def beyond_repair(evidence: EpochEvidence) -> str | None:
    """Why not even a rewritten copy could be restored, or is not known to be, in words; None if one can: every byte is
    there somewhere."""
    if evidence.metadata is None:
        cannot = f"its _metadata cannot be read: {evidence.problem}"
        return cannot if evidence.problem else "it has no _metadata: it was never completed"
    lost = [finding for file in evidence.files if file.lost and (finding := _file(file)) is not None]
    lost += [
        Finding(Code(p.code), p.task, p.channel, p.path, p.message)
        for p in evidence.problems
        if Code(p.code) not in HARMLESS
    ]
    lost += _key_groups(evidence)
    if not lost:
        return _not_known(evidence)
    first = lost[0]
    more = len({(finding.task, finding.path) for finding in lost}) - 1
    of = f" of {first.task}" if first.task else ""
    return f"{first.path or first.channel}{of} {first.message}" + (f" (and {more} more)" if more else "")


def _without(evidence: EpochEvidence, why: dict[Code, str]) -> tuple[EpochReport, dict[Code, str]]:
    """A checkpoint without `_metadata`, or with one that cannot be read."""
    nothing = "its _metadata cannot be read" if evidence.problem else "it has no _metadata"
    why = {code: nothing if code is Code.CONSERVATION else why.get(code, nothing) for code in Code}
    if evidence.problem is not None:
        del why[Code.MANIFEST_UNREADABLE]
        findings = [Finding(Code.MANIFEST_UNREADABLE, None, None, evidence.path, evidence.problem)]
        return _report(evidence, Status.DAMAGED, findings, why), why
    findings = []
    reason = "no _metadata: it is still being taken, failed, or was killed"
    if evidence.status is Status.INCOMPLETE:
        del why[Code.MISSING_ACK]
        reason = "no _metadata, and a later checkpoint is complete: it failed or was aborted"
        findings = [Finding(Code.MISSING_ACK, None, None, evidence.path, reason)]
    return _report(evidence, evidence.status, findings, why, reason), why


def _report(
    evidence: EpochEvidence,
    verdict: Status,
    findings: list[Finding],
    why: dict[Code, str],
    reason: str | None = None,
) -> EpochReport:
    unchecked = tuple(code for code in Code if code in why)
    return EpochReport(evidence.epoch, verdict, tuple(findings), unchecked, None, reason, modified=evidence.modified,
                       undated=evidence.undated)  # fmt: skip


def _not_known(evidence: EpochEvidence) -> str | None:
    """Why it is not known whether all files of a checkpoint are there, in words; None if it is."""
    count = len({file.written for file in evidence.files if not file.looked})
    if not count:
        return None
    return f"whether it is intact is not known: {count} files were not checked ({evidence.unchecked['missing-file']})"


def _properties(evidence: EpochEvidence) -> Iterator[Finding]:
    metadata = evidence.metadata
    if metadata is not None and metadata.problem is not None:
        message = f"{metadata.problem}; all operators are whole, `abs restore` writes the properties anew"
        yield Finding(Code.MANIFEST_UNREADABLE, None, None, evidence.path, message)


def _files(evidence: EpochEvidence) -> Iterator[Finding]:
    """Presence, place and size: one finding for a file and a task."""
    seen: set[tuple[TaskId, str]] = set()
    for file in evidence.files:
        finding = _file(file)
        if finding is not None and (file.task, file.path) not in seen:
            seen.add((file.task, file.path))
            yield finding


def _file(file: FileEvidence) -> Finding | None:
    content = FIELDS[file.field]
    if file.states:
        more = len(file.states) - NAMED
        content += f" ({', '.join(file.states[:NAMED])}{f' and {more} more' if more > 0 else ''})"
    if not file.looked:
        return None
    if file.size is None:
        hint = "" if file.hint == COPY_ELSEWHERE else f"; {file.hint}"  # what the code's meaning says already
        return Finding(Code.MISSING_FILE, file.task, None, file.path, f"missing; it contained {content}{hint}")
    if not file.fits:
        message = f"has {file.size} bytes, {file.wanted} were written; it holds {content}"
        return Finding(Code.SIZE_MISMATCH, file.task, None, file.path, message)
    if file.how is How.FOUND:
        remedy = "`abs restore` makes a copy that is"
        message = f"holds {content} and is not where Flink looks, which is {file.written}; {remedy}"
        return Finding(Code.MISSING_FILE, file.task, None, file.path, message)
    return None


def _key_groups(evidence: EpochEvidence) -> Iterator[Finding]:
    """Every keyed handle holds exactly its subtask's slice of the key groups, so that no group is there twice."""
    metadata = evidence.metadata
    for operator in metadata.operators if metadata is not None else ():
        if operator.max_parallelism < operator.parallelism:
            continue
        for subtask in operator.subtasks:
            own = key_group_range(subtask.index, operator.parallelism, operator.max_parallelism)
            for handle in (subtask.managed_keyed, subtask.raw_keyed):
                if handle is None or key_groups(handle) == own:
                    continue
                groups = key_groups(handle)
                task = TaskId(evidence.names[operator.id], subtask.index)
                message = f"holds key groups {_shown(groups)}, the task's are {_shown(own)}"
                yield Finding(Code.MISPLACED_KEY, task, None, evidence.path, message)


def _shown(groups: range) -> str:
    return f"{groups.start} to {groups.stop - 1}" if groups else "none"


def _notes(evidence: EpochEvidence) -> Iterator[str]:
    metadata = evidence.metadata
    for how, clause in ((How.MOVED, "were moved with their job"), (How.MAPPED, "are at --path-map's place")):
        files = {file.written for file in evidence.files if file.how is how}
        if files:
            directories = _some(sorted({directory_of(file) for file in files}))
            yield (
                f"{len(files)} files {clause}: Flink looks for them in {directories} and does not find them;"
                " `abs restore` makes a copy that Flink can read"
            )
    if metadata is not None:
        yield from (f"regional: the state of {one}" for one in taken_over_words(metadata, evidence.names))
    if metadata is not None and (lost := {file.task for file in evidence.files if file.lost}):
        hurt = {task.operator for task in lost}
        whole = [name for operator in metadata.operators if (name := evidence.names[operator.id]) not in hurt]
        yield (
            f"files of {_some(sorted(map(str, lost)))} are lost; all files are there of "
            + (_some(whole) if whole else "no operator")
        )
    if metadata is not None and evidence.home.startswith("chk-") and evidence.home != f"chk-{metadata.checkpoint_id}":
        yield f"its _metadata is of checkpoint {metadata.checkpoint_id}"


def _some(names: list[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
