"""Where sources of Kafka go on, held against what a broker has: how far they are behind, and what is gone before it was
read. Offsets are Kafka's; a topic that is compacted, or written in transactions, has fewer records than offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec


class Place(msgspec.Struct, frozen=True):
    """Where a source goes on in a partition of a topic.

    operator: whose it is, as the view calls it.
    offset: None where nothing of it was read, and the broker is to say where it begins.
    until: where a bounded read stops; None if it does not.
    """

    operator: str
    topic: str
    partition: int
    offset: int | None
    until: int | None = None

    @property
    def split(self) -> str:
        """The partition as one word, `orders-3`."""
        return f"{self.topic}-{self.partition}"


class Bounds(msgspec.Struct, frozen=True):
    """What a broker has of a partition. earliest: its oldest record; end: where the next one will be."""

    earliest: int
    end: int


class Gap(StrEnum):
    """Why a source cannot go on where it was."""

    DROPPED = "dropped"
    """Retention has taken what comes next."""
    AHEAD = "ahead"
    """The partition ends before: the topic was made anew, or cut."""
    GONE = "gone"
    """The broker has no such partition."""


class SplitLag(msgspec.Struct, frozen=True):
    """One partition.

    offset: where the source goes on; None of a partition of which nothing was read yet.
    earliest, end: of the broker; None where it has no such partition.
    lag: records that are still to be read, those that are gone included; None where that means nothing.
    dropped: of them those that are gone.
    gap: why the source cannot go on there; None if it can.
    """

    operator: str
    topic: str
    partition: int
    offset: int | None
    earliest: int | None
    end: int | None
    lag: int | None
    dropped: int
    gap: Gap | None

    @property
    def split(self) -> str:
        """The partition as one word, `orders-3`."""
        return f"{self.topic}-{self.partition}"


Topics = Mapping[str, Mapping[int, Bounds]]
"""What a broker has, by topic and partition."""


def lags(places: Iterable[Place], topics: Topics) -> list[SplitLag]:
    """Every partition that a source has read, and after them those of its topics that it has not seen yet."""
    known: dict[tuple[str, str], set[int]] = {}
    seen: list[SplitLag] = []
    for place in places:
        known.setdefault((place.operator, place.topic), set()).add(place.partition)
        seen.append(_lag(place, topics.get(place.topic, {}).get(place.partition)))
    for (operator, topic), partitions in known.items():
        for partition, bounds in sorted(topics.get(topic, {}).items()):
            if partition not in partitions:
                waiting = bounds.end - bounds.earliest
                seen.append(
                    SplitLag(operator, topic, partition, None, bounds.earliest, bounds.end, waiting, 0, None)
                )
    return seen


def _lag(place: Place, bounds: Bounds | None) -> SplitLag:
    own = (place.operator, place.topic, place.partition, place.offset)
    if bounds is None:
        return SplitLag(*own, None, None, None, 0, Gap.GONE)
    if place.offset is None:
        return SplitLag(*own, bounds.earliest, bounds.end, None, 0, None)
    if place.offset > bounds.end:
        return SplitLag(*own, bounds.earliest, bounds.end, None, 0, Gap.AHEAD)
    stop = bounds.end if place.until is None else min(place.until, bounds.end)
    dropped = max(0, min(bounds.earliest, stop) - place.offset)
    gap = Gap.DROPPED if dropped else None
    return SplitLag(*own, bounds.earliest, bounds.end, max(0, stop - place.offset), dropped, gap)


def told(lag: SplitLag) -> str:
    """What is wrong with a partition, in words; what can go on has nothing to tell."""
    match lag.gap:
        case Gap.DROPPED:
            count = "1 record" if lag.dropped == 1 else f"{lag.dropped:,} records"
            return f"resumes at {lag.offset}, but the oldest offset is {lag.earliest}: {count} removed unread"
        case Gap.AHEAD:
            return f"resumes at {lag.offset}, but the partition ends at {lag.end}: the topic was recreated or truncated"
        case Gap.GONE:
            begin = "begins" if lag.offset is None else f"resumes at {lag.offset}"
            return f"{begin}, and the broker has no such partition"
        case None:
            return ""
