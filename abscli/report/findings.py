"""What a check says: findings by stable code, and one report an epoch."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from formats.ids import AnyChannelId, EdgeId, TaskId
from formats.view import Repeat, Status


class Code(StrEnum):
    """What is wrong; scripts rely on these words."""

    MISSING_ACK = "missing-ack"
    MISSING_FILE = "missing-file"
    SIZE_MISMATCH = "size-mismatch"
    DIGEST_MISMATCH = "digest-mismatch"
    ROW_MISMATCH = "row-mismatch"
    UNREADABLE = "unreadable"
    UNREFERENCED_FILE = "unreferenced-file"
    MISSING_LOG = "missing-log"
    LOG_MISMATCH = "log-mismatch"
    CONSERVATION = "conservation"
    POSITION_REGRESSED = "position-regressed"
    TOPOLOGY_MISSING = "topology-missing"
    MANIFEST_UNREADABLE = "manifest-unreadable"
    MISPLACED_KEY = "misplaced-key"
    REGION_MIXED = "region-mixed"
    SPLIT_OWNED_TWICE = "split-owned-twice"
    STATE_MISMATCH = "state-mismatch"
    STALE_PATH = "stale-path"
    SINK_PART_MISSING = "sink-part-missing"
    UNREFERENCED_SINK_PART = "unreferenced-sink-part"
    INPUT_MISSING = "input-missing"
    ABANDONED_UPLOAD = "abandoned-upload"
    ABANDONED_TRANSACTION = "abandoned-transaction"
    SINK_PART_PENDING = "sink-part-pending"
    INPUT_RECREATED = "input-recreated"


HARMLESS = frozenset({Code.UNREFERENCED_FILE, Code.ABANDONED_UPLOAD, Code.ABANDONED_TRANSACTION, Code.SINK_PART_PENDING,
                      Code.STALE_PATH, Code.STATE_MISMATCH, Code.INPUT_RECREATED})  # fmt: skip
"""Findings that take nothing away from an epoch."""


class Finding(msgspec.Struct, frozen=True):
    """One thing that is wrong.

    path: relative to the store.
    task: None where it concerns none.
    channel: one, or all of an edge; None where it concerns none.
    """

    code: Code
    task: TaskId | None
    channel: AnyChannelId | EdgeId | None
    path: str | None
    message: str


class EpochReport(msgspec.Struct, frozen=True):
    """What was found of one epoch.

    unchecked: what could not be, or was not to be, checked; it has not passed.
    triggered: RFC 3339, None if unknown.
    modified: modification time of the file that describes the epoch, where `triggered` is not recorded.
    reason: why it was aborted.
    undated: why `modified` does not tell the age, such as after a copy; None if it does.
    repeats: what comes twice when it is restored, which is no finding: at-least-once means that; None if unknown.
    """

    epoch: int
    verdict: Status
    findings: tuple[Finding, ...]
    unchecked: tuple[Code, ...]
    triggered: str | None = None
    reason: str | None = None
    policy: str | None = None
    repeats: tuple[Repeat, ...] | None = None
    modified: str | None = None
    undated: str | None = None

    @property
    def time(self) -> str | None:
        """When it was taken, as far as that is known: triggered, else modified; RFC 3339."""
        return self.triggered or (self.modified if self.undated is None else None)

    @property
    def whole(self) -> bool:
        """Complete, and nothing found that takes from it."""
        return self.verdict is Status.COMPLETE


class SinkVerdict(StrEnum):
    """How the target of a sink compares with the rows that the epochs of a store name.

    EXACT: every row that the checked epochs name is committed, and no commit is from outside the job's history.
    PENDING: rows are stored or prepared, and the next run delivers them.
    INCOMPLETE: rows that an epoch names are missing in the target.
    FOREIGN: the target has commits from outside the job's history.
    UNKNOWN: the user named the target, and it could not be asked.
    UNCHECKED: the user did not name the target.
    """

    EXACT = "exact"
    PENDING = "pending"
    INCOMPLETE = "incomplete"
    FOREIGN = "foreign"
    UNKNOWN = "unknown"
    UNCHECKED = "unchecked"


class SinkReport(msgspec.Struct, frozen=True):
    """The verdict on the target of one sink.

    target: as the user's job file names it; None if no job file names it.
    reason: why it is unknown or unchecked; None for any other verdict.
    """

    sink: str
    target: str | None
    verdict: SinkVerdict
    reason: str | None = None


class StoreReport(msgspec.Struct, frozen=True):
    """What was found of a store.

    findings: of no epoch.
    restorable: whole epochs, ascending, whose positions hold along the whole chain of parents, none when the
    store's own facts are lost.
    sinks: the sinks of the job, by id; empty for a system whose sinks are not checked.
    candidates: epochs each of which may be the newest restorable one, if their numbers and times disagree, the latest
    first; empty if the highest number is the newest.
    """

    epochs: tuple[EpochReport, ...]
    findings: tuple[Finding, ...]
    unchecked: tuple[Code, ...]
    restorable: tuple[int, ...]
    sinks: tuple[SinkReport, ...] = ()
    candidates: tuple[int, ...] = ()

    @property
    def latest_restorable(self) -> int | None:
        """The newest of them; None if there is none, or if it is not known which is the newest."""
        return self.restorable[-1] if self.restorable and not self.candidates else None

    @property
    def damaged(self) -> bool:
        """Whether something that was whole once is not: an epoch with a manifest, or the store's own facts."""
        return any(report.verdict is Status.DAMAGED for report in self.epochs) or any(
            finding.code not in HARMLESS for finding in self.findings
        )

    @property
    def all_findings(self) -> tuple[Finding, ...]:
        """Every finding, the store's own first."""
        return (*self.findings, *(finding for report in self.epochs for finding in report.findings))
