"""Servers that are asked until they answer, and which errors of PostgreSQL may pass."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from abscli.engine import patience
from abscli.engine.errors import EngineStopped
from abscli.engine.patience import Interrupted, until_answered
from abscli.engine.postgres.sqlstates import trouble_of, trouble_of_connecting
from formats.errors import Unreachable


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time in seconds, which passes only in naps and in questions."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return now


def asked(question: Callable[[int], str]) -> str:
    """Return the answer to a question, which gets the number of the try."""
    tries = iter(range(10**6))
    return until_answered(lambda: question(next(tries)), lambda error: EngineStopped(error.message))


def test_a_server_that_does_not_answer_is_asked_for_a_minute(clock: list[float]) -> None:
    def question(number: int) -> str:
        clock[0] += 10.0
        raise Unreachable(f"try {number}")

    with pytest.raises(EngineStopped):
        asked(question)
    assert patience.SECONDS < clock[0] < patience.SECONDS + 12


def test_work_that_took_long_before_it_was_interrupted_is_repeated(clock: list[float]) -> None:
    def question(number: int) -> str:
        clock[0] += 300.0
        if number == 0:
            raise Interrupted("the server restarts", hint=None, silent=0.0)
        return "done"

    assert asked(question) == "done"


def test_silence_before_an_interruption_counts(clock: list[float]) -> None:
    def question(number: int) -> str:
        clock[0] += 300.0
        raise Interrupted("no reply", hint=None, silent=61.0)

    with pytest.raises(EngineStopped, match="no reply"):
        asked(question)
    assert clock[0] == 300.0


@pytest.mark.parametrize("sqlstate", ["08006", "25006", "40001", "40P01", "53100", "53300", "55P03", "57014", "57P01"])
def test_an_error_of_the_server_or_of_another_transaction_may_pass(sqlstate: str) -> None:
    assert trouble_of(sqlstate) is not None


@pytest.mark.parametrize("sqlstate", [None, "22003", "23505", "25001", "25P02", "42501", "42P01", "55000", "XX000"])
def test_an_error_of_the_rows_or_the_schema_does_not_pass(sqlstate: str | None) -> None:
    assert trouble_of(sqlstate) is None


def test_a_server_that_refuses_a_connection_has_answered() -> None:
    assert trouble_of_connecting("connection refused").problem == "does not answer"
    assert trouble_of_connecting("FATAL:  sorry, too many clients already").problem == "has no free connection"
    assert trouble_of_connecting("FATAL:  the database system is starting up").problem == "refuses connections"
