"""Frames on TCP connections, without blocking: between workers, and between a worker and the coordinator.

A frame is kind (1 byte), number (8 bytes, little-endian), length (4 bytes), payload. Control frames carry one JSON
message. A data channel sends its Arrow schema before the first batch and whenever that changes.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
from collections import deque
from collections.abc import Callable
from enum import IntEnum

import msgspec

from abscli.engine.errors import RaisedAt
from formats.ids import ChannelId, TaskId
from formats.job.model import Topology

HEADER = struct.Struct("<BQI")
MAX_FRAME = 1 << 31
READ_AHEAD = 16


class Frame(IntEnum):
    """Kinds of frames. number: of the first record (RECORDS), of the epoch (BARRIER), otherwise 0. TRACE: lines for
    the coordinator's trace file.

    Where lost tasks take their steps again, frames of records and of barriers end with what their sender's worker
    knows of schedules, and how long that is: 4 bytes, little-endian.
    """

    CONTROL = 0
    SCHEMA = 1
    RECORDS = 2
    BARRIER = 3
    TRACE = 4


class Patience(msgspec.Struct, frozen=True):
    """How long silence is borne, in seconds.

    beat: from one sign of life to the next.
    stall: until it is said that there is none.
    lease: until a worker that hears nothing of its coordinator leaves.
    lost: until the coordinator counts a worker as lost: by then its lease has run out.
    """

    beat: float
    stall: float
    lease: float
    lost: float

    @classmethod
    def of(cls, lost: float) -> Patience:
        """All of them in proportion to the last."""
        return cls(beat=min(1.0, lost / 5), stall=lost / 3, lease=lost * 2 / 3, lost=lost)


class JobSpec(msgspec.Struct, frozen=True):
    """All that a worker needs to know but what it is to start from, which it is told.

    root: where user functions are.
    address: of the coordinator.
    driver: name of its host.
    pulse: of its signs of life; None where a worker cannot hang without the coordinator.
    trace: whether it is told what the machines see and do.
    keep_frames: bytes of frames that it keeps so that any other worker can be replaced alone; None: it keeps none.
    """

    topology: Topology
    store: str
    directory: str
    root: str
    attempt: int
    attempt_id: str
    policy: str
    workers: int
    read_sources: bool
    token: bytes
    address: tuple[str, int]
    pulse: Patience | None = None
    trace: bool = False
    keep_frames: int | None = None
    driver: str = ""


class Hello(msgspec.Struct, frozen=True, tag=True):
    """A worker is there: its number, process and where it listens.

    host: the address under which the coordinator sees it, and peers reach it.
    launch: how often a worker of this number had been started before it.
    machine: name of its host.
    incarnation: of this process alone, where another one may have been launched as the same.
    """

    worker: int
    host: str
    port: int
    pid: int
    launch: int
    machine: str
    incarnation: str


class Alive(msgspec.Struct, frozen=True, tag=True):
    """What a worker's signs of life begin with: empty frames on a connection of their own, from a thread of its own."""

    worker: int
    launch: int
    incarnation: str


class PeerAlive(msgspec.Struct, frozen=True, tag=True):
    """What the same to another worker begins with."""

    worker: int


class Unheard(msgspec.Struct, frozen=True, tag=True):
    """A worker has heard nothing of a peer for so many seconds; said on the connection of its signs of life.

    address: at which the peer is dialled.
    """

    worker: Alive
    peer: int
    address: tuple[str, int]
    seconds: float


class Again(msgspec.Struct, frozen=True):
    """Lost tasks go on as they were, and everybody else goes on.

    restarting: of all workers, as ranges by operator.
    places: line and position of the copies of those tasks that take their steps again in the worker that is told; who
    restarts there without a place goes back.
    schedules: what survivors know.
    """

    restarting: dict[str, str]
    places: tuple[tuple[TaskId, int, int], ...]
    schedules: bytes


