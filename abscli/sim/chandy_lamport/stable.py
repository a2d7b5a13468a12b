"""Stable properties: once true they stay true, so that a snapshot may be trusted with them (1985, section 5).

If the property holds in the snapshot, it holds when that has ended; if it held when the snapshot began, it holds in
the snapshot. Here: the termination of a diffusing computation, and deadlock among processes that lend each other
what they have. `snapshots_until` looks for one in one snapshot after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from abscli.sim.chandy_lamport.markers import Scope
from abscli.sim.chandy_lamport.processes import Global, Move, Pipe, System
from abscli.sim.chandy_lamport.runs import STEPS, Ran, run

Property = Callable[[System, Global], bool]

# -- termination ------------------------------------------------------------------------------------------------


class Worker(NamedTuple):
    """A process that sends while it is active.

    active: whether it may send.
    left: how many messages it may still send in its life.
    """

    active: bool
    left: int


def diffusing(graph: Mapping[str, Iterable[str]], root: str, sends: Mapping[str, int]) -> System:
    """A diffusing computation (Dijkstra and Scholten 1980): the root is active, a message makes its receiver active,
    and an active process may rest at any time. graph: whom each process may send to."""

    def moves(process: str, state: Worker) -> list[Move]:
        if not state.active:
            return []
        outputs = [pipe.name for pipe in pipes if pipe.sender == process] if state.left else []
        spent = state._replace(left=state.left - 1)
        return [Move("rests", state._replace(active=False))] + [
            Move(f"sends work on {name}", spent, ((name, "work"),)) for name in outputs
        ]

    def takes(process: str, state: Worker, channel: str, message: str) -> list[Move]:
        return [Move("takes work", state._replace(active=True))]

    pipes = _pipes((sender, receiver) for sender, receivers in graph.items() for receiver in receivers)
    return System({name: Worker(name == root, sends[name]) for name in graph}, pipes, moves, takes)


def terminated(system: System, state: Global) -> bool:
    """Whether all processes rest and no work is on its way: nothing will happen any more."""
    return not any(worker.active for worker in state.states) and not any(state.channels)


# -- deadlock ---------------------------------------------------------------------------------------------------


class Lender(NamedTuple):
    """A process with one thing of its own.

    phase: `idle`, `waits` (keeps its own, has asked `of` for theirs) or `works` (has both).
    lent: who has its own, `""` for nobody.
    asked: who waits for it.
    rounds: left to begin.
    """

    phase: str
    of: str
    lent: str
    asked: tuple[str, ...]
    rounds: int

    def lends(self) -> tuple[Lender, str]:
        """The state after serving who waits longest, and whom that is; `""` if it has to keep its own."""
        if self.phase == "idle" and not self.lent and self.asked:
            return self._replace(lent=self.asked[0], asked=self.asked[1:]), self.asked[0]
        return self, ""


def lending(wants: Mapping[str, Iterable[str]], rounds: int = 1) -> System:
    """Processes that each need their own thing and one of somebody else's to work, and take their own first.

    wants: of whom each may ask.
    """

    def served(process: str, state: Lender, *sends: tuple[str, str]) -> tuple[Lender, tuple[tuple[str, str], ...]]:
        state, to = state.lends()
        return state, sends + (((f"{process}->{to}", "grant"),) if to else ())

    def moves(process: str, state: Lender) -> list[Move]:
        if state.phase == "works":
            idle = state._replace(phase="idle", of="")
            return [Move("gives back", *served(process, idle, (f"{process}->{state.of}", "release")))]
        if state.phase == "waits" or state.lent or not state.rounds:
            return []
        return [
            Move(
                f"asks {other}",
                state._replace(phase="waits", of=other, rounds=state.rounds - 1),
                ((f"{process}->{other}", "request"),),
            )
            for other in wants[process]
        ]

    def takes(process: str, state: Lender, channel: str, message: str) -> list[Move]:
        sender = senders[channel]
        match message:
            case "request":
                state = state._replace(asked=(*state.asked, sender))
            case "release":
                state = state._replace(lent="")
            case "grant":
                state = state._replace(phase="works")
        return [Move(f"takes {message}", *served(process, state))]

    asked = {(name, other) for name, others in wants.items() for other in others}
    pipes = _pipes(sorted(asked | {(other, name) for name, other in asked}))
    senders = {pipe.name: pipe.sender for pipe in pipes}
    return System({name: Lender("idle", "", "", (), rounds) for name in wants}, pipes, moves, takes)


def wait_cycle(system: System, state: Global) -> tuple[str, ...]:
    """Processes of which each waits for the next, and the last for the first; () if there are none.

    Who waits keeps its own thing until it has got the other: none of them will ever go on.
    """
    of = {name: own.of for name, own in zip(system.processes, state.states, strict=True) if own.phase == "waits"}
    for name in of:
        path = [name]
        while (following := of.get(path[-1])) is not None:
            if following in path:
                return tuple(path[path.index(following) :])
            path.append(following)
    return ()


def deadlocked(system: System, state: Global) -> bool:
    """Whether some processes wait for each other."""
    return bool(wait_cycle(system, state))


def _pipes(ends: Iterable[tuple[str, str]]) -> tuple[Pipe, ...]:
    return tuple(Pipe(f"{sender}->{receiver}", sender, receiver) for sender, receiver in ends)


# -- detection --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Found:
    """What a run of snapshots showed.

    epoch: of the first snapshot that has the property, None if no snapshot of the run has it.
    ran: the run.
    """

    epoch: int | None
    ran: Ran


def snapshots_until(system: System, holds: Property, seed: int, *, snapshots: int = 20, steps: int = STEPS) -> Found:
    """Take snapshots, one after the other, until one has the property."""
    ran = run(
        system, Scope(snapshots, at_once=1), seed, steps=steps, until=lambda snapshot: holds(system, snapshot.state)
    )
    having = [snapshot.epoch for snapshot in ran.recorded if holds(system, snapshot.state)]
    return Found(having[0] if having else None, ran)
