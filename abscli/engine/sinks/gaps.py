"""Missing rows of a target: rows that it must have, and that no kept manifest names.

A target misses rows if it was restored from a backup that is older than the kept epochs, or if somebody emptied it.
Each manifest records what every target must have (`formats.native.committed`), so the older manifests are not needed.
Deliveries arrive in the order of the history: a target that has one delivery has all earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from abscli.engine.sinks.promises import Promises
from abscli.planner.lineage import is_on, stretches
from abscli.planner.target import Gap, find_gap
from formats.errors import Damaged
from formats.ids import EpochId
from formats.native.facts import CommittedFacts
from formats.native.sink import PartId, Stretch


@dataclass(frozen=True, slots=True)
class FilesOfSink:
    """The part files of a sink.

    markers: the commit markers next to them.
    showing: the history of the attempt that claimed the sink last, which the markers are of.
    there: parts that exist, visible or not.
    pending: parts that will become visible.
    """

    markers: Sequence[EpochId]
    showing: Sequence[Stretch]
    there: Collection[PartId]
    pending: Collection[PartId]


def records_of(
    promises: Promises, parent: int, operator: str, is_own: Callable[[str], bool]
) -> dict[int, CommittedFacts]:
    """Return the records of one target in the manifests of a history, by epoch.

    parent: the newest epoch of the history.
    operator: the sink's id in that epoch.
    is_own: tells whether a name in a manifest is a name of the target.
    """
    records = {}
    epoch = parent
    while epoch in promises.committed:
        own = [one for one in promises.committed[epoch] if one.operator == operator and is_own(one.target)]
        if own:
            records[epoch] = max(own, key=lambda one: one.epoch)
        operator = promises.origins.get(epoch, {}).get(operator, operator)
        epoch = promises.parents[epoch]
    return records


def oldest_naming(promises: Promises, parent: int, operator: str, parts: Collection[PartId]) -> int | None:
    """Return the oldest manifest of a history that names one of these parts; None if no manifest names one.

    parent, operator: as in `records_of`.
    """
    oldest = None
    epoch = parent
    while epoch in promises.parts:
        if any(part in parts for part in promises.parts[epoch].get(operator, {})):
            oldest = epoch
        operator = promises.origins.get(epoch, {}).get(operator, operator)
        epoch = promises.parents[epoch]
    return oldest


def find_gap_in_files(
    promises: Promises, parent: int, operator: str, records: Mapping[int, CommittedFacts], files: FilesOfSink
) -> Gap | None:
    """Find rows that a folder or bucket must have, and of which it has neither a part nor a commit marker.

    parent, operator: as in `records_of`.
    """
    there = {part.epoch for part in files.there}
    published = max((marker.number for marker in files.markers if is_on(files.showing, marker)), default=0)

    def has(epoch: EpochId) -> bool:
        return epoch in there or (epoch.number <= published and is_on(files.showing, epoch))

    oldest_due = oldest_naming(promises, parent, operator, files.pending)
    return find_gap(records, parent, oldest_due, stretches(promises.lives, parent), files.markers, has)


def rows_missing(operator: str, title: str, gap: Gap) -> Damaged:
    """Return the error for a target with missing rows."""
    return Damaged(
        f"sink {operator}: {title} lacks {gap}",
        path=title,
        hint="restore a newer backup of the target; or use --accept-missing-parts to resume without the rows",
    )