class Start(msgspec.Struct, frozen=True, tag=True):
    """All workers are there: make these tasks, from this epoch, and dial.

    attempt: the number that tells what counts from what is late: raised whenever tasks restart.
    first_epoch: barriers below it do not count for them.
    subtasks: those of this worker, as ranges by operator; none where all of its tasks go on.
    addresses: by worker number.
    again: how they take again the steps that they took since that epoch; None: they take none again.
    """

    attempt: int
    epoch: int
    first_epoch: int
    subtasks: dict[str, str]
    addresses: tuple[tuple[str, int], ...]
    again: Again | None = None


class Ready(msgspec.Struct, frozen=True, tag=True):
    """State is restored and every channel dialled.

    records: that the sources of this worker have read since the job began.
    restored: of these, by those that have just been started.
    """

    worker: int
    attempt: int
    records: int
    restored: int


class Go(msgspec.Struct, frozen=True, tag=True):
    """Everybody is ready: sources may read."""


class StopTasks(msgspec.Struct, frozen=True, tag=True):
    """Tasks restart from an epoch: drop those that you hold, and tell the others (rule R10).

    subtasks: of all workers, as ranges by operator.
    floor: no barrier below it counts any more.
    again: whether they take their steps again, so that nobody else hears from them what they have not seen.
    """

    attempt: int
    subtasks: dict[str, str]
    floor: int
    epoch: int
    again: bool = False


class TasksStopped(msgspec.Struct, frozen=True, tag=True):
    """What restarts is gone from this worker, and what goes on has heard of it.

    dropped: records that the sources among what is gone had read since the job began.
    schedules: all that is known here of them, where steps are taken again.
    kept: bytes of frames that are kept here.
    holes: channels to what restarts of which not all frames are kept that it needs.
    """

    worker: int
    attempt: int
    dropped: int
    schedules: bytes = b""
    kept: int = 0
    holes: tuple[ChannelId, ...] = ()


class Repeated(msgspec.Struct, frozen=True, tag=True):
    """All tasks of a worker that took steps again have taken them."""

    worker: int


class Differed(msgspec.Struct, frozen=True, tag=True):
    """A task that took its steps again did something else than before."""

    worker: int
    attempt: int
    message: str


class LetGo(msgspec.Struct, frozen=True, tag=True):
    """A worker keeps no frames before the next barrier: they were more than it may keep."""

    worker: int


class Replayed(msgspec.Struct, frozen=True, tag=True):
    """A sender that has restarted has sent again all that this channel's receiver had taken."""

    channel: ChannelId
    attempt: int


class EpochTriggered(msgspec.Struct, frozen=True, tag=True):
    """An epoch begins: at the tasks where a trigger begins one."""

    epoch: int


class EpochCompleted(msgspec.Struct, frozen=True, tag=True):
    """The manifest of an epoch is durable."""

    epoch: int


class EpochAborted(msgspec.Struct, frozen=True, tag=True):
    """An epoch has been given up."""

    epoch: int


class TaskAcked(msgspec.Struct, frozen=True, tag=True):
    """A task's part is durable; the facts themselves lie in the store.

    base: the complete epoch whose files the part builds on: what the task copies later builds on that one or a
    newer one.
    sent, received: as pairs, since a key of an object in JSON is a text.
    place: line and position of the copy in the task's schedule, where that is noted.
    """

    task: TaskId
    epoch: int
    attempt: int
    base: int
    finished: bool
    logged: int
    sent: tuple[tuple[ChannelId, int], ...]
    received: tuple[tuple[ChannelId, int], ...]
    place: tuple[int, int] | None = None


class SourceFinished(msgspec.Struct, frozen=True, tag=True):
    """A source task has reached the end of its input."""

    task: TaskId
    attempt: int


class Status(msgspec.Struct, frozen=True, tag=True):
    """Twice a second, and last.

    records: rows that sources of this worker have read since the job began.
    circulating: bytes on back edges.
    """

    worker: int
    records: int
    circulating: int


class Lag(msgspec.Struct, frozen=True):
    """What a task was doing for an epoch when that was given up.

    doing: `begin`, `align`, `log` or `write`.
    awaits: the channels whose barrier it needed.
    queued: bytes before these in its queues.
    rows: of its state.
    seconds: since it has been doing that, 0 where unknown.
    """

    task: TaskId
    doing: str
    awaits: tuple[ChannelId, ...] = ()
    queued: int = 0
    rows: int = 0
    seconds: float = 0.0


