"""Every rule of local recovery (L1 to L12 of `abscli.protocol.schedule`) is needed: without it the simulator finds a
run that is wrong."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from msgspec.structs import replace as changed

from abscli.protocol import causal
from abscli.protocol.causal import Knowledge
from abscli.protocol.events import BarrierArrived, PeersRestarted, TaskEvent
from abscli.protocol.kept import KeptFrames
from abscli.protocol.policy import Policy
from abscli.protocol.schedule import Delta, Schedule, Step, StepKind
from abscli.sim import scheduler
from abscli.sim.disk import Snapshot
from abscli.sim.local import recording, world
from abscli.sim.local.world import LocalWorld
from abscli.sim.losses import local_recovery_of
from abscli.sim.model import Model
from abscli.sim.scheduler import run
from abscli.sim.task import Item
from abscli.sim.world import Limits, World
from formats.ids import ChannelId, TaskId
from formats.job.model import Topology
from tests.support.sim.jobs import ONCE_AN_EPOCH, PEERS, TWO_INPUTS, graph, model

MOST = 1500
"""Runs in which a fault has to be seen."""


def left_out(kind: StepKind) -> type[LocalWorld]:
    """A world whose schedules lack a kind of step."""

    class LeavesOut(LocalWorld):
        def _record(self, task: TaskId, step: Step | None) -> None:
            if step is not None and step.kind is not kind:
                super()._record(task, step)

    LeavesOut.__name__ = f"LeavesOut{kind.name.title()}"
    return LeavesOut


class SaysOnlyItsOwn(LocalWorld):
    """A frame carries the schedules of its sender's worker's own tasks."""

    def _news(self, channel: ChannelId) -> tuple[Delta, ...]:
        own = self.tasks_of(self.worker(channel.sender))
        return tuple(delta for delta in super()._news(channel) if delta.task in own)


class SaysNothing(LocalWorld):
    """A frame carries no schedules."""

    def _news(self, channel: ChannelId) -> tuple[Delta, ...]:
        super()._news(channel)
        return ()


class CountsByPeer(LocalWorld):
    """What was said to a worker on one connection is not said on another."""

    def connect(self, channel: ChannelId) -> None:
        if self.crosses(channel):
            self.know(channel.sender, "connect", self.worker(channel.receiver))

    def _news(self, channel: ChannelId) -> tuple[Delta, ...]:
        news: tuple[Delta, ...] = self.know(channel.sender, "news", self.worker(channel.receiver))
        return news


class LearnsNothingFromDropped(LocalWorld):
    """What a frame brings is thrown away with it."""

    dropping = False

    def _deliver(self, channel: ChannelId, count: int) -> None:
        head = self.channels[channel][0]
        received = self.simulated(channel.receiver).machine.received[channel]
        self.dropping = isinstance(head, Item) and head.number <= received
        super()._deliver(channel, count)
        self.dropping = False

    def _merge(self, channel: ChannelId, deltas: tuple[Delta, ...]) -> None:
        if not self.dropping:
            super()._merge(channel, deltas)


class AnswersFirst(LocalWorld):
    """A worker says what it knows when it is asked, and takes frames of the lost one until its tasks have stopped."""

    def stop(self, attempt: int, tasks: frozenset[TaskId], floor: int) -> None:
        super().stop(attempt, tasks, floor)
        self.early = {worker: self.known(worker).report() for worker in self.knowledge if worker not in self.gone}

    def _notice(self, task: TaskId, event: TaskEvent) -> None:
        super()._notice(task, event)
        if isinstance(event, PeersRestarted):
            self.reports = {worker: self.early[worker] for worker in self.reports}


class KnowsItsOwnOnly(LocalWorld):
    """A replacement is told the schedules of its own tasks."""

    def _take_over(self, worker: int, learned: Iterable[Delta]) -> None:
        own = self.tasks_of(worker)
        super()._take_over(worker, [delta for delta in learned if delta.task in own])


class PushesBack(LocalWorld):
    """The inputs of a task that takes its steps again have room for as much as any."""

    def _queued(self, channel: ChannelId) -> int:
        if channel.receiver in self.again:
            return sum(isinstance(item, Item) for item in self.channels[channel])
        return super()._queued(channel)


class TakesTheSendersCounters(LocalWorld):
    """A restarted receiver has what its sender had sent, less its log."""

    def received(self, task: TaskId, base: Snapshot) -> dict[ChannelId, int]:
        return World.received(self, task, base)


class TakesItsCopyAsItIs(LocalWorld):
    """At least once, what a copy contains of a lost sender's later output counts as received."""

    def _copy_is_ahead(self, task: TaskId, tasks: frozenset[TaskId]) -> bool:
        return False


