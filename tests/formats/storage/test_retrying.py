"""The budget of an outage: when a request is made again, when it is given up, and what is said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats import waiting
from formats.errors import NotFound, Unreachable
from formats.storage import retrying
from formats.storage.retrying import (
    CONNECT,
    DEADLINE,
    FIRST_PAUSE,
    LONGEST_PAUSE,
    QUIET,
    SECONDS,
    STRANGER_SECONDS,
    TIMEOUT,
    Failure,
    NoReply,
    Retries,
    asked_once,
    deadline,
    failure_of,
    next_pause,
    retry_after,
)

BUSY = Failure("h: 503 Service Unavailable (SlowDown)", 503)


@dataclass
class Time:
    """A clock that only sleeping and requests move."""

    now: float = 1000.0
    pauses: list[float] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


@dataclass
class Server:
    """Answers from `heals` on, and takes `takes` seconds to fail before."""

    time: Time
    heals: float
    failure: Failure = BUSY
    takes: float = 0.01
    asked: int = 0

    def request(self) -> str:
        self.asked += 1
        if self.time.now < self.heals:
            self.time.now += self.takes
            raise NoReply(self.failure)
        return "answer"


def retries(time: Time) -> Retries:
    made = Retries("s3://bucket", time.clock, time.sleep)
    made.ask(lambda: "")  # the server is known
    return made


@pytest.mark.parametrize("outage", [1, 6, 12, 20, 45, 59])
@pytest.mark.parametrize("failure", [BUSY, Failure("refused", CONNECT)])
def test_an_outage_within_the_budget_is_survived(outage: float, failure: Failure) -> None:
    time = Time()
    server = Server(time, time.now + outage, failure)
    assert retries(time).ask(server.request) == "answer"
    assert time.now - 1000 <= outage + LONGEST_PAUSE


def test_a_longer_outage_is_given_up_once_for_all_requests_that_follow() -> None:
    time = Time()
    asked, server = retries(time), Server(time, time.now + 1000)
    with pytest.raises(Unreachable, match=r"503 .* \(SlowDown\); tried \d+ times in 60 s") as error:
        asked.ask(server.request)
    assert "limits its load" in (error.value.hint or "")
    for _ in range(6):
        with pytest.raises(Unreachable, match=r"503 .* \(SlowDown\); given up after 0 s"):
            asked.ask(server.request)
    assert SECONDS <= time.now - 1000 <= SECONDS + 1
    time.now += QUIET
    with pytest.raises(Unreachable):  # a new budget
        asked.ask(server.request)
    assert time.now - 1000 >= 2 * SECONDS + QUIET


def test_a_server_that_is_back_after_the_end_is_noticed_at_once() -> None:
    time = Time()
    asked, server = retries(time), Server(time, time.now + SECONDS + 1)
    with pytest.raises(Unreachable):
        asked.ask(server.request)
    time.now += 1
    assert asked.ask(server.request) == "answer"


def test_requests_that_hang_are_made_again_and_given_up_in_time() -> None:
    time = Time()
    asked, server = retries(time), Server(time, time.now + 1000, Failure("no reply", TIMEOUT), takes=DEADLINE)
    for _ in range(7):
        with pytest.raises(Unreachable):
            asked.ask(server.request)
    assert server.asked == 3
    assert time.now - 1000 <= SECONDS + DEADLINE


def test_a_request_that_takes_longer_than_the_budget_has_a_second_try() -> None:
    time = Time()
    server = Server(time, time.now + 100, Failure("no reply", TIMEOUT), takes=276)
    assert retries(time).ask(server.request) == "answer"
    assert server.asked == 2


def test_one_request_that_fails_does_not_end_those_that_are_answered() -> None:
    time = Time()
    asked, server = retries(time), Server(time, time.now + 1000)

    def request() -> str:
        asked.ask(lambda: "another")
        return server.request()

    with pytest.raises(Unreachable):
        asked.ask(request)
    assert SECONDS <= time.now - 1000 <= SECONDS + 1
    assert asked.ask(lambda: "answer") == "answer"


def test_whoever_repeats_requests_by_itself_uses_up_no_budget() -> None:
    time = Time()
    asked, server = retries(time), Server(time, time.now + 70)
    for _ in range(20):  # as heartbeats do
        with asked_once(), pytest.raises(Unreachable, match="given up after 0 s"):
            asked.ask(server.request)
        time.now += 3
    assert asked.ask(server.request) == "answer"


def test_an_error_that_is_an_answer_ends_the_outage() -> None:
    time = Time()
    asked = retries(time)

    def missing() -> str:
        raise NotFound("no such file")

    with pytest.raises(NotFound):
        asked.ask(missing)
    assert time.pauses == []


def test_a_server_that_was_never_reached_is_given_up_sooner() -> None:
    time = Time()
    server = Server(time, time.now + 1000, Failure("h: Connection refused", CONNECT))
    with pytest.raises(Unreachable, match="Connection refused; tried") as error:
        Retries("s3://bucket", time.clock, time.sleep).ask(server.request)
    assert "check the endpoint" in (error.value.hint or "")
    assert STRANGER_SECONDS <= time.now - 1000 <= STRANGER_SECONDS + 1


def test_the_user_is_told_once_after_five_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[float, object]] = []
    time = Time()
    monkeypatch.setattr(waiting, "_listener", [lambda wait: told.append((time.now, wait))])
    asked = retries(time)
    asked.ask(Server(time, time.now + 30).request)
    assert [wait for _, wait in told] == [waiting.NoAnswer("s3://bucket", BUSY.reason, SECONDS)]
    assert told[0][0] - 1000 <= 5.1
    asked.ask(Server(time, time.now + 1).request)
    assert len(told) == 1


def test_the_user_is_told_of_slow_answers_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []
    time = Time()
    monkeypatch.setattr(waiting, "_listener", [told.append])
    asked = retries(time)
    for _ in range(10):
        asked.ask(lambda: time.sleep(3))
        asked.ask(lambda: time.sleep(0.2))
    assert told == [waiting.SlowAnswers("s3://bucket", 2, 3)]


@pytest.mark.parametrize(("value", "seconds"), [("3", 3), (" 10 ", 10), (None, 0), ("soon", 0), ("-1", 0),
                                                ("Wed, 21 Oct 2015 07:28:00 GMT", 0)])  # fmt: skip
def test_retry_after_is_read(value: str | None, seconds: float) -> None:
    assert retry_after(value) == seconds


def test_the_server_says_when_to_come_again() -> None:
    time = Time()
    server = Server(time, time.now + 7, Failure("busy", 503, after=7))
    assert retries(time).ask(server.request) == "answer"
    assert time.pauses == [7]


@given(st.integers(1, 100), st.floats(0, 200), st.floats(0, 300), st.floats(0, 1))
def test_a_pause_has_bounds(tries: int, waited: float, after: float, jitter: float) -> None:
    pause = next_pause(Failure("busy", 503, after), tries, waited, budget=SECONDS, jitter=jitter)
    if waited >= SECONDS and tries > 1:
        assert pause is None
        return
    assert pause is not None
    assert pause >= FIRST_PAUSE / 2
    assert waited + pause <= max(SECONDS, waited) + FIRST_PAUSE
    assert pause >= min(after, SECONDS - waited)
    if after <= FIRST_PAUSE / 2:
        assert pause <= LONGEST_PAUSE


def test_deadlines_grow_with_the_body_in_few_steps() -> None:
    assert deadline(0) == deadline(1 << 16) == DEADLINE
    assert deadline(1 << 20) == deadline(8 << 20) == DEADLINE + 8
    assert deadline(200 << 20) == DEADLINE + 256
    assert deadline(8 << 20) < SECONDS


SAID = """Generic S3 error: Error performing GET http://127.0.0.1:9/b/k in 1ms - HTTP error: error sending request

