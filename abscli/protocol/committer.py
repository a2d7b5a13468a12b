"""The driver's side of one sink: how staged rows get into its target, under any kind of target.

Workers stage rows, and manifests name them; a committer publishes what manifests name. It decides, and asks and changes
nothing itself: `abscli.engine.sinks.outputs` carries out what it answers, and `abscli.sim.targets` searches every short
sequence of events with it. The rules, by the numbers that tests and comments use:

D1  The target is asked before anything is changed, and all targets of a job are asked before one is taken. If there
    is an obstacle, the job ends with an error, unless the user permits it: commits outside of the history and undone
    commits with --take-ownership, missing rows with --accept-missing-parts.
D2  Then the attempt takes the target: no older attempt can change it any more. One may have committed rows between the
    question and that, so the target is asked again. Such commits refuse the job as in D1.
D3  What is due is published before the job starts, in the order of the history.
D4  The rows that a manifest names are published after it and before the next one, without those that the manifest
    before names. What could not be published then is published first.
D5  Before each publication the target must have the newest commit that the committer knows of. A target that has lost
    it became an older copy of itself: the job ends.
D6  When nothing is left to publish, rows that this attempt has staged up to that epoch are discarded: no manifest
    names them, since their task was lost, and has made them again. At the start, those of ended attempts are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Generic, Protocol, Self, TypeVar

from abscli.protocol.events import ProtocolError
from formats.ids import EpochId


class Delivery(Protocol):
    """The rows that one manifest names for a target."""

    def behind(self, epoch: int) -> Self | None:
        """Return the rows that were cut for epochs above `epoch`; None if there are none."""


D = TypeVar("D", bound=Delivery)


class Obstacle(StrEnum):
    """A reason not to take a target, in the order in which reasons are reported.

    UNDONE: the target was replaced or rolled back. FOREIGN: it has commits outside of the history. MISSING: it lacks
    rows that no kept manifest names. LOST: rows that are due are no longer staged.
    """

    UNDONE = "undone"
    FOREIGN = "foreign"
    MISSING = "missing"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Permissions:
    """Permissions that the user gives by options, for all sinks of an attempt.

    take_ownership: write to a target that has commits outside of the history.
    accept_missing: go on although rows of the history are missing.
    """

    take_ownership: bool = False
    accept_missing: bool = False

    def permit(self, obstacle: Obstacle) -> bool:
        """Tell whether the job may go on in spite of an obstacle."""
        if obstacle in (Obstacle.UNDONE, Obstacle.FOREIGN):
            return self.take_ownership
        return self.accept_missing


# -- events ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TargetAsked(Generic[D]):
    """The target was compared with the history up to an epoch.

    epoch: the newest of the history; 0 for the start.
    due: the deliveries that it lacks, oldest first.
    """

    epoch: int
    due: tuple[D, ...]
    obstacles: frozenset[Obstacle]


@dataclass(frozen=True, slots=True)
class AttemptBegun:
    """All targets of the job were asked, and the attempt is recorded."""


@dataclass(frozen=True, slots=True)
class TargetTaken:
    """The attempt has the target, and has asked it again.

    foreign: whether it has commits outside of the history that the answer before did not have.
    newest: its newest commit of the history; None if it has none, or keeps no commit markers.
    """

    foreign: bool
    newest: EpochId | None


@dataclass(frozen=True, slots=True)
class ManifestWritten(Generic[D]):
    """An epoch is complete. delivery: what its manifest names for the target; None if that is nothing."""

    epoch: int
    delivery: D | None


@dataclass(frozen=True, slots=True)
class RowsPublished:
    """The target has the rows. newest: their commit; None if it keeps no commit markers, or all of them were lost."""

    newest: EpochId | None


Event = TargetAsked[D] | AttemptBegun | TargetTaken | ManifestWritten[D] | RowsPublished


# -- actions --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Refuse:
    """End the attempt with the error for an obstacle."""

    obstacle: Obstacle


@dataclass(frozen=True, slots=True)
class Take:
    """Make the target this attempt's, then ask it again; commits outside of the history are left or set aside."""


