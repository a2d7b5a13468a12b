"""Source positions grow along the chain of parents: no split goes back, none vanishes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from abscli.report.findings import Code, Finding
from formats.native.facts import PartFacts
from formats.view import Position


class Cut(NamedTuple):
    """Where the sources stood in an epoch: splits by task; a task that is not named is not known."""

    epoch: int
    generation: int
    positions: dict[str, dict[str, Position]]


def cut_of(epoch: int, generation: int, parts: tuple[PartFacts, ...]) -> Cut:
    """The positions of the source tasks among the parts."""
    positions = {p.task: {split.split: split for split in p.positions} for p in parts if p.positions is not None}
    return Cut(epoch, generation, positions)


def check_positions(parent: Cut, child: tuple[PartFacts, ...]) -> Iterator[Finding]:
    """The child's parts against the parent's, task by task; both are of one generation."""
    for part in child:
        now = {position.split: position for position in part.positions or ()}
        for split, before in parent.positions.get(part.task, {}).items():
            after = now.get(split)
            if after is None:
                message = f"split {split!r} has a position in its parent, epoch {parent.epoch}, and none here"
                yield Finding(Code.POSITION_REGRESSED, part.task, None, None, message)
                continue
            pairs = (("offset", before.offset, after.offset), ("record", before.records, after.records))
            for unit, then, here in pairs:
                if then is not None and here is not None and here < then:
                    message = f"split {split!r} is at {unit} {here}, its parent, epoch {parent.epoch}, was at {then}"
                    yield Finding(Code.POSITION_REGRESSED, part.task, None, None, message)
                    break
