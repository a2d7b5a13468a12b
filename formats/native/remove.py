"""Taking epochs out of a native store."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from formats.native import layout
from formats.native.facts import FenceFacts, ManifestFacts, OutcomeKind, is_id, outcome_kind
from formats.native.numbers import highest
from formats.native.store import NativeStore, files_of
from formats.storage import UNFINISHED, Storage, WritableStorage, Written, delete_all, walk
from formats.storage.ranges import whole_file


class Removed(NamedTuple):
    """What has become of epochs that were to go.

    stayed: those that had got a tag meanwhile; and all that were left when another attempt had begun.
    spared: files in directories of those that are gone, which other epochs need.
    needed: all files that have to stay.
    overtaken: whether another attempt had begun.
    tagged: epochs that had a tag when it was last looked; None where nobody has.
    """

    stayed: frozenset[int]
    spared: set[str]
    needed: set[str]
    overtaken: bool = False
    tagged: frozenset[int] | None = None


def remove_epochs(store: NativeStore, epochs: Iterable[int], keep: Collection[str], newest: int) -> Removed:
    """Make epochs disappear, the newest first: an epoch refers to files of older ones, and may stay longer than they
    if this is cut off. keep: files that other epochs need. newest: the attempt that was the newest when it was decided
    what goes; where another has begun since, nothing more goes.

    An epoch that has got a tag meanwhile stays, and what it refers to. Who tags an epoch writes the tag, and then looks
    whether the epoch is about to leave; here it is said first that it is, and then looked for tags: one of the two sees
    the other.
    """
    storage, needed = store.storage, set(keep)
    stayed, spared = set[int](), set[str]()
    tagged: frozenset[int] | None = None
    newest_first = sorted(epochs, reverse=True)
    for place, epoch in enumerate(newest_first):
        if is_overtaken(storage, newest):
            return Removed(frozenset(stayed.union(newest_first[place:])), spared, needed, True, tagged)
        kind = store.outcome_kind(epoch)
        if kind is ManifestFacts:
            storage.put(layout.leaving(epoch), b"\n", replace=True)
            tagged = store.tagged()
            if epoch in tagged:
                storage.delete(layout.leaving(epoch))
                stayed.add(epoch)
                needed |= {whole_file(file.path) for part in store.parts(epoch) for file in files_of(part)}
                continue
        spared |= remove_epoch(storage, epoch, needed, kind=kind)
        store.forget(epoch)
    return Removed(frozenset(stayed), spared, needed, tagged=tagged)


def remove_epoch(storage: Storage, epoch: int, keep: Collection[str], *, kind: OutcomeKind | None = None) -> set[str]:
    """Make an epoch disappear in one step, then delete its files except `keep`; those that were spared.

    Without trigger the epoch stands by its manifest alone; with that gone it is no epoch any more. A fence is never
    deleted: the number would be free again for an older attempt that was stopped just before it. kind: of its outcome,
    where that is known.
    """
    outcome = layout.outcome(epoch)
    there = [entry.name for entry in walk(storage, layout.epoch_dir(epoch))]
    if kind is None and outcome in there:
        kind = outcome_kind(storage.read(outcome, 0, 64))
    fenced = kind is FenceFacts
    ids = {path.split("/")[2] for path in there if is_id(path.split("/")[2])}
    first = [layout.trigger(epoch, id) for id in sorted(ids)] + ([] if fenced else [outcome])
    for path in first:
        # That of an outcome which was read by its name may be too new for the list.
        if path in there or (path == outcome and kind is not None):
            storage.delete(path)
    rest = [path for path in there if path not in first and not (fenced and path == outcome)]
    spared = {path for path in rest if path in keep}
    delete_all(storage, [path for path in rest if path not in spared])
    return spared


def newest_attempt(storage: Storage) -> int:
    """The highest number of an attempt, by the names of their files; 0 if there is none."""
    listed = (layout.attempt_of(f"{layout.ATTEMPTS}/{entry.name}") for entry in storage.list(layout.ATTEMPTS))
    return highest(filter(None, listed), lambda number: storage.size(layout.attempt(number)) is not None)


def is_overtaken(storage: Storage, attempt: int) -> bool:
    """Whether an attempt has begun since that one was the newest.

    Asked before anything is removed: who has lost the store without knowing it, stopped for longer than its lock lasts,
    does not know what the newer attempt goes on from.
    """
    return storage.size(layout.attempt(attempt + 1)) is not None


def stored_files(storage: WritableStorage) -> list[Written]:
    """Every file below the root but the lock, unfinished writes among them; symbolic links are not followed."""
    return [file for file in storage.inventory() if not layout.is_lock(file.path)]


def is_unfinished(path: str) -> bool:
    """Whether a file is what a crash left of a write."""
    return path.rpartition("/")[2].startswith(UNFINISHED)
