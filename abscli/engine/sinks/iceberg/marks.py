"""The property that a sink keeps in an Iceberg table, set in one step with the rows of each commit.

The summary of the commit's snapshot says the same of that commit alone; a snapshot that expires takes it along, the
property stays. Neither knows what somebody has taken out again: what is in the table is the line of snapshots that ends
with the current one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import msgspec

from abscli.engine.sinks.staged.contract import without_newest
from formats.decoding import decode
from formats.ids import EpochId

JOB, ATTEMPT, EPOCH, CLAIM = "abs.job", "abs.attempt", "abs.epoch", "abs.claim"
"""In the summary of a snapshot: of which sink it is; whose rows it has, or, of a claim without rows, its id."""
KEPT = 500
"""Epochs of an attempt that the property names, the newest."""

Runs = tuple[tuple[int, int], ...]
"""First and last of each run of numbers, ascending."""


class Marks(msgspec.Struct, frozen=True):
    """The property. writer: drawn by each attempt that takes the table; epochs: written, by the attempt that made them;
    left: likewise, what is there and was left behind on purpose; snapshot, sequence: of its newest commit."""

    writer: str = ""
    epochs: dict[str, Runs] = {}
    left: dict[str, Runs] = {}
    snapshot: int | None = None
    sequence: int = 0

    @classmethod
    def read(cls, text: str | None) -> Self:
        """None: where there is no property; ValueError where it is none of ours."""
        return cls() if text is None else decode(text, cls)

    def text(self) -> str:
        """Return the property as text."""
        return msgspec.json.encode(self).decode()

    def shown(self) -> list[EpochId]:
        """Return the committed epochs of the history, by their numbers."""
        return sorted(_ids(self.epochs), key=lambda epoch: epoch.number)

    def has(self, epoch: EpochId) -> bool:
        """Tell whether an epoch of the history is committed."""
        return _holds(self.epochs.get(epoch.attempt_id, ()), epoch.number)

    def has_reached(self, epoch: EpochId) -> bool:
        """Tell whether rows of an epoch, or of a later epoch of its attempt, are committed, on any branch."""
        runs = (*self.epochs.get(epoch.attempt_id, ()), *self.left.get(epoch.attempt_id, ()))
        return any(last >= epoch.number for _, last in runs)

    def has_left(self, epoch: EpochId) -> bool:
        """Tell whether an epoch is committed on an abandoned branch."""
        return _holds(self.left.get(epoch.attempt_id, ()), epoch.number)

    def with_epochs(self, epochs: Collection[EpochId]) -> Self:
        """Return marks with further epochs."""
        shown = {*self.shown(), *epochs}
        left = set(_ids(self.left)) - set(epochs)
        return msgspec.structs.replace(self, epochs=_runs(shown), left=_runs(left))

    def taken(self, writer: str, left: Collection[EpochId], oldest: int) -> Self:
        """Return the marks with which the next writer begins.

        left: committed epochs outside the history.
        oldest: the oldest epoch that a manifest may name. Below it only the newest epoch of each attempt is kept.
        """
        gone = without_newest([epoch for epoch in (*self.shown(), *_ids(self.left)) if epoch.number < oldest])
        shown = {epoch for epoch in self.shown() if epoch not in left and epoch not in gone}
        behind = {epoch for epoch in {*_ids(self.left), *left} if epoch not in gone}
        return msgspec.structs.replace(self, writer=writer, epochs=_runs(shown), left=_runs(behind))

    def up_to(self, number: int) -> Self:
        """Return marks without the epochs above a number."""
        shown, left = ([epoch for epoch in _ids(runs) if epoch.number <= number] for runs in (self.epochs, self.left))
        return msgspec.structs.replace(self, epochs=_runs(shown), left=_runs(left))


def _holds(runs: Runs, number: int) -> bool:
    return any(first <= number <= last for first, last in runs)


def _ids(runs: Mapping[str, Runs]) -> Iterator[EpochId]:
    for attempt_id, its_runs in runs.items():
        for first, last in its_runs:
            yield from (EpochId(attempt_id, number) for number in range(max(first, last + 1 - KEPT), last + 1))


def _runs(epochs: Collection[EpochId]) -> dict[str, Runs]:
    by_attempt: dict[str, list[int]] = {}
    for epoch in epochs:
        by_attempt.setdefault(epoch.attempt_id, []).append(epoch.number)
    return {attempt_id: _joined(sorted(numbers)[-KEPT:]) for attempt_id, numbers in sorted(by_attempt.items())}


def _joined(numbers: Sequence[int]) -> Runs:
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return tuple(runs)


class Commit(NamedTuple):
    """A snapshot of a table. parent: None of the first. sequence: grows from commit to commit; 0 in a table of the
    first version of the format. summary: what was said of it."""

    id: int
    parent: int | None
    sequence: int
    summary: Mapping[str, str]


def line_of(current: Commit | None, commits: Mapping[int, Commit]) -> Iterator[Commit]:
    """Return the current snapshot and its ancestors, as far as they have not expired."""
    while current is not None:
        yield current
        current = commits.get(current.parent) if current.parent is not None else None


def is_undone(marks: Marks, line: Sequence[Commit], commits: Collection[int]) -> bool:
    """Tell whether the table lost the sink's newest commit: it was rolled back past it, or recreated.

    That a commit has expired says nothing: so does every one, and the next one then has no parent any more. But what is
    older than it cannot be current unless the table was set back. line: newest first; commits: all that are there.
    """
    if marks.snapshot is None or any(commit.id == marks.snapshot for commit in line):
        return False
    return marks.snapshot in commits or not line or line[-1].sequence < marks.sequence


def epochs_of(job: str, line: Sequence[Commit]) -> list[EpochId]:
    """Return the epochs of the snapshots that a sink committed, newest first."""
    own = [commit.summary for commit in line if commit.summary.get(JOB) == job and EPOCH in commit.summary]
    return [EpochId(summary[ATTEMPT], int(summary[EPOCH])) for summary in own]


def summary_of(job: str, epoch: EpochId) -> dict[str, Any]:
    """Return the summary of the snapshot with the rows of an epoch."""
    return {JOB: job, ATTEMPT: epoch.attempt_id, EPOCH: str(epoch.number)}
