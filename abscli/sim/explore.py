"""Every interleaving of a small job: depth-first search over worlds, each looked at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from abscli.protocol.events import Completed, ProtocolError
from abscli.protocol.policy import Policy
from abscli.sim.failures import Step, possible
from abscli.sim.interned import InternedWorld, Table
from abscli.sim.model import Model
from abscli.sim.node import Barrier
from abscli.sim.properties import Violation
from abscli.sim.world import Limits

CHECK = 10_000
"""Steps between two questions whether to go on."""


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


def explore(
    model: Model,
    policy: Policy,
    limits: Limits,
    *,
    most: int = 10_000_000,
    alive: Callable[[], bool] = lambda: True,
) -> Explored:
    """Search until every reachable world has been seen, `most` have, or a property does not hold.

    alive: asked now and then whether somebody still waits for the answer.

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
        if steps % CHECK == 0 and not alive():
            return result(False)
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

    While nothing but a crash of everything can go wrong, a part that is durable, its ack and the manifest are seen by
    nobody but the coordinator; what comes of them is told in notices, whose time is free. With single losses the write
    of a part and of the manifest, and the word of the loss, have a time of their own.
    """
    kinds = _hurried(world.limits)
    while step := next((step for step in world.enabled() if _is_hurried(world, step, kinds)), None):
        world.do(step)


def _hurried(limits: Limits) -> tuple[str, ...]:
    if limits.timeouts or limits.lost_acks:
        return ("stored",)
    if limits.losses:
        return ("stored", "mail")
    return ("stored", "mail", "manifest", "persist")


def _is_hurried(world: InternedWorld, step: Step, kinds: tuple[str, ...]) -> bool:
    if step[0] == "notice":  # a source hears of the next epoch behind this one, in the same queue
        return step[1] in world.model.sources and isinstance(world.notices[step[1]][0], Completed)
    return step[0] in kinds and step[1:] != ("detector",)


def _steps(world: InternedWorld) -> list[Step]:
    enabled = world.enabled()
    return [*([step for step in enabled if not _can_wait(world, step)] or enabled), *possible(world)]


def _can_wait(world: InternedWorld, step: Step) -> bool:
    """Whether it changes nothing to hear of a complete epoch later: it matters at the task's next copy only."""
    if step[0] != "notice" or not isinstance(world.notices[step[1]][0], Completed):
        return False
    heads = (world.channels[channel.name][:1] for channel in world.model.inputs[step[1]])
    return not any(head and isinstance(head[0], Barrier) for head in heads)
