"""Which steps a search has to try in a world: what commutes with all else happens at once, and of steps whose order
nobody can see one order is enough.

Tasks talk through queues that have one sender and one receiver, so steps of two tasks commute. What one task does next
is therefore *persistent* (Godefroid 1996, chapter 4) when nothing the others do first can give it another choice or be
seen by it: then all other steps can wait. A crash is tried once for every state of the disk that it can find, at the
first world that has it; the steps that are not tried in another order leave the same disks behind. The tests hold
the reduced search against the full one: the same snapshots, the same ends.
"""

from __future__ import annotations

from collections.abc import Iterable

from abscli.protocol.coordinator import NextEpoch, Phase
from abscli.protocol.events import Completed
from abscli.sim.interned import InternedWorld
from abscli.sim.task import Barrier
from abscli.sim.world import DETECTOR, Limits, Step
from formats.ids import ChannelId, TaskId


def hurry(world: InternedWorld, steps: list[Step]) -> list[Step]:
    """Let happen at once what commutes with all else, so that its place among the others need not be tried.

    While nothing but a crash of everything can go wrong, a part that is durable, its ack and the manifest are seen by
    nobody but the coordinator; what comes of them is told in notices, whose time is free. With single losses the write
    of a part and of the manifest, and the word of the loss, have a time of their own. Where workers keep schedules only
    the word of the loss has, since the orders of all that they do are many; random runs have the others. What has
    happened is added to `steps`.
    """
    kinds = _hurried(world.limits)
    while step := next((step for step in world.enabled() if _is_hurried(world, step, kinds)), None):
        steps.append(step)
        world.do(step)
    return steps


def _hurried(limits: Limits) -> tuple[str, ...]:
    if limits.timeouts or limits.lost_acks:
        return ("stored",)
    if limits.losses and not limits.workers:
        return ("stored", "mail")
    return ("stored", "mail", "manifest", "persist")


def _is_hurried(world: InternedWorld, step: Step, kinds: tuple[str, ...]) -> bool:
    if step[0] == "notice":  # a source hears of the next epoch behind this one, in the same queue
        return step[1] in world.model.sources and isinstance(world.notices[step[1]][0], Completed)
    return step[0] in kinds and step[1:] != (DETECTOR,)


def only_crashes(limits: Limits) -> bool:
    """Whether nothing but a crash of everything can go wrong: then sets of steps are chosen, else all are tried."""
    return not (limits.losses or limits.lost_acks or limits.timeouts or limits.rescales)


def is_over(world: InternedWorld) -> bool:
    """Whether all that may go wrong has gone wrong, and nothing of it is left: then sets of steps are chosen again."""
    limits = world.limits
    return bool(limits.workers) and not (
        world.losses or limits.crashes or limits.lost_acks or limits.timeouts or limits.rescales or world.dead
        or world.coordinator_now.phase is not Phase.RUNNING or world.mail[DETECTOR] or world.is_recovering
    )  # fmt: skip


def to_try(world: InternedWorld) -> list[Step]:
    """The steps that have to be tried in a world from which all that can is hurried, a crash left out."""
    enabled = world.enabled()
    return _persistent(world, [step for step in enabled if not _can_wait(world, step)] or enabled)


def _can_wait(world: InternedWorld, step: Step) -> bool:
    """Whether it changes nothing to hear of complete epochs later: they matter at the task's next copy only."""
    if step[0] != "notice" or not all(isinstance(notice, Completed) for notice in world.notices[step[1]]):
        return False
    heads = (world.channels[channel.id][:1] for channel in world.model.inputs[step[1]])
    return not any(head and isinstance(head[0], Barrier) for head in heads)


def _persistent(world: InternedWorld, enabled: list[Step]) -> list[Step]:
    """The fewest steps of one task that no step of another has to come before; all, where no task has such."""
    by_task: dict[TaskId, list[Step]] = {}
    for step in enabled:
        if step[0] == "deliver":
            by_task.setdefault(step[1].receiver, []).append(step)
        elif step[0] in ("read", "notice"):
            by_task.setdefault(step[1], []).append(step)
    best = enabled
    for task, own in by_task.items():
        others = _Others(world, task, by_task)
        for step in own:
            if step[0] == "deliver" and others.can_follow(step[1]):
                return [step]
        if len(own) < len(best) and others.can_all_follow(own):
            best = own
    return best


