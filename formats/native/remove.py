"""Taking an epoch out of a native store."""

from __future__ import annotations

from collections.abc import Collection

from formats.native import layout
from formats.storage import Storage, walk


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
