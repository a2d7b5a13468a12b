"""Carrying out a full plan: check that it still holds, run the job from its epoch, end in a new complete epoch."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from abscli.engine.coordinator import Progress
from abscli.engine.job import JobOptions, Outcome, run_job
from abscli.engine.news import News
from abscli.stores.copying import check_target, local_roots, new_folder
from abscli.stores.native.plan import carried_to, plan_digest, relied_on, what_changed
from abscli.stores.pinned import stale
from formats.errors import NoRecovery, OtherJob, StalePlan
from formats.job.model import Topology, canonical
from formats.native import layout
from formats.native.facts import digest
from formats.native.plan import NativePlan, PlanKind
from formats.native.store import NativeStore, is_native
from formats.native.writer import put_store
from formats.plan import PinnedFile, Plan
from formats.storage import LocalStorage, absolute, local_name, open_storage
from formats.view import Repeat


class NativeRestored(NamedTuple):
    """What a restore did.

    replayed: log records put at the heads of their channels.
    elapsed: seconds.
    first_complete: Unix time of its first manifest.
    policy: of the new epochs.
    repeats: what the restored state holds and comes again, None if unknown.
    taken_over: by sink operator, the store that it was taken over from.
    """

    store: str
    epoch: int
    parent: int
    tasks: int
    state_rows: int
    replayed: int
    elapsed: float
    first_complete: float
    finished: bool
    policy: str
    repeats: tuple[Repeat, ...] | None
    taken_over: dict[str, str]


def check_plan(plan: Plan[NativePlan], store: NativeStore) -> None:
    """Raise if the plan cannot be carried out now: NoRecovery for other kinds than `recover`, StalePlan."""
    if plan.body.kind is not PlanKind.RECOVER:
        raise NoRecovery(
            f"a {plan.body.kind} plan is not carried out by restore",
            hint="plan without --failed to take the whole job back to its newest whole epoch",
        )
    assert plan.body.epoch is not None
    problem = what_changed(store, plan)
    if problem is None and not _of_epoch(relied_on(store, plan.body.epoch)) <= _of_epoch(plan.relies_on):
        problem = f"it does not list every file of epoch {plan.body.epoch}"
    if problem is not None:
        raise stale(plan, problem)


def check_job(plan: Plan[NativePlan], topology: Topology) -> None:
    """OtherJob if the job is not the one that the plan is for."""
    given = digest(canonical(topology))
    if given != plan.body.topology_sha256:
        raise OtherJob(
            f"job {topology.job!r} has topology {given[:12]}…, the plan is for {plan.body.topology_sha256[:12]}…",
            hint="give the job file that the store was written with",
        )


def _of_epoch(files: Sequence[PinnedFile]) -> set[PinnedFile]:
    """Those that are no attempts, and not the store's own file: of these `what_changed` says what they may be."""
    return {file for file in files if not file.path.startswith(f"{layout.ATTEMPTS}/") and file.path != layout.STORE}


def restore(
    plan: Plan[NativePlan],
    topology: Topology,
    options: JobOptions,
    *,
    to: str | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    on_news: Callable[[News], None] = lambda news: None,
) -> NativeRestored:
    """Run the job from the plan's epoch in its store, or in a copy of what it needs at `to`. See `check_plan`.

    A restore of this very plan that was broken off is gone on with: from the newest whole epoch that it made.
    """
    assert plan.store is not None
    assert plan.body.epoch is not None
    started = time.monotonic()
    to = None if to is None else local_name(to)
    store = NativeStore(open_storage(plan.store))
    target = absolute(plan.store)
    copied = to is not None and absolute(to) != target
    if to is not None and copied:
        check_job(plan, topology)
        check_plan(plan, store)
        if not _is_copy_of(plan, to):
            copy_epoch(store, plan.body.epoch, to)
        target = to

    def verify() -> None:
        check_job(plan, topology)
        check_plan(plan, store)
        if copied and (problem := what_changed(NativeStore(LocalStorage(target)), plan, copied=True)) is not None:
            raise StalePlan(f"the plan no longer holds: {problem}", path=target, hint="give --to a new directory")

    start = carried_to(NativeStore(LocalStorage(target)) if copied else store, plan, copied=copied)
    outcome: Outcome = run_job(
        topology,
        target,
        dataclasses.replace(
            options, from_epoch=start, kind="restore", take_over=True, plan=plan_digest(plan)
        ),
        on_progress,
        verify=verify,
        on_news=on_news,
    )
    manifest = NativeStore(LocalStorage(target)).manifest(outcome.epoch)
    return NativeRestored(
        store=target,
        epoch=outcome.epoch,
        parent=outcome.parent,
        tasks=manifest.tasks,
        state_rows=manifest.state_rows,
        replayed=sum(log.records or 0 for log in plan.body.replay_logs),
        elapsed=time.monotonic() - started,
        first_complete=outcome.completed_at[0],
        finished=outcome.finished,
        policy=outcome.policy,
        repeats=outcome.repeats,
        taken_over=outcome.taken_over,
    )


def _is_copy_of(plan: Plan[NativePlan], to: str) -> bool:
    """Whether a restore of this plan has made a store at `to`, and nothing else has run on it."""
    target = LocalStorage(to)
    return is_native(target) and what_changed(NativeStore(target), plan, copied=True) is None


def copy_epoch(store: NativeStore, epoch: int, to: str) -> None:
    """Make a new store at `to` that holds one epoch and all files that it refers to, in one step; OtherJob if something
    is there."""
    if "://" not in to:
        to = os.path.realpath(to)  # a link stays one: the copy is where it leads
    if os.path.isdir(to) and os.listdir(to):
        raise OtherJob("is not empty", path=to, hint="give --to a new directory")
    to = check_target(to, local_roots(store.storage))
    manifest = store.manifest(epoch)
    paths = {f.path for part in store.parts(epoch) for f in part.state}
    paths |= {log.file.path for part in store.parts(epoch) for log in part.logs if log.file}
    for entry in store.storage.list(layout.ATTEMPTS):
        path = f"{layout.ATTEMPTS}/{entry.name}"
        if store.attempt(path).first_epoch <= epoch:
            paths.add(path)
    paths |= {manifest.tasks_file.path, layout.topology(manifest.topology_sha256)}
    with new_folder(to) as copy:
        for path in [*sorted(paths), store.outcome_path(epoch) or layout.outcome(epoch)]:
            copy.copy(store.storage, path)
        put_store(LocalStorage(copy.path), store.job)
