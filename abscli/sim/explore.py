"""Every interleaving of a small job: depth-first search over worlds, each looked at once."""

from __future__ import annotations

import time
from dataclasses import dataclass

from abscli.protocol.events import ProtocolError
from abscli.protocol.policy import Policy
from abscli.sim.failures import Step, possible
from abscli.sim.interned import InternedWorld, Table
from abscli.sim.model import Model
from abscli.sim.properties import Violation
from abscli.sim.world import Limits


@dataclass(frozen=True, slots=True)
class Explored:
    """What a search has seen. ends: worlds in which the job has ended; whole: whether nothing is left to look at;
    trace, rule, message: of the first violation."""

    worlds: int
    steps: int
    ends: int
    depth: int
    whole: bool
    seconds: float
    trace: tuple[Step, ...] = ()
    rule: str | None = None
    message: str | None = None


def explore(model: Model, policy: Policy, limits: Limits, *, most: int = 10_000_000) -> Explored:
    """Search until every reachable world has been seen, `most` have, or a property does not hold.

    Batches are single records: what an operator emits does not depend on where batches end (rule 8).
    """
    started = time.monotonic()
    table = Table()
    first = InternedWorld(model, policy, limits, table)
    _hurry(first)
    seen = {hash(first.key())}
    path: list[Step] = []
    stack: list[tuple[InternedWorld, list[Step]]] = [(first, _steps(first))]
    steps = ends = depth = 0

    def result(whole: bool, rule: str | None = None, message: str | None = None) -> Explored:
        trace = tuple(path) if rule else ()
        return Explored(len(seen), steps, ends, depth, whole, time.monotonic() - started, trace, rule, message)

    while stack:
        world, todo = stack[-1]
        if not todo:
            stack.pop()
            if path:
                path.pop()
            continue
        step = todo.pop()
        following = world.copy()
        path.append(step)
        steps += 1
        try:
            following.do(step)
            _hurry(following)
            key = hash(following.key())
            if key in seen:
                path.pop()
                continue
            seen.add(key)
            if following.finished:
                ends += 1
                path.pop()
                continue
            enabled = _steps(following)
            if not enabled:
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


def _hurry(world: InternedWorld) -> None:
    """Let happen at once what commutes with all else, so that its place among the others need not be tried.

    A part that is durable, and its ack, are seen by nobody before the manifest, whose time is free. That is so while
    nothing but a crash of everything can go wrong: a single loss, a timeout or a lost ack tells them apart.
    """
    limits = world.limits
    kinds = ("persist", "mail", "stored") if not (limits.losses or limits.timeouts or limits.lost_acks) else ("stored",)
    while step := next((step for step in world.enabled() if step[0] in kinds), None):
        world.do(step)


def _steps(world: InternedWorld) -> list[Step]:
    return [*world.enabled(), *possible(world)]
