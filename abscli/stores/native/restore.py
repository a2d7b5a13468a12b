"""Carrying out a full plan: check that it still holds, run the job from its epoch, end in a new complete epoch."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from abscli.engine.coordinator import Progress
from abscli.engine.generations.change import change_since
from abscli.engine.generations.rescaling import Rescale, publish
from abscli.engine.generations.rescaling import check as check_logs
from abscli.engine.job import JobOptions, Outcome, job_sinks, rehearse, run_job
from abscli.engine.telemetry.news import News, Rescaled
from abscli.engine.telemetry.wait_reports import WaitWatch
from abscli.engine.waits import StepTimer
from abscli.planner.rescale import with_parallelism
from abscli.stores.copying import check_folder, new_folder, roots
from abscli.stores.native.copying import files_to_copy
from abscli.stores.native.plan import carried_to, plan_digest, relied_on, what_changed
from abscli.stores.native.rescale import as_taken, in_words, overridden, rescaled, rescaled_by
from abscli.stores.pinned import stale
from formats.errors import FormatError, NoRecovery, OtherJob, StalePlan
from formats.job.changes import Changes
from formats.job.model import Topology, canonical
from formats.native import layout
from formats.native.facts import digest
from formats.native.plan import NativePlan, PlanKind
from formats.native.store import NativeStore, is_native
from formats.native.writer import put_store
from formats.plan import PinnedFile, Plan
from formats.storage import LocalStorage, ServedStorage, absolute, common_name, local_name, open_storage, open_writable
from formats.view import Repeat


class NativeRestored(NamedTuple):
    """What a restore did.

    replayed: log records put at the heads of their channels.
    elapsed: seconds.
    first_complete: Unix time of its first manifest.
    policy: of the new epochs.
    repeats: what the restored state holds and comes again, None if unknown.
    taken_over: by sink operator, the store that it was taken over from.
    parallelism: of the operators that have another one than in the job file.
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
    parallelism: dict[str, int]


def check_plan(plan: Plan[NativePlan], store: NativeStore) -> None:
    """Raise if the plan cannot be carried out now: NoRecovery for other kinds than `recover`, StalePlan."""
    if plan.body.kind is not PlanKind.RECOVER:
        raise NoRecovery(
            f"abs restore cannot execute a {plan.body.kind} plan",
            hint="plan without --failed to roll the whole job back to its newest intact epoch",
        )
    assert plan.body.epoch is not None
    problem = what_changed(store, plan)
    if problem is None and not _of_epoch(relied_on(store, plan.body.epoch)) <= _of_epoch(plan.relies_on):
        problem = f"it does not list every file of epoch {plan.body.epoch}"
    if problem is not None:
        raise stale(plan, problem)


def check_job(plan: Plan[NativePlan], store: NativeStore, topology: Topology, changes: Changes) -> None:
    """Raise if the job is not the one that the plan is for.

    Parallelism may differ, since the epoch and the plan determine it. Unless the plan is a repair, operators may also
    be new, or be mentioned in the changes of the job file.

    Raises OtherJob, BadOption for a parallelism that the job cannot have, NoRecovery if records would be lost.
    """
    assert plan.body.epoch is not None
    topology = as_taken(topology, store.topology_by_digest(plan.body.topology_sha256), changes)
    if plan.body.parallelism:
        overridden(topology, _parallelism(plan, changes))
    given = digest(canonical(topology))
    if given == plan.body.topology_sha256:
        return
    change = None
    # A repair makes its epoch whole as it was taken, and what would say how the job differs may be what is lost of it.
    if topology.job == plan.body.job and plan.body.kind is not PlanKind.REPAIR:
        change = change_since(store, plan.body.epoch, topology, changes)
    if change is None or not change.generation or _differs(store.topology(plan.body.epoch), topology, change.heirs):
        raise OtherJob(
            f"job {topology.job!r} has topology {given[:12]}…, the plan is for {plan.body.topology_sha256[:12]}…",
            hint="pass the file of the job that wrote the store",
        )


def _differs(old: Topology, new: Topology, heirs: Mapping[str, str]) -> bool:
    """Whether an operator that goes on has changed in more than its id."""
    after = {op.id: op for op in new.operators}
    return any(
        msgspec.structs.replace(op, id=heirs[op.id]) != after[heirs[op.id]] for op in old.operators if op.id in heirs
    )


def _parallelism(plan: Plan[NativePlan], changes: Changes) -> dict[str, int]:
    """That of the plan, by the ids that the operators have in the job file."""
    return {changes.heir(id) or id: number for id, number in plan.body.parallelism.items()}


