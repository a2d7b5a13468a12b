"""Carrying out a full plan: check that it still holds, run the job from its epoch, end in a new complete epoch."""

from __future__ import annotations

import dataclasses
import os
import secrets
import shlex
import shutil
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from abscli.engine.coordinator import Progress
from abscli.engine.job import JobOptions, Outcome, run_job
from abscli.engine.news import News
from abscli.stores.native.plan import carried_to, inputs, plan_digest, what_changed
from formats.errors import NoRecovery, OtherJob, StalePlan
from formats.job.model import Topology, canonical
from formats.native import layout
from formats.native.facts import digest
from formats.native.store import NativeStore, is_native
from formats.native.writer import put_store
from formats.plan import Input, Plan, PlanKind
from formats.storage import UNFINISHED, LocalStorage
from formats.view import Repeat


class Restored(NamedTuple):
    """What a restore did. replayed: log records put at the heads of their channels; elapsed in seconds;
    first_complete: Unix time of its first manifest; policy: of the new epochs; repeats: what the restored state holds
    and comes again, None if unknown; taken_over: by sink operator, the store that it was taken over from."""

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


def check_plan(plan: Plan, store: NativeStore, topology: Topology) -> None:
    """Raise if the plan cannot be carried out now: NoRecovery for other kinds than `recover`, OtherJob, StalePlan."""
    if plan.kind is not PlanKind.RECOVER:
        raise NoRecovery(
            f"a {plan.kind} plan is not carried out by restore",
            hint="plan without --failed to take the whole job back to its newest whole epoch",
        )
    found = digest(canonical(topology))
    if found != plan.topology_sha256:
        raise OtherJob(
            f"job {topology.job!r} has topology {found[:12]}…, the plan is for {str(plan.topology_sha256)[:12]}…",
            hint="give the job file that the store was written with",
        )
    assert plan.epoch is not None
    problem = what_changed(store, plan)
    if problem is None and not _of_epoch(inputs(store, plan.epoch)) <= _of_epoch(plan.inputs):
        problem = f"it does not list every file of epoch {plan.epoch}"
    if problem is not None:
        hint = f"`abs plan-recovery {shlex.quote(store.path)} --out plan.json` makes a new one: look at it first"
        raise StalePlan(f"the plan no longer holds: {problem}", path=store.path, hint=hint)


def _of_epoch(items: Sequence[Input]) -> set[Input]:
    """Those that are no attempts, and not the store's own file: of these `what_changed` says what they may be."""
    return {item for item in items if not item.path.startswith(f"{layout.ATTEMPTS}/") and item.path != layout.STORE}


def restore(
    plan: Plan,
    topology: Topology,
    options: JobOptions,
    *,
    to: str | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    on_news: Callable[[News], None] = lambda news: None,
) -> Restored:
    """Run the job from the plan's epoch in its store, or in a copy of what it needs at `to`. See `check_plan`.

    A restore of this very plan that was broken off is gone on with: from the newest whole epoch that it made.
    """
    assert plan.store is not None
    assert plan.epoch is not None
    started = time.monotonic()
    store = NativeStore(LocalStorage(plan.store))
    target = plan.store
    copied = to is not None and os.path.abspath(to) != os.path.abspath(plan.store)
    if to is not None and copied:
        check_plan(plan, store, topology)
        if not _is_copy_of(plan, to):
            copy_epoch(store, plan.epoch, to)
        target = to

    def verify() -> None:
        check_plan(plan, store, topology)
        if copied and (problem := what_changed(NativeStore(LocalStorage(target)), plan, copied=True)) is not None:
            raise StalePlan(f"the plan no longer holds: {problem}", path=target, hint="give --to a new directory")

    start = carried_to(NativeStore(LocalStorage(target)), plan, copied=copied)
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
    return Restored(
        store=target,
        epoch=outcome.epoch,
        parent=outcome.parent,
        tasks=manifest.tasks,
        state_rows=manifest.state_rows,
        replayed=sum(log.records or 0 for log in plan.replay_logs),
        elapsed=time.monotonic() - started,
        first_complete=outcome.completed_at[0],
        finished=outcome.finished,
        policy=outcome.policy,
        repeats=outcome.repeats,
        taken_over=outcome.taken_over,
    )


def _is_copy_of(plan: Plan, to: str) -> bool:
    """Whether a restore of this plan has made a store at `to`, and nothing else has run on it."""
    target = LocalStorage(to)
    return is_native(target) and what_changed(NativeStore(target), plan, copied=True) is None


def copy_epoch(store: NativeStore, epoch: int, to: str) -> None:
    """Make a new store at `to` that holds one epoch and all files that it refers to, in one step; OtherJob if something
    is there."""
    to = os.path.realpath(to)  # a link stays one: the copy is where it leads
    if os.path.isdir(to) and os.listdir(to):
        raise OtherJob("is not empty", path=to, hint="give --to a new directory")
    manifest = store.manifest(epoch)
    paths = {f.path for part in store.parts(epoch) for f in part.state}
    paths |= {log.file.path for part in store.parts(epoch) for log in part.logs if log.file}
    for entry in store.storage.list(layout.ATTEMPTS):
        path = f"{layout.ATTEMPTS}/{entry.name}"
        if store.attempt(path).first_epoch <= epoch:
            paths.add(path)
    paths |= {manifest.tasks_file.path, layout.topology(manifest.topology_sha256)}
    folder, name = os.path.split(os.path.abspath(to))
    beside = os.path.join(folder, f".{name}{UNFINISHED}{secrets.token_hex(8)}")  # a copy is whole, or not there
    os.makedirs(beside)
    try:
        target = LocalStorage(beside)
        for path in [*sorted(paths), store.outcome_path(epoch) or layout.outcome(epoch)]:
            target.put(path, store.storage.read(path))
        put_store(target, store.job)
        os.rename(beside, to)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
