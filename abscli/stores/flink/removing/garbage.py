"""What may go from directories of Flink's jobs: files that no checkpoint needs, of jobs that cannot be alive.

Flink keeps no lock there, and nothing says that a job has ended. Three things can go wrong, and each has its guard:

1. *A checkpoint that is elsewhere needs the file*: a job that has claimed another's checkpoint refers to its files. So
   names count in every checkpoint of the directory and of those that the user names, whosever the file is; and while
   one `_metadata` cannot be read, nothing goes.
2. *A job in flight has written the file and will name it*: uploads of a checkpoint under way, changes written ahead, a
   segment that is still open. Such a file is young, or its directory is: every checkpoint that begins, ends or fails
   changes it. So a job counts as alive until it has been silent for the guard: `min_age`, and RHYTHM times the longest
   time between two of its checkpoints; and so does a job whose files one that is alive refers to. A job that is down,
   or is brought back by its high availability, begins from a `_metadata`, which names all that it needs.
3. *It comes back while we look or remove*: a job may claim files after it was read itself, and before what it claims
   was. So all is looked at twice, and only what nothing needs both times goes. What a job has changed is looked at
   again before its first file goes, and a file that has changed stays.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from abscli.stores.flink.jobs import written
from abscli.stores.recovery import BadOption
from abscli.stores.removal import Collected, JobSeen, OrphanFile, Removal, RemovalRequest
from abscli.text.columns import seconds
from formats.errors import Damaged, StoreInUse
from formats.flink.files.layout import SiteKind, is_flink, number
from formats.flink.metadata.file import FILE
from formats.flink.references import References, linked, references, stores_below, unreferenced
from formats.flink.store import FlinkStore
from formats.storage import LocalStorage, Storage, file_name, top_folder

MIN_AGE = 86400.0
"""Seconds that a job has to be silent, and a file to be old, unless told otherwise."""
RHYTHM = 3
"""How many of its longest intervals a job has to be silent."""


@dataclass(frozen=True, slots=True)
class Job:
    """One job.

    root: where it lies.
    label: what stands before its files' paths in answers.
    own: what its checkpoints refer to.
    changed: when anything of it was, last.
    interval: the longest time between two checkpoints; None if there are not two.
    every: names of all its files.
    orphans: path -> bytes, and when it was changed, of files that no checkpoint needs.
    """

    root: str
    label: str
    own: References
    changed: float
    interval: float | None
    every: frozenset[str]
    orphans: dict[str, tuple[int, float]]

    @property
    def name(self) -> str:
        """Its id: what its directory is called."""
        return file_name(self.root)


def collect(stores: Sequence[Storage], path: str, request: RemovalRequest) -> Collected:
    """As `abscli.stores.base.System.collect`. Savepoints are left alone: what lies in one is its own."""
    for option, value in (("--keep", request.keep), ("--older-than", request.older_than)):
        if value is not None:
            raise BadOption(option, "checkpoints of Flink all stay: Flink removes them itself, and only orphans go")
    if not all(isinstance(storage, LocalStorage) for storage in stores):
        why = "folders of a bucket have no times, and nothing else tells whether their job is alive"
        raise BadOption("PATH", f"{why}: `abs inspect` lists the orphans there, and none is removed")
    min_age = MIN_AGE if request.min_age is None else request.min_age
    now = time.time()
    request.show("looking for what no checkpoint needs")
    jobs, others, blocked = _look([storage.root for storage in stores], path, request.search)
    names = {job.name for job in jobs}
    for job_id in request.stopped:
        if job_id not in names:
            raise BadOption("--stopped", f"no job {job_id!r} here; there are {', '.join(sorted(names)) or 'none'}")
    removal = decide(jobs, others, blocked, set(request.stopped), min_age, now)
    if request.remove and any(orphan.removable for orphan in removal.orphans):
        first = {orphan.path for orphan in removal.orphans if orphan.removable}
        request.show("looking again, for what was claimed meanwhile")
        jobs, others, blocked = _look([storage.root for storage in stores], path, request.search)
        removal = decide(jobs, others, blocked, set(request.stopped), min_age, now, only=first)
    if request.remove:
        if removal.orphans and not any(orphan.removable for orphan in removal.orphans):
            _refuse(removal, blocked, path)
        for job in jobs:
            mine = [orphan for orphan in removal.orphans if orphan.removable and orphan.job == job.name]
            if mine:
                request.show(f"removing {len(mine)} files of {job.name}")
                _remove(job, mine)
    return Collected(jobs[0].name if len(jobs) == 1 and not jobs[0].label else None, removal, None, min_age)


def _look(roots: Sequence[str], path: str, search: Sequence[str]) -> tuple[list[Job], list[Job], str | None]:
    """The jobs that were named, those beside them and elsewhere that may need their files, and why nothing may go if
    what is needed is not known."""
    opened = {os.path.realpath(root): FlinkStore(root) for root in roots}
    if any(store.kind is SiteKind.CHECKPOINT for store in opened.values()):
        raise BadOption("PATH", "a checkpoint alone has no orphans: name the directory of its job, or of all jobs")
    stores = dict(opened)
    for above in {os.path.dirname(root) for root in opened}:
        stores |= {os.path.realpath(other.path): other for other in stores_below(above)} | opened
    for where in search:
        stores |= {os.path.realpath(other.path): other for other in _searched(where)} | opened
    refers = {root: references(store) for root, store in stores.items()}
    blocked = None
    unread = [(f"{stores[root].path}/{name}", why) for root, one in refers.items() for name, why in one.unread.items()]
    unread += [(place, "it is a link, which is not followed") for root in stores if os.path.isdir(root)
               for place in linked(root)]  # fmt: skip
    if unread:
        more = f", and {len(unread) - 1} more" if len(unread) > 1 else ""
        blocked = f"{unread[0][0]} cannot be read ({unread[0][1]}){more}: its files are unknown"
    needed = [one.names for one in refers.values()]
    jobs: dict[str, Job] = {}
    for root, store in stores.items():
        if store.kind is SiteKind.JOB:
            files = store.folder.walk()
            jobs[root] = Job(
                root=root,
                label="" if root == os.path.realpath(path) else f"{file_name(root)}/",
                own=refers[root],
                changed=max(written(store)),
                interval=_interval(store, refers[root]),
                every=frozenset(map(file_name, files)),
                orphans=dict(_times(root, unreferenced(files, needed))) if root in opened else {},
            )
    others = [job for job in jobs.values() if job.root not in opened]
    return [jobs[root] for root in opened if root in jobs], others, blocked


def _times(root: str, files: dict[str, int]) -> Iterator[tuple[str, tuple[int, float]]]:
    for path, size in sorted(files.items()):
        with contextlib.suppress(OSError):  # it has gone meanwhile
            yield path, (size, os.lstat(os.path.join(root, path)).st_mtime)


def _searched(where: str) -> Iterator[FlinkStore]:
    """The snapshots in a directory that the user names: a store's own, or those of the stores right below it."""
    if is_flink(where):
        yield FlinkStore(where)
        return
    below = list(stores_below(where))
    if not below:
        raise BadOption("--search", f"{where} has no checkpoint of Flink, nor has a directory right below it")
    yield from below


