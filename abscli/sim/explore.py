"""Every interleaving of a small job: depth-first search over worlds, each looked at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from abscli.protocol.events import ProtocolError
from abscli.protocol.policy import Policy
from abscli.sim.commuting import hurry, is_over, only_crashes, to_try
from abscli.sim.interned import InternedLocalWorld, InternedWorld, Table
from abscli.sim.model import Model
from abscli.sim.properties import Violation
from abscli.sim.world import Limits, Step

CHECK = 10_000
"""Steps between two questions whether to go on."""


@dataclass(frozen=True, slots=True)
class Explored:
    """What a search has seen.

    ends: worlds in which the job has ended.
    whole: whether nothing is left to look at.
    trace, rule, message: of the first violation.
    """

    worlds: int
    steps: int
    ends: int
    depth: int
    whole: bool
    seconds: float
    trace: tuple[Step, ...] = ()
    rule: str | None = None
    message: str | None = None


def explore(
    model: Model,
    policy: Policy,
    limits: Limits,
    *,
    most: int = 10_000_000,
    hurried: bool = True,
    persistent: bool = True,
    alive: Callable[[], bool] = lambda: True,
) -> Explored:
    """Search until every reachable world has been seen, `most` have, or a property does not hold.

    hurried, persistent: whether of steps that commute one order is enough, as `commuting` tells; without either all
    orders are tried. alive: asked now and then whether somebody still waits for the answer.

    Batches are single records: what an operator emits does not depend on where batches end (rule 8).
    """
    started = time.monotonic()
    table = Table()
    first = (InternedLocalWorld if limits.workers else InternedWorld)(model, policy, limits, table)
    path: list[list[Step]] = [hurry(first, []) if hurried else []]
    seen = {hash(first.key())}
    crashed: set[int] = set()
    few = persistent and hurried and only_crashes(limits)

    def todo_in(world: InternedWorld) -> list[Step]:
        if few or (persistent and hurried and is_over(world)):
            steps = [] if world.finished else to_try(world)
            if few and world.crashes and (left := hash(world.left_by_crash())) not in crashed:
                crashed.add(left)
                steps.append(("crash",))
            return steps
        if world.finished:
            return [("crash",)] * bool(world.crashes)
        return [*world.enabled(), *world.possible()]

    stack: list[tuple[InternedWorld, list[Step]]] = [(first, todo_in(first))]
    count = ends = depth = 0

    def result(whole: bool, rule: str | None = None, message: str | None = None) -> Explored:
        trace = tuple(step for together in path for step in together) if rule else ()
        return Explored(len(seen), count, ends, depth, whole, time.monotonic() - started, trace, rule, message)

    while stack:
        if count % CHECK == 0 and not alive():
            return result(False)
        world, todo = stack[-1]
        if not todo:
            stack.pop()
            path.pop()
            continue
        step = todo.pop()
        following = world.copy()
        path.append([step])
        count += 1
        try:
            following.do(step)
            if hurried:
                hurry(following, path[-1])
            key = hash(following.key())
            if key in seen:
                path.pop()
                continue
            seen.add(key)
            ends += following.finished
            enabled = todo_in(following)
            if not enabled and not following.finished:
                raise Violation("deadlock", f"nothing can happen; open {following.coordinator_now.open_epochs}")
        except Violation as violation:
            return result(False, violation.rule, str(violation))
        except ProtocolError as error:
            return result(False, "protocol", f"protocol: {error}")
        if len(seen) >= most:
            return result(False)
        stack.append((following, enabled))
        depth = max(depth, len(stack))
    return result(True)
