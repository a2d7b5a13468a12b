"""A worker is lost, and its tasks restart alone: those that know its steps tell them, and nobody else goes back.

The rules are L5 to L9 and L11 of `abscli.protocol.schedule`.
"""

from __future__ import annotations

from collections.abc import Iterable

from abscli.protocol.causal import longest
from abscli.protocol.events import Completed, PeersRestarted, TaskEvent, TasksLost
from abscli.protocol.kept import Kept, KeptRecords
from abscli.protocol.schedule import Delta
from abscli.sim.disk import Snapshot
from abscli.sim.local.recording import Cut
from abscli.sim.local.replaying import ReplayingWorld
from abscli.sim.local.situations import LocalSituation
from abscli.sim.losses import local_recovery_of
from abscli.sim.properties import check_survivor
from abscli.sim.task import Barrier, Item
from abscli.sim.world import DETECTOR
from abscli.sim.world import Step as WorldStep
from formats.ids import ChannelId, TaskId


class LocalWorld(ReplayingWorld):
    """A run with local recovery.

    based: where each task made the copy that it would start from.
    gone: workers that are lost and have not restarted.
    back: tasks that go back without their steps at the next restart.
    fresh: tasks whose line began at the newest complete epoch, not at a copy of their own.
    reports: what workers that go on have said they know.
    """

    def begin(self) -> None:
        self.based: dict[TaskId, Cut] = dict.fromkeys(self.model.tasks, (self.disk.attempt + 1, 0))
        self.gone: frozenset[int] = frozenset()
        self.back: frozenset[TaskId] = frozenset()
        self.reports: dict[int, tuple[Delta, ...]] = {}
        self.may_start = self.fresh = frozenset(self.model.tasks)
        super().begin()
        self.may_start = frozenset()

    def start(self, task: TaskId, attempt: int, first_epoch: int) -> None:
        check_survivor(task, self.may_start)
        super().start(task, attempt, first_epoch)

    def received(self, task: TaskId, base: Snapshot) -> dict[ChannelId, int]:
        """Its own counters (L9): at least once, it may have more than its sender had sent. Not where its line began at
        the epoch: there its senders went back too, and it took again what they sent again."""
        return super().received(task, base) if task in self.fresh else dict(base.parts[task].received)

    # -- a loss -----------------------------------------------------------------------------------------------

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
            case ("lose", worker) if isinstance(worker, int):
                self.losses -= 1
                self.lose_worker(worker)
            case _:
                super().do(step)

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

    # -- the restart ------------------------------------------------------------------------------------------

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
            self.new_worker(worker)
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
        return [Barrier(frame.epoch, frame.watermark)]

    def _write_manifest(self, epoch: int) -> None:
        super()._write_manifest(epoch)
        self.based = {task: self.cuts[task, epoch] for task in self.model.tasks}
        self.fresh = frozenset()
        self.cuts = {(task, other): cut for (task, other), cut in self.cuts.items() if other > epoch}
