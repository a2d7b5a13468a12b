"""Source positions grow along the chain of parents: no split goes back, none vanishes.

Where a rescale has begun a new generation a split may be read by another task of its operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from abscli.report.findings import Code, Finding
from abscli.stores.native.checks.growth import Totals, totals_of
from formats.ids import TaskId
from formats.native.facts import PartFacts
from formats.view import Position


class Cut(NamedTuple):
    """Where an epoch stood, for its children.

    policy: under which it was taken.
    positions: of sources: splits by task; a task that is not named is not known.
    totals: by task.
    """

    epoch: int
    generation: int
    policy: str
    positions: dict[TaskId, dict[str, Position]]
    totals: dict[TaskId, Totals]


def cut_of(epoch: int, generation: int, policy: str, parts: tuple[PartFacts, ...]) -> Cut:
    """Return the positions of the source tasks among the parts, and the totals of all."""
    return Cut(epoch, generation, policy, positions_of(parts), {part.task: totals_of(part) for part in parts})


def positions_of(parts: tuple[PartFacts, ...]) -> dict[TaskId, dict[str, Position]]:
    """Return the positions of the source tasks among the parts."""
    return {p.task: {split.split: split for split in p.positions} for p in parts if p.positions is not None}


def check_positions(parent: Cut, child: tuple[PartFacts, ...]) -> Iterator[Finding]:
    """The child's parts against the parent's, task by task; both are of one generation."""
    for part in child:
        now = {position.split: position for position in part.positions or ()}
        for message in _regressions(parent.epoch, parent.positions.get(part.task, {}), now):
            yield Finding(Code.POSITION_REGRESSED, part.task, None, None, message)


def check_operators(parent: Cut, child: tuple[PartFacts, ...], moved: Mapping[str, str]) -> Iterator[Finding]:
    """The child's parts against the parent's, operator by operator: their tasks are not the same ones. moved: operators
    that have another id in the child."""
    before, now = _by_operator(parent.positions), _by_operator(positions_of(child))
    present = {part.operator for part in child}
    for operator, splits in before.items():
        heir = moved.get(operator, operator)
        for message in _regressions(parent.epoch, splits, now.get(heir, {})) if heir in present else ():
            yield Finding(Code.POSITION_REGRESSED, None, None, None, f"operator {heir}: {message}")


def _by_operator(positions: dict[TaskId, dict[str, Position]]) -> dict[str, dict[str, Position]]:
    splits: dict[str, dict[str, Position]] = {}
    for task, mine in positions.items():
        splits.setdefault(task.operator, {}).update(mine)
    return splits


def _regressions(epoch: int, before: dict[str, Position], now: dict[str, Position]) -> Iterator[str]:
    for split, then in before.items():
        here = now.get(split)
        if here is None:
            yield f"split {split!r} has a position in its parent, epoch {epoch}, and none here"
            continue
        pairs = (("offset", then.offset, here.offset), ("record", then.records, here.records))
        for unit, was, at in pairs:
            if was is not None and at is not None and at < was:
                yield f"split {split!r} is at {unit} {at}, its parent, epoch {epoch}, was at {was}"
                break
