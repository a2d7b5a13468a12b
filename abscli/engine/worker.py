"""A worker: one process (or thread) that runs its share of the tasks on one processing thread, with an event loop.

Records between its own tasks go through queues, others over TCP. It leaves when the coordinator says so, or when the
coordinator's connection ends: no orphans. When other workers are lost it drops those of its tasks that restart, lets
the rest go on, and makes the dropped ones anew when everybody is there again.
"""

from __future__ import annotations

import contextlib
import os
import queue
import secrets
import selectors
import socket
import time
import traceback
from collections.abc import Callable, Mapping
from typing import assert_never

import msgspec

from abscli.engine.build import build_tasks
from abscli.engine.channels.door import Door, greeting, guard, is_loopback, reach
from abscli.engine.channels.lease import Lease, LeaseExpired
from abscli.engine.channels.line import Line, Lines
from abscli.engine.channels.messages import (
    Again,
    Alive,
    EpochAborted,
    EpochCompleted,
    EpochTriggered,
    Failed,
    Go,
    Greeting,
    Hello,
    JobSpec,
    Lagging,
    Leave,
    PeerAlive,
    Ready,
    Replayed,
    SourceFinished,
    Start,
    Status,
    StopTasks,
    TaskAcked,
    TasksStopped,
    Throttle,
    decode_to_worker,
)
from abscli.engine.channels.peers import Peers, PeersLost, Superseded
from abscli.engine.channels.pulse import Pulse
from abscli.engine.channels.wire import Connection, Frame, Wakeup
from abscli.engine.errors import MEND, EngineError, EngineStopped, JobFailed
from abscli.engine.local.ledger import Ledger
from abscli.engine.local.repeating import Repeating
from abscli.engine.local.steps import Place, Steps
from abscli.engine.state.memory import StateMemory
from abscli.engine.state.packing import Packer
from abscli.engine.state.restoring import Restored
from abscli.engine.task import RunningTask
from abscli.engine.telemetry.tracing import WorkerTrace
from abscli.engine.waits import Doing, StepTimer, TimedPool, Wait
from abscli.planner.placement import worker_of
from abscli.planner.ranges import EMPTY, Ranges
from abscli.protocol.events import ProtocolError
from abscli.protocol.task import Task
from formats.errors import FormatError, Unreachable
from formats.ids import ChannelId, TaskId
from formats.native.counters import Counters
from formats.native.facts import PartFacts
from formats.native.store import NativeStore
from formats.storage import AT_ONCE, ObjectStorage, is_served, open_writable

BUG = "this is a bug; run with -vv for the traceback"
ADVERTISE = "set --advertise to the address under which workers reach the driver"
CONNECT_SECONDS = 30.0
SHORT_WAIT_SECONDS = 1.0
"""Waits of sinks and for the store up to this long are not sent to the driver."""


