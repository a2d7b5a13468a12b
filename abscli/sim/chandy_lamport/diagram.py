"""A run of processes and their snapshots as a space-time diagram."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_never

from abscli.protocol.events import ProtocolError
from abscli.sim.chandy_lamport.markers import Scope, Step, World
from abscli.sim.chandy_lamport.participant import Copied, GaveUp, Logged, Marker, Note, Put, Whole
from abscli.sim.chandy_lamport.processes import System
from abscli.sim.chandy_lamport.recorded import Message, Recorded
from abscli.sim.chandy_lamport.runs import rule_of
from abscli.sim.diagram import Diagram, Moment
from abscli.sim.diagram import Message as Arrow
from abscli.sim.properties import Violation


def drawn(system: System, scope: Scope, steps: Sequence[Step], title: str) -> Diagram:
    """Make the steps again and draw them, up to the first violation; after the last step, what must hold at an end."""
    world = World(system, scope)
    moments: list[Moment] = []
    arrows: list[Arrow] = []
    flying: dict[tuple[str, Message | Marker], int] = {}
    violation = None

    def arrow(channel: str, item: Message | Marker, received: int | None) -> Arrow:
        pipe, sent = system.by_name[channel], flying.pop((channel, item))
        label = f"marker {item.epoch}" if isinstance(item, Marker) else str(item.content)
        epoch = item.epoch if isinstance(item, Marker) else None
        return Arrow(pipe.sender, pipe.receiver, sent, received, label, epoch)

    for number, step in enumerate(steps, 1):
        kind, where, *arguments = step
        process: str = system.by_name[where].receiver if kind in ("take", "mark") else where
        if kind in ("take", "mark"):
            arrows.append(arrow(where, world.head(where), number))
        if kind == "start":
            moments.append(Moment(number, process, f"starts snapshot {arguments[0]}", "trigger", arguments[0]))
        recorded_before = len(world.recorded)
        try:
            notes = world.do(step)
        except (Violation, ProtocolError) as error:
            rule, violation = rule_of(error)
            moments.append(Moment(number, process, rule, "violation"))
            break
        flying |= {(note.channel, note.item): number for note in notes if isinstance(note, Put)}
        if kind == "move" and not any(isinstance(note, Put) for note in notes):
            moments.append(Moment(number, process, arguments[0], "record"))
        moments += [Moment(number, process, *entry) for note in notes if (entry := _entry(note, world, process))]
        moments += [
            Moment(
                number, process, f"snapshot {snapshot.epoch}: {_in_words(system, snapshot)}", "complete", snapshot.epoch
            )
            for snapshot in world.recorded[recorded_before:]
        ]
    if violation is None and not world.enabled():
        try:
            world.check_end()
        except Violation as error:
            violation = str(error)
    arrows += [arrow(channel, item, None) for channel, item in list(flying)]
    return Diagram(title, tuple(system.processes), tuple(moments), tuple(arrows), violation)


def _entry(note: Note, world: World, process: str) -> tuple[str, str, int | None] | None:
    """Label, kind and epoch of the moment that this is, if it is one."""
    match note:
        case Copied(epoch):
            return f"{_word(world.participant(process).state)} into copy {epoch}", "copy", epoch
        case Logged(_, epochs, message):
            return f"logs {message.content} for {', '.join(map(str, epochs))}", "log", None
        case Whole(part):
            return f"part of {part.epoch} is whole", "persist", part.epoch
        case GaveUp(epoch):
            return f"gives up {epoch}", "abort", epoch
        case Put():
            return None
        case _:
            assert_never(note)


def _in_words(system: System, snapshot: Recorded) -> str:
    states = [
        f"{process} {_word(state)}"
        for process, state in zip(system.processes, snapshot.state.states, strict=True)
    ]
    logs = [
        f"{pipe.name}: {', '.join(map(str, messages))}"
        for pipe, messages in zip(system.pipes, snapshot.state.channels, strict=True)
        if messages
    ]
    return ", ".join([*states, *logs])


def _word(state: Any) -> str:
    return " ".join(map(str, state)) if isinstance(state, tuple) else str(state)
