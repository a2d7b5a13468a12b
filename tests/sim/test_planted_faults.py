"""Every check can fail: a fault is planted in the protocol, the driver or the disk, and the simulator finds it.

The names of the rules are those of `abscli.protocol.task` (R), `abscli.protocol.coordinator` (C), and of the design's
list for drivers (D): D2 logs of several epochs, D3 loops do not starve barriers, D4 a copy is not touched by what
comes later and an aborted epoch swallows no changes, D7 a restored log comes first, D8 `rebalance` counts in its state,
D9 only complete epochs become visible. Of timers: T1 they wait for event time, T2 they come before the copy and its
barrier, T3 their rows are state, from which what has fired is removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from abscli.protocol import turns
from abscli.protocol.coordinator import Coordinator, NextEpoch
from abscli.protocol.events import (
    Ack,
    Acked,
    BarrierArrived,
    ChannelCaughtUp,
    CoordinatorAction,
    CoordinatorEvent,
    Copy,
    Flush,
    Forward,
    Log,
    PeersRestarted,
    Persist,
    Process,
    RecordsArrived,
    Stopped,
    TaskAction,
    TaskEvent,
)
from abscli.protocol.policy import Policy
from abscli.protocol.task import Task
from abscli.sim import scheduler
from abscli.sim import task as sim_task
from abscli.sim import world as sim_world
from abscli.sim.model import Record
from abscli.sim.scheduler import run
from abscli.sim.task import Barrier, Effect, Item, Part, Reveal, SimulatedTask, Write
from abscli.sim.world import Limits, World
from formats.ids import ChannelId
from formats.job.model import Topology
from tests.support.sim.jobs import (
    NARROW_CHAIN,
    ONCE_AN_EPOCH,
    PEERS,
    SELF_LOOP,
    TIMERS,
    TWO_INPUTS,
    TWO_TASK_LOOP,
    graph,
    model,
)

# -- the task -------------------------------------------------------------------------------------------------


class NeverBlocks(Task):
    """A regular input goes on being read after its barrier."""

    def on(self, event: TaskEvent) -> list[TaskAction]:
        actions = super().on(event)
        self.blocked -= self.regular
        return actions


class NeverHolds(Task):
    """A back edge whose barrier comes before the copy goes on being read."""

    def on(self, event: TaskEvent) -> list[TaskAction]:
        actions = super().on(event)
        self.blocked -= self.back
        return actions


class LogsNothing(Task):
    """What is on a back edge at the cut is forgotten."""

    def on(self, event: TaskEvent) -> list[TaskAction]:
        return [action for action in super().on(event) if not isinstance(action, Log)]


class OpensLogsLate(Task):
    """The first batch after the copy is not logged."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.missed: set[tuple[int, str]] = set()

    def on(self, event: TaskEvent) -> list[TaskAction]:
        return [action for action in map(self.late, super().on(event)) if action is not None]

    def late(self, action: TaskAction) -> TaskAction | None:
        if not isinstance(action, Log):
            return action
        open_by_now = tuple(epoch for epoch in action.epochs if (epoch, action.channel) in self.missed)
        self.missed |= {(epoch, action.channel) for epoch in action.epochs}
        return replace(action, epochs=open_by_now) if open_by_now else None


class ClosesLogsEarly(Task):
    """The barrier of one back edge closes the logs of all."""

    def _close_log(self, channel: str, epoch: int) -> list[TaskAction]:
        self._logging.get(epoch, set()).clear()
        return self._persist_if_whole(epoch) if epoch in self._logging else []


class LogsOneEpoch(Task):
    """With two epochs open, a record goes into the log of the newest only."""

    def on(self, event: TaskEvent) -> list[TaskAction]:
        return [replace(a, epochs=a.epochs[-1:]) if isinstance(a, Log) else a for a in super().on(event)]


