"""Tasks of a lost worker take the steps again that are known of them, beside others that go on.

The rules are L9 and L10 of `abscli.protocol.schedule`.
"""

from __future__ import annotations

from abscli.protocol.events import (
    Aborted,
    BarrierArrived,
    PeersRestarted,
    RecordsArrived,
    TaskEvent,
    Triggered,
    Watermarked,
)
from abscli.protocol.schedule import Replay, Step, StepKind
from abscli.sim.local.recording import Cut, RecordingWorld
from abscli.sim.local.situations import LocalSituation
from abscli.sim.properties import Violation
from abscli.sim.task import Barrier, Counts, Effect, Item, Write
from abscli.sim.world import Step as WorldStep
from formats.ids import ChannelId, TaskId


class ReplayingWorld(RecordingWorld):
    """A run in which tasks may take their steps again.

    again: tasks that take their steps again.
    floors: the attempt and floor that they are raised to at their end.
    came: of the channels to these, the number of the last record that has come since.
    passed: of the channels to these, the epoch of the last barrier that a step has taken.
    """

    def begin(self) -> None:
        self.again: dict[TaskId, Replay] = {}
        self.floors: dict[TaskId, tuple[int, int]] = {}
        self.came: dict[ChannelId, int] = {}
        self.passed: dict[ChannelId, int] = {}
        super().begin()

    @property
    def is_recovering(self) -> bool:
        return bool(self.again)

    def _at(self, task: TaskId) -> Cut:
        line, end = super()._at(task)
        return line, self.again[task].at if task in self.again else end

    # -- steps of the run -------------------------------------------------------------------------------------

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

    def do(self, step: WorldStep) -> None:
        match step:
            case ("again", task):
                self._take_again(task)
            case _:
                super().do(step)

    def _kill(self, tasks: frozenset[TaskId]) -> None:
        super()._kill(tasks)
        for task in tasks:
            self.again.pop(task, None)
            self.floors.pop(task, None)

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

    def _resume(self, task: TaskId, line: int, position: int) -> Replay:
        replay: Replay = self.know(task, "resume", task, line, position)
        return replay.copy()

    # -- steps that are taken again ---------------------------------------------------------------------------

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
            case StepKind.WATERMARK:
                return self._handle(task, Watermarked(step.watermark))
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
            barrier = items[0]
            if not isinstance(barrier, Barrier) or barrier.epoch != step.number:
                raise Violation("replay", f"{task}: '{step}' is due, and {channel} has {barrier}")
            return BarrierArrived(channel, barrier.epoch, barrier.watermark)
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