class Worker:
    """Worker `number` of a job; `run` returns when the job has ended for it.

    launch: how often one of this number was started before.
    """

    def __init__(self, spec: JobSpec, number: int, launch: int = 0) -> None:
        self.spec = spec
        self.number = number
        self.launch = launch
        self.machine = socket.gethostname()
        self.incarnation = secrets.token_hex(8)
        self._lease = Lease(spec.pulse.lease if spec.pulse is not None else None)
        self._pause_after = spec.pulse.pause if spec.pulse is not None else 0.0
        self._selector = selectors.DefaultSelector()
        self._wakeup = Wakeup(self._selector)
        self._later: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threads = AT_ONCE if is_served(spec.store) else 2
        self._title = f"worker {number} on {self.machine}"
        self._steps = StepTimer()
        writes = Wait(self._title, Doing.STORE, spec.store)
        self._pool = TimedPool(threads, self._steps, writes, name=f"abs-persist-{number}")
        self._tasks: list[RunningTask] = []
        self._packer = self._new_packer()
        self._attempt = 0
        self._pulse: Pulse | None = None
        self._leave = False
        self._killed = False
        self._reading = False
        self._throttled = False
        self._status_at = 0.0
        self._lines = Lines(spec.keys)
        self._peers = Peers(
            spec, number, self._selector, lines=self._lines, tell=self._tell, serve=self._serve_once,
            ledger=self._new_ledger(),
        )  # fmt: skip
        self._repeating = Repeating(number, self._tell)
        self._memory = StateMemory(spec.state_memory) if spec.state_memory is not None else None
        self._trace = WorkerTrace(self._send_trace, f"{number}.{launch}") if spec.trace else None
        with contextlib.ExitStack() as undo:
            undo.callback(self._close_idle)
            line = self._reach_coordinator()
            sock = undo.enter_context(line.sock)
            # Where the coordinator is reached from, peers reach this host: what its own name says may lead elsewhere.
            self._door = Door(
                sock.getsockname()[0], spec.token, self._selector, self._admit, backlog=1024, lines=self._lines
            )
            undo.callback(self._door.close)
            hello = Hello(number, *self._door.address, os.getpid(), launch, self.machine, self.incarnation)
            # Before the pulse, which ends it when the lease has run out.
            self._control = Connection(
                line, self._selector, self._on_control, self._coordinator_gone, greeting=greeting(spec.token, hello)
            )
            if spec.pulse is not None:
                guard(sock, spec.pulse.lost)
                alive = Alive(number, launch, self.incarnation)
                self._pulse = Pulse(spec, alive, self._lease, self._lines, self._lease_expired)
            undo.pop_all()
        self._door.open()

    def _reach_coordinator(self) -> Line:
        try:
            sock = reach(self.spec.address, seconds=CONNECT_SECONDS)
            try:
                line = self._lines.dialled(sock)
                line.open(CONNECT_SECONDS)
            except BaseException:
                sock.close()
                raise
            return line
        except OSError as error:
            raise self._unreached(error) from error

    def _unreached(self, error: OSError) -> EngineStopped:
        host, port = self.spec.address
        message = (
            f"worker {self.number} on {self.machine} cannot reach the driver on {self.spec.driver} at {host}:{port}: "
            f"{error.strerror or error}"
        )
        if self.machine == self.spec.driver:
            return EngineStopped(message)
        if not is_loopback(host):
            # In the message: of what a worker raises, Spark passes on no more.
            return EngineStopped(f"{message}; check the network and the firewalls between both hosts, or {ADVERTISE}")
        return EngineStopped(f"{message}; that address means {self.machine} there: {ADVERTISE}")

    def run(self) -> None:
        """Serve until told to leave. A failure is reported to the coordinator, which ends the job."""
        try:
            while not self._leave and not self._killed:
                busy = self._work()
                self._serve(0 if busy else 0.1)
                self._door.keep_time()
                while not self._later.empty():
                    self._later.get()()
                self._report_status()
            if not self._killed:
                self._tell(self._status())
        except LeaseExpired:
            self._killed = True
        except Exception as error:
            if not self._killed:
                self._tell(_failure(self.number, error, machine=self.machine, driver=self.spec.driver))
        finally:
            self._close()

    def kill(self) -> None:
        """Drop everything at once and say nothing, as a process that is killed; safe from other threads."""
        self._killed = True
        # Whoever it talks to hears of it now, also where its thread is in a function that takes long.
        self._control.hang_up()
        self._peers.hang_up()
        self._wakeup()

    def _lease_expired(self) -> None:
        """Another may be there in its place: nothing of this one may count any more. Called from another thread."""
        self.kill()

    def _admit(self, hello: Greeting, line: Line) -> bool:
        if isinstance(hello, PeerAlive):
            if self._pulse is not None:
                self._pulse.answer(line)
            return self._pulse is not None
        return self._peers.admit(hello, line)

    def _serve(self, seconds: float) -> None:
        """What has come on any socket, waiting for at most so long."""
        for key, mask in self._selector.select(seconds):
            key.data(mask)

    def _serve_once(self, seconds: float) -> bool:
        """Look after every connection while a peer is dialled; False where that is not needed any more."""
        self._serve(seconds)
        self._door.keep_time()
        return not self._leave

    def _tell(self, message: msgspec.Struct) -> None:
        self._control.send_message(message)

    def _new_ledger(self) -> Ledger | None:
        spec = self.spec
        if spec.backup_buffer is None:
            return None
        return Ledger(spec.topology, spec.workers, self.number, spec.backup_buffer)

    def _new_packer(self) -> Packer | None:
        """On a disk a file costs no request: there every one is put alone."""
        storage = open_writable(self.spec.store, may_show=self._lease.check)
        if not isinstance(storage, ObjectStorage):
            return None
        return Packer(
            storage, self.spec.attempt_id, self.incarnation, self._pool,
            tasks=lambda: [task.machine.name for task in self._tasks], later=self._call_later,
        )  # fmt: skip

    def _work(self) -> bool:
        """One item of every task that can go on."""
        busy = False
        # If this worker is declared failed, what its sources read now is read again by the one that replaces it.
        reads = self._reading and not self._throttled and self._lease.unanswered <= self._pause_after
        for task in self._tasks:
            if self._killed:
                return False
            if task.repeats:
                if self._peers.has_room(task.machine.name):
                    busy |= self._repeating.step(task)
                continue
            if task.source is not None and not reads:
                continue
            if self._peers.has_room(task.machine.name):
                busy |= task.step()
        self._peers.read_where_there_is_room()
        return busy

    # -- control ------------------------------------------------------------------------------------------

    def _on_control(self, kind: Frame, number: int, payload: memoryview) -> None:
        if kind is not Frame.CONTROL:
            raise ProtocolError(f"unexpected frame {kind.name} from the driver, expected {Frame.CONTROL.name}")
        match decode_to_worker(payload):
            case Start() as start:
                self._start(start)
            case StopTasks() as stop:
                self._stop(stop)
            case Go():
                self._repeating.begin(self._attempt)
                self._peers.expect_all()
                self._reading = self.spec.read_sources
            case EpochTriggered(epoch):
                for task in self._tasks:
                    task.trigger(epoch)
            case EpochCompleted(epoch):
                if self._peers.ledger is not None:
                    self._peers.ledger.complete(epoch)
                for task in self._tasks:
                    task.complete(epoch)
                self._forget(epoch)
            case EpochAborted(epoch):
                lags = [task.lag(epoch) for task in self._tasks if not task.repeats]
                self._tell(Lagging(self.number, epoch, tuple(lag for lag in lags if lag is not None)))
                for task in self._tasks:
                    task.abort(epoch)
                self._forget(epoch)
            case Throttle(on):
                self._throttled = on
            case Leave():
                self._leave = True
            case message:
                assert_never(message)

    def _forget(self, epoch: int) -> None:
        if self._packer is not None:
            self._packer.forget(epoch)

    def _coordinator_gone(self) -> None:
        self._leave = True

    def _start(self, start: Start) -> None:
        """Make the tasks that (re)start here, and dial whom they send to."""
        spec, ledger = self.spec, self._peers.ledger
        self._attempt = start.attempt
        subtasks = {operator: Ranges.parse(text) for operator, text in start.subtasks.items()}
        places: dict[TaskId, Place] = {}
        if start.again is not None and ledger is not None:
            ledger.merge(start.again.schedules)
            places = {task: Place(line, position) for task, line, position in start.again.places}
        tasks = build_tasks(
            spec,
            self._pool,
            epoch=start.epoch,
            # Epochs that were given up since are given up again where they were.
            first_epoch=start.first_epoch if start.again is None else start.epoch + 1,
            mine=lambda operator, index: index in subtasks.get(operator, EMPTY),
            send=self._peers.send,
            acked=self._acked,
            ended=lambda task: self._tell(SourceFinished(task, self._attempt)),
            caught_up=lambda channel: self._tell(Replayed(channel, self._attempt)),
            later=self._call_later,
            make=self._trace.maker(start.attempt, places) if self._trace is not None else Task,
            steps=lambda task: self._steps_of(task, places.get(task), start.attempt),
            # Where all tasks last started, and where one went back, its schedule begins with its senders' counters.
            again=lambda task: task in places and places[task].position > 0,
            may_show=self._lease.check,
            memory=self._memory,
            packer=self._packer,
            sink_steps=self._steps,
        )
        self._peers.add(start.attempt, tasks, start.epoch)
        # Receivers before senders, as they are made: what one puts out then finds room.
        order = {operator.id: -i for i, operator in enumerate(spec.topology.operators)}
        self._tasks = sorted([*self._tasks, *tasks], key=lambda task: order[task.machine.name.operator])
        self._repeating.begin(start.attempt)
        if start.again is not None:
            for task in tasks:
                self._begin_again(task, start, start.again)
            for task in tasks:
                if not task.repeats:
                    self._repeating.ended(task)
        # Now that the inboxes which peers ask for are there, and before dialling: peers dial at the same time.
        self._peers.open()
        if self._pulse is not None:
            higher = {number for number in self._neighbours() if number > self.number}  # one of two beats, both hear it
            self._pulse.watch({number: start.addresses[number] for number in higher})
        try:
            for task in tasks:
                self._peers.dial_receivers(task, start.epoch, start.addresses)
            if start.again is not None:
                for channel in self._channels_to(_among(start.again.restarting)):
                    self._peers.send_kept(channel, start.epoch, start.addresses)
            self._peers.greet()
        except Superseded:
            return
        except OSError as error:
            # A peer that dies while it is dialled: who that is, and what restarts now, the coordinator says soon.
            self._peers.lost(f"could not connect to a peer: {error.strerror or error}")
            return
        records = sum(task.records_read for task in self._tasks)
        restored = sum(task.records_read for task in tasks)
        self._flush_trace()
        self._tell(Ready(self.number, start.attempt, records, restored))

    def _steps_of(self, task: TaskId, place: Place | None, line: int) -> Steps | None:
        ledger = self._peers.ledger
        if ledger is None:
            return None
        return ledger.begin(task, line) if place is None else ledger.resume(task, place)

    def _begin_again(self, task: RunningTask, start: Start, again: Again) -> None:
        """After the steps that a task takes again it hears what others have heard."""
        restarts = _among(again.restarting)
        survivors = frozenset(channel for channel in task.machine.outputs if not restarts(channel.receiver))
        task.forget_senders(start.attempt, start.first_epoch, {})
        self._repeating.add(task, survivors)

    def _neighbours(self) -> set[int]:
        """The workers that tasks of this one send to or hear from."""
        senders = {channel.sender for task in self._tasks for channel in task.inboxes}
        receivers = {channel.receiver for task in self._tasks for channel in task.machine.outputs}
        return {worker_of(task.subtask, self.spec.workers) for task in senders | receivers}

    def _channels_to(self, restarts: Callable[[TaskId], bool]) -> list[ChannelId]:
        """Those on which tasks that went on send to tasks that restart."""
        return [
            channel
            for task in self._tasks
            if not restarts(task.machine.name)
            for channel in task.machine.outputs
            if restarts(channel.receiver)
        ]

    def _stop(self, stop: StopTasks) -> None:
        """In one step: what restarts is gone, and what goes on knows it."""
        self._attempt = stop.attempt
        self._peers.stop(stop.attempt)
        self._repeating.stop(stop.attempt)
        restarts = _among(stop.subtasks)
        dropped = [task for task in self._tasks if restarts(task.machine.name)]
        self._tasks = [task for task in self._tasks if task not in dropped]
        for task in dropped:
            self._drop(task)
        if not stop.again:
            base = self._restored(stop.epoch)
            self._peers.ledger = self._new_ledger()
        for task in self._tasks:
            again = [channel for channel in task.inboxes if restarts(channel.sender)]
            for channel in again:
                self._peers.await_again(channel)
            # What comes again of those that take their steps again is dropped before it comes to the task.
            replayed = {} if stop.again else {channel: base.sent(channel) for channel in again}
            task.forget_senders(stop.attempt, stop.floor, replayed)
        records = sum(task.records_read for task in dropped)
        stopped = TasksStopped(self.number, stop.attempt, records)
        if stop.again and self._peers.ledger is not None:
            stopped = self._end_sending(stopped, stop, self._peers.ledger)
        self._tell(stopped)

    def _restored(self, epoch: int) -> Restored:
        storage = open_writable(self.spec.store)
        parts = NativeStore(storage).parts(epoch) if epoch else ()
        return Restored(storage, self.spec.topology, parts)

    def _end_sending(self, stopped: TasksStopped, stop: StopTasks, ledger: Ledger) -> TasksStopped:
        """What goes to those that restart is only kept from now on. Returns the answer with what they need of here."""
        channels = self._channels_to(_among(stop.subtasks))
        for channel in channels:
            self._peers.hold_back(channel)
        return msgspec.structs.replace(
            stopped,
            schedules=ledger.report(),
            kept=ledger.kept_bytes,
            holes=tuple(ledger.holes(stop.epoch, channels)),
        )

    def _drop(self, task: RunningTask) -> None:
        """A task as if its process had been killed: its queues, connections and open files go."""
        task.close()
        self._peers.drop(task)
        self._repeating.drop(task.machine.name)

    def _call_later(self, function: Callable[[], None]) -> None:
        self._later.put(function)
        self._wakeup()

    def _acked(self, part: PartFacts, counters: Counters, base: int, place: Place | None, behind: bool) -> None:
        logged = sum(log.records for log in part.logs)
        sent, received = tuple(counters.sent.items()), tuple(counters.received.items())
        self._flush_trace()
        facts = part if self._packer is not None else None
        ack = TaskAcked(
            part.task, part.epoch, self._attempt, base, part.finished, logged, sent, received, place, facts, behind
        )
        self._tell(ack)

    def _send_trace(self, lines: bytes) -> None:
        self._control.send(Frame.TRACE, 0, lines)

    def _flush_trace(self) -> None:
        if self._trace is not None:
            self._trace.flush()

    def _report_status(self) -> None:
        now = time.monotonic()
        self._peers.keep_time(now)
        if self._packer is not None:
            self._packer.keep_time(now)
        if now - self._status_at >= 0.5:
            self._repeating.look_for_stall(self._tasks, now)
            self._status_at = now
            self._flush_trace()
            self._tell(self._status())

    def _status(self) -> Status:
        now = time.monotonic()
        sources = [
            Wait(task.machine.name.operator, Doing.READ, seconds=now - held_up[0], reason=held_up[1])
            for task in self._tasks
            if task.source is not None and (held_up := task.source.held_up) is not None
        ]
        waits = *sources, *self._steps.waits(over=SHORT_WAIT_SECONDS)
        records = sum(task.records_read for task in self._tasks)
        return Status(self.number, records, self._peers.circulating, waits)

    def _close(self) -> None:
        self._pool.shutdown(wait=not self._killed, cancel_futures=True)
        for task in self._tasks:
            task.close()
        if self._killed:
            self._control.close()
        else:
            self._flush_trace()
            self._control.finish(5.0)
        self._peers.close()
        self._door.close()
        self._close_idle()

    def _close_idle(self) -> None:
        """What a worker has before it has met anybody."""
        self._pool.shutdown(wait=not self._killed, cancel_futures=True)
        if self._pulse is not None:
            self._pulse.stop()
        self._selector.close()
        self._wakeup.close()


