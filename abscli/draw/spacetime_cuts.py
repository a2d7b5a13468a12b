"""Cuts in a space-time diagram: the line through all copies of an epoch, what of each task's work it keeps, and which
messages pass it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from abscli.draw.spacetime_layout import LANE, Layout
from abscli.sim.diagram import COORDINATOR, Diagram, Message, Moment

ASIDE = 3.0  # between the lines of two cuts that go along between the same two tasks
ROUND = 7.0
HANGS = 20.0  # how far a cut reaches beyond the first and the last copy

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Cut:
    """The copies of an epoch.

    places: of those that are shown, from top to bottom, and at the edge of the nearest that are too early.
    pieces: lines and curves through all of them, upright where a task's line is crossed.
    copied, expected: how many tasks have copied it, of how many that there were.
    last_step: of the last copy that is shown.
    """

    epoch: int
    places: tuple[Point, ...]
    pieces: tuple[tuple[Point, ...], ...]
    copied: int
    expected: int
    last_step: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a task's line. epoch: whose snapshot keeps it; None: it is gone, a failure has undone it."""

    task: str
    start: float
    end: float
    epoch: int | None


def cuts(diagram: Diagram, layout: Layout) -> list[Cut]:
    """Of each epoch, from two copies on; a task that has copied it twice counts with the last.

    An epoch of which some copies are left out, being too early, has a line to the edge.
    """
    tasks = [task for task in layout.tasks if task != COORDINATOR]
    shown = {(mark.moment.epoch, mark.moment.task): mark.x for mark in layout.marks if mark.moment.kind == "copy"}
    lives = _lives(diagram)
    lines = []
    for number, (epoch, steps) in enumerate(sorted(copies(diagram).items())):
        own = [task for task in tasks if task in steps]
        drawn = [at for at, task in enumerate(own) if (epoch, task) in shown]
        if not drawn or len(own) == 1 < len(tasks):
            continue
        # Of copies that are too early the nearest to one that is shown: the line comes in from the edge there.
        near = own[max(0, drawn[0] - 1) : drawn[-1] + 2]
        places = tuple((shown.get((epoch, task), layout.ends[0]), layout.tasks[task]) for task in near)
        last_step = max(steps[own[at]] for at in drawn)
        expected = sum(_exists(lives.get(task, ()), last_step) for task in tasks)
        lines.append(Cut(epoch, places, _stairs(places, (number % 3 - 1) * ASIDE), len(own), expected, last_step))
    return lines


def _lives(diagram: Diagram) -> dict[str, list[tuple[int, str]]]:
    """When each task was lost and began again."""
    lives: dict[str, list[tuple[int, str]]] = {}
    for moment in sorted(diagram.moments, key=lambda moment: moment.step):
        if moment.kind in ("crash", "restore"):
            lives.setdefault(moment.task, []).append((moment.step, moment.kind))
    return lives


def _exists(lives: Sequence[tuple[int, str]], step: int) -> bool:
    """A rescale removes tasks, which are lost for good, and adds others, which begin with a restore."""
    if lives and lives[-1][1] == "crash":
        return step < lives[-1][0]
    return not lives or lives[0][1] == "crash" or step >= lives[0][0]


def copies(diagram: Diagram) -> dict[int, dict[str, int]]:
    """Of each epoch the steps at which tasks have copied it, at last."""
    steps: dict[int, dict[str, int]] = {}
    for moment in sorted(diagram.moments, key=lambda moment: moment.step):
        if moment.kind == "copy" and moment.epoch is not None:
            steps.setdefault(moment.epoch, {})[moment.task] = moment.step
    return steps


