"""The simulated job on workers that keep schedules: what they learn, say and keep while nothing is lost.

The rules are L1 to L4 and L8 of `abscli.protocol.schedule`. What goes over a connection carries what its sender's
worker has learned; each channel between two workers has a connection of its own, since that is where their order ends.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from abscli.protocol.causal import Knowledge
from abscli.protocol.events import (
    Aborted,
    BarrierArrived,
    PeersRestarted,
    RecordsArrived,
    TaskEvent,
    Triggered,
)
from abscli.protocol.kept import KeptFrames
from abscli.protocol.policy import Policy
from abscli.protocol.schedule import Delta, Step, StepKind
from abscli.sim.local.situations import LocalSituation
from abscli.sim.losses import worker_of_task
from abscli.sim.model import Model
from abscli.sim.task import Barrier, Item
from abscli.sim.world import Limits, World
from formats.ids import ChannelId, TaskId

Cut = tuple[int, int]
"""Where a task made a copy: the line, and the position behind the mark."""


class RecordingWorld(World):
    """A run on `limits.workers` workers that record the steps of their tasks.

    knowledge, kept: of each worker.
    carried: by channel, what each item of it brings.
    cuts: where each task made the copies that may become complete.
    states: what each task's state was behind each step, to hold against what it is when the step is taken again.
    """

    def __init__(self, model: Model, policy: Policy, limits: Limits) -> None:
        self.situations: frozenset[LocalSituation] = frozenset()
        super().__init__(model, policy, limits)

    def begin(self) -> None:
        self.knowledge: dict[int, Any] = {}
        self.kept: dict[int, Any] = {}
        for worker in range(self.limits.workers):
            self.new_worker(worker)
        self.carried: dict[ChannelId, tuple[tuple[Delta, ...], ...]] = dict.fromkeys(self.model.channels, ())
        self.cuts: dict[tuple[TaskId, int], Cut] = {}
        self.states: dict[TaskId, dict[int, Hashable]] = {task: {} for task in self.model.tasks}
        for task in self.model.tasks:
            self.know(task, "begin", task, self.disk.attempt + 1)
        for channel in self.model.channels:
            self.connect(channel)
        super().begin()
        for channel in self.model.channels:
            self.keep(channel, "begin", channel, self.disk.last)

    # -- workers ----------------------------------------------------------------------------------------------

    def worker(self, task: TaskId) -> int:
        """Where a task is."""
        return worker_of_task(self.model, task, self.limits.workers)

    def tasks_of(self, worker: int) -> frozenset[TaskId]:
        """What is on a worker."""
        return frozenset(task for task in self.model.tasks if self.worker(task) == worker)

    def crosses(self, channel: ChannelId) -> bool:
        """Whether a channel leads to another worker."""
        return self.worker(channel.sender) != self.worker(channel.receiver)

    def new_worker(self, worker: int) -> None:
        """A worker's process begins: it knows and keeps nothing."""
        self.knowledge[worker] = self.keeper(Knowledge())
        self.kept[worker] = self.keeper(KeptFrames(self.limits.kept))

    def keeper(self, keeper: Knowledge | KeptFrames) -> Any:
        """What stands for what a worker knows or keeps."""
        return keeper

    def known(self, worker: int) -> Knowledge:
        """What a worker knows, to look at."""
        knowledge: Knowledge = self.knowledge[worker]
        return knowledge

    def frames(self, worker: int) -> KeptFrames:
        """What a worker keeps, to look at."""
        frames: KeptFrames = self.kept[worker]
        return frames

    def know(self, place: TaskId | int, change: str, *arguments: Any) -> Any:
        """A worker, or that of a task, learns or says something: a method of `Knowledge`."""
        worker = place if isinstance(place, int) else self.worker(place)
        return self._change(self.knowledge, worker, change, *arguments)

    def keep(self, channel: ChannelId, change: str, *arguments: Any) -> Any:
        """The worker that sends on a channel keeps or forgets something: a method of `KeptFrames`."""
        return self._change(self.kept, self.worker(channel.sender), change, *arguments)

    def _change(self, keepers: dict[int, Any], worker: int, change: str, *arguments: Any) -> Any:
        return getattr(keepers[worker], change)(*arguments)

    def connect(self, channel: ChannelId) -> None:
        """The sender's connection begins, or begins anew."""
        if self.crosses(channel):
            self.know(channel.sender, "connect", channel)

    def happens(self, situation: LocalSituation) -> None:
        """A run has come to it."""
        self.situations |= {situation}

    # -- what goes over a channel -----------------------------------------------------------------------------

    def refill(self, channel: ChannelId) -> None:
        super().refill(channel)
        self.carried[channel] = ((),) * len(self.channels[channel])

    def _put(self, channel: ChannelId, item: Item | Barrier) -> None:
        super()._put(channel, item)
        news: tuple[Delta, ...] = ()
        if self.crosses(channel) and channel.receiver not in self.dead:
            news = self._news(channel)
        self.carried[channel] += (news,)
        if isinstance(item, Item):
            self.keep(channel, "records", channel, item.number, 1, 1, item.record)
        else:
            self.keep(channel, "barrier", channel, item.epoch, item.watermark)

    def _news(self, channel: ChannelId) -> tuple[Delta, ...]:
        news: tuple[Delta, ...] = self.know(channel.sender, "news", channel)
        return news

    def _take(self, channel: ChannelId, count: int) -> None:
        brought = self.carried[channel][:count]
        self.carried[channel] = self.carried[channel][count:]
        super()._take(channel, count)
        for deltas in brought:
            if deltas:
                self._merge(channel, deltas)

    def _merge(self, channel: ChannelId, deltas: tuple[Delta, ...]) -> None:
        """What a frame brings is learned before the frame is given to its task, or dropped."""
        known = self.known(self.worker(channel.receiver))
        for delta in deltas:
            schedule = known.schedule(delta.task)
            is_news = schedule is None or schedule.end < delta.end
            if is_news and self.worker(delta.task) != self.worker(channel.sender):
                self.happens(LocalSituation.THIRD)
        self.know(channel.receiver, "merge", deltas)

    def _deliver(self, channel: ChannelId, count: int) -> None:
        head, machine = self.channels[channel][0], self.simulated(channel.receiver).machine
        if isinstance(head, Item) and head.number <= machine.received[channel] and self.carried[channel][0]:
            self.happens(LocalSituation.DROPPED)
        super()._deliver(channel, count)

    def _complete(self, worker: int, epoch: int) -> None:
        """A worker that has heard of a complete epoch forgets what nobody will ask for any more."""
        self.know(worker, "complete", epoch)
        self._change(self.kept, worker, "complete", epoch)

    # -- what is recorded -------------------------------------------------------------------------------------

    def _tell(self, task: TaskId, event: TaskEvent) -> None:
        machine = self.simulated(task).machine
        copied, received = machine.copied, dict(machine.received)
        effects = self._handle(task, event)
        self._record_watermark(task, event, copied)
        self._record(task, self._step_of(task, event, received))
        if not isinstance(event, PeersRestarted):
            self._record_copy(task, copied)
        self._remember(task)
        self._apply(task, effects)

    def _read_on(self, task: TaskId, count: int) -> None:
        before = dict(self.simulated(task).positions)
        effects = self._read(task, count)
        self._record(task, self._read_step(task, before))
        self._remember(task)
        self._apply(task, effects)

    def _read_step(self, task: TaskId, before: dict[int, int]) -> Step:
        """Rows of one split, or the end of all."""
        after = self.simulated(task).positions
        rows = [(split, at - before.get(split, 0)) for split, at in after.items() if at > before.get(split, 0)]
        return Step(StepKind.RECORDS, *rows[0]) if rows else Step(StepKind.END)

    def _step_of(self, task: TaskId, event: TaskEvent, received: dict[ChannelId, int]) -> Step | None:
        """What an event is in the schedule; None for what nothing depends on."""
        machine = self.simulated(task).machine
        match event:
            case RecordsArrived(channel):
                new = machine.received[channel] - received[channel]
                return Step(StepKind.RECORDS, machine.inputs.index(channel), new) if new else None
            case BarrierArrived(channel, epoch):
                return Step(StepKind.BARRIER, machine.inputs.index(channel), epoch) if epoch >= machine.floor else None
            case Triggered(epoch):
                return Step(StepKind.TRIGGER, 0, epoch)
            case Aborted(epoch):
                return Step(StepKind.ABORT, 0, epoch)
            case PeersRestarted(_, floor):
                return Step(StepKind.STOP, 0, floor)
            case _:
                return None

    def _record(self, task: TaskId, step: Step | None) -> None:
        if step is not None:
            self.know(task, "record", task, step)

    def _record_watermark(self, task: TaskId, event: TaskEvent, before: int) -> None:
        """That of a copy, before the step that brings it about (L12)."""
        machine = self.simulated(task).machine
        if machine.copied > before and machine.watermark is not None and not isinstance(event, PeersRestarted):
            self._record(task, Step.of_watermark(machine.watermark))

    def _record_copy(self, task: TaskId, before: int) -> None:
        """A copy is marked, and behind the mark stands again what its part does not say (L2)."""
        machine = self.simulated(task).machine
        if machine.copied == before:
            return
        self._record(task, Step(StepKind.COPIED, 0, machine.copied))
        self.cuts[task, machine.copied] = self._at(task)
        for event in machine.ahead():
            self._record(task, self._ahead_step(task, event))

    def _ahead_step(self, task: TaskId, event: TaskEvent) -> Step | None:
        if isinstance(event, BarrierArrived):
            place = self.simulated(task).machine.inputs.index(event.channel)
            return Step(StepKind.MARKED, place, event.epoch)
        return self._step_of(task, event, {})

    def _at(self, task: TaskId) -> Cut:
        """The line and position that a task is at."""
        schedule = self.known(self.worker(task)).schedule(task)
        assert schedule is not None, f"{task} runs"
        return schedule.line, schedule.end

    def _remember(self, task: TaskId) -> None:
        """A step is taken for the first time: its state is what it has to be when the step is taken again."""
        _, at = self._at(task)
        self.states[task] = {**self.states[task], at: self._state(task)}

    def _state(self, task: TaskId) -> Hashable:
        simulated = self.simulated(task)
        machine = simulated.machine
        return hash((
            tuple(sorted(simulated.seen.items())), tuple(simulated.owed), tuple(simulated.pending),
            tuple(sorted(simulated.waiting.items())),
            tuple(sorted(simulated.positions.items())), tuple(sorted(simulated.turns.items())), machine.finished,
            tuple(machine.sent.items()), tuple(machine.received.items()), machine.watermark,
        ))  # fmt: skip