def _among(subtasks: Mapping[str, str]) -> Callable[[TaskId], bool]:
    """Whether a task is one of these, which are ranges by operator."""
    ranges = {operator: Ranges.parse(text) for operator, text in subtasks.items()}
    return lambda task: task.subtask in ranges.get(task.operator, EMPTY)


def _failure(number: int, error: Exception, *, machine: str = "", driver: str = "") -> Failed:
    """Describe what ended a worker. machine, driver: the names of its host and of the driver's."""
    if isinstance(error, PeersLost):
        return Failed(number, str(error), None, EngineStopped.exit_code, lost=True)
    if isinstance(error, ProtocolError):
        # What a peer sent does not follow from what it had sent. Nothing of it counts: a worker in the place of this
        # one starts from the newest complete epoch.
        detail = "".join(traceback.format_exception(error))
        return Failed(number, f"worker {number}: {error}", None, EngineStopped.exit_code, detail, lost=True)
    if isinstance(error, JobFailed):
        return Failed(number, error.message, error.hint, error.exit_code, raised_at=error.raised_at)
    if isinstance(error, EngineError):
        return Failed(number, error.message, error.hint, error.exit_code)
    if isinstance(error, Unreachable):
        # A replacement on another host may reach the server. On the host of the driver, there is no point in one.
        message = f"worker {number} on {machine}: {error}"
        return Failed(number, message, error.hint, EngineStopped.exit_code, lost=machine != driver)
    if isinstance(error, FormatError):
        return Failed(number, str(error), error.hint, 3)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        message = f"worker {number}: {where}{error.strerror or error}"
        return Failed(number, message, MEND if where else None, EngineStopped.exit_code)
    reason = (str(error).splitlines() or [""])[0]
    detail = "".join(traceback.format_exception(error))
    return Failed(number, f"worker {number}: unexpected {type(error).__name__}: {reason}", BUG, 1, detail)