class Lagging(msgspec.Struct, frozen=True, tag=True):
    """A worker's tasks that had not acked an epoch when it heard that it is given up."""

    worker: int
    epoch: int
    tasks: tuple[Lag, ...]


class Throttle(msgspec.Struct, frozen=True, tag=True):
    """Sources pause while too much circulates. Barriers go on."""

    on: bool


class Failed(msgspec.Struct, frozen=True, tag=True):
    """A worker cannot go on.

    code: as in the table of exit codes.
    detail: a traceback, for a bug.
    lost: whether it only lost its peers, so that another worker in its place may go on.
    raised_at: the record at which a user's function raised.
    """

    worker: int
    message: str
    hint: str | None
    code: int
    detail: str | None = None
    lost: bool = False
    raised_at: RaisedAt | None = None


class Leave(msgspec.Struct, frozen=True, tag=True):
    """Close everything and return."""


class ChannelHello(msgspec.Struct, frozen=True, tag=True):
    """What a data connection brings."""

    channel: ChannelId
    attempt: int


Greeting = Hello | Alive | PeerAlive | ChannelHello
ToCoordinator = (
    Ready | TasksStopped | Replayed | TaskAcked | SourceFinished | Status | Lagging | Failed | Repeated | Differed
    | LetGo
)
ToWorker = Start | Go | StopTasks | EpochTriggered | EpochCompleted | EpochAborted | Throttle | Leave

_greetings = msgspec.json.Decoder(Greeting)
_to_coordinator = msgspec.json.Decoder(ToCoordinator)
_to_worker = msgspec.json.Decoder(ToWorker)
_unheard = msgspec.json.Decoder(Unheard)


def decode_greeting(payload: memoryview) -> Greeting:
    """What a new connection begins with; msgspec.MsgspecError if it is nothing of the kind."""
    greeting: Greeting = _greetings.decode(payload)
    return greeting


def decode_to_coordinator(payload: memoryview) -> ToCoordinator:
    """A worker's message; msgspec.MsgspecError if it is none."""
    message: ToCoordinator = _to_coordinator.decode(payload)
    return message


def decode_unheard(payload: memoryview) -> Unheard:
    """What comes between a worker's signs of life; msgspec.MsgspecError if it is nothing of the kind."""
    message: Unheard = _unheard.decode(payload)
    return message


def decode_to_worker(payload: memoryview) -> ToWorker:
    """The coordinator's message; msgspec.MsgspecError if it is none."""
    message: ToWorker = _to_worker.decode(payload)
    return message


