"""Which epochs may go: pure, over what refers to what."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import NamedTuple

from formats.durations import duration_short

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


@dataclass(frozen=True, slots=True)
class Retention:
    """Which complete epochs stay: what one rule keeps stays, whatever the others say.

    last: the newest so many; the newest one stays in any case.
    hourly, daily: the newest of each of the last so many hours and days that have one, in UTC.
    within: seconds before the newest within which all stay.
    tags: patterns of names; a tag that none fits keeps nothing. Empty: every tag keeps its epoch.
    """

    last: int = KEEP
    hourly: int = 0
    daily: int = 0
    within: float | None = None
    tags: tuple[str, ...] = ()

    def holds(self, tag: str) -> bool:
        """Whether a tag keeps its epoch."""
        return not self.tags or any(fnmatchcase(tag, pattern) for pattern in self.tags)


def kept_by(rules: Retention, times: Mapping[int, datetime]) -> dict[int, tuple[str, ...]]:
    """The complete epochs that stay by a rule for their age, ascending, with the reasons in words.

    times: when each complete epoch was triggered.
    """
    newest_first = sorted(times, reverse=True)
    reasons: dict[int, list[str]] = {}
    for place, epoch in enumerate(newest_first[: max(rules.last, 1)]):
        reasons.setdefault(epoch, []).append("the newest" if place == 0 else f"of the newest {rules.last}")
    for epoch in _newest_of_each(newest_first, lambda epoch: times[epoch].strftime("%F %H"), rules.hourly):
        reasons.setdefault(epoch, []).append(f"the last of its hour, {times[epoch]:%F %H}:00")
    for epoch in _newest_of_each(newest_first, lambda epoch: times[epoch].strftime("%F"), rules.daily):
        reasons.setdefault(epoch, []).append(f"the last of its day, {times[epoch]:%F}")
    if rules.within is not None and newest_first:
        since = max(times.values()) - timedelta(seconds=rules.within)
        for epoch in newest_first:
            if times[epoch] >= since:
                reasons.setdefault(epoch, []).append(f"within {duration_short(rules.within)} of the newest")
    return {epoch: tuple(reasons[epoch]) for epoch in sorted(reasons)}


def _newest_of_each(newest_first: Iterable[int], span: Callable[[int], str], number: int) -> list[int]:
    """The first of each span, of the first so many spans."""
    first_of: dict[str, int] = {}
    for epoch in newest_first:
        first_of.setdefault(span(epoch), epoch)
    return list(first_of.values())[:number]