class ForwardsBeforeCopy(Task):
    """The barrier goes on when the first input delivers it; the copy waits for the last."""

    def on(self, event: TaskEvent) -> list[TaskAction]:
        early: list[TaskAction] = []
        if isinstance(event, BarrierArrived) and event.epoch > self.copied and event.epoch not in self._marked:
            early = [Forward(event.epoch)]
        late = [a for a in super().on(event) if self.is_source or not isinstance(a, Forward)]
        return early + late


class FlushesBehind(Task):
    """What is owed for the epoch is sent behind its barrier."""

    def on(self, event: TaskEvent) -> list[TaskAction]:
        actions = super().on(event)
        flushes = [a for a in actions if isinstance(a, Flush)]
        rest = [a for a in actions if not isinstance(a, Flush)]
        at = next((i for i, a in enumerate(rest) if isinstance(a, Copy)), 0)
        swapped = [a for a in rest if isinstance(a, Forward)]
        others = [a for a in rest if not isinstance(a, Forward)]
        return [*others[:at], *swapped, *flushes, *others[at:]] if flushes else actions


class AcksBeforePersist(Task):
    """The ack goes out when the write has only begun."""

    def on(self, event: TaskEvent) -> list[TaskAction]:
        actions: list[TaskAction] = []
        for action in super().on(event):
            actions += [action, Ack(action.epoch)] if isinstance(action, Persist) else [action]
        return actions


class TakesAllAgain(Task):
    """What a restarted sender sends again is processed again."""

    def _records(self, event: RecordsArrived) -> list[TaskAction]:
        known = event.channel in self._replayed
        actions = [a for a in super()._records(event) if not (known and isinstance(a, Process))]
        return [*actions, Process(event.channel, event.count, event.batch)] if known else actions


class ForgetsReceived(Task):
    """Restored counters of what was received start from nothing."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **{**more, "received": {}})


class ForgetsSent(Task):
    """Restored counters of what was sent start from nothing."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **{**more, "sent": {}})


class TakesTheHighest(Task):
    """The watermark is that of the input that has come furthest."""

    @property
    def _lowest(self) -> int | None:
        return max((w for w in self._heard.values() if w is not None), default=None)


class HearsBackEdges(Task):
    """A back edge's watermark counts as that of any other input."""

    def _hear(self, watermarks: Mapping[ChannelId, int | None]) -> None:
        self._heard = {**dict.fromkeys(self.inputs), **self._heard, **watermarks}


class HearsAhead(Task):
    """What a barrier says counts for the copy of an older epoch."""

    def _barrier(self, channel: ChannelId, epoch: int, watermark: int | None) -> list[TaskAction]:
        self._hear({channel: watermark})
        return super()._barrier(channel, epoch, watermark)

    def _advance(self) -> int | None:
        for marked in self._marked.values():
            self._hear(marked)
        return super()._advance()


class SaysNeverBehind(Task):
    """An ack does not say that event time has come further than its copy."""

    def is_behind(self, watermark: int | None) -> bool:
        return False


# -- the coordinator ------------------------------------------------------------------------------------------


class StoresEarly(Coordinator):
    """The manifest is written before the last ack."""

    def _store_next(self) -> list[CoordinatorAction]:
        early = [epoch for epoch, acks in self._acks.items() if len(acks) == len(self.tasks) - 1]
        for epoch in early:
            (missing,) = self.missing(epoch)
            self._acks[epoch][missing] = Acked(missing, epoch, self.attempt)
        return super()._store_next()


class FencesNothing(Coordinator):
    """What an older attempt says counts."""

    def on(self, event: CoordinatorEvent) -> list[CoordinatorAction]:
        if isinstance(event, Acked | Stopped | ChannelCaughtUp):
            event = replace(event, attempt=self.attempt)
        return super().on(event)


class TriggersTooEarly(Coordinator):
    """An epoch begins while a task still drops what it knows."""

    def on(self, event: CoordinatorEvent) -> list[CoordinatorAction]:
        self._behind.clear()
        return super().on(event)


