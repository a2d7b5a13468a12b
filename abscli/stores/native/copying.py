"""Copies of our own stores: complete epochs with all that they need, only what is missing, while a job may run.

The copy is a store at every moment: an epoch's files come before its outcome, and `abs-store.json`, without which a
directory is no store, comes last where the copy is new. Nothing is written twice, so a copy that was broken off is gone
on with. Every file is compared with the digest that the epoch names it by before it gets its name.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from functools import partial
from typing import NamedTuple

import msgspec

from abscli.stores.copying import check_folder, roots
from formats.disk import make_folder
from formats.errors import Damaged, FormatError, NotFound, OtherJob
from formats.native import layout, lock
from formats.native.facts import (
    AttemptFacts,
    ManifestFacts,
    StoreFacts,
    TasksFacts,
    decode_facts,
    header,
    seal,
    unseal,
)
from formats.native.names import check_facts
from formats.native.remove import is_unfinished, stored_files
from formats.native.store import NativeStore, files_of, is_native
from formats.parallel import in_order
from formats.storage import (
    LocalStorage,
    Storage,
    WritableStorage,
    common_name,
    local_name,
    open_writable,
)
from formats.storage.ranges import range_of, whole_file
from formats.timestamps import now
from formats.view import FileFacts

WORKERS = 4
"""Files that are copied at a time: each waits for its disk."""


class Became(StrEnum):
    """What became of an epoch."""

    COPIED = "copied"
    PRESENT = "present"
    REMOVED = "removed"
    DAMAGED = "damaged"


class CopiedEpoch(msgspec.Struct, frozen=True):
    """An epoch of the source.

    files, bytes: written for it.
    reason: why it is not in the copy.
    """

    epoch: int
    outcome: Became
    files: int
    bytes: int
    reason: str | None = None


class Copied(msgspec.Struct, frozen=True):
    """What a copy has done.

    new: whether the copy was begun with it.
    epochs: those of the source, ascending.
    tags: that the copy has got, as `name` of which epoch.
    files, bytes: written in all, bookkeeping included.
    """

    store: str
    to: str
    job: str
    new: bool
    epochs: tuple[CopiedEpoch, ...]
    tags: dict[str, int]
    files: int
    bytes: int

    @property
    def damaged(self) -> tuple[CopiedEpoch, ...]:
        """Those that could not be copied."""
        return tuple(epoch for epoch in self.epochs if epoch.outcome is Became.DAMAGED)


class Belongings(NamedTuple):
    """What a complete epoch consists of, by one reading of its outcome.

    outcome: the path of that.
    data: its bytes.
    files: all others, as they are named, what names them last.
    graph: the path of the job graph.
    """

    outcome: str
    data: bytes
    files: tuple[FileFacts, ...]
    graph: str


def belongings(store: NativeStore, epoch: int) -> Belongings:
    """All that an epoch refers to; NotFound, Damaged."""
    path = layout.outcome(epoch)
    data = store.storage.read(path)
    manifest = unseal(data, ManifestFacts, f"{store.path}/{path}")
    check_facts(manifest, f"{store.path}/{path}")
    tasks_file = manifest.tasks_file
    tasks = checked(store.storage, tasks_file)
    parts = decode_facts(tasks, TasksFacts, f"{store.path}/{tasks_file.path}")
    check_facts(parts, f"{store.path}/{tasks_file.path}")
    files = {file.path: file for part in parts.parts for file in files_of(part)}
    stored = _stored(store.storage, files.values())
    return Belongings(path, data, (*stored, tasks_file), layout.topology(manifest.topology_sha256))


class PackFile(FileFacts, frozen=True):
    """A pack, of which no digest is known but of its ranges.

    ranges: those that are needed.
    """

    ranges: tuple[FileFacts, ...] = ()


def _stored(storage: Storage, files: Iterable[FileFacts]) -> Iterator[FileFacts]:
    """The files that these lie in."""
    packs: dict[str, list[FileFacts]] = {}
    for file in files:
        if range_of(file.path) is None:
            yield file
        else:
            packs.setdefault(whole_file(file.path), []).append(file)
    for path, ranges in packs.items():
        yield PackFile(path, storage.size(path), None, None, tuple(ranges))


def checked(storage: Storage, file: FileFacts) -> bytes:
    """The bytes of a file; Damaged if they are not those that are named."""
    data = storage.read(file.path)
    if isinstance(file, PackFile):
        for one in file.ranges:
            start = named.offset if (named := range_of(one.path)) is not None else 0
            _compare(storage, one, memoryview(data)[start : start + (one.bytes or 0)])
    else:
        _compare(storage, file, data)
    return data


def _compare(storage: Storage, file: FileFacts, data: bytes | memoryview) -> None:
    if len(data) != file.bytes:
        raise Damaged(f"has {len(data)} bytes, {file.bytes} were written", path=f"{storage.root}/{file.path}")
    if (sha256 := hashlib.sha256(data).hexdigest()) != file.sha256:
        message = f"has SHA-256 {sha256[:12]}…, {(file.sha256 or '')[:12]}… was written"
        raise Damaged(message, path=f"{storage.root}/{file.path}")


def copy_store(
    store: NativeStore, epoch: int | None, to: str, progress: Callable[[int], None] = lambda count: None
) -> Copied:
    """Copy one epoch, or all that are complete, into a new store at `to` or one that is a copy already.

    progress: told the bytes of every file that is written.

    Raises OtherJob where something else lies there, or a copy that has gone on by itself; StoreInUse if a job runs on
    it; NotFound where there is nothing to copy.
    """
    if epoch is not None and not store.has_manifest(epoch):
        raise NotFound(f"epoch {epoch} is not complete: there is nothing to copy", path=store.path)
    if epoch is None and store.latest() is None:
        raise NotFound("no complete epoch: there is nothing to copy", path=store.path)
    target = _place(store, to)
    with lock.exclusive(target):
        copy = _Copy(store, target, progress)
        for left in [file.path for file in stored_files(target) if is_unfinished(file.path)]:
            target.delete(left)
        return copy.run(epoch)


def _place(store: NativeStore, to: str) -> WritableStorage:
    """Where the copy goes: a new directory or place in a bucket, or what a copy may lie in."""
    to = local_name(to)
    if "://" in to:
        target: WritableStorage = open_writable(to)
        here, there = (common_name(f"{storage.root}/") for storage in (store.storage, target))
        nested = here.startswith(there) or there.startswith(here)
    elif not os.path.isdir(to) or not os.listdir(to):
        to = check_folder(to, roots(store.storage))
        make_folder(to)
        return LocalStorage(to)
    else:
        to = os.path.realpath(to)
        target = LocalStorage(to)
        sources = [os.path.realpath(root) for root in roots(store.storage) if "://" not in root]
        nested = any(os.path.commonpath([to, source]) in (to, source) for source in sources)
    if nested:
        raise OtherJob(f"and {store.path} lie in one another", path=to, hint="specify another directory")
    strangers = {entry.name for entry in target.list("")} - _NAMES
    if strangers:
        message = f"is not a copy of a store: it contains {min(strangers)!r}"
        raise OtherJob(message, path=to, hint="specify a new directory")
    return target


_NAMES = {layout.STORE, layout.LOCK, layout.EPOCHS, layout.ATTEMPTS, layout.RECOVERIES, layout.TAGS, layout.ASIDE,
          "topologies"}  # fmt: skip


class _Copy:
    def __init__(self, store: NativeStore, target: WritableStorage, progress: Callable[[int], None]) -> None:
        self._store = store
        self._source = store.storage
        self._target = target
        self._progress = progress
        self._files = self._bytes = 0
        self._proved: set[str] = set()
        self._new = target.size(layout.STORE) is None
        nameless = StoreFacts(job=store.job, created=now(), **header(StoreFacts))
        self._copy = NativeStore(target, facts=nameless if self._new else None)
        self._lives = _lives(store)
        self._check_copy()

    def _check_copy(self) -> None:
        """OtherJob unless every attempt there is one of the source's: then nothing but copies has been made there."""
        if self._copy.job != self._store.job:
            message = f"is a store of job {self._copy.job!r}, not of {self._store.job!r}"
            raise OtherJob(message, path=self._target.root, hint="specify a new directory")
        ours = {life.attempt: life.id for life, _ in self._lives}
        there = self._copy.attempts()
        for life in there:
            if ours.get(life.attempt) != life.id:
                raise OtherJob(
                    f"has diverged, because a job resumed from it: {self._store.path} has no attempt {life.attempt} "
                    f"with id {life.id[:12]}…",
                    path=self._target.root, hint="specify a new directory",
                )  # fmt: skip
        if not there and is_native(self._target):
            raise OtherJob("is not a copy: it has no attempts", path=self._target.root, hint="specify a new directory")

    def run(self, only: int | None) -> Copied:
        rows: dict[int, CopiedEpoch] = {}
        for _ in range(3):
            numbers = self._store.epoch_numbers() if only is None else [only]
            # The newest first: a job that runs removes the oldest.
            for number in sorted({n for n in numbers if self._store.has_manifest(n)} - rows.keys(), reverse=True):
                rows[number] = self._epoch(number)
            if any(row.outcome in (Became.COPIED, Became.PRESENT) for row in rows.values()) or only is not None:
                break
        kept = [number for number, row in rows.items() if row.outcome in (Became.COPIED, Became.PRESENT)]
        if not kept:
            raise self._nothing(rows)
        if only is None:
            self._rest()
        tags = self._tags(set(kept))
        if self._new:
            self._put(layout.STORE, seal(self._copy.facts))
        return Copied(
            self._store.path, self._target.root, self._store.job, self._new,
            tuple(rows[number] for number in sorted(rows)), tags, self._files, self._bytes,
        )  # fmt: skip

    def _nothing(self, rows: dict[int, CopiedEpoch]) -> FormatError:
        newest = rows[max(rows)]
        if newest.outcome is Became.DAMAGED:
            return Damaged(f"no epoch could be copied; of {newest.epoch}: {newest.reason}", path=self._store.path)
        return NotFound("every epoch was removed while it was copied: give one a tag, and copy that",
                        path=self._store.path)  # fmt: skip

    def _epoch(self, epoch: int) -> CopiedEpoch:
        files, size = self._files, self._bytes
        missing: list[FileFacts] = []
        try:
            mine = belongings(self._store, epoch)
            self._books(life for life in self._lives if life[0].is_of(epoch))
            self._graphs([mine.graph])
            missing = [file for file in mine.files if not self._is_there(file)]
            for count in in_order((partial(self._file, file) for file in missing), WORKERS):
                self._count(count)
            if self._read(mine.outcome) != mine.data:
                self._put(mine.outcome, mine.data, replace=True)
        except FormatError as error:
            self._let_go(missing)
            gone = isinstance(error, NotFound) and not NativeStore(self._source).has_manifest(epoch)
            reason = "was removed while it was copied" if gone else str(error)
            return CopiedEpoch(epoch, Became.REMOVED if gone else Became.DAMAGED, 0, 0, reason)
        became = Became.PRESENT if files == self._files else Became.COPIED
        return CopiedEpoch(epoch, became, self._files - files, self._bytes - size)

    def _is_there(self, file: FileFacts) -> bool:
        if file.bytes is None or self._target.size(file.path) != file.bytes:
            return False
        if not isinstance(file, PackFile):
            return True
        # It may have come with another epoch, which needs other ranges of it.
        new = [one for one in file.ranges if one.path not in self._proved]
        try:
            if new:
                checked(self._target, msgspec.structs.replace(file, ranges=tuple(new)))
        except Damaged:
            return False
        self._proved.update(one.path for one in new)
        return True

    def _file(self, file: FileFacts) -> int:
        data = checked(self._source, file)
        self._target.put(file.path, data, replace=True)
        if isinstance(file, PackFile):
            self._proved.update(one.path for one in file.ranges)
        return len(data)

    def _let_go(self, files: Iterable[FileFacts]) -> None:
        """Remove what has been copied of an epoch that is not in the copy, but for what its other epochs need."""
        copy = NativeStore(self._target, facts=self._copy.facts)
        needed: set[str] = set()
        with contextlib.suppress(FormatError):  # then it is not known, and all of it stays
            for epoch in copy.epoch_numbers():
                needed |= {file.path for file in belongings(copy, epoch).files}
            for file in files:
                if file.path not in needed:
                    self._target.delete(file.path)

    def _rest(self) -> None:
        """What is of no single epoch: lives that took none, what restarted, numbers that are taken."""
        for entry in self._source.list(layout.RECOVERIES):
            path = f"{layout.RECOVERIES}/{entry.name}"
            self._store.recovery(path)
            self._once(path)
        for number in self._store.fences():
            if not self._copy.has_outcome(number):
                self._store.fence(number)
                self._once(layout.outcome(number))
        self._books(self._lives)

    def _books(self, lives: Iterable[tuple[AttemptFacts, str]]) -> None:
        chosen = list(lives)
        self._graphs(layout.topology(life.topology_sha256) for life, _ in chosen)
        for _, path in chosen:
            self._once(path)

    def _graphs(self, paths: Iterable[str]) -> None:
        for path in dict.fromkeys(paths):
            sha256 = path.removeprefix("topologies/").removesuffix(".json")
            if self._target.size(path) is None and self._source.size(path) is not None:
                self._store.topology_by_digest(sha256)
                self._once(path)

    def _tags(self, epochs: set[int]) -> dict[str, int]:
        """A name is of one epoch: where the source has moved it, the copy follows."""
        tags = {}
        for path in self._store.tag_paths():
            tag = self._store.tag(path)
            if tag.epoch in epochs:
                tags[tag.name] = tag.epoch
                self._once(path)
        for path in self._copy.tag_paths():
            named = layout.tag_of(path)
            if named is not None and tags.get(named.name, named.epoch) != named.epoch:
                self._target.delete(path)
        return tags

    def _once(self, path: str) -> None:
        if self._target.size(path) is None:
            self._put(path, self._source.read(path))

    def _read(self, path: str) -> bytes | None:
        return None if self._target.size(path) is None else self._target.read(path)

    def _put(self, path: str, data: bytes, *, replace: bool = False) -> None:
        self._target.put(path, data, replace=replace)
        self._count(len(data))

    def _count(self, size: int) -> None:
        self._files += 1
        self._bytes += size
        self._progress(size)


def _lives(store: NativeStore) -> list[tuple[AttemptFacts, str]]:
    """The attempts, each with its path; Damaged for a record that cannot be read."""
    paths = [f"{layout.ATTEMPTS}/{entry.name}" for entry in store.storage.list(layout.ATTEMPTS)]
    return [(store.attempt(path), path) for path in paths]


def files_to_copy(store: NativeStore, epoch: int) -> Iterator[str]:
    """All files that a store of this one epoch has, its outcome last; its own file is another one's."""
    mine = belongings(store, epoch)
    lives = [(life, path) for life, path in _lives(store) if life.is_of(epoch)]
    graphs = {mine.graph, *(layout.topology(life.topology_sha256) for life, _ in lives)}
    # Earlier lives may have run another job graph, which is no part of this epoch: it may be gone.
    yield from sorted(graph for graph in graphs if graph == mine.graph or store.storage.size(graph) is not None)
    yield from (path for _, path in lives)
    yield from dict.fromkeys(whole_file(file.path) for file in mine.files)
    yield mine.outcome
