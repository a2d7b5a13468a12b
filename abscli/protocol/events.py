"""What a task and the coordinator are told (events) and what they answer (actions): frozen values, no behaviour.

A batch is opaque to the protocol.

What becomes of an epoch has one stem on its way, and an ending that says where it is:

    action of the coordinator     Trigger          Complete         Abort
    control message (engine)      EpochTriggered   EpochCompleted   EpochAborted
    event of a task               Triggered        Completed        Aborted
    fact in the store             TriggerFacts     ManifestFacts    AbortFacts
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from formats.ids import ChannelId, TaskId


class ProtocolError(Exception):
    """A driver broke the protocol's rules: this is a bug, never a user's fault."""


# -- events of a task -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RecordsArrived:
    """A batch of `count` records is next on an input channel that is not blocked. first: the number of its first
    record, from 1 since the generation began."""

    channel: ChannelId
    first: int
    count: int
    batch: object = None

    def __post_init__(self) -> None:
        if self.count < 1 or self.first < 1:
            raise ProtocolError(f"{self.channel}: invalid batch of {self.count} records that begins with record "
                f"{self.first}")


@dataclass(frozen=True, slots=True)
class BarrierArrived:
    """Barrier `epoch` is next on an input channel that is not blocked. watermark: as of `Forward`."""

    channel: ChannelId
    epoch: int
    watermark: int | None = None


@dataclass(frozen=True, slots=True)
class Triggered:
    """The coordinator asks a source to begin an epoch; under `unaligned` it may be any task."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Watermarked:
    """The watermark of the copy that comes next, where it does not follow from barriers: at a source, from what it has
    read; where steps are taken again, from what it was."""

    watermark: int


@dataclass(frozen=True, slots=True)
class Sent:
    """The operator has put `count` records on an output channel."""

    channel: ChannelId
    count: int


@dataclass(frozen=True, slots=True)
class EndOfInput:
    """A source has nothing more to read; it stays and forwards barriers."""


@dataclass(frozen=True, slots=True)
class Persisted:
    """What `Copy` and `Persist` of the epoch asked for is durable."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Completed:
    """The manifest of the epoch is durable."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Aborted:
    """The epoch has been given up."""

    epoch: int


@dataclass(frozen=True, slots=True)
class PeersRestarted:
    """Some senders of this task, which goes on, restart from the newest complete epoch.

    attempt: the one that begins; floor: no barrier below it counts any more; replayed: their channels to this task,
    with the number of records that each sender had sent by that epoch. The driver empties these channels, but for
    records up to that number, which the sender does not send again: a restored log that has not been read yet.
    """

    attempt: int
    floor: int
    replayed: Mapping[ChannelId, int]


TaskEvent = (
    RecordsArrived
    | BarrierArrived
    | Triggered
    | Watermarked
    | Sent
    | EndOfInput
    | Persisted
    | Completed
    | Aborted
    | PeersRestarted
)


# -- actions of a task, to be carried out in order ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Process:
    """Run the operator on a batch of which the first `skip` records are known already; `count` are new."""

    channel: ChannelId
    count: int
    batch: object = None
    skip: int = 0


@dataclass(frozen=True, slots=True)
class Block:
    """Deliver nothing more of this channel until `Unblock`; a held back edge is buffered without bound."""

    channel: ChannelId


@dataclass(frozen=True, slots=True)
class Unblock:
    """Deliver the channel again."""

    channel: ChannelId


@dataclass(frozen=True, slots=True)
class Flush:
    """Emit what the operator owes once an epoch, and what the watermark closes, before its barrier. watermark: from
    now on the task's; None: nothing is known of event time."""

    epoch: int
    watermark: int | None = None


@dataclass(frozen=True, slots=True)
class Copy:
    """Take the task's state and counters by reference and start writing in the background."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Forward:
    """Put barrier `epoch` on every output channel. watermark: no record behind it has an earlier event time, but
    for late ones (`formats.watermark`); None: nothing is known of that."""

    epoch: int
    watermark: int | None = None


@dataclass(frozen=True, slots=True)
class Log:
    """Append the batch, without its first `skip` records, to the channel's log of each of these epochs, before it is
    processed."""

    channel: ChannelId
    epochs: tuple[int, ...]
    count: int
    batch: object = None
    skip: int = 0


@dataclass(frozen=True, slots=True)
class Persist:
    """The part is whole: write its logs, and answer `Persisted` when these and the copy are durable."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Ack:
    """Tell the coordinator that the part is durable."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Commit:
    """Make visible what the epoch staged; forget which changes it contains."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Discard:
    """Drop the epoch's copy and logs; the changes in it count as unwritten again."""

    epoch: int


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """Tell the coordinator that a restarted sender has sent again all that this task had received of the channel."""

    channel: ChannelId


TaskAction = Process | Block | Unblock | Flush | Copy | Forward | Log | Persist | Ack | Commit | Discard | CaughtUp


# -- events of the coordinator --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TriggerDue:
    """The interval has passed."""


@dataclass(frozen=True, slots=True)
class Acked:
    """A task's part is durable. sent, received: counters by channel at the cut; logged: records in its logs; behind: it
    has heard of a later watermark than it had at the cut."""

    task: TaskId
    epoch: int
    attempt: int
    finished: bool = False
    logged: int = 0
    sent: Mapping[ChannelId, int] = field(default_factory=dict)
    received: Mapping[ChannelId, int] = field(default_factory=dict)
    behind: bool = False


@dataclass(frozen=True, slots=True)
class Stored:
    """The manifest of the epoch is durable."""

    epoch: int


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The epoch has been open for too long."""

    epoch: int


@dataclass(frozen=True, slots=True)
class SourceEnded:
    """A source task has reached the end of its input."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class StopRequested:
    """Take one more epoch and stop."""


@dataclass(frozen=True, slots=True)
class TasksLost:
    """These tasks restart (the planner's recovery set, never less than the failed ones), the rest goes on.

    replayed: the channels from them to tasks that go on.
    """

    tasks: frozenset[TaskId]
    replayed: frozenset[ChannelId] = frozenset()


@dataclass(frozen=True, slots=True)
class Stopped:
    """A task that goes on has dropped its open epochs for this attempt."""

    task: TaskId
    attempt: int


@dataclass(frozen=True, slots=True)
class ChannelCaughtUp:
    """The receiver of a replayed channel has seen again all that it had received."""

    channel: ChannelId
    attempt: int


CoordinatorEvent = (
    TriggerDue | Acked | Stored | TimedOut | SourceEnded | StopRequested | TasksLost | Stopped | ChannelCaughtUp
)


# -- actions of the coordinator -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Trigger:
    """Record that the epoch has begun, then tell every source; under `unaligned` every task, which makes an epoch as
    long as the fullest channel and not as all on the way."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Store:
    """Write the manifest; answer `Stored`. idle: the cut proves that nothing is left to do."""

    epoch: int
    idle: bool


@dataclass(frozen=True, slots=True)
class Complete:
    """Tell every task that the epoch is complete."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Abort:
    """Record that the epoch is given up, and tell every task."""

    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class Finish:
    """Tell every task to leave."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop these tasks where they still run, so that nothing that they send counts from now on; tell every other that
    they restart from `epoch` (`PeersRestarted`), which it answers with `Stopped`."""

    attempt: int
    tasks: frozenset[TaskId]
    floor: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Restart:
    """Start these tasks from the epoch, under this attempt."""

    attempt: int
    tasks: frozenset[TaskId]
    epoch: int


CoordinatorAction = Trigger | Store | Complete | Abort | Finish | Stop | Restart
