"""The verdict on a store, or on one of its epochs, in one word and one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from abscli.planner.ranges import Ranges
from abscli.report.findings import HARMLESS, EpochReport, StoreReport
from formats.view import Status

SPANS = 40
"""Ranges of epochs that a sentence names."""


class State(StrEnum):
    """The verdict on a store, in one word.

    OK: nothing that was complete is damaged, an epoch can be restored, and every file was read.
    UNVERIFIED: presence and sizes are right; no file was read.
    WARNING: an epoch is in progress, or two epochs differ.
    DAMAGED: an epoch that was complete, or the metadata of the store, is damaged.
    NOT_RESTORABLE: nothing is damaged, and no epoch is complete, or the input that follows it is lost.
    UNKNOWN: there is nothing to judge, or it cannot be judged.
    """

    OK = "ok"
    UNVERIFIED = "unverified"
    WARNING = "warning"
    DAMAGED = "damaged"
    NOT_RESTORABLE = "not-restorable"
    UNKNOWN = "unknown"

    @property
    def word(self) -> str:
        """Return the word that a page begins with."""
        return self.value.replace("-", " ").upper()


class Standing(NamedTuple):
    """A verdict. sentence: what it is about, and which epoch can be restored."""

    state: State
    sentence: str

    def __str__(self) -> str:
        return f"{self.state.word}: {self.sentence}"


def standing(report: StoreReport, epoch: int | None, *, unit: str = "epoch", quick: bool = False) -> Standing:
    """Return the verdict on a store, or on one of its epochs.

    epoch: the one that was checked; None for the whole store.
    unit: what the system calls an epoch.
    quick: no file was read.
    """
    found = _of_store(report, unit) if epoch is None else _of_epoch(report, epoch, unit)
    if quick and found.state in (State.OK, State.WARNING):
        return Standing(State.UNVERIFIED, f"{found.sentence} Only presence and sizes were checked.")
    return found


def plural(unit: str) -> str:
    """Return `epochs`, `checkpoints` or `batches`."""
    return "batches" if unit == "batch" else f"{unit}s"


def epochs_named(numbers: Sequence[int], unit: str = "epoch") -> str:
    """Return `epoch 4`, `epochs 1,3-9` or `batches 2-3`."""
    return f"{unit if len(numbers) == 1 else plural(unit)} {Ranges.of(numbers).brief(SPANS)}"


def _of_store(report: StoreReport, unit: str) -> Standing:
    newest = report.latest_restorable
    way = _way(report, unit)
    broken = [one.epoch for one in report.epochs if one.verdict is Status.DAMAGED]
    if any(finding.code not in HARMLESS for finding in report.findings):
        more = f" and {epochs_named(broken, unit)}" if broken else ""
        return Standing(State.DAMAGED, f"the metadata of the store{more}. {way}")
    if broken:
        return Standing(State.DAMAGED, f"{epochs_named(broken, unit)}. {way}")
    if not report.epochs:
        return Standing(State.UNKNOWN, f"there is no {unit} yet.")
    if report.candidates:
        return Standing(State.WARNING, _begun(way))
    whole = [one for one in report.epochs if one.whole]
    if newest is None and whole and all(_has_harm(one) for one in whole):
        return Standing(State.NOT_RESTORABLE, f"no {unit} can be restored.")
    if newest is None and whole:
        return Standing(State.UNKNOWN, f"it is not known whether any {unit} can be restored.")
    if newest is None:
        return Standing(State.NOT_RESTORABLE, f"no {unit} is complete.")
    later = [one for one in report.epochs if one.epoch > newest]
    if taken := [one for one in later if one.verdict is Status.IN_PROGRESS]:
        return Standing(State.OK, f"{_begun(way)} {unit.capitalize()} {taken[-1].epoch} is in progress.")
    if later:
        return Standing(State.OK, f"{_begun(way)} Not restorable: {_listed(later, unit)}.")
    return Standing(State.OK, _begun(way))


def _way(report: StoreReport, unit: str) -> str:
    """Return the sentence about the newest epoch that can be restored."""
    if report.candidates:
        return undecided(report.candidates, unit)
    if report.latest_restorable is None:
        return f"No {unit} can be restored."
    return f"Newest restorable: {unit} {report.latest_restorable}."


def undecided(candidates: Sequence[int], unit: str) -> str:
    """Return the sentence about epochs each of which may be the newest.

    candidates: the one with the highest number last.
    """
    *others, highest = candidates
    return (
        f"It is not known which {unit} is the newest: {highest} has the highest number, and"
        f" {' and '.join(map(str, others))} {'was' if len(others) == 1 else 'were'} modified later."
    )


def _of_epoch(report: StoreReport, number: int, unit: str) -> Standing:
    one = next((epoch for epoch in report.epochs if epoch.epoch == number), None)
    name = f"{unit} {number}"
    if one is None:
        return Standing(State.UNKNOWN, f"{name} was not checked.")
    if number in report.restorable:
        return Standing(State.OK, f"{name} can be restored.")
    because = f": {one.reason}" if one.reason else "."
    if one.verdict is Status.DAMAGED:
        return Standing(State.DAMAGED, f"{name}{because}")
    if one.verdict is Status.COMPLETE:
        return Standing(State.UNKNOWN, f"{name} is complete; it is not known whether it can be restored{because}")
    if one.verdict is Status.IN_PROGRESS:
        return Standing(State.WARNING, f"{name} is in progress.")
    return Standing(State.NOT_RESTORABLE, f"{name} is {one.verdict}{because}")


def _has_harm(epoch: EpochReport) -> bool:
    """Tell whether something keeps a complete epoch from being restored, such as input that is lost."""
    return any(finding.code not in HARMLESS for finding in epoch.findings)


def _begun(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


def _listed(epochs: list[EpochReport], unit: str) -> str:
    """Return `epoch 4 (incomplete), epochs 5-9 (aborted)`."""
    by_verdict: dict[Status, list[int]] = {}
    for one in epochs:
        by_verdict.setdefault(one.verdict, []).append(one.epoch)
    return ", ".join(f"{epochs_named(numbers, unit)} ({verdict})" for verdict, numbers in by_verdict.items())
