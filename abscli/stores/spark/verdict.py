"""The verdict on a Spark checkpoint: batch by batch, from which a restart gives exact results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from abscli.report.findings import HARMLESS, Code, EpochReport, Finding, StoreReport
from abscli.stores.spark.commits import can_be_told
from abscli.stores.spark.logs import contradictions
from formats.ids import TaskId
from formats.spark import layout
from formats.spark.evidence.facts import FileEvidence, PartitionEvidence, Problem
from formats.spark.evidence.gathering import BatchEvidence, CheckpointEvidence
from formats.spark.ids import StateTask, StorePartition, source_task
from formats.spark.logs import places
from formats.spark.logs.offsets import Offsets
from formats.spark.logs.operators import metadata_v2_dir
from formats.spark.logs.repartitions import Repartition, repartitions
from formats.spark.purging import has_lost_offsets, may_lose_state
from formats.spark.store import timestamp
from formats.view import Status

_NOT_SPARKS = {
    Code.CONSERVATION: "Spark keeps no counters of what went over a channel",
    Code.TOPOLOGY_MISSING: "a checkpoint does not contain the query",
}
_QUICK = "only presence and sizes were looked at"
_ASK = "--deep asks Spark's own reader"


@dataclass(slots=True)
class _Version:
    """One version of a partition.

    blame: why it is not exact, empty if it is.
    named: what is wrong with files of this very version that it can do without.
    there: whether files lead to it at all.
    vouched: checksums hold for them.
    """

    blame: tuple[Problem, ...]
    named: tuple[Problem, ...]
    there: bool
    vouched: bool


class SparkVerdict(NamedTuple):
    """A report, and why what is unchecked is: epoch -> code -> reason."""

    report: StoreReport
    why: dict[int, dict[str, str]]


def check_spark(evidence: CheckpointEvidence) -> StoreReport:
    """The report of `judge`."""
    return judge(evidence).report


def judge(evidence: CheckpointEvidence) -> SparkVerdict:
    """All checks on a checkpoint.

    An epoch is restorable when its offsets, its commit, what its file sources have seen and the state of each of its
    partitions are those that were written, as far as can be told, and its logs contradict no others: then the query
    goes on from it to exact results. Spark also wants the offsets of the batch before, to start at all. A commit that
    is lost takes nothing away where the batch after it says all that it said: a copy has it anew.
    A damaged snapshot that Spark notices and can do without (4.1 on) is told, and takes nothing away.
    """
    last = max((batch.batch for batch in evidence.batches), default=-1) + 1
    first = evidence.oldest_begun + 1
    versions = {one.id: _versions(one, last, first) for one in evidence.partitions}
    by_task: dict[StateTask, list[PartitionEvidence]] = {}
    for one in evidence.partitions:
        by_task.setdefault(one.id.task, []).append(one)
    reports: list[EpochReport] = []
    restorable: list[int] = []
    why: dict[int, dict[str, str]] = {}
    against, moves = contradictions(evidence), repartitions(evidence)
    passed = {number: move for move in moves.values() for number in move.passed}
    for batch in evidence.batches:
        if batch.batch in passed:
            why[batch.batch] = {str(code): reason for code, reason in _NOT_SPARKS.items()}
            reports.append(_given_up(batch, passed[batch.batch]))
            continue
        if not batch.begun and has_lost_offsets(batch.batch, evidence.oldest_begun, evidence.newest_begun):
            why[batch.batch] = {str(code): reason for code, reason in _NOT_SPARKS.items()}
            reports.append(_without_offsets(batch))
            continue
        state = _State()
        before = evidence.before(batch.batch)
        findings = [*_logs(batch, evidence), *against.get(batch.batch, ()), *_source_logs(batch, evidence)]
        findings += _undescribed(batch, evidence)
        findings += _state(batch, evidence, by_task, versions, state)
        # What was read by batches that a repartition has given up comes again: they are not what it went on from.
        stood = moves[batch.batch].of if batch.batch in moves and moves[batch.batch].passed else None
        since = before if stood is None else next(one for one in evidence.history if one.batch == stood)
        regressed, compared = _positions(since, batch, evidence.after(batch.batch))
        findings += regressed
        unchecked = {**_NOT_SPARKS, **dict(_unchecked(evidence, state, batch))}
        if not compared:
            reason = "some source's offsets are of a kind that is not known, or those of the batch before are not there"
            unchecked[Code.POSITION_REGRESSED] = reason
        why[batch.batch] = {str(code): unchecked[code] for code in Code if code in unchecked}
        verdict = _verdict(batch, findings)
        if _exact(batch, evidence, findings, state) and not state.purged and _follows(before, batch):
            restorable.append(batch.batch)
        reports.append(
            EpochReport(
                epoch=batch.batch,
                verdict=verdict,
                findings=tuple(dict.fromkeys(findings)),
                unchecked=tuple(code for code in Code if code in unchecked),
                triggered=timestamp(batch.offsets.timestamp) if batch.offsets else None,
                reason=state.purged,
            )
        )
    findings = [_finding(problem, None) for problem in evidence.problems]
    findings += [_finding(problem, None) for problem in dict.fromkeys(evidence.stale)]
    findings += [_orphan(path) for path in evidence.orphans]
    return SparkVerdict(StoreReport(tuple(reports), tuple(findings), (), tuple(restorable)), why)


def _given_up(batch: BatchEvidence, by: Repartition) -> EpochReport:
    """A batch that was in flight when state was repartitioned without it."""
    return EpochReport(
        epoch=batch.batch,
        verdict=Status.ABORTED,
        findings=(),
        unchecked=tuple(_NOT_SPARKS),
        triggered=timestamp(batch.offsets.timestamp) if batch.offsets else None,
        reason=f"it was in flight when batch {by.batch} repartitioned the state of batch {by.of}, and was dropped: "
        f"its commit is ignored, and its input is read again",
    )


def _without_offsets(batch: BatchEvidence) -> EpochReport:
    """Report a batch whose offsets Spark has purged, and not yet its commit."""
    reason = f"its logs are being purged: {layout.offsets(batch.batch)} and all older offsets are missing"
    return EpochReport(batch.batch, Status.COMPLETE, (), tuple(_NOT_SPARKS), reason=reason)


def _exact(batch: BatchEvidence, evidence: CheckpointEvidence, findings: list[Finding], state: _State) -> bool:
    """Whether nothing was found that a copy of the checkpoint up to this batch would suffer from."""
    if not evidence.ended(batch) or batch.offsets is None:
        return False
    lost = batch.commit is None
    if lost and not can_be_told(evidence, batch.batch):
        return False
    own = layout.commits(batch.batch)
    return all(one in state.spared or one.code in HARMLESS or (lost and one.path == own) for one in findings)


def _follows(before: BatchEvidence | None, batch: BatchEvidence) -> bool:
    """Whether Spark can read the offsets of the batch before; the first batch has none before it."""
    if batch.batch == 0:
        return True
    if before is None or before.offsets is None or batch.offsets is None:
        return False
    was, now = before.offsets, batch.offsets
    return was.version != 1 or now.version != 1 or len(was.sources) == len(now.sources)


@dataclass(slots=True)
class _State:
    """What was found of a batch's state.

    purged: why it is no longer all there, if Spark removes it; None if it is kept.
    spared: findings that take nothing away from it.
    """

    purged: str | None = None
    vouched: bool = True
    shapes: bool = True
    places: bool = True
    unread: str | None = None
    spared: set[Finding] = field(default_factory=set)


def _logs(batch: BatchEvidence, evidence: CheckpointEvidence) -> Iterator[Finding]:
    """Offsets and commit."""
    yield from (_finding(problem, None) for problem in batch.problems)
    if not batch.begun:
        message = "is not there, and the batch was committed"
        yield Finding(Code.MISSING_FILE, None, None, layout.offsets(batch.batch), message)
    if not batch.committed and evidence.ended(batch) and not evidence.stateless:
        later = "committed" if batch.batch < evidence.newest_commit else "begun"
        message = f"is not there, and later batches were {later}"
        yield Finding(Code.MISSING_FILE, None, None, layout.commits(batch.batch), message)
    if batch.batch == evidence.newest_begun > 0 and not evidence.sparse and evidence.before(batch.batch) is None:
        message = f"is not there, and Spark does not start from batch {batch.batch} without"
        yield Finding(Code.MISSING_FILE, None, None, layout.offsets(batch.batch - 1), message)


def _undescribed(batch: BatchEvidence, evidence: CheckpointEvidence) -> Iterator[Finding]:
    """Operators of version 2 without metadata up to the batch: Spark 4.3 writes only that of version 1 again."""
    for operator, batches in evidence.described.items() if evidence.ended(batch) else ():
        if not any(number <= batch.batch for number in batches):
            path = metadata_v2_dir(operator)
            message = f"has no metadata of batch {batch.batch} or older that can be read: Spark does not start without"
            yield Finding(Code.MISSING_FILE, None, None, path, message)


def _source_logs(batch: BatchEvidence, evidence: CheckpointEvidence) -> Iterator[Finding]:
    """What file sources have seen up to the batch."""
    if batch.offsets is None:
        return
    for name, offset in batch.offsets.sources.items():
        upto = places.is_file_source(offset)
        if upto is None or name not in evidence.sources or _shared(name, offset, batch, evidence):
            continue
        for problem in evidence.sources[name].lacking(upto):
            yield _finding(problem, source_task(name))


def _shared(name: str, offset: str | None, batch: BatchEvidence, evidence: CheckpointEvidence) -> bool:
    """Whether a source has no log because it is another one read twice, as in the join of a stream with itself."""
    if evidence.sources[name].any or batch.offsets is None:
        return False
    others = [other for other, log in evidence.sources.items() if log.any]
    return any(batch.offsets.sources.get(other) == offset for other in others)


def _state(
    batch: BatchEvidence,
    evidence: CheckpointEvidence,
    by_task: dict[StateTask, list[PartitionEvidence]],
    versions: dict[StorePartition, list[_Version]],
    state: _State,
) -> Iterator[Finding]:
    """The state that a batch left, task by task."""
    if not evidence.ended(batch):
        return
    if evidence.unread is not None:
        state.unread, state.vouched, state.shapes, state.places = evidence.unread, False, False, False
        return
    version = batch.batch + 1
    tasks = evidence.tasks(batch)
    own = [one for task in tasks for one in by_task.get(task, ())]
    if own and all(_purged(one, versions[one.id][version], version) for one in own):
        state.purged = "its state has been purged"
        return
    purged = [one for one in own if _being_purged(one, versions[one.id], batch.batch, evidence)]
    if purged:
        first = f"{purged[0].folder}/{_name(purged[0], version)}"
        state.purged = f"its state is being purged: {len(purged)} of {len(own)} partitions no longer have it ({first})"
    gone = {one.id for one in purged}
    for task in tasks:
        if task not in by_task:
            message = "the partition's folder is not there"
            yield Finding(Code.MISSING_FILE, task.id, None, layout.task_dir(task), message)
        for part in by_task.get(task, ()):
            if part.id in gone:
                continue
            standing = versions[part.id][version]
            state.vouched &= standing.vouched
            state.shapes &= part.shapes
            state.places &= part.places
            state.unread = state.unread or part.unread
            yield from (_finding(problem, task.id) for problem in standing.blame)
            for problem in standing.named:
                spared = _finding(problem, task.id)
                if not standing.blame:
                    state.spared.add(spared)
                yield spared


_EXACT = _Version((), (), True, True)
_UNVOUCHED = _Version((), (), True, False)


def _versions(part: PartitionEvidence, last: int, first: int) -> list[_Version]:
    """Each version of a partition up to the newest batch's, from the files that lead to it, as Spark takes them.

    first: the version of the oldest batch in the logs; older files were purged, and are not named.
    """
    out = [_EXACT]
    logs, snapshots = part.versions()
    for version in range(1, last + 1):
        at_whole, at_log = snapshots.get(version), logs.get(version)
        before = out[-1]
        # Spark loads the snapshot of a version and looks no further: what is wrong with the log does no harm.
        if at_whole is not None and not at_whole.loud:
            spare = _blamed(at_log) if at_log is not None else ()
            out.append(_Version(_blamed(at_whole), spare, True, at_whole.vouched))
        # The usual version by far, with nothing to be said of it: no object of its own.
        elif at_log is not None and at_log.plain and at_whole is None and (before is _EXACT or before is _UNVOUCHED):
            out.append(before)
        elif at_log is not None:
            named = tuple(at_whole.problems) if at_whole is not None else ()
            blame = (*before.blame, *_blamed(at_log))
            if not blame and (wanted := part.unreached(version)) is not None:
                why = f"cannot be used, and Spark finds no way to version {version} without it in checkpoint format 2"
                blame = (Problem("missing-file", wanted, why, True),)
            out.append(_Version(blame, named, before.there, before.vouched and at_log.vouched))
        elif at_whole is not None:
            out.append(_Version(tuple(at_whole.problems), (), before.there, False))
        else:
            missing = Problem("missing-file", f"{part.folder}/{_name(part, version)}", _lost(version), True)
            # Changelogs and deltas build on each other: of a gap the first lost file is named with every version.
            in_gap = logs and version > first and before.blame and not before.there
            blame = before.blame if in_gap else (missing,)
            out.append(_Version(blame, (), False, False))
        # So that the quick test above, by identity, holds for the next version.
        if out[-1] == _EXACT:
            out[-1] = _EXACT
        elif out[-1] == _UNVOUCHED:
            out[-1] = _UNVOUCHED
    return out


def _blamed(evidence: FileEvidence) -> tuple[Problem, ...]:
    if evidence.problems:
        return tuple(evidence.problems)
    return (Problem("row-mismatch", evidence.path, evidence.doubted, False),) if evidence.doubted is not None else ()


def _name(part: PartitionEvidence, version: int) -> str:
    """What the log of a version would be called."""
    kinds = {evidence.file.kind for evidence in part.evidence.values()}
    kind = next((kind for kind in ("delta", "changelog", "snapshot", "zip") if kind in kinds), "delta")
    uuid = part.files.id_of(version)
    return f"{version}.{kind}" if uuid is None else f"{version}_{uuid}.{kind}"


def _lost(version: int) -> str:
    return f"is not there; without it version {version} and what builds on it are lost"


def _purged(part: PartitionEvidence, standing: _Version, version: int) -> bool:
    """Tell if a version is older than all that is kept of its partition: deleted on purpose."""
    return not standing.there and part.files.purged(version)


def _being_purged(
    part: PartitionEvidence, versions: list[_Version], batch: int, evidence: CheckpointEvidence
) -> bool:
    """Tell if Spark may be removing a batch's state, and has removed files of this partition already."""
    if not may_lose_state(batch, evidence.oldest_begun, evidence.newest_commit):
        return False
    if _purged(part, versions[batch + 1], batch + 1):
        return True
    # SST files go before the snapshots that name them, and changelogs in no order. What the newest batch needs stays.
    lacks = [bool(version.blame) and {one.code for one in version.blame} == {"missing-file"} for version in versions]
    return evidence.oldest_begun > 0 and lacks[batch + 1] and not lacks[evidence.newest_commit + 1]


