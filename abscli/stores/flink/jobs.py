"""Jobs of Flink beside each other: from which checkpoint Flink starts where it lies, which are lives of one job, and
which files none of their checkpoints needs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from abscli.stores.base import Lives, Orphans
from formats.flink.files.layout import SiteKind
from formats.flink.files.resolve import How, directory_of
from formats.flink.references import references, unreferenced
from formats.flink.store import FlinkStore
from formats.storage import LocalStorage, ServedStorage

NAMED = 3
"""Directories that a reason names."""


def cannot_start(store: FlinkStore, epoch: int) -> str | None:
    """Why Flink does not find a file of the checkpoint though it is there, in words."""
    at = store.streams(epoch)
    elsewhere: dict[str, int] = {}
    for _, handle in store.files(epoch):
        place = at.place(handle)
        if place is not None and place.how not in (How.WRITTEN, How.COPIED):
            folder = directory_of(handle.path)
            elsewhere[folder] = elsewhere.get(folder, 0) + 1
    if not elsewhere:
        return None
    folders = ", ".join(sorted(elsewhere)[:NAMED]) + (" ..." if len(elsewhere) > NAMED else "")
    count = sum(elsewhere.values())
    return f"it was moved: Flink would look for {count} file{'s'[: count != 1]} in {folders}; a copy is needed"


def lives(store: FlinkStore, epoch: int) -> Lives | None:
    """The ids of its operators, and when it wrote; None where that is not known."""
    times = list(written(store))
    operators = frozenset(operator.id for operator in store.metadata(epoch).operators)
    return Lives(operators, min(times), max(times)) if times else None


def written(store: FlinkStore) -> Iterator[float]:
    """When each file and directory of a job, its own included, was last changed, as seconds since 1970.

    Whatever a job does to its checkpoints shows there: a directory changes when a checkpoint begins, fails or goes. In
    a bucket files alone have times, and a checkpoint that fails may leave no trace.
    """
    if isinstance(store.storage, ServedStorage):
        yield from (file.written for file in store.storage.inventory())
        return
    if not isinstance(store.storage, LocalStorage):
        return
    root = store.folder.roots[0]
    yield from _changed(root)
    names = store.folder.names("")
    for name, size in names.items():
        if size is not None:
            yield from _changed(os.path.join(root, name))
            continue
        for folder, _, files in os.walk(os.path.join(root, name)):
            yield from _changed(folder)
            for file in files:
                yield from _changed(os.path.join(folder, file))


def _changed(path: str) -> Iterator[float]:
    try:
        yield os.lstat(path).st_mtime
    except OSError:  # it has gone meanwhile: its directory shows it
        return


def orphans(stores: Sequence[FlinkStore]) -> list[Orphans | None]:
    """Of each job, what no checkpoint of any of them refers to. Files of a checkpoint that may still be taken are left
    out. None of a single snapshot, whose files are its own, and of all if a
    `_metadata` cannot be read."""
    every = [references(store) for store in stores]
    if any(one.unread for one in every):
        return [None] * len(stores)
    needed = [one.names for one in every]
    result: list[Orphans | None] = []
    for store, own in zip(stores, every, strict=True):
        if store.kind is not SiteKind.JOB:
            result.append(None)
            continue
        complete = set(own.complete)
        open_homes = tuple(f"{home}/" for n, home in store.homes().items() if n not in complete and store.is_open(n))
        files = unreferenced(store.folder.walk(), needed)
        result.append(Orphans({path: size for path, size in files.items() if not path.startswith(open_homes)}))
    return result
