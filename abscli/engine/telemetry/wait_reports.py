"""Reports about waits of sources and sinks: after five seconds, then rarely, and when they are over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Self

import msgspec

from abscli.engine.telemetry.news import OperatorContinues, OperatorWaits
from abscli.engine.waits import Doing, StepTimer, Wait

FIRST_SECONDS: Final = 5.0
"""Seconds after which a wait is reported."""
FORGET_SECONDS: Final = 60.0
"""Seconds without a wait after which the next one is reported as the first was."""
EVERY_SECONDS: Final = 0.5
"""Seconds from one look at the steps of the driver to the next."""
DRIVER: Final = -1
"""Stands for the driver among the numbers of workers."""


def report_times() -> Iterator[float]:
    """Yield the seconds of a wait at which it is reported: 5, 15, 45, and so on."""
    at = FIRST_SECONDS
    while True:
        yield at
        at *= 3


def next_report(seconds: float) -> float:
    """Return the time of the first report after `seconds` of waiting."""
    return next(at for at in report_times() if at > seconds)


@dataclass(slots=True)
class _Reported:
    """The reports about one operator.

    next: by what it does, the seconds of waiting at which it is reported again.
    wait: that is running, as it was last; None if there is none.
    since: its begin, by the clock.
    is_told: whether it was told.
    ended: the end of the last wait.
    """

    next: dict[Doing, float] = field(default_factory=dict)
    wait: Wait | None = None
    since: float = 0.0
    is_told: bool = False
    ended: float = 0.0


class WaitReports:
    """Reports of one attempt. clock: seconds, monotonic.

    A sink that is always slow would be reported with each epoch: then only longer waits are told than before.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waits: dict[int, tuple[Wait, ...]] = {}
        self._reported: dict[str, _Reported] = {}

    def note(self, reporter: int, waits: Iterable[Wait]) -> Iterator[OperatorWaits | OperatorContinues]:
        """Take the waits that a worker or the driver has now, and yield what is to be reported.

        reporter: number of the worker, or `DRIVER`.
        """
        now, waits = self._clock(), list(waits)
        failed = {wait.operator for wait in waits if wait.has_failed}
        self._waits[reporter] = tuple(
            wait for wait in waits if wait.seconds >= FIRST_SECONDS and not wait.has_failed
        )
        longest = _longest(wait for each in self._waits.values() for wait in each)
        for operator, wait in longest.items():
            yield from self._waiting(self._reported.setdefault(operator, _Reported()), wait, now)
        for operator, one in self._reported.items():
            if one.wait is not None and operator not in longest:
                over = msgspec.structs.replace(one.wait, seconds=now - one.since)
                yield OperatorContinues(over, is_told=one.is_told and operator not in failed)
                one.wait, one.ended = None, now

    @staticmethod
    def _waiting(one: _Reported, wait: Wait, now: float) -> Iterator[OperatorWaits]:
        begins = one.wait is None
        one.wait = wait
        if begins:
            one.since, one.is_told = now - wait.seconds, False
            if now - one.ended > FORGET_SECONDS:
                one.next.clear()
        # A step without a reason may just be slow, as it was before. A server that fails has a reason.
        is_due = wait.seconds >= one.next.get(wait.doing, FIRST_SECONDS) or (wait.reason != "" and not one.is_told)
        if is_due:
            one.is_told, one.next[wait.doing] = True, next_report(wait.seconds)
        if begins or is_due:
            yield OperatorWaits(wait, is_told=is_due)


def _longest(waits: Iterable[Wait]) -> dict[str, Wait]:
    """Return the longest wait of each operator, with the rows of all its tasks for that epoch."""
    each = list(waits)
    longest: dict[str, Wait] = {}
    for wait in sorted(each, key=lambda wait: (wait.seconds, wait.reason)):
        longest[wait.operator] = wait
    return {
        operator: msgspec.structs.replace(wait, rows=sum(
            other.rows for other in each
            if (other.operator, other.epoch, other.doing) == (operator, wait.epoch, wait.doing)
        ))
        for operator, wait in longest.items()
    }  # fmt: skip


class WaitWatch:
    """Report waits while a job runs. Those of the driver are looked at from a thread, since its own is blocked in them.

    steps: of the driver.
    on_news: is called from several threads, one at a time.
    """

    def __init__(
        self, steps: StepTimer, on_news: Callable[[OperatorWaits | OperatorContinues], None]
    ) -> None:
        self._steps = steps
        self._on_news = on_news
        self._reports = WaitReports()
        self._noted: dict[int, tuple[Wait, ...]] = {}
        self._lock = threading.Lock()
        self._leave = threading.Event()
        self._thread = threading.Thread(target=self._run, name="abs-waits", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._leave.set()
        self._thread.join()
        if kind is None:  # an operator that ended the job with an error does not continue
            self.note(DRIVER, ())

    def note(self, reporter: int, waits: Iterable[Wait]) -> None:
        """Report what has to be reported of the waits of a worker, or of the driver."""
        waits = tuple(waits)
        with self._lock:
            self._noted[reporter] = waits
            for news in self._reports.note(reporter, waits):
                self._on_news(news)

    def current(self) -> tuple[Wait, ...]:
        """Return the steps of the driver that are running, and the waits that workers have reported."""
        with self._lock:
            of_workers = [wait for number, waits in self._noted.items() if number != DRIVER for wait in waits]
        return tuple(wait for wait in (*self._steps.waits(over=0.0), *of_workers) if not wait.has_failed)

    def _run(self) -> None:
        while not self._leave.wait(EVERY_SECONDS):
            self.note(DRIVER, self._steps.waits(over=FIRST_SECONDS))
