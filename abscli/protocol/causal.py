"""What a worker knows of schedules, its own tasks' and others', and what it says of them on each connection (L3 to L7).

Knowledge is closed under causes: whoever knows a step knows, of every task, the steps that it rests on. That holds
since a piece is merged before the frame that it came with is given to a task, and since a worker says all that it
knows on every connection, in the order of that connection. So what survivors know is enough to bring every lost task
to a state from which it has sent all that a survivor has processed.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from abscli.protocol.events import ProtocolError
from abscli.protocol.schedule import STEP_BYTES, Delta, Replay, Schedule, Step
from formats.ids import TaskId

Position = tuple[int, int]
"""A line and a position on it."""


class Knowledge:
    """One worker's. Connections are whatever the driver calls them; each channel between two workers has its own."""

    def __init__(self) -> None:
        # In the order of their last change, so that what is new on a connection stands at the end.
        self._schedules: dict[TaskId, Schedule] = {}
        self._changes: dict[TaskId, int] = {}
        self._change = 0
        self._connections: dict[Hashable, dict[TaskId, Position]] = {}
        self._looked: dict[Hashable, int] = {}

    def schedule(self, task: TaskId) -> Schedule | None:
        """What is known of a task."""
        return self._schedules.get(task)

    def begin(self, task: TaskId, line: int, position: int = 0) -> None:
        """A task of this worker starts at a position, with no steps to take again (L5)."""
        self._schedules[task] = Schedule(task, line, position)
        self._changed(task)

    def resume(self, task: TaskId, line: int, position: int) -> Replay:
        """A task of this worker starts from its copy of the newest complete epoch, which was made at a position: the
        steps that it takes again (L6, L7). line: the newest on which it is known to have been."""
        schedule = self._schedules.get(task)
        if schedule is None or schedule.line < line or schedule.end <= position:
            self.begin(task, line if schedule is None else max(line, schedule.line), position)
            schedule = self._schedules[task]
        return Replay(schedule, position)

    def record(self, task: TaskId, step: Step) -> None:
        """A task of this worker takes a step. It is recorded before anything that it sends because of it."""
        self._schedules[task].append(step)
        self._changed(task)

    def merge(self, deltas: Iterable[Delta]) -> None:
        """Learn what came with a frame, or was reported; before the frame is given to a task, or dropped."""
        for delta in deltas:
            schedule = self._schedules.get(delta.task)
            if schedule is None:
                schedule = self._schedules[delta.task] = Schedule(delta.task, delta.line, delta.start)
                if delta.at != delta.start:
                    del self._schedules[delta.task]
                    raise ProtocolError(f"{delta.task}: expected the first determinants from position {delta.start}, "
                        f"got position {delta.at}")
                schedule.merge(delta)
                self._changed(delta.task)
            elif schedule.merge(delta):
                self._changed(delta.task)

    def connect(self, connection: Hashable) -> None:
        """A connection begins, or begins anew: nothing has been said on it."""
        self._connections[connection] = {}
        self._looked[connection] = 0

    def disconnect(self, connection: Hashable) -> None:
        """A connection has ended for good."""
        self._connections.pop(connection, None)
        self._looked.pop(connection, None)

    def news(self, connection: Hashable) -> tuple[Delta, ...]:
        """What the next frame of a connection carries: all that has not been said on it. It counts as said."""
        told, looked = self._connections[connection], self._looked[connection]
        deltas: list[Delta] = []
        for task in reversed(self._changes):
            if self._changes[task] <= looked:
                break
            schedule = self._schedules[task]
            line, position = told.get(task, (-1, 0))
            if line != schedule.line or position < schedule.end:
                # On a new line, and where steps were pruned that were never said, it begins at `start`.
                deltas.append(schedule.piece(position if line == schedule.line else 0))
                told[task] = (schedule.line, schedule.end)
        self._looked[connection] = self._change
        return tuple(sorted(deltas, key=lambda delta: delta.task))

    def report(self) -> tuple[Delta, ...]:
        """All that is known: the answer to a stop (L6)."""
        return tuple(schedule.piece(0) for _, schedule in sorted(self._schedules.items()))

    def void(self, tasks: Iterable[TaskId], line: int) -> None:
        """These tasks go back without taking their steps again: what was known of them is of a dead line (L5)."""
        for task in tasks:
            schedule = self._schedules.get(task)
            if schedule is None or schedule.line < line:
                self.begin(task, line)

    def complete(self, epoch: int) -> None:
        """An epoch is complete: no schedule is needed before the task's copy of it (L2)."""
        for schedule in self._schedules.values():
            schedule.prune(epoch)

    @property
    def key(self) -> tuple[Hashable, ...]:
        """Equal for workers that know and have said the same: they answer the same from now on."""
        said = frozenset((each, frozenset(told.items())) for each, told in self._connections.items())
        return self.report(), said

    def size(self) -> int:
        """Bytes of all steps that are known."""
        return sum((schedule.end - schedule.start) * STEP_BYTES for schedule in self._schedules.values())

    def _changed(self, task: TaskId) -> None:
        self._change += 1
        self._changes.pop(task, None)
        self._changes[task] = self._change


def longest(reports: Iterable[Iterable[Delta]]) -> tuple[Delta, ...]:
    """Of what survivors report, for each task the longest schedule of its newest line (L6); by task."""
    together = Knowledge()
    for report in reports:
        together.merge(report)
    return together.report()


_HEAD = struct.Struct("<IIQQQ")
"""Of a piece on the wire: the task's number, how many steps follow, line, start, position."""


def encode(deltas: Sequence[Delta], numbers: Mapping[TaskId, int]) -> bytes:
    """The pieces on the wire. numbers: of all tasks, the same in every worker."""
    return b"".join(
        _HEAD.pack(numbers[delta.task], delta.end - delta.at, delta.line, delta.start, delta.at) + delta.steps
        for delta in deltas
    )


class Piece(NamedTuple):
    """A piece on the wire: a `Delta` of the task of this number, whose steps are looked at where they lie."""

    number: int
    line: int
    start: int
    at: int
    steps: memoryview


def pieces(data: memoryview, tasks: int) -> Iterator[Piece]:
    """The pieces that `encode` made this of, of so many tasks; ProtocolError for anything else."""
    place, size = 0, len(data)
    while place < size:
        if place + _HEAD.size > size:
            raise ProtocolError(f"truncated determinant log: {size} bytes end within the header of an entry")
        number, count, line, start, at = _HEAD.unpack_from(data, place)
        place += _HEAD.size
        end = place + count * STEP_BYTES
        if number >= tasks or end > size:
            raise ProtocolError(
                f"invalid entry in the determinant log: it announces {count} determinants of task {number}, but the "
                f"job has {tasks} tasks, and the log has {size} bytes"
            )
        yield Piece(number, line, start, at, data[place:end])
        place = end


def decode(data: bytes, tasks: Sequence[TaskId]) -> tuple[Delta, ...]:
    """The pieces that `encode` made this of; ProtocolError for anything else. tasks: by number."""
    return tuple(
        Delta(tasks[piece.number], piece.line, piece.start, piece.at, bytes(piece.steps))
        for piece in pieces(memoryview(data), len(tasks))
    )
