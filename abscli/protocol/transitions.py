"""The machines' transitions as tables: what an epoch goes through at one task and at the coordinator, what the
coordinator itself goes through when tasks are lost, and what a committer goes through with a sink's target.

The machines in `task`, `coordinator` and `committer` are what runs. A test walks them through the simulator and the
golden scripts, and holds what it sees against these rows, both ways; `README.md` beside this file is drawn from them.
What no row names is an error of the driver (`ProtocolError`), or cannot come, since a task hears the coordinator in
order: no trigger of an epoch after its abort.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from abscli.protocol.committer import (
    AttemptBegun,
    CommitterStage,
    DiscardAbandoned,
    DiscardUnnamed,
    ManifestWritten,
    Publish,
    Refuse,
    RowsPublished,
    Take,
    TargetAsked,
    TargetTaken,
    VerifyCommit,
)
from abscli.protocol.coordinator import EpochStage, Phase
from abscli.protocol.events import (
    Abort,
    Aborted,
    Ack,
    Acked,
    BarrierArrived,
    Block,
    ChannelCaughtUp,
    Commit,
    Complete,
    Completed,
    Copy,
    Discard,
    Finish,
    Flush,
    Forward,
    Log,
    PeersRestarted,
    Persist,
    Persisted,
    RecordsArrived,
    Restart,
    SourceEnded,
    Stop,
    Stopped,
    StopRequested,
    Store,
    Stored,
    TasksLost,
    TimedOut,
    Trigger,
    TriggerDue,
    Triggered,
    Unblock,
)
from abscli.protocol.task import PartStage


class Whose(StrEnum):
    """Which epoch an event names, seen from the one whose stage changes."""

    OWN = "own"
    EARLIER = "earlier"
    LATER = "later"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Transition:
    """One row.

    before, after: stages.
    events: each of them takes this way.
    actions: what is answered, in order; several of a kind in a row are one.
    rules: by number, as the docstrings of `task` and `coordinator` have them.
    when: what tells this row from others with these events.
    whose: the epoch that the events name.
    may: actions that can stand among the others, by the policy and the channels.
    """

    before: StrEnum
    events: tuple[type, ...]
    after: StrEnum
    actions: tuple[type, ...]
    rules: str
    when: str = ""
    whose: Whose = Whose.OWN
    may: tuple[type, ...] = ()


UNSEEN, ALIGNING, LOGGING, WRITING, SETTLED, GIVEN_UP = PartStage
CUT = (Flush, Copy, Forward)
GATES = (Block, Unblock)
LAST_OPEN = "all that the copy waits for are there; a logged input has not delivered its own"
LAST = "all that the copy waits for are there, and every logged input has delivered its own"

PART = (
    Transition(UNSEEN, (Triggered,), WRITING, (*CUT, Persist), "R2 R3", "at a source"),
    Transition(UNSEEN, (Triggered,), LOGGING, CUT, "R2 R3", "unaligned, at a task with inputs"),
    Transition(UNSEEN, (BarrierArrived,), ALIGNING, (), "R1 R4", "the copy waits for others", may=GATES[:1]),
    Transition(UNSEEN, (BarrierArrived,), LOGGING, CUT, "R2 R3", LAST_OPEN, may=GATES),
    Transition(UNSEEN, (BarrierArrived,), WRITING, (*CUT, Persist), "R2 R3", LAST, may=GATES),
    Transition(UNSEEN, (BarrierArrived,), GIVEN_UP, (), "R7", "another channel has gone past it"),
    Transition(UNSEEN, (Aborted,), GIVEN_UP, (), "R8"),
    Transition(UNSEEN, (BarrierArrived,), SETTLED, (), "R8", "that one is copied", Whose.LATER),
    Transition(UNSEEN, (PeersRestarted,), SETTLED, (), "R10", "", Whose.NONE),
    Transition(ALIGNING, (BarrierArrived,), ALIGNING, (), "R1 R4", "the copy waits for others", may=GATES[:1]),
    Transition(ALIGNING, (BarrierArrived,), LOGGING, CUT, "R2 R3", LAST_OPEN, may=GATES),
    Transition(ALIGNING, (BarrierArrived,), WRITING, (*CUT, Persist), "R2 R3", LAST, may=GATES),
    Transition(
        ALIGNING, (BarrierArrived,), GIVEN_UP, (), "R7", "its channel has not delivered this one", Whose.LATER,
        may=GATES[1:],
    ),
    Transition(
        ALIGNING, (BarrierArrived,), SETTLED, (), "R7", "the same, and that one is copied at once", Whose.LATER,
        may=GATES[1:],
    ),
    Transition(ALIGNING, (Aborted,), GIVEN_UP, (), "R8", may=GATES[1:]),
    Transition(ALIGNING, (PeersRestarted,), SETTLED, (), "R10", "", Whose.NONE, may=GATES[1:]),
    Transition(LOGGING, (RecordsArrived,), LOGGING, (Log,), "R5", "its barrier has not come there", Whose.NONE),
    Transition(LOGGING, (BarrierArrived,), LOGGING, (), "R6", "another log is open"),
    Transition(LOGGING, (BarrierArrived,), WRITING, (Persist,), "R6", "no other log is open"),
    Transition(LOGGING, (Triggered,), LOGGING, (), "R2", "a barrier was first"),
    Transition(
        LOGGING, (BarrierArrived,), SETTLED, (Discard,), "R7", "its channel has not delivered this one", Whose.LATER
    ),
    Transition(LOGGING, (Aborted,), SETTLED, (Discard,), "R8"),
    Transition(LOGGING, (PeersRestarted,), SETTLED, (Discard,), "R10", "", Whose.NONE),
    Transition(WRITING, (Persisted,), SETTLED, (Ack,), "R6"),
    Transition(WRITING, (Triggered,), WRITING, (), "R2", "a barrier was first"),
    Transition(WRITING, (Aborted,), SETTLED, (Discard,), "R8"),
    Transition(WRITING, (PeersRestarted,), SETTLED, (Discard,), "R10", "", Whose.NONE),
    Transition(SETTLED, (Completed,), SETTLED, (Commit,), "C3"),
    Transition(SETTLED, (Triggered, BarrierArrived, Persisted, Aborted), SETTLED, (), "R2 R8", "too late"),
    Transition(GIVEN_UP, (BarrierArrived, Aborted), GIVEN_UP, (), "R8"),
    Transition(GIVEN_UP, (BarrierArrived,), SETTLED, (), "R8", "that one is copied", Whose.LATER),
    Transition(GIVEN_UP, (PeersRestarted,), SETTLED, (), "R10", "", Whose.NONE),
)  # fmt: skip
"""A task's part of one epoch."""

