"""Taking an epoch out of a native store."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import NamedTuple

from formats.native import layout
from formats.storage import UNFINISHED, LocalStorage, Storage, walk


def remove_epoch(storage: Storage, epoch: int, keep: Collection[str]) -> set[str]:
    """Make an epoch disappear in one step, then delete its files except `keep`; those that were spared.

    Without trigger the epoch stands by its manifest alone; with that gone it is no epoch any more.
    """
    spared = set()
    storage.delete(layout.trigger(epoch))
    storage.delete(layout.manifest(epoch))
    for entry in walk(storage, layout.epoch_dir(epoch)):
        if entry.name in keep:
            spared.add(entry.name)
        else:
            storage.delete(entry.name)
    return spared


class Leftover(NamedTuple):
    """A file with its size in bytes, and when it was last written (seconds since 1970)."""

    path: str
    bytes: int
    written: float


def stored_files(storage: LocalStorage) -> list[Leftover]:
    """Every file below the root but the lock, unfinished writes among them; symbolic links are not followed."""
    found = []
    base = storage.local_path(layout.STORE).removesuffix(layout.STORE)
    for folder, _, names in os.walk(base):
        for name in names:
            full = os.path.join(folder, name)
            path = full.removeprefix(base)
            if path != layout.LOCK:
                status = os.lstat(full)
                found.append(Leftover(path, status.st_size, status.st_mtime))
    return sorted(found)


def is_unfinished(path: str) -> bool:
    """Whether a file is what a crash left of a write."""
    return path.rpartition("/")[2].startswith(UNFINISHED)