class RestartsTooEarly(Coordinator):
    """Lost tasks restart before the others have dropped their open epochs."""

    def on(self, event: CoordinatorEvent) -> list[CoordinatorAction]:
        self._unstopped = self._unstopped and set()
        return super().on(event)


class BeginsAnyNumber(Coordinator):
    """An epoch begins however many are open."""

    def next_epoch(self, open_epochs: int | None = None) -> NextEpoch:
        return super().next_epoch(0)


class FollowsNothingUp(Coordinator):
    """When only what circulates is awaited, no epoch looks whether it still does."""

    def next_epoch(self, open_epochs: int | None = None) -> NextEpoch:
        begins = super().next_epoch(open_epochs)
        return NextEpoch.AFTER_INTERVAL if begins is NextEpoch.AFTER_PAUSE else begins


class EndsWithFullLogs(Coordinator):
    """Records in logs do not count when the job is found idle."""

    def _is_idle(self, acks: dict[str, Acked]) -> bool:
        return super()._is_idle({task: replace(ack, logged=0, sent={}, received={}) for task, ack in acks.items()})


# -- the driver and the disk ----------------------------------------------------------------------------------


class CopiesByReference(SimulatedTask):
    """What is written is the state at the time of the write."""

    def _persist(self, epoch: int) -> Write:
        written = super()._persist(epoch).part
        now = tuple(sorted((value, self.seen[value]) for value in self.changed | dict(written.changed)))
        return Write(replace(written, changed=now))


class ForgetsChanges(SimulatedTask):
    """Changes count as written as soon as they are copied, whatever becomes of the epoch."""

    def _copy(self, epoch: int) -> list[Effect]:
        effects = super()._copy(epoch)
        self.changed.clear()
        return effects


class FiresEarly(SimulatedTask):
    """A timer comes one step of event time too early."""

    def _fire(self, watermark: int | None) -> list[Record]:
        return super()._fire(None if watermark is None else watermark + 1)


class FiresInTheNextEpoch(SimulatedTask):
    """What is due waits for the barrier after this one."""

    heard: int | None = None

    def _fire(self, watermark: int | None) -> list[Record]:
        before, self.heard = self.heard, watermark
        return super()._fire(before)


class FiresBehindTheBarrier(Task):
    """Timers that a barrier's watermark makes due send behind it."""

    def on(self, event: TaskEvent) -> list[TaskAction]:
        actions = super().on(event)
        flushes = [action for action in actions if isinstance(action, Flush)]
        return [action for action in actions if action not in flushes] + flushes


class KeepsWhatHasFired(SimulatedTask):
    """That a row was removed is not written."""

    def _fire(self, watermark: int | None) -> list[Record]:
        fired = super()._fire(watermark)
        self.touched = {row: copied for row, copied in self.touched.items() if self.waiting[row]}
        return fired


class ForgetsTimers(SimulatedTask):
    """Rows with timers are not part of the state."""

    def _copy(self, epoch: int) -> list[Effect]:
        touched, self.touched = self.touched, {}
        effects = super()._copy(epoch)
        self.touched = touched
        return effects


class ForgetsRemovals(SimulatedTask):
    """Rows that were removed count as written as soon as they are copied, whatever becomes of the epoch."""

    def _copy(self, epoch: int) -> list[Effect]:
        effects = super()._copy(epoch)
        self.touched = {row: copied for row, copied in self.touched.items() if self.waiting[row]}
        return effects


class ForgetsTurns(SimulatedTask):
    """The counter of `rebalance` is not part of the state."""

    def _copy(self, epoch: int) -> list[Effect]:
        turns, self.turns = self.turns, {}
        effects = super()._copy(epoch)
        self.turns = turns
        return effects


