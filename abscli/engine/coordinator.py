"""The coordinator at work: it listens for workers, keeps time, and does to the store what the protocol says. What
follows from the loss of a worker is `losses`'."""

from __future__ import annotations

import queue
import selectors
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import assert_never

from abscli.engine.channels.door import Door, guard, is_address, new_token
from abscli.engine.channels.line import Line, Lines, new_key_pair
from abscli.engine.channels.messages import (
    Alive,
    Differed,
    EpochAborted,
    EpochCompleted,
    EpochTriggered,
    Failed,
    Greeting,
    Hello,
    Lagging,
    Leave,
    LetGo,
    Patience,
    Ready,
    Repeated,
    Replayed,
    SourceFinished,
    Status,
    TaskAcked,
    TasksStopped,
    Throttle,
    Unheard,
    check_sender,
    decode_to_coordinator,
)
from abscli.engine.channels.vigil import Vigil
from abscli.engine.channels.wire import Connection, Frame, Wakeup
from abscli.engine.errors import MEND, EngineError, EngineStopped
from abscli.engine.journal import Journal
from abscli.engine.losses.absence import Endpoint
from abscli.engine.losses.crew import Crew, Launcher, misplaced
from abscli.engine.losses.decisions import (
    Scope,
)
from abscli.engine.losses.restarting import Losses, Ties
from abscli.engine.telemetry.held_watermarks import HeldWatermarks
from abscli.engine.telemetry.lateness import Lateness
from abscli.engine.telemetry.news import EpochDone, EpochGivenUp, FramesLetGo, News, Stopping
from abscli.engine.telemetry.slow_sinks import SlowSinks
from abscli.engine.waits import Wait
from abscli.protocol.coordinator import Coordinator, NextEpoch
from abscli.protocol.events import (
    Abort,
    Acked,
    ChannelCaughtUp,
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
from abscli.protocol.policy import Policy
from formats.job.model import Topology

PAUSE_SECONDS = 0.05
"""From the beginning of an epoch to that of the next when only what circulates is awaited."""

CIRCULATING_BYTES = 64 << 20
"""Bytes on all back edges beyond which sources pause; they go on at half of it."""


@dataclass(slots=True)
class Progress:
    """What a display shows.

    records: rows read in this run, each once however often it came again.
    epoch: the newest complete one.
    epochs: how many were completed in this run.
    circulating: bytes on back edges.
    paused: whether sources wait, until less circulates or an unresponsive worker answers or has been replaced.
    """

    records: int = 0
    epoch: int = 0
    epochs: int = 0
    open_epochs: tuple[int, ...] = ()
    circulating: int = 0
    paused: bool = False
    by_worker: dict[int, Status] = field(default_factory=dict)


class Service:
    """Runs one attempt: `address` for the workers, then `serve` until the job has ended.

    policy: of its epochs.
    host: under which workers reach it; bind: the address on which it listens, where that is another one.
    secure: whether connections are encrypted, and both ends show the certificate of the attempt, which is in `keys`.
    interval, epoch_timeout: seconds; interval None takes no periodic snapshots.
    worker_timeout: seconds without a heartbeat after which a worker is declared failed.
    recovery: what restarts when workers are lost.
    restarts: how often that may be, within ten epochs; 0: the job ends with the first loss.
    on_waits: is called with the number of a worker and the waits of its sources and sinks.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        journal: Journal,
        topology: Topology,
        *,
        policy: Policy,
        workers: int,
        host: str,
        bind: str | None = None,
        secure: bool = False,
        interval: float | None,
        epoch_timeout: float,
        worker_timeout: float = 10.0,
        recovery: Scope = Scope.SUBGRAPH,
        restarts: int = 3,
        on_progress: Callable[[Progress], None] = lambda progress: None,
        on_news: Callable[[News], None] = lambda news: None,
        on_trace: Callable[[memoryview], None] = lambda lines: None,
        on_waits: Callable[[int, Iterable[Wait]], None] = lambda worker, waits: None,
    ) -> None:
        self.token = new_token()
        self.keys = new_key_pair() if secure else None
        self.policy = policy
        self.progress = Progress(epoch=coordinator.last_complete)
        self._coordinator = coordinator
        self._journal = journal
        self._topology = topology
        self._workers = workers
        every = float("inf") if interval is None else interval
        self._waits = {
            NextEpoch.AT_ONCE: 0.0,
            NextEpoch.AFTER_PAUSE: min(PAUSE_SECONDS, every),
            NextEpoch.AFTER_INTERVAL: every,
        }
        self._epoch_timeout = epoch_timeout
        self._patience = Patience.of(worker_timeout)
        self._scope = recovery
        self._restarts = restarts
        self._on_progress = on_progress
        self._on_news = on_news
        self._on_trace = on_trace
        self._on_waits = on_waits
        self._slow_sinks = SlowSinks(interval)
        self._held_watermarks = HeldWatermarks(topology)
        self._lateness = Lateness(epoch_timeout, range(workers))
        self._selector = selectors.DefaultSelector()
        self.wake = Wakeup(self._selector)
        try:
            self._door = Door(
                bind or host, self.token, self._selector, self._admit, backlog=128, lines=Lines(self.keys)
            )
        except OSError as error:
            raise EngineStopped(
                f"the driver cannot listen on {bind or host}: {error.strerror or error}",
                hint="set --bind to an address of this host, and --advertise to the address at which workers "
                "reach the driver",
            ) from error
        self._door.open()
        where, port = self._door.address
        self.address = (host if bind not in (None, host) else where, port)
        self._crew: Crew | None = None
        self._losses: Losses | None = None
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._leaving = False
        self._congested = False
        self._throttled = False
        self._stop = False
        self._signal: int | None = None
        self._abandon: EngineError | None = None
        self._begun_at = float("inf")
        self._deadlines: dict[int, float] = {}
        self._vigil: Vigil | None = None

    @property
    def crew(self) -> Crew:
        """The workers, from `serve` on."""
        assert self._crew is not None
        return self._crew

    @property
    def losses(self) -> Losses:
        """Who is lost, and what restarts; from `serve` on."""
        assert self._losses is not None
        return self._losses

    def request_stop(self, signal: int | None = None) -> None:
        """Take one more epoch and stop; safe in a signal handler. signal: that asks for it, to be told."""
        self._stop, self._signal = True, signal
        self.wake()

    def abandon(self, error: EngineError) -> None:
        """End at once with this error; safe from other threads and signal handlers."""
        if self._abandon is None:
            self._abandon = error
        self.wake()

    def serve(self, launcher: Launcher) -> None:
        """Until the job has ended. Raises EngineStopped (lost workers, disk), JobFailed (user code), UsageError."""
        if launcher.pulse:
            self._vigil = Vigil(self._patience, self._unheard)
        self._crew = Crew(launcher, self._workers, self._vigil)
        self._losses = Losses(
            self._coordinator, self._journal, self._topology, self._crew,
            Ties(
                self._do, self._records_of, lambda: self.progress.epochs, self.abandon, self._failed, self._on_news,
                Endpoint(socket.gethostname(), *self.address),
            ),
            scope=self._scope, restarts=self._restarts, patience=self._patience,
        )  # fmt: skip
        try:
            self._losses.begin()
            while not (self._leaving and not self.crew.connections):
                for key, mask in self._selector.select(self._wait()):
                    key.data(mask)
                self._door.keep_time()
                while not self._calls.empty():
                    self._calls.get()()
                if self._signal is not None:
                    self._on_news(Stopping(self._signal, self.losses.running))
                    self._signal = None
                if self._abandon is not None:
                    raise self._abandon
                self.losses.end_recovery()
                if not self._leaving:
                    self.losses.keep_crew()
                    self._throttle()
                self._keep_time()
        except OSError as error:
            message = f"{error.filename or 'store'}: {error.strerror}"
            raise EngineStopped(message, hint=self._journal.hint(MEND)) from error
        finally:
            self._close()

    # -- time ---------------------------------------------------------------------------------------------

    def _wait(self) -> float:
        now = time.monotonic()
        longest = 0.1 if self._door.busy else 0.5  # strangers at the door have a deadline of their own
        moments = [self._due_at(), *self._deadlines.values(), *self.losses.moments, now + longest]
        return max(0.0, min(moments) - now)

    def _keep_time(self) -> None:
        if not self.losses.running:
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
                    self.losses.tell(EpochTriggered(epoch))
                case Store(epoch, idle):
                    self._journal.complete(epoch, idle=idle)
                    self._deadlines.pop(epoch, None)
                    self._do(Stored(epoch))
                case Complete(epoch):
                    self.progress.epoch = self._coordinator.last_complete
                    self.progress.epochs += 1
                    self._lateness.complete()
                    self.losses.places.complete(epoch)
                    self.losses.tell(EpochCompleted(epoch))
                    self._tell_of(self._journal.newest)
                    self._journal.prune()
                case Abort(epoch, reason):
                    self._journal.abort(epoch, reason)
                    self._on_news(EpochGivenUp(epoch, time.time(), reason))
                    self._deadlines.pop(epoch, None)
                    self.losses.tell(EpochAborted(epoch))
                case Finish():
                    self._journal.prune(last=True)
                    self._leaving = True
                    self.losses.tell(Leave())
                case Stop():
                    self.losses.stop(action)
                case Restart():
                    self.losses.restart(action)
                    self._start_if_all_are_there()
                case _:
                    assert_never(action)

    def _tell_of(self, done: EpochDone) -> None:
        """Report a complete epoch, and what it shows of slow sinks and of event time."""
        self._on_news(done)
        statuses = self.progress.by_worker.values()
        waiting = {wait.operator for status in statuses for wait in status.waits if wait.is_source}
        for news in (*self._slow_sinks.note(done), *self._held_watermarks.note(self._journal.newest_parts, waiting)):
            self._on_news(news)

    # -- workers ------------------------------------------------------------------------------------------

    def _admit(self, hello: Greeting, line: Line) -> bool:
        """A worker is there. Every hello is a new incarnation: Spark may run a lost task again inside the same job, so
        that a second hello means that the first worker is lost, and that this one is there in its place."""
        if self._crew is None or self._leaving:
            return False
        if isinstance(hello, Alive):
            if self._vigil is None:
                return False
            self._vigil.admit(hello, line)
            return True
        if not isinstance(hello, Hello) or not self.crew.is_newest(hello.worker, hello.launch):
            return False
        worker = hello.worker
        try:
            seen_at = line.sock.getpeername()[0]
        except OSError:  # it has ended the connection already
            return False
        if not is_address(hello.host):
            return False
        if (error := misplaced(hello, seen_at)) is not None:
            self.abandon(error)
            return False
        if self.crew.is_there(worker):
            self._lost(worker, "was started again")
            if self._abandon is not None:
                return False
        if self._vigil is not None:
            guard(line.sock, self._patience.lost)
        connection = Connection(
            line, self._selector, lambda kind, number, payload: self._heard(worker, connection, kind, payload),
            lambda: self._gone(worker, connection),
        )  # fmt: skip
        self.crew.welcome(hello, connection)
        self._start_if_all_are_there()
        return True

    def _start_if_all_are_there(self) -> None:
        self.losses.start_if_all_are_there(throttled=self._throttled)

    def _heard(self, worker: int, connection: Connection, frame: Frame, payload: memoryview) -> None:
        """A message of a worker, or lines of its trace; of one that was dismissed, no message counts."""
        if frame is Frame.TRACE:
            self._on_trace(payload)
            return
        if self.crew.connections.get(worker) is not connection:
            return
        try:
            if frame is not Frame.CONTROL:
                raise ProtocolError(f"unexpected frame {frame.name}, expected {Frame.CONTROL.name}")
            message = decode_to_coordinator(payload)
            check_sender(message, worker, self._workers)
            if isinstance(message, TaskAcked | SourceFinished) and message.task not in self._coordinator.tasks:
                raise ProtocolError(f"{message.task} is not a task of this job")
        except ProtocolError as error:
            self._lost(worker, f"sent an invalid message: {error}")
            return
        match message:
            case Ready(_, attempt, records, restored):
                self._ready(worker, attempt, records, restored)
            case TasksStopped() as stopped:
                self.losses.stopped(stopped)
                self._start_if_all_are_there()
            case Replayed(channel, attempt):
                self._do(ChannelCaughtUp(channel, attempt))
            case TaskAcked(task, epoch, attempt, base, finished, logged, sent, received, place, part, behind):
                self._journal.builds_on(epoch, base)
                if part is not None and attempt == self._coordinator.attempt:
                    self._journal.acked(part)
                if place is not None and attempt == self._coordinator.attempt:
                    self.losses.places.acked(task, epoch, place, sent, received)
                self._do(Acked(task, epoch, attempt, finished, logged, dict(sent), dict(received), behind))
            case SourceFinished(task, attempt):
                # Not what a source said before it was started again: it has more to read now.
                if self.losses.is_of_now(task, attempt):
                    self._do(SourceEnded(task))
            case Status() as status:
                self._note(status)
            case Lagging() as answer:
                self._lateness.answered(answer)
            case Repeated():
                self.losses.repeated(worker)
            case Differed() as differed:
                self.losses.differed(differed)
            case LetGo():
                self._on_news(FramesLetGo(worker))
            case Failed() as failed:
                self.losses.worker_failed(failed)
            case _:
                assert_never(message)

    def _ready(self, worker: int, attempt: int, records: int, restored: int) -> None:
        if not self.losses.ready(worker, attempt, restored):
            return
        self._note(Status(worker, records, 0))
        was_running = self.losses.running
        self.losses.go_if_all_are_ready()
        if self.losses.running and not was_running:
            self._begun_at = time.monotonic()

    def _note(self, status: Status) -> None:
        progress = self.progress
        progress.by_worker[status.worker] = status
        self._on_waits(status.worker, status.waits)
        total = sum(status.records for status in progress.by_worker.values())
        progress.records = max(0, total - self._journal.records_before)
        progress.circulating = sum(status.circulating for status in progress.by_worker.values())
        # Two limits, or sources would be switched on and off with every message.
        limit = CIRCULATING_BYTES // 2 if self._congested else CIRCULATING_BYTES
        self._congested = progress.circulating > limit
        self._throttle()

    def _throttle(self) -> None:
        """Pause or resume all sources, if that has changed."""
        throttled = self._congested or self.losses.pauses_sources
        if throttled != self._throttled:
            self._throttled = self.progress.paused = throttled
            self.crew.tell(Throttle(throttled))

    def pids(self) -> dict[int, int]:
        """The newest process of each worker that has come."""
        return self._crew.pids() if self._crew is not None else {}

    # -- losses -------------------------------------------------------------------------------------------

    def _records_of(self, worker: int) -> int | None:
        status = self.progress.by_worker.get(worker)
        return status.records if status is not None else None

    def _lost(self, worker: int, cause: str = "was lost") -> None:
        if self._leaving:
            self.crew.dismiss(worker)
        else:
            self.losses.lost(worker, cause)

    def _gone(self, worker: int, connection: Connection) -> None:
        """A worker's connection has ended."""
        if self.crew.connections.get(worker) is connection:
            self._lost(worker)

    def _failed(self, worker: int, launch: int, error: EngineError) -> None:
        """What was launched as a worker has ended; called from other threads."""
        self._calls.put(lambda: None if self._leaving else self.losses.launch_failed(worker, launch, error))
        self.wake()

    def _unheard(self, message: Unheard) -> None:
        """A worker hears nothing of another one; called from another thread."""
        self._calls.put(lambda: self.losses.unheard(message))
        self.wake()

    def _close(self) -> None:
        self._door.close()
        for connection in self._crew.connections.values() if self._crew else ():
            connection.close()
        if self._vigil is not None:
            self._vigil.close()
        self._selector.close()
        self.wake.close()
