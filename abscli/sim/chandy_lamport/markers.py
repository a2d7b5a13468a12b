"""Chandy and Lamport's algorithm on any system of processes: the protocol's own task machine, one for each process.

The policy is `unaligned`; barriers are the markers. Any process may start a snapshot at any time, several may start
the same one, and several snapshots may be under way: one that a younger one has overtaken is given up (R7), the
youngest ends. A world is made of values that are replaced and of numbers of participants in a table, so that it can be
copied and compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from abscli.protocol.events import BarrierArrived, RecordsArrived, TaskEvent, Triggered
from abscli.sim.chandy_lamport.participant import Marker, Note, Participant, Put, Taken, Whole, part_key
from abscli.sim.chandy_lamport.processes import Event, Global, Move, System
from abscli.sim.chandy_lamport.recorded import Begun, Done, Message, Part, Recorded, check_channels, check_reachable
from abscli.sim.interned import Table
from abscli.sim.properties import Violation
from formats.ids import ChannelId

Step = tuple[Any, ...]
"""("start", process, epoch), ("move", process, name), ("take", channel, name) or ("mark", channel)."""


@dataclass(frozen=True, slots=True)
class Scope:
    """How much may happen.

    snapshots: epoch numbers.
    at_once: open at a time.
    initiators: who may start one, None for all.
    moves: spontaneous ones, None for any number (what is done with messages is not bounded).
    """

    snapshots: int = 1
    at_once: int = 2
    initiators: frozenset[str] | None = None
    moves: int | None = None


class World:
    """A system and its snapshots, one step at a time. recorded: the snapshots that have ended."""

    def __init__(self, system: System, scope: Scope, table: Table | None = None) -> None:
        self.system = system
        self.scope = scope
        self.table = table or Table()
        self.keys: tuple[dict[Any, int], dict[Any, int]] = ({}, {})
        self.participants = {process: self._number(Participant(system, process)) for process in system.processes}
        self.channels: dict[str, tuple[Message | Marker, ...]] = {pipe.name: () for pipe in system.pipes}
        self.history: dict[str, tuple[Any, ...]] = {pipe.name: () for pipe in system.pipes}
        self.moves_left = scope.moves
        self.newest = 0
        self.begun: dict[int, Begun] = {}
        self.initiators: dict[int, tuple[str, ...]] = {}
        self.parts: dict[int, dict[str, Part]] = {}
        self.given_up: frozenset[int] = frozenset()
        self.events: tuple[Done, ...] = ()
        self.steps: tuple[Step, ...] = ()
        self.recorded: tuple[Recorded, ...] = ()

    def _number(self, participant: Any) -> int:
        return self.table.number(participant)

    def participant(self, process: str) -> Participant:
        """A process that takes part, to look at."""
        participant: Participant = self.table.machines[self.participants[process]]
        return participant

    def now(self) -> Global:
        """The global state, which no process sees."""
        return Global(
            tuple(self.participant(process).state for process in self.system.processes),
            tuple(
                tuple(item.content for item in items if isinstance(item, Message)) for items in self.channels.values()
            ),
        )

    def next_on(self, channel: str) -> int:
        """The place of what is delivered next: channels are first in, first out."""
        return 0

    def head(self, channel: str) -> Message | Marker:
        """What is delivered next."""
        return self.channels[channel][self.next_on(channel)]

    @property
    def settled(self) -> bool:
        """Whether no snapshot is open anywhere."""
        return not self.begun and not any(self.participant(process).drafts for process in self.participants)

    def has_marker(self, channel: str) -> bool:
        """Whether a marker is on its way."""
        return any(isinstance(item, Marker) for item in self.channels[channel])

    # -- steps --------------------------------------------------------------------------------------------

    def enabled(self) -> list[Step]:
        """All that may happen next, in a fixed order."""
        steps: list[Step] = []
        for channel, items in self.channels.items():
            if items:
                steps += self._deliveries(channel, self.head(channel))
        if self.moves_left != 0:
            for process in self.system.processes:
                options = self.system.options(process, self.participant(process).state, None)
                steps += [("move", process, move.name) for move in options]
        newest = self.newest + (self.newest < self.scope.snapshots and len(self.begun) < self.scope.at_once)
        for process in self.system.processes:
            if self.scope.initiators is None or process in self.scope.initiators:
                copied = self.participant(process).machine.copied
                steps += [("start", process, epoch) for epoch in range(copied + 1, newest + 1)]
        return steps

    def _deliveries(self, channel: str, head: Message | Marker) -> list[Step]:
        if isinstance(head, Marker):
            return [("mark", channel)]
        receiver = self.system.by_name[channel].receiver
        options = self.system.options(receiver, self.participant(receiver).state, channel, head.content)
        return [("take", channel, move.name) for move in options]

    def do(self, step: Step) -> list[Note]:
        """Let a step happen, return what its process did; Violation or ProtocolError if that breaks a rule."""
        self.steps += (step,)
        match step:
            case ("start", process, epoch):
                self._begin(process, epoch)
                notes = self._tell(process, Triggered(epoch))
            case ("move", process, name):
                if self.moves_left is not None:
                    self.moves_left -= 1
                notes = self._move(process, name)
            case ("take", channel, name):
                process = self.system.by_name[channel].receiver
                notes = self._take(process, channel, name)
            case ("mark", channel):
                process = self.system.by_name[channel].receiver
                marker = self._remove(channel)
                assert isinstance(marker, Marker)
                notes = self._tell(process, BarrierArrived(self.system.ids[channel], marker.epoch))
            case _:
                raise ValueError(f"no step {step}")
        for note in notes:
            if isinstance(note, Put):
                self._put(note)
            elif isinstance(note, Whole) and note.part.epoch in self.begun:
                self.parts[note.part.epoch] = {**self.parts.get(note.part.epoch, {}), process: note.part}
        self._settle()
        return notes

    def _begin(self, process: str, epoch: int) -> None:
        if epoch > self.newest:
            self.newest = epoch
            self.begun[epoch] = Begun(self.now(), len(self.events))
        self.initiators[epoch] = (*self.initiators.get(epoch, ()), process)

    def _move(self, process: str, name: str) -> list[Note]:
        participant = self.participant(process)
        self._remember(Event(process, None, name), participant)
        move = _named(name, self.system.options(process, participant.state, None))
        return self._local(process, move, lambda own: own.move(move))

    def _take(self, process: str, channel: str, name: str) -> list[Note]:
        message, participant = self._remove(channel), self.participant(process)
        assert isinstance(message, Message)
        self._remember(Event(process, channel, name), participant)
        move = _named(name, self.system.options(process, participant.state, channel, message.content))
        id = self.system.ids[channel]
        return self._tell(process, RecordsArrived(id, message.number, 1, Taken(message, move)))

    def _tell(self, process: str, event: TaskEvent) -> list[Note]:
        return self._local(process, event, lambda own: own.handle(event))

    def _local(self, process: str, event: Any, make: Any) -> list[Note]:
        notes: list[Note]
        self.participants[process], notes = self.table.step(self.participants[process], event, make)
        return notes

    def _remember(self, event: Event, participant: Participant) -> None:
        if self.begun:
            self.events += (Done(event, participant.machine.copied),)

    def _remove(self, channel: str) -> Message | Marker:
        items, at = self.channels[channel], self.next_on(channel)
        self.channels[channel] = items[:at] + items[at + 1 :]
        return items[at]

    def _put(self, put: Put) -> None:
        if isinstance(put.item, Message):
            self.history[put.channel] += (put.item.content,)
        self.channels[put.channel] += (put.item,)

    def _settle(self) -> None:
        """Take note of snapshots that have ended, and of those that some process has gone past."""
        for epoch, begun in list(self.begun.items()):
            parts = self.parts.get(epoch, {})
            if len(parts) == len(self.participants):
                state, now = check_channels(self.system, epoch, parts, self.history), self.now()
                occurred = check_reachable(self.system, epoch, begun.state, state, now, self.events[begun.at :])
                self.recorded += (Recorded(epoch, self.initiators[epoch], state, begun.state, now, occurred),)
            elif any(self._passed(process, epoch) for process in self.participants.keys() - parts.keys()):
                self.given_up |= {epoch}
            else:
                continue
            del self.begun[epoch]
            self.parts.pop(epoch, None)
        if not self.begun:
            self.events = ()

    def _passed(self, process: str, epoch: int) -> bool:
        participant = self.participant(process)
        return participant.machine.copied >= epoch and epoch not in participant.drafts

    def check_end(self) -> bool:
        """Whether all markers were delivered; if so, every snapshot has ended or was given up for a younger one.

        Called when nothing can happen any more. A Violation (`end`) names what is left open, but for snapshots whose
        initiators' markers do not get everywhere. A marker behind a message that is never taken is no fault of the
        snapshot's.
        """
        if any(map(self.has_marker, self.channels)):
            return False
        for epoch, initiators in self.initiators.items():
            fed = self._fed_by(initiators)
            for process in sorted(fed):
                senders = {self.system.by_name[channel].sender for channel in self.system.inputs[process]}
                if senders <= fed and epoch in self.participant(process).drafts:
                    raise Violation("end", f"all markers are delivered, and {process} has snapshot {epoch} still open")
            if epoch in self.begun and fed == self.participants.keys():
                missing = min(self.participants.keys() - self.parts.get(epoch, {}).keys())
                raise Violation("end", f"all markers are delivered, and snapshot {epoch} has no part of {missing}")
        if self.newest in self.given_up:
            raise Violation("end", f"snapshot {self.newest} was given up, and there is no younger one")
        return True

    def _fed_by(self, processes: tuple[str, ...]) -> set[str]:
        """Whom markers of these processes get to, themselves included."""
        fed, todo = set(processes), list(processes)
        while todo:
            reached = {self.system.by_name[channel].receiver for channel in self.system.outputs[todo.pop()]} - fed
            fed |= reached
            todo += reached
        return fed

    # -- copies and comparison ----------------------------------------------------------------------------

    def copy(self) -> Self:
        """A world that goes its own way."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        for name in ("participants", "channels", "history", "begun", "initiators", "parts"):
            setattr(twin, name, dict(getattr(self, name)))
        return twin

    def key(self) -> Any:
        """Equal for worlds in which the same can happen, and with snapshots that began in the same global state.

        Numbers of messages are counted from the oldest that some open snapshot still asks for: a system that goes
        round in circles has finitely many worlds.
        """
        ids, base = self.system.ids, {}
        for pipe in self.system.pipes:
            participant = self.participant(pipe.receiver)
            parts = [draft.part for draft in participant.drafts.values()]
            parts += [of[pipe.receiver] for of in self.parts.values() if pipe.receiver in of]
            id = ids[pipe.name]
            copies = [dict(part.received)[id] for part in parts]
            base[id] = min([participant.machine.received[id], *copies])
        return (
            tuple(self._participant_key(process, base) for process in self.participants),
            tuple(
                tuple((i.number - base[ids[name]], i.content) if isinstance(i, Message) else i.epoch for i in items)
                for name, items in self.channels.items()
            ),
            tuple(messages[base[ids[name]] :] for name, messages in self.history.items()),
            tuple((epoch, begun.state) for epoch, begun in self.begun.items()),
            tuple((epoch, frozenset(part_key(part, base) for part in of.values())) for epoch, of in self.parts.items()),
            tuple(
                (epoch, who) for epoch, who in self.initiators.items() if epoch in self.begun or epoch in self.given_up
            ),
            self.newest,
            self.given_up,
            self.moves_left,
        )


    def _participant_key(self, process: str, base: dict[ChannelId, int]) -> int:
        """One number for all participants that differ in nothing but what `base` takes away."""
        names = self.system.inputs[process] + self.system.outputs[process]
        asked = (self.participants[process], tuple(base[self.system.ids[name]] for name in names))
        looked_up, numbers = self.keys
        number = looked_up.get(asked)
        if number is None:
            number = looked_up[asked] = numbers.setdefault(self.participant(process).key(base), len(numbers))
        return number


def _named(name: str, options: tuple[Move, ...]) -> Move:
    (move,) = (move for move in options if move.name == name)
    return move
