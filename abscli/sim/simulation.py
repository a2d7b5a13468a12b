"""A seeded scheduler that drives the real protocol machines over a small parallel graph, with crashes.

Records are numbers with a count of rounds left; every task counts what it sees. A record leaves a task on every
regular edge, and on every back edge while it has rounds left. The scheduler picks the next event from the seed:
deliveries, reads, triggers, slow writes, late messages of dead attempts, crashes of the whole job. Every complete
epoch is checked to be a consistent cut, and the end to be the end that a run without failures has.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from abscli.protocol.coordinator import Coordinator
from abscli.protocol.events import (
    Abort,
    Aborted,
    Ack,
    Acked,
    BarrierArrived,
    Block,
    Commit,
    Complete,
    Completed,
    CoordinatorEvent,
    Copy,
    Discard,
    EndOfInput,
    Finish,
    Flush,
    Forward,
    Log,
    Persist,
    Persisted,
    Process,
    RecordsArrived,
    Sent,
    SourceEnded,
    Store,
    Stored,
    TaskEvent,
    TimedOut,
    Trigger,
    TriggerDue,
    Triggered,
    Unblock,
)
from abscli.protocol.task import Task
from formats.topology import channel_name, task_name


class Violation(AssertionError):
    """A property does not hold; the text names it, the epoch and the channel."""


class Record(NamedTuple):
    """A value on its way; rounds: how often it may still go over a back edge."""

    value: int
    rounds: int

    def over(self, back: bool) -> Record:
        """What arrives over an edge: after a back edge a round less, and the next value, which a peer may own."""
        return Record(self.value + 1, self.rounds - 1) if back else self


@dataclass(frozen=True, slots=True)
class Graph:
    """parallelism by operator; edges (from, to); back: those that close a cycle; rows: of each source task."""

    parallelism: Mapping[str, int]
    edges: tuple[tuple[str, str], ...]
    back: frozenset[tuple[str, str]]
    rows: Mapping[str, tuple[Record, ...]]

    def tasks(self) -> list[str]:
        """All task names."""
        return [task_name(op, i) for op, p in self.parallelism.items() for i in range(p)]

    def channels(self) -> Iterable[tuple[str, str, str, bool]]:
        """(channel, sender, receiver, whether it is a back edge)."""
        for source, target in self.edges:
            for i in range(self.parallelism[source]):
                for j in range(self.parallelism[target]):
                    sender, receiver = task_name(source, i), task_name(target, j)
                    yield channel_name(sender, receiver), sender, receiver, (source, target) in self.back


@dataclass(slots=True)
class Part:
    """A task's copy: what it counted, where it was, its counters and logs."""

    seen: Counter[int]
    position: int
    finished: bool
    sent: dict[str, int]
    received: dict[str, int]
    logs: dict[str, list[Record]] = field(default_factory=dict)


Barrier = int


