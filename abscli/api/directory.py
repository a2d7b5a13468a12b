"""A directory of many stores: what is in each, from which epoch to go on."""

from __future__ import annotations

import os
import shlex
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from abscli.api.shared import WIDTH, Texts, count, retention, texts, unshown
from abscli.api.upkeep import Garbage
from abscli.stores.removal import RemovalRequest
from formats.errors import NotFound, OtherJob

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from abscli.planner.retention import Retention
    from abscli.stores.base import System
    from abscli.stores.directory import Job, Restorable
    from formats.storage import Storage


def open_directory(path: str | os.PathLike[str]) -> Directory:
    """The stores right below a directory or URI, as Flink has them in its directory of checkpoints, one a job.

    Raises NotFound if there are none, or if it is a store itself.

    >>> [(job.name, job.epochs, job.newest.epoch) for job in open_directory(".").jobs]
    [('snapshots', 5, 4)]
    """
    from abscli.stores.directory import stores_in

    directory = Directory(os.fspath(path), stores_in(os.fspath(path)))
    if not directory.stores:
        raise NotFound("no stores right below it", path=directory.path)
    return directory


class Start(msgspec.Struct, frozen=True):
    """An epoch from which a job can be started where it lies.

    store: as it was named; of a directory of several jobs that directory.
    epoch: its number.
    path: what the system's own tools are given for it.
    written: when it was, RFC 3339; None if that is not known.
    bytes: of all state that it refers to; None if that is not known.
    verified: whether every file was read; otherwise presence and sizes were compared.
    """

    store: str
    epoch: int
    path: str
    written: str | None
    bytes: int | None
    verified: bool = False

    @classmethod
    def of(cls, store: str, found: Restorable, *, verified: bool) -> Start:
        """Return what was found in a store."""
        return cls(store, found.epoch, found.path, found.written, found.bytes, verified)

    def remark(self) -> str:
        """What `abs inspect --latest-restorable` says beside the path."""
        from abscli.stores.text_directory import remark

        return remark(self)

    def to_json(self) -> dict[str, Any]:
        """`abs.restorable`, for programs."""
        from abscli.stores.text_directory import latest_json

        return latest_json(self.store, self, verified=self.verified)


class Directory:
    """A directory of stores; it is read when something is asked.

    path: as it was given.
    stores: name, system and storage of each.
    """

    def __init__(self, path: str, stores: Sequence[tuple[str, System, Storage]]) -> None:
        self.path = path
        self.stores = tuple(stores)

    @cached_property
    def jobs(self) -> list[Job]:
        """What is in each store, by presence and size: those that can be started again first, the newest before."""
        from abscli.stores.directory import jobs

        return jobs(self.stores)

    def latest_restorable(self, *, verify: bool = False) -> Start:
        """Find the newest epoch from which the job can be started without a copy.

        Of several jobs one is chosen only if all have the same operators and ran one after the other.
        verify: read every file of that job; otherwise presence and sizes are compared.

        Raises NoRecovery if there is none, OtherJob if it is not known which job is meant.

        >>> open_directory(".").latest_restorable().epoch
        4
        """
        from abscli.stores.directory import NAMED, newest_of, newest_verified
        from abscli.stores.reasons import NoPlan

        answer = newest_of(self.path, self.jobs)
        if isinstance(answer, NoPlan):
            raise answer.error()
        if isinstance(answer, str):
            able = [job for job in self.jobs if job.newest is not None]
            names = ", ".join(job.name for job in able[:NAMED]) + (" ..." if len(able) > NAMED else "")
            raise OtherJob(
                f"{len(able)} jobs have a restorable epoch, and {answer}: {names}", path=self.path,
                hint=f"choose one job, for example: `abs inspect {shlex.quote(able[0].path)} --latest-restorable -q`",
            )  # fmt: skip
        assert answer.newest is not None
        newest = newest_verified(answer) if verify else answer.newest
        if isinstance(newest, NoPlan):
            raise newest.error()
        return Start.of(self.path, newest, verified=verify)

    def garbage(
        self, keep: int | Retention | None = None, *, older_than: float | None = None, min_age: float | None = None,
        stopped: Texts = (), search: Texts = (), job: str | os.PathLike[str] | None = None,
    ) -> Garbage:  # fmt: skip
        """What may go of the jobs of Flink's here; nothing is changed. See `Store.garbage`."""
        _refuse_job(job, self.path)
        stays = retention(keep)
        return self._collected(
            RemovalRequest(stays, older_than, min_age, texts(stopped), texts(search), remove=False, show=unshown)
        )

    def gc(
        self, keep: int | Retention | None = None, *, older_than: float | None = None, min_age: float | None = None,
        stopped: Texts = (), search: Texts = (), job: str | os.PathLike[str] | None = None,
        show: Callable[[str], None] | None = None,
    ) -> Garbage:  # fmt: skip
        """Removes files that no checkpoint here needs, of jobs that cannot be alive. See `Store.gc`."""
        _refuse_job(job, self.path)
        stays = retention(keep)
        return self._collected(
            RemovalRequest(stays, older_than, min_age, texts(stopped), texts(search), remove=True, show=show or unshown)
        )

    def _collected(self, request: RemovalRequest) -> Garbage:
        from abscli.stores.recovery import BadOption

        systems = {system.name: system for _, system, _ in self.stores}
        if len(systems) > 1:
            raise BadOption("PATH", f"{self.path} has stores of {' and '.join(systems)}: name one of them")
        (system,) = systems.values()
        collected = system.collect([storage for _, _, storage in self.stores], self.path, request)
        self.__dict__.pop("jobs", None)
        return Garbage(self.path, system, collected, request)

    def text(self, *, width: int = WIDTH) -> str:
        """The page of `abs inspect`."""
        from abscli.stores.text_directory import text

        return text(self.path, self.jobs, width=width)

    def to_json(self) -> dict[str, Any]:
        """`abs.jobs`, for programs."""
        from abscli.stores.text_directory import to_json

        return to_json(self.path, self.jobs)

    def items(self) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
        """The same in pieces: what stands once, then a job each."""
        from abscli.stores.text_directory import items

        return items(self.to_json())

    def __str__(self) -> str:
        return self.text().rstrip()

    def __repr__(self) -> str:
        return f"Directory({self.path!r}, {count(len(self.stores), 'store')})"


def _refuse_job(job: object, path: str) -> None:
    """Raise BadOption for a job file, which names the sinks of one store."""
    from abscli.stores.recovery import BadOption

    if job is not None:
        raise BadOption("--job", f"names the sinks of one store, and {path} is a directory of several")