HttpError { kind: Connect, source: Os { code: 111, kind: ConnectionRefused, message: "Connection refused" } }"""


@pytest.mark.parametrize(("text", "expected"), [
    (SAID, Failure("127.0.0.1:9: Connection refused", CONNECT)),
    ("Error performing PUT http://h:1/b/k in 1ms - Server returned non-2xx status code: 503 Service Unavailable: "
     "<?xml?><Error><Code>SlowDown</Code></Error>", Failure("h:1: 503 Service Unavailable (SlowDown)", 503)),
    ("GET http://h/b in 1ms - Server returned non-2xx status code: 429 Too Many Requests: ",
     Failure("h: 429 Too Many Requests", 429)),
    ("HTTP error: request or response body error\\nHttpError { kind: Timeout, source: reqwest { kind: Body } }",
     Failure("no reply in time", TIMEOUT)),
    ("status code: 400 Bad Request: <Code>RequestTimeout</Code>", Failure("400 Bad Request (RequestTimeout)", 400)),
    ("status code: 403 Forbidden: ", None),
    ("status code: 400 Bad Request: <Code>InvalidArgument</Code>", None),
    ("the path is no path", None),
])  # fmt: skip
def test_errors_of_the_client_are_told_apart(text: str, expected: Failure | None) -> None:
    assert failure_of(Exception(text)) == expected


@pytest.mark.parametrize(("kind", "word"), [(503, "load"), (429, "load"), (500, "server fails"), (CONNECT, "endpoint"),
                                            (TIMEOUT, "responds"), ("cut", "responds")])  # fmt: skip
def test_the_hint_fits_the_failure(kind: int | str, word: str) -> None:
    assert word in Failure("x", kind).hint


def test_forked_children_and_other_buckets_have_outages_of_their_own() -> None:
    places: list[Callable[[], Retries]] = [
        lambda: retrying.retries_of("s3://a", 1), lambda: retrying.retries_of("s3://a", 2),
        lambda: retrying.retries_of("s3://b", 1),
    ]  # fmt: skip
    assert len({id(place()) for place in places}) == 3
