"""Stores as jobs in buckets write them: the parts of each worker's tasks in a pack."""

from __future__ import annotations

import dataclasses
import os

from formats.native import layout
from formats.native.facts import PartFacts, StateFileFacts
from formats.native.packs import Loose, encode_pack
from formats.native.store import NativeStore
from formats.native.writer import complete, put_aborted
from formats.storage import LocalStorage, MemoryStorage, Storage
from formats.view import FileFacts
from tests.support.stores.small import Build, loop_job

WORKERS = 2
INCARNATIONS = ("a" * 16, "b" * 16)
"""Of the two processes, by worker."""


@dataclasses.dataclass(frozen=True)
class PackedBuild(Build):
    """A store being made by two workers, each of which puts packs."""

    def loose(self, epoch: int, task: str, base: tuple[StateFileFacts, ...] = ()) -> Loose:
        """A task's part, and its files, which are nowhere yet."""
        aside = MemoryStorage()
        part = dataclasses.replace(self, storage=aside).part(epoch, task, base)
        return Loose(part, dict(aside.files), {})

    def pack(self, epoch: int, worker: int, loose: list[Loose], number: int = 1) -> tuple[PartFacts, ...]:
        """Put a worker's pack; the parts as they are acked with it."""
        path = layout.pack(epoch, self.id, INCARNATIONS[worker], number)
        data, parts = encode_pack(path, loose)
        self.storage.put(path, data)
        return parts

    def packs(self, epoch: int, missing: tuple[str, ...] = (), base: int | None = None) -> dict[str, PartFacts]:
        """The packs of both workers; the parts in them by task."""
        older = {part.task_name: part.state for part in self.parts(base)} if base is not None else {}
        acked = {}
        for worker in range(WORKERS):
            tasks = [task for task in self.tasks() if int(task.rpartition("/")[2]) % WORKERS == worker]
            loose = [self.loose(epoch, task, older.get(task, ())) for task in tasks if task not in missing]
            acked.update({part.task_name: part for part in self.pack(epoch, worker, loose)})
        return acked

    def complete(self, epoch: int, parent: int, *, idle: bool = False, base: int | None = None) -> None:
        trigger = self.trigger(epoch, parent)
        acked = self.packs(epoch, base=base)
        parts = tuple(acked[task] for task in self.tasks())
        complete(self.storage, trigger, self.topology.job, parts, idle=idle, ack_files=[])

    def open(self, epoch: int, parent: int, *, missing: tuple[str, ...] = (), aborted: str | None = None) -> None:
        self.trigger(epoch, parent)
        self.packs(epoch, missing)
        if aborted is not None:
            facts = NativeStore(self.storage).attempt(layout.attempt(self.attempt))
            put_aborted(self.storage, epoch, facts, aborted)


def make_packed(where: str | os.PathLike[str] | Storage) -> PackedBuild:
    """As `make_store`: epochs 1 and 2 complete (2 refers to ranges of 1), 3 aborted, 4 complete with parent 2, and 5
    incomplete: `seen/1` and `out/0` have not acked."""
    if isinstance(where, str | os.PathLike):
        os.makedirs(where, exist_ok=True)
        where = LocalStorage(where)
    build = PackedBuild(where, loop_job(2))
    build.begin()
    missing = ("seen/1", "out/0")
    build.complete(1, 0)
    build.complete(2, 1, base=1)
    build.open(3, 2, missing=missing, aborted="timed out, waiting for out/0")
    build.complete(4, 2, base=2)
    build.open(5, 4, missing=missing)
    return build


def ranges(store: NativeStore, epoch: int) -> list[FileFacts]:
    """What the parts of an epoch name."""
    return [file for part in store.parts(epoch) for file in (*part.state, *(log.file for log in part.logs if log.file))]