class Simulation:
    """One run. batch: the most records delivered at once; crashes: how many lives end early."""

    def __init__(
        self, graph: Graph, seed: int, *, crashes: int = 1, max_concurrent: int = 2, batch: int = 3, epochs: int = 6
    ) -> None:
        self.graph = graph
        self.random = random.Random(seed)
        self.crashes = crashes
        self.batch = batch
        self.max_concurrent = max_concurrent
        self.epochs = epochs
        self.attempt = 0
        self.next_epoch = 1
        self.complete: dict[int, dict[str, Part]] = {0: self._nothing()}
        self.last = 0
        self.history: dict[str, list[Record]] = {}
        self.stale: list[CoordinatorEvent] = []
        self.finished = False
        self.completed_epochs = 0
        self._begin()

    def _nothing(self) -> dict[str, Part]:
        parts = {task: Part(Counter(), 0, False, {}, {}) for task in self.graph.tasks()}
        for channel, sender, receiver, _ in self.graph.channels():
            parts[sender].sent[channel] = 0
            parts[receiver].received[channel] = 0
        return parts

    # -- a life -------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self.attempt += 1
        base = self.complete[self.last]
        self.state = {task: Counter(part.seen) for task, part in base.items()}
        self.position = {task: part.position for task, part in base.items()}
        self.queues: dict[str, deque[Record | tuple[Barrier]]] = {}
        self.machines: dict[str, Task] = {}
        self.blocked: set[str] = set()
        self.copies: dict[tuple[str, int], Part] = {}
        self.writes: list[tuple[str, int]] = []
        self.to_coordinator: deque[CoordinatorEvent] = deque()
        self.to_task: dict[str, deque[TaskEvent]] = {task: deque() for task in base}
        ends: dict[str, tuple[list[str], list[str], list[str]]] = {task: ([], [], []) for task in base}
        for channel, sender, receiver, back in self.graph.channels():
            log = base[receiver].logs.get(channel, [])
            self.queues[channel] = deque(log)
            self.history[channel] = self.history.get(channel, [])[: base[sender].sent[channel]]
            ends[sender][1].append(channel)
            ends[receiver][0].append(channel)
            if back:
                ends[receiver][2].append(channel)
        for task, (inputs, outputs, backs) in ends.items():
            part = base[task]
            self.machines[task] = Task(
                task, inputs, outputs, backs, first_epoch=self.next_epoch, sent=part.sent, received=part.received,
                finished=part.finished,
            )  # fmt: skip
        self.coordinator = Coordinator(
            base,
            [task for task, machine in self.machines.items() if machine.is_source],
            attempt=self.attempt,
            first_epoch=self.next_epoch,
            parent=self.last,
            max_concurrent=self.max_concurrent,
            ended=[task for task, part in base.items() if part.finished],
        )
        if self.coordinator.draining:
            self.to_coordinator.append(TriggerDue())

    def crash(self) -> None:
        """Everything that was not durable is gone; messages of this life may still arrive in the next."""
        self.stale.extend(event for event in self.to_coordinator if isinstance(event, Acked))
        self.next_epoch += self.random.randrange(3)
        self._begin()

    # -- one step -----------------------------------------------------------------------------------------

    def run(self, steps: int = 100_000) -> None:
        """Until the job has ended; Violation if a property does not hold or it does not end."""
        for _ in range(steps):
            if self.finished:
                return
            choices = self._enabled()
            if not choices:
                raise Violation(f"deadlock in attempt {self.attempt}: open {self.coordinator.open_epochs}")
            kind, what = self.random.choice(choices)
            getattr(self, f"_do_{kind}")(what)
        raise Violation(f"no end after {steps} steps")

    def _enabled(self) -> list[tuple[str, object]]:
        choices: list[tuple[str, object]] = [
            ("deliver", channel) for channel, queue in self.queues.items() if queue and channel not in self.blocked
        ]
        choices += [("read", task) for task, m in self.machines.items() if m.is_source and not m.finished]
        choices += [("write", write) for write in self.writes]
        choices += [("notify", task) for task, events in self.to_task.items() if events]
        if self.to_coordinator:
            choices.append(("coordinate", None))
        if self.stale:
            choices.append(("stale", None))
        more = self.coordinator.draining or self.completed_epochs < self.epochs
        if more and len(self.coordinator.open_epochs) < self.max_concurrent:
            choices.append(("tick", None))
        if self.coordinator.open_epochs and self.random.random() < 0.02:
            choices.append(("time_out", self.coordinator.open_epochs[0]))
        if self.crashes and self.random.random() < 0.01:
            choices = [("crash", None)]
        return choices

    def _do_deliver(self, channel: str) -> None:
        queue = self.queues[channel]
        receiver = channel.partition("->")[2]
        head = queue[0]
        if not isinstance(head, Record):
            queue.popleft()
            self._tell(receiver, BarrierArrived(channel, head[0]))
            return
        batch: list[Record] = []
        limit = self.random.randint(1, self.batch)
        while queue and len(batch) < limit and isinstance(item := queue[0], Record):
            batch.append(item)
            queue.popleft()
        first = self.machines[receiver].received[channel] + 1
        self._tell(receiver, RecordsArrived(channel, first, len(batch), batch))

    def _do_read(self, task: str) -> None:
        rows = self.graph.rows[task]
        at = self.position[task]
        if at == len(rows):
            self._tell(task, EndOfInput())
            self.to_coordinator.append(SourceEnded(task))
            return
        count = self.random.randint(1, self.batch)
        self.position[task] = min(len(rows), at + count)
        self._emit(task, list(rows[at : at + count]))

    def _do_write(self, write: tuple[str, int]) -> None:
        self.writes.remove(write)
        self._tell(write[0], Persisted(write[1]))

    def _do_notify(self, task: str) -> None:
        self._tell(task, self.to_task[task].popleft())

    def _do_coordinate(self, _: None) -> None:
        self._coordinate(self.to_coordinator.popleft())

    def _do_stale(self, _: None) -> None:
        self._coordinate(self.stale.pop(self.random.randrange(len(self.stale))))

    def _do_tick(self, _: None) -> None:
        self._coordinate(TriggerDue())

    def _do_time_out(self, epoch: int) -> None:
        self._coordinate(TimedOut(epoch))

    def _do_crash(self, _: None) -> None:
        self.crashes -= 1
        self.crash()

    # -- actions ------------------------------------------------------------------------------------------

    def _tell(self, task: str, event: TaskEvent) -> None:
        for action in self.machines[task].on(event):
            match action:
                case Process(_, _, batch):
                    assert isinstance(batch, list)
                    self.state[task].update(record.value for record in batch)
                    self._emit(task, batch)
                case Log(channel, epochs, _, batch):
                    assert isinstance(batch, list)
                    for epoch in epochs:
                        self.copies[task, epoch].logs.setdefault(channel, []).extend(batch)
                case Block(channel):
                    self.blocked.add(channel)
                case Unblock(channel):
                    self.blocked.discard(channel)
                case Copy(epoch):
                    machine = self.machines[task]
                    self.copies[task, epoch] = Part(
                        Counter(self.state[task]), self.position[task], machine.finished, dict(machine.sent),
                        dict(machine.received),
                    )  # fmt: skip
                case Forward(epoch):
                    for channel in self.machines[task].outputs:
                        self.queues[channel].append((epoch,))
                case Persist(epoch):
                    self.writes.append((task, epoch))
                case Ack(epoch):
                    part = self.copies[task, epoch]
                    logged = sum(len(log) for log in part.logs.values())
                    self.to_coordinator.append(
                        Acked(task, epoch, self.attempt, part.finished, logged, part.sent, part.received)
                    )
                case Flush() | Commit() | Discard():
                    pass

    def _emit(self, task: str, records: list[Record]) -> None:
        operator = task.rpartition("/")[0]
        for source, target in self.graph.edges:
            if source != operator:
                continue
            back = (source, target) in self.graph.back
            for value, rounds in records:
                if back and not rounds:
                    continue
                record = Record(value, rounds).over(back)
                receiver = task_name(target, record.value % self.graph.parallelism[target])
                channel = channel_name(task, receiver)
                self.machines[task].on(Sent(channel, 1))
                self.history[channel].append(record)
                self.queues[channel].append(record)

    def _coordinate(self, event: CoordinatorEvent) -> None:
        for action in self.coordinator.on(event):
            match action:
                case Trigger(epoch):
                    if epoch < self.next_epoch:
                        raise Violation(f"epoch number {epoch} is used twice")
                    self.next_epoch = epoch + 1
                    self._tell_all(Triggered(epoch), sources_only=True)
                case Store(epoch, _):
                    parts = {task: self.copies[task, epoch] for task in self.machines}
                    check_cut(self.graph, epoch, parts, self.history)
                    self.complete[epoch] = parts
                    self.last = max(self.last, epoch)
                    self.to_coordinator.append(Stored(epoch))
                case Complete(epoch):
                    self.completed_epochs += 1
                    self._tell_all(Completed(epoch))
                case Abort(epoch, _):
                    self._tell_all(Aborted(epoch))
                case Finish():
                    self.finished = True

    def _tell_all(self, event: TaskEvent, *, sources_only: bool = False) -> None:
        for task, machine in self.machines.items():
            if machine.is_source or not sources_only:
                self.to_task[task].append(event)


