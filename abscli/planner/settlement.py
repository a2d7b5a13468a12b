"""What becomes of the parts in a sink's folder when an attempt takes it on: pure, over what lies where.

A part belongs to the output when the attempt that made it has its epoch on the line that the job goes on from, and,
as far as the manifests of that line are still there, one of them names it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from abscli.planner.lineage import is_on, maker
from formats.native.facts import SinkFile
from formats.native.sink import UNNAMED, PartId, Stretch, epoch_of_part


@dataclass(frozen=True, slots=True)
class SinkFacts:
    """What lies in a sink's folder, with sizes in bytes.

    visible: parts that readers see.
    staged: parts that wait to be shown.
    superseded: parts that were shown and are no longer.
    """

    visible: Mapping[PartId, int]
    staged: Mapping[PartId, int]
    superseded: Mapping[PartId, int]

    def parts(self) -> set[PartId]:
        """All parts that are there, wherever they lie."""
        return {*self.visible, *self.staged, *self.superseded}


def with_makers(names: Mapping[str, int], showing: Sequence[Stretch]) -> dict[PartId, int]:
    """Visible parts of a folder, where names do not say which attempt made them: that of the line that is shown has
    (the id "" where there is none)."""
    return {PartId(maker(showing, epoch_of_part(name)) or "", name): size for name, size in names.items()}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a store says that a sink should show.

    line: of the epoch that the job goes on from, newest first.
    due: the parts that manifests of the line name.
    named_above: above this epoch all manifests of the line are there, so that a part which none names is a stranger's.
    named: the parts for this place that any manifest of the store names, on whichever branch, whatever its sink was
    called.
    attempts: the ids of the store's attempts all of whose manifests could be read.
    """

    line: Sequence[Stretch]
    due: Mapping[PartId, SinkFile]
    named_above: int
    named: Mapping[PartId, SinkFile]
    attempts: Collection[str]


class Missing(NamedTuple):
    """A part that is due and is nowhere, or is not what was written.

    size: in bytes, None if it is nowhere.
    """

    id: PartId
    file: SinkFile
    size: int | None


@dataclass(frozen=True, slots=True)
class Settlement:
    """What to do with what does not stay, in this order but for `missing`, which is what stands against doing it.

    stays: visible parts that belong.
    away: visible parts to be set aside, with the attempt that made them, "" where that is not known, `UNNAMED` where
    it has named all that it made, and not these: they never become visible again.
    back: parts that were set aside and belong to the output again.
    reveal: parts that wait and belong to a complete epoch of the line.
    aside: parts that wait and that no manifest of the store names. They are not deleted: a copy of this store that
    went on longer than it may name them.
    strays: parts that wait and that the attempt which made them has not named, though it has named all that it made by
    then: it lost the task, and made the rows again. They never become visible.
    doubled: parts that are visible and still wait, since a process ended in the middle of revealing them.
    """

    stays: frozenset[PartId]
    away: tuple[PartId, ...]
    back: tuple[PartId, ...]
    reveal: tuple[PartId, ...]
    aside: tuple[PartId, ...]
    strays: tuple[PartId, ...]
    doubled: tuple[PartId, ...]
    missing: tuple[Missing, ...]


def settle(sink: SinkFacts, wanted: Wanted) -> Settlement:
    """How the folder comes to show exactly what belongs to the line."""
    stays, away = set[PartId](), []
    for part in sorted(sink.visible, key=lambda part: (part.name, part.attempt_id)):
        if part.attempt_id and _belongs(part, wanted):
            stays.add(part)
        else:
            away.append(part._replace(attempt_id=UNNAMED) if _is_strange(part, wanted) else part)
    back, reveal, missing = [], [], []
    for part, file in sorted(wanted.due.items()):
        if part in stays:
            size: int | None = sink.visible[part]
        elif part in sink.staged:
            size = sink.staged[part]
            reveal.append(part)
        else:
            size = sink.superseded.get(part)
            back.append(part)
        if size != file.bytes:
            missing.append(Missing(part, file, size))
    # What belongs to epochs whose manifests are gone. It waits where the sink is older than the store, as a backup is.
    settled = stays | wanted.due.keys()
    reveal += [part for part in sorted(sink.staged.keys() - settled) if _belongs(part, wanted)]
    settled |= set(reveal)
    back += [part for part in sorted(sink.superseded.keys() - settled) if _belongs(part, wanted)]
    aside, strays = list[PartId](), list[PartId]()
    for part in sorted(sink.staged):
        if part not in wanted.named and part not in settled and part.attempt_id in wanted.attempts:
            (strays if _is_strange(part, wanted) else aside).append(part)
    doubled = tuple(sorted(stays & sink.staged.keys()))
    return Settlement(
        frozenset(stays), tuple(away), tuple(back), tuple(reveal), tuple(aside), tuple(strays), doubled, tuple(missing)
    )


def _is_strange(part: PartId, wanted: Wanted) -> bool:
    """Whether a part that does not belong can never have: all manifests of its attempt that could name it are there.
    When they have been removed that cannot be known any more, and it would be taken for one of theirs."""
    return part.attempt_id != "" and part not in wanted.named and is_on(wanted.line, part.epoch)


def _belongs(part: PartId, wanted: Wanted) -> bool:
    """Whether a part is of the line, and named where that can be known."""
    if part in wanted.due:
        return True
    epoch = part.epoch
    return epoch.number <= wanted.named_above and is_on(wanted.line, epoch)
