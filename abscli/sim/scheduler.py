"""A seeded scheduler: what happens next, where batches end, what is slow, and when something fails.

The same seed gives the same run in every version of Python: only `random.random()` is used, whose sequence is fixed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TypeVar

from abscli.protocol.events import ProtocolError
from abscli.protocol.policy import Policy
from abscli.protocol.turns import Turns
from abscli.sim.local.world import LocalWorld
from abscli.sim.model import Model
from abscli.sim.properties import Violation
from abscli.sim.task import Barrier
from abscli.sim.world import Limits, Step, World
from formats.ids import ChannelId, TaskId

MAX_STEPS = 20_000
FAILURE = 0.03
"""Chance of a failure at each step while some are left."""

SLOW = 0.25
"""Share of channels, tasks and writes that are slow in a run."""

PATIENCE = 1_000
"""Items that a task may take while a barrier waits at the head of an input that it could read."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended.

    rule, message: None if all properties held.
    epochs: complete ones.
    situations: what it came to, with workers.
    """

    seed: int
    steps: tuple[Step, ...]
    rule: str | None
    message: str | None
    epochs: int
    attempts: int
    situations: frozenset[str] = frozenset()


class Scheduler:
    """Chooses the steps of one run. batch: the most records delivered or read at once."""

    def __init__(self, seed: int, batch: int) -> None:
        self._random = random.Random(seed)
        self._batch = batch
        self._in_turn = self._chance(0.5)
        self._turns: dict[TaskId, Turns] = {}
        self._slow: dict[Step, bool] = {}
        self._passed: dict[TaskId, int] = {}

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _below(self, n: int) -> int:
        return int(self._random.random() * n)

    def _one_of(self, things: list[T]) -> T:
        return things[self._below(len(things))]

    def choose(self, world: World) -> Step | None:
        """The next step; None if nothing can happen any more."""
        if self._chance(FAILURE):
            failures = world.possible()
            if failures:
                return self._one_of(failures)
        steps = world.enabled()
        if not steps:
            failures = [step for step in world.possible() if step[0] in ("time-out", "stale")]
            return self._one_of(failures) if failures else None
        for _ in range(4):
            step = self._one_of(steps)
            if not self._is_slow(step):
                break
        if step[0] == "deliver":
            channel = self._reads_next(world, step[1], steps)
            return ("deliver", channel, 1 + self._below(self._batch))
        if step[0] == "read":
            return ("read", step[1], 1 + self._below(self._batch))
        return step

    def _is_slow(self, step: Step) -> bool:
        place = step[:2]
        if place not in self._slow:
            self._slow[place] = self._chance(SLOW)
        return self._slow[place]

    def _reads_next(self, world: World, channel: ChannelId, steps: list[Step]) -> ChannelId:
        """In half of the runs a task takes its inputs as the engine does, in the others in any order."""
        if not self._in_turn:
            return channel
        channels = world.model.channels
        task = channel.receiver
        mine: list[ChannelId] = [step[1] for step in steps if step[0] == "deliver" and step[1].receiver == task]
        back = [other for other in mine if channels[other].back]
        regular = [other for other in mine if not channels[other].back]
        turns = self._turns.setdefault(task, Turns())
        chosen = back if turns.back_edge_next(bool(back), bool(regular)) else regular
        waiting = chosen is back and any(isinstance(world.channels[other][0], Barrier) for other in regular)
        self._passed[task] = self._passed.get(task, 0) + 1 if waiting else 0
        if self._passed[task] > PATIENCE:
            raise Violation("starvation", f"{task} took {PATIENCE} items of its loop while a barrier waited")
        return self._one_of(chosen)


def run(model: Model, policy: Policy, limits: Limits, seed: int, *, batch: int = 3) -> Outcome:
    """One run from a seed, to its end or to the first violation."""
    steps: list[Step] = []
    world: World | None = None
    rule = message = None
    try:
        world = (LocalWorld if limits.workers else World)(model, policy, limits)
        scheduler = Scheduler(seed, batch)
        while not world.finished:
            step = scheduler.choose(world)
            if step is None:
                raise Violation("deadlock", f"nothing can happen; open epochs {world.coordinator_now.open_epochs}")
            steps.append(step)
            if len(steps) > MAX_STEPS:
                raise Violation("end", f"no end after {MAX_STEPS} steps")
            world.do(step)
    except Violation as violation:
        rule, message = violation.rule, str(violation)
    except ProtocolError as error:
        rule, message = "protocol", f"protocol: {error}"
    complete = world.completed if world else 0
    situations = frozenset(map(str, world.situations)) if isinstance(world, LocalWorld) else frozenset()
    attempts = world.disk.attempt if world else 0
    return Outcome(seed, tuple(steps), rule, message, complete, attempts, situations)
