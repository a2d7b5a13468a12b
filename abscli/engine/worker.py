"""A worker: one process (or thread) that runs its share of the tasks on one processing thread, with an event loop.

Records between its own tasks go through queues, others over TCP. It leaves when the coordinator says so, or when the
coordinator's connection ends: no orphans.
"""

from __future__ import annotations

import os
import queue
import selectors
import socket
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import assert_never

import pyarrow as pa

from abscli.engine.build import build_tasks
from abscli.engine.channels.door import Door, dial
from abscli.engine.channels.inbox import Barrier, Batch, Inbox
from abscli.engine.channels.wire import (
    ChannelHello,
    Connection,
    EpochAborted,
    EpochCompleted,
    EpochTriggered,
    Failed,
    Frame,
    Go,
    Greeting,
    Hello,
    JobSpec,
    Lagging,
    Leave,
    Ready,
    SourceFinished,
    Start,
    Status,
    TaskAcked,
    Throttle,
    Wakeup,
    decode_to_worker,
)
from abscli.engine.errors import MEND, EngineError, EngineStopped
from abscli.engine.task import RunningTask
from formats.errors import FormatError
from formats.ids import TaskId, ends_of
from formats.native.counters import Counters
from formats.native.facts import PartFacts

CHANNEL_BYTES = 2 << 20
"""Bytes queued on a regular channel beyond which its sender waits: they are what a barrier has to pass."""

BUG = "this is a bug; run with -vv for the traceback"
CONNECT_SECONDS = 30.0
DIAL_SECONDS = 2.0
"""One try of these."""

ARRIVAL_SECONDS = 60.0
"""Time for channels that have been dialled to come through the door, once everybody is ready."""

LOST_SECONDS = 5.0
"""A peer's connection may end because the job has: the coordinator says so meanwhile, or says who died."""


def worker_of(index: int, workers: int) -> int:
    """The worker that runs subtask `index` of any operator: `forward` edges stay inside a process."""
    return index % workers


