"""Which epochs lead to which: a job that goes back leaves a branch behind, whose numbers it does not use again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from formats.ids import EpochId
from formats.native.sink import Stretch


class Life(NamedTuple):
    """One attempt: the lowest number of its own epochs, the epoch it started from, and its id where that matters."""

    first_epoch: int
    parent: int
    id: str = ""


def stretches(lives: Sequence[Life], epoch: int) -> list[Stretch]:
    """The epochs that lead to `epoch`, it included, newest first: what they made belongs to it.

    lives: in the order in which they began; one that ended before its first epoch left its number to the next. Epochs
    older than the first life that is known count as one stretch.
    """
    leading = []
    while epoch > 0:
        life = next((life for life in reversed(lives) if life.first_epoch <= epoch), Life(1, 0))
        leading.append(Stretch(life.id, life.first_epoch, epoch))
        epoch = min(life.parent, life.first_epoch - 1)
    return leading


def by_number(lives: Sequence[Life], last: int | None = None) -> tuple[Stretch, ...]:
    """Which life has which numbers, whatever line it is on: in one store no number is used twice. last: the highest
    number of all, None where the newest life still adds to them."""
    ends = [*(life.first_epoch - 1 for life in lives[1:]), last][: len(lives)]
    own = (Stretch(life.id, life.first_epoch, end) for life, end in zip(lives, ends, strict=True))
    return tuple(stretch for stretch in own if stretch.last is None or stretch.first <= stretch.last)


def maker(line: Sequence[Stretch], epoch: int) -> str | None:
    """The id of the attempt that made an epoch of a line; None if the number is not on it."""
    return next((stretch.id for stretch in line if stretch.has(epoch)), None)


def is_on(line: Sequence[Stretch], epoch: EpochId) -> bool:
    """Whether the attempt that began an epoch is the one that has this number on the line."""
    return maker(line, epoch.number) == epoch.attempt_id


def line(lives: Sequence[Life], epochs: Collection[int]) -> list[int]:
    """Those of `epochs` on the line of the newest (last) life, newest first: its own, then those it started from."""
    if not lives:
        return sorted(epochs, reverse=True)
    newest = lives[-1]
    top = max((epoch for epoch in epochs if epoch >= newest.first_epoch), default=newest.parent)
    leading = stretches(lives, top)
    return [epoch for epoch in sorted(epochs, reverse=True) if maker(leading, epoch) is not None]
