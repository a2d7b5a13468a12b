"""The coordinator: begins epochs, counts acks, decides when one is complete, given up, or proves the job idle.

C1  Epoch numbers only grow, also over attempts. At most `max_concurrent` epochs are open.
C2  An ack counts only for an open epoch and from this attempt. What not all have acked in time is given up.
C3  The manifest is written when every task has acked, one at a time, and tasks hear of it only when it is durable.
C4  When n is complete, open epochs below n are given up: their changes are in n.
C5  A stable property is read off a complete cut (Chandy and Lamport 1985): sources ended, every log empty, sent =
    received on every channel, no task behind its watermark. Then the job is idle and ends; with `until="drained"` the
    sources' ends are not asked.
C6  When the last source ends, and when a stop is requested, the next epoch is begun at once.
C7  When tasks are lost, open epochs are given up and the attempt's number is raised. When no manifest is being
    written any more the others are told to stop, and when all have, the lost tasks restart from the newest complete
    epoch. A second loss before that restarts the union.
C8  No epoch is begun until every replayed channel has caught up: a barrier would come behind records that its
    receiver's copy contains already (orphans, though all counters grow). Then one is begun at once.
C9  When the next epoch begins is said by the first of these lines that holds; a driver counts the time, and decides
    nothing:
        the last one is begun, or the job has ended             never
        tasks are lost, or have not caught up (C8)              when they have, and then at once
        `max_concurrent` are open (C1)                          when one of them is complete or given up
        one is due: by the clock, C6, C8, or from the start     at once
        only what circulates is awaited, and one is open        when it is complete or given up
        only what circulates is awaited, and none is open       a short pause after the beginning of the one before
        otherwise                                               an interval after the beginning of the one before
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Literal, assert_never

from abscli.protocol.events import (
    Abort,
    Acked,
    ChannelCaughtUp,
    Complete,
    CoordinatorAction,
    CoordinatorEvent,
    Finish,
    ProtocolError,
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
)
from formats.ids import ChannelId, TaskId

Until = Literal["end", "drained"]


class NextEpoch(StrEnum):
    """When the next epoch begins (C9)."""

    NEVER = "never"
    WHEN_RECOVERED = "when all have caught up"
    WHEN_ONE_IS_DECIDED = "when an open one is complete or given up"
    AT_ONCE = "at once"
    AFTER_PAUSE = "a pause after the one before"
    AFTER_INTERVAL = "an interval after the one before"


class EpochStage(StrEnum):
    """How far an epoch is; `transitions` has the table."""

    UNBEGUN = "not begun"
    OPEN = "open"
    WHOLE = "whole"
    STORING = "storing"
    DECIDED = "decided"


class Phase(StrEnum):
    """What a coordinator is about; `transitions` has the table."""

    RUNNING = "running"
    AWAITING_MANIFEST = "awaiting the manifest"
    STOPPING = "stopping"
    CATCHING_UP = "catching up"
    ENDED = "ended"


def next_epoch(
    *, last_begun: bool, recovering: bool, open_epochs: int, max_concurrent: int, due: bool, draining: bool
) -> NextEpoch:
    """C9, line by line.

    last_begun: the last epoch is begun, or the job has ended.
    recovering: tasks are lost, or have not caught up.
    open_epochs: how many are begun and neither complete nor given up.
    due: one was asked for, and has not begun.
    draining: only what circulates is awaited.
    """
    if last_begun:
        return NextEpoch.NEVER
    if recovering:
        return NextEpoch.WHEN_RECOVERED
    if open_epochs >= max_concurrent:
        return NextEpoch.WHEN_ONE_IS_DECIDED
    if due:
        return NextEpoch.AT_ONCE
    if draining:
        return NextEpoch.WHEN_ONE_IS_DECIDED if open_epochs else NextEpoch.AFTER_PAUSE
    return NextEpoch.AFTER_INTERVAL


class Coordinator:
    """One attempt's coordinator.

    tasks: all; sources: those without inputs.
    first_epoch: the lowest number that this attempt may use.
    parent: the epoch that it starts from.
    ended: sources that had ended by then.
    """

    def __init__(
        self,
        tasks: Iterable[TaskId],
        sources: Iterable[TaskId],
        *,
        attempt: int,
        first_epoch: int,
        parent: int = 0,
        max_concurrent: int = 1,
        until: Until = "end",
        ended: Iterable[TaskId] = (),
    ) -> None:
        self.tasks = frozenset(tasks)
        self.attempt = attempt
        self.last_complete = parent
        self.finished = False
        self.idle = False
        self._sources = frozenset(sources)
        self._ended = frozenset(ended)
        self._running_sources = set(self._sources - self._ended)
        self._next = first_epoch
        self._max_concurrent = max_concurrent
        self._until: Until = until
        self._acks: dict[int, dict[TaskId, Acked]] = {}
        self._storing: Store | None = None
        self._due = self.draining
        self._stopping = False
        self._last_epoch: int | None = None
        self._lost: frozenset[TaskId] = frozenset()
        self._unstopped: set[TaskId] | None = None
        self._behind: dict[ChannelId, int] = {}
        if not self._sources <= self.tasks or not self.tasks:
            raise ProtocolError("every source must be a task, and there must be at least one task")

    @property
    def open_epochs(self) -> tuple[int, ...]:
        """Epochs that are begun and neither complete nor given up, ascending."""
        return tuple(sorted(self._acks))

    @property
    def next_number(self) -> int:
        """The lowest epoch number that has not been begun."""
        return self._next

    @property
    def recovering(self) -> bool:
        """Whether lost tasks have not restarted, or a restarted one has not caught up."""
        return self.phase in (Phase.AWAITING_MANIFEST, Phase.STOPPING, Phase.CATCHING_UP)

    @property
    def draining(self) -> bool:
        """Whether only the end of what circulates is awaited, so that epochs should follow each other closely."""
        return self._until == "drained" or not self._running_sources

    @property
    def phase(self) -> Phase:
        """What it is about."""
        if self.finished:
            return Phase.ENDED
        if self._lost:
            return Phase.AWAITING_MANIFEST if self._unstopped is None else Phase.STOPPING
        return Phase.CATCHING_UP if self._behind else Phase.RUNNING

    def stage(self, epoch: int) -> EpochStage:
        """How far an epoch of this attempt is."""
        if epoch >= self._next:
            return EpochStage.UNBEGUN
        if epoch not in self._acks:
            return EpochStage.DECIDED
        if self._storing is not None and epoch == self._storing.epoch:
            return EpochStage.STORING
        return EpochStage.OPEN if self.missing(epoch) else EpochStage.WHOLE

    def next_epoch(self, open_epochs: int | None = None) -> NextEpoch:
        """When the next epoch begins. open_epochs: as if that many were open."""
        return next_epoch(
            last_begun=self.finished or self._last_epoch is not None,
            recovering=self.recovering,
            open_epochs=len(self._acks) if open_epochs is None else open_epochs,
            max_concurrent=self._max_concurrent,
            due=self._due,
            draining=self.draining,
        )

    def missing(self, epoch: int) -> list[TaskId]:
        """Tasks that have not acked an open epoch."""
        return sorted(self.tasks - self._acks[epoch].keys())

    def on(self, event: CoordinatorEvent) -> list[CoordinatorAction]:
        """Take an event, return what to do, in order."""
        if self.finished:
            return []
        match event:
            case TriggerDue():
                self._due = True
            case SourceEnded(task):
                self._running_sources.discard(task)
                self._due |= not self._running_sources
            case StopRequested():
                self._due |= not self._stopping
                self._stopping = True
            case Acked():
                return self._acked(event)
            case Stored(epoch):
                return self._stored(epoch)
            case TimedOut(epoch):
                if self.stage(epoch) is not EpochStage.OPEN:
                    return []
                reason = f"timed out, waiting for {_some(self.missing(epoch))}"
                return [*self._abort(epoch, reason), *self._trigger_if_due()]
            case TasksLost(tasks, replayed):
                return self._tasks_lost(tasks, replayed)
            case Stopped(task, attempt):
                if attempt == self.attempt and self._unstopped is not None:
                    self._unstopped.discard(task)
                return self._recover()
            case ChannelCaughtUp(channel, attempt):
                if attempt >= self._behind.get(channel, attempt + 1):
                    del self._behind[channel]
                    self._due = not self._behind
            case _:
                assert_never(event)
        return self._trigger_if_due()

    def _tasks_lost(self, tasks: frozenset[TaskId], replayed: frozenset[ChannelId]) -> list[CoordinatorAction]:
        if not tasks <= self.tasks:
            raise ProtocolError(f"{_some(tasks - self.tasks)} was reported as lost, but is not a task of this job")
        actions: list[CoordinatorAction] = []
        for epoch in [e for e in self.open_epochs if self._storing is None or e != self._storing.epoch]:
            actions += self._abort(epoch, f"{_some(tasks)} restarted")
        self.attempt += 1
        self._lost |= tasks
        self._unstopped = None  # who had stopped for the loss before has to stop for both
        # Caught up is fenced by the attempt in which the sender restarted last: by this one where it is lost again.
        self._behind = {
            channel: self.attempt if channel.sender in self._lost else self._behind[channel]
            for channel in self._behind.keys() | replayed
            if channel.receiver not in self._lost
        }
        return actions + self._recover()

    def _recover(self) -> list[CoordinatorAction]:
        """C7, step by step: nothing is being written, all others have stopped, the lost ones restart."""
        if not self._lost or self._storing is not None:
            return []
        actions: list[CoordinatorAction] = []
        if self._unstopped is None:
            self._unstopped = set(self.tasks - self._lost)
            actions.append(Stop(self.attempt, self._lost, self._next, self.last_complete))
        if self._unstopped:
            return actions
        lost, self._lost = self._lost, frozenset()
        self._running_sources |= (lost & self._sources) - self._ended
        self._due = not self._behind
        return [*actions, Restart(self.attempt, lost, self.last_complete), *self._trigger_if_due()]

    def _trigger_if_due(self) -> list[CoordinatorAction]:
        if self.next_epoch() is not NextEpoch.AT_ONCE:
            return []
        self._due = False
        epoch, self._next = self._next, self._next + 1
        self._acks[epoch] = {}
        if self._stopping:
            self._last_epoch = epoch
        return [Trigger(epoch)]

    def _acked(self, ack: Acked) -> list[CoordinatorAction]:
        acks = self._acks.get(ack.epoch)
        if acks is None or ack.attempt != self.attempt:
            return []
        if ack.task not in self.tasks:
            raise ProtocolError(f"unexpected ack of epoch {ack.epoch} from {ack.task}, which is not a task of this job")
        acks[ack.task] = ack
        return self._store_next()

    def _store_next(self) -> list[CoordinatorAction]:
        whole = [epoch for epoch, acks in self._acks.items() if len(acks) == len(self.tasks)]
        if self._storing is not None or not whole:
            return []
        epoch = min(whole)  # in order, or the one below would be given up though it is whole (C4)
        self._storing = Store(epoch, self._is_idle(self._acks[epoch]))
        return [self._storing]

    def _is_idle(self, acks: dict[TaskId, Acked]) -> bool:
        if self._until == "end" and not all(acks[source].finished for source in self._sources):
            return False
        sent: dict[ChannelId, int] = {}
        received: dict[ChannelId, int] = {}
        for ack in acks.values():
            if ack.logged or ack.behind:
                return False
            sent.update(ack.sent)
            received.update(ack.received)
        return sent == received

    def _stored(self, epoch: int) -> list[CoordinatorAction]:
        if self._storing is None or epoch != self._storing.epoch:
            raise ProtocolError(f"unexpected completion of epoch {epoch}, which was not being stored")
        proves_idle, self._storing = self._storing.idle, None
        self.last_complete = epoch
        acks = self._acks.pop(epoch)
        self._ended = frozenset(source for source in self._sources if acks[source].finished)
        actions: list[CoordinatorAction] = []
        for older in [e for e in self.open_epochs if e < epoch]:
            actions += self._abort(older, f"epoch {epoch}, which contains it, was complete first")
        actions.append(Complete(epoch))
        if proves_idle or epoch == self._last_epoch:
            self.finished, self.idle = True, proves_idle
            return [*actions, Finish()]
        return [*actions, *self._store_next(), *self._recover(), *self._trigger_if_due()]

    def _abort(self, epoch: int, reason: str) -> list[CoordinatorAction]:
        del self._acks[epoch]
        if epoch == self._last_epoch:
            self._last_epoch, self._due = None, True
        return [Abort(epoch, reason)]


def _some(tasks: Iterable[TaskId]) -> str:
    names = sorted(map(str, tasks))
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
