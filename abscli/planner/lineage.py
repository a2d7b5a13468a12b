"""Which epochs lead to which: a job that goes back leaves a branch behind, whose numbers it does not use again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple


class Life(NamedTuple):
    """One attempt: the epoch it started from, and the lowest number of its own epochs."""

    first_epoch: int
    parent: int


def spans(lives: Sequence[Life], epoch: int) -> list[range]:
    """The epoch numbers that lead to `epoch`, it included, newest first: what they made belongs to it.

    lives: in the order in which they began; one that ended before its first epoch left its number to the next. Epochs
    older than the first life that is known count as one span.
    """
    found = []
    while epoch > 0:
        life = next((life for life in reversed(lives) if life.first_epoch <= epoch), Life(1, 0))
        found.append(range(life.first_epoch, epoch + 1))
        epoch = min(life.parent, life.first_epoch - 1)
    return found


def line(lives: Sequence[Life], epochs: Collection[int]) -> list[int]:
    """Those of `epochs` on the line of the newest (last) life, newest first: its own, then those it started from."""
    if not lives:
        return sorted(epochs, reverse=True)
    newest = lives[-1]
    top = max((epoch for epoch in epochs if epoch >= newest.first_epoch), default=newest.parent)
    leading = spans(lives, top)
    return [epoch for epoch in sorted(epochs, reverse=True) if any(epoch in span for span in leading)]
