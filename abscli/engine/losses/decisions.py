"""Decisions after the loss of workers, apart from sockets and processes: which tasks restart, and whether they may
again (design of live partial recovery: rules R10, C7 and C8 of `abscli.protocol`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from abscli.engine.errors import EngineError, EngineStopped, JobFailed, RaisedAt
from abscli.planner.adjacency import Adjacency
from abscli.planner.local_set import restart_set
from abscli.planner.placement import subtasks_of
from abscli.planner.ranges import EMPTY, Ranges
from abscli.planner.recovery_set import recovery_set
from formats.ids import ChannelId, TaskId
from formats.job.model import Kind, Topology

WITHIN_EPOCHS = 10
"""Restarts are counted over so many complete epochs: a job that has come that far since is well."""

LONGEST_PAUSE = 30.0
"""Seconds before a restart, at most."""

FIRST_PAUSE = 0.25


class Scope(StrEnum):
    """The tasks that restart when a worker is lost: its own, the planner's recovery set, or all."""

    LOCAL = "local"
    SUBGRAPH = "subgraph"
    FULL = "full"


Subtasks = Mapping[str, Ranges]
"""Tasks by operator."""


@dataclass(frozen=True, slots=True)
class Restarting:
    """Tasks that restart together.

    subtasks: by operator in declared order.
    replayed: the channels from them to tasks that go on, which drop what they have seen.
    back: where lost tasks take their steps again, those that do not.
    """

    subtasks: dict[str, Ranges]
    replayed: frozenset[ChannelId]
    back: frozenset[TaskId] = frozenset()


def everything(topology: Topology) -> dict[str, Ranges]:
    """Return all tasks of the job, as at its beginning."""
    return {op.id: Ranges.span(0, op.parallelism) for op in topology.operators}


def restarting(topology: Topology, lost: Iterable[int], workers: int, scope: Scope, epoch: int) -> Restarting:
    """Return the tasks that restart from `epoch` when workers are lost, as `plan-recovery --failed-worker` prints them.

    From the beginning everything does: which files a source has is written down with its first epoch, and until then
    a source that looks again may find others.
    """
    if scope is Scope.FULL or not epoch:
        return Restarting(everything(topology), frozenset())
    graph = Adjacency.of(topology)
    recovery = recovery_set(graph, subtasks_of(topology, lost, workers))
    edges = {(edge.source, edge.target): edge for edge in topology.edges}
    replayed = frozenset(
        ChannelId(TaskId(dedup.source, i), TaskId(dedup.target, j))
        for dedup in recovery.dedup
        for i in dedup.senders
        for j in graph.receivers(edges[dedup.source, dedup.target], Ranges.of([i])) & dedup.receivers
    )
    return Restarting(recovery.subtasks, replayed)


def reads_in_vain(topology: Topology, unresponsive: Iterable[int], workers: int, scope: Scope, epoch: int) -> bool:
    """Decide whether every source would read again what it reads now, if these workers turn out to have failed.

    epoch: the newest complete one, from which tasks would restart.
    """
    numbers = list(unresponsive)
    if not numbers or (scope is Scope.LOCAL and epoch):
        return False
    restart = restarting(topology, numbers, workers, scope, epoch).subtasks
    sources = [op for op in topology.operators if op.kind is Kind.SOURCE]
    return all(restart.get(op.id, EMPTY).count == op.parallelism for op in sources)


def alone(topology: Topology, subtasks: Subtasks, epoch: int, ahead: Iterable[ChannelId]) -> Restarting | str:
    """Lost tasks that take their steps again from `epoch`, all that others have of them they drop; or why everything
    restarts: what `plan-recovery --failed-worker --recovery local` prints.

    ahead: the channels of which its receiver's copy holds more than its sender's had sent.
    """
    if not epoch:
        return "no epoch is complete"
    graph = Adjacency.of(topology)
    chosen = restart_set(graph, subtasks, epoch, ahead)
    if chosen.everything is not None:
        return chosen.everything
    back = frozenset(TaskId(row.operator, i) for row in chosen.back for i in row.subtasks)
    replayed = frozenset(
        ChannelId(TaskId(edge.source, i), TaskId(edge.target, j))
        for edge in topology.edges
        for i in subtasks.get(edge.source, EMPTY)
        for j in graph.receivers(edge, Ranges.of([i]))
        if j not in subtasks.get(edge.target, EMPTY)
    )
    return Restarting(dict(subtasks), replayed, back)


def by_operator(tasks: Iterable[TaskId], topology: Topology) -> dict[str, Ranges]:
    """Tasks by operator, in declared order."""
    numbers: dict[str, list[int]] = {}
    for task in tasks:
        numbers.setdefault(task.operator, []).append(task.subtask)
    return {op.id: Ranges.of(numbers[op.id]) for op in topology.operators if op.id in numbers}


def all_tasks(subtasks: Subtasks) -> frozenset[TaskId]:
    """Every one of them."""
    return frozenset(TaskId(id, i) for id, numbers in subtasks.items() for i in numbers)


def of_worker(subtasks: Subtasks, number: int, topology: Topology, workers: int) -> dict[str, Ranges]:
    """Return the subtasks that one worker holds."""
    holds = subtasks_of(topology, [number], workers)
    both = {id: numbers & holds[id] for id, numbers in subtasks.items() if id in holds}
    return {id: numbers for id, numbers in both.items() if numbers}


def merged(subtasks: Subtasks, more: Subtasks) -> dict[str, Ranges]:
    """Return the union of two sets of subtasks."""
    return {id: subtasks.get(id, EMPTY) | more.get(id, EMPTY) for id in dict.fromkeys([*subtasks, *more])}


