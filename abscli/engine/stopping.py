"""Signals that stop a job, answered also while the main thread is blocked.

Python runs a signal handler in the main thread, and only when that is not inside a C library. A client of a database, a
broker or a bucket can keep it there for a minute. So the operating system's handler also writes each signal to a socket
(`signal.set_wakeup_fd`), and a thread reads it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from types import FrameType, TracebackType
from typing import Protocol

from abscli.engine.errors import EngineError, EngineStopped
from abscli.engine.telemetry.news import AbandonedAtOnce, News, SlotsAwaited, StopDelayed, Stopping
from abscli.engine.waits import Wait

STOPS = (signal.SIGTERM, signal.SIGINT)
SAME_WISH_SECONDS = 0.5
"""A signal that comes again so soon is the same one: `timeout` sends it to the process and to its group."""
TELL_SLOTS_SECONDS = 5.0
"""From one word about slots that are awaited to the next."""
ANSWER_SECONDS = 2.0
"""From a first signal to the report of what the last epoch waits for, if it is not complete by then."""
LEAVE_SECONDS = 2.0
"""From a second signal to the end of the process, if the job has not ended in order by then."""
TICK_SECONDS = 0.25


class Stoppable(Protocol):
    """A job that runs."""

    def request_stop(self, signal: int | None = None) -> None:
        """Take one more epoch and stop; safe in a signal handler."""

    def abandon(self, error: EngineError) -> None:
        """End at once with this error; safe in a signal handler."""


class Wishes:
    """Signals that came, without repetitions. received: their numbers; at: when the newest came, in seconds."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self.at = 0.0

    def came(self, number: int, now: float) -> bool:
        """Note a signal; False if it is a repetition of the newest."""
        if self.received and number == self.received[-1] and now - self.at < SAME_WISH_SECONDS:
            return False
        self.received.append(number)
        self.at = now
        return True


def stopped_at_once(number: int) -> EngineStopped:
    """Return the error of a job that a second signal ends. number: of the first one."""
    error = EngineStopped("stopped by a second signal, without a last epoch")
    error.exit_code = 128 + number
    return error


class Signals:
    """SIGTERM and SIGINT ask for a last epoch, also before there is anything to ask; a second one leaves at once."""

    def __init__(self, on_news: Callable[[News], None]) -> None:
        self._wishes = Wishes()
        self._waits_since = 0.0
        self._tell_at = 0.0
        self._on_news = on_news
        self._service: Stoppable | None = None

    @property
    def received(self) -> list[int]:
        """Return the numbers of the signals that came."""
        return self._wishes.received

    def while_waiting(self, slots: int) -> None:
        """So many slots of a cluster have come; EngineStopped if a signal came: there is no job yet to take an epoch
        of."""
        if self.received:
            error = EngineStopped("stopped by a signal while it waited for slots; nothing was written")
            error.exit_code = 128 + self.received[0]
            raise error
        now = time.monotonic()
        self._waits_since = self._waits_since or now
        if now >= self._tell_at:
            if self._tell_at:
                self._on_news(SlotsAwaited(slots, now - self._waits_since))
            self._tell_at = now + TELL_SLOTS_SECONDS

    def attach(self, service: Stoppable) -> None:
        """From now on there is somebody to ask."""
        self._service = service
        if self.received:
            service.request_stop()

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Act on a signal, in the main thread."""
        if not self._wishes.came(number, time.monotonic()):
            return
        if len(self.received) > 1:
            error = stopped_at_once(self.received[0])
            if self._service is None:
                raise error
            self._service.abandon(error)
        elif self._service is not None:
            self._service.request_stop(number)  # which tells it, from its own loop
        else:
            with contextlib.suppress(RuntimeError):  # what is being written to stderr just now cannot be interrupted
                self._on_news(Stopping(number, begun=False))


class Watch:
    """A thread that answers signals while the main thread cannot.

    waits: returns the steps that the job waits for.
    leave: ends the process with an exit code.
    """

    def __init__(
        self, on_news: Callable[[News], None], waits: Callable[[], Iterable[Wait]],
        leave: Callable[[int], None] = os._exit,
    ) -> None:  # fmt: skip
        self._on_news = on_news
        self._waits = waits
        self._leave = leave
        self._wishes = Wishes()
        self._is_answered = False
        self._reader, self.writer = socket.socketpair()
        self.writer.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="abs-watch", daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.writer.close()
        self._thread.join()
        self._reader.close()

    def _run(self) -> None:
        while True:
            if select.select([self._reader], [], [], TICK_SECONDS)[0]:
                if not (numbers := self._reader.recv(64)):
                    return
                for number in numbers:
                    if number in STOPS:
                        self._wishes.came(number, time.monotonic())
            self._look(time.monotonic())

    def _look(self, now: float) -> None:
        """Answer the signals that came."""
        received, since = self._wishes.received, now - self._wishes.at
        if len(received) == 1 and since >= ANSWER_SECONDS and not self._is_answered:
            self._is_answered = True
            if delayed := tuple(self._waits()):
                self._on_news(StopDelayed(received[0], delayed))
        elif len(received) > 1 and since >= LEAVE_SECONDS:
            # stderr may be blocked, too.
            last_words = threading.Thread(target=self._on_news, args=(AbandonedAtOnce(received[0]),), daemon=True)
            last_words.start()
            last_words.join(1.0)
            self._leave(128 + received[0])


@contextlib.contextmanager
def signals_handled(on_news: Callable[[News], None], waits: Callable[[], Iterable[Wait]]) -> Iterator[Signals]:
    """Answer signals while the block runs, if this is the main thread; elsewhere the caller handles them.

    waits: returns the steps that the job waits for.
    """
    signals = Signals(on_news)
    with contextlib.ExitStack() as stack:
        watch = stack.enter_context(Watch(on_news, waits))
        if threading.current_thread() is threading.main_thread():
            for number in STOPS:
                stack.callback(signal.signal, number, signal.signal(number, signals.handle))
            before = signal.set_wakeup_fd(watch.writer.fileno(), warn_on_full_buffer=False)
            stack.callback(signal.set_wakeup_fd, before)
        yield signals