def check_cut(graph: Graph, epoch: int, parts: Mapping[str, Part], history: Mapping[str, list[Record]]) -> None:
    """The cut is consistent: on every channel, what was sent and not received is just what was logged, in order."""
    for channel, sender, receiver, back in graph.channels():
        sent, received = parts[sender].sent[channel], parts[receiver].received[channel]
        log = parts[receiver].logs.get(channel, [])
        if received > sent:
            raise Violation(f"epoch {epoch}: orphan on {channel}: {received} received, {sent} sent")
        if history[channel][received:sent] != log:
            raise Violation(f"epoch {epoch}: {channel}: {sent} sent, {received} received, {len(log)} logged")
        if log and not back:
            raise Violation(f"epoch {epoch}: {channel} is regular, and {len(log)} records were logged")


def totals(simulation: Simulation) -> dict[str, Counter[int]]:
    """What each operator has seen, over all its tasks, in the last complete epoch."""
    found: dict[str, Counter[int]] = {op: Counter() for op in simulation.graph.parallelism}
    for task, part in simulation.complete[simulation.last].items():
        found[task.rpartition("/")[0]].update(part.seen)
    return found


def expected(graph: Graph) -> dict[str, Counter[int]]:
    """The same for the graph itself, without an engine: follow every record along every path."""
    found: dict[str, Counter[int]] = {op: Counter() for op in graph.parallelism}
    todo = [(task.rpartition("/")[0], record, True) for task, rows in graph.rows.items() for record in rows]
    while todo:
        operator, record, is_source = todo.pop()
        if not is_source:
            found[operator][record.value] += 1
        for source, target in graph.edges:
            if source == operator:
                back = (source, target) in graph.back
                if not back or record.rounds:
                    todo.append((target, record.over(back), False))
    return found
