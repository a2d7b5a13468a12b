"""What becomes of the parts in a sink's folder when an attempt takes it on: pure, over what lies where.

A part belongs to the output when the attempt that made it has its epoch on the line that the job goes on from, and,
as far as the manifests of that line are still there, one of them names it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from abscli.planner.lineage import maker
from formats.native.facts import SinkFile
from formats.native.sink import UNNAMED, Identity, Stretch, epoch_of_part


@dataclass(frozen=True, slots=True)
class SinkFacts:
    """What lies in a sink's folder, with sizes in bytes.

    visible: parts that readers see, by name.
    staged: parts that wait to be shown.
    superseded: parts that were shown and are no longer.
    showing: the line of attempts that what is visible was made on.
    """

    visible: Mapping[str, int]
    staged: Mapping[Identity, int]
    superseded: Mapping[Identity, int]
    showing: Sequence[Stretch]

    def identities(self) -> set[Identity]:
        """All parts that are there, wherever they lie."""
        shown = {(maker(self.showing, epoch_of_part(name)) or "", name) for name in self.visible}
        return shown | self.staged.keys() | self.superseded.keys()


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a store says that a sink should show.

    line: of the epoch that the job goes on from, newest first.
    due: the parts that manifests of the line name.
    named_above: above this epoch all manifests of the line are there, so that a part which none names is a stranger's.
    named: the parts that any manifest of the store names, on whichever branch and of whichever sink.
    attempts: the ids of the store's attempts all of whose manifests could be read.
    """

    line: Sequence[Stretch]
    due: Mapping[Identity, SinkFile]
    named_above: int
    named: Collection[Identity]
    attempts: Collection[str]


class Missing(NamedTuple):
    """A part that is due and is nowhere, or is not what was written.

    size: in bytes, None if it is nowhere.
    """

    id: str
    file: SinkFile
    size: int | None


@dataclass(frozen=True, slots=True)
class Settlement:
    """What to do, in this order but for `missing`, which is what stands against doing it.

    away: visible parts to be set aside, with the attempt that made them, "" where that is not known, `UNNAMED` where
    it has named all that it made, and not these: they never become visible again.
    back: parts that were set aside and belong to the output again.
    reveal: parts that wait and belong to a complete epoch of the line.
    aside: parts that wait and that no manifest of the store names. They are not deleted: a copy of this store that
    went on longer than it may name them.
    doubled: parts that are visible and still wait, since a process ended in the middle of revealing them.
    """

    away: tuple[Identity, ...]
    back: tuple[Identity, ...]
    reveal: tuple[Identity, ...]
    aside: tuple[Identity, ...]
    doubled: tuple[Identity, ...]
    missing: tuple[Missing, ...]


def settle(sink: SinkFacts, wanted: Wanted) -> Settlement:
    """How the folder comes to show exactly what belongs to the line."""
    stays, away = set[Identity](), []
    for name in sorted(sink.visible):
        made_by = maker(sink.showing, epoch_of_part(name))
        if made_by is not None and _belongs((made_by, name), wanted):
            stays.add((made_by, name))
        else:
            away.append((UNNAMED if _is_strange(made_by, name, wanted) else made_by or "", name))
    back, reveal, missing = [], [], []
    for identity, file in sorted(wanted.due.items()):
        id, name = identity
        if identity in stays:
            size: int | None = sink.visible[name]
        elif identity in sink.staged:
            size = sink.staged[identity]
            reveal.append(identity)
        else:
            size = sink.superseded.get(identity)
            back.append(identity)
        if size != file.bytes:
            missing.append(Missing(id, file, size))
    # What belongs to epochs whose manifests are gone. It waits where the sink is older than the store, as a backup is.
    settled = stays | wanted.due.keys()
    reveal += [one for one in sorted(sink.staged.keys() - settled) if _belongs(one, wanted)]
    settled |= set(reveal)
    back += [one for one in sorted(sink.superseded.keys() - settled) if _belongs(one, wanted)]
    aside = [
        identity
        for identity in sorted(sink.staged)
        if identity not in wanted.named and identity not in settled and identity[0] in wanted.attempts
    ]
    doubled = tuple(sorted(stays & sink.staged.keys()))
    return Settlement(tuple(away), tuple(back), tuple(reveal), tuple(aside), doubled, tuple(missing))


def _is_strange(made_by: str | None, name: str, wanted: Wanted) -> bool:
    """Whether a part that does not belong can never have: all manifests of its attempt that could name it are there.
    When they have been removed that cannot be known any more, and it would be taken for one of theirs."""
    if made_by is None or (made_by, name) in wanted.named:
        return False
    return maker(wanted.line, epoch_of_part(name)) == made_by


def _belongs(identity: Identity, wanted: Wanted) -> bool:
    """Whether a part is of the line, and named where that can be known."""
    id, name = identity
    epoch = epoch_of_part(name)
    if identity in wanted.due:
        return True
    return epoch <= wanted.named_above and maker(wanted.line, epoch) == id