def count_of(subtasks: Subtasks) -> int:
    """Count subtasks."""
    return sum(numbers.count for numbers in subtasks.values())


def texts(subtasks: Subtasks) -> dict[str, str]:
    """Return subtasks as in messages and files: `{"counts": "0-3,7"}`."""
    return {id: str(numbers) for id, numbers in subtasks.items()}


@dataclass(frozen=True, slots=True)
class Loss:
    """The reason that the tasks of a worker are lost.

    cause: what happened to it, for people.
    error: what the job ends with where they may not be started again.
    is_unresponsive: whether its heartbeats are missing.
    """

    cause: str
    error: EngineError
    is_unresponsive: bool = False


class Restarts:
    """Limits how often an attempt restarts tasks. most: restarts within WITHIN_EPOCHS complete epochs."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._at: list[int] = []
        self._raised: dict[RaisedAt, int] = {}

    def pause(self, epochs: int) -> float | None:
        """Return the seconds before lost tasks restart; None after too many restarts.

        epochs: completed so far by the attempt.
        """
        self._at = [at for at in self._at if epochs - at < WITHIN_EPOCHS]
        if len(self._at) >= self.most:
            return None
        before = len(self._at)
        self._at.append(epochs)
        return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** (before - 1)) if before else 0.0


    def raised_again(self, at: RaisedAt, epochs: int) -> bool:
        """Tell whether a function has raised there before, not long ago: then it will always."""
        before, self._raised[at] = self._raised.get(at), epochs
        return before is not None and epochs - before < WITHIN_EPOCHS

    def exhausted(self, losses: Mapping[int, Loss]) -> EngineError:
        """Return the error of the job when `pause` is None."""
        error = next((loss.error for loss in losses.values() if loss.error.exit_code == JobFailed.exit_code), None)
        if error is not None or not self.most:
            return error or next(iter(losses.values())).error
        last = next(iter(losses.values())).error
        times = "once" if self.most == 1 else f"{self.most} times"
        return EngineStopped(
            f"{last.message}; tasks have been restarted {times} within {WITHIN_EPOCHS} epochs, which is as often as "
            "--restarts allows",
            hint=last.hint,
        )


@dataclass(frozen=True, slots=True)
class TakenAgain:
    """Lost tasks took their steps again, from the epoch to where they had come.

    steps: that survivors knew of.
    determinant_bytes: of all schedules that were sent to those tasks.
    buffer_bytes: kept by all workers then.
    """

    steps: int
    determinant_bytes: int
    buffer_bytes: int


@dataclass(frozen=True, slots=True)
class Recovery:
    """Tasks restarted in a running attempt while the others went on.

    number: from 1 within the attempt.
    epoch: from which they restarted.
    cause: what was lost, for people.
    workers: that were lost.
    subtasks: that restarted, by operator.
    untouched: tasks that went on.
    replayed: records that sources read again, as far as the lost workers had said how far they were.
    lost_at: Unix time.
    seconds: from the loss until what restarted had caught up.
    again: what it took for them to take their steps again; None where they took none again.
    """

    number: int
    epoch: int
    cause: str
    workers: tuple[int, ...]
    subtasks: dict[str, Ranges]
    untouched: int
    replayed: int
    lost_at: float
    seconds: float
    again: TakenAgain | None = None


@dataclass(slots=True)
class Unrecovered:
    """A recovery that is under way; one that begins before another has ended goes on as the same.

    begun: by the clock of `time.monotonic`.
    dropped: by worker, records that what restarts had read.
    restored: of these, read before the epoch that it restarts from.
    kept: by worker, bytes of frames.
    by_worker: the newest loss of each worker.
    taken: steps that are taken again, and bytes of the schedules; None where none are.
    """

    number: int
    lost_at: float
    begun: float
    causes: list[str] = field(default_factory=list)
    workers: set[int] = field(default_factory=set)
    subtasks: dict[str, Ranges] = field(default_factory=dict)
    epoch: int = 0
    dropped: dict[int, int] = field(default_factory=dict)
    restored: dict[int, int] = field(default_factory=dict)
    kept: dict[int, int] = field(default_factory=dict)
    by_worker: dict[int, Loss] = field(default_factory=dict)
    taken: tuple[int, int] | None = None

    def again(self, determinant_bytes: int, steps: int) -> None:
        """The lost tasks are sent these schedules, to take so many steps again."""
        self.taken = steps, determinant_bytes

    def goes_back(self, lost: Iterable[int], causes: Iterable[str], subtasks: Subtasks, epoch: int) -> None:
        """For these causes, the loss of these workers among them, these tasks restart from the epoch, too."""
        self.causes += causes
        self.workers.update(lost)
        self.subtasks = merged(self.subtasks, subtasks)
        self.epoch = epoch
        self.taken = None

    def ended(self, topology: Topology, now: float) -> Recovery:
        """Return the recovery, now that all restarted tasks have caught up."""
        again = [count - self.restored.get(number, 0) for number, count in self.dropped.items()]
        return Recovery(
            number=self.number,
            epoch=self.epoch,
            cause="; ".join(self.causes),
            workers=tuple(sorted(self.workers)),
            subtasks=self.subtasks,
            untouched=count_of(everything(topology)) - count_of(self.subtasks),
            replayed=sum(max(0, count) for count in again),
            lost_at=self.lost_at,
            seconds=now - self.begun,
            again=TakenAgain(*self.taken, sum(self.kept.values())) if self.taken is not None else None,
        )
