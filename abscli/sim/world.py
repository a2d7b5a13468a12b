"""The whole simulated job, one step at a time: tasks, channels, messages, the coordinator, the disk, and what fails.

A crash takes everything and the job starts again from the disk (a full recovery). A loss takes one task and what the
planner says must restart with it; the others go on (a live partial recovery, rule 10).

Everything here is a dictionary of values that are replaced, never changed, so that a world can be copied and compared;
only tasks and the coordinator change, and `interned` looks their steps up instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, assert_never

from abscli.protocol.coordinator import Coordinator, NextEpoch
from abscli.protocol.events import (
    Abort,
    Aborted,
    Acked,
    BarrierArrived,
    ChannelCaughtUp,
    Complete,
    Completed,
    CoordinatorAction,
    CoordinatorEvent,
    Finish,
    PeersRestarted,
    Persisted,
    RecordsArrived,
    Restart,
    SourceEnded,
    Stop,
    Stopped,
    Store,
    Stored,
    TaskEvent,
    TasksLost,
    TimedOut,
    Trigger,
    TriggerDue,
    Triggered,
)
from abscli.protocol.policy import Policy
from abscli.sim.disk import Disk, Snapshot
from abscli.sim.losses import recovery_of
from abscli.sim.model import Model, Record
from abscli.sim.properties import (
    Violation,
    check_cut,
    check_due,
    check_none_due,
    check_on_time,
    check_open,
    check_order,
    check_output,
    check_parts,
    check_replay,
    check_reveal,
    check_seen,
)
from abscli.sim.rescale import may_rescale, rescaled, with_parallelism
from abscli.sim.task import Barrier, Counts, Effect, Item, Part, Put, Reveal, SimulatedTask, Staged, Tell, Write
from formats.ids import ChannelId, TaskId
from formats.watermark import END

Step = tuple[Any, ...]
"""What a scheduler may let happen next: a word, and what it happens to: ("deliver", ChannelId of a/0->b/1, 2)."""

WIDTHS = (1, 2, 3)
"""Parallelisms that a rescale tries."""

DETECTOR: Final = "detector"
Sender = TaskId | Literal["detector"]
"""Who has messages for the coordinator: the tasks, and what finds out that some are lost."""

Mail = tuple[str, Any, int]
"""A message to the coordinator: its kind, its subject (an epoch, a task, a channel), and the attempt of who sent it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of each may happen in a run.

    epochs: that the clock triggers; the end takes more of itself.
    workers: 0: tasks are lost one by one, and the planner's set restarts; else workers are, and their tasks take their
    steps again (`local`).
    capacity: records that a channel holds before its sender has to wait; 0: any number. Of workers only.
    kept: records that a worker keeps for those that restart; None: all. Of workers only.
    """

    epochs: int = 3
    max_concurrent: int = 2
    crashes: int = 0
    losses: int = 0
    lost_acks: int = 0
    timeouts: int = 0
    rescales: int = 0
    workers: int = 0
    capacity: int = 0
    kept: int | None = None


class World:
    """One run of a job under a policy, from the empty state to its end."""

    def __init__(self, model: Model, policy: Policy, limits: Limits) -> None:
        self.model = model
        self.policy = policy
        self.limits = limits
        self.disk = Disk()
        self.history: dict[ChannelId, tuple[Record, ...]] = dict.fromkeys(model.channels, ())
        self.ticks = limits.epochs
        self.crashes = limits.crashes
        self.losses = limits.losses
        self.lost_acks = limits.lost_acks
        self.timeouts = limits.timeouts
        self.rescales = limits.rescales
        self.stale: tuple[Mail, ...] = ()
        self.hopeless: frozenset[int] = frozenset()
        self.went_back = False
        self.completed = 0
        self.begin()

    # -- lives --------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A life begins from the disk alone: all tasks, empty queues but for restored logs, a new coordinator."""
        self.save("next_life")
        self.finished = False
        first = self.disk.begun + 1
        self.tasks: dict[TaskId, Any] = {}
        self.channels: dict[ChannelId, tuple[Item | Barrier, ...]] = dict.fromkeys(self.model.channels, ())
        self.notices: dict[TaskId, tuple[TaskEvent, ...]] = dict.fromkeys(self.model.tasks, ())
        self.mail: dict[Sender, tuple[Mail, ...]] = dict.fromkeys((*self.model.tasks, DETECTOR), ())
        self.writes: tuple[Part, ...] = ()
        self.manifests: tuple[int, ...] = ()
        self.stored: tuple[int, ...] = ()
        self.dead: frozenset[TaskId] = frozenset()
        for task in self.model.tasks:
            self.start(task, self.disk.attempt, first)
        for channel in self.model.channels:
            self.refill(channel)
        base = self.disk.base
        self.coordinator: Any = self.stand_in(
            Coordinator(
                self.model.tasks,
                self.model.sources,
                attempt=self.disk.attempt,
                first_epoch=first,
                parent=self.disk.last,
                max_concurrent=self.limits.max_concurrent,
                ended=[task for task in self.model.sources if base and base.parts[task].finished],
            )
        )
        if self.coordinator_now.next_epoch() is NextEpoch.AT_ONCE:
            self.ask(TriggerDue())

    def start(self, task: TaskId, attempt: int, first_epoch: int) -> None:
        """A task starts from the newest complete epoch; a sink settles its output first."""
        base = self.disk.base
        if task in self.model.sinks:
            self.save("settles", task)
        self.tasks[task] = self.stand_in(
            SimulatedTask(
                self.model, task, self.policy, attempt, first_epoch,
                base=self.disk.last,
                restored=base.parts[task] if base else None,
                seen=base.seen[task] if base else None,
                waiting=base.waiting.get(task) if base else None,
                received=self.received(task, base) if base else None,
            )
        )  # fmt: skip

    def received(self, task: TaskId, base: Snapshot) -> dict[ChannelId, int]:
        """What a task has of its channels when it starts from a snapshot."""
        return {channel.id: base.received(channel.id) for channel in self.model.inputs[task]}

    def refill(self, channel: ChannelId) -> None:
        """A channel between two tasks that start begins with its log; what was sent beyond the cut is forgotten."""
        base = self.disk.base
        sent = base.sent(channel) if base else 0
        first = base.received(channel) + 1 if base else 1
        log = base.log(channel) if base else ()
        self.history[channel] = self.history[channel][:sent]
        self.channels[channel] = tuple(Item(first + i, record) for i, record in enumerate(log))

    # -- what the interned explorer replaces --------------------------------------------------------------

    def stand_in(self, machine: SimulatedTask | Coordinator) -> Any:
        """What stands for a new task or coordinator."""
        return machine

    def simulated(self, task: TaskId) -> SimulatedTask:
        """A task, to look at."""
        simulated: SimulatedTask = self.tasks[task]
        return simulated

    @property
    def coordinator_now(self) -> Coordinator:
        """The coordinator, to look at."""
        coordinator: Coordinator = self.coordinator
        return coordinator

    def _handle(self, task: TaskId, event: TaskEvent) -> list[Effect]:
        return self.simulated(task).handle(event)

    def _read(self, task: TaskId, count: int) -> list[Effect]:
        return self.simulated(task).read(count)

    def save(self, change: str, *arguments: Any) -> None:
        """The disk is changed, by one of its methods."""
        self.disk = getattr(self.disk, change)(*arguments)

    def _answer(self, event: CoordinatorEvent) -> list[CoordinatorAction]:
        return self.coordinator_now.on(event)

    @property
    def is_recovering(self) -> bool:
        """Whether a task is not yet where it was when it was lost."""
        return False

    # -- steps --------------------------------------------------------------------------------------------

    def enabled(self) -> list[Step]:
        """All that may happen next but for failures, in a fixed order."""
        steps: list[Step] = []
        for channel, items in self.channels.items():
            if items:
                receiver = channel.receiver
                if receiver not in self.dead and channel not in self.simulated(receiver).machine.blocked:
                    steps.append(("deliver", channel, 1))
        for task in self.model.sources:
            if task not in self.dead and not self.simulated(task).machine.finished:
                steps.append(("read", task, 1))
        steps += [("persist", part.task, part.epoch) for part in self.writes]
        steps += [("notice", task) for task, events in self.notices.items() if events]
        steps += [("mail", sender) for sender, messages in self.mail.items() if messages]
        steps += [("manifest", epoch) for epoch in self.manifests]
        steps += [("stored", epoch) for epoch in self.stored]
        if self._may_tick():
            steps.append(("tick",))
        return steps

    def possible(self) -> list[Step]:
        """The failures that may still happen now."""
        steps: list[Step] = []
        coordinator = self.coordinator_now
        if self.crashes:
            steps.append(("crash",))
        if self.rescales and self.disk.last:
            widths = {op.id: op.parallelism for op in self.model.topology.operators if may_rescale(self.model, op.id)}
            steps += [("rescale", id, p) for id, width in widths.items() for p in WIDTHS if p != width]
        if self.losses:
            steps += [("lose", task) for task in self.model.tasks if task not in self.dead]
        if self.lost_acks:
            steps += [("lose-ack", sender) for sender, mail in self.mail.items() if mail and mail[0][0] == "ack"]
        late = coordinator.open_epochs[:1] if self.timeouts else ()
        steps += [("time-out", epoch) for epoch in coordinator.open_epochs if epoch in late or epoch in self.hopeless]
        return steps + [("stale", i) for i in range(len(self.stale))]

    def _may_tick(self) -> bool:
        """Whether the clock may come to the time of the next epoch. It stands still until a loss is heard of: what
        began in between would be given up then."""
        if self.dead:
            return False
        begins = self.coordinator_now.next_epoch()
        return begins is NextEpoch.AFTER_PAUSE or (begins is NextEpoch.AFTER_INTERVAL and self.ticks > 0)

    def do(self, step: Step) -> None:
        """Let a step happen; Violation or ProtocolError if it breaks a rule."""
        match step:
            case ("deliver", channel, count):
                self._deliver(channel, count)
            case ("read", task, count):
                self._read_on(task, count)
            case ("persist", task, epoch):
                part = next(p for p in self.writes if (p.task, p.epoch) == (task, epoch))
                self.writes = tuple(p for p in self.writes if p is not part)
                self.save("with_part", part)
                self._tell(task, Persisted(epoch))
            case ("notice", task):
                event, *rest = self.notices[task]
                self.notices[task] = tuple(rest)
                self._notice(task, event)
            case ("mail", sender):
                message, *others = self.mail[sender]
                self.mail[sender] = tuple(others)
                self._open(sender, message)
            case ("stale", index):
                message = self.stale[index]
                self.stale = self.stale[:index] + self.stale[index + 1 :]
                self._open(None, message)
            case ("manifest", epoch):
                self.manifests = tuple(e for e in self.manifests if e != epoch)
                self._write_manifest(epoch)
                self.stored += (epoch,)
            case ("stored", epoch):
                self.stored = tuple(e for e in self.stored if e != epoch)
                self.ask(Stored(epoch))
            case ("tick",):
                self.ticks -= self.coordinator_now.next_epoch() is NextEpoch.AFTER_INTERVAL
                self.ask(TriggerDue())
            case ("time-out", epoch):
                self.timeouts -= epoch not in self.hopeless
                self.ask(TimedOut(epoch))
            case ("lose-ack", task):
                self.lost_acks -= 1
                self.hopeless |= {self.mail[task][0][1]}
                self.mail[task] = self.mail[task][1:]
            case ("crash",):
                self.crashes -= 1
                self.crash()
            case ("rescale", operator, parallelism):
                self.rescales -= 1
                self.rescale(operator, parallelism)
            case ("lose", task):
                self.losses -= 1
                self.lose(task)
            case _:
                raise ValueError(f"no step {step}")

    def _read_on(self, task: TaskId, count: int) -> None:
        self._apply(task, self._read(task, count))

    def _take(self, channel: ChannelId, count: int) -> None:
        """The first items leave the channel."""
        self.channels[channel] = self.channels[channel][count:]

    def _deliver(self, channel: ChannelId, count: int) -> None:
        items = self.channels[channel]
        head = items[0]
        if isinstance(head, Barrier):
            self._take(channel, 1)
            self._tell(channel.receiver, BarrierArrived(channel, head.epoch, head.watermark))
            return
        taken: list[Record] = []
        while len(taken) < min(count, len(items)) and isinstance(item := items[len(taken)], Item):
            taken.append(item.record)
        self._take(channel, len(taken))
        batch = tuple(taken)
        check_order(channel, head.number, batch, self.history[channel])
        if not self.model.back:  # what circulates is as late as it likes
            machine = self.simulated(channel.receiver).machine
            check_on_time(channel, batch[max(0, machine.received[channel] + 1 - head.number) :], machine.watermark)
        self._tell(channel.receiver, RecordsArrived(channel, head.number, len(batch), batch))

    # -- failures --------------------------------------------------------------------------------------------------

    def crash(self) -> None:
        """The coordinator and all tasks die; acks that were on their way may still arrive in the next life."""
        self.stale += tuple(
            (kind, (task, epoch), attempt)
            for task, messages in self.mail.items()
            for kind, epoch, attempt in messages
            if kind == "ack"
        )
        self.went_back = True
        self.begin()

    def rescale(self, operator: str, parallelism: int) -> None:
        """The job dies and is restored with another parallelism, where its logs can be taken over."""
        model = with_parallelism(self.model, operator, parallelism)
        base = self.disk.base
        snapshot = rescaled(self.model, model, base) if base else None
        if snapshot is None:
            return
        for task in self.model.tasks:
            if task in self.model.sinks:
                self.save("settles", task)
        self.save("rescaled", snapshot)
        self.model = model
        self.history = {channel: snapshot.log(channel) for channel in model.channels}
        self.crash()

    def lose(self, task: TaskId) -> None:
        """A task dies, and with it what the planner says must restart; the coordinator hears of it by and by."""
        lost, replayed = recovery_of(self.model, task)
        self.went_back = True
        self._kill(lost)
        self.mail[DETECTOR] += (("lost", TasksLost(lost, replayed), 0),)

    def _kill(self, tasks: frozenset[TaskId]) -> None:
        self.dead |= tasks
        self.writes = tuple(part for part in self.writes if part.task not in tasks)
        for task in tasks:
            self.notices[task] = ()

    def stop(self, attempt: int, tasks: frozenset[TaskId], floor: int) -> None:
        """Those that restart send nothing any more, also where they still run; the others hear of it."""
        self._kill(tasks)
        base = self.disk.base
        for task in self.model.tasks:
            if task in tasks or task in self.dead:  # who is lost and not missed yet does not answer
                continue
            replayed = Counts(
                (c.id, base.sent(c.id) if base else 0) for c in self.model.inputs[task] if c.id.sender in tasks
            )
            self.notices[task] += (PeersRestarted(attempt, floor, replayed),)

    def restart(self, attempt: int, tasks: frozenset[TaskId]) -> None:
        """The lost tasks start from the newest complete epoch, their channels with what belongs on them."""
        base = self.disk.base
        first = self.disk.begun + 1
        self.dead -= tasks
        for task in self.model.tasks:
            if task in tasks:
                self.notices[task] = ()
                self.start(task, attempt, first)
        for channel in self.model.channels:
            if channel.receiver not in tasks:
                continue
            if channel.sender in tasks:
                self.refill(channel)
            else:  # a replayable edge: the survivor's output since the epoch comes from its own log
                received = base.received(channel) if base else 0
                self.channels[channel] = tuple(
                    Item(received + 1 + i, record) for i, record in enumerate(self.history[channel][received:])
                )

    # -- effects of tasks ---------------------------------------------------------------------------------

    def _tell(self, task: TaskId, event: TaskEvent) -> None:
        self._apply(task, self._handle(task, event))

    def _apply(self, task: TaskId, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Put(channel, item):
                    self._put(channel, item)
                case Write(part):
                    self.writes += (part,)
                case Staged(epoch, rows):
                    self.save("stages", task, epoch, rows)
                case Reveal(epoch):
                    check_reveal(task, epoch, epoch in self.disk.complete)
                    self.save("reveals", task, epoch)
                case Tell(kind, subject, attempt):
                    self.mail[task] += ((kind, subject, attempt),)
                case _:
                    assert_never(effect)

    def _put(self, channel: ChannelId, item: Item | Barrier) -> None:
        if isinstance(item, Item):
            history = self.history[channel]
            if item.number <= len(history):
                check_replay(channel, item.number, item.record, history)
            else:
                self.history[channel] = (*history, item.record)
            if self.model.has_timers(channel.sender):
                check_due(channel, item.record, self.simulated(channel.sender).machine.watermark)
        self.channels[channel] += (item,)

    def _notice(self, task: TaskId, event: TaskEvent) -> None:
        """What the coordinator tells a task; a driver empties replayed channels in the same step."""
        if isinstance(event, PeersRestarted):
            for channel, sent in event.replayed.items():
                unread = tuple(i for i in self.channels[channel] if isinstance(i, Item) and i.number <= sent)
                self.channels[channel] = unread
                received = self.simulated(task).machine.received[channel]
                self.history[channel] = self.history[channel][: max(sent, received)]
            self._tell(task, event)
            self.mail[task] += (("stopped", task, event.attempt),)
        else:
            self._tell(task, event)

    # -- the coordinator ----------------------------------------------------------------------------------

    def _open(self, sender: Sender | None, message: Mail) -> None:
        kind, subject, attempt = message
        match kind:
            case "ack":
                # An ack of an earlier life names its task too: the queue that it came through is gone.
                task, epoch = subject if isinstance(subject, tuple) else (sender, subject)
                self.ask(self._ack(task, epoch, attempt))
            case "ended":
                self.ask(SourceEnded(subject))
            case "caught-up":
                self.ask(ChannelCaughtUp(subject, attempt))
            case "stopped":
                self.ask(Stopped(subject, attempt))
            case "lost":
                self.ask(subject)

    def _ack(self, task: TaskId, epoch: int, attempt: int) -> Acked:
        part = self.disk.part(task, epoch)
        if part is None:
            return Acked(task, epoch, attempt, sent=Counts(), received=Counts())
        logged = sum(len(records) for _, records in part.logs)
        sent, received = Counts(part.sent), Counts(part.received)
        return Acked(task, epoch, attempt, part.finished, logged, sent, received, part.behind)

    def ask(self, event: CoordinatorEvent) -> None:
        for action in self._answer(event):
            match action:
                case Trigger(epoch):
                    if epoch <= self.disk.begun:
                        raise Violation("numbers", f"epoch number {epoch} is used twice")
                    check_open(self.coordinator_now.open_epochs, self.limits.max_concurrent)
                    self.save("begins", epoch, self.coordinator_now.attempt)
                    triggered = [task for task in self.model.tasks if self.simulated(task).machine.is_triggered]
                    self._announce(Triggered(epoch), triggered)
                case Store(epoch, _):
                    self.manifests += (epoch,)
                case Complete(epoch):
                    self._announce(Completed(epoch), self.model.tasks)
                case Abort(epoch, _):
                    self._announce(Aborted(epoch), self.model.tasks)
                case Stop(attempt, tasks, floor, epoch):
                    self.stop(attempt, tasks, floor)
                case Restart(attempt, tasks, _):
                    self.restart(attempt, tasks)
                case Finish():
                    self._finish()
                case _:
                    assert_never(action)

    def _announce(self, event: TaskEvent, tasks: Iterable[TaskId]) -> None:
        for task in tasks:
            if task not in self.dead:
                self.notices[task] += (event,)

    def _write_manifest(self, epoch: int) -> None:
        on_disk = {task: self.disk.part(task, epoch) for task in self.model.tasks}
        check_parts(epoch, self.disk.triggered[epoch], on_disk)
        parts = {task: part for task, part in on_disk.items() if part is not None}
        check_cut(self.model, self.policy, epoch, parts, self.history)
        self.save("completes", epoch, tuple(parts.values()))
        for task, rows in self.disk.complete[epoch].waiting.items():
            check_none_due(task, epoch, rows, parts[task].watermark)
        self.completed += 1

    def _finish(self) -> None:
        self.finished = True
        for task in self.model.tasks:
            if task in self.model.sinks:
                self.save("settles", task)
        if self.coordinator_now.idle:
            self._check_idle()
        base = self.disk.base
        check_seen(self.model, self.policy, base.by_operator() if base else {}, repeats=self.went_back)
        check_output(self.model, self.policy, self.disk.visible, repeats=self.went_back)

    def _check_idle(self) -> None:
        """Nothing is under way, and nothing has been sent since the cut: what may have been delivered in the meantime
        does not make it true."""
        base = self.disk.base
        for channel, records in self.history.items():
            if base is None or base.log(channel) or base.sent(channel) < len(records):
                raise Violation("idle", f"the job ends, and records were on {channel} at the cut or came after it")
        for channel, items in self.channels.items():
            if any(isinstance(item, Item) for item in items):
                raise Violation("idle", f"the job ends, and {channel} still holds records")
        for task in self.model.tasks:
            if task not in self.dead and (self.simulated(task).owed or self.simulated(task).waiting):
                raise Violation("idle", f"the job ends, and {task} still owes rows")
            if base is not None and base.parts[task].watermark != END:
                raise Violation("idle", f"the job ends, and {task} had not heard of the end of event time")
