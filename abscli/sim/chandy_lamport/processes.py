"""Processes that exchange messages over channels, as Chandy and Lamport define them (1985, section 2): no snapshots.

A process is in a state. An event changes the state of one process, takes at most one message from the head of one
channel, and may send. A global state is the states of all processes and what is on all channels. Nothing here knows
of markers, so that what a snapshot recorded can be held against it: `replay` and `reachable`.

States and messages are plain values: strings, integers, tuples of these.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from formats.ids import ChannelId, TaskId


class Move(NamedTuple):
    """What a process may do in a state.

    name: unique there.
    sends: (channel, message), in order.
    """

    name: str
    state: Any
    sends: tuple[tuple[str, Any], ...] = ()


class Pipe(NamedTuple):
    """A channel: first in, first out, never full."""

    name: str
    sender: str
    receiver: str


class Event(NamedTuple):
    """A move that was made.

    channel: where it took a message from; None for a spontaneous one.
    move: its name.
    """

    process: str
    channel: str | None
    move: str


class Global(NamedTuple):
    """A global state: processes and channels in the order of the system."""

    states: tuple[Any, ...]
    channels: tuple[tuple[Any, ...], ...]


class Rule(NamedTuple):
    """An arrow of a state diagram.

    move: its name.
    takes: (channel, message) that it needs at the channel's head.
    """

    process: str
    before: Any
    move: str
    after: Any
    takes: tuple[str, Any] | None = None
    sends: tuple[tuple[str, Any], ...] = ()


class CannotOccur(ValueError):
    """An event is not possible in a global state."""


@dataclass(frozen=True, eq=False)
class System:
    """Processes, the channels between them, and what each may do.

    processes: first states by name.
    moves(process, state): what it may do unasked.
    takes(process, state, channel, message): what it may do with the head of a channel, nothing if it leaves it there
    for now.
    """

    processes: Mapping[str, Any]
    pipes: tuple[Pipe, ...]
    moves: Callable[[str, Any], Iterable[Move]]
    takes: Callable[[str, Any, str, Any], Iterable[Move]]

    def __post_init__(self) -> None:
        names = [pipe.name for pipe in self.pipes]
        if len(set(names)) < len(names):
            raise ValueError(f"two channels have the same name: {names}")
        for pipe in self.pipes:
            if not {pipe.sender, pipe.receiver} <= self.processes.keys():
                raise ValueError(f"channel {pipe.name} connects {pipe.sender} to {pipe.receiver}, but one of these "
                    "processes does not exist")

    @classmethod
    def of_rules(cls, processes: Mapping[str, Any], pipes: Iterable[Pipe], rules: Iterable[Rule]) -> System:
        """A system of finite automata."""
        moves: dict[tuple[Any, ...], list[Move]] = {}
        for rule in rules:
            key = (rule.process, rule.before, *(rule.takes or ()))
            moves.setdefault(key, []).append(Move(rule.move, rule.after, rule.sends))
        return cls(
            processes,
            tuple(pipes),
            lambda process, state: moves.get((process, state), ()),
            lambda process, state, channel, message: moves.get((process, state, channel, message), ()),
        )

    @cached_property
    def by_name(self) -> dict[str, Pipe]:
        """The channels."""
        return {pipe.name: pipe for pipe in self.pipes}

    @cached_property
    def ids(self) -> dict[str, ChannelId]:
        """The channels as the protocol's machine calls them, by name: a process is one task, and the second channel
        between the same two is told from the first by its number."""
        ids: dict[str, ChannelId] = {}
        before = Counter[tuple[str, str]]()
        for pipe in self.pipes:
            ends = pipe.sender, pipe.receiver
            ids[pipe.name] = ChannelId(TaskId(pipe.sender, before[ends]), TaskId(pipe.receiver, before[ends]))
            before[ends] += 1
        return ids

    @cached_property
    def inputs(self) -> dict[str, tuple[str, ...]]:
        """Channel names, by receiver."""
        return {name: tuple(p.name for p in self.pipes if p.receiver == name) for name in self.processes}

    @cached_property
    def outputs(self) -> dict[str, tuple[str, ...]]:
        """Channel names, by sender."""
        return {name: tuple(p.name for p in self.pipes if p.sender == name) for name in self.processes}

    @cached_property
    def place(self) -> dict[str, int]:
        """Of processes and of channels: where they stand in a global state."""
        places = {name: at for at, name in enumerate(self.processes)}
        return places | {pipe.name: at for at, pipe in enumerate(self.pipes)}

    @property
    def first(self) -> Global:
        """The state that all runs start from: every channel is empty."""
        return Global(tuple(self.processes.values()), ((),) * len(self.pipes))

    def options(self, process: str, state: Any, channel: str | None, message: Any = None) -> tuple[Move, ...]:
        """What a process may do: unasked, or with the message at the head of a channel."""
        moves = self.moves(process, state) if channel is None else self.takes(process, state, channel, message)
        return tuple(moves)

    def events(self, state: Global) -> list[Event]:
        """All that may happen next."""
        events = []
        for process, own in zip(self.processes, state.states, strict=True):
            events += [Event(process, None, move.name) for move in self.options(process, own, None)]
        for pipe, waiting in zip(self.pipes, state.channels, strict=True):
            if waiting:
                own = state.states[self.place[pipe.receiver]]
                options = self.options(pipe.receiver, own, pipe.name, waiting[0])
                events += [Event(pipe.receiver, pipe.name, move.name) for move in options]
        return events

    def after(self, state: Global, event: Event) -> Global:
        """The next global state; CannotOccur if the event is not possible here."""
        process, channel, name = event
        states, channels = list(state.states), list(state.channels)
        message = None
        if channel is not None:
            at = self.place[channel]
            if not channels[at]:
                raise CannotOccur(f"{process} cannot {name}: {channel} is empty")
            message, channels[at] = channels[at][0], channels[at][1:]
        here = self.place[process]
        chosen = [move for move in self.options(process, states[here], channel, message) if move.name == name]
        if len(chosen) != 1:
            raise CannotOccur(f"{process} in state {states[here]!r} has {len(chosen)} ways to {name!r}")
        states[here] = chosen[0].state
        for output, sent in chosen[0].sends:
            if self.by_name[output].sender != process:
                raise ValueError(f"{process} sends on {output}, which is not one of its output channels")
            channels[self.place[output]] += (sent,)
        return Global(tuple(states), tuple(channels))

    def replay(self, state: Global, events: Sequence[Event]) -> list[Global]:
        """The states that a sequence of events goes through, `state` first; CannotOccur where it is not possible."""
        passed = [state]
        for event in events:
            passed.append(self.after(passed[-1], event))
        return passed

    def reachable(self, state: Global, most: int = 1_000_000) -> set[Global]:
        """All states that some sequence of events leads to; ValueError if there are more than `most`."""
        seen, todo = {state}, deque([state])
        while todo:
            here = todo.popleft()
            for following in (self.after(here, event) for event in self.events(here)):
                if following not in seen:
                    seen.add(following)
                    todo.append(following)
            if len(seen) > most:
                raise ValueError(f"the system has more than {most} global states")
        return seen
