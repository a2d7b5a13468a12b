"""Every short sequence of events around a target; each rule of its protocol is needed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from abscli.planner.target import Comparison, HistoryFacts, TargetFacts, compare
from abscli.protocol.committer import (
    Action,
    Committer,
    DiscardAbandoned,
    DiscardUnnamed,
    Event,
    ManifestWritten,
    TargetAsked,
    TargetTaken,
    VerifyCommit,
)
from abscli.sim.targets import Limits, Manifest, Rules, search


@pytest.mark.parametrize("singly", [False, True])
@pytest.mark.parametrize("steps", [9, pytest.param(12, marks=pytest.mark.soak)])
def test_each_row_is_in_the_target_once_or_the_job_is_refused(steps: int, singly: bool) -> None:
    found = search(Rules(commits_singly=singly), Limits(steps=steps))
    assert (found.message, found.steps) == ("", ())
    assert found.worlds > 10_000


@pytest.mark.parametrize("steps", [9, pytest.param(11, marks=pytest.mark.soak)])
def test_a_target_that_is_replaced_and_keeps_its_markers_refuses_the_job(steps: int) -> None:
    found = search(Rules(keeps_markers=True), Limits(steps=steps))
    assert (found.message, found.steps) == ("", ())
    assert found.worlds > 10_000


@pytest.mark.parametrize("steps", [9, pytest.param(11, marks=pytest.mark.soak)])
def test_no_row_is_missing_in_a_target_without_markers(steps: int) -> None:
    found = search(Rules(remembers=False, checks_owner=False), Limits(steps=steps))
    assert (found.message, found.steps) == ("", ())
    assert found.worlds > 5_000


Answer = tuple[Committer[Manifest], tuple[Action[Manifest], ...]]
Compare = Comparison[Manifest]
History = HistoryFacts[Manifest]


def without_t1(history: History, target: TargetFacts) -> Compare:
    """A delivery contains what the one before named already."""
    found = compare(history, target)
    whole = {one.epoch: one for one in history.named}
    return replace(found, due=tuple(whole[one.epoch] for one in found.due))


def without_t2(history: History, target: TargetFacts) -> Compare:
    """Whatever manifests name is due."""
    return replace(compare(history, target), due=tuple(history.named))


def without_t4(history: History, target: TargetFacts) -> Compare:
    """Foreign commits are not refused."""
    return replace(compare(history, target), foreign=())


def without_t5(history: History, target: TargetFacts) -> Compare:
    """Missing rows are not looked for."""
    return replace(compare(history, target), gap=None)


def without_t6(history: History, target: TargetFacts) -> Compare:
    """The report of a target that it lost commits is ignored."""
    return compare(history, replace(target, undone=None))


def without_t3(history: History, target: TargetFacts) -> Compare:
    """A delivery is taken for committed when some of its parts are."""
    return compare(history, replace(target, unfinished=frozenset()))


def without_t7(history: History, target: TargetFacts) -> Compare:
    """The note in the store is ignored."""
    return compare(history, replace(target, markers=(), remembers=True))


class WithoutD1(Committer[Manifest]):
    """Obstacles are ignored."""

    def on(self, event: Event[Manifest]) -> Answer:
        return super().on(replace(event, obstacles=frozenset()) if isinstance(event, TargetAsked) else event)


class WithoutD2(Committer[Manifest]):
    """Whatever was committed between the question and the take is let pass."""

    def on(self, event: Event[Manifest]) -> Answer:
        return super().on(replace(event, foreign=False) if isinstance(event, TargetTaken) else event)


class WithoutD3(Committer[Manifest]):
    """The job starts before what is due is published, and forgets it."""

    def on(self, event: Event[Manifest]) -> Answer:
        return super().on(replace(event, due=()) if isinstance(event, TargetAsked) else event)


class WithoutD4(Committer[Manifest]):
    """All that a manifest names is published."""

    def on(self, event: Event[Manifest]) -> Answer:
        if isinstance(event, ManifestWritten):
            return super(WithoutD4, replace(self, epoch=0)).on(event)
        return super().on(event)


class WithoutD5(Committer[Manifest]):
    """Nobody looks whether the target still has what it had."""

    def on(self, event: Event[Manifest]) -> Answer:
        committer, actions = super().on(event)
        return committer, tuple(action for action in actions if not isinstance(action, VerifyCommit))


class WithoutD6(Committer[Manifest]):
    """Staged rows of ended attempts are not discarded."""

    def on(self, event: Event[Manifest]) -> Answer:
        committer, actions = super().on(event)
        return committer, tuple(action for action in actions if not isinstance(action, DiscardAbandoned))


class DiscardsTooMuch(Committer[Manifest]):
    """Staged rows of the next epoch are discarded, too."""

    def on(self, event: Event[Manifest]) -> Answer:
        committer, actions = super().on(event)
        later = (DiscardUnnamed(one.epoch + 1) if isinstance(one, DiscardUnnamed) else one for one in actions)
        return committer, tuple(later)


SINGLY = Rules(commits_singly=True)
"""Each part is committed alone, as by prepared transactions."""


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (Rules(compare=without_t1), "is in the target twice"),
        (Rules(compare=without_t2), "is in the target twice"),
        (Rules(compare=without_t2, checks_marker=False), "is in the target twice"),
        (replace(SINGLY, compare=without_t3), "is missing"),
        (Rules(compare=without_t4, committer=WithoutD2), "is in the target twice"),
        (Rules(compare=without_t5), "is missing"),
        (Rules(compare=without_t6, keeps_markers=True), "is missing"),
        (Rules(committer=WithoutD1), "is in the target twice"),
        (replace(SINGLY, committer=WithoutD6), "stays staged"),
        (replace(SINGLY, committer=DiscardsTooMuch), "refused without a reason"),
        (Rules(checks_owner=False, fences=False), "is in the target twice"),
        (Rules(fences=False), "is in the target twice"),
        (Rules(compare=without_t7, remembers=False, checks_owner=False), "refused without a reason"),
        (Rules(committer=WithoutD2), "is in the target twice"),
        (Rules(committer=WithoutD3), "is missing"),
        (Rules(committer=WithoutD4), "is in the target twice"),
        (Rules(committer=WithoutD5), "is missing"),
        (replace(SINGLY, committer=WithoutD5), "is missing"),
        (Rules(keeps_records=False), "is missing"),
        (Rules(keeps_newest_markers=False), "refused without a reason"),
    ],
    ids=[
        "T1", "T2", "T2 and markers", "T3", "T4", "T5", "T6", "D1", "D6",
        "D6, next epoch", "owner and fences", "fences", "T7", "D2", "D3", "D4", "D5",
        "D5, parts", "records", "newest markers",
    ],
)  # fmt: skip
def test_a_planted_fault_is_found(rules: Rules, message: str) -> None:
    found = search(rules, Limits(steps=11))
    assert message in found.message, found.steps
    assert found.steps
