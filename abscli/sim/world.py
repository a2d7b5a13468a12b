"""The whole simulated job, one step at a time: tasks, channels, messages, the coordinator, the disk, and what fails.

A crash takes everything and the job starts again from the disk (a full recovery). A loss takes one task and what the
planner says must restart with it; the others go on (a live partial recovery, rule 10).

Everything here is a dictionary of values that are replaced, never changed, so that a world can be copied and compared;
only tasks and the coordinator change, and `interned` looks their steps up instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, assert_never

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
from abscli.sim.disk import Disk
from abscli.sim.losses import recovery_of
from abscli.sim.model import Model, Record
from abscli.sim.properties import (
    Violation,
    check_cut,
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

Step = tuple[Any, ...]
"""What a scheduler may let happen next, in words: ("deliver", "a/0->b/1", 2)."""

WIDTHS = (1, 2, 3)
"""Parallelisms that a rescale tries."""

Mail = tuple[str, Any, int]
"""A message to the coordinator: its kind, its subject (an epoch, a task, a channel), and the attempt of who sent it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of each may happen in a run.

    epochs: that the clock triggers; the end takes more of itself.
    """

    epochs: int = 3
    max_concurrent: int = 2
    crashes: int = 0
    losses: int = 0
    lost_acks: int = 0
    timeouts: int = 0
    rescales: int = 0


class World:
    """One run of a job under a policy, from the empty state to its end."""

    def __init__(self, model: Model, policy: Policy, limits: Limits) -> None:
        self.model = model
        self.policy = policy
        self.limits = limits
        self.disk = Disk()
        self.history: dict[str, tuple[Record, ...]] = dict.fromkeys(model.channels, ())
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
        self.tasks: dict[str, Any] = {}
        self.channels: dict[str, tuple[Item | Barrier, ...]] = dict.fromkeys(self.model.channels, ())
        self.notices: dict[str, tuple[TaskEvent, ...]] = dict.fromkeys(self.model.tasks, ())
        self.mail: dict[str, tuple[Mail, ...]] = dict.fromkeys((*self.model.tasks, "detector"), ())
        self.writes: tuple[Part, ...] = ()
        self.manifests: tuple[int, ...] = ()
        self.stored: tuple[int, ...] = ()
        self.dead: frozenset[str] = frozenset()
        for task in self.model.tasks:
            self.start(task, self.disk.attempt, first)
        for name in self.model.channels:
            self.refill(name)
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

    def start(self, task: str, attempt: int, first_epoch: int) -> None:
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
                received={c.name: base.received(c.name, task) for c in self.model.inputs[task]} if base else None,
            )
        )  # fmt: skip

    def refill(self, name: str) -> None:
        """A channel between two tasks that start begins with its log; what was sent beyond the cut is forgotten."""
        base, channel = self.disk.base, self.model.channels[name]
        sent = base.sent(name) if base else 0
        first = base.received(name, channel.receiver) + 1 if base else 1
        log = base.log(name, channel.receiver) if base else ()
        self.history[name] = self.history[name][:sent]
        self.channels[name] = tuple(Item(first + i, record) for i, record in enumerate(log))

    # -- what the interned explorer replaces --------------------------------------------------------------

    def stand_in(self, machine: SimulatedTask | Coordinator) -> Any:
        """What stands for a new task or coordinator."""
        return machine

    def simulated(self, task: str) -> SimulatedTask:
        """A task, to look at."""
        simulated: SimulatedTask = self.tasks[task]
        return simulated

    @property
    def coordinator_now(self) -> Coordinator:
        """The coordinator, to look at."""
        coordinator: Coordinator = self.coordinator
        return coordinator

    def _handle(self, task: str, event: TaskEvent) -> list[Effect]:
        return self.simulated(task).handle(event)

    def _read(self, task: str, count: int) -> list[Effect]:
        return self.simulated(task).read(count)

    def save(self, change: str, *arguments: Any) -> None:
        """The disk is changed, by one of its methods."""
        self.disk = getattr(self.disk, change)(*arguments)

    def _answer(self, event: CoordinatorEvent) -> list[CoordinatorAction]:
        return self.coordinator_now.on(event)

    # -- steps --------------------------------------------------------------------------------------------

    def enabled(self) -> list[Step]:
        """All that may happen next but for failures, in a fixed order."""
        steps: list[Step] = []
        for name, items in self.channels.items():
            if items:
                receiver = self.model.channels[name].receiver
                if receiver not in self.dead and name not in self.simulated(receiver).machine.blocked:
                    steps.append(("deliver", name, 1))
        for task in self.model.sources:
            if task not in self.dead and not self.simulated(task).machine.finished:
                steps.append(("read", task, 1))
        steps += [("persist", part.task, part.epoch) for part in self.writes]
        steps += [("notice", task) for task, events in self.notices.items() if events]
        steps += [("mail", task) for task, messages in self.mail.items() if messages]
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
            steps += [("lose-ack", task) for task, mail in self.mail.items() if mail and mail[0][0] == "ack"]
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
            case ("deliver", name, count):
                self._deliver(name, count)
            case ("read", task, count):
                self._apply(task, self._read(task, count))
            case ("persist", task, epoch):
                part = next(p for p in self.writes if (p.task, p.epoch) == (task, epoch))
                self.writes = tuple(p for p in self.writes if p is not part)
                self.save("with_part", part)
                self._tell(task, Persisted(epoch))
            case ("notice", task):
                event, *rest = self.notices[task]
                self.notices[task] = tuple(rest)
                self._notice(task, event)
            case ("mail", task):
                message, *others = self.mail[task]
                self.mail[task] = tuple(others)
                self._open(task, message)
            case ("stale", index):
                message = self.stale[index]
                self.stale = self.stale[:index] + self.stale[index + 1 :]
                self._open("", message)
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

    def _deliver(self, name: str, count: int) -> None:
        items = self.channels[name]
        channel = self.model.channels[name]
        head = items[0]
        if isinstance(head, Barrier):
            self.channels[name] = items[1:]
            self._tell(channel.receiver, BarrierArrived(name, head.epoch))
            return
        taken: list[Record] = []
        while len(taken) < min(count, len(items)) and isinstance(item := items[len(taken)], Item):
            taken.append(item.record)
        self.channels[name] = items[len(taken) :]
        batch = tuple(taken)
        check_order(channel, head.number, batch, self.history[name])
        self._tell(channel.receiver, RecordsArrived(name, head.number, len(batch), batch))

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
        self.history = {name: snapshot.log(name, c.receiver) for name, c in model.channels.items()}
        self.crash()

    def lose(self, task: str) -> None:
        """A task dies, and with it what the planner says must restart; the coordinator hears of it by and by."""
        lost, replayed = recovery_of(self.model, task)
        self.went_back = True
        self._kill(lost)
        self.mail["detector"] += (("lost", TasksLost(lost, replayed), 0),)

    def _kill(self, tasks: frozenset[str]) -> None:
        self.dead |= tasks
        self.writes = tuple(part for part in self.writes if part.task not in tasks)
        for name in tasks:
            self.notices[name] = ()

    def stop(self, attempt: int, tasks: frozenset[str], floor: int) -> None:
        """Those that restart send nothing any more, also where they still run; the others hear of it."""
        self._kill(tasks)
        base = self.disk.base
        for task in self.model.tasks:
            if task in tasks:
                continue
            replayed = Counts(
                (c.name, base.sent(c.name) if base else 0) for c in self.model.inputs[task] if c.sender in tasks
            )
            self.notices[task] += (PeersRestarted(attempt, floor, replayed),)

    def restart(self, attempt: int, tasks: frozenset[str]) -> None:
        """The lost tasks start from the newest complete epoch, their channels with what belongs on them."""
        base = self.disk.base
        first = self.disk.begun + 1
        self.dead -= tasks
        for task in self.model.tasks:
            if task in tasks:
                self.notices[task] = ()
                self.start(task, attempt, first)
        for name, channel in self.model.channels.items():
            if channel.receiver not in tasks:
                continue
            if channel.sender in tasks:
                self.refill(name)
            else:  # a replayable edge: the survivor's output since the epoch comes from its own log
                received = base.received(name, channel.receiver) if base else 0
                self.channels[name] = tuple(
                    Item(received + 1 + i, record) for i, record in enumerate(self.history[name][received:])
                )

    # -- effects of tasks ---------------------------------------------------------------------------------

    def _tell(self, task: str, event: TaskEvent) -> None:
        self._apply(task, self._handle(task, event))

    def _apply(self, task: str, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Put(name, item):
                    self._put(name, item)
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

    def _put(self, name: str, item: Item | Barrier) -> None:
        if isinstance(item, Item):
            history = self.history[name]
            if item.number <= len(history):
                check_replay(self.model.channels[name], item.number, item.record, history)
            else:
                self.history[name] = (*history, item.record)
        self.channels[name] += (item,)

    def _notice(self, task: str, event: TaskEvent) -> None:
        """What the coordinator tells a task; a driver empties replayed channels in the same step."""
        if isinstance(event, PeersRestarted):
            for name, sent in event.replayed.items():
                unread = tuple(i for i in self.channels[name] if isinstance(i, Item) and i.number <= sent)
                self.channels[name] = unread
                self.history[name] = self.history[name][: max(sent, self.simulated(task).machine.received[name])]
            self._tell(task, event)
            self.mail[task] += (("stopped", task, event.attempt),)
        else:
            self._tell(task, event)

    # -- the coordinator ----------------------------------------------------------------------------------

    def _open(self, task: str, message: Mail) -> None:
        kind, subject, attempt = message
        match kind:
            case "ack":
                # An ack of an earlier life names its task too: the queue that it came through is gone.
                sender, epoch = subject if isinstance(subject, tuple) else (task, subject)
                self.ask(self._ack(sender, epoch, attempt))
            case "ended":
                self.ask(SourceEnded(subject))
            case "caught-up":
                self.ask(ChannelCaughtUp(subject, attempt))
            case "stopped":
                self.ask(Stopped(subject, attempt))
            case "lost":
                self.ask(subject)

    def _ack(self, task: str, epoch: int, attempt: int) -> Acked:
        part = self.disk.part(task, epoch)
        if part is None:
            return Acked(task, epoch, attempt, sent=Counts(), received=Counts())
        logged = sum(len(records) for _, records in part.logs)
        return Acked(task, epoch, attempt, part.finished, logged, Counts(part.sent), Counts(part.received))

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

    def _announce(self, event: TaskEvent, tasks: Iterable[str]) -> None:
        for task in tasks:
            if task not in self.dead:
                self.notices[task] += (event,)

    def _write_manifest(self, epoch: int) -> None:
        on_disk = {task: self.disk.part(task, epoch) for task in self.model.tasks}
        check_parts(epoch, self.disk.triggered[epoch], on_disk)
        parts = {task: part for task, part in on_disk.items() if part is not None}
        check_cut(self.model, self.policy, epoch, parts, self.history)
        self.save("completes", epoch, tuple(parts.values()))
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
        for name, records in self.history.items():
            if base is None or base.log(name, self.model.channels[name].receiver) or base.sent(name) < len(records):
                raise Violation("idle", f"the job ends, and records were on {name} at the cut or came after it")
        for name, items in self.channels.items():
            if any(isinstance(item, Item) for item in items):
                raise Violation("idle", f"the job ends, and {name} still holds records")
        for task in self.model.tasks:
            if task not in self.dead and self.simulated(task).owed:
                raise Violation("idle", f"the job ends, and {task} still owes rows")
