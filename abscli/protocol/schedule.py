"""A task's schedule: the order of its steps, which is all that is not determined about it; and taking them again.

Local recovery, where a lost worker alone restarts, rests on these rules. L is their letter, beside R of a task and C
of the coordinator (causal message logging, Elnozahy 2002, with the worker as the process; kept frames are Hwang's
upstream backup, 2005):

L1  Everything that is given to a task is a step: new records taken from a channel (and how many: batches are cut
    again the same way), a barrier, a trigger, an abort, a stop, the end of its input, a timer, idleness, an empty
    poll. The same state, the same inputs and the same steps give the same state and the same output. Records that
    are dropped as known and barriers below the floor, which may come twice, are no step.
L2  A schedule begins at the task's own copy of the newest complete epoch, with absolute positions. The copy is marked
    in it, and behind the mark stands again what the task had heard of later epochs: aborts, and the barriers that
    are taken before the copy (at-least-once). A task that is restored from the copy would not know it.
L3  Every frame carries what its sender's worker knows of any task's schedule, not of its own tasks alone, as far as it
    has not been said before: counted for each connection and each incarnation of it, with absolute positions. What
    is known already is no harm; a frame that is dropped as known is merged all the same.
L4  A step that is missing in between, or two different steps at one position of one line, is an error.
L5  A task that goes back without taking its steps again begins a new line. Nothing is believed of an older line.
L6  When tasks are lost, every worker that is left first closes their connections and throws away what it has not
    merged, then reports what it knows, also where its own tasks go back. Of the newest line the longest schedule is
    taken again, from the copy of the epoch.
L7  A worker that takes over tasks knows all that was reported, of all tasks, before it runs.
L8  What a task has sent since its barrier of the newest complete epoch is kept, barriers too. Its receiver, when it
    restarts, gets its log of the epoch, then what is kept. Past a bound nothing is kept before the next barrier;
    until that epoch is complete, a loss restarts everything.
L9  A task that takes its steps again starts with its own counters, also of what it had received, and with the floor
    behind its epoch: epochs that were given up are given up again where they were. What stands on a channel before
    what the next step takes had been taken before the copy, and is dropped. Barriers of its epoch, and older ones, do
    not come again: a step that took one takes nothing. Everything else waits, but a stop is answered at once; at the
    end the floor is raised, which is a step.
    At least once, a copy may contain what a sender sent behind its own copy, in steps that nobody may know: where
    both restart and no step of the receiver is known, it begins a new line with its sender's counters instead.
L10 The inputs of a task that takes its steps again never push back, and what is kept for it is not queued.
L11 Nobody else restarts, but where an operator is marked `deterministic: false`: what it would put out again is
    another output, so all that receive from it, near or far, go back too, on a new line.
L12 The watermark of a copy is a step, before that which brings the copy about: it follows from clocks, and from
    barriers that do not come again. Where steps are taken again it is told, and not looked for.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from enum import IntEnum
from typing import Self

from abscli.protocol.events import ProtocolError
from formats.ids import TaskId
from formats.watermark import LOWEST


class StepKind(IntEnum):
    """What a task was given (L1), and what is marked between (L2).

    RECORDS: `number` new records of input `channel`; at a source, rows of split `channel`.
    BARRIER: barrier `number` of input `channel`.
    TRIGGER: of epoch `number`.
    ABORT: epoch `number` is given up.
    STOP: peers restart; `number` is the floor.
    END: a source has nothing more to read.
    TIMER: timer `channel` is due, at `number`, a time in the driver's unit: the clock that the task read.
    IDLE: input `channel` is idle, or is no longer (`number` 1, 0).
    EMPTY: split `channel` had nothing to read.
    COPIED: the copy of epoch `number` is what was taken up to here.
    MARKED: barrier `number` of input `channel` was taken before the copy, and still counts.
    WATERMARK: the next copy has the watermark `number`, counted from the lowest that there is.
    """

    RECORDS = 1
    BARRIER = 2
    TRIGGER = 3
    ABORT = 4
    STOP = 5
    END = 6
    TIMER = 7
    IDLE = 8
    EMPTY = 9
    COPIED = 10
    MARKED = 11
    WATERMARK = 12


_STEP = struct.Struct("<B3xIQ")
STEP_BYTES = _STEP.size
"""Of a step: its kind, three zeros, the channel's place (4, little-endian), the number (8, little-endian)."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step. channel: its place among the task's inputs, a source's split, or 0."""

    kind: StepKind
    channel: int = 0
    number: int = 0

    def __post_init__(self) -> None:
        if not (0 <= self.channel < 2**32 and 0 <= self.number < 2**64):
            raise ProtocolError(f"invalid determinant: channel {self.channel}, number {self.number}")
        if self.kind is StepKind.RECORDS and not self.number:
            raise ProtocolError("invalid determinant: expected at least 1 record, got 0")

    def __str__(self) -> str:
        return f"{self.kind.name.lower()} {self.number} of {self.channel}"

    def encode(self) -> bytes:
        """Its 16 bytes."""
        return _STEP.pack(self.kind, self.channel, self.number)

    @classmethod
    def of_watermark(cls, watermark: int) -> Self:
        """The step that says the watermark of the next copy (L12)."""
        return cls(StepKind.WATERMARK, 0, watermark - LOWEST)

    @property
    def watermark(self) -> int:
        """What such a step says."""
        return self.number + LOWEST

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """What `encode` made this of; ProtocolError for anything else."""
        try:
            kind, channel, number = _STEP.unpack(data)
            return cls(StepKind(kind), channel, number)
        except (struct.error, ValueError) as error:
            raise ProtocolError(f"{data.hex()} is not a valid determinant") from error


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of a task's schedule, as it goes from worker to worker.

    line: the attempt in which the task last began without taking its steps again.
    start: the position from which the sender has the schedule: all before it is in a complete epoch.
    at: the position of the first step here.
    steps: encoded, 16 bytes each.
    """

    task: TaskId
    line: int
    start: int
    at: int
    steps: bytes = b""

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.at or self.line < 0 or len(self.steps) % STEP_BYTES:
            raise ProtocolError(
                f"{self.task}: invalid entry of the determinant log: attempt {self.line}, start {self.start}, "
                f"position {self.at}, {len(self.steps)} bytes"
            )

    @property
    def end(self) -> int:
        """The position behind its last step."""
        return self.at + len(self.steps) // STEP_BYTES


def steps_of(piece: Delta) -> Iterator[Step]:
    """The steps of a piece, decoded."""
    return (Step.decode(piece.steps[i : i + STEP_BYTES]) for i in range(0, len(piece.steps), STEP_BYTES))


class Schedule:
    """What is known of one task's schedule. start, line: as of `Delta`."""

    def __init__(self, task: TaskId, line: int, start: int = 0) -> None:
        self.task = task
        self.line = line
        self.start = start
        self._steps = bytearray()

    @property
    def end(self) -> int:
        """The position behind the last known step."""
        return self.start + len(self._steps) // STEP_BYTES

    def append(self, step: Step) -> None:
        """The task takes a step."""
        self._steps += step.encode()

    def piece(self, at: int) -> Delta:
        """What is known from a position on, or from `start` where that is later."""
        at = max(at, self.start)
        return Delta(self.task, self.line, self.start, at, bytes(self._steps[self._place(at) :]))

    def steps(self, at: int = 0) -> Iterator[Step]:
        """The known steps from a position on."""
        steps = bytes(self._steps[self._place(max(at, self.start)) :])
        return (Step.decode(steps[i : i + STEP_BYTES]) for i in range(0, len(steps), STEP_BYTES))

    def has(self, line: int, start: int, at: int, steps: memoryview) -> bool:
        """Whether a piece (as of `Delta`) brings nothing new. ProtocolError for what cannot be (L4)."""
        end = at + len(steps) // STEP_BYTES
        if line != self.line or start > self.start or end > self.end:
            return line < self.line  # L5
        first = max(at, self.start)
        theirs, ours = steps[(first - at) * STEP_BYTES :], self._steps[self._place(first) : self._place(end)]
        if theirs and theirs != ours:
            raise self._fork(first, bytes(ours), bytes(theirs))
        return True

    def merge(self, delta: Delta) -> bool:
        """Learn a piece; whether anything was new. ProtocolError for what cannot be (L4)."""
        if delta.line < self.line:
            return False  # L5
        if delta.line > self.line:
            if delta.at != delta.start:
                raise self._gap(delta)
            self.line, self.start, self._steps = delta.line, delta.start, bytearray(delta.steps)
            return True
        pruned = delta.start > self.start
        if pruned:
            self._cut(delta.start)
        if delta.at > self.end:
            raise self._gap(delta)
        first, last = max(delta.at, self.start), min(delta.end, self.end)
        if first < last:
            theirs = delta.steps[(first - delta.at) * STEP_BYTES : (last - delta.at) * STEP_BYTES]
            ours = self._steps[self._place(first) : self._place(last)]
            if theirs != ours:
                raise self._fork(first, bytes(ours), theirs)
        if delta.end <= self.end:
            return pruned
        self._steps += delta.steps[(self.end - delta.at) * STEP_BYTES :]
        return True

    def prune(self, epoch: int) -> bool:
        """The epoch is complete: forget the steps up to the task's copy of it, if that is known; whether it was."""
        mark = Step(StepKind.COPIED, 0, epoch).encode()
        place = self._steps.find(mark)
        while place % STEP_BYTES and place >= 0:
            place = self._steps.find(mark, place + 1)
        if place < 0:
            return False
        self._cut(self.start + place // STEP_BYTES + 1)
        return True

    def _cut(self, start: int) -> None:
        del self._steps[: self._place(start)]
        self.start = start

    def _place(self, position: int) -> int:
        return (position - self.start) * STEP_BYTES

    def _gap(self, delta: Delta) -> ProtocolError:
        return ProtocolError(
            f"{self.task}: expected determinants from position {self.end} or earlier of attempt {self.line}, got "
            f"position {delta.at} of attempt {delta.line}"
        )

    def _fork(self, at: int, ours: bytes, theirs: bytes) -> ProtocolError:
        pairs = ((ours[i : i + STEP_BYTES], theirs[i : i + STEP_BYTES]) for i in range(0, len(ours), STEP_BYTES))
        further, (mine, other) = next((i, pair) for i, pair in enumerate(pairs) if pair[0] != pair[1])
        return ProtocolError(
            f"{self.task}: conflicting determinants at position {at + further} of attempt {self.line}: "
            f"expected '{Step.decode(mine)}', got '{Step.decode(other)}'"
        )


class Replay:
    """A task on its way through steps that it took before. at: the position of the next."""

    def __init__(self, schedule: Schedule, at: int) -> None:
        if at < schedule.start:
            raise ProtocolError(
                f"{schedule.task}: expected a position of at least {schedule.start}, where the determinant log "
                f"begins, got {at}"
            )
        self.at = at
        self._task = schedule.task
        self._steps = tuple(schedule.steps(at))
        self._taken = 0

    @property
    def next(self) -> Step | None:
        """The step to take now; None: all are taken."""
        return self._steps[self._taken] if self._taken < len(self._steps) else None

    @property
    def left(self) -> int:
        """How many steps are left."""
        return len(self._steps) - self._taken

    def taken(self, step: Step) -> None:
        """A step was taken, or a copy was made; ProtocolError if it is not the one that was due."""
        if step != self.next:
            raise ProtocolError(f"{self._task}: replay differs at step {self.at}: expected '{self.next}', got '{step}'")
        self._taken += 1
        self.at += 1

    @property
    def rest(self) -> tuple[Step, ...]:
        """Those that are left."""
        return self._steps[self._taken :]

    def copy(self) -> Replay:
        """One that goes its own way."""
        return copy(self)