class Connection:
    """One non-blocking socket in a selector, whose other end has been greeted. on_frame(kind, number, payload) takes
    what comes, on_close its end.

    `pending` is how many bytes are still to be sent; `reading(False)` leaves what comes to TCP's flow control.
    """

    def __init__(
        self,
        sock: socket.socket,
        selector: selectors.BaseSelector,
        on_frame: Callable[[Frame, int, memoryview], None],
        on_close: Callable[[], None],
    ) -> None:
        sock.setblocking(False)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.pending = 0
        self.closed = False
        self._sock = sock
        self._selector = selector
        self._on_frame = on_frame
        self._on_close = on_close
        self._out: deque[memoryview] = deque()
        self._header = bytearray(HEADER.size)
        self._buffer = memoryview(self._header)
        self._got = 0
        self._frame: tuple[Frame, int] | None = None
        self._interest = selectors.EVENT_READ
        selector.register(sock, self._interest, self._ready)

    def send(self, kind: Frame, number: int, *payload: bytes | memoryview) -> None:
        """Queue a frame, and send what the socket takes now."""
        self.queue(kind, number, *payload)
        if not self.closed:
            self._write()

    def queue(self, kind: Frame, number: int, *payload: bytes | memoryview) -> None:
        """A frame that goes together with the one behind it."""
        if self.closed:
            return
        views = [memoryview(part).cast("B") for part in payload if len(part)]
        length = sum(map(len, views))
        self._out.append(memoryview(HEADER.pack(kind, number, length)))
        self._out += views
        self.pending += HEADER.size + length

    def send_message(self, message: msgspec.Struct) -> None:
        """Queue a control frame."""
        self.send(Frame.CONTROL, 0, msgspec.json.encode(message))

    def reading(self, on: bool) -> None:
        """Whether to take what comes."""
        self._want(selectors.EVENT_READ, on)

    def _want(self, event: int, on: bool) -> None:
        interest = self._interest | event if on else self._interest & ~event
        if interest == self._interest or self.closed:
            return
        if not self._interest:
            self._selector.register(self._sock, interest, self._ready)
        elif not interest:
            self._selector.unregister(self._sock)
        else:
            self._selector.modify(self._sock, interest, self._ready)
        self._interest = interest

    def _ready(self, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._write()
        if mask & selectors.EVENT_READ and not self.closed:
            self._read()

    def _write(self) -> None:
        try:
            while self._out:
                sent = self._sock.sendmsg([*self._out][:64] if len(self._out) > 1 else [self._out[0]])
                self.pending -= sent
                while sent:
                    head = self._out[0]
                    if sent < len(head):
                        self._out[0] = head[sent:]
                        break
                    sent -= len(head)
                    self._out.popleft()
        except BlockingIOError:
            pass
        except OSError:
            self._ended()
            return
        self._want(selectors.EVENT_WRITE, bool(self._out))

    def _read(self) -> None:
        """Read whole frames while they come, a few at most, so that other sockets get their turn."""
        for _ in range(READ_AHEAD):
            try:
                got = self._sock.recv_into(self._buffer[self._got :])
            except BlockingIOError:
                return
            except OSError:
                got = 0
            if got == 0:
                self._ended()
                return
            self._got += got
            if self._got < len(self._buffer):
                continue
            self._advance()
            # Whoever took the frame may have closed this, or want no more for now.
            if self.closed or not self._interest & selectors.EVENT_READ:
                return

    def _advance(self) -> None:
        if self._frame is None:
            kind, number, length = HEADER.unpack(self._header)
            if kind > Frame.TRACE or length > MAX_FRAME:
                self._ended()
                return
            self._frame = Frame(kind), number
            if length:
                # Memory of its own for each frame: the rows that are decoded from it go on pointing into it.
                self._buffer, self._got = memoryview(bytearray(length)), 0
                return
            payload = memoryview(b"")
        else:
            payload = self._buffer
        frame, self._frame = self._frame, None
        self._buffer, self._got = memoryview(self._header), 0
        self._on_frame(*frame, payload)

    def _ended(self) -> None:
        if not self.closed:
            self.close()
            self._on_close()

    def close(self) -> None:
        """Close the socket; what is pending is dropped."""
        if self.closed:
            return
        self.closed = True
        if self._interest:
            self._selector.unregister(self._sock)
        self._interest = 0
        self._sock.close()

    def hang_up(self) -> None:
        """End the connection for both sides at once; safe from another thread than the one that uses it."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def finish(self, seconds: float) -> None:
        """Send what is pending, blocking for at most so long, and close."""
        with contextlib.suppress(OSError):
            if self.closed:
                return
            self._sock.settimeout(seconds)
            for part in self._out:
                self._sock.sendall(part)
            self._out.clear()
            self._sock.shutdown(socket.SHUT_WR)
        self.close()


class Wakeup:
    """Lets another thread, or a signal handler, end a selector's wait."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._near, self._far = socket.socketpair()
        self._near.setblocking(False)
        self._far.setblocking(False)
        selector.register(self._near, selectors.EVENT_READ, self._drain)

    def __call__(self) -> None:
        """Wake the loop; never blocks."""
        with contextlib.suppress(OSError):
            self._far.send(b"\0")

    def _drain(self, mask: int) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._near.recv(4096):
                pass

    def close(self) -> None:
        """Close both ends, after the selector is closed."""
        self._near.close()
        self._far.close()