class BelievesAllLines(Knowledge):
    """A schedule of a dead line is believed where it is longer."""

    def merge(self, deltas: Iterable[Delta]) -> None:
        for delta in deltas:
            schedule = self.schedule(delta.task)
            if schedule is None or delta.line >= schedule.line or delta.end <= schedule.end:
                super().merge((delta,))
                continue
            believed = Schedule(delta.task, schedule.line, delta.start)
            believed.merge(replace(delta, line=schedule.line, at=delta.start))
            self._schedules[delta.task] = believed
            self._changed(delta.task)


class DropsFramesEarly(KeptFrames):
    """With an epoch, the frames behind the barrier of the next go too."""

    def complete(self, epoch: int) -> None:
        super().complete(epoch)
        since = dict(self._since)
        super().complete(epoch + 1)
        self._since = since


class ForgetsBarriers(KeptFrames):
    """Barriers are not kept."""

    def behind(self, channel: ChannelId, epoch: int) -> list[Any]:
        return [frame for frame in super().behind(channel, epoch) if hasattr(frame, "first")]


class HidesHoles(KeptFrames):
    """Past the bound a worker does not say so."""

    def holes(self, epoch: int, channels: Any = None) -> list[ChannelId]:
        return []


class RaisesTheFloorAtOnce(LocalWorld):
    """Epochs that were given up are dropped while steps are taken again."""

    def start(self, task: TaskId, attempt: int, first_epoch: int) -> None:
        super().start(task, attempt, self.disk.begun + 1)


class TakesBarriersTwice(LocalWorld):
    """A barrier that comes again while steps are taken again is taken for another."""

    def _event_again(self, task: TaskId, step: Step) -> TaskEvent:
        event = super()._event_again(task, step)
        self.passed = dict.fromkeys(self.passed, 0)
        return event


class NotesDroppedBarriers(LocalWorld):
    """A barrier below the floor is a step."""

    def _step_of(self, task: TaskId, event: TaskEvent, received: dict[ChannelId, int]) -> Step | None:
        if isinstance(event, BarrierArrived):
            return Step(StepKind.BARRIER, self.simulated(task).machine.inputs.index(event.channel), event.epoch)
        return super()._step_of(task, event, received)


class AnswersAtTheEnd(LocalWorld):
    """A task that takes its steps again answers a stop when it has taken them."""

    def enabled(self) -> list[Any]:
        return [step for step in super().enabled() if step[0] != "notice" or step[1] not in self.again]


def spreads_nowhere(model: Model, tasks: frozenset[TaskId]) -> tuple[frozenset[TaskId], frozenset[TaskId]]:
    """Nobody goes back with a task that cannot repeat itself."""
    _, back = local_recovery_of(model, tasks)
    return tasks, back & tasks


ONE = Limits(epochs=2, max_concurrent=1, losses=1, workers=3)
TWO = Limits(epochs=2, max_concurrent=1, losses=2, workers=3)
MANY = Limits(epochs=4, max_concurrent=2, losses=4, workers=3)
SOME = Limits(epochs=4, max_concurrent=3, losses=3, lost_acks=1, timeouts=2, workers=3)
FULL = Limits(epochs=2, max_concurrent=1, losses=3, workers=4, capacity=1)
SHUFFLE = graph("s>a a>b b>c", s=2, a=2, b=2, c=2)


