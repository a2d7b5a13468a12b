"""The facts of a native store as they were written, file by file: each is checked against its own digest when it is
read, and its names and numbers are (see `formats.native.names`): every path in it stays inside the store."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from formats.bounds import check_json
from formats.decoding import decode
from formats.errors import Damaged, FormatError, NotFound, UnsafePath
from formats.ids import TaskId
from formats.job.expand import task_ids
from formats.job.model import Topology
from formats.native import layout, lock
from formats.native.facts import (
    AbortFacts,
    AttemptFacts,
    F,
    FenceFacts,
    ManifestFacts,
    OutcomeKind,
    PartFacts,
    RecoveryFacts,
    StoreFacts,
    TagFacts,
    TasksFacts,
    TriggerFacts,
    decode_facts,
    digest,
    is_id,
    outcome_kind,
    unseal,
)
from formats.native.names import check_facts, check_graph
from formats.native.numbers import highest
from formats.native.packs import Pack, read_pack
from formats.storage import ServedStorage, Storage, check_path, concurrently, is_deciding

EPOCHS_AT_ONCE = 8
"""Epochs that are read at a time from a server."""
MAX_FACTS = 256 << 20
"""Bytes beyond which a fact file is not read: none that abs writes comes near, so it is garbage."""


class EpochRead(NamedTuple):
    """The facts of a complete epoch. parts: None if they cannot be read."""

    manifest: ManifestFacts
    parts: tuple[PartFacts, ...] | None


class FactFiles:
    """The fact files below `storage`. Raises NotFound if there is no store.

    facts: of the store, where the caller has had to do without its own (validation of a damaged store). held_by_us:
    set where the caller holds the lock itself, so that no job runs.
    """

    held_by_us = False

    def __init__(self, storage: Storage, *, facts: StoreFacts | None = None) -> None:
        self.storage = storage
        self._kinds: dict[int, OutcomeKind] = {}
        self._homes: dict[int, str] = {}
        try:
            self.facts = facts or self._unseal(layout.STORE, StoreFacts)
        except NotFound:
            raise NotFound("not a store: abs-store.json is missing", path=storage.root) from None

    def _unseal(self, path: str, kind: type[F]) -> F:
        where = f"{self.storage.root}/{path}"
        facts = unseal(self._read_facts(path), kind, where)
        check_facts(facts, where)
        return facts

    def _read_facts(self, path: str) -> bytes:
        if isinstance(self.storage, ServedStorage):
            # One question in place of two.
            data = self.storage.read(path, 0, MAX_FACTS + 1)
            size = len(data)
        else:
            size = self.storage.size(path) or 0
            data = self.storage.read(path) if size <= MAX_FACTS else b""
        _check(size, self.storage, path)
        return data

    def _numbers(self) -> list[int]:
        """Every epoch number that has a directory, ascending."""
        listed = (layout.epoch_of(f"{layout.EPOCHS}/{entry.name}/") for entry in self.storage.list(layout.EPOCHS))
        numbers = [number for number in listed if number is not None]
        if not isinstance(self.storage, ServedStorage):
            return numbers
        # A list may be an older one. Outcomes are dense, so those above are found by their names.
        newest = max(numbers, default=0)
        return [*numbers, *range(newest + 1, highest([newest], self.has_outcome) + 1)]

    def epoch_numbers(self) -> list[int]:
        """Every epoch that is complete or has begun, ascending; numbers that only fence an older attempt are none."""
        numbers = self._numbers()
        concurrently(self.storage, self.outcome_kind, [number for number in numbers if number not in self._kinds])
        return [number for number in numbers if self.has_manifest(number) or self.has_trigger(number)]

    def read_epochs(self, epochs: Sequence[int]) -> Iterator[tuple[int, EpochRead | None]]:
        """Yield complete epochs, each with what could be read of it; some are read at a time."""
        for first in range(0, len(epochs), EPOCHS_AT_ONCE):
            window = epochs[first : first + EPOCHS_AT_ONCE]
            yield from zip(window, concurrently(self.storage, self._read_epoch, window), strict=True)

    def _read_epoch(self, epoch: int) -> EpochRead | None:
        try:
            manifest = self.manifest(epoch)
        except FormatError:
            return None
        try:
            return EpochRead(manifest, self.parts(epoch))
        except FormatError:
            return EpochRead(manifest, None)

    def forget(self, epoch: int) -> None:
        """Read the outcome of a number again: it was removed."""
        self._kinds.pop(epoch, None)

    def highest_number(self) -> int:
        """The highest epoch number ever seen, 0 if none: new ones are above it."""
        return max([0, *self._numbers(), *(attempt.first_epoch - 1 for attempt in self.attempts())])

    def undecided_from(self) -> int:
        """The lowest number above all that have an outcome: an owner of the store decides this one next."""
        return next((n + 1 for n in reversed(self._numbers()) if self.outcome_kind(n) is not None), 1)

    def is_fenced(self, epoch: int) -> bool:
        """Whether the outcome of a number is a fence."""
        return self.outcome_kind(epoch) is FenceFacts

    def fences(self) -> list[int]:
        """Numbers that attempts took from those before them, ascending."""
        return [number for number in self._numbers() if self.is_fenced(number)]

    def _has(self, path: str) -> bool:
        try:
            return self.storage.size(path) is not None
        except UnsafePath:
            return True  # something is there; reading it says what is wrong

    def has_outcome(self, epoch: int) -> bool:
        """Whether there is a file that says what became of a number."""
        return self._has(layout.outcome(epoch))

    def outcome_kind(self, epoch: int) -> OutcomeKind | None:
        """What became of a number, by the first bytes of its outcome; None while nothing has."""
        path = layout.outcome(epoch)
        # Nobody else removes outcomes of a store that is held; of another one they may be gone by now.
        if epoch in self._kinds and (is_deciding(self.storage) or self._has(path)):
            return self._kinds[epoch]
        try:  # one question to a server, where first to ask whether it is there would be two
            self._kinds[epoch] = outcome_kind(self.storage.read(path, 0, 64))
        except FormatError as error:
            if not isinstance(error, NotFound) and self._has(path):
                return ManifestFacts
            return None
        return self._kinds[epoch]

    def has_manifest(self, epoch: int) -> bool:
        """Whether the epoch is complete (its manifest may still be damaged)."""
        return self.outcome_kind(epoch) is ManifestFacts

    def has_trigger(self, epoch: int) -> bool:
        """Whether the epoch has begun and is not complete."""
        return self.home(epoch) is not None

    def home(self, epoch: int) -> str | None:
        """The id of the attempt whose work an epoch is that is not complete; None if none has begun it.

        Where two attempts have begun one number, the older one did so after it had lost the store: the newer counts.
        """
        if epoch in self._homes and self._has(layout.trigger(epoch, self._homes[epoch])):
            return self._homes[epoch]
        names = (entry.name for entry in self.storage.list(layout.epoch_dir(epoch)) if entry.size is None)
        homes = [name for name in names if is_id(name) and self._has(layout.trigger(epoch, name))]
        if not homes:
            return None
        self._homes[epoch] = homes[0] if len(homes) == 1 else max(homes, key=lambda id: self._begun_by(epoch, id))
        return self._homes[epoch]

    def _begun_by(self, epoch: int, id: str) -> int:
        """The number of the attempt that began an epoch; 0 if that cannot be read."""
        try:
            return self._unseal(layout.trigger(epoch, id), TriggerFacts).attempt
        except FormatError:
            return 0

    @functools.lru_cache(maxsize=2 * EPOCHS_AT_ONCE)  # noqa: B019 - as of `parts`, which is read by it
    def manifest(self, epoch: int) -> ManifestFacts:
        """NotFound without one; Damaged if it is not what was written."""
        path = layout.outcome(epoch)
        facts = self._unseal(path, ManifestFacts)
        if facts.epoch != epoch:
            raise Damaged(f"is the manifest of epoch {facts.epoch}, not of {epoch}", path=f"{self.storage.root}/{path}")
        return facts

    def fence(self, epoch: int) -> FenceFacts:
        """The fence at a number; Damaged if it is not what was written."""
        path = layout.outcome(epoch)
        facts = self._unseal(path, FenceFacts)
        if facts.epoch != epoch:
            raise Damaged(f"is the fence at {facts.epoch}, not at {epoch}", path=f"{self.storage.root}/{path}")
        return facts

    def trigger(self, epoch: int) -> TriggerFacts | None:
        """Of an epoch without a manifest; Damaged if it is not what was written."""
        home = self.home(epoch)
        if home is None:
            return None
        path = layout.trigger(epoch, home)
        facts = self._unseal(path, TriggerFacts)
        if facts.epoch != epoch:
            message = f"is the trigger of epoch {facts.epoch}, not of {epoch}"
            raise Damaged(message, path=f"{self.storage.root}/{path}")
        return facts

    def aborted(self, epoch: int) -> AbortFacts | None:
        """Why an epoch was given up."""
        if self.outcome_kind(epoch) is not AbortFacts:
            return None
        return self._unseal(layout.outcome(epoch), AbortFacts)

    @functools.lru_cache(maxsize=EPOCHS_AT_ONCE)  # noqa: B019 - a store object lives as long as a command
    def parts(self, epoch: int) -> tuple[PartFacts, ...]:
        """The parts of an epoch: all of a complete one, those that acked of another. Every path is checked."""
        if self.has_manifest(epoch):
            file = self.manifest(epoch).tasks_file
            # A server is asked once: what is read below is compared with its digest.
            is_served = isinstance(self.storage, ServedStorage)
            if not is_served and (size := self.storage.size(file.path)) not in (None, file.bytes):
                raise Damaged(
                    f"has {size} bytes, the manifest says {file.bytes}", path=f"{self.storage.root}/{file.path}"
                )
            data = self._read_facts(file.path)
            if digest(data) != file.sha256:
                raise Damaged(
                    f"has SHA-256 {digest(data)[:12]}…, the manifest says {(file.sha256 or '')[:12]}…",
                    path=f"{self.storage.root}/{file.path}",
                )
            tasks = decode_facts(data, TasksFacts, f"{self.storage.root}/{file.path}")
            check_facts(tasks, f"{self.storage.root}/{file.path}")
            return tasks.parts
        return tuple(part for task in self.tasks(epoch) if (part := self.part(epoch, task)) is not None)

    def part(self, epoch: int, task: TaskId, attempt: str | None = None) -> PartFacts | None:
        """One task's ack of an epoch that is not complete, by the attempt of that id or the one whose work the epoch
        is; None if it has not acked; Damaged if it is another's."""
        home = self.home(epoch) if attempt is None else attempt
        if home is None:
            return None
        if (packed := self._packed(epoch, home).get(task)) is not None:
            return packed[1]
        path = layout.ack(epoch, str(task), home)
        try:
            facts = self._unseal(path, PartFacts)
        except NotFound:
            return None
        if (facts.task, facts.epoch) != (task, epoch):
            message = f"is the ack of {facts.task} for epoch {facts.epoch}, not of {task} for {epoch}"
            raise Damaged(message, path=f"{self.storage.root}/{path}")
        return facts

    def ack_path(self, epoch: int, task: TaskId, attempt: str) -> str:
        """The file that says that a task has acked, or would: its own, or a pack."""
        packed = self._packed(epoch, attempt).get(task)
        return layout.ack(epoch, str(task), attempt) if packed is None else packed[0]

    def has_acked(self, epoch: int, task: TaskId, attempt: str) -> bool:
        """Whether there is an ack of a task, be it readable or not."""
        return task in self._packed(epoch, attempt) or self._has(layout.ack(epoch, str(task), attempt))

    def pack_paths(self, epoch: int, attempt: str) -> list[str]:
        """The packs that an attempt has written for an epoch."""
        folder = layout.pack_dir(epoch, attempt)
        paths = (f"{folder}/{entry.name}" for entry in self.storage.list(folder) if entry.size is not None)
        return [path for path in paths if layout.pack_of(path) is not None]

    @functools.lru_cache(maxsize=64)  # noqa: B019
    def pack(self, path: str) -> Pack:
        """What a pack says of itself; NotFound, Damaged if it is not what was written."""
        return read_pack(self.storage, path)

    @functools.lru_cache(maxsize=4)  # noqa: B019
    def _packed(self, epoch: int, attempt: str) -> dict[TaskId, tuple[str, PartFacts]]:
        """The acks in packs, each with the path of its pack; of one that cannot be read, `evidence` says so."""
        acks = {}
        for path in self.pack_paths(epoch, attempt):
            with contextlib.suppress(Damaged, NotFound):
                acks.update({part.task: (path, part) for part in self.pack(path).parts})
        return acks

    def attempts(self) -> list[AttemptFacts]:
        """All lives of the job, ascending."""
        return [self.attempt(path) for path in self.attempt_paths()]

    def attempt_paths(self) -> list[str]:
        """Return the files of all lives of the job, ascending, also of those that are too new for a list."""
        listed = [f"{layout.ATTEMPTS}/{entry.name}" for entry in self.storage.list(layout.ATTEMPTS)]
        if not isinstance(self.storage, ServedStorage) or is_deciding(self.storage):
            return listed
        newest = max(filter(None, map(layout.attempt_of, listed)), default=0)
        above = highest([newest], lambda number: self._has(layout.attempt(number)))
        return [*listed, *map(layout.attempt, range(newest + 1, above + 1))]

    def attempt(self, path: str) -> AttemptFacts:
        """One life of the job; Damaged if the file is not what was written, or is another's."""
        facts = self._unseal(path, AttemptFacts)
        if path != layout.attempt(facts.attempt):
            raise Damaged(f"is the file of attempt {facts.attempt}", path=f"{self.storage.root}/{path}")
        return facts

    def recoveries(self) -> list[RecoveryFacts]:
        """All live recoveries, by attempt, then by number."""
        return [self.recovery(f"{layout.RECOVERIES}/{entry.name}") for entry in self.storage.list(layout.RECOVERIES)]

    def recovery(self, path: str) -> RecoveryFacts:
        """One live recovery; Damaged if the file is not what was written, or is another's."""
        facts = self._unseal(path, RecoveryFacts)
        if path != layout.recovery(facts.attempt, facts.number):
            message = f"is the file of recovery {facts.number} of attempt {facts.attempt}"
            raise Damaged(message, path=f"{self.storage.root}/{path}")
        return facts

    def tag_paths(self) -> list[str]:
        """Where tags lie, by epoch, then by name."""
        paths = (f"{layout.TAGS}/{entry.name}" for entry in self.storage.list(layout.TAGS) if entry.size is not None)
        return [path for path in paths if layout.tag_of(path) is not None]

    def tagged(self) -> frozenset[int]:
        """Epochs that have a tag. By the names of files alone: one that is damaged holds its epoch, too."""
        return frozenset(tag.epoch for path in self.tag_paths() if (tag := layout.tag_of(path)) is not None)

    def tag(self, path: str) -> TagFacts:
        """One tag; Damaged if the file is not what was written, or is another's."""
        facts = self._unseal(path, TagFacts)
        if path != layout.tag(facts.epoch, facts.name):
            raise Damaged(f"is the tag {facts.name!r} of epoch {facts.epoch}", path=f"{self.storage.root}/{path}")
        return facts

    def topology_sha256(self, epoch: int) -> str:
        """Digest of the job graph that the epoch was taken of."""
        if self.has_manifest(epoch):
            return self.manifest(epoch).topology_sha256
        trigger = self.trigger(epoch)
        if trigger is None:
            raise self.no_epoch(epoch)
        return trigger.topology_sha256

    def topology(self, epoch: int) -> Topology:
        """Raises NotFound if it is gone, Damaged if it does not have the digest of its name."""
        return self.topology_by_digest(self.topology_sha256(epoch))

    @functools.lru_cache(maxsize=4)  # noqa: B019
    def topology_by_digest(self, sha256: str) -> Topology:
        path = layout.topology(check_path(sha256))
        data = self._read_facts(path)
        where = f"{self.storage.root}/{path}"
        if digest(data) != sha256:
            raise Damaged(f"has SHA-256 {digest(data)[:12]}…, its name says {sha256[:12]}…", path=where)
        check_json(data, where)
        try:
            topology = decode(data, Topology)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise Damaged(f"is not a job graph: {error}", path=where) from None
        check_graph(topology, where)
        return topology

    def no_epoch(self, epoch: int) -> NotFound:
        """The error for an epoch that is not there; says which are."""
        have = self.epoch_numbers()
        extent = f"it has {have[0]} to {have[-1]}" if have else "it has none"
        return NotFound(f"no epoch {epoch}: {extent}", path=self.storage.root)

    def latest(self) -> int | None:
        """The newest epoch with a manifest, not verified."""
        return next((n for n in reversed(self.epoch_numbers()) if self.has_manifest(n)), None)

    def running_attempt(self) -> int | None:
        """The attempt that runs now; None if the store is not in use, or that cannot be known."""
        if self.held_by_us or not lock.held(self.storage):
            return None
        return max(filter(None, map(layout.attempt_of, self.attempt_paths())), default=None)

    def tasks(self, epoch: int) -> list[TaskId]:
        """Every task of an epoch's job graph, by operator in declared order, then subtask."""
        return task_ids(self.topology(epoch))


def check_size(storage: Storage, path: str) -> None:
    """Raise Damaged if a fact file is too large to be read. A missing file is accepted."""
    _check(storage.size(path) or 0, storage, path)


def _check(size: int, storage: Storage, path: str) -> None:
    if size > MAX_FACTS:
        raise Damaged(f"has {size} bytes, a fact file has at most {MAX_FACTS}", path=f"{storage.root}/{path}")
