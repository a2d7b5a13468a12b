"""What may go from a store, of whichever system, and what that was asked with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from abscli.planner.retention import Retention
from abscli.stores.recovery import JobFile
from formats.view import Status


@dataclass(frozen=True, slots=True)
class RemovalRequest:
    """What a removal was asked with. None: what the system does unless it is asked otherwise.

    keep: which complete epochs stay.
    older_than: seconds that an epoch must be old to go.
    min_age: seconds that a file which nothing refers to must be old.
    stopped: jobs of another engine of which the user says that they do not run.
    search: further directories whose checkpoints may refer to files here.
    remove: whether to do it.
    show: called with what is being done.
    job: the job file that names the sinks whose leftovers are removed, too; None leaves these alone.
    """

    keep: Retention | None
    older_than: float | None
    min_age: float | None
    stopped: tuple[str, ...]
    search: tuple[str, ...]
    remove: bool
    show: Callable[[str], None]
    job: JobFile | None = None


class EpochRemoval(msgspec.Struct, frozen=True):
    """An epoch that may go.

    triggered: when it began, RFC 3339; None if that is not known.
    reason: why it goes, in words.
    bytes: of the files that go with it.
    files: how many go with it.
    files_kept: how many of its files stay for epochs that are kept.
    """

    epoch: int
    status: Status
    triggered: str | None
    reason: str
    bytes: int
    files: int
    files_kept: int


class OrphanFile(msgspec.Struct, frozen=True):
    """A file that nothing refers to, or that nothing will refer to when the epochs have gone.

    age: seconds since it was written.
    reason: why nothing refers to it, in words.
    removable: False while it is younger than the age guard, or its job may be alive.
    job: whose it is, where the store has several.
    """

    path: str
    bytes: int
    age: float
    reason: str
    removable: bool
    job: str | None = None


class JobSeen(msgspec.Struct, frozen=True):
    """A job of another engine, as far as its files tell.

    inactive: seconds since anything was written.
    min_inactive: seconds that it has to be silent for its orphans to go.
    alive: why it may be alive, in words; None if it counts as dead.
    orphans: files that nothing refers to.
    bytes: of these.
    removable: how many of them go.
    """

    name: str
    inactive: float
    min_inactive: float
    alive: str | None
    orphans: int
    bytes: int
    removable: int


class Removal(msgspec.Struct, frozen=True):
    """What may go from a store, and what stays though it might be expected to go.

    kept: epochs that stay.
    blocked: by epoch, why it stays that would have gone.
    needed: paths of files that stay though their epoch goes.
    jobs: where the store has several.
    unknown: why nothing goes, where it is not known what is needed.
    reasons: by epoch that stays for a rule or a tag, for which, in words.
    tags: paths of those that go with their epochs.
    sinks_unknown: why it is not known which uploads and prepared transactions of sinks nobody will finish; those stay.
    """

    epochs: tuple[EpochRemoval, ...]
    orphans: tuple[OrphanFile, ...]
    kept: tuple[int, ...]
    blocked: dict[int, str]
    needed: frozenset[str] = frozenset()
    jobs: tuple[JobSeen, ...] = ()
    unknown: str | None = None
    reasons: dict[int, tuple[str, ...]] = {}
    tags: tuple[str, ...] = ()
    sinks_unknown: str | None = None

    @property
    def bytes(self) -> int:
        """How many are free once all of it has gone."""
        return sum(epoch.bytes for epoch in self.epochs) + sum(file.bytes for file in self.orphans if file.removable)


class Collected(msgspec.Struct, frozen=True):
    """What a system answers to `System.collect`, with the defaults that it took in place of what was not asked.

    job: the job's name, where there is one job and it is known.
    removal: what goes; what has gone, if it was asked to remove.
    keep: which complete epochs stay; None where the other system removes its epochs itself.
    min_age: seconds that a file which nothing refers to must be old.
    """

    job: str | None
    removal: Removal
    keep: Retention | None
    min_age: float