def _interval(store: FlinkStore, own: References) -> float | None:
    times = []
    for epoch in own.complete:
        with contextlib.suppress(OSError):
            times.append(os.stat(store.storage.root + f"/{store.home(epoch)}/{FILE}").st_mtime)
    times.sort()
    return max((after - before for before, after in itertools.pairwise(times)), default=None)


def decide(
    jobs: Sequence[Job],
    others: Sequence[Job],
    blocked: str | None,
    stopped: set[str],
    min_age: float,
    now: float,
    *,
    only: set[str] | None = None,
) -> Removal:
    """What goes.

    others: jobs beside them, which may need their files.
    blocked: why nothing may go.
    stopped: jobs of which the user says that they do not run.
    only: paths that may go; None: all.
    """
    alive = {}
    for job in (*jobs, *others):
        silent, guard = now - job.changed, _guard(job, min_age)
        if job.name not in stopped and silent < guard:
            rhythm = f", {RHYTHM} times its longest interval" if guard > min_age else ""
            when = f"{seconds(silent)} ago" if silent >= 0 else f"{seconds(-silent)} ahead of this machine's clock"
            alive[job.root] = f"it was changed {when}, and counts as dead after {seconds(guard)}{rhythm}"
    orphans: list[OrphanFile] = []
    seen = []
    for job in jobs:
        why = alive.get(job.root)
        for other in (*jobs, *others):
            if why is None and other.root != job.root and other.root in alive and job.every & other.own.names:
                why = f"{other.name}, which may be alive, refers to its files"
        rows = []
        for path, (size, changed) in job.orphans.items():
            age = now - changed
            shown = f"{job.label}{path}"
            goes = blocked is None and why is None and age >= min_age and (only is None or shown in only)
            rows.append(OrphanFile(shown, size, max(0.0, round(age, 3)), _why(job, path), goes, job.name))
        orphans += rows
        total = sum(row.bytes for row in rows)
        silent = max(0.0, round(now - job.changed, 3))
        going = sum(row.removable for row in rows)
        seen.append(JobSeen(job.name, silent, _guard(job, min_age), why, len(rows), total, going))
    return Removal((), tuple(orphans), (), {}, frozenset(), tuple(seen), blocked)


