"""What workers and the coordinator tell each other: the control messages of a job, one JSON object each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeVar

import msgspec

from abscli.engine.channels.line import KeyPair
from abscli.engine.errors import RaisedAt
from abscli.engine.waits import Wait
from abscli.planner.placement import worker_of
from abscli.protocol.events import ProtocolError
from formats.ids import ChannelId, TaskId
from formats.job.model import Topology
from formats.native.facts import PartFacts
from formats.view import Position

T = TypeVar("T")

Number = Annotated[int, msgspec.Meta(ge=0)]
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Pid = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
"""The driver kills this process: to `kill`, 0 and negative numbers mean groups of processes."""

ExitCode = Annotated[int, msgspec.Meta(ge=1, le=255)]


class Patience(msgspec.Struct, frozen=True):
    """Timeouts of heartbeats, in seconds.

    beat: interval between two heartbeats.
    pause: until sources stop reading records that a recovery would make them read again.
    stall: until `abs` logs a warning.
    lease: until a worker exits because its coordinator does not answer.
    lost: until the coordinator declares a worker failed. The lease of that worker has expired by then.
    """

    beat: float
    pause: float
    stall: float
    lease: float
    lost: float

    @classmethod
    def of(cls, lost: float) -> Patience:
        """Derive all times from the heartbeat timeout."""
        beat = min(1.0, lost / 20)
        # The lease counts from the time at which the worker sent its last answered heartbeat. The coordinator counts
        # from the time at which it received one, which is later. So no worker comes back between the two times: the
        # worker only needs time to exit, and a longer gap would delay the recovery.
        return cls(beat=beat, pause=min(2.0, lost / 5), stall=lost / 3, lease=lost - beat, lost=lost)


class JobSpec(msgspec.Struct, frozen=True):
    """All that a worker needs to know but what it is to start from, which it is told.

    root: where user functions are.
    address: of the coordinator.
    driver: name of its host.
    pulse: of its signs of life; None where a worker cannot hang without the coordinator.
    trace: whether it is told what the machines see and do.
    keys: of the attempt, for its connections; None where they are not encrypted.
    hadoop: what a client of S3 goes by, of Spark's configuration.
    backup_buffer: bytes of frames that it keeps so that any other worker can be replaced alone; None: it keeps none.
    state_memory: bytes of keyed state that it has in memory, more is on local disk; None: all of it.
    sinks_in: where sinks write, where that is not what the topology says. whole: whether every epoch has files of its
    own for all of the state.
    pace: lines that a source reads for each epoch; None: as it comes.
    begin: by source operator, where it begins in splits that no epoch has a position in; none of those that find it
    themselves.
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
    backup_buffer: int | None = None
    state_memory: int | None = None
    driver: str = ""
    keys: KeyPair | None = None
    hadoop: dict[str, str] = {}
    sinks_in: str | None = None
    whole: bool = False
    pace: int | None = None
    begin: dict[str, tuple[Position, ...]] = {}


class Hello(msgspec.Struct, frozen=True, tag=True):
    """A worker is there: its number, process and where it listens.

    host: the address under which the coordinator sees it, and peers reach it.
    launch: how often a worker of this number had been started before it.
    machine: name of its host.
    incarnation: of this process alone, where another one may have been launched as the same.
    """

    worker: Number
    host: str
    port: Port
    pid: Pid
    launch: Number
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
    """A task's part is durable.

    base: the complete epoch whose files the part builds on: what the task copies later builds on that one or a
    newer one.
    sent, received: as pairs, since a key of an object in JSON is a text.
    place: line and position of the copy in the task's schedule, where that is noted.
    part: the facts, where they lie in no file of their own but in a pack.
    behind: the task has heard of a later watermark since.
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
    part: PartFacts | None = None
    behind: bool = False


class SourceFinished(msgspec.Struct, frozen=True, tag=True):
    """A source task has reached the end of its input."""

    task: TaskId
    attempt: int


class Status(msgspec.Struct, frozen=True, tag=True):
    """Twice a second, and last.

    records: rows that sources of this worker have read since the job began.
    circulating: bytes on back edges.
    waits: of its sources and sinks.
    """

    worker: int
    records: int
    circulating: int
    waits: tuple[Wait, ...] = ()


class Lag(msgspec.Struct, frozen=True):
    """What a task was doing for an epoch when that was given up.

    doing: `begin`, `align`, `emit`, `log` or `write`.
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
    code: ExitCode
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


def _decoded(decode: Callable[[memoryview], T], payload: memoryview) -> T:
    try:
        return decode(payload)
    # ValueError: bytes that are not UTF-8, and ids that are not ids. RecursionError: JSON that is nested too deeply.
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ProtocolError(f"cannot parse the message: {error}") from error


def decode_greeting(payload: memoryview) -> Greeting:
    """Parse the first message of a new connection; ProtocolError if it is invalid."""
    message: Greeting = _decoded(_greetings.decode, payload)
    return message


def decode_to_coordinator(payload: memoryview) -> ToCoordinator:
    """Parse a message of a worker; ProtocolError if it is invalid."""
    message: ToCoordinator = _decoded(_to_coordinator.decode, payload)
    return message


def decode_unheard(payload: memoryview) -> Unheard:
    """Parse a message on the heartbeat connection of a worker; ProtocolError if it is invalid."""
    return _decoded(_unheard.decode, payload)


def decode_to_worker(payload: memoryview) -> ToWorker:
    """Parse a message of the coordinator; ProtocolError if it is invalid."""
    message: ToWorker = _decoded(_to_worker.decode, payload)
    return message


def check_sender(message: ToCoordinator, worker: int, workers: int) -> None:
    """Check that a message speaks only for the worker on whose connection it arrived; ProtocolError otherwise.

    workers: how many there are: a task belongs to one of them.
    """
    kind = type(message).__name__
    match message:
        case TaskAcked(task, epoch, part=part):
            if part is not None and (part.task, part.epoch) != (task, epoch):
                raise ProtocolError(f"{kind}: expected a part of {task}, epoch {epoch}, got a part of {part.task}, "
                    f"epoch {part.epoch}")
            named = worker_of(task.subtask, workers)
        case SourceFinished(task):
            named = worker_of(task.subtask, workers)
        case Replayed():
            return
        case _:
            named = message.worker
    if named != worker:
        raise ProtocolError(f"unexpected {kind} of worker {named} on the connection of worker {worker}")
