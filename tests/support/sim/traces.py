"""Traces of simulated jobs: the simulator's own machines, who tell what they see and do."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from abscli.protocol.events import Acked
from abscli.protocol.policy import Policy
from abscli.protocol.trace import SCHEMA, Plain, TracedCoordinator, TracedTask
from abscli.sim import task as sim_task
from abscli.sim import world as sim_world
from abscli.sim.model import Model
from abscli.sim.scheduler import run
from abscli.sim.world import Limits, Step, World
from formats.ids import TaskId
from formats.version import FORMAT_VERSION


def encoded(lines: list[Plain]) -> list[bytes]:
    return [msgspec.json.encode(line) + b"\n" for line in lines]


def renumbered(lines: list[Plain]) -> list[Plain]:
    """As if nothing had been left out or exchanged."""
    numbers: Counter[str] = Counter()
    result = []
    for line in lines:
        if "instance" in line:
            line = {**line, "sequence": numbers[line["instance"]]}
            numbers[line["instance"]] += 1
        result.append(line)
    return result


def head(model: Model, policy: Policy, **more: object) -> Plain:
    plain: Plain = {
        "schema": SCHEMA, "version": FORMAT_VERSION, "job": model.topology.job,
        "topology": msgspec.to_builtins(model.topology), "policy": str(policy), "attempt": 1, "parent": 0,
        "logged": 0, "new_generation": False,
    }  # fmt: skip
    return {**plain, **more}


def simulated(model: Model, policy: Policy, limits: Limits, seed: int, patch: pytest.MonkeyPatch) -> list[Plain]:
    """The lines of one run of one attempt."""
    lines: list[Plain] = [head(model, policy)]
    lives = 0
    machines: list[TracedTask] = []
    attempt = 1

    def traced_task(*arguments: Any, **options: Any) -> TracedTask:
        nonlocal lives
        lives += 1
        machine = TracedTask(*arguments, tell=lines.append, life=str(lives), attempt=attempt, **options)
        machines.append(machine)
        return machine

    def traced_coordinator(*arguments: Any, **options: Any) -> TracedCoordinator:
        return TracedCoordinator(*arguments, tell=lines.append, **options)

    plain_start, plain_do, plain_ack = World.start, World.do, World._ack
    written: dict[tuple[TaskId, int], Acked] = {}

    def do(world: World, step: Step) -> None:
        plain_do(world, step)
        if step[0] == "persist":
            written[step[1], step[2]] = plain_ack(world, step[1], step[2], 0)

    def ack(world: World, task: TaskId, epoch: int, attempt: int) -> Acked:
        """Of what was written, though the simulated disk may have let go of it for a newer epoch."""
        return replace(written[task, epoch], attempt=attempt)

    def start(world: World, task: TaskId, number: int, first_epoch: int) -> None:
        nonlocal attempt
        attempt = number
        plain_start(world, task, number, first_epoch)

    with patch.context() as patched:
        patched.setattr(sim_task, "Task", traced_task)
        patched.setattr(sim_world, "Coordinator", traced_coordinator)
        patched.setattr(World, "start", start)
        patched.setattr(World, "do", do)
        patched.setattr(World, "_ack", ack)
        outcome = run(model, policy, limits, seed)
    assert outcome.message is None
    for machine in machines:
        machine.leave()
    return lines