class _Others:
    """What can come to one task before it makes a step of its own."""

    def __init__(self, world: InternedWorld, task: TaskId, movers: Iterable[TaskId]) -> None:
        self.world = world
        self.task = task
        coordinator = world.coordinator_now
        self.owed = [epoch for epoch in coordinator.open_epochs if task in coordinator.missing(epoch)]
        self.acked = len(self.owed) < len(coordinator.open_epochs)
        self.may_trigger = self._may_trigger()
        self.notices = tuple(notice for notice in world.notices[task] if not isinstance(notice, Completed))
        self._movers = {other for other in movers if other != task}

    def _may_trigger(self) -> bool:
        """Whether another epoch can be triggered: epochs that wait for this task stay open."""
        begins = self.world.coordinator_now.next_epoch(open_epochs=len(self.owed))
        if begins is NextEpoch.AFTER_INTERVAL and not self.world.ticks:  # the clock is spent: only an end is left (C6)
            return self.task not in self.world.model.sources or self.world.simulated(self.task).machine.finished
        return begins in (NextEpoch.AT_ONCE, NextEpoch.AFTER_PAUSE, NextEpoch.AFTER_INTERVAL)

    @property
    def is_told(self) -> bool:
        """Whether the task can be triggered by the coordinator, now or soon."""
        return bool(self.notices) or (self.world.simulated(self.task).machine.is_triggered and self.may_trigger)

    def silent(self, channel: ChannelId) -> bool:
        """Whether a channel to the task has nothing for it to take, and gets nothing."""
        if channel in self.world.simulated(self.task).machine.blocked:
            return True
        return not self.world.channels[channel] and channel.sender not in self.moving()

    def moving(self) -> set[TaskId]:
        """Tasks that may move before this one does, at once or because another has sent them something."""
        model, world = self.world.model, self.world
        moving = self._movers | {other for other, notices in world.notices.items() if notices}
        if self.may_trigger:
            moving |= {other for other in model.tasks if world.simulated(other).machine.is_triggered}
        moving -= {self.task}
        todo = list(moving)
        while todo:
            for receiver in (channel.id.receiver for channel in model.outputs[todo.pop()]):
                if receiver not in moving and receiver != self.task:
                    moving.add(receiver)
                    todo.append(receiver)
        return moving

    def can_follow(self, channel: ChannelId) -> bool:
        """Whether the record at the head of a channel can be taken first, whatever else comes to the task."""
        world, task = self.world, self.task
        if isinstance(world.channels[channel][0], Barrier) or self.is_told:
            return False
        inputs = [other.id for other in world.model.inputs[task] if other.id != channel]
        if all(map(self.silent, inputs)):
            return True
        # no copy comes before this channel's barrier, and a task that sends nothing does not mind the order of records
        comes_before_copy = world.policy.blocks and not world.model.channels[channel].back
        return comes_before_copy and (task in world.model.sinks or world.model.keeps_until_flush(task))

    def can_all_follow(self, own: list[Step]) -> bool:
        """Whether these, which are all that the task can do now, stay all until it has done one."""
        world = self.world
        heads = [world.channels[step[1]][0] for step in own if step[0] == "deliver"]
        copies = any(isinstance(head, Barrier) for head in heads)
        inputs = world.model.inputs[self.task]
        if not all(world.channels[channel.id] or self.silent(channel.id) for channel in inputs):
            return False
        hears = bool(world.notices[self.task]) and ("notice", self.task) in own
        if not hears and (self.is_told or (copies and self.acked)):
            return False
        if any(step[0] == "read" for step in own) and self._at_end() and (self.may_trigger or self.acked):
            return False
        return not (copies or hears) or not self.may_trigger or self._is_not_last()

    def _at_end(self) -> bool:
        """Whether the source has nothing more to read: what it says then is heard by the coordinator."""
        world = self.world
        task, rows = world.simulated(self.task), world.model.rows[self.task.operator]
        return all(task.positions.get(split, 0) >= len(rows[split]) for split in world.model.splits_of(self.task))

    def _is_not_last(self) -> bool:
        """Whether every epoch that this task can ack waits for another one too."""
        coordinator = self.world.coordinator_now
        return all(len(coordinator.missing(epoch)) > 1 for epoch in self.owed)
