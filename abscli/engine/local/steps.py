"""The steps of a running task, in the knowledge of its worker: noted as they are taken, or taken again (L1 to L9 of
`abscli.protocol.schedule`).

A task that is restored from its copy of an epoch, gets the same frames and takes the same steps puts out the same
frames (`tests/engine/recovering/test_steps.py`).
"""

from __future__ import annotations

from typing import NamedTuple

from abscli.protocol.causal import Knowledge
from abscli.protocol.events import ProtocolError
from abscli.protocol.schedule import Delta, Replay, Step
from formats.ids import TaskId


class Differs(Exception):
    """A task that takes its steps again does not do what it did: it depends on more than its state and its inputs."""

    def __init__(self, task: TaskId, reason: str) -> None:
        super().__init__(f"task {task} does not replay the same steps: {reason}")
        self.task = task


class Place(NamedTuple):
    """Where a copy stands in the schedule of its task."""

    line: int
    position: int


class Steps:
    """Of one task. replay: what it takes again, before any other step."""

    def __init__(self, knowledge: Knowledge, task: TaskId, replay: Replay | None = None) -> None:
        self._knowledge = knowledge
        self._task = task
        self._replay = replay

    @property
    def next(self) -> Step | None:
        """What is to be taken again now; None: nothing, or no more."""
        return self._replay.next if self._replay is not None else None

    @property
    def left(self) -> int:
        """How many are to be taken again."""
        return self._replay.left if self._replay is not None else 0

    def note(self, step: Step) -> None:
        """The task takes this step, and has sent nothing of it yet. Differs if another one was to be taken again."""
        if self._replay is None or self._replay.next is None:
            self._knowledge.record(self._task, step)
            return
        try:
            self._replay.taken(step)
        except ProtocolError as error:
            raise Differs(self._task, str(error)) from error

    @property
    def place(self) -> Place:
        """Behind the last step that was noted, or taken again."""
        schedule = self._knowledge.schedule(self._task)
        assert schedule is not None
        again = self._replay is not None and self._replay.next is not None
        return Place(schedule.line, self._replay.at if again and self._replay is not None else schedule.end)

    @property
    def since_complete(self) -> Delta:
        """All that is known up to here: the steps since the newest epoch that is known to be complete."""
        schedule = self._knowledge.schedule(self._task)
        assert schedule is not None
        return schedule.piece(schedule.start)