def unrepeatable(topology: Topology, *ids: str) -> Topology:
    """The job, with operators that are marked `deterministic: false`."""
    operators = tuple(changed(op, deterministic=op.id not in ids) for op in topology.operators)
    return changed(topology, operators=operators)


MIXED = unrepeatable(graph("s>a a>b b>c c>d t>c", s=2, a=2, b=2, c=2), "a")


@dataclass(frozen=True)
class Fault:
    """A fault, the rule that it breaks, and the job, policy and losses that show it."""

    fault: Any
    rule: str
    job: Topology = SHUFFLE
    limits: Limits = TWO
    policy: Policy = Policy.ALIGNED
    place: tuple[Any, str] = (scheduler, "LocalWorld")

    def __str__(self) -> str:
        return f"{self.rule}-{self.fault.__name__}-{self.policy}"


FAULTS = [
    Fault(left_out(StepKind.RECORDS), "L1"),
    Fault(left_out(StepKind.BARRIER), "L1"),
    Fault(left_out(StepKind.TRIGGER), "L1"),
    Fault(left_out(StepKind.ABORT), "L1", ONCE_AN_EPOCH, SOME),
    Fault(left_out(StepKind.STOP), "L1", ONCE_AN_EPOCH, MANY),
    Fault(left_out(StepKind.END), "L1", limits=MANY),
    Fault(left_out(StepKind.MARKED), "L2", TWO_INPUTS, SOME, Policy.AT_LEAST_ONCE),
    Fault(left_out(StepKind.COPIED), "L2"),
    Fault(NotesDroppedBarriers, "L1", PEERS, MANY),
    Fault(SaysNothing, "L3", limits=ONE),
    Fault(SaysOnlyItsOwn, "L3"),
    Fault(CountsByPeer, "L3", PEERS),
    Fault(LearnsNothingFromDropped, "L3"),
    Fault(BelievesAllLines, "L5", MIXED, MANY, place=(recording, "Knowledge")),
    Fault(AnswersFirst, "L6", limits=ONE),
    Fault(KnowsItsOwnOnly, "L7", limits=MANY),
    Fault(DropsFramesEarly, "L8", limits=MANY, place=(recording, "KeptFrames")),
    Fault(ForgetsBarriers, "L8", place=(recording, "KeptFrames")),
    Fault(HidesHoles, "L8", limits=replace(TWO, kept=3), place=(recording, "KeptFrames")),
    Fault(RaisesTheFloorAtOnce, "L9", ONCE_AN_EPOCH, MANY),
    Fault(TakesBarriersTwice, "L9", PEERS, MANY),
    Fault(AnswersAtTheEnd, "L9", limits=MANY),
    Fault(TakesTheSendersCounters, "L9", TWO_INPUTS, SOME, Policy.AT_LEAST_ONCE),
    Fault(TakesItsCopyAsItIs, "L9", PEERS, SOME, Policy.AT_LEAST_ONCE),
    Fault(PushesBack, "L10", limits=FULL),
    Fault(left_out(StepKind.WATERMARK), "L12", TWO_INPUTS, SOME, Policy.UNALIGNED),
    Fault(spreads_nowhere, "L11", MIXED, MANY, place=(world, "local_recovery_of")),
]


def plant(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name = fault.place
    monkeypatch.setattr(module, name, fault.fault)
    if fault.fault is BelievesAllLines:
        monkeypatch.setattr(causal, "Knowledge", fault.fault)


@pytest.mark.sample(12)
@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_planted_fault_is_found(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(fault, monkeypatch)
    job = model(fault.job)
    assert any(run(job, fault.policy, fault.limits, seed).rule is not None for seed in range(MOST))


@pytest.mark.sample(8)
@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_without_it_nothing_is_found(fault: Fault) -> None:
    for seed in range(20):
        assert run(model(fault.job), fault.policy, fault.limits, seed).message is None
