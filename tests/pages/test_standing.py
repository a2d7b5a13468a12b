"""The verdict that a command or a report begins with, for a store and for one epoch."""

from __future__ import annotations

import pytest

from abscli.report.findings import EpochReport, StoreReport
from abscli.report.runbooks import Runbook
from abscli.report.standing import State, standing
from formats.view import Status


def report_of(verdict: Status, *restorable: int, reason: str | None = None) -> StoreReport:
    """Return a report with epoch 4."""
    return StoreReport((EpochReport(4, verdict, (), (), reason=reason),), (), (), restorable)


@pytest.mark.parametrize(
    ("state", "word"),
    [(State.OK, "OK"), (State.DAMAGED, "DAMAGED"), (State.NOT_RESTORABLE, "NOT RESTORABLE")],
)
def test_a_page_begins_with_the_word_of_its_state(state: State, word: str) -> None:
    assert state.word == word


@pytest.mark.parametrize(
    ("verdict", "restorable", "reason", "state", "sentence"),
    [
        (Status.COMPLETE, (4,), None, State.OK, "epoch 4 can be restored."),
        (Status.DAMAGED, (), None, State.DAMAGED, "epoch 4."),
        (Status.DAMAGED, (), "a file is missing", State.DAMAGED, "epoch 4: a file is missing"),
        (Status.COMPLETE, (), None, State.UNKNOWN,
         "epoch 4 is complete; it is not known whether it can be restored."),
    ],
)  # fmt: skip
def test_an_epoch_has_a_state_and_the_reason_for_it(
    verdict: Status, restorable: tuple[int, ...], reason: str | None, state: State, sentence: str
) -> None:
    assert standing(report_of(verdict, *restorable, reason=reason), 4) == (state, sentence)


def test_an_epoch_that_the_report_does_not_have_was_not_checked() -> None:
    assert standing(report_of(Status.COMPLETE, 4), 5) == (State.UNKNOWN, "epoch 5 was not checked.")


def test_the_location_of_a_runbook_has_the_anchor_of_its_section() -> None:
    assert Runbook("A title", "page.md").location == "page.md"
    assert Runbook("A title", "page.md", "section").location == "page.md#section"