UNBEGUN, OPEN, WHOLE, STORING, DECIDED = EpochStage
BEGINNERS = (TriggerDue, SourceEnded, StopRequested, ChannelCaughtUp, Stopped, TasksLost)

EPOCH = (
    Transition(UNBEGUN, BEGINNERS, OPEN, (Trigger,), "C1 C6 C7 C8 C9", "the next begins at once", Whose.NONE),
    Transition(UNBEGUN, (Stored, TimedOut), OPEN, (Trigger,), "C9", "the next begins at once", Whose.EARLIER),
    Transition(OPEN, (Acked,), OPEN, (), "C2", "acks are missing, or it is of another attempt"),
    Transition(OPEN, (Acked,), STORING, (Store,), "C3", "it is the last, and no manifest is being written"),
    Transition(OPEN, (Acked,), WHOLE, (), "C3", "it is the last, and a manifest is being written"),
    Transition(OPEN, (Stored,), DECIDED, (Abort,), "C4", "", Whose.LATER),
    Transition(OPEN, (TimedOut,), DECIDED, (Abort,), "C2"),
    Transition(OPEN, (TasksLost,), DECIDED, (Abort,), "C7", "", Whose.NONE),
    Transition(WHOLE, (Stored,), STORING, (Store,), "C3", "", Whose.EARLIER),
    Transition(WHOLE, (Stored,), DECIDED, (Abort,), "C4", "", Whose.LATER),
    Transition(WHOLE, (TimedOut,), WHOLE, (), "C3"),
    Transition(WHOLE, (TasksLost,), DECIDED, (Abort,), "C7", "", Whose.NONE),
    Transition(STORING, (Acked, TimedOut), STORING, (), "C3"),
    Transition(STORING, (Stored,), DECIDED, (Complete,), "C3"),
    Transition(DECIDED, (Acked, TimedOut), DECIDED, (), "C2"),
)
"""An epoch at the coordinator; what is decided is complete or given up."""

