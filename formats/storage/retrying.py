"""Ask an object store again while it does not answer, within one budget of time per outage.

The client library retries too, but has no budget that several requests share, never repeats a create, a copy or a
deletion that got no reply in time, and does not tell anybody that it waits. So its own retries are off, and all
requests of this process to one bucket, also those that are made by hand, are asked through one `Retries`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeVar

from formats.errors import Unreachable
from formats.redaction import redact_error
from formats.waiting import NoAnswer, SlowAnswers, is_heard, waits

SECONDS: Final = 60.0
"""Budget of an outage: seconds after which a server that does not answer is given up."""
STRANGER_SECONDS: Final = 10.0
"""The same for a server that cannot be connected to and has not answered this process before: its address is probably
wrong."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
QUIET: Final = 10.0
"""Seconds after the end of a budget in which requests are made once; not at all where the server sent no reply in time.
Whoever fails makes some more requests, to release what it holds: they do not wait for a minute each."""
SILENT: Final = 5.0
"""Seconds of an outage after which the user is told."""
SLOW: Final = 1.0
"""Seconds after which an answer is a slow one."""
DEADLINE: Final = 20.0
"""Seconds that a server has for its reply to a request without a body."""
SLOWEST: Final = 1 << 20
"""Bytes per second: a body has that much more time."""
SERVER_COPY: Final = 60.0
"""Seconds for a request that makes the server copy or assemble an object before it replies."""
TRY_AGAIN: Final = frozenset({408, 425, 429, 500, 502, 503, 504})

CONNECT = "connect"
TIMEOUT = "timeout"
CUT = "cut"
"""The kinds of failures without a status: no connection, no reply in time, a connection that broke."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Failure:
    """A try that got no answer.

    reason: in words.
    kind: a status of HTTP, CONNECT, TIMEOUT or CUT.
    after: seconds that the server wants its client to wait (`Retry-After`).
    """

    reason: str
    kind: int | str
    after: float = 0.0

    @property
    def hint(self) -> str:
        """What to do about it, in an error message."""
        if self.kind in (429, 503):
            return "the server limits its load or is down: run the command again later; see the server's status or log"
        if self.kind == CONNECT:
            return "check the endpoint (--endpoint or AWS_ENDPOINT_URL for S3), the network, and that the server runs"
        if isinstance(self.kind, str):
            return "check that the server responds, and the proxies and firewalls in between; run the command again"
        return "the server fails: see its status or log; run the command again later"


class NoReply(Exception):
    """A try failed in a way that another try may not."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure.reason)


def next_pause(failure: Failure, tries: int, waited: float, *, budget: float, jitter: float) -> float | None:
    """Return the seconds until the next try; None to give up.

    tries: those that failed. A request that may take longer than the budget has two of them all the same.
    waited: seconds since the outage began, or the request.
    jitter: from 0 to 1.
    """
    if waited >= budget and tries > 1:
        return None
    pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(tries - 1, 10)) * (0.5 + jitter / 2)
    # The last try is made at the end of the budget, also where the server wants it later.
    return min(max(pause, failure.after), max(budget - waited, FIRST_PAUSE))


def deadline(size: int = 0, *, copies: bool = False) -> float:
    """Return the seconds that a server has to take a body of `size` bytes, and to reply.

    In few steps, since each has a client with connections of its own. copies: whether the server copies or assembles an
    object before it replies.
    """
    if copies:
        return max(SERVER_COPY, deadline(size))
    if size <= 1 << 16:
        return DEADLINE
    steps = max(8 << 20, 1 << (size - 1).bit_length())
    return DEADLINE + steps / SLOWEST


def retry_after(value: str | None) -> float:
    """Return the seconds that a header `Retry-After` says; 0 without one, or where it says nothing plain."""
    if not value:
        return 0.0
    from email.utils import parsedate_to_datetime

    if value.strip().isascii() and value.strip().isdigit():
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return 0.0


