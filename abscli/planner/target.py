"""Decide which rows a target must get, and whether the job must be refused. Pure.

The job that resumes, `abs validate --job` and the simulator ask the same question, `compare`. Its rules:

T1  A manifest names the rows of one or more epochs: those that were aborted since the manifest before are among them.
    Rows that the manifest before names already are not delivered again.
T2  Deliveries come in the order of the history. So a target that has the commit marker of one delivery has all older
    ones, and only younger ones are due. Markers can expire: the newest of each attempt stays, and implies the others.
T3  A target that commits parts one by one writes the marker of the delivery last. Epochs of parts without it are
    unfinished: their deliveries are due, and change nothing of what is there.
T4  A commit whose attempt does not have this epoch number on the history is foreign: it came from another branch or
    from another copy of the store. Its rows cannot be taken back. It is refused, or left where it is if the user says
    so; then it is not shown any more.
T5  Each manifest records the newest epoch whose rows the target must have, and the newest one before its own rows. If
    no delivery is due, the target must have the first; if some are, what the oldest of them records as the one before.
    Otherwise rows are missing that the store does not name any more.
T6  A target that was replaced or rolled back has lost commits although markers may be there (`undone`). Then T5 is not
    asked: how many rows are missing cannot be told from markers.
T7  A target without markers (stdout) has what the store has noted. Nothing is missing there, since nobody can look.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

from abscli.planner.lineage import is_on, maker
from formats.ids import EpochId
from formats.native.facts import CommittedFacts
from formats.native.sink import Stretch


class Named(Protocol):
    """The rows that one manifest names for a target."""

    @property
    def epoch(self) -> EpochId:
        """The epoch of the manifest, with the attempt that made it."""

    def behind(self, epoch: int) -> Self | None:
        """Return the rows that were cut for epochs above `epoch`; None if there are none."""


N = TypeVar("N", bound=Named)


@dataclass(frozen=True, slots=True)
class Gap:
    """The missing rows of a target.

    above: the newest epoch of the history whose rows the target has; 0 for none.
    upto: the newest epoch with missing rows.
    rows: an upper bound of their number.
    """

    above: int
    upto: int
    rows: int

    def __str__(self) -> str:
        return f"up to {self.rows} rows of epochs {self.above + 1} to {self.upto}, which the store no longer has"


@dataclass(frozen=True, slots=True)
class HistoryFacts(Generic[N]):
    """Facts that a store has about one target.

    epoch: the newest epoch of the history; 0 for the start.
    line: the history of that epoch, newest stretch first.
    named: what its manifests name for the target, oldest first.
    records: what they record of it, by epoch.
    """

    epoch: int
    line: Sequence[Stretch]
    named: Sequence[N]
    records: Mapping[int, CommittedFacts]


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """Facts that a target reports about itself.

    markers: the epochs of its commit markers, also of single parts, except those that were left there on purpose.
    unfinished: those of `markers` of which not all parts are committed.
    has: asks for one epoch whose marker is missing: whether all rows of it, or of a later epoch of its attempt, are
    committed.
    undone: how it lost commits; None if it did not.
    remembers: whether it has markers of its own.
    """

    markers: Sequence[EpochId]
    unfinished: Collection[EpochId]
    has: Callable[[EpochId], bool]
    undone: str | None = None
    remembers: bool = True


@dataclass(frozen=True, slots=True)
class Comparison(Generic[N]):
    """The pending rows of a target, and the reasons to refuse the job.

    due: what it does not have, oldest first.
    foreign: its commits that are not part of the history.
    gap: rows that it must have and that no kept manifest names; None if there are none.
    undone: how it lost commits; None if it did not.
    """

    due: tuple[N, ...]
    foreign: tuple[EpochId, ...]
    gap: Gap | None
    undone: str | None


def compare(history: HistoryFacts[N], target: TargetFacts) -> Comparison[N]:
    """Compare what a target has with the history that a job resumes from (T1 to T7)."""
    foreign = tuple(epoch for epoch in target.markers if not is_on(history.line, epoch))
    whole = [epoch for epoch in target.markers if epoch not in target.unfinished]
    due = undelivered(history.named, whole, history.line)
    if target.remembers:  # single markers may have expired
        due = [named for named in due if not target.has(named.epoch)]
    gap = None
    if target.remembers and target.undone is None:
        oldest_due = due[0].epoch.number if due else None
        gap = find_gap(history.records, history.epoch, oldest_due, history.line, whole, target.has)
    return Comparison(tuple(due), foreign, gap, target.undone)


def undelivered(named: Sequence[N], shown: Sequence[EpochId], line: Sequence[Stretch]) -> list[N]:
    """Return what is above the newest marker of the history (T2), each without what the one before names (T1)."""
    newest = max((epoch.number for epoch in shown if is_on(line, epoch)), default=0)
    due = []
    for one in named:
        if one.epoch.number > newest:
            due.append(one.behind(newest))
            newest = one.epoch.number
    return [one for one in due if one is not None]


def find_gap(
    records: Mapping[int, CommittedFacts],
    newest: int,
    oldest_due: int | None,
    line: Sequence[Stretch],
    shown: Sequence[EpochId],
    has: Callable[[EpochId], bool],
) -> Gap | None:
    """Find rows that a target must have, does not have, and that the store cannot deliver (T5).

    records: by epoch, what manifests of the history record of the target.
    newest: the epoch from which the job resumes.
    oldest_due: the oldest manifest with a pending delivery; None if no delivery is pending.
    line: the history of `newest`.
    shown, has: see `TargetFacts`; shown without unfinished epochs.
    """
    record = records.get(newest if oldest_due is None else oldest_due)
    if record is None:
        return None
    upto = record.epoch if oldest_due is None else record.previous
    attempt_id = maker(line, upto)
    above = max((epoch.number for epoch in shown if is_on(line, epoch)), default=0)
    if upto <= above or attempt_id is None or has(EpochId(attempt_id, upto)):
        return None
    return Gap(above, upto, record.rows)
