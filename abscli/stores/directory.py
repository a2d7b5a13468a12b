"""A directory of many stores, such as Flink's directory of all jobs, and from which epoch of a store its job can start.

Judged by presence and size alone: no state is read, so that it takes as long as its facts are large.
"""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

from abscli.report.findings import StoreReport
from abscli.stores.base import Orphans, System
from abscli.stores.copying.claims import refuse_unfinished
from abscli.stores.reasons import NoPlan, reasons
from abscli.stores.registry import SYSTEMS
from formats.errors import FormatError, OtherJob
from formats.reference import NOTHING
from formats.storage import Storage, open_storage, walk
from formats.view import CheckpointStore, Status

NAMED = 5
"""Jobs that an error names."""


@dataclass(frozen=True, slots=True)
class Restorable:
    """An epoch from which a job can be started where it lies.

    path: what the system's own tools are given for it.
    written: when it was, RFC 3339; None if that is not known.
    bytes: of all state that it refers to; None if that is not known.
    """

    epoch: int
    path: str
    written: str | None
    bytes: int | None


@dataclass(frozen=True, slots=True)
class Job:
    """One store of a directory.

    name: of its directory, in the one that was named.
    job: the job's name or id, where the system knows it.
    epochs: how many there are, whole or not.
    newest: the newest epoch from which it can be started; None if there is none.
    why: why no epoch, or none newer than that, is one; empty if there is nothing to say.
    bytes: of all files that lie there.
    orphans: files that no epoch of any job here needs; None if that is not known.
    single: it is one epoch on its own, such as a savepoint.
    """

    name: str
    path: str
    system: System
    job: str | None
    epochs: int
    newest: Restorable | None
    why: str
    files: int
    bytes: int
    orphans: Orphans | None
    single: bool = False


def stores_in(path: str) -> list[tuple[str, System, Storage]]:
    """The stores right below a directory: name, system and storage of each; none if it is no directory, or a store."""
    try:
        above = open_storage(path)
    except FormatError:
        return []
    if any(system.recognise(above) for system in SYSTEMS):
        return []
    stores: list[tuple[str, System, Storage]] = []
    for entry in above.list(""):
        if entry.size is not None:
            continue
        try:
            storage = open_storage(f"{path.rstrip('/')}/{entry.name}")
        except FormatError:  # it has gone meanwhile
            continue
        system = next((system for system in SYSTEMS if system.recognise(storage)), None)
        if system is not None:
            stores.append((entry.name, system, storage))
    return stores


def jobs(stores: Sequence[tuple[str, System, Storage]]) -> list[Job]:
    """What is in each of these stores, those that can be started again first, the newest before others."""
    rows: list[tuple[Job, CheckpointStore | None]] = []
    orphans: dict[str, Orphans | None] = {}
    for system in SYSTEMS:
        opened, reports = [], []
        for name, own, storage in stores:
            if own is not system:
                continue
            try:
                refuse_unfinished(storage)
                view = system.open(storage, NOTHING)
                report = system.check(storage, None, quick=True, progress=_unseen).report
                row = _job(name, system, storage, view, report)
            except FormatError as error:
                why = f"it cannot be read: {error.message}"
                rows.append((Job(name, storage.root, system, None, 0, None, why, *_sizes(storage), None), None))
                continue
            rows.append((row, view))
            opened.append(view)
            reports.append(report)
        mine = [row.name for row, view in rows if row.system is system and view is not None]
        orphans |= dict(zip(mine, system.orphans(opened, reports), strict=True)) if opened else {}
    result = [replace(row, orphans=orphans.get(row.name)) for row, _ in rows]
    return sorted(result, key=_newest_last, reverse=True)


def _newest_last(job: Job) -> tuple[bool, str]:
    return job.newest is not None, (job.newest.written if job.newest else None) or ""


def _job(name: str, system: System, storage: Storage, view: CheckpointStore, report: StoreReport) -> Job:
    try:
        answer = newest_restorable(system, view, report)
    except OtherJob as error:  # the same as of one job: the user chooses
        answer = NoPlan(error.message)
    newest = answer if isinstance(answer, Restorable) else None
    why = answer.message if isinstance(answer, NoPlan) else ""
    return Job(name, storage.root, system, view.job, len(view.epoch_numbers()), newest, why, *_sizes(storage), None,
               view.only is not None)  # fmt: skip


def newest_verified(job: Job) -> Restorable | NoPlan:
    """Return the newest epoch of a job from which it can be started, after reading every file that epochs refer to."""
    storage = open_storage(job.path)
    report = job.system.check(storage, None, quick=False, progress=_unseen).report
    return newest_restorable(job.system, job.system.open(storage, NOTHING), report)


def newest_restorable(system: System, view: CheckpointStore, report: StoreReport) -> Restorable | NoPlan:
    """The newest epoch of a report from which a job can be started where it lies. report: a quick check is enough.

    Raises OtherJob if it is not known which epoch is the newest.
    """
    skipped: list[tuple[int, str]] = []
    for one in reversed(report.epochs):
        if one.epoch not in report.restorable:
            first = next(iter(one.findings), None)
            reason = one.reason or (f"{first.path or first.task}: {first.message}" if first else f"it is {one.verdict}")
            skipped.append((one.epoch, reason))
            continue
        if (obstacle := system.cannot_start(view, one.epoch)) is not None:
            skipped.append((one.epoch, obstacle))
            continue
        if len(report.epochs) > 1:
            view.check_newest(one.epoch)
        facts = next((row for row in view.epochs() if row.epoch == one.epoch), None)
        written = one.time or (facts.triggered if facts else None)
        size = facts.state_bytes if facts else None
        return Restorable(one.epoch, system.start_path(view, one.epoch), written, size)
    why = reasons("epoch", skipped) or "it has none"
    hint = f"`abs validate {shlex.quote(view.path)}` says what is wrong"
    if any(one.verdict is Status.COMPLETE for one in report.epochs):
        hint = f"`abs plan-recovery {shlex.quote(view.path)}` plans a copy that can be started"
    return NoPlan(f"no epoch can be started in place: {why}", path=view.path, hint=hint)


def newest_of(path: str, found: Sequence[Job]) -> Job | NoPlan | str:
    """The job from which to go on where a directory of several is named: the newest of those that can be started if
    they are lives of one job, one after the other. Otherwise which is meant is not known: the text says why."""
    able = [job for job in found if job.newest is not None]
    able = [job for job in able if not job.single] or able  # who wants a savepoint names it
    if not able:
        why = "; ".join(f"{job.name}: {job.why}" for job in found[:NAMED])
        return NoPlan(f"no job here has an epoch that can be started: {why}", path=path)
    if len(able) == 1:
        return able[0]
    lives = []
    for job in able:
        assert job.newest is not None
        life = job.system.lives(job.system.open(open_storage(job.path), NOTHING), job.newest.epoch)
        if life is None:
            return "nothing tells whether they are lives of one job"
        lives.append((life, job))
    if len({life.operators for life, _ in lives}) > 1:
        return "they have different operators"
    in_order = sorted(lives, key=lambda one: one[0].ended)
    for (before, _), (after, _) in itertools.pairwise(in_order):
        if after.began < before.ended:
            return "they have the same operators, and some wrote at the same time"
    return in_order[-1][1]


def _sizes(storage: Storage) -> tuple[int, int]:
    """Number and bytes of all files of a store."""
    sizes = [entry.size or 0 for entry in walk(storage)]
    return len(sizes), sum(sizes)


def _unseen(read: int, total: int | None) -> None:
    """Presence and sizes are looked up quickly."""
