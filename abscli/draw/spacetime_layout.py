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

ROOM, NARROW, WIDE = 1080.0, 5.5, 64.0  # a step is as wide as the room for all of them allows, between these
QUIET, SHORT = 10, 6.0  # so many steps without a snapshot or a failure are pressed together into the room of these
APART = 17.0  # between the marks of one step at one task
BESIDE_CUT = 8.0  # from a cut to words beside it
MARGIN, ROW, GROUP, LEVEL = 20.0, 40.0, 18.0, 12.0  # GROUP: more between two groups; LEVEL: of words above each other
HANGING = 20.0  # how far a task's message to itself hangs below its line
LOFTY = 22.0  # more between two lines where messages between them have their words
LANE = ROW / 2 - 1  # half of what is coloured around a line
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
class Pressed:
    """Steps in which neither a snapshot nor a failure goes on, pressed together. count: how many are there."""

    start: float
    end: float
    count: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Coordinates in pixels.

    steps: x of each step that is shown.
    tasks: y of each task's line.
    ends: x at which each task's line begins, and at which all end.
    pressed: where time goes by faster.
    """

    marks: tuple[Mark, ...]
    messages: tuple[Message, ...]
    steps: dict[int, float]
    tasks: dict[str, float]
    names: dict[str, str]
    ends: tuple[float, float]
    bottom: float
    left_out: int
    pressed: tuple[Pressed, ...]

    @property
    def is_small(self) -> bool:
        """There is room for all words."""
        return len(self.steps) <= FEW

    def x(self, step: int | None) -> float:
        """Of a step; of one that is left out the edge to its side."""
        if step is None or step > max(self.steps, default=0):
            return self.ends[1]
        return self.steps.get(step, self.ends[0])


def laid_out(diagram: Diagram, max_steps: int | None) -> Layout:
    """All places. max_steps: the last ones are shown."""
    steps, left_out = window(diagram, max_steps)
    shown = set(steps)
    tasks = diagram.lines()
    names = {task: shortened(clean(task), NAME_LIMIT) for task in tasks}
    left = MARGIN + 16 + max((cells(name) for name in names.values()), default=0) * 11 * svg.MONO
    small = len(steps) <= FEW
    moments = [m for m in diagram.moments if m.step in shown and (small or m.kind not in _BARS)]
    messages = tuple(m for m in diagram.messages if m.sent in shown or m.received in shown)
    step_x, pressed, right = _steps(steps, moments, messages, left)
    moment_x = _beside(moments, step_x, pressed)
    words = _all_words(moments, tasks, small=small)
    levels, right = _levels(moments, moment_x, words, right)
    rows, bottom = _rows(diagram, tasks, moments, levels, messages, MARGIN + 20, small=small)
    marks = tuple(Mark(*parts) for parts in zip(moments, moment_x, words, levels, strict=True))
    return Layout(marks, messages, step_x, rows, names, (left, right), bottom, left_out, pressed)


def _all_words(moments: Sequence[Moment], tasks: Sequence[str], *, small: bool) -> list[str]:
    """The words of each moment; those of something that happens to many tasks at once stand at the first of them."""
    row = {task: at for at, task in enumerate(tasks)}
    # Tasks hear of an epoch that is given up one after the other.
    same = [(moment.kind, moment.label, 0 if moment.kind == "abort" else moment.step) for moment in moments]
    first: dict[tuple[str, str, int], str] = {}
    for moment, key in sorted(zip(moments, same, strict=True), key=lambda each: row[each[0].task]):
        first.setdefault(key, moment.task)
    return [
        _words(moment, small=small) if first[key] == moment.task or moment.kind not in _WORDED else ""
        for moment, key in zip(moments, same, strict=True)
    ]


def _words(moment: Moment, *, small: bool) -> str:
    is_numbered = moment.epoch is not None and moment.kind in ("trigger", "complete")
    if moment.kind in _WORDED or (small and not is_numbered):
        return shortened(clean(moment.label) or moment.kind, LABEL_LIMIT)
    return ""


def _steps(
    steps: Sequence[int], moments: Sequence[Moment], messages: Sequence[Message], left: float
) -> tuple[dict[int, float], tuple[Pressed, ...], float]:
    """The x of each step, where they are pressed together, and the end.

    A step of a snapshot or a failure has twice the width of another.
    """
    strong = {moment.step for moment in moments if moment.kind in _STRONG}
    strong |= {message.received for message in messages if message.barrier and message.received is not None}
    runs: list[list[int]] = []
    for step in steps:
        if runs and step not in strong and runs[-1][-1] not in strong:
            runs[-1].append(step)
        else:
            runs.append([step])
    weights = {
        step: 2.0 if step in strong else SHORT / len(run) if len(run) > QUIET else 1.0 for run in runs for step in run
    }
    unit = max(NARROW, min(WIDE, ROOM / max(1.0, sum(weights.values()))))
    most: dict[int, int] = {}
    for (step, _), count in Counter((moment.step, moment.task) for moment in moments).items():
        most[step] = max(count, most.get(step, 1))
    x, places = left + 14, {}
    for step in steps:
        x += weights[step] * unit
        places[step] = x
        if weights[step] >= 1:
            x += (most.get(step, 1) - 1) * APART
    pressed = tuple(
        Pressed(places[run[0]] - 4, places[run[-1]] + 4, len(run)) for run in runs if len(run) > QUIET
    )
    return places, pressed, x + 2 * unit


def _beside(moments: Sequence[Moment], step_x: dict[int, float], pressed: Sequence[Pressed]) -> list[float]:
    """The x of each moment: those of one step at one task stand side by side, in order, unless they are pressed."""
    before: Counter[tuple[int, str]] = Counter()
    places = []
    for moment in moments:
        key, x = (moment.step, moment.task), step_x[moment.step]
        apart = 0.0 if any(part.start <= x <= part.end for part in pressed) else APART
        places.append(x + before[key] * apart)
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
        start = words_begin(moments[at], places[at])
        end = start + cells(words[at]) * SIZE + 6
        taken = ends.setdefault(moments[at].task, [])
        level = next((n for n, last in enumerate(taken) if last <= start), len(taken))
        taken[level : level + 1] = [end]
        levels[at] = level
        right = max(right, end)
    return levels, right


def words_begin(moment: Moment, x: float) -> float:
    """The x of the words of a moment at x: through a copy there goes its cut."""
    return x + BESIDE_CUT if moment.kind == "copy" else x


def _rows(
    diagram: Diagram,
    tasks: Sequence[str],
    moments: Sequence[Moment],
    levels: Sequence[int],
    messages: Sequence[Message],
    top: float,
    *,
    small: bool,
) -> tuple[dict[str, float], float]:
    """The y of each task, those of one group nearer to each other; and the lowest place that is used."""
    groups = dict(zip(diagram.tasks, diagram.groups, strict=False))
    hanging = {message.sender for message in messages if message.sender == message.receiver}
    y, places, before = top, {}, None
    for task in tasks:
        group = groups.get(task, task)
        highest = max((n for n, m in zip(levels, moments, strict=True) if m.task == task), default=0)
        y += ROW + highest * LEVEL + (GROUP if before not in (None, group) else 0.0)
        y += LOFTY if small and before is not None else 0.0
        places[task] = y
        y += HANGING if task in hanging else 0.0
        before = group
    return places, y
