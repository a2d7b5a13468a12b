"""The simulated job on workers that keep schedules: those of a lost one take their steps again, nobody else goes back.

The rules are L1 to L11 of `abscli.protocol.schedule`. What goes over a connection carries what its sender's worker has
learned; each channel between two workers has a connection of its own, since that is where their order ends.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from enum import StrEnum
from typing import Any

from abscli.protocol.causal import Knowledge, longest
from abscli.protocol.events import (
    Aborted,
    BarrierArrived,
    Completed,
    PeersRestarted,
    RecordsArrived,
    TaskEvent,
    TasksLost,
    Triggered,
)
from abscli.protocol.kept import Kept, KeptFrames, KeptRecords
from abscli.protocol.policy import Policy
from abscli.protocol.schedule import Delta, Replay, Step, StepKind
from abscli.sim.disk import Snapshot
from abscli.sim.losses import local_recovery_of, worker_of_task
from abscli.sim.model import Model
from abscli.sim.properties import Violation, check_survivor
from abscli.sim.task import Barrier, Counts, Effect, Item, Write
from abscli.sim.world import DETECTOR, Limits, World
from abscli.sim.world import Step as WorldStep
from formats.ids import ChannelId, TaskId

Cut = tuple[int, int]
"""Where a task made a copy: the line, and the position behind the mark."""


class LocalSituation(StrEnum):
    """What a run can come to that is worth having happened before the rules are believed."""

    AGAIN = "a task takes its steps again"
    BETWEEN = "both ends of a channel take their steps again"
    LOST_WAITING = "a worker is lost before the one before it restarts"
    LOST_AGAIN = "a worker is lost while it takes its steps again"
    LOST_BESIDE = "a worker is lost while another takes its steps again"
    THIRD = "steps become known by way of a third worker"
    BEHIND = "a lost worker had taken steps that nobody knows"
    DROPPED = "a frame that is known brings steps that are not"
    GIVEN_UP = "an epoch that was given up is copied again"
    AHEAD = "what was heard of later epochs before a copy is heard again"
    OVERTAKEN = "a receiver has more than its sender had sent"
    WAITED = "a sender waits for a full channel"
    PILED = "more comes for a task that takes its steps again than a channel holds"
    BACK = "tasks go back without their steps"
    EVERYTHING = "not all is kept, so that everything restarts"


class LocalWorld(World):
    """A run on `limits.workers` workers.

    knowledge, kept: of each worker.
    carried: by channel, what each item of it brings.
    cuts, based: where each task made the copies that may become complete, and the one that it would start from.
    again: tasks that take their steps again; floors: the attempt and floor that they are raised to at their end.
    came, passed: of the channels to these, the number of the last record that has come since, and the epoch of the last
    barrier that a step has taken.
    gone: workers that are lost and have not restarted.
    back: tasks that go back without their steps at the next restart.
    fresh: tasks whose line began at the newest complete epoch, not at a copy of their own.
    reports: what workers that go on have said they know.
    states: what each task's state was behind each step, to hold against what it is when the step is taken again.
    """

    def __init__(self, model: Model, policy: Policy, limits: Limits) -> None:
        self.situations: frozenset[LocalSituation] = frozenset()
        super().__init__(model, policy, limits)

    # -- lives --------------------------------------------------------------------------------------------

    def begin(self) -> None:
        workers = range(self.limits.workers)
        self.knowledge: dict[int, Any] = {worker: self.keeper(Knowledge()) for worker in workers}
        self.kept: dict[int, Any] = {worker: self.keeper(KeptFrames(self.limits.kept)) for worker in workers}
        self.carried: dict[ChannelId, tuple[tuple[Delta, ...], ...]] = dict.fromkeys(self.model.channels, ())
        self.cuts: dict[tuple[TaskId, int], Cut] = {}
        self.based: dict[TaskId, Cut] = {}
        self.again: dict[TaskId, Replay] = {}
        self.floors: dict[TaskId, tuple[int, int]] = {}
        self.came: dict[ChannelId, int] = {}
        self.passed: dict[ChannelId, int] = {}
        self.gone: frozenset[int] = frozenset()
        self.back: frozenset[TaskId] = frozenset()
        self.reports: dict[int, tuple[Delta, ...]] = {}
        self.states: dict[TaskId, dict[int, Hashable]] = {task: {} for task in self.model.tasks}
        self.may_start = self.fresh = frozenset(self.model.tasks)
        attempt = self.disk.attempt + 1
        for task in self.model.tasks:
            self.based[task] = (attempt, 0)
            self.know(task, "begin", task, attempt)
        for channel in self.model.channels:
            self.connect(channel)
        super().begin()
        for channel in self.model.channels:
            self.keep(channel, "begin", channel, self.disk.last)
        self.may_start = frozenset()

    def start(self, task: TaskId, attempt: int, first_epoch: int) -> None:
        check_survivor(task, self.may_start)
        super().start(task, attempt, first_epoch)

    def refill(self, channel: ChannelId) -> None:
        super().refill(channel)
        self.carried[channel] = ((),) * len(self.channels[channel])

    def received(self, task: TaskId, base: Snapshot) -> dict[ChannelId, int]:
        """Its own counters (L9): at least once, it may have more than its sender had sent. Not where its line began at
        the epoch: there its senders went back too, and it took again what they sent again."""
        return super().received(task, base) if task in self.fresh else dict(base.parts[task].received)

    # -- workers ------------------------------------------------------------------------------------------

    def worker(self, task: TaskId) -> int:
        """Where a task is."""
        return worker_of_task(self.model, task, self.limits.workers)

    def tasks_of(self, worker: int) -> frozenset[TaskId]:
        """What is on a worker."""
        return frozenset(task for task in self.model.tasks if self.worker(task) == worker)

    def crosses(self, channel: ChannelId) -> bool:
        """Whether a channel leads to another worker."""
        return self.worker(channel.sender) != self.worker(channel.receiver)

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

    @property
    def is_recovering(self) -> bool:
        return bool(self.again)

    # -- steps --------------------------------------------------------------------------------------------

    def enabled(self) -> list[WorldStep]:
        steps: list[WorldStep] = []
        for step in super().enabled():
            match step:
                case ("deliver", channel, _):
                    moves = channel.receiver
                case ("read", moves, _):
                    pass
                case ("notice", task):
                    # A stop is answered at once; all else waits for the steps that are taken again.
                    if task not in self.again or isinstance(self.notices[task][0], PeersRestarted):
                        steps.append(step)
                    continue
                case _:
                    steps.append(step)
                    continue
            if moves in self.again:
                continue
            if self._has_room(moves):
                steps.append(step)
            else:
                self.happens(LocalSituation.WAITED)
        steps += [("again", task) for task in self.again if task not in self.dead and self._can_take_again(task)]
        return steps

    def _has_room(self, task: TaskId) -> bool:
        """Whether a task may take something: not while a channel that pushes back is full (L10)."""
        return not self.limits.capacity or not any(
            not channel.back and self._queued(channel.id) >= self.limits.capacity
            for channel in self.model.outputs[task]
        )

    def _queued(self, channel: ChannelId) -> int:
        """What counts as queued for the sender."""
        count = sum(isinstance(item, Item) for item in self.channels[channel])
        if channel.receiver in self.dead or channel.receiver in self.again:
            if count > self.limits.capacity > 0:
                self.happens(LocalSituation.PILED)
            return 0
        return count

    def possible(self) -> list[WorldStep]:
        steps = [step for step in super().possible() if step[0] != "lose"]
        if self.losses:
            steps += [("lose", worker) for worker in range(self.limits.workers) if self._may_lose(worker)]
        return steps

    def _may_lose(self, worker: int) -> bool:
        tasks = self.tasks_of(worker)
        return worker not in self.gone and bool(tasks - self.dead)

    def do(self, step: WorldStep) -> None:
        match step:
            case ("again", task):
                self._take_again(task)
            case ("lose", worker) if isinstance(worker, int):
                self.losses -= 1
                self.lose_worker(worker)
            case _:
                super().do(step)

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

    def _put(self, channel: ChannelId, item: Item | Barrier) -> None:
        super()._put(channel, item)
        news: tuple[Delta, ...] = ()
        if self.crosses(channel) and channel.receiver not in self.dead:
            news = self._news(channel)
        self.carried[channel] += (news,)
        if isinstance(item, Item):
            self.keep(channel, "records", channel, item.number, 1, 1, item.record)
        else:
            self.keep(channel, "barrier", channel, item.epoch)

    def _news(self, channel: ChannelId) -> tuple[Delta, ...]:
        news: tuple[Delta, ...] = self.know(channel.sender, "news", channel)
        return news

    # -- what is recorded ---------------------------------------------------------------------------------

    def _tell(self, task: TaskId, event: TaskEvent) -> None:
        machine = self.simulated(task).machine
        copied, received = machine.copied, dict(machine.received)
        effects = self._handle(task, event)
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
        return schedule.line, self.again[task].at if task in self.again else schedule.end

    def _remember(self, task: TaskId) -> None:
        """A step is taken for the first time: its state is what it has to be when the step is taken again."""
        _, at = self._at(task)
        self.states[task] = {**self.states[task], at: self._state(task)}

    def _state(self, task: TaskId) -> Hashable:
        simulated = self.simulated(task)
        machine = simulated.machine
        return hash((
            tuple(sorted(simulated.seen.items())), tuple(simulated.owed), tuple(simulated.pending),
            tuple(sorted(simulated.positions.items())), tuple(sorted(simulated.turns.items())), machine.finished,
            tuple(machine.sent.items()), tuple(machine.received.items()),
        ))  # fmt: skip

    # -- a loss -------------------------------------------------------------------------------------------

    def lose_worker(self, worker: int) -> None:
        """A worker dies with all its tasks, what it knows and what it keeps; the coordinator hears of it by and by."""
        waiting = bool(self.dead)
        if self.again.keys() & self.tasks_of(worker):
            self.happens(LocalSituation.LOST_AGAIN)
        if self.again.keys() - self.tasks_of(worker):
            self.happens(LocalSituation.LOST_BESIDE)
        if waiting:
            self.happens(LocalSituation.LOST_WAITING)
        self.went_back = True
        self.gone |= {worker}
        self._lose(self.tasks_of(worker))

    def _lose(self, tasks: frozenset[TaskId]) -> None:
        lost, back = local_recovery_of(self.model, tasks)
        if back:
            self.happens(LocalSituation.BACK)
        self.back |= back
        self._kill(lost)
        replayed = frozenset(c for c in self.model.channels if c.sender in lost and c.receiver not in lost)
        self.mail[DETECTOR] += (("lost", TasksLost(lost, replayed), 0),)

    def _kill(self, tasks: frozenset[TaskId]) -> None:
        super()._kill(tasks)
        for task in tasks:
            self.again.pop(task, None)
            self.floors.pop(task, None)

    def stop(self, attempt: int, tasks: frozenset[TaskId], floor: int) -> None:
        self.reports = {}
        super().stop(attempt, tasks, floor)
        for task in self.again:
            self.notices[task] = self.notices[task][-1:]  # what it was told before is below the new floor

    def _notice(self, task: TaskId, event: TaskEvent) -> None:
        if not isinstance(event, PeersRestarted):
            super()._notice(task, event)
            if isinstance(event, Completed):
                self._complete(self.worker(task), event.epoch)
            return
        for channel, sent in event.replayed.items():
            unread = sum(isinstance(i, Item) and i.number <= sent for i in self.channels[channel])
            self.carried[channel] = self.carried[channel][:unread]
        if task in self.again:
            self._stop_again(task, event)
        else:
            super()._notice(task, event)
        self._report(self.worker(task), event.attempt)

    def _report(self, worker: int, attempt: int) -> None:
        """A worker answers a stop; the answer when the last of its tasks has stopped is the one that counts (L6)."""
        self.know(worker, "void", tuple(sorted(self.back)), attempt)
        self.reports = {**self.reports, worker: self.known(worker).report()}

    def _complete(self, worker: int, epoch: int) -> None:
        """A worker that has heard of a complete epoch forgets what nobody will ask for any more."""
        self.know(worker, "complete", epoch)
        self._change(self.kept, worker, "complete", epoch)

    def _stop_again(self, task: TaskId, event: PeersRestarted) -> None:
        """A task that takes its steps again answers, and goes on with them: its floor is raised at their end (L9)."""
        machine = self.simulated(task).machine
        for channel, sent in event.replayed.items():
            unread = tuple(i for i in self.channels[channel] if isinstance(i, Item) and i.number <= sent)
            self.channels[channel] = unread
            self.came[channel] = min(self.came[channel], sent)
            needed = machine.received[channel] + self._still_to_take(task, channel)
            self.history[channel] = self.history[channel][: max(sent, needed)]
        self.floors[task] = (event.attempt, event.floor)
        self.mail[task] += (("stopped", task, event.attempt),)

    def _still_to_take(self, task: TaskId, channel: ChannelId) -> int:
        """Records of a channel among the steps that a task has to take again."""
        place = self.simulated(task).machine.inputs.index(channel)
        steps = self.again[task].rest if task in self.again else ()
        return sum(step.number for step in steps if step.kind is StepKind.RECORDS and step.channel == place)

    # -- the restart --------------------------------------------------------------------------------------

    def restart(self, attempt: int, tasks: frozenset[TaskId]) -> None:
        base = self.disk.last
        going_on = frozenset(self.model.tasks) - self.dead - tasks
        kept = [c for c in self.model.channels if c.receiver in tasks and c.sender in going_on]
        holes = [c for c in kept if self.frames(self.worker(c.sender)).holes(base, (c,))]
        if holes:
            self.happens(LocalSituation.EVERYTHING)
            self._lose_everything()
            return
        for worker in self.knowledge:
            if worker not in self.gone and worker not in self.reports:  # all its tasks go back: it answers all the same
                self._report(worker, attempt)
        self.dead -= tasks
        self.may_start = tasks
        learned = longest(self.reports.values())
        replaced = self.gone & {self.worker(task) for task in tasks}
        for worker in replaced:
            self.knowledge[worker] = self.keeper(Knowledge())
            self.kept[worker] = self.keeper(KeptFrames(self.limits.kept))
            self._take_over(worker, learned)
        self.gone -= replaced
        for task in sorted(tasks):
            self.notices[task] = ()
            self._start_again(task, tasks, attempt)
        self.back = frozenset()
        for channel in self.model.channels:
            if channel.sender in tasks:
                self.keep(channel, "begin", channel, base)
            if channel.receiver in tasks or channel.sender in tasks:
                self.connect(channel)
            if channel.receiver in tasks:
                self._fill_again(channel, tasks)
        self.may_start = frozenset()
        for task in sorted(tasks):
            if self.again[task].next is None:
                self._end_again(task)

    def _take_over(self, worker: int, learned: Iterable[Delta]) -> None:
        """A replacement knows all that survivors know before it runs (L7)."""
        self.know(worker, "merge", tuple(learned))
        self.know(worker, "complete", self.disk.last)

    def _lose_everything(self) -> None:
        """Not all is kept that these tasks would need: everything restarts (L8)."""
        tasks = frozenset(self.model.tasks)
        self.back = tasks
        self.gone = frozenset(range(self.limits.workers))
        self._kill(tasks)
        self.mail[DETECTOR] += (("lost", TasksLost(tasks), 0),)

    def _start_again(self, task: TaskId, tasks: frozenset[TaskId], attempt: int) -> None:
        line, position = self.based[task]
        replay = self._resume(task, line, position)
        if task in self.back or (not replay.rest and self._copy_is_ahead(task, tasks)):
            self.know(task, "begin", task, attempt, position)
            replay = self._resume(task, attempt, position)
            self.states[task] = {}
            self.fresh |= {task}
        if replay.rest:
            self.happens(LocalSituation.AGAIN)
        if max(self.states[task], default=0) > replay.at + len(replay.rest):
            self.happens(LocalSituation.BEHIND)
        self.states[task] = {at: state for at, state in self.states[task].items() if at <= replay.at + len(replay.rest)}
        self.start(task, attempt, self.disk.last + 1)
        self.again[task] = replay
        self.floors[task] = (attempt, self.disk.begun + 1)
        base = self.disk.base
        for channel in self.model.inputs[task]:
            self.came[channel.id] = base.received(channel.id) if base else 0
            self.passed[channel.id] = self.disk.last
            if self.came[channel.id] < self.simulated(task).machine.received[channel.id]:
                self.happens(LocalSituation.OVERTAKEN)

    def _copy_is_ahead(self, task: TaskId, tasks: frozenset[TaskId]) -> bool:
        """Whether a task's copy contains what a sender that restarts too had sent behind its own, at least once. Nobody
        may know the steps in which it did: it is taken again, whatever it is now."""
        base = self.disk.base
        if base is None or task in self.fresh:
            return False
        received = dict(base.parts[task].received)
        inputs = (channel.id for channel in self.model.inputs[task])
        return any(channel.sender in tasks and received[channel] > base.received(channel) for channel in inputs)

    def _resume(self, task: TaskId, line: int, position: int) -> Replay:
        replay: Replay = self.know(task, "resume", task, line, position)
        return replay.copy()

    def _fill_again(self, channel: ChannelId, tasks: frozenset[TaskId]) -> None:
        """What a restarted task finds on a channel: its log, and what a sender that goes on has kept behind it (L8)."""
        base = self.disk.base
        history = self.history[channel]
        self.refill(channel)
        if channel.sender in tasks:
            sent, needed = base.sent(channel) if base else 0, self._still_to_take(channel.receiver, channel)
            needed += self.simulated(channel.receiver).machine.received[channel]
            self.history[channel] = history[: max(sent, needed)]
            if self.again[channel.receiver].rest and self.again[channel.sender].rest:
                self.happens(LocalSituation.BETWEEN)
            return
        self.history[channel] = history
        if channel.sender in self.dead:  # nobody has heard of it yet: it will send everything again
            return
        kept = self.frames(self.worker(channel.sender)).behind(channel, self.disk.last)
        items = [item for frame in kept for item in self._items(frame)]
        if items:
            news = self._news(channel) if self.crosses(channel) else ()
            self.channels[channel] += tuple(items)
            self.carried[channel] += (news, *((),) * (len(items) - 1))

    @staticmethod
    def _items(frame: Kept) -> list[Item | Barrier]:
        if isinstance(frame, KeptRecords):
            return [Item(frame.first, frame.batch)]  # type: ignore[arg-type]
        return [Barrier(frame.epoch)]

    # -- steps that are taken again -----------------------------------------------------------------------

    def _can_take_again(self, task: TaskId) -> bool:
        """Whether what the next step takes has come."""
        step, machine = self.again[task].next, self.simulated(task).machine
        assert step is not None, "it would have ended"
        if not self._has_room(task):
            return False
        if step.kind not in (StepKind.RECORDS, StepKind.BARRIER) or machine.is_source or self._is_behind(task, step):
            return True
        channel = machine.inputs[step.channel]
        items = self.channels[channel][self._stands_before(task, step) :]
        if step.kind is StepKind.BARRIER:
            return bool(items)
        return len(items) >= step.number

    def _is_behind(self, task: TaskId, step: Step) -> bool:
        """Whether a step takes a barrier behind which its sender starts, or has kept: nobody sends it again (L8)."""
        return step.kind is StepKind.BARRIER and step.number <= self.simulated(task).base

    def _stands_before(self, task: TaskId, step: Step) -> int:
        """How many items stand before what a step takes: those had been taken before the copy, or were no step (L9)."""
        machine = self.simulated(task).machine
        channel = machine.inputs[step.channel]
        for count, item in enumerate(self.channels[channel]):
            if isinstance(item, Item):
                if item.number > machine.received[channel]:
                    return count
            elif item.epoch > max(machine.floor - 1, self.passed[channel]) and (
                self.policy.exactly_once or step == Step(StepKind.BARRIER, step.channel, item.epoch)
            ):
                return count
        return len(self.channels[channel])

    def _take_again(self, task: TaskId) -> None:
        """One step, and the marks behind it."""
        step = self.again[task].next
        assert step is not None, "it would have ended"
        before = self.simulated(task).machine.copied
        effects = self._effects_again(task, step)
        replay = self.again[task].copy()
        replay.taken(step)
        if (copied := self.simulated(task).machine.copied) > before and step.kind is not StepKind.STOP:
            replay.taken(Step(StepKind.COPIED, 0, copied))
            self.happens(LocalSituation.GIVEN_UP)
        self.again = {**self.again, task: replay}
        state = self.states[task].get(replay.at)
        if state is not None and state != self._state(task):
            raise Violation("replay", f"{task}: behind step {replay.at} its state is not what it was")
        # Epochs that were open are given up: their parts are not written again. What sinks stage belongs to the next.
        self._apply(task, [e for e in effects if not isinstance(e, Write)])
        if replay.next is None:
            self._end_again(task)

    def _effects_again(self, task: TaskId, step: Step) -> list[Effect]:
        machine = self.simulated(task).machine
        attempt = self.simulated(task).attempt
        match step.kind:
            case StepKind.BARRIER if self._is_behind(task, step):
                return []
            case StepKind.TRIGGER:
                return self._handle(task, Triggered(step.number))
            case StepKind.ABORT:
                return self._handle(task, Aborted(step.number))
            case StepKind.STOP:
                return self._handle(task, PeersRestarted(attempt, step.number, Counts()))
            case StepKind.MARKED:
                self.happens(LocalSituation.AHEAD)
                return self._handle(task, BarrierArrived(machine.inputs[step.channel], step.number))
            case StepKind.RECORDS | StepKind.END if machine.is_source:
                before = dict(self.simulated(task).positions)
                effects = self._read(task, max(step.number, 1))
                if (now := self._read_step(task, before)) != step:
                    raise Violation("replay", f"{task}: '{step}' is now '{now}'")
                return effects
            case StepKind.RECORDS | StepKind.BARRIER:
                return self._handle(task, self._event_again(task, step))
            case _:
                raise Violation("replay", f"{task}: '{step}' is due, and nothing leads to it")

    def _event_again(self, task: TaskId, step: Step) -> TaskEvent:
        """What a step takes from its channel."""
        machine = self.simulated(task).machine
        channel, before = machine.inputs[step.channel], self._stands_before(task, step)
        items = self.channels[channel][before : before + max(step.number if step.kind is StepKind.RECORDS else 1, 1)]
        dropped = [i.number for i in self.channels[channel][:before] if isinstance(i, Item)]
        self.came[channel] = max([self.came[channel], *dropped])
        self._take(channel, before + len(items))
        if step.kind is StepKind.BARRIER:
            self.passed[channel] = step.number
            if items != (Barrier(step.number),):
                raise Violation("replay", f"{task}: '{step}' is due, and {channel} has {items[0]}")
            return BarrierArrived(channel, step.number)
        records = tuple(item.record for item in items if isinstance(item, Item))
        if len(records) < len(items):
            raise Violation("replay", f"{task}: '{step}' is due, and {channel} has a barrier within")
        head = items[0]
        assert isinstance(head, Item)
        self.came[channel] = head.number + len(records) - 1
        return RecordsArrived(channel, head.number, len(records), records)

    def _end_again(self, task: TaskId) -> None:
        """All steps are taken: what is open is given up, and it goes on as the others (L9)."""
        del self.again[task]
        attempt, floor = self.floors.pop(task)
        came = Counts((c.id, self.came.pop(c.id)) for c in self.model.inputs[task])
        for channel in came:
            del self.passed[channel]
        self._tell(task, PeersRestarted(attempt, floor, came))

    # -- the coordinator ----------------------------------------------------------------------------------

    def _write_manifest(self, epoch: int) -> None:
        super()._write_manifest(epoch)
        self.based = {task: self.cuts[task, epoch] for task in self.model.tasks}
        self.fresh = frozenset()
        self.cuts = {(task, other): cut for (task, other), cut in self.cuts.items() if other > epoch}
