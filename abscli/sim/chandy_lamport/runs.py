"""Runs of a system with snapshots: one from a seed, or all of a scope."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from abscli.protocol.events import ProtocolError
from abscli.sim.chandy_lamport.markers import Scope, Step, World
from abscli.sim.chandy_lamport.processes import System
from abscli.sim.chandy_lamport.recorded import Recorded
from abscli.sim.interned import Table
from abscli.sim.properties import Violation

STEPS = 100
"""After so many steps of a random run nothing new is begun: what is on the channels is delivered, markers first."""

MOST = 2_000
SLOW = 0.1
"""Weight of what is slow, in half of the runs a quarter of all channels and processes."""


@dataclass(frozen=True, slots=True)
class Ran:
    """One run.

    recorded: the snapshots that ended in it.
    whole: whether all markers were delivered.
    rule, message: of the property that does not hold, None if all do.
    """

    seed: int
    steps: tuple[Step, ...]
    recorded: tuple[Recorded, ...]
    given_up: int
    whole: bool
    rule: str | None = None
    message: str | None = None


def run(
    system: System,
    scope: Scope,
    seed: int,
    *,
    steps: int = STEPS,
    until: Callable[[Recorded], bool] | None = None,
    table: Table | None = None,
) -> Ran:
    """One run from a seed, the same in every version: only `random.random()` is used.

    until: ends the run with the first snapshot of which it holds; table: shared by runs of one system, to save time.
    """
    world, chance = World(system, scope, table), random.Random(seed)
    weights: dict[Step, float] = {}
    slow = 0.25 * (chance.random() < 0.5)
    whole = False
    try:
        while len(world.steps) < MOST:
            enabled = world.enabled()
            if len(world.steps) >= steps:
                enabled = _rest(world, enabled)
            if not enabled:
                whole = world.check_end()
                break
            for step in enabled:
                if step[:2] not in weights:
                    weights[step[:2]] = SLOW if chance.random() < slow else 1.0
            at = chance.random() * sum(weights[step[:2]] for step in enabled)
            for step in enabled:
                at -= weights[step[:2]]
                if at < 0:
                    break
            recorded_before = len(world.recorded)
            world.do(step)
            if until and any(map(until, world.recorded[recorded_before:])):
                whole = True
                break
    except (Violation, ProtocolError) as error:
        return Ran(seed, world.steps, world.recorded, len(world.given_up), False, *rule_of(error))
    return Ran(seed, world.steps, world.recorded, len(world.given_up), whole)


def _rest(world: World, enabled: list[Step]) -> list[Step]:
    """What serves the open snapshots: markers, else what lies before one, else whatever the system may do."""
    if not any(world.has_marker(channel) for channel in world.channels):
        return []
    marks = [step for step in enabled if step[0] == "mark"]
    takes = [step for step in enabled if step[0] == "take" and world.has_marker(step[1])]
    return marks or takes or [step for step in enabled if step[0] != "start"]


@dataclass(frozen=True)
class Explored:
    """What a search has seen.

    worlds: different ones, or with `every_run` all.
    ends: worlds in which nothing can happen any more.
    stuck: those of them with a marker behind a message that is never taken.
    endless: worlds from which no way leads to the end of all their snapshots (None: not looked at; 0: under
    fairness all snapshots end, however long the system runs).
    whole: whether nothing is left to look at.
    recorded: by how many steps each snapshot was ended.
    trace, rule, message: of a violation.
    """

    worlds: int
    steps: int
    ends: int
    stuck: int
    endless: int | None
    whole: bool
    recorded: Counter[Recorded] = field(default_factory=Counter)
    trace: tuple[Step, ...] = ()
    rule: str | None = None
    message: str | None = None


def explore(system: System, scope: Scope, *, every_run: bool = False, most: int = 1_000_000) -> Explored:
    """All that can happen: breadth first over worlds, each looked at once, so that a trace is as short as any.

    every_run: worlds that were reached on different ways are not put together, so that all checks, and the permuted
    run of the theorem, are made in every single run; `ends` counts them. The scope must be finite for that.
    """
    if every_run and scope.moves is None:
        raise ValueError("every_run requires a limit on the number of moves, because runs would otherwise never end")
    first = World(system, scope)
    numbers = {first.key(): 0}
    before: list[list[int]] = [[]]
    settled: list[int] = [0]
    todo = deque([(0, first)])
    worlds, steps, ends, stuck = 1, 0, 0, 0
    recorded: Counter[Recorded] = Counter()
    while todo:
        number, world = todo.pop() if every_run else todo.popleft()
        following = world
        try:
            enabled = world.enabled()
            if not enabled:
                ends += 1
                stuck += not world.check_end()
            for step in enabled:
                following = world.copy()
                following.do(step)
                steps += 1
                recorded.update(following.recorded[len(world.recorded) :])
                if every_run:
                    worlds += 1
                    todo.append((worlds, following))
                    continue
                following_number = numbers.setdefault(following.key(), worlds)
                if following_number < worlds:
                    before[following_number].append(number)
                    continue
                worlds += 1
                before.append([number])
                todo.append((following_number, following))
                if following.settled:
                    settled.append(following_number)
        except (Violation, ProtocolError) as error:
            return Explored(worlds, steps, ends, stuck, None, False, recorded, following.steps, *rule_of(error))
        if worlds >= most:
            return Explored(worlds, steps, ends, stuck, None, False, recorded)
    endless = None if every_run else worlds - len(_leading_to(settled, before))
    return Explored(worlds, steps, ends, stuck, endless, True, recorded)


def _leading_to(goals: list[int], before: list[list[int]]) -> set[int]:
    leading, todo = set(goals), list(goals)
    while todo:
        for earlier in before[todo.pop()]:
            if earlier not in leading:
                leading.add(earlier)
                todo.append(earlier)
    return leading


def rule_of(error: Violation | ProtocolError) -> tuple[str, str]:
    """The name of the broken rule, and what happened."""
    return (error.rule, str(error)) if isinstance(error, Violation) else ("protocol", f"protocol: {error}")

