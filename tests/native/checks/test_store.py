"""What a store's epochs come to, and what is demanded of it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from abscli.report.demands import unsatisfied
from abscli.report.findings import Code, EpochReport, Finding, StoreReport
from abscli.stores.native.store_verdict import check_store
from formats.native import layout
from formats.native.evidence import EpochEvidence, StoreEvidence, store_evidence
from formats.native.facts import PartFacts
from formats.native.store import NativeStore
from formats.view import Position, Status
from tests.support.stores.evidence import evidence, with_part, with_probe
from tests.support.stores.small import FIRST, Build

SEEN = "seen/0"


# -- a store -------------------------------------------------------------------------------------------------


def judged(build: Build, *epochs: EpochEvidence, files: tuple[str, ...] | None = None) -> StoreReport:
    return check_store(store_evidence(NativeStore(build.storage)), epochs, files)


def test_the_newest_whole_epoch_is_the_one_to_restore(build: Build) -> None:
    report = judged(build, *(evidence(build, n) for n in range(1, 6)))
    assert (report.restorable, report.latest_restorable, report.damaged) == ((1, 2, 4), 4, False)


def test_a_damaged_epoch_is_passed_over_and_its_children_are_not(build: Build) -> None:
    second = with_probe(evidence(build, 2), layout.log(2, SEEN, SEEN, FIRST), size=None)
    report = judged(build, evidence(build, 1), second, evidence(build, 4))
    assert (report.restorable, report.damaged) == ((1, 4), True)


def test_what_descends_from_an_epoch_that_went_back_is_not_restored(build: Build) -> None:
    def back(part: PartFacts) -> PartFacts:
        return replace(part, positions=(Position("in/0.txt", 1, 1),))

    second = with_part(evidence(build, 2), "lines/0", back)
    report = judged(build, evidence(build, 1), second, evidence(build, 4))
    assert report.restorable == (1,)


def test_nothing_is_restorable_when_the_store_does_not_say_what_it_is(build: Build) -> None:
    report = check_store(StoreEvidence(False, (), (), ()), [evidence(build, 1)])
    assert (report.restorable, report.latest_restorable) == ((), None)


def test_files_that_nothing_refers_to_are_told_and_do_no_damage(build: Build) -> None:
    epochs = [evidence(build, n) for n in range(1, 6)]
    stray = (layout.state(4, "gone/0", FIRST), layout.state(9, SEEN, FIRST), "thesis.tex",
             layout.ack(5, "seen/1", FIRST), layout.part_dir(5, "seen/1", FIRST) + "/notes.txt", layout.LOCK)
    report = judged(build, *epochs, files=(*store_evidence(NativeStore(build.storage)).files, *stray))
    assert [f.path for f in report.findings] == [stray[1], stray[2]]
    assert [(f.code.value, f.path) for f in report.epochs[3].findings] == [("unreferenced-file", stray[0])]
    assert [f.path for f in report.epochs[4].findings if f.code is Code.UNREFERENCED_FILE] == [stray[4]]
    assert report.epochs[3].verdict is Status.COMPLETE
    assert (report.latest_restorable, report.damaged) == (4, False)


def test_nobody_calls_a_file_needless_while_a_manifest_cannot_be_read(build: Build) -> None:
    lost = replace(evidence(build, 4), manifest=None, parts=None, files=(), topology=None)
    report = judged(build, evidence(build, 2), lost, files=("thesis.tex",))
    assert (report.findings, report.unchecked) == ((), (Code.UNREFERENCED_FILE,))


def test_an_epoch_needs_the_record_of_its_attempt(build: Build) -> None:
    report = check_store(StoreEvidence(True, (), (), ()), [evidence(build, 1), evidence(build, 2)])
    assert [(f.code.value, f.path) for f in report.findings] == [("missing-file", layout.attempt(1))]
    assert report.damaged


# -- demands -------------------------------------------------------------------------------------------------


NOW = datetime(2026, 1, 2, 3, 5, tzinfo=UTC)


def report(verdict: Status, *findings: Finding, restorable: bool) -> StoreReport:
    epoch = EpochReport(7, verdict, findings, (), triggered="2026-01-02T03:04:00.000Z")
    return StoreReport((epoch,), (), (), (7,) if restorable else ())


@pytest.mark.parametrize(("verdict", "restorable", "of_store", "of_epoch"), [
    (Status.COMPLETE, True, 0, 0), (Status.INCOMPLETE, False, 1, 1), (Status.DAMAGED, False, 2, 1),
    (Status.ABORTED, False, 1, 1), (Status.IN_PROGRESS, False, 1, 1),
])
def test_an_epoch_must_be_whole_and_a_store_must_have_one(
    verdict: Status, restorable: bool, of_store: int, of_epoch: int
) -> None:
    given = report(verdict, restorable=restorable)
    assert (len(unsatisfied(given)), len(unsatisfied(given, epoch=7))) == (of_store, of_epoch)


def test_strict_minds_every_finding() -> None:
    stray = report(Status.COMPLETE, Finding(Code.UNREFERENCED_FILE, None, None, "x", ""), restorable=True)
    assert (unsatisfied(stray), unsatisfied(stray, strict=True)) == ([], ["--strict: 1 finding"])


def test_age_and_number_of_epochs_are_those_that_can_be_restored() -> None:
    fresh, none = report(Status.COMPLETE, restorable=True), report(Status.COMPLETE, restorable=False)
    assert unsatisfied(fresh, max_age=60, min_epochs=1, now=NOW) == []
    assert len(unsatisfied(fresh, max_age=59, min_epochs=2, now=NOW)) == 2
    assert len(unsatisfied(none, epoch=7, max_age=1e9, now=NOW)) == 1