class Retries:
    """The requests of one process to one place.

    place: for messages.
    clock, sleep: for tests.
    """

    def __init__(
        self, place: str, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.place = place
        self._clock, self._sleep = clock, sleep
        self._since: float | None = None  # when the outage began that uses up the budget
        self._failing_since: float | None = None
        self._is_told = False
        self._slow_at = -SECONDS
        self._slow: list[tuple[float, float]] = []
        self._is_known = False
        self._ended: tuple[float, Failure, Unreachable] | None = None

    def ask(self, request: Callable[[], T], *, tries: int | None = None, seconds: float | None = None) -> T:
        """Return what a request answers, which is made again where it raises NoReply.

        tries: the most that are made; None for as many as the budget allows.
        seconds: the deadline of one try, see `deadline`.
        Raises Unreachable if the budget is spent; whatever else the request raises is an answer.
        """
        begun, failed = self._clock(), 0
        if _once.get():
            tries = 1
        elif self._ended is not None and begun - self._ended[0] < QUIET:
            _, failure, error = self._ended
            if failure.kind == TIMEOUT:
                raise Unreachable(error.message, path=error.path, hint=error.hint)
            tries = 1
        elif self._ended is not None:
            self._ended = self._since = None
        while True:
            started = self._clock()
            try:
                with _watch.watched(self, SILENT + (deadline() if seconds is None else seconds) - DEADLINE):
                    answer = request()
            except NoReply as no_reply:
                failed += 1
                pause = self._on_failure(no_reply.failure, begun, started, failed, tries)
            except Exception:
                self._on_answer()
                raise
            else:
                self._on_answer()
                allowed = SLOW + (deadline() if seconds is None else seconds) - DEADLINE
                if (took := self._clock() - started) >= allowed:
                    self._on_slow_answer(took)
                return answer
            self._sleep(pause)

    def _on_answer(self) -> None:
        self._since = self._failing_since = self._ended = None
        self._is_told, self._is_known = False, True

    def _on_failure(self, failure: Failure, begun: float, started: float, failed: int, tries: int | None) -> float:
        """Return the pause before the next try. Raises Unreachable if there is none."""
        now = self._clock()
        budget = SECONDS if self._is_known or failure.kind != CONNECT else STRANGER_SECONDS
        if self._failing_since is None:
            self._failing_since = started
        if _once.get():
            self._tell(failure, now - self._failing_since, budget)
            raise self._unreachable(failure, failed, now - begun)
        if self._since is None:
            self._since = started
        waited = now - min(begun, self._since)
        pause = next_pause(failure, failed, waited, budget=budget, jitter=random.random())
        if pause is None or failed == tries:
            error = self._unreachable(failure, failed, now - begun)
            # Not so where other requests are answered meanwhile.
            if pause is None and self._ended is None and now - self._since >= budget:
                self._ended = now, failure, error
            raise error
        self._tell(failure, waited + pause, budget)
        return pause

    def _on_slow_answer(self, seconds: float) -> None:
        """Tell the user of slow answers when they have cost some seconds, at most once a minute."""
        now = self._clock()
        self._slow = [(at, took) for at, took in self._slow if now - at < SECONDS]
        self._slow.append((now, seconds))
        total = sum(took for _, took in self._slow)
        if total >= SILENT and now - self._slow_at >= SECONDS:
            self._slow_at = now
            waits(SlowAnswers(self.place, len(self._slow), total / len(self._slow)))

    def tell_slow(self) -> None:
        """Tell the user that a try takes long, at most once a minute: it is too early to know that it fails."""
        if (now := self._clock()) - self._slow_at < SECONDS:
            return
        self._slow_at = now
        self._tell(Failure(f"a request has had no reply for {SILENT:g} s", TIMEOUT), SILENT, SECONDS)

    def _tell(self, failure: Failure, seconds: float, budget: float) -> None:
        if seconds >= SILENT and not self._is_told:
            self._is_told = True
            waits(NoAnswer(self.place, failure.reason, budget))

    def _unreachable(self, failure: Failure, failed: int, seconds: float) -> Unreachable:
        times = f"tried {failed} times in {seconds:.0f} s" if failed > 1 else f"given up after {seconds:.0f} s"
        return Unreachable(f"no answer: {failure.reason}; {times}", path=self.place, hint=failure.hint)


class Watch:
    """Tells the user of requests that have no reply yet: a thread, in processes that have somebody to tell."""

    def __init__(self) -> None:
        self._process = 0
        self._requests: dict[object, tuple[float, Retries]] = {}

    @contextlib.contextmanager
    def watched(self, retries: Retries, seconds: float) -> Iterator[None]:
        """Watch a request while it is under way. seconds: after which the user is told."""
        if not is_heard():
            yield
            return
        if self._process != os.getpid():
            self._process, self._requests = os.getpid(), {}
            threading.Thread(target=self._run, args=(os.getpid(),), daemon=True, name="abs-requests").start()
        request = object()
        self._requests[request] = time.monotonic() + seconds, retries
        try:
            yield
        finally:
            self._requests.pop(request, None)

    def _run(self, process: int) -> None:
        while self._process == process:
            time.sleep(0.5)
            now = time.monotonic()
            for late, retries in list(self._requests.values()):
                if now >= late:
                    retries.tell_slow()


_watch = Watch()


@functools.lru_cache(maxsize=64)
def retries_of(place: str, process: int) -> Retries:
    """Return the one that all requests of a process to a place share.

    place: the URI of a bucket. process: a forked child knows nothing of its parent's outages.
    """
    return Retries(place)


_once: ContextVar[bool] = ContextVar("once", default=False)


@contextlib.contextmanager
def asked_once() -> Iterator[None]:
    """Send each request in this context once, for a caller who repeats it itself: its failures use up no budget."""
    token = _once.set(True)
    try:
        yield
    finally:
        _once.reset(token)


def failure_of(error: Exception) -> Failure | None:
    """Return how a try of the client library failed; None for an answer that another try would not change."""
    text = str(error)
    where = _HOST.search(text)
    host = f"{where[1]}: " if where else ""
    if (match := _STATUS.search(text)) is not None:
        status, phrase = int(match[1]), match[2].strip()
        code = _CODE.search(text)
        if status in TRY_AGAIN or (code is not None and code[1] in BUSY_CODES):
            return Failure(f"{host}{status} {phrase}{f' ({code[1]})' if code else ''}", status)
        return None
    kind = _KIND.search(text)
    if kind is None:
        return None
    if kind[1] == "Timeout" and "kind: Connect" not in text:
        return Failure(f"{host}no reply in time", TIMEOUT)
    said = _SAID.findall(text) or ["".join(match.split()) for match in _TLS.findall(text)]
    reason = host + (redact_error(Exception(said[-1])) if said else "the connection was lost")
    return Failure(reason, CONNECT if "kind: Connect" in text else CUT)


BUSY_CODES: Final = frozenset({"SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable", "ServerBusy"})
"""Of errors that some servers send with another status."""
_STATUS = re.compile(r"status code: (\d{3}) ?([A-Za-z -]*)")
_CODE = re.compile(r"<Code>([A-Za-z]{1,50})</Code>")
_KIND = re.compile(r"\bkind: (Timeout|Connect|Request|Interrupted|Decode|Unknown|Body)\b")
_HOST = re.compile(r"https?://([A-Za-z0-9.:\[\]-]{1,255})/")
_TLS = re.compile(r"Invalid(?:Message|Certificate)\(\s*\w{1,40},?\s*\)")
_SAID = re.compile(r'(?:message|error): "([^"]{1,200})"')
