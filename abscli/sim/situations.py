"""What a run can come to that is worth having happened before the protocol is believed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum

from abscli.protocol.coordinator import Coordinator, Phase
from abscli.protocol.events import (
    Abort,
    Block,
    CoordinatorAction,
    CoordinatorEvent,
    Log,
    PeersRestarted,
    Process,
    RecordsArrived,
    Stop,
    Store,
    TaskAction,
    TaskEvent,
    TasksLost,
)
from abscli.protocol.task import Task


class Situation(StrEnum):
    """In words, as they are shown."""

    WAITS = "an input waits for the barriers of others"
    HELD = "a back edge is held"
    LOGGED = "records are logged"
    LOGGED_TWICE = "a record belongs to the logs of two epochs"
    TWO_OPEN = "two epochs are open"
    GIVEN_UP = "an epoch is given up"
    LOST = "tasks are lost, and others go on"
    LOST_AGAIN = "tasks are lost while others recover"
    GATE = "no epoch begins until a channel has caught up"
    KNOWN = "records come again, and are known"
    UNREAD = "a sender is lost before its restored log was read"
    RESTORED = "an epoch with logs is restored"
    GENERATION = "a generation begins with logs"
    IDLE = "a cut proves the job idle"


def of_task(machine: Task, unread: bool, event: TaskEvent, actions: Sequence[TaskAction]) -> Iterator[Situation]:
    """What one step of a task is. unread: a sender restarts whose restored log had not been read before the step."""
    for action in actions:
        match action:
            case Block(channel):
                yield Situation.HELD if channel in machine.back else Situation.WAITS
            case Log(_, epochs):
                yield Situation.LOGGED
                if len(epochs) > 1:
                    yield Situation.LOGGED_TWICE
            case Process(skip=skip) if skip:
                yield Situation.KNOWN
    if isinstance(event, RecordsArrived) and not any(isinstance(action, Process) for action in actions):
        yield Situation.KNOWN
    if unread:
        yield Situation.UNREAD


def is_unread(machine: Task, event: TaskEvent) -> bool:
    """Whether senders restart of whose restored logs this task, which goes on, has not read all. machine: before."""
    return isinstance(event, PeersRestarted) and any(
        sent > machine.received[channel] for channel, sent in event.replayed.items() if channel in machine.received
    )


def of_coordinator(
    machine: Coordinator, before: Phase, event: CoordinatorEvent, actions: Sequence[CoordinatorAction]
) -> Iterator[Situation]:
    """What one step of the coordinator is. before: its phase before the step."""
    if len(machine.open_epochs) > 1:
        yield Situation.TWO_OPEN
    if isinstance(event, TasksLost) and before in (Phase.AWAITING_MANIFEST, Phase.STOPPING, Phase.CATCHING_UP):
        yield Situation.LOST_AGAIN
    if machine.phase is Phase.CATCHING_UP and before is not Phase.CATCHING_UP:
        yield Situation.GATE
    for action in actions:
        match action:
            case Abort():
                yield Situation.GIVEN_UP
            case Stop(tasks=tasks) if tasks < machine.tasks:
                yield Situation.LOST
            case Store(idle=True):
                yield Situation.IDLE
