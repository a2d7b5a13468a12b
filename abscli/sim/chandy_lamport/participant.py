"""One process that takes part in snapshots: its state, and the protocol's own task machine under `unaligned`.

A participant touches nothing outside itself, so that a step of it can be looked up when it has been made before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, assert_never

from abscli.protocol.events import (
    Ack,
    Block,
    CaughtUp,
    Commit,
    Copy,
    Discard,
    Flush,
    Forward,
    Log,
    Persist,
    Persisted,
    Sent,
    TaskEvent,
    Unblock,
)
from abscli.protocol.events import Process as Proceed
from abscli.protocol.policy import Policy
from abscli.protocol.task import Task
from abscli.sim.chandy_lamport.processes import Move, System
from abscli.sim.chandy_lamport.recorded import Message, Part
from abscli.sim.interned import frozen
from formats.ids import ChannelId, TaskId


class Marker(NamedTuple):
    """A marker on a channel."""

    epoch: int


class Taken(NamedTuple):
    """A message that is taken from a channel, and the move that takes it: the protocol's batch."""

    message: Message
    move: Move


# -- what a process did in a step ------------------------------------------------------------------------------


class Put(NamedTuple):
    """It appended to a channel."""

    channel: str
    item: Message | Marker


class Copied(NamedTuple):
    """It copied its state."""

    epoch: int


class Logged(NamedTuple):
    """It wrote the message to the channel's log."""

    channel: ChannelId
    epochs: tuple[int, ...]
    message: Message


class Whole(NamedTuple):
    """Its part is whole."""

    part: Part


class GaveUp(NamedTuple):
    """It dropped its part."""

    epoch: int


Note = Put | Copied | Logged | Whole | GaveUp


@dataclass(slots=True)
class Draft:
    """A part whose logs are not all closed."""

    part: Part
    logs: dict[ChannelId, tuple[Message, ...]] = field(default_factory=dict)

    def now(self) -> Part:
        """The part with what is in its logs by now."""
        return replace(self.part, logs=tuple(sorted(self.logs.items())))


class Participant:
    """One process: its state, and the machine that takes its part of every snapshot."""

    def __init__(self, system: System, process: str) -> None:
        self.state = system.processes[process]
        self.outputs = tuple((name, system.ids[name]) for name in system.outputs[process])
        self.machine = Task(
            TaskId(process, 0),
            [system.ids[name] for name in system.inputs[process]],
            [id for _, id in self.outputs],
            policy=Policy.UNALIGNED,
        )
        self.drafts: dict[int, Draft] = {}

    def move(self, move: Move) -> list[Note]:
        """Make a move."""
        self.state = move.state
        notes: list[Note] = []
        for channel, content in move.sends:
            id = dict(self.outputs)[channel]
            self.machine.on(Sent(id, 1))
            notes.append(Put(channel, Message(self.machine.sent[id], content)))
        return notes

    def handle(self, event: TaskEvent) -> list[Note]:
        """Tell the machine and do what it says."""
        notes: list[Note] = []
        for action in self.machine.on(event):
            match action:
                case Log(channel, epochs, _, batch):
                    assert isinstance(batch, Taken)
                    for epoch in epochs:
                        logs = self.drafts[epoch].logs
                        logs[channel] = (*logs.get(channel, ()), batch.message)
                    notes.append(Logged(channel, epochs, batch.message))
                case Proceed(_, _, batch):
                    assert isinstance(batch, Taken)
                    notes += self.move(batch.move)
                case Copy(epoch):
                    self.drafts[epoch] = Draft(self.part(epoch))
                    notes.append(Copied(epoch))
                case Forward(epoch):
                    notes += [Put(name, Marker(epoch)) for name, _ in self.outputs]
                case Persist(epoch):
                    notes.append(Whole(self.drafts.pop(epoch).now()))
                    self.machine.on(Persisted(epoch))
                case Discard(epoch):
                    del self.drafts[epoch]
                    notes.append(GaveUp(epoch))
                case Flush() | Block() | Unblock() | Ack() | Commit() | CaughtUp():
                    pass  # nothing is owed, blocked or shown here; a whole part counts as stored
                case _:
                    assert_never(action)
        return notes

    def key(self, base: Mapping[ChannelId, int]) -> Any:
        """Equal for those that do the same from now on, but for the numbers of messages, which count from `base`."""
        machine = {name: frozen(value) for name, value in vars(self.machine).items()}
        machine["sent"] = _less(self.machine.sent.items(), base)
        machine["received"] = _less(self.machine.received.items(), base)
        drafts = tuple((epoch, part_key(draft.now(), base)) for epoch, draft in sorted(self.drafts.items()))
        return (self.state, tuple(machine.values()), drafts)

    def part(self, epoch: int) -> Part:
        """State and counters as they are now."""
        sent, received = tuple(self.machine.sent.items()), tuple(self.machine.received.items())
        return Part(self.machine.name.operator, epoch, self.state, sent, received)


def part_key(part: Part, base: Mapping[ChannelId, int]) -> Any:
    """A part, with the numbers of messages counted from `base`, by channel."""
    logs = tuple(
        (id, tuple((message.number - base[id], message.content) for message in log)) for id, log in part.logs
    )
    return (part.process, part.state, _less(part.sent, base), _less(part.received, base), logs)


def _less(counts: Iterable[tuple[ChannelId, int]], base: Mapping[ChannelId, int]) -> tuple[int, ...]:
    return tuple(count - base[id] for id, count in counts)
