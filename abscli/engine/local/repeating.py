"""The tasks of a worker that take the same steps again, until each has, or one turns out to do something else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import msgspec

from abscli.engine.channels.messages import Differed, Repeated, Replayed
from abscli.engine.local.steps import Differs
from abscli.engine.task import RunningTask
from formats.ids import ChannelId, TaskId

STALLED_SECONDS = 30.0
"""Time in which some task that takes steps again takes one. Frames that these need are kept, or are made again by
others at the same time: where none comes, something is not made again. A source whose input does not answer is waited
for."""


class Repeating:
    """Of worker `number`. tell: sends the coordinator a message."""

    def __init__(self, number: int, tell: Callable[[msgspec.Struct], None]) -> None:
        self._number = number
        self._tell = tell
        self._attempt = 0
        self._heard_of: dict[TaskId, frozenset[ChannelId]] = {}
        self._differs = False
        self._at: float | None = None

    def stop(self, attempt: int) -> None:
        """Some of them may be lost again."""
        self._attempt, self._differs, self._at = attempt, False, None

    def drop(self, task: TaskId) -> None:
        """It is lost again, or restarts."""
        self._heard_of.pop(task, None)

    def begin(self, attempt: int) -> None:
        """From now on steps are taken; frames that these need are on their way."""
        self._attempt, self._at = attempt, time.monotonic()

    def add(self, task: RunningTask, survivors: frozenset[ChannelId]) -> None:
        """It restarts, with steps to take again or none. survivors: its channels to tasks that went on."""
        self._heard_of[task.machine.name] = survivors
        if task.repeats:
            for inbox in task.inboxes.values():
                inbox.unbounded = True  # it never keeps its senders waiting (L10)

    def step(self, task: RunningTask) -> bool:
        """The next of the steps that a task takes again; False while what that needs has not come."""
        if self._differs:
            return False
        try:
            busy = task.step()
        except Differs as error:
            self._differ(str(error))
            return False
        if busy or (task.source is not None and task.source.held_up is not None):
            self._at = time.monotonic()
        if not task.repeats:
            self.ended(task)
        return busy

    def ended(self, task: RunningTask) -> None:
        """It goes on from where it was: those who went on have all from it that they had."""
        for inbox in task.inboxes.values():
            inbox.unbounded = inbox.back
        for channel in self._heard_of.pop(task.machine.name, ()):
            self._tell(Replayed(channel, self._attempt))
        if not self._heard_of:
            self._tell(Repeated(self._number))

    def look_for_stall(self, tasks: Iterable[RunningTask], now: float) -> None:
        """What a task takes again may never come, since who sent it does not do so again."""
        stalled = next((task for task in tasks if task.repeats), None)
        if stalled is None or self._differs or self._at is None or now - self._at < STALLED_SECONDS:
            return
        name, step = stalled.machine.name, stalled.awaited
        self._differ(f"task {name} waits for what it took before ('{step}'), and it does not come again")

    def _differ(self, message: str) -> None:
        """Nothing that hangs on it goes on, until the coordinator has everything restart."""
        self._differs = True
        self._tell(Differed(self._number, self._attempt, message))