def _guard(job: Job, min_age: float) -> float:
    return max(min_age, RHYTHM * (job.interval or 0.0))


def _why(job: Job, path: str) -> str:
    epoch = number(top_folder(path))
    if epoch is not None and epoch not in job.own.complete:
        return "its checkpoint was never completed"
    return "no checkpoint refers to it"


def _refuse(removal: Removal, blocked: str | None, path: str) -> None:
    """Damaged where what is needed is not known, StoreInUse where nothing goes since jobs may be alive."""
    if blocked is not None:
        raise Damaged(
            f"nothing was removed: {blocked}", path=path, hint="move the unreadable checkpoint elsewhere, or repair it"
        )
    first = next((job for job in removal.jobs if job.alive is not None and job.orphans), None)
    if first is not None:
        raise StoreInUse(
            f"{first.name} may be alive: {first.alive}", path=path,
            hint=f"if the job is not running, pass --stopped {first.name}; to delete files instead of listing them, "
            "also pass --yes",
        )  # fmt: skip


def _remove(job: Job, orphans: Sequence[OrphanFile]) -> None:
    """Removes the files, and directories that are empty then: of checkpoints, and all of a job without a file left.

    What remains has the times that it had: they tell of the job, not of us.
    """
    if max(written(FlinkStore(job.root))) != job.changed:
        raise StoreInUse(f"{job.name} has been changed just now: it is alive", path=job.root)
    storage = LocalStorage(job.root)
    before = {folder: os.stat(folder).st_mtime for folder, _, _ in os.walk(job.root)}
    for orphan in orphans:
        path = orphan.path.removeprefix(job.label)
        with contextlib.suppress(OSError):
            if os.lstat(full := storage.local_path(path)).st_mtime == job.orphans[path][1]:
                os.unlink(full)
    left = any(files for _, _, files in os.walk(job.root))
    for folder in sorted(before, reverse=True):
        if not left or number(top_folder(os.path.relpath(folder, job.root))) is not None:
            with contextlib.suppress(OSError):
                os.rmdir(folder)
    for folder, then in before.items():
        with contextlib.suppress(OSError):
            os.utime(folder, (then, then))