@dataclass(frozen=True, slots=True)
class VerifyCommit:
    """End the attempt unless the target has this commit, or a later one of its attempt."""

    commit: EpochId


@dataclass(frozen=True, slots=True)
class Publish(Generic[D]):
    """Make the rows visible; what the target has already is not written again."""

    delivery: D


@dataclass(frozen=True, slots=True)
class DiscardAbandoned:
    """Remove rows that ended attempts have staged in the target and that no manifest can name any more."""


@dataclass(frozen=True, slots=True)
class DiscardUnnamed:
    """Remove rows that this attempt has staged in the target up to an epoch."""

    epoch: int


Action = Refuse | Take | VerifyCommit | Publish[D] | DiscardAbandoned | DiscardUnnamed


# -- the machine ----------------------------------------------------------------------------------------------


class CommitterStage(StrEnum):
    """Stage of an attempt at one target."""

    NEW = "new"
    ASKED = "asked"
    TAKING = "taking"
    STARTING = "starting"
    READY = "ready"
    PUBLISHING = "publishing"


@dataclass(frozen=True, slots=True)
class Committer(Generic[D]):
    """State of an attempt at one target; a value, which `on` replaces.

    epoch: the newest whose manifest is known.
    due: what is to be published, oldest first.
    newest: the newest commit that the target is known to have; None if it has none, or keeps no markers.
    """

    permissions: Permissions = Permissions()
    stage: CommitterStage = CommitterStage.NEW
    epoch: int = 0
    due: tuple[D, ...] = ()
    newest: EpochId | None = None

    def on(self, event: Event[D]) -> tuple[Committer[D], tuple[Action[D], ...]]:
        """Return what is known after the event, and what has to be done now, in order.

        Raises ProtocolError for an event that cannot come at this stage.
        """
        match self.stage, event:
            case CommitterStage.NEW, TargetAsked():
                asked = replace(self, stage=CommitterStage.ASKED, epoch=event.epoch, due=event.due)
                return asked, self._refused(event.obstacles)
            case CommitterStage.ASKED, AttemptBegun():
                return replace(self, stage=CommitterStage.TAKING), (Take(),)
            case CommitterStage.TAKING, TargetTaken(foreign=True):
                return self, self._refused({Obstacle.FOREIGN}) or (Take(),)
            case CommitterStage.TAKING, TargetTaken():
                return replace(self, stage=CommitterStage.STARTING, newest=event.newest)._next()
            case (CommitterStage.READY | CommitterStage.PUBLISHING), ManifestWritten():
                fresh = event.delivery.behind(self.epoch) if event.delivery is not None else None
                due = (*self.due, *(() if fresh is None else (fresh,)))
                return replace(self, stage=CommitterStage.PUBLISHING, epoch=event.epoch, due=due)._next()
            case (CommitterStage.STARTING | CommitterStage.PUBLISHING), RowsPublished():
                return replace(self, due=self.due[1:], newest=event.newest or self.newest)._next()
            case _:
                raise ProtocolError(f"{type(event).__name__} at stage {self.stage}")

    def _refused(self, obstacles: set[Obstacle] | frozenset[Obstacle]) -> tuple[Action[D], ...]:
        """Return the refusal for the first obstacle that is not permitted; empty if all are."""
        counted = set(obstacles)
        if Obstacle.UNDONE in obstacles and self.permissions.take_ownership:
            counted.discard(Obstacle.LOST)  # with rolled back commits, their rows are permitted to be lost
        refused = (one for one in Obstacle if one in counted and not self.permissions.permit(one))
        return tuple(Refuse(obstacle) for obstacle in refused)[:1]

    def _next(self) -> tuple[Committer[D], tuple[Action[D], ...]]:
        if self.due:
            verify = () if self.newest is None else (VerifyCommit(self.newest),)
            return self, (*verify, Publish(self.due[0]))
        ready = replace(self, stage=CommitterStage.READY)
        if self.stage is CommitterStage.STARTING:
            return ready, (DiscardAbandoned(),)
        return ready, (DiscardUnnamed(self.epoch),)
