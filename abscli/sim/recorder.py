"""A run as a space-time diagram: the world once more, with somebody who writes down what happens."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

from abscli.protocol.events import Aborted, Completed, TaskEvent
from abscli.protocol.policy import Policy
from abscli.sim.diagram import COORDINATOR, Diagram, Message, Moment
from abscli.sim.model import Model
from abscli.sim.replay import play
from abscli.sim.task import Barrier, Effect, Item
from abscli.sim.world import Limits, Step, World
from formats.ids import ends_of


def diagram(title: str, model: Model, policy: Policy, limits: Limits, steps: Sequence[Step]) -> Diagram:
    """What these steps do, the violation that they end in included."""
    world = Recorder(model, policy, limits)
    played = play(world, steps)
    tasks = world.shown
    if played.message:
        world.moments.append(Moment(world.step, COORDINATOR, played.rule or "", "violation"))
    return Diagram(title, tuple(tasks), tuple(world.moments), world.messages(), played.message)


class Recorder(World):
    """A world that remembers when each message left and arrived. shown: all tasks that there have been, in order."""

    def __init__(self, model: Model, policy: Policy, limits: Limits) -> None:
        self.step = 0
        self.moments: list[Moment] = []
        self.shown: dict[str, None] = {}
        self._flying: dict[str, deque[tuple[int, str]]] = {}
        self._arrived: Counter[tuple[str, int, int | None, str]] = Counter()
        super().__init__(model, policy, limits)

    def messages(self) -> tuple[Message, ...]:
        """What was sent; records of one batch are one message."""
        for name in list(self._flying):
            self._lose(name)
        messages = []
        for (name, sent, received, label), count in self._arrived.items():
            sender, receiver = ends_of(name)
            barrier = label != "record"
            text = label if barrier or count == 1 else f"{count} records"
            messages.append(Message(sender, receiver, sent, received, text, barrier))
        return tuple(sorted(messages, key=lambda message: message.sent))

    def _note(self, task: str, label: str, kind: str) -> None:
        self.moments.append(Moment(self.step, task, label, kind))

    def _lose(self, name: str) -> None:
        for sent, label in self._flying.pop(name, ()):
            self._arrived[name, sent, None, label] += 1

    def begin(self) -> None:
        self.shown |= dict.fromkeys(self.model.tasks)
        for name in list(self._flying):
            self._lose(name)
        super().begin()

    def start(self, task: str, attempt: int, first_epoch: int) -> None:
        super().start(task, attempt, first_epoch)
        if self.step:
            self._note(task, f"from {self.disk.last}", "restore")

    def refill(self, name: str) -> None:
        super().refill(name)
        self._flying[name] = deque((self.step, "record") for _ in self.channels[name])

    def do(self, step: Step) -> None:
        self.step += 1
        match step:
            case ("crash",) | ("rescale", _, _):
                for task in self.model.tasks:
                    self._note(task, step[0], "crash")
            case ("persist", task, epoch):
                self._note(task, f"persist {epoch}", "persist")
            case ("mail", task) if self.mail[task][0][0] == "ack":
                self._note(COORDINATOR, f"ack {self.mail[task][0][1]} of {task}", "ack")
            case ("manifest", epoch):
                self._note(COORDINATOR, f"complete {epoch}", "complete")
            case ("lose-ack", task):
                self._note(task, "ack lost", "drop")
            case ("time-out", epoch):
                self._note(COORDINATOR, f"abort {epoch}", "abort")
        begun, dead = self.disk.begun, self.dead
        super().do(step)
        for task in sorted(self.dead - dead):
            self._note(task, "lost", "crash")
        if self.disk.begun > begun:
            self._note(COORDINATOR, f"trigger {self.disk.begun}", "trigger")

    def _deliver(self, name: str, count: int) -> None:
        items = self.channels[name]
        for item in items[:count] if isinstance(items[0], Item) else items[:1]:
            if isinstance(item, Barrier) and isinstance(items[0], Item):
                break
            sent, label = self._flying[name].popleft()
            self._arrived[name, sent, self.step, label] += 1
        super()._deliver(name, count)

    def _put(self, name: str, item: Item | Barrier) -> None:
        super()._put(name, item)
        label = f"barrier {item.epoch}" if isinstance(item, Barrier) else "record"
        self._flying.setdefault(name, deque()).append((self.step, label))

    def _notice(self, task: str, event: TaskEvent) -> None:
        if isinstance(event, Completed):
            self._note(task, f"commit {event.epoch}", "commit")
        elif isinstance(event, Aborted):
            self._note(task, f"abort {event.epoch}", "abort")
        super()._notice(task, event)
        for name in self.model.channels:
            if len(self._flying.get(name, ())) > len(self.channels[name]):
                self._lose(name)
                self._flying[name] = deque((self.step, "record") for _ in self.channels[name])

    def _handle(self, task: str, event: TaskEvent) -> list[Effect]:
        machine = self.simulated(task).machine
        copied, blocked = machine.copied, set(machine.blocked)
        logged = self._logged(task)
        effects = super()._handle(task, event)
        if machine.copied > copied and machine.copied in self.simulated(task).drafts:
            self._note(task, f"copy {machine.copied}", "copy")
        for name in sorted(machine.blocked - blocked):
            self._note(task, f"block {ends_of(name)[0]}", "block")
        for name in sorted(blocked - machine.blocked):
            self._note(task, f"unblock {ends_of(name)[0]}", "unblock")
        if (more := self._logged(task) - logged) > 0:
            self._note(task, f"log {more}", "log")
        return effects

    def _logged(self, task: str) -> int:
        drafts = (draft for draft in self.simulated(task).drafts.values() if draft)
        return sum(len(records) for draft in drafts for records in draft.logs.values())
