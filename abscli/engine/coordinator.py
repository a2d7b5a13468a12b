"""The coordinator at work: it listens for workers, keeps time, and does to the store what the protocol says."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import assert_never

import msgspec

from abscli.engine.channels.door import Door, new_token
from abscli.engine.channels.wire import (
    Connection,
    EpochAborted,
    EpochCompleted,
    EpochTriggered,
    Failed,
    Go,
    Greeting,
    Hello,
    Lagging,
    Leave,
    Ready,
    SourceFinished,
    Start,
    Status,
    TaskAcked,
    Throttle,
    Wakeup,
    decode_to_coordinator,
)
from abscli.engine.errors import MEND, EngineError, EngineStopped, JobFailed, UsageError
from abscli.engine.journal import Journal
from abscli.engine.lateness import Lateness
from abscli.engine.news import EpochGivenUp, News, Stopping
from abscli.protocol.coordinator import Coordinator, NextEpoch
from abscli.protocol.events import (
    Abort,
    Acked,
    Complete,
    CoordinatorEvent,
    Finish,
    ProtocolError,
    Restart,
    SourceEnded,
    Stop,
    StopRequested,
    Store,
    Stored,
    TimedOut,
    Trigger,
    TriggerDue,
)

RENDEZVOUS_SECONDS = 60.0
PAUSE_SECONDS = 0.05
"""From the beginning of an epoch to that of the next when only what circulates is awaited."""

CIRCULATING_BYTES = 64 << 20
"""Bytes on all back edges beyond which sources pause; they go on at half of it."""


@dataclass(slots=True)
class Progress:
    """What a display shows.

    records: rows read in this run.
    epoch: the newest complete one.
    epochs: how many were completed in this run.
    circulating: bytes on back edges.
    """

    records: int = 0
    epoch: int = 0
    epochs: int = 0
    open_epochs: tuple[int, ...] = ()
    circulating: int = 0
    by_worker: dict[int, Status] = field(default_factory=dict)


class Service:
    """Runs one attempt: `address` for the workers, then `serve` until the job has ended.

    interval, epoch_timeout: seconds; interval None takes no periodic snapshots.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        journal: Journal,
        *,
        workers: int,
        host: str,
        interval: float | None,
        epoch_timeout: float,
        on_progress: Callable[[Progress], None] = lambda progress: None,
        on_news: Callable[[News], None] = lambda news: None,
    ) -> None:
        self.token = new_token()
        self.progress = Progress(epoch=coordinator.last_complete)
        self._coordinator = coordinator
        self._journal = journal
        self._workers = workers
        every = float("inf") if interval is None else interval
        self._waits = {
            NextEpoch.AT_ONCE: 0.0,
            NextEpoch.AFTER_PAUSE: min(PAUSE_SECONDS, every),
            NextEpoch.AFTER_INTERVAL: every,
        }
        self._epoch_timeout = epoch_timeout
        self._on_progress = on_progress
        self._on_news = on_news
        self._lateness = Lateness(epoch_timeout, range(workers))
        self._selector = selectors.DefaultSelector()
        self.wake = Wakeup(self._selector)
        self._door = Door(host, self.token, self._selector, self._admit, backlog=128)
        self._door.open()
        self.address = self._door.address
        self._connections: dict[int, Connection] = {}
        self._hellos: dict[int, Hello] = {}
        self._ready: set[int] = set()
        self._running = False
        self._leaving = False
        self._throttled = False
        self._stop = False
        self._signal: int | None = None
        self._abandon: EngineError | None = None
        self._begun_at = float("inf")
        self._deadlines: dict[int, float] = {}

    def request_stop(self, signal: int | None = None) -> None:
        """Take one more epoch and stop; safe in a signal handler. signal: that asks for it, to be told."""
        self._stop, self._signal = True, signal
        self.wake()

    def abandon(self, error: EngineError) -> None:
        """End at once with this error; safe from other threads and signal handlers."""
        if self._abandon is None:
            self._abandon = error
        self.wake()

    def serve(self) -> None:
        """Until the job has ended. Raises EngineStopped (lost worker, disk), JobFailed (user code), UsageError."""
        started = time.monotonic()
        try:
            while not (self._leaving and not self._connections):
                for key, mask in self._selector.select(self._wait()):
                    key.data(mask)
                self._door.keep_time()
                if self._signal is not None:
                    self._on_news(Stopping(self._signal, self._running))
                    self._signal = None
                if self._abandon is not None:
                    raise self._abandon
                if not self._running and time.monotonic() - started > RENDEZVOUS_SECONDS:
                    raise self._absent()
                self._keep_time()
        except OSError as error:
            message = f"{error.filename or 'store'}: {error.strerror}"
            raise EngineStopped(message, hint=self._journal.hint(MEND)) from error
        finally:
            self._close()

    def _absent(self) -> EngineStopped:
        missing = sorted(set(range(self._workers)) - self._ready)
        return EngineStopped(
            f"workers {', '.join(map(str, missing))} did not come within {RENDEZVOUS_SECONDS:.0f} s",
            hint=self._journal.hint("give fewer --workers, or a master with more free slots"),
        )

    # -- time ---------------------------------------------------------------------------------------------

    def _wait(self) -> float:
        now = time.monotonic()
        longest = 0.1 if self._door.busy else 0.5  # strangers at the door have a deadline of their own
        moments = [self._due_at(), *self._deadlines.values(), now + longest]
        return max(0.0, min(moments) - now)

    def _keep_time(self) -> None:
        if not self._running:
            return
        if self._stop:  # set by a signal handler, which must not drive the machine in the middle of one of its steps
            self._stop = False
            self._do(StopRequested())
        now = time.monotonic()
        if now >= self._due_at():
            self._do(TriggerDue())
        for epoch in [epoch for epoch, deadline in self._deadlines.items() if now >= deadline]:
            self._do(TimedOut(epoch))
            self._lateness.given_up(epoch, now)
        if (late := self._lateness.due(now, self._coordinator.last_complete)) is not None:
            self._on_news(late)
        self.progress.open_epochs = self._coordinator.open_epochs
        self._on_progress(self.progress)

    def _due_at(self) -> float:
        """When the next epoch is to begin, as far as only the clock has to come to that."""
        return self._begun_at + self._waits.get(self._coordinator.next_epoch(), float("inf"))

    # -- protocol -----------------------------------------------------------------------------------------

    def _do(self, event: CoordinatorEvent) -> None:
        for action in self._coordinator.on(event):
            match action:
                case Trigger(epoch):
                    # On disk before any task hears of it: a number that some task has seen is never used again.
                    self._journal.begin(epoch)
                    self._begun_at = time.monotonic()
                    self._deadlines[epoch] = self._begun_at + self._epoch_timeout
                    self._tell(EpochTriggered(epoch))
                case Store(epoch, idle):
                    self._journal.complete(epoch, idle=idle)
                    self._deadlines.pop(epoch, None)
                    self._do(Stored(epoch))
                case Complete(epoch):
                    self.progress.epoch = self._coordinator.last_complete
                    self.progress.epochs += 1
                    self._lateness.complete()
                    self._tell(EpochCompleted(epoch))
                    self._on_news(self._journal.newest)
                    self._journal.prune()
                case Abort(epoch, reason):
                    self._journal.abort(epoch, reason)
                    self._on_news(EpochGivenUp(epoch, time.time(), reason))
                    self._deadlines.pop(epoch, None)
                    self._tell(EpochAborted(epoch))
                case Finish():
                    self._journal.prune(last=True)
                    self._leaving = True
                    self._tell(Leave())
                case Stop() | Restart():
                    raise ProtocolError("tasks are to restart, and none was said to be lost")
                case _:
                    assert_never(action)

    def _tell(self, message: msgspec.Struct) -> None:
        for connection in list(self._connections.values()):  # a send that fails takes its connection out
            connection.send_message(message)

    # -- workers ------------------------------------------------------------------------------------------

    def _admit(self, hello: Greeting, sock: socket.socket) -> bool:
        """A worker is there. Every hello is a new incarnation: Spark may run a lost task again inside the same job, so
        that a second hello means that the first worker is lost."""
        if not isinstance(hello, Hello) or not 0 <= hello.worker < self._workers or self._leaving:
            return False
        worker = hello.worker
        if worker in self._hellos:
            self.lost(worker, "was started again")
            return False
        self._hellos[worker] = hello
        self._connections[worker] = Connection(
            sock, self._selector, lambda kind, number, payload: self.heard(worker, payload), lambda: self.lost(worker)
        )
        if len(self._hellos) == self._workers:
            hellos = [self._hellos[number] for number in range(self._workers)]
            addresses = tuple((hello.host, hello.port) for hello in hellos)
            self._tell(Start(addresses))
        return True

    def heard(self, worker: int, payload: memoryview) -> None:
        """A message of a worker."""
        match decode_to_coordinator(payload):
            case Ready():
                self._ready.add(worker)
                if len(self._ready) == self._workers:
                    self._running = True
                    self._begun_at = time.monotonic()
                    self._tell(Go())
            case TaskAcked(task, epoch, attempt, base, finished, logged, sent, received):
                self._journal.builds_on(epoch, base)
                self._do(Acked(task, epoch, attempt, finished, logged, sent, received))
            case SourceFinished(task):
                self._do(SourceEnded(task))
            case Status() as status:
                self._note(status)
            case Lagging() as answer:
                self._lateness.answered(answer)
            case Failed(_, message, hint, code, detail):
                kind: type[EngineError] = {6: EngineStopped, 7: JobFailed, 2: UsageError}.get(code, EngineError)
                error = kind(message, hint=self._next(code, hint))
                error.exit_code = code
                if detail:
                    error.add_note(detail)
                self.abandon(error)
            case message:
                assert_never(message)

    def _next(self, code: int, hint: str | None) -> str | None:
        """What to do about a worker's failure. hint: its own, which is what to mend where the job can go on after."""
        if code == JobFailed.exit_code:
            return self._journal.hint(hint or "mend the function or the input that is named")
        if code == EngineStopped.exit_code:
            return self._journal.hint(hint)
        return hint if hint or code == UsageError.exit_code else self._journal.hint()

    def _note(self, status: Status) -> None:
        progress = self.progress
        progress.by_worker[status.worker] = status
        progress.records = sum(status.records for status in progress.by_worker.values())
        progress.circulating = sum(status.circulating for status in progress.by_worker.values())
        # Two limits, or sources would be switched on and off with every message.
        limit = CIRCULATING_BYTES // 2 if self._throttled else CIRCULATING_BYTES
        if (progress.circulating > limit) != self._throttled:
            self._throttled = not self._throttled
            self._tell(Throttle(self._throttled))

    def lost(self, worker: int, how: str = "was lost") -> None:
        """A worker's connection ended, or is to."""
        if (connection := self._connections.pop(worker, None)) is not None:
            connection.close()
        if not self._leaving:
            pid = self._hellos[worker].pid
            self.abandon(EngineStopped(f"worker {worker} (process {pid}) {how}", hint=self._journal.hint()))

    def pids(self) -> dict[int, int]:
        """Process of each worker that has come."""
        return {number: hello.pid for number, hello in self._hellos.items()}

    def _close(self) -> None:
        self._door.close()
        for connection in list(self._connections.values()):
            connection.close()
        self._selector.close()
        self.wake.close()
