"""What a snapshot recorded, and what must hold of it (Chandy and Lamport 1985, sections 3 and 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from abscli.sim.chandy_lamport.processes import CannotOccur, Event, Global, System
from abscli.sim.properties import Violation
from formats.ids import ChannelId


class Message(NamedTuple):
    """A message on a channel, with its number there, from 1."""

    number: int
    content: Any


@dataclass(frozen=True, slots=True)
class Part:
    """A process's part of a snapshot: its state and counters at the copy, and the logs of its inputs."""

    process: str
    epoch: int
    state: Any
    sent: tuple[tuple[ChannelId, int], ...]
    received: tuple[tuple[ChannelId, int], ...]
    logs: tuple[tuple[ChannelId, tuple[Message, ...]], ...] = ()


class Done(NamedTuple):
    """An event that happened.

    copied: the newest snapshot that its process had copied its state for.
    """

    event: Event
    copied: int


@dataclass(frozen=True, slots=True)
class Begun:
    """A snapshot that is being taken.

    state: the global state in which it began.
    at: how many of the events that are kept happened before that.
    """

    state: Global
    at: int


@dataclass(frozen=True, slots=True)
class Recorded:
    """A snapshot that has ended.

    state: what it recorded.
    began, ended: the global states when it did.
    initiators: who started it, in order.
    occurred: whether the recorded state was passed on the way from `began` to `ended` in this very run.
    """

    epoch: int
    initiators: tuple[str, ...]
    state: Global
    began: Global
    ended: Global
    occurred: bool


def check_channels(
    system: System, epoch: int, parts: Mapping[str, Part], history: Mapping[str, tuple[Any, ...]]
) -> Global:
    """The recorded global state; a Violation unless, on every channel, what was sent and not received is the log.

    history: all messages ever sent on a channel. Rules: `orphan` (received, never sent), `twice` (in the receiver's
    state and in the log), `conservation` (numbers, content and order of the log).
    """
    contents = []
    for pipe in system.pipes:
        id = system.ids[pipe.name]
        sent = dict(parts[pipe.sender].sent)[id]
        received = dict(parts[pipe.receiver].received)[id]
        log = dict(parts[pipe.receiver].logs).get(id, ())
        counts = f"epoch {epoch}: {pipe.name}: {sent} sent, {received} received, {len(log)} logged"
        if received > sent:
            raise Violation("orphan", counts)
        if again := [message.number for message in log if message.number <= received]:
            raise Violation("twice", f"{counts}: {again} are in the state of {pipe.receiver} too")
        flying = range(received + 1, sent + 1)
        if log != tuple(Message(number, history[pipe.name][number - 1]) for number in flying):
            raise Violation("conservation", f"{counts}: {[message.number for message in log]} for {list(flying)}")
        contents.append(tuple(message.content for message in log))
    return Global(tuple(parts[process].state for process in system.processes), tuple(contents))


def permuted(epoch: int, events: Sequence[Done]) -> tuple[list[Event], list[Event]]:
    """The prerecording events, then the postrecording ones, each in the order in which they happened."""
    before = [done.event for done in events if done.copied < epoch]
    return before, [done.event for done in events if done.copied >= epoch]


def check_reachable(
    system: System, epoch: int, began: Global, state: Global, ended: Global, events: Sequence[Done]
) -> bool:
    """The theorem: the recorded state is reachable from where the snapshot began, and where it ended from it.

    Shown as the paper does: the prerecording events lead from `began` to the recorded state, and the postrecording
    ones from there to `ended`; a Violation (`reachable`) if not. events: those between, as they happened. Returned:
    whether the recorded state was passed on the way.
    """
    before, behind = permuted(epoch, events)
    try:
        recorded = system.replay(began, before)[-1]
        if recorded != state:
            raise Violation("reachable", f"epoch {epoch} recorded {state}; its prerecording events lead to {recorded}")
        last = system.replay(state, behind)[-1]
    except CannotOccur as error:
        raise Violation("reachable", f"epoch {epoch}: the permuted run is not possible: {error}") from error
    if last != ended:
        raise Violation("reachable", f"epoch {epoch} ended in {ended}; its postrecording events lead to {last}")
    return state in system.replay(began, [done.event for done in events])