def stretches(diagram: Diagram, layout: Layout) -> list[Stretch]:
    """What of each task's work the epochs keep that are complete at last, and what failures have undone."""
    complete = {moment.epoch for moment in diagram.moments if moment.kind == "complete"}
    x = {mark.moment: mark.x for mark in layout.marks}
    begin = layout.ends[0]
    restores = sorted(
        (moment for moment in diagram.moments if moment.kind == "restore"), key=lambda moment: moment.step
    )
    parts: list[Stretch] = []
    moments: dict[str, list[Moment]] = {}
    for moment in sorted(diagram.moments, key=lambda moment: moment.step):
        moments.setdefault(moment.task, []).append(moment)
    for task, own in moments.items():
        start, kept = begin, list[tuple[float, int]]()
        alive = True
        for moment in own:
            place = x.get(moment, begin)
            if moment.kind == "copy" and moment.epoch in complete and moment.epoch is not None and alive:
                kept.append((place, moment.epoch))
            elif moment.kind == "crash" and alive:
                # A task that a rescale has removed goes back with the others, and does not come again.
                back = next((later for later in restores if later.step >= moment.step), None)
                if back is not None:
                    kept = [each for each in kept if back.epoch is not None and each[1] <= back.epoch]
                parts += _kept(task, start, kept)
                if back is not None:
                    parts.append(Stretch(task, max([start, *(end for end, _ in kept)]), place, None))
                start, kept, alive = place, [], False
            elif moment.kind == "restore":
                start, kept, alive = place, [], True
        parts += _kept(task, start, kept)
    return [part for part in parts if part.end > part.start]


def logged(diagram: Diagram, messages: Sequence[Message]) -> dict[Message, int]:
    """Those that were on their way at a cut and that their receivers have logged for it, and for which epoch."""
    logs = {(moment.task, moment.step) for moment in diagram.moments if moment.kind == "log"}
    result: dict[Message, int] = {}
    for epoch, steps in copies(diagram).items():
        for message in messages:
            if message.barrier or message.received is None or (message.receiver, message.received) not in logs:
                continue
            sent_by, received_by = steps.get(message.sender), steps.get(message.receiver)
            if sent_by is None or received_by is None:
                continue
            if message.sent <= sent_by and message.received > received_by:
                result.setdefault(message, epoch)
    return result


def against(diagram: Diagram, messages: Sequence[Message]) -> dict[Message, int]:
    """Those that pass a cut backwards: received before it and sent behind it, and which one."""
    result: dict[Message, int] = {}
    for epoch, steps in copies(diagram).items():
        for message in messages:
            if message.barrier or message.received is None:
                continue
            sent_by, received_by = steps.get(message.sender), steps.get(message.receiver)
            if sent_by is None or received_by is None:
                continue
            if sent_by < message.sent and message.received < received_by:
                result.setdefault(message, epoch)
    return result


def _kept(task: str, start: float, ends: Sequence[tuple[float, int]]) -> list[Stretch]:
    parts = []
    for end, epoch in ends:
        parts.append(Stretch(task, start, end, epoch))
        start = max(start, end)
    return parts


def _stairs(places: Sequence[Point], aside: float) -> tuple[tuple[Point, ...], ...]:
    """Down through each place, and along between the tasks, with round corners."""
    corners: list[Point] = [(places[0][0], places[0][1] - HANGS)]
    for (x, y), (next_x, next_y) in pairwise(places):
        # A task in between that has no copy has its line half-way: along goes only what is near a task that has one.
        along = min((y + next_y) / 2, y + LANE) + aside
        corners += [(x, along), (next_x, along)]
    corners.append((places[-1][0], places[-1][1] + HANGS))
    pieces: list[tuple[Point, ...]] = []
    at = corners[0]
    for before, corner, behind in zip(corners, corners[1:], corners[2:], strict=False):
        size = min(ROUND, *(_apart(corner, other) / 2 for other in (before, behind)))
        if size < 0.5:
            continue
        into, out = _towards(corner, before, size), _towards(corner, behind, size)
        pieces += [(at, into), (into, corner, corner, out)]
        at = out
    return (*pieces, (at, corners[-1]))


def _apart(a: Point, b: Point) -> float:
    return abs(a[0] - b[0]) + abs(a[1] - b[1])


def _towards(a: Point, b: Point, size: float) -> Point:
    whole = _apart(a, b) or 1.0
    return a[0] + (b[0] - a[0]) * size / whole, a[1] + (b[1] - a[1]) * size / whole
