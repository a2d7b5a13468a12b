"""Which epochs may go: pure, over what refers to what."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

KEEP = 10
"""Complete epochs that stay unless told otherwise."""
MIN_AGE = 3600.0
"""Seconds that a file which nothing refers to stays unless told otherwise: somebody may be about to refer to it."""


class Kept(NamedTuple):
    """An epoch that is still there.

    files: what it refers to; older epochs' files among them.
    """

    epoch: int
    complete: bool
    parent: int | None
    files: frozenset[str]


def expired(
    epochs: Iterable[Kept], keep: int, floor: int | None = None, spare: Collection[int] = ()
) -> tuple[list[int], frozenset[str]]:
    """Epochs that may go, ascending, and the files that must stay because a kept epoch refers to them.

    Kept are the `keep` newest complete epochs, all complete ones from `floor` on, everything newer than the newest,
    and what `spare` names.
    """
    ascending = sorted(epochs)
    complete = [e.epoch for e in ascending if e.complete]
    if not complete:
        return [], frozenset(f for e in ascending for f in e.files)
    stay = set(complete[-keep:]) | {e.epoch for e in ascending if e.epoch > complete[-1]}
    stay |= {epoch for epoch in complete if floor is not None and epoch >= floor} | set(spare)
    gone = [e.epoch for e in ascending if e.epoch not in stay]
    return gone, frozenset(f for e in ascending if e.epoch in stay for f in e.files)
