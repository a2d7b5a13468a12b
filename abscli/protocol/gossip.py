"""What a worker knows of schedules, and says on its connections as bytes (L3): made once for all of them.

The pieces that it learns are kept as they came, in the order in which they did; its own are added as they are first
said. A connection is told what has been added since it was last told, but nothing that its own worker has said: that
knows it already. `causal.Knowledge.news` says the same by task, which the simulator can
compare; what matters, that whoever has a frame knows all that its sender knew, `tests/protocol/test_gossip.py` holds.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Iterable, Sequence

from abscli.protocol.causal import Knowledge, encode, pieces
from abscli.protocol.events import ProtocolError
from abscli.protocol.schedule import Delta, Schedule
from formats.ids import TaskId

OWN = -1
"""The worker itself, among those who said something."""

FORGOTTEN_PAST = 1 << 20
"""Bytes of pieces that are kept to be said; connections that have not been told by then are told all there is."""

_HEAD = struct.Struct("<HIIQ")
"""Of pieces that a worker says together: its number, which of its lives, how many bytes follow, which of its sayings in
that life it is."""

_ALL = 0xFFFF
"""In place of a worker's number: all that is known, by whomever it was said."""


class Gossip(Knowledge):
    """Of one worker.

    tasks: all of the job, the same in every worker.
    life: 32 bits that no other life of this worker has: sayings are counted from 0 in each.
    """

    def __init__(self, tasks: Sequence[TaskId], number: int = 0, life: int = 0) -> None:
        super().__init__()
        self._tasks = tasks
        self._numbers = {task: place for place, task in enumerate(tasks)}
        self._number = number
        self._life = life
        self._sayings = 0
        self._heard: dict[int, tuple[int, int]] = {}
        self._unsaid: set[TaskId] = set()
        self._noted: dict[TaskId, tuple[int, int]] = {}
        self._pieces: list[tuple[int, bytes]] = []
        self._size = 0
        self._peers: dict[Hashable, int] = {}
        self._told: dict[Hashable, int | None] = {}

    def meet(self, connection: Hashable, peer: int) -> None:
        """A connection to a worker begins, or begins anew: nothing has been said on it."""
        self._peers[connection] = peer
        self._told[connection] = None

    def part(self, connection: Hashable) -> None:
        """A connection has ended."""
        self._peers.pop(connection, None)
        self._told.pop(connection, None)

    def say(self, connection: Hashable) -> bytes:
        """What the next frame of a connection carries; it counts as said."""
        if self._unsaid:
            self._note_own()
        told, peer = self._told[connection], self._peers[connection]
        self._told[connection] = len(self._pieces)
        if told is None:
            return self.everything()
        return b"".join([pieces for origin, pieces in self._pieces[told:] if origin != peer])

    def hear(self, sayings: bytes | memoryview, peer: int = OWN) -> None:
        """Learn what a worker said; ProtocolError for what cannot be (L4). It knows that, and is not told."""
        sayings = memoryview(sayings)
        at, size, heard = 0, len(sayings), self._heard
        while at < size:
            if at + _HEAD.size > size:
                raise ProtocolError(f"truncated determinant log: {size} bytes end within the header of an entry")
            number, life, length, saying = _HEAD.unpack_from(sayings, at)
            begin, at = at, at + _HEAD.size + length
            if at > size:
                raise ProtocolError(f"truncated determinant log: {size} bytes end within an entry of {length} bytes")
            # Everything comes from every peer, and most is known: so look before anything is made of it. Who has heard
            # a saying has heard those before it, since all are passed on in the order in which they came.
            newest = heard.get(number)
            if newest is not None and newest[0] == life and saying <= newest[1]:
                continue
            if self._learns(sayings[begin + _HEAD.size : at]):
                self._keep(peer, bytes(sayings[begin:at]))
            if number != _ALL:
                heard[number] = life, saying
        if self._size > FORGOTTEN_PAST:
            self._forget()

    def everything(self) -> bytes:
        """All that is known, as `hear` takes it."""
        pieces = encode(self.report(), self._numbers)
        return _HEAD.pack(_ALL, 0, len(pieces), 0) + pieces

    def merge(self, deltas: Iterable[Delta]) -> None:
        pieces = encode(tuple(deltas), self._numbers)
        self.hear(_HEAD.pack(_ALL, 0, len(pieces), 0) + pieces)

    def complete(self, epoch: int) -> None:
        super().complete(epoch)
        self._drop_said()

    @property
    def waiting(self) -> int:
        """Bytes that are kept to be said."""
        return sum(len(pieces) for _, pieces in self._pieces)

    def _changed(self, task: TaskId) -> None:
        # What was heard is said as it came; what changes otherwise is a step of a task of this worker.
        self._unsaid.add(task)

    def _learns(self, said: memoryview) -> bool:
        """Whether anything was new in these pieces."""
        news = False
        for number, line, start, at, steps in pieces(said, len(self._tasks)):
            task = self._tasks[number]
            schedule = self._schedules.get(task)
            # Of all that somebody knows little is new: nothing is made of what is not.
            if schedule is not None and schedule.has(line, start, at, steps):
                continue
            delta = Delta(task, line, start, at, bytes(steps))
            if schedule is not None:
                news |= schedule.merge(delta)
                continue
            if delta.at != delta.start:
                raise ProtocolError(f"{delta.task}: expected the first determinants from position {delta.start}, got "
                    f"position {delta.at}")
            schedule = self._schedules[task] = Schedule(task, line, start)
            schedule.merge(delta)
            news = True
        return news

    def _note_own(self) -> None:
        """What its tasks have done since this was last done is its next saying."""
        deltas = []
        for task in self._unsaid:
            schedule = self._schedules[task]
            line, position = self._noted.get(task, (-1, 0))
            deltas.append(schedule.piece(position if line == schedule.line else 0))
            self._noted[task] = schedule.line, schedule.end
        self._unsaid.clear()
        pieces = encode(deltas, self._numbers)
        self._keep(OWN, _HEAD.pack(self._number, self._life, len(pieces), self._sayings) + pieces)
        self._heard[self._number] = self._life, self._sayings
        self._sayings += 1

    def _keep(self, origin: int, pieces: bytes) -> None:
        self._pieces.append((origin, pieces))
        self._size += len(pieces)

    def _drop_said(self) -> None:
        """The pieces that every connection has been told; who has been told nothing yet is told all that is known."""
        places = [place for place in self._told.values() if place is not None]
        said = min(places, default=len(self._pieces))
        self._size -= sum(len(pieces) for _, pieces in self._pieces[:said])
        del self._pieces[:said]
        for connection, place in self._told.items():
            if place is not None:
                self._told[connection] = place - said

    def _forget(self) -> None:
        """The pieces: in place of them all that is known, which has become less. Who had not been told all of them is
        told that."""
        if self._unsaid:
            self._note_own()
        end = len(self._pieces)
        for connection, told in self._told.items():
            if told is not None:
                self._told[connection] = 1 if told == end else 0
        self._pieces = [(OWN, self.everything())]
        self._size = 0
