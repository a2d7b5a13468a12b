"""Where the parts of a space-time diagram go: steps from left to right, tasks from top to bottom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from abscli.draw import svg
from abscli.sim.diagram import Diagram, Message, Moment
from abscli.text.cells import cells, shortened
from abscli.text.columns import clean
from abscli.text.spacetime import window

ROOM, NARROW, WIDE = 960.0, 7.0, 44.0  # a step is as wide as the room for all of them allows, between these
APART = 17.0  # between the marks of one step at one task
MARGIN, ROW, GROUP, LEVEL = 20.0, 38.0, 16.0, 12.0  # GROUP: more between two groups; LEVEL: of words above each other
HANGING = 20.0  # how far a task's message to itself hangs below its line
SIZE = 10 * svg.SANS
NAME_LIMIT, LABEL_LIMIT = 24, 30
FEW = 24
"""Steps of a picture in which everything has its words; with more only what has gone wrong, and what came after."""

_STRONG = frozenset({"copy", "crash", "restore", "replayed", "trigger", "complete", "abort", "violation"})
_WORDED = frozenset({"crash", "restore", "replayed", "abort", "violation", "drop"})
_BARS = frozenset({"block", "unblock"})


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment that is shown. words: beside it, maybe none. level: how high above the line they stand."""

    moment: Moment
    x: float
    words: str
    level: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Coordinates in pixels.

    steps: x of each step that is shown.
    tasks: y of each task's line.
    ends: x at which each task's line begins, and at which all end.
    """

    marks: tuple[Mark, ...]
    messages: tuple[Message, ...]
    steps: dict[int, float]
    tasks: dict[str, float]
    names: dict[str, str]
    ends: tuple[float, float]
    bottom: float
    left_out: int

    @property
    def is_small(self) -> bool:
        """There is room for all words."""
        return len(self.steps) <= FEW

    def x(self, step: int | None) -> float:
        """Of a step; of one that is left out the edge to its side."""
        if step is None or step > max(self.steps, default=0):
            return self.ends[1]
        return self.steps.get(step, self.ends[0])


def laid_out(diagram: Diagram, max_steps: int | None, top: float) -> Layout:
    """All places. max_steps: the last ones are shown. top: where the rows begin."""
    steps, left_out = window(diagram, max_steps)
    shown = set(steps)
    tasks = diagram.lines()
    names = {task: shortened(clean(task), NAME_LIMIT) for task in tasks}
    left = MARGIN + 16 + max((cells(name) for name in names.values()), default=0) * 11 * svg.MONO
    small = len(steps) <= FEW
    moments = [m for m in diagram.moments if m.step in shown and (small or m.kind not in _BARS)]
    messages = tuple(m for m in diagram.messages if m.sent in shown or m.received in shown)
    step_x, right = _steps(steps, moments, messages, left)
    moment_x = _beside(moments, step_x)
    words = [_words(moment, small=small) for moment in moments]
    levels, right = _levels(moments, moment_x, words, right)
    rows, bottom = _rows(diagram, tasks, moments, levels, messages, top)
    marks = tuple(Mark(*parts) for parts in zip(moments, moment_x, words, levels, strict=True))
    return Layout(marks, messages, step_x, rows, names, (left, right), bottom, left_out)


def _words(moment: Moment, *, small: bool) -> str:
    is_numbered = moment.epoch is not None and moment.kind in ("trigger", "complete")
    if moment.kind in _WORDED or (small and not is_numbered):
        return shortened(clean(moment.label) or moment.kind, LABEL_LIMIT)
    return ""


def _steps(
    steps: Sequence[int], moments: Sequence[Moment], messages: Sequence[Message], left: float
) -> tuple[dict[int, float], float]:
    """The x of each step, and of the end: where only records are on their way time is half as wide."""
    strong = {moment.step for moment in moments if moment.kind in _STRONG}
    strong |= {message.received for message in messages if message.barrier and message.received is not None}
    weights = {step: 2 if step in strong else 1 for step in steps}
    unit = max(NARROW, min(WIDE, ROOM / max(1, sum(weights.values()))))
    most: dict[int, int] = {}
    for (step, _), count in Counter((moment.step, moment.task) for moment in moments).items():
        most[step] = max(count, most.get(step, 1))
    x, places = left + 14, {}
    for step in steps:
        x += weights[step] * unit
        places[step] = x
        x += (most.get(step, 1) - 1) * APART
    return places, x + 2 * unit


def _beside(moments: Sequence[Moment], step_x: dict[int, float]) -> list[float]:
    """The x of each moment: those of one step at one task stand side by side, in order."""
    before: Counter[tuple[int, str]] = Counter()
    places = []
    for moment in moments:
        key = moment.step, moment.task
        places.append(step_x[moment.step] + before[key] * APART)
        before[key] += 1
    return places


def _levels(
    moments: Sequence[Moment], places: Sequence[float], words: Sequence[str], right: float
) -> tuple[list[int], float]:
    """How high above its line the words of each moment stand, so that none cover others; and where the last end."""
    ends: dict[str, list[float]] = {}
    levels = [0] * len(moments)
    for at in sorted(range(len(moments)), key=lambda at: (places[at], at)):
        if not words[at]:
            continue
        end = places[at] + cells(words[at]) * SIZE + 6
        taken = ends.setdefault(moments[at].task, [])
        level = next((n for n, last in enumerate(taken) if last <= places[at]), len(taken))
        taken[level : level + 1] = [end]
        levels[at] = level
        right = max(right, end)
    return levels, right


def _rows(
    diagram: Diagram,
    tasks: Sequence[str],
    moments: Sequence[Moment],
    levels: Sequence[int],
    messages: Sequence[Message],
    top: float,
) -> tuple[dict[str, float], float]:
    """The y of each task, those of one group nearer to each other; and the lowest place that is used."""
    groups = dict(zip(diagram.tasks, diagram.groups, strict=False))
    hanging = {message.sender for message in messages if message.sender == message.receiver}
    y, places, before = top, {}, None
    for task in tasks:
        group = groups.get(task, task)
        highest = max((n for n, m in zip(levels, moments, strict=True) if m.task == task), default=0)
        y += ROW + highest * LEVEL + (GROUP if before not in (None, group) else 0.0)
        places[task] = y
        y += HANGING if task in hanging else 0.0
        before = group
    return places, y
