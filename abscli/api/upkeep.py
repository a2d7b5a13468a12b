"""Upkeep of the stores that abs writes: what may go, and books that are lost."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Any

import msgspec

from abscli.api.shared import WIDTH, count, unshown
from abscli.planner.retention import MIN_AGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from abscli.stores.base import System
    from abscli.stores.native.rebuilding.rebuild import Rebuild
    from abscli.stores.removal import Collected, EpochRemoval, JobSeen, OrphanFile, Removal, RemovalRequest


class Garbage(msgspec.Struct, frozen=True):
    """What may go from a store, or from all stores of a directory, and why; what has gone, once it is `removed`.

    path: of the store, or of the directory.
    system: whose it is.
    collected: what its system says: epochs, files, what stays.
    asked: with what.
    """

    path: str
    system: System
    collected: Collected
    asked: RemovalRequest

    @property
    def job(self) -> str | None:
        """Its name, where it is known."""
        return self.collected.job

    @property
    def removal(self) -> Removal:
        """Epochs, files, and what stays."""
        return self.collected.removal

    @property
    def removed(self) -> bool:
        """Whether it was done."""
        return self.asked.remove

    @property
    def bytes(self) -> int:
        """Of all that goes."""
        return self.removal.bytes

    @property
    def epochs(self) -> tuple[EpochRemoval, ...]:
        """Those that go, with the reason."""
        return self.removal.epochs

    @property
    def orphans(self) -> tuple[OrphanFile, ...]:
        """Files that nothing refers to; some stay, since they are too young, or their job may be alive."""
        return self.removal.orphans

    @property
    def kept(self) -> tuple[int, ...]:
        """Epochs that stay."""
        return self.removal.kept

    @property
    def jobs(self) -> tuple[JobSeen, ...]:
        """Of Flink: each job, and whether it may be alive."""
        return self.removal.jobs

    def text(self, *, width: int = WIDTH, ascii: bool = False) -> str:
        """The page of `abs gc`."""
        from abscli.stores.text_removal import carry_out_command, keep_options

        asked = self.asked
        options = keep_options(asked.keep)
        options += [f"--older-than {asked.older_than:g}s"] if asked.older_than is not None else []
        options += [f"--min-age {asked.min_age:g}s"] if asked.min_age not in (None, MIN_AGE) else []
        options += [f"--stopped {shlex.quote(job)}" for job in asked.stopped]
        options += [f"--search {shlex.quote(folder)}" for folder in asked.search]
        options += [f"--job {shlex.quote(asked.job.path)}"] if asked.job is not None else []
        command = carry_out_command(self.path, options)
        return self.system.removal_text(
            self.collected, store=self.path, removed=self.removed, command=command, width=width, ascii=ascii
        )

    def to_json(self) -> dict[str, Any]:
        """`abs.gc`, for programs."""
        from abscli.stores.text_removal import to_json

        return to_json(
            self.removal, store=self.path, job=self.job, keep=self.collected.keep, removed=self.removed
        )

    def items(self) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
        """The same in pieces: what stands once, then a job, an epoch or a file each."""
        from abscli.stores.text_removal import items

        return items(self.to_json())

    def __str__(self) -> str:
        return self.text().rstrip()

    def __repr__(self) -> str:
        files = sum(epoch.files for epoch in self.epochs) + sum(orphan.removable for orphan in self.orphans)
        verb = "removed" if self.removed else "may go"
        goes = f"{count(len(self.epochs), 'epoch')} and {count(files, 'file')} {verb}"
        return f"Garbage({self.path!r}, {goes}, {count(self.bytes, 'byte')})"


class Rebuilt(msgspec.Struct, frozen=True):
    """What is made anew of a store's books, and from what; what was, once it is `done`.

    path: of the store.
    job_file: the topology file that was named.
    steps: what moves aside, what is written, and what cannot be.
    done: whether it was done.
    """

    path: str
    job_file: str | None
    steps: Rebuild
    done: bool

    @property
    def whole(self) -> bool:
        """Whether nothing that is needed stays lost."""
        return not self.steps.lacking

    def text(self, *, width: int = WIDTH) -> str:
        """The page of `abs rebuild`."""
        from abscli.stores.native.rebuilding import text_rebuild as render

        return render.text(self.steps, store=self.path, job_file=self.job_file, done=self.done, width=width)

    def to_json(self) -> dict[str, Any]:
        """`abs.rebuild`, for programs."""
        from abscli.stores.native.rebuilding import text_rebuild as render

        return render.to_json(self.steps, store=self.path, done=self.done)

    def items(self) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
        """The same in pieces: what stands once, then a file each."""
        from abscli.stores.native.rebuilding import text_rebuild as render

        return render.items(self.to_json())

    def __str__(self) -> str:
        return self.text().rstrip()

    def __repr__(self) -> str:
        steps = self.steps
        new = f"{count(len(steps.new_files), 'file')} {'made' if self.done else 'to make'} anew"
        lost = f", {count(len(steps.lacking), 'file')} lost" if steps.lacking else ""
        return f"Rebuilt({self.path!r}, {'whole' if steps.nothing else new + lost})"


def rebuild(
    store: str | os.PathLike[str],
    job: str | os.PathLike[str] | None = None,
    *,
    dry_run: bool = False,
    show: Callable[[str], None] | None = None,
) -> Rebuilt:
    """Makes the lost or damaged books of a store that abs wrote anew, from what is whole: its own file, the records of
    attempts, job graphs. What is damaged moves to `quarantine/` in it; state, logs and manifests are never made up.

    job: the topology file of its job, for the graph, the name and the directory where they are lost.
    dry_run: change nothing.
    show: called with what it does.

    Raises NotFound, OtherFormat, StoreInUse, BadOption for a store behind a URI, FormatError for a bad topology file.

    >>> rebuild("snapshots")
    Rebuilt('snapshots', whole)
    >>> os.remove("snapshots/abs-store.json")
    >>> rebuild("snapshots", dry_run=True)
    Rebuilt('snapshots', 1 file to make anew)
    >>> rebuild("snapshots").whole, open_store("snapshots").job
    (True, 'reach')
    """
    from abscli.jobs.files import read_job
    from abscli.stores.native.alone import alone, writable
    from abscli.stores.native.rebuilding.rebuild import Offer, carry_out, decide
    from abscli.stores.own import check_own
    from abscli.stores.registry import locate
    from formats.native.books import read_books
    from formats.timestamps import now

    path, file = os.fspath(store), None if job is None else os.fspath(job)
    system, storage = locate(path)
    check_own(system, path, "`abs rebuild`")
    place = writable(storage)
    offer = None if file is None else Offer(read_job(file).topology, os.path.dirname(os.path.abspath(file)))
    show = show or unshown
    with alone(place, path, not dry_run, hint="wait for the job to end, or stop the job with SIGTERM"):
        show("reading the books")
        steps = decide(read_books(place), offer, lambda name: not place.is_taken(name), now())
        if not dry_run:
            carry_out(place, steps)
    return Rebuilt(path, file, steps, not dry_run)
