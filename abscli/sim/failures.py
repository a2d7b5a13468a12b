"""What may go wrong in a simulated run, and what is done about it: crashes, losses of tasks, timeouts, lost acks.

A crash takes everything and the job starts again from the disk (a full recovery). A loss takes one task and what the
planner says must restart with it; the others go on (a live partial recovery, rule 10).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from abscli.protocol.events import PeersRestarted, TasksLost, TimedOut
from abscli.sim.losses import recovery_of
from abscli.sim.node import Counts, Item
from abscli.sim.rescale import may_rescale, rescaled, with_parallelism

if TYPE_CHECKING:
    from abscli.sim.world import World

Step = tuple[Any, ...]
"""What a scheduler may let happen next, in words: ("deliver", "a/0->b/1", 2)."""

WIDTHS = (1, 2, 3)
"""Parallelisms that a rescale tries."""


def possible(world: World) -> list[Step]:
    """The failures that may still happen now."""
    steps: list[Step] = []
    coordinator = world.coordinator_now
    if world.crashes:
        steps.append(("crash",))
    if world.rescales and world.disk.last:
        widths = {op.id: op.parallelism for op in world.model.topology.operators if may_rescale(world.model, op.id)}
        steps += [("rescale", id, p) for id, width in widths.items() for p in WIDTHS if p != width]
    if world.losses:
        steps += [("lose", task) for task in world.model.tasks if task not in world.dead]
    if world.lost_acks:
        steps += [("lose-ack", task) for task, mail in world.mail.items() if mail and mail[0][0] == "ack"]
    late = coordinator.open_epochs[:1] if world.timeouts else ()
    steps += [("time-out", epoch) for epoch in coordinator.open_epochs if epoch in late or epoch in world.hopeless]
    return steps + [("stale", i) for i in range(len(world.stale))]


def happen(world: World, step: Step) -> None:
    """Let a failure happen; ValueError if it is none."""
    match step:
        case ("time-out", epoch):
            world.timeouts -= epoch not in world.hopeless
            world.ask(TimedOut(epoch))
        case ("lose-ack", task):
            world.lost_acks -= 1
            world.hopeless |= {world.mail[task][0][1]}
            world.mail[task] = world.mail[task][1:]
        case ("crash",):
            world.crashes -= 1
            crash(world)
        case ("rescale", operator, parallelism):
            world.rescales -= 1
            rescale(world, operator, parallelism)
        case ("lose", task):
            world.losses -= 1
            lose(world, task)
        case _:
            raise ValueError(f"no step {step}")


def crash(world: World) -> None:
    """The coordinator and all tasks die; acks that were on their way may still arrive in the next life."""
    world.stale += tuple(
        (kind, (task, what), attempt)
        for task, messages in world.mail.items()
        for kind, what, attempt in messages
        if kind == "ack"
    )
    world.went_back = True
    world.begin()


def rescale(world: World, operator: str, parallelism: int) -> None:
    """The job dies and is restored with another parallelism, where its logs can be taken over."""
    model = with_parallelism(world.model, operator, parallelism)
    base = world.disk.base
    snapshot = rescaled(world.model, model, base) if base else None
    if snapshot is None:
        return
    for task in world.model.tasks:
        if task in world.model.sinks:
            world.save("settles", task)
    world.save("rescaled", snapshot)
    world.model = model
    world.history = {name: snapshot.log(name, c.receiver) for name, c in model.channels.items()}
    crash(world)


def lose(world: World, task: str) -> None:
    """A task dies, and with it what the planner says must restart; the coordinator hears of it by and by."""
    lost, replayed = recovery_of(world.model, task)
    world.went_back = True
    _kill(world, lost)
    world.mail["detector"] += (("lost", TasksLost(lost, replayed), 0),)


def _kill(world: World, tasks: frozenset[str]) -> None:
    world.dead |= tasks
    world.writes = tuple(part for part in world.writes if part.task not in tasks)
    for name in tasks:
        world.notices[name] = ()


def stop(world: World, attempt: int, tasks: frozenset[str], floor: int) -> None:
    """Those that restart send nothing any more, also where they still run; the others hear of it."""
    _kill(world, tasks)
    base = world.disk.base
    for task in world.model.tasks:
        if task in tasks:
            continue
        replayed = Counts(
            (c.name, base.sent(c.name) if base else 0) for c in world.model.inputs[task] if c.sender in tasks
        )
        world.notices[task] += (PeersRestarted(attempt, floor, replayed),)


def restart(world: World, attempt: int, tasks: frozenset[str]) -> None:
    """The lost tasks start from the newest complete epoch, their channels with what belongs on them."""
    base = world.disk.base
    first = world.disk.begun + 1
    world.dead -= tasks
    for task in world.model.tasks:
        if task in tasks:
            world.notices[task] = ()
            world.start(task, attempt, first)
    for name, channel in world.model.channels.items():
        if channel.receiver not in tasks:
            continue
        if channel.sender in tasks:
            world.refill(name)
        else:  # a replayable edge: the survivor's output since the epoch comes from its own log
            known = base.received(name, channel.receiver) if base else 0
            world.channels[name] = tuple(
                Item(known + 1 + i, record) for i, record in enumerate(world.history[name][known:])
            )