def check_rescale(plan: Plan[NativePlan], store: NativeStore) -> None:
    """NoRecovery if a log cannot be taken over to the plan's parallelism; BadOption for one that cannot be."""
    assert plan.body.epoch is not None
    if plan.body.parallelism:
        check_logs(store, plan.body.epoch, overridden(store.topology(plan.body.epoch), plan.body.parallelism))


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
    numbers = _parallelism(plan, options.changes)
    to = None if to is None else local_name(to)
    store = NativeStore(open_storage(plan.store))
    given, taken = topology, store.topology_by_digest(plan.body.topology_sha256)
    topology = overridden(as_taken(topology, taken, options.changes), numbers)
    target = absolute(plan.store)
    copied = to is not None and common_name(absolute(to)) != common_name(target)
    if to is not None and copied:
        check_job(plan, store, given, options.changes)
        check_plan(plan, store)
        if not _is_copy_of(plan, to):
            copy_epoch(store, plan.body.epoch, to)
        target = to

    def verify() -> None:
        again = NativeStore(store.storage)  # as it is after a rescale, which brings an older store up
        check_job(plan, again, given, options.changes)
        check_plan(plan, again)
        if copied and (problem := what_changed(NativeStore(open_writable(target)), plan, copied=True)) is not None:
            raise StalePlan(
                f"the plan is no longer valid: {problem}", path=target, hint="choose a new directory with --to"
            )

    start = carried_to(NativeStore(open_writable(target)) if copied else store, plan, copied=copied)
    # A copy is another store, which cannot write what the original has written unless it takes that over.
    options = dataclasses.replace(
        options, from_epoch=start, kind="restore", take_ownership=copied or options.take_ownership,
        plan=plan_digest(plan),
    )
    old = NativeStore(open_writable(target)).topology(start)
    if changed := rescaled_by(old, topology, options.changes, numbers):
        before = {options.changes.heir(change.operator) or "": change.before for change in changed}
        unscaled = with_parallelism(topology, before)
        rehearse(unscaled, target, options)
        order = Rescale(start, rescaled(old, changed), os.path.abspath(options.directory), options.plan)
        timer = StepTimer()
        with WaitWatch(timer, on_news):
            epoch = publish(open_writable(target), order, verify, job_sinks(unscaled, target, options, timer))
        on_news(Rescaled(epoch, start, in_words(changed)))
        options = dataclasses.replace(options, from_epoch=epoch)
    outcome: Outcome = run_job(
        topology,
        target,
        options,
        on_progress,
        verify=verify,
        on_news=on_news,
    )
    manifest = NativeStore(open_writable(target)).manifest(outcome.epoch)
    by_file = {op.id: op.parallelism for op in given.operators}
    return NativeRestored(
        store=target,
        epoch=outcome.epoch,
        parent=outcome.parent,
        tasks=manifest.tasks,
        state_rows=manifest.state_rows or 0,
        replayed=sum(log.records or 0 for log in plan.body.replay_logs),
        elapsed=time.monotonic() - started,
        first_complete=outcome.completed_at[0],
        finished=outcome.finished,
        policy=outcome.policy,
        repeats=outcome.repeats,
        taken_over=outcome.taken_over,
        parallelism={op.id: op.parallelism for op in topology.operators if op.parallelism != by_file[op.id]},
    )


def _is_copy_of(plan: Plan[NativePlan], to: str) -> bool:
    """Whether a restore of this plan has made a store at `to`, and nothing else has run on it."""
    target = open_writable(to)
    return is_native(target) and what_changed(NativeStore(target), plan, copied=True) is None


def copy_epoch(store: NativeStore, epoch: int, to: str) -> None:
    """Make a new store at `to` that holds one epoch and all files that it refers to, in one step; OtherJob if something
    is there."""
    paths = list(files_to_copy(store, epoch))
    if "://" in to:
        _copy_to_bucket(store, paths, to)
        return
    to = os.path.realpath(to)  # a link stays one: the copy is where it leads
    if os.path.isdir(to) and os.listdir(to):
        raise OtherJob("is not empty", path=to, hint="choose a new directory with --to")
    to = check_folder(to, roots(store.storage))
    with new_folder(to) as copy:
        for path in paths:
            copy.copy(store.storage, path)
        put_store(LocalStorage(copy.path), store.job)


def _copy_to_bucket(store: NativeStore, paths: Sequence[str], to: str) -> None:
    """Nothing has another name first in a bucket: what is there is a store once its own file is, which comes last."""
    target = open_writable(to)
    if common_name(f"{target.root}/").startswith(common_name(f"{store.storage.root}/")):
        raise OtherJob(f"is inside {store.storage.root}, which the command reads", path=to,
                       hint="choose another location with --to")  # fmt: skip
    if target.list(""):
        raise OtherJob(
            "is not empty", path=to, hint="choose a new location with --to, or delete the contents of this location"
        )
    if isinstance(target, ServedStorage):
        target.check_exclusive()
    placed: list[str] = []
    try:
        for path in paths:
            target.put(path, store.storage.read(path))
            placed.append(path)
        put_store(target, store.job)
    except BaseException as error:
        for path in placed:
            with contextlib.suppress(FormatError, OSError):
                target.delete(path)
        if isinstance(error, FileExistsError):
            raise OtherJob("another process is creating a store there", path=to,
                           hint="choose another location with --to") from None  # fmt: skip
        raise
