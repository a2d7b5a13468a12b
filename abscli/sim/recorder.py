"""A run as a space-time diagram: the world once more, with somebody who writes down what happens."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from abscli.protocol.events import Aborted, Completed, TaskEvent
from abscli.protocol.policy import Policy
from abscli.sim.diagram import COORDINATOR, Diagram, Message, Moment
from abscli.sim.local.world import LocalWorld
from abscli.sim.model import Model
from abscli.sim.replay import play
from abscli.sim.task import Barrier, Effect, Item
from abscli.sim.world import Limits, Step, World
from formats.ids import ChannelId, TaskId


def diagram(title: str, model: Model, policy: Policy, limits: Limits, steps: Sequence[Step]) -> Diagram:
    """What these steps do, the violation that they end in included."""
    world = (LocalRecorder if limits.workers else Recorder)(model, policy, limits)
    played = play(world, steps)
    tasks = world.shown
    if played.message:
        world.moments.append(Moment(world.step, COORDINATOR, played.rule or "", "violation"))
    operators = tuple(task.operator for task in tasks)
    return Diagram(title, tuple(map(str, tasks)), tuple(world.moments), world.messages(), played.message, operators)


class _Flying(NamedTuple):
    """What is on its way. epoch: of a barrier."""

    sent: int
    epoch: int | None


class _Landed(NamedTuple):
    """What is no longer on its way. received: None where it was lost. known: dropped, as it has come before."""

    channel: ChannelId
    sent: int
    received: int | None
    epoch: int | None
    known: bool


class Recorder(World):
    """A world that remembers when each message left and arrived. shown: all tasks that there have been, in order."""

    def __init__(self, model: Model, policy: Policy, limits: Limits) -> None:
        self.step = 0
        self.moments: list[Moment] = []
        self.shown: dict[TaskId, None] = {}
        self._flying: dict[ChannelId, deque[_Flying]] = {}
        self._landed: Counter[_Landed] = Counter()
        super().__init__(model, policy, limits)

    def messages(self) -> tuple[Message, ...]:
        """What was sent; records of one batch are one message."""
        for channel in list(self._flying):
            self._forget(channel)
        messages = []
        for landed, count in self._landed.items():
            sender, receiver = str(landed.channel.sender), str(landed.channel.receiver)
            if landed.epoch is not None:
                label = f"barrier {landed.epoch}"
            else:
                label = "record" if count == 1 else f"{count} records"
                label += " again" if landed.known else ""
            messages.append(
                Message(
                    sender, receiver, landed.sent, landed.received, label, landed.epoch, known=landed.known, count=count
                )
            )
        return tuple(sorted(messages, key=lambda message: message.sent))

    def _note(
        self, place: TaskId | Literal["coordinator"], label: str, kind: str, epoch: int | None = None
    ) -> None:
        self.moments.append(Moment(self.step, str(place), label, kind, epoch))

    def _forget(self, channel: ChannelId) -> None:
        for flying in self._flying.pop(channel, ()):
            self._landed[_Landed(channel, flying.sent, None, flying.epoch, known=False)] += 1

    def begin(self) -> None:
        self.shown |= dict.fromkeys(self.model.tasks)
        for channel in list(self._flying):
            self._forget(channel)
        super().begin()

    def start(self, task: TaskId, attempt: int, first_epoch: int) -> None:
        super().start(task, attempt, first_epoch)
        if self.step:
            self._note(task, f"from {self.disk.last}", "restore", self.disk.last or None)

    def refill(self, channel: ChannelId) -> None:
        super().refill(channel)
        self._flying[channel] = deque(_Flying(self.step, None) for _ in self.channels[channel])

    def do(self, step: Step) -> None:
        self.step += 1
        match step:
            case ("crash",) | ("rescale", _, _):
                for task in self.model.tasks:
                    if task not in self.dead:
                        self._note(task, step[0], "crash")
            case ("persist", task, epoch):
                self._note(task, f"persist {epoch}", "persist", epoch)
            case ("mail", task) if self.mail[task][0][0] == "ack":
                epoch = self.mail[task][0][1]
                self._note(COORDINATOR, f"ack {epoch} of {task}", "ack", epoch)
            case ("manifest", epoch):
                self._note(COORDINATOR, f"complete {epoch}", "complete", epoch)
            case ("lose-ack", task):
                self._note(task, "ack lost", "drop")
            case ("time-out", epoch):
                self._note(COORDINATOR, f"abort {epoch}", "abort", epoch)
        begun, dead = self.disk.begun, self.dead
        super().do(step)
        for task in sorted(self.dead - dead, key=str):
            self._note(task, "lost" if step[0] == "lose" else "goes back", "crash")
        if self.disk.begun > begun:
            self._note(COORDINATOR, f"trigger {self.disk.begun}", "trigger", self.disk.begun)
        for channel, items in self.channels.items():
            if len(self._flying.get(channel, ())) != len(items):  # emptied, or filled again, when tasks restart
                self._forget(channel)
                self._flying[channel] = deque(self._flight(item) for item in items)

    def _take(self, channel: ChannelId, count: int) -> None:
        flying, items = self._flying.get(channel, deque()), self.channels[channel]
        received = self.simulated(channel.receiver).machine.received[channel]
        for item in items[: min(count, len(flying))]:
            sent, epoch = flying.popleft()
            known = isinstance(item, Item) and item.number <= received
            self._landed[_Landed(channel, sent, self.step, epoch, known)] += 1
        super()._take(channel, count)

    def _put(self, channel: ChannelId, item: Item | Barrier) -> None:
        super()._put(channel, item)
        self._flying.setdefault(channel, deque()).append(self._flight(item))

    def _flight(self, item: Item | Barrier) -> _Flying:
        return _Flying(self.step, item.epoch if isinstance(item, Barrier) else None)

    def _notice(self, task: TaskId, event: TaskEvent) -> None:
        if isinstance(event, Completed):
            self._note(task, f"commit {event.epoch}", "commit", event.epoch)
        elif isinstance(event, Aborted):
            self._note(task, f"abort {event.epoch}", "abort", event.epoch)
        super()._notice(task, event)

    def _handle(self, task: TaskId, event: TaskEvent) -> list[Effect]:
        machine = self.simulated(task).machine
        copied, blocked = machine.copied, set(machine.blocked)
        logged = self._logged(task)
        effects = super()._handle(task, event)
        if machine.copied > copied and machine.copied in self.simulated(task).drafts:
            self._note(task, f"copy {machine.copied}", "copy", machine.copied)
        for channel in sorted(machine.blocked - blocked, key=str):
            self._note(task, f"block {channel.sender}", "block")
        for channel in sorted(blocked - machine.blocked, key=str):
            self._note(task, f"unblock {channel.sender}", "unblock")
        if (more := self._logged(task) - logged) > 0:
            self._note(task, f"log {more}", "log")
        return effects

    def _logged(self, task: TaskId) -> int:
        drafts = (draft for draft in self.simulated(task).drafts.values() if draft)
        return sum(len(records) for draft in drafts for records in draft.logs.values())


class LocalRecorder(Recorder, LocalWorld):
    """The same of workers: which steps are taken again, and until when."""

    def __init__(self, model: Model, policy: Policy, limits: Limits) -> None:
        self._behind: frozenset[TaskId] = frozenset()
        super().__init__(model, policy, limits)

    def _start_again(self, task: TaskId, tasks: frozenset[TaskId], attempt: int) -> None:
        super()._start_again(task, tasks, attempt)
        if steps := len(self.again[task].rest):
            self._behind |= {task}
            restored = self.moments.pop()
            label = f"{restored.label}, {steps} step{'s'[: steps != 1]} again"
            self.moments.append(replace(restored, label=label, steps_again=steps))

    def _end_again(self, task: TaskId) -> None:
        if task in self._behind:
            self._note(task, "goes on", "replayed")
        self._behind -= {task}
        super()._end_again(task)
