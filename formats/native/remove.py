"""Taking epochs out of a native store."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from formats.native import layout
from formats.native.facts import FenceFacts, is_id, outcome_kind
from formats.native.store import NativeStore, files_of
from formats.storage import UNFINISHED, Storage, WritableStorage, Written, delete_all, walk


class Removed(NamedTuple):
    """What has become of epochs that were to go.

    stayed: those that had got a tag meanwhile; and all that were left when another attempt had begun.
    spared: files in directories of those that are gone, which other epochs need.
    needed: all files that have to stay.
    overtaken: whether another attempt had begun.
    """

    stayed: frozenset[int]
    spared: set[str]
    needed: set[str]
    overtaken: bool = False


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
    newest_first = sorted(epochs, reverse=True)
    for place, epoch in enumerate(newest_first):
        if is_overtaken(storage, newest):
            return Removed(frozenset(stayed.union(newest_first[place:])), spared, needed, True)
        if store.has_manifest(epoch):
            storage.put(layout.leaving(epoch), b"", replace=True)
            if epoch in store.tagged():
                storage.delete(layout.leaving(epoch))
                stayed.add(epoch)
                needed |= {file.path for part in store.parts(epoch) for file in files_of(part)}
                continue
        spared |= remove_epoch(storage, epoch, needed)
    return Removed(frozenset(stayed), spared, needed)


def remove_epoch(storage: Storage, epoch: int, keep: Collection[str]) -> set[str]:
    """Make an epoch disappear in one step, then delete its files except `keep`; those that were spared.

    Without trigger the epoch stands by its manifest alone; with that gone it is no epoch any more. A fence is never
    deleted: the number would be free again for an older attempt that was stopped just before it.
    """
    spared = set()
    outcome = layout.outcome(epoch)
    fenced = storage.size(outcome) is not None and outcome_kind(storage.read(outcome, 0, 64)) is FenceFacts
    attempts = ["", *(entry.name for entry in storage.list(layout.epoch_dir(epoch)) if is_id(entry.name))]
    for attempt in attempts:
        storage.delete(layout.trigger(epoch, attempt))
    for path in (layout.manifest_1(epoch), *([] if fenced else [outcome])):
        storage.delete(path)
    going = []
    for entry in walk(storage, layout.epoch_dir(epoch)):
        if entry.name in keep:
            spared.add(entry.name)
        elif not (fenced and entry.name == outcome):
            going.append(entry.name)
    delete_all(storage, going)
    return spared


def newest_attempt(storage: Storage) -> int:
    """The highest number of an attempt, by the names of their files; 0 if there is none."""
    names = (entry.name.partition(".")[0] for entry in storage.list(layout.ATTEMPTS))
    return max((int(name) for name in names if name.isascii() and name.isdigit()), default=0)


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