class ShowsEarly(SimulatedTask):
    """A sink shows its output when its own part is durable."""

    def handle(self, event: TaskEvent) -> list[Effect]:
        effects = super().handle(event)
        early = [Reveal(e.subject) for e in effects if getattr(e, "kind", "") == "ack" and isinstance(e.subject, int)]  # type: ignore[union-attr]
        return effects + (early if self.name in self.model.sinks else [])


class ForgetsUnreadLogs(World):
    """A restored log that has not been read is thrown away when its sender restarts once more."""

    def _notice(self, task: str, event: TaskEvent) -> None:
        if isinstance(event, PeersRestarted):
            for name in event.replayed:
                self.channels[name] = ()
        super()._notice(task, event)


class LogsBehindInput(World):
    """A restored log comes after the first new record."""

    held: dict[str, tuple[Item | Barrier, ...]] = {}

    def refill(self, name: str) -> None:
        super().refill(name)
        self.held = {**self.held, name: self.channels[name]}
        self.channels[name] = ()

    def _put(self, name: str, item: Item | Barrier) -> None:
        super()._put(name, item)
        self.channels[name] += self.held.get(name, ())
        self.held = {**self.held, name: ()}


class LosesParts(World):
    """A part that was acked is not there when the manifest is written."""

    def save(self, change: str, *arguments: Any) -> None:
        if change == "with_part" and isinstance(part := arguments[0], Part) and part.epoch % 2:
            return
        super().save(change, *arguments)


CRASHES = Limits(epochs=3, max_concurrent=2, crashes=1)
LOSSES = Limits(epochs=3, max_concurrent=1, losses=2)
ABORTS = Limits(epochs=4, max_concurrent=2, timeouts=2)
CONCURRENT = Limits(epochs=4, max_concurrent=3)


@dataclass(frozen=True)
class Fault:
    """Where a fault is planted, which rule it breaks, the job and the policy that show it, and what is noticed."""

    fault: type
    rule: str
    job: Topology
    found: str
    policy: Policy = Policy.ALIGNED
    limits: Limits = CRASHES

    def __str__(self) -> str:
        return f"{self.rule}-{self.fault.__name__}-{self.policy}"