RUNNING, AWAITING, STOPPING, CATCHING_UP, ENDED = Phase
LIFE = (
    Transition(RUNNING, (Stored,), ENDED, (Finish,), "C5 C6", "idle, or the last", Whose.NONE),
    Transition(RUNNING, (TasksLost,), STOPPING, (Stop,), "C7", "some tasks go on", Whose.NONE),
    Transition(RUNNING, (TasksLost,), RUNNING, (Stop, Restart), "C7", "all tasks are lost", Whose.NONE),
    Transition(RUNNING, (TasksLost,), AWAITING, (), "C7", "a manifest is being written", Whose.NONE),
    Transition(AWAITING, (TasksLost,), AWAITING, (), "C7", "", Whose.NONE),
    Transition(AWAITING, (Stored,), ENDED, (Finish,), "C5 C6", "idle, or the last", Whose.NONE),
    Transition(AWAITING, (Stored,), STOPPING, (Stop,), "C7", "some tasks go on", Whose.NONE),
    Transition(AWAITING, (Stored,), RUNNING, (Stop, Restart), "C7", "all tasks are lost", Whose.NONE),
    Transition(STOPPING, (Stopped,), STOPPING, (), "C7", "others have not", Whose.NONE),
    Transition(STOPPING, (Stopped,), CATCHING_UP, (Restart,), "C7 C8", "all have; channels are replayed", Whose.NONE),
    Transition(STOPPING, (Stopped,), RUNNING, (Restart,), "C7", "all have; no channel is replayed", Whose.NONE),
    Transition(STOPPING, (ChannelCaughtUp,), STOPPING, (), "C8", "", Whose.NONE),
    Transition(STOPPING, (TasksLost,), STOPPING, (Stop,), "C7", "some tasks go on", Whose.NONE),
    Transition(STOPPING, (TasksLost,), RUNNING, (Stop, Restart), "C7", "all tasks are lost", Whose.NONE),
    Transition(CATCHING_UP, (ChannelCaughtUp,), CATCHING_UP, (), "C8", "others have not", Whose.NONE),
    Transition(CATCHING_UP, (ChannelCaughtUp,), RUNNING, (), "C8", "all have", Whose.NONE),
    Transition(CATCHING_UP, (TasksLost,), STOPPING, (Stop,), "C7", "some tasks go on", Whose.NONE),
    Transition(CATCHING_UP, (TasksLost,), RUNNING, (Stop, Restart), "C7", "all tasks are lost", Whose.NONE),
)
"""The coordinator, with its answers to losses and to the end; what it answers about epochs is in `EPOCH`."""

NEW, ASKED, TAKING, STARTING, READY, PUBLISHING = CommitterStage
VERIFIED = (VerifyCommit,)
DUE, NOT_DUE = "rows are left to publish", "nothing is left to publish"

SINK = (
    Transition(NEW, (TargetAsked,), ASKED, (), "D1", "each obstacle is permitted", Whose.NONE),
    Transition(NEW, (TargetAsked,), ASKED, (Refuse,), "D1", "an obstacle is not permitted", Whose.NONE),
    Transition(ASKED, (AttemptBegun,), TAKING, (Take,), "D2", "", Whose.NONE),
    Transition(TAKING, (TargetTaken,), TAKING, (Refuse,), "D2", "foreign commits came meanwhile", Whose.NONE),
    Transition(TAKING, (TargetTaken,), TAKING, (Take,), "D2", "the same, and they are permitted", Whose.NONE),
    Transition(TAKING, (TargetTaken,), STARTING, (Publish,), "D3 D5", DUE, Whose.NONE, may=VERIFIED),
    Transition(TAKING, (TargetTaken,), READY, (DiscardAbandoned,), "D6", NOT_DUE, Whose.NONE),
    Transition(STARTING, (RowsPublished,), STARTING, (Publish,), "D3 D5", DUE, Whose.NONE, may=VERIFIED),
    Transition(STARTING, (RowsPublished,), READY, (DiscardAbandoned,), "D6", NOT_DUE, Whose.NONE),
    Transition(READY, (ManifestWritten,), PUBLISHING, (Publish,), "D4 D5", DUE, Whose.NONE, may=VERIFIED),
    Transition(READY, (ManifestWritten,), READY, (DiscardUnnamed,), "D6", NOT_DUE, Whose.NONE),
    Transition(PUBLISHING, (RowsPublished,), PUBLISHING, (Publish,), "D4 D5", DUE, Whose.NONE, may=VERIFIED),
    Transition(PUBLISHING, (RowsPublished,), READY, (DiscardUnnamed,), "D6", NOT_DUE, Whose.NONE),
    Transition(
        PUBLISHING, (ManifestWritten,), PUBLISHING, (Publish,), "D4 D5", "the rows before could not be published",
        Whose.NONE, may=VERIFIED,
    ),
)  # fmt: skip
"""A committer, with one sink's target."""