class Worker:
    """Worker `number` of a job; `run` returns when the job has ended for it."""

    def __init__(self, spec: JobSpec, number: int) -> None:
        self.spec = spec
        self.number = number
        self._selector = selectors.DefaultSelector()
        self._wakeup = Wakeup(self._selector)
        self._later: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._pool = ThreadPoolExecutor(2, thread_name_prefix=f"abs-persist-{number}")
        self._tasks: list[RunningTask] = []
        self._inboxes: dict[str, Inbox] = {}
        self._senders: dict[str, Connection] = {}
        self._receivers: dict[str, Connection] = {}
        self._incoming: list[Incoming] = []
        self._awaited: set[str] = set()
        self._await_until = float("inf")
        self._schemas: dict[str, pa.Schema] = {}
        self._blocked_by: dict[str, list[Inbox | Connection]] = {}
        self._leave = False
        self._reading = False
        self._throttled = False
        self._status_at = 0.0
        self._lost: tuple[float, str] | None = None
        host = spec.address[0] if spec.address[0].startswith("127.") else socket.gethostbyname(socket.gethostname())
        self._door = Door(host, spec.token, self._selector, self._admit, backlog=1024)
        try:
            self._control = self._dial_coordinator()
        except BaseException:
            self._close_idle()
            raise

    def _dial_coordinator(self) -> Connection:
        hello = Hello(self.number, *self._door.address, os.getpid())
        sock = dial(self.spec.address, self.spec.token, hello, seconds=CONNECT_SECONDS)
        return Connection(sock, self._selector, self._on_control, self._coordinator_gone)

    def run(self) -> None:
        """Serve until told to leave. A failure is reported to the coordinator, which ends the job."""
        try:
            while not self._leave:
                busy = self._work()
                self._serve(0 if busy else 0.1)
                self._door.keep_time()
                while not self._later.empty():
                    self._later.get()()
                self._report_status()
            self._control.send_message(self._status())
        except Exception as error:
            self._control.send_message(_failure(self.number, error))
        finally:
            self._close()

    def _serve(self, seconds: float) -> None:
        """What has come on any socket, waiting for at most so long."""
        for key, mask in self._selector.select(seconds):
            key.data(mask)

    def _work(self) -> bool:
        """One item of every task that can go on."""
        busy = False
        for task in self._tasks:
            if task.source is not None and not (self._reading and not self._throttled):
                continue
            if self._has_room(task):
                busy |= task.step()
        for channel, connection in self._receivers.items():
            inbox = self._inboxes[channel]
            connection.reading(inbox.back or inbox.bytes < CHANNEL_BYTES)
        return busy

    def _has_room(self, task: RunningTask) -> bool:
        """Whether every regular output can take more; back edges never push back."""
        for out in self._blocked_by[task.machine.name]:
            if (out.bytes if isinstance(out, Inbox) else out.pending) >= CHANNEL_BYTES:
                return False
        return True

    # -- control ------------------------------------------------------------------------------------------

    def _on_control(self, kind: Frame, number: int, payload: memoryview) -> None:
        match decode_to_worker(payload):
            case Start(addresses):
                self._start(addresses)
            case Go():
                self._await_until = time.monotonic() + ARRIVAL_SECONDS
                self._reading = self.spec.read_sources
            case EpochTriggered(epoch):
                for task in self._tasks:
                    task.trigger(epoch)
            case EpochCompleted(epoch):
                for task in self._tasks:
                    task.complete(epoch)
            case EpochAborted(epoch):
                lags = [task.lag(epoch) for task in self._tasks]
                self._control.send_message(Lagging(self.number, epoch, tuple(lag for lag in lags if lag is not None)))
                for task in self._tasks:
                    task.abort(epoch)
            case Throttle(on):
                self._throttled = on
            case Leave():
                self._leave = True
            case message:
                assert_never(message)

    def _coordinator_gone(self) -> None:
        self._leave = True

    def _start(self, addresses: tuple[tuple[str, int], ...]) -> None:
        spec = self.spec
        self._tasks = build_tasks(
            spec,
            self._pool,
            mine=lambda index: worker_of(index, spec.workers) == self.number,
            send=self._send,
            acked=self._acked,
            ended=lambda name: self._control.send_message(SourceFinished(name)),
            later=self._call_later,
        )
        for task in self._tasks:
            self._inboxes.update(task.inboxes)
        senders = {channel: ends_of(channel)[0] for channel in self._inboxes}
        self._awaited = {channel for channel, sender in senders.items() if self._worker_of(sender) != self.number}
        # Now that the inboxes which peers ask for are there, and before dialling: peers dial at the same time.
        self._door.open()
        for task in self._tasks:
            outs: list[Inbox | Connection] = []
            for route in task.routes:
                for channel in route.channels:
                    # Not `or`: an inbox with nothing to take is false.
                    inbox = self._inboxes.get(channel)
                    target = inbox if inbox is not None else self._dial(channel, addresses)
                    if not route.back:
                        outs.append(target)
            self._blocked_by[task.machine.name] = outs
        self._control.send_message(Ready(self.number))

    def _call_later(self, function: Callable[[], None]) -> None:
        self._later.put(function)
        self._wakeup()

    def _acked(self, part: PartFacts, counters: Counters, base: int) -> None:
        logged = sum(log.records for log in part.logs)
        ack = TaskAcked(part.task, part.epoch, part.attempt, base, part.finished, logged, *counters)
        self._control.send_message(ack)

    def _report_status(self) -> None:
        now = time.monotonic()
        if self._lost is not None and now - self._lost[0] > LOST_SECONDS:
            raise EngineStopped(f"worker {self.number}: {self._lost[1]}")
        if self._awaited and now > self._await_until:
            raise EngineStopped(
                f"worker {self.number}: {min(self._awaited)} did not come within {ARRIVAL_SECONDS:.0f} s",
                hint="it was dialled: has this process as many files open as it may (ulimit -n)?",
            )
        if now - self._status_at >= 0.5:
            self._status_at = now
            self._control.send_message(self._status())

    def _status(self) -> Status:
        circulating = sum(inbox.queued for inbox in self._inboxes.values() if inbox.back)
        return Status(self.number, sum(task.records_read for task in self._tasks), circulating)

    # -- data ---------------------------------------------------------------------------------------------

    def _send(self, channel: str, item: Batch | Barrier) -> None:
        inbox = self._inboxes.get(channel)
        if inbox is not None:
            inbox.put(item)
            return
        connection = self._senders[channel]
        if isinstance(item, Barrier):
            connection.send(Frame.BARRIER, item.epoch)
            return
        schema = item.rows.schema
        # By identity, which costs nothing a batch: to send an equal schema again does no harm.
        if self._schemas.get(channel) is not schema:
            self._schemas[channel] = schema
            connection.send(Frame.SCHEMA, 0, memoryview(schema.serialize()))
        connection.send(Frame.RECORDS, item.first, memoryview(item.rows.serialize()))

    def _worker_of(self, task: str) -> int:
        return worker_of(TaskId.parse(task).subtask, self.spec.workers)

    def _dial(self, channel: str, addresses: tuple[tuple[str, int], ...]) -> Connection:
        peer = self._worker_of(ends_of(channel)[1])
        sock = self._connected(addresses[peer], ChannelHello(channel, self.spec.attempt))

        def lost() -> None:
            self._lost = self._lost or (time.monotonic(), f"lost the connection of {channel} to worker {peer}")

        connection = Connection(sock, self._selector, lambda *_: None, lost)
        self._senders[channel] = connection
        return connection

    def _connected(self, address: tuple[str, int], hello: ChannelHello) -> socket.socket:
        """A connection to a peer. While the queue of its door is full of others, ours is served: it may wait for us."""
        until = time.monotonic() + CONNECT_SECONDS
        while True:
            try:
                return dial(address, self.spec.token, hello, seconds=DIAL_SECONDS)
            except TimeoutError:
                if time.monotonic() > until:
                    raise
                self._serve(0)
                self._door.keep_time()

    def _admit(self, hello: Greeting, sock: socket.socket) -> bool:
        """A sender is there; not one of another attempt, nor a second one of a channel."""
        if not isinstance(hello, ChannelHello) or hello.attempt != self.spec.attempt:
            return False
        inbox = self._inboxes.get(hello.channel)
        if inbox is None or hello.channel in self._receivers:
            return False
        incoming = Incoming(self, sock, inbox)
        self._incoming.append(incoming)
        self._receivers[hello.channel] = incoming.connection
        self._awaited.discard(hello.channel)
        return True

    def peer_gone(self, channel: str) -> None:
        """A sender's connection ended: if the job goes on, the coordinator hears of the peer's death as well."""
        self._receivers.pop(channel, None)

    @property
    def selector(self) -> selectors.BaseSelector:
        return self._selector

    def _close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        for task in self._tasks:
            task.close()
        self._control.finish(5.0)
        for connection in [*self._senders.values(), *(incoming.connection for incoming in self._incoming)]:
            connection.close()
        self._close_idle()

    def _close_idle(self) -> None:
        """What a worker has before it has met anybody."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._door.close()
        self._selector.close()
        self._wakeup.close()


class Incoming:
    """A data connection: frames in, items into one inbox."""

    def __init__(self, worker: Worker, sock: socket.socket, inbox: Inbox) -> None:
        self._worker = worker
        self._inbox = inbox
        self._schema: pa.Schema | None = None
        self.connection = Connection(sock, worker.selector, self._on_frame, self._on_close)

    def _on_frame(self, kind: Frame, number: int, payload: memoryview) -> None:
        if kind is Frame.BARRIER:
            self._inbox.put(Barrier(number))
        elif kind is Frame.SCHEMA:
            self._schema = pa.ipc.read_schema(pa.py_buffer(payload))
        elif kind is Frame.RECORDS:
            self._inbox.put(Batch(number, pa.ipc.read_record_batch(pa.py_buffer(payload), self._schema)))
            if not self._inbox.back and self._inbox.bytes >= CHANNEL_BYTES:
                self.connection.reading(False)

    def _on_close(self) -> None:
        self._worker.peer_gone(self._inbox.channel)


def _failure(number: int, error: Exception) -> Failed:
    if isinstance(error, EngineError):
        return Failed(number, error.message, error.hint, error.exit_code)
    if isinstance(error, FormatError):
        return Failed(number, str(error), error.hint, 3)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        message = f"worker {number}: {where}{error.strerror or error}"
        return Failed(number, message, MEND if where else None, EngineStopped.exit_code)
    reason = (str(error).splitlines() or [""])[0]
    detail = "".join(traceback.format_exception(error))
    return Failed(number, f"worker {number}: unexpected {type(error).__name__}: {reason}", BUG, 1, detail)