def _positions(
    before: BatchEvidence | None, batch: BatchEvidence, after: Offsets | None
) -> tuple[list[Finding], bool]:
    """Find sources that went back since the batch before, or are others; and tell if all sources could be compared.

    after: the offsets of the next batch.
    """
    if batch.offsets is None:
        return [], False
    if before is None or before.offsets is None:
        return [], batch.batch == 0
    regressed, compared = [], True
    path = layout.offsets(batch.batch)
    for name, offset in batch.offsets.sources.items():
        began = before.offsets.sources.get(name)
        why = places.why_recreated(began, offset, after.sources.get(name) if after is not None else None)
        if why is not None:
            regressed.append(Finding(Code.INPUT_RECREATED, source_task(name), None, path, f"source {name} {why}"))
            continue
        old, new = places.positions(began), places.positions(offset)
        if new is None:
            compared &= offset is None
            continue
        stood = {position.split: position.offset for position in old or ()}
        for position in new:
            was = stood.get(position.split)
            if was is not None and position.offset is not None and position.offset < was:
                message = f"source {name} went back in {position.split}, from {was} to {position.offset}"
                regressed.append(Finding(Code.POSITION_REGRESSED, source_task(name), None, path, message))
    return regressed, compared


def _unchecked(evidence: CheckpointEvidence, state: _State, batch: BatchEvidence) -> Iterator[tuple[Code, str]]:
    """What could not be checked of a batch, and why."""
    if evidence.quick or not state.vouched or not batch.vouched:
        reason = "some files have no checksum of any kind, or one that could not be made use of"
        yield Code.DIGEST_MISMATCH, _QUICK if evidence.quick else reason
    unread = f"{state.unread or 'the columns of some state are not known'}; {_ASK}"
    if evidence.quick or not state.shapes:
        yield Code.ROW_MISMATCH, _QUICK if evidence.quick else unread
    if evidence.quick or not state.places:
        reason = unread if not state.shapes else "which columns some state is partitioned by is not known"
        yield Code.MISPLACED_KEY, _QUICK if evidence.quick else reason
    if not evidence.ended(batch):
        for code in (Code.MISSING_ACK, Code.MISSING_FILE):
            yield code, "the batch was not committed: what is not there may not have been written yet"


def _verdict(batch: BatchEvidence, findings: list[Finding]) -> Status:
    if any(finding.code not in HARMLESS for finding in findings):
        return Status.DAMAGED
    return Status.COMPLETE if batch.committed else Status.IN_PROGRESS


def _finding(problem: Problem, task: TaskId | None) -> Finding:
    return Finding(Code(problem.code), task, None, problem.path, problem.message)


def _orphan(path: str) -> Finding:
    return Finding(Code.UNREFERENCED_FILE, None, None, path, "no retained batch refers to it")
