"""The rows that every target of a sink must have, cumulatively.

Each manifest copies the records of its parent and adds its own rows. The records stay correct when older manifests are
deleted, and tell a target that was restored from an old backup from one that is up to date.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from formats.native.facts import CommittedFacts, PartFacts
from formats.native.sink import epoch_of_part
from formats.native.store import NativeStore


def committed_at(store: NativeStore, epoch: int) -> tuple[CommittedFacts, ...]:
    """Return the records in the manifest of an epoch; none for epoch 0 and for an epoch without a manifest.

    Raises FormatError if the manifest cannot be read.
    """
    return store.manifest(epoch).committed if epoch and store.has_manifest(epoch) else ()


def committed_after(
    before: Iterable[CommittedFacts], moved: Mapping[str, str], parent: int, parts: Sequence[PartFacts]
) -> tuple[CommittedFacts, ...]:
    """Return the records of a manifest.

    before: the records of its parent.
    moved: operators of the parent that were renamed, old id to new id.
    parent: the parent's epoch, 0 if there is none; earlier manifests name all rows up to this epoch.
    parts: of the manifest.
    """
    records = {}
    for old in before:
        operator = moved.get(old.operator, old.operator)
        records[operator, old.target] = CommittedFacts(operator, old.target, old.epoch, old.previous, old.rows)
    fresh: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for part in parts:
        for file in part.sink:
            epoch = epoch_of_part(file.name)
            if epoch > parent:
                fresh.setdefault((part.operator, file.directory), []).append((epoch, file.rows))
    for (operator, target), cut in fresh.items():
        last = records.get((operator, target))
        newest, rows = max(epoch for epoch, _ in cut), sum(rows for _, rows in cut)
        records[operator, target] = CommittedFacts(
            operator, target, newest, last.epoch if last else 0, rows + (last.rows if last else 0)
        )
    return tuple(records[key] for key in sorted(records))