FAULTS = [
    Fault(NeverBlocks, "R1", TWO_INPUTS, "orphan"),
    Fault(NeverHolds, "R4", PEERS, "orphan"),
    Fault(NeverHolds, "R4", PEERS, "orphan", Policy.AT_LEAST_ONCE),
    Fault(LogsNothing, "R5", SELF_LOOP, "conservation"),
    Fault(LogsNothing, "R5", TWO_INPUTS, "conservation", Policy.UNALIGNED),
    Fault(LogsNothing, "R5", SELF_LOOP, "conservation", Policy.AT_LEAST_ONCE),
    Fault(OpensLogsLate, "R3", TWO_TASK_LOOP, "conservation"),
    Fault(OpensLogsLate, "R3", TWO_INPUTS, "conservation", Policy.UNALIGNED),
    Fault(ClosesLogsEarly, "R6", TWO_TASK_LOOP, "conservation"),
    Fault(ClosesLogsEarly, "R6", graph("s>c t>c u>c c>d", c=2), "conservation", Policy.UNALIGNED),
    Fault(LogsOneEpoch, "D2", TWO_TASK_LOOP, "conservation", limits=CONCURRENT),
    Fault(LogsOneEpoch, "D2", TWO_INPUTS, "conservation", Policy.UNALIGNED, limits=CONCURRENT),
    Fault(ForwardsBeforeCopy, "R3", graph("s>c t>c c>d"), "conservation"),
    Fault(FlushesBehind, "R3", ONCE_AN_EPOCH, "conservation"),
    Fault(AcksBeforePersist, "R6", TWO_INPUTS, "durable"),
    Fault(TakesAllAgain, "R10", NARROW_CHAIN, "exactly-once", limits=LOSSES),
    Fault(ForgetsReceived, "R10", TWO_INPUTS, "protocol"),
    Fault(ForgetsSent, "R10", TWO_INPUTS, "replay"),
    Fault(TakesTheHighest, "R11", TWO_INPUTS, "watermark"),
    Fault(HearsBackEdges, "R11", SELF_LOOP, "idle", limits=CONCURRENT),
    Fault(HearsAhead, "R11", TWO_INPUTS, "watermark", Policy.AT_LEAST_ONCE, limits=replace(CONCURRENT, crashes=2)),
    Fault(SaysNeverBehind, "C5", TWO_INPUTS, "idle", Policy.UNALIGNED),
    Fault(StoresEarly, "C3", TWO_INPUTS, "durable"),
    Fault(FencesNothing, "C2", NARROW_CHAIN, "protocol", limits=replace(LOSSES, losses=4)),
    Fault(TriggersTooEarly, "C8", NARROW_CHAIN, "orphan", limits=LOSSES),
    Fault(BeginsAnyNumber, "C1", TWO_INPUTS, "concurrent", limits=CONCURRENT),
    Fault(FollowsNothingUp, "C9", SELF_LOOP, "deadlock"),
    Fault(RestartsTooEarly, "C7", NARROW_CHAIN, "protocol", limits=LOSSES),
    Fault(EndsWithFullLogs, "C5", SELF_LOOP, "idle"),
    Fault(CopiesByReference, "D4", TWO_TASK_LOOP, "exactly-once"),
    Fault(ForgetsChanges, "D4", TWO_INPUTS, "exactly-once", limits=ABORTS),
    Fault(FiresEarly, "T1", TIMERS, "timer"),
    Fault(FiresInTheNextEpoch, "T2", TIMERS, "timer"),
    Fault(FiresBehindTheBarrier, "T2", TIMERS, "watermark"),
    Fault(KeepsWhatHasFired, "T3", TIMERS, "timer"),
    Fault(ForgetsTimers, "T3", TIMERS, "exactly-once"),
    Fault(ForgetsRemovals, "T3", TIMERS, "timer", limits=replace(ABORTS, timeouts=4)),
    Fault(ForgetsTurns, "D8", NARROW_CHAIN, "replay", limits=LOSSES),
    Fault(ShowsEarly, "D9", TWO_INPUTS, "visible"),
    Fault(LogsBehindInput, "D7", TWO_TASK_LOOP, "order"),
    Fault(ForgetsUnreadLogs, "D7", PEERS, "conservation", Policy.UNALIGNED, limits=replace(LOSSES, losses=4)),
    Fault(LosesParts, "R6", TWO_INPUTS, "durable"),
]

PLACES = {
    Task: (sim_task, "Task"),
    Coordinator: (sim_world, "Coordinator"),
    SimulatedTask: (sim_world, "SimulatedTask"),
    World: (scheduler, "World"),
}


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_planted_fault_is_found(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name = next(place for kind, place in PLACES.items() if issubclass(fault.fault, kind))
    monkeypatch.setattr(module, name, fault.fault)
    seen = []
    for seed in range(600):
        outcome = run(model(fault.job), fault.policy, fault.limits, seed)
        if outcome.rule is not None:
            seen.append(outcome.rule)
            if outcome.rule == fault.found:
                return
    pytest.fail(f"{fault}: found {sorted(set(seen))}, not {fault.found!r}")


@pytest.mark.sample(10)
@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_without_it_nothing_is_found(fault: Fault) -> None:
    for seed in range(25):
        assert run(model(fault.job), fault.policy, fault.limits, seed).message is None


@pytest.mark.integration
def test_d3_a_loop_that_starves_a_barrier_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = model(SELF_LOOP, records=3, rounds=1_500)
    found = {run(busy, Policy.ALIGNED, Limits(epochs=1), seed).rule for seed in range(6)}
    assert found == {None}
    monkeypatch.setattr(scheduler, "Turns", lambda: turns.Turns(bound=10**9))
    found = {run(busy, Policy.ALIGNED, Limits(epochs=1), seed).rule for seed in range(6)}
    assert "starvation" in found
