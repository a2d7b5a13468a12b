"""Which epochs lead to which: a job that goes back leaves a branch behind, whose numbers it does not use again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from formats.ids import EpochId
from formats.native.facts import AttemptFacts
from formats.native.sink import Stretch


class Life(NamedTuple):
    """One attempt: the lowest number of its own epochs, the epoch it started from, and its id where that matters.

    last: the highest of its own epochs, of a repair; None where it has all up to the next attempt's.
    """

    first_epoch: int
    parent: int
    id: str = ""
    last: int | None = None

    def has(self, epoch: int) -> bool:
        """Whether a number may be one of its own."""
        return self.first_epoch <= epoch and (self.last is None or epoch <= self.last)


def lives_of(attempts: Iterable[AttemptFacts], is_fenced: Callable[[int], bool]) -> list[Life]:
    """The lives that have epochs of their own. is_fenced: whether the outcome of a number is a fence.

    Of a repair only the one that made its epoch complete: an epoch that was complete already stays with the attempt
    that took it, and while a fence stands at its number the repair has not come to its end.
    """
    attempts = list(attempts)
    # A repair with numbers of its own was begun while the epoch was not complete: only the last can have made it so.
    makers = {a.repairs: a.id for a in attempts if a.repairs is not None and a.first_epoch <= a.repairs}
    return [
        Life(a.first_epoch, a.parent, a.id, a.repairs)
        for a in attempts
        if a.repairs is None or (makers.get(a.repairs) == a.id and not is_fenced(a.repairs))
    ]


def stretches(lives: Sequence[Life], epoch: int) -> list[Stretch]:
    """The epochs that lead to `epoch`, it included, newest first: what they made belongs to it.

    lives: in the order in which they began; one that ended before its first epoch left its number to the next. Epochs
    older than the first life that is known count as one stretch.
    """
    leading = []
    while epoch > 0:
        life = next((life for life in reversed(lives) if life.has(epoch)), Life(1, 0))
        leading.append(Stretch(life.id, life.first_epoch, epoch))
        epoch = min(life.parent, life.first_epoch - 1)
    return leading


def by_number(lives: Sequence[Life], last: int | None = None) -> tuple[Stretch, ...]:
    """Which life has which numbers, whatever line it is on: in one store no number is used twice. last: the highest
    number of all, None where the newest life still adds to them."""
    ends = [*(life.first_epoch - 1 for life in lives[1:]), last][: len(lives)]
    own = (
        Stretch(life.id, life.first_epoch, end if life.last is None else life.last)
        for life, end in zip(lives, ends, strict=True)
    )
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
