"""A run again, from its steps: to see what it did, and to find a shorter one that breaks the same rule.

Steps are words, not positions, so that a part of a trace can be played: what cannot happen at its turn is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from abscli.protocol.events import ProtocolError
from abscli.protocol.policy import Policy
from abscli.sim.local.world import LocalWorld
from abscli.sim.model import Model
from abscli.sim.properties import Violation
from abscli.sim.world import Limits, Step, World

PATIENCE = 2_000
"""Steps that a shortened run may take of its own to come to an end."""


@dataclass(frozen=True, slots=True)
class Played:
    """The steps that were made, and the rule that was broken by the last one, if any."""

    steps: tuple[Step, ...]
    rule: str | None
    message: str | None


def play(world: World, steps: Sequence[Step], *, to_the_end: bool = False) -> Played:
    """Make these steps, as far as they are possible. to_the_end: then go on in a fair, fixed order."""
    done: list[Step] = []
    try:
        for step in steps:
            if world.finished and step != ("crash",):
                continue
            if _is_possible(world, step):
                done.append(step)
                world.do(step)
        turn = 0
        while to_the_end and not world.finished and len(done) < len(steps) + PATIENCE:
            enabled = world.enabled()
            if not enabled:
                raise Violation("deadlock", f"nothing can happen; open epochs {world.coordinator_now.open_epochs}")
            done.append(enabled[turn % len(enabled)])
            world.do(done[-1])
            turn += 1
    except Violation as violation:
        return Played(tuple(done), violation.rule, str(violation))
    except ProtocolError as error:
        return Played(tuple(done), "protocol", f"protocol: {error}")
    return Played(tuple(done), None, None)


def _is_possible(world: World, step: Step) -> bool:
    if step[0] in ("deliver", "read"):
        return any(step[:2] == other[:2] for other in world.enabled())
    return step in world.enabled() or step in world.possible()


def shortest(
    models: Sequence[Model], policy: Policy, limits: Limits, steps: Sequence[Step], rule: str
) -> tuple[Model, Played]:
    """A short trace that breaks the rule, by delta debugging (Zeller 2002): no step of it can be spared.

    models: the job with ever fewer records; the first one made the steps.
    """

    def broken(model: Model, candidate: Sequence[Step]) -> Played | None:
        played = play((LocalWorld if limits.workers else World)(model, policy, limits), candidate, to_the_end=True)
        return played if played.rule == rule else None

    model = models[0]
    best = broken(model, steps)
    if best is None:
        raise ValueError("replaying these steps does not violate the rule")
    for smaller in models[1:]:
        if (played := broken(smaller, best.steps)) is not None:
            model, best = smaller, played
    size, before = len(best.steps) // 2, best
    while size:
        at = 0
        while at < len(best.steps):
            played = broken(model, best.steps[:at] + best.steps[at + size :])
            if played is not None and len(played.steps) < len(best.steps):
                best = played
            else:
                at += size
        if size > 1 or best is before:
            size //= 2
        before = best
    return model, best
