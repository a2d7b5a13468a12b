"""Plans from a store: read facts, decide purely (abscli.planner), and pin what was relied on."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from abscli.planner.lineage import Life, line, lives_of
from abscli.planner.named import parts_named, tasks_named
from abscli.planner.placement import subtasks_of
from abscli.planner.plan import NO_CHANGE, plan_full, plan_partial
from abscli.stores.native.rescale import overridden
from abscli.stores.pinned import change, pin
from abscli.stores.reasons import NoPlan, reasons
from formats.errors import FormatError, NoRecovery, UnknownTask
from formats.ids import TaskId
from formats.job.model import Topology
from formats.native import layout
from formats.native.fact_files import check_size
from formats.native.facts import digest
from formats.native.plan import NativePlan, PlanKind
from formats.native.store import NativeStore, files_of
from formats.plan import PinnedFile, Plan, encode
from formats.storage import Storage, absolute
from formats.timestamps import now
from formats.view import EpochDetail

SYSTEM = "abs"

Skips = list[tuple[int, str]]


def plan_recovery(
    store: NativeStore,
    *,
    epoch: int | None = None,
    distrust: Sequence[str] = (),
    below: int | None = None,
    parallelism: Mapping[str, int] = NO_CHANGE,
) -> Plan[NativePlan] | NoPlan:
    """The job is down: back to the newest whole epoch (or to `epoch`). Every digest is checked on the way.

    distrust: tasks whose part of epoch `below` (default: the newest) must not be used, so an older epoch is taken.
    parallelism: operators that are to have other numbers of tasks than in that epoch.

    NoPlan if no epoch is whole, or what it has on its channels cannot be given to other tasks. Raises NotFound for an
    unknown one, UnknownTask, BadOption for a parallelism that cannot be.
    """
    newest = newest_complete(store)
    whole = newest_whole(store, epoch=epoch, distrust=distrust, below=below)
    if isinstance(whole, NoPlan):
        return whole
    detail, skipped = whole
    number = detail.facts.epoch
    if parallelism:
        from abscli.engine.generations.rescaling import check

        try:
            check(store, number, overridden(store.topology(number), parallelism))
        except NoRecovery as error:
            return NoPlan.of(error)
    store.attempts()  # `abs restore` reads them all: if one is damaged, its error names the way out
    return sealed(store, number, newest, plan_full(
        store.topology(number),
        detail,
        topology_sha256=store.topology_sha256(number),
        skipped=skipped,
        later=_later(store, number),
        parallelism=parallelism,
    ))  # fmt: skip


def plan_failed(
    store: NativeStore, failed: Sequence[str], workers: Sequence[int] = (), *, local: bool = False
) -> Plan[NativePlan] | NoPlan:
    """These tasks of the running job have died, and those of these workers: what must restart, from the newest whole
    epoch. local: as of `plan_partial`. UnknownTask for a worker that the newest attempt does not have."""
    newest = newest_complete(store)
    whole = newest_whole(store)
    if isinstance(whole, NoPlan):
        return whole
    detail, skipped = whole
    number = detail.facts.epoch
    topology = store.topology(number)
    return sealed(store, number, newest, plan_partial(
        topology,
        [*tasks_named(topology, failed), *_tasks_of(store, number, workers)],
        local=local,
        together=local and _started_together(store, number),
        detail=detail,
        topology_sha256=store.topology_sha256(number),
        skipped=skipped,
        later=_later(store, number),
    ))  # fmt: skip


def _started_together(store: NativeStore, epoch: int) -> bool:
    """Whether all tasks of the newest attempt have started from this epoch, at its beginning or together since."""
    attempt = store.attempts()[-1].attempt
    back = (facts for facts in store.recoveries() if facts.attempt == attempt and facts.epoch == epoch)
    if store.manifest(epoch).attempt != attempt:
        return True
    return any(not each.untouched and each.deterministic_replay is None for each in back)


def _tasks_of(store: NativeStore, epoch: int, workers: Sequence[int]) -> Iterator[TaskId]:
    """The tasks that these workers of the newest attempt hold."""
    if not workers:
        return
    attempts = store.attempts()
    size = attempts[-1].workers if attempts else None
    if size is None:
        raise UnknownTask(
            "the newest attempt does not record its number of workers",
            path=store.path,
            hint="specify the failed tasks with --failed",
        )
    if max(workers) >= size:
        raise UnknownTask(
            f"there is no worker {max(workers)}: attempt {attempts[-1].attempt} runs on {size}, numbered from 0",
            path=store.path,
        )
    for operator, subtasks in subtasks_of(store.topology(epoch), workers, size).items():
        yield from (TaskId(operator, subtask) for subtask in subtasks)


def plan_graph(topology: Topology, failed: Sequence[str], *, local: bool = False) -> Plan[NativePlan]:
    """What must restart when these tasks of a job have died, from its graph alone."""
    body = plan_partial(topology, tasks_named(topology, failed), local=local)
    return Plan(system=SYSTEM, created=now(), store=None, body=body, relies_on=())


def newest_complete(store: NativeStore) -> int:
    """Return the newest complete epoch; 0 if there is none.

    A plan asks for it before it checks anything, which may take minutes: epochs that are completed meanwhile make the
    plan stale.
    """
    return max(_complete(store), default=0)


def sealed(store: NativeStore, epoch: int, newest: int, body: NativePlan) -> Plan[NativePlan]:
    """Return the plan with the files that it relies on. newest: see `newest_complete`."""
    body = msgspec.structs.replace(body, newest=newest)
    return Plan(
        system=SYSTEM, created=now(), store=absolute(store.path), body=body, relies_on=tuple(relied_on(store, epoch))
    )


def pin_facts(storage: Storage, path: str) -> PinnedFile:
    """Pin the current content of a fact file. Raises NotFound, and Damaged if it is larger than a fact file may be."""
    check_size(storage, path)
    return pin(storage, path)


def _complete(store: NativeStore) -> Iterator[int]:
    return (number for number in store.epoch_numbers() if store.has_manifest(number))


def newest_whole(
    store: NativeStore, *, epoch: int | None = None, distrust: Sequence[str] = (), below: int | None = None
) -> tuple[EpochDetail, Skips] | NoPlan:
    """The newest epoch on the job's own line whose every file has its digest, and why newer ones were passed over; or
    why there is none."""
    numbers = [epoch] if epoch is not None else own_line(store)
    if epoch is not None and epoch not in store.epoch_numbers():
        raise store.no_epoch(epoch)
    skipped: Skips = []
    distrusted = below if below is not None else next((n for n in numbers if store.has_manifest(n)), None)
    for number in numbers:
        if below is not None and number > below:
            skipped.append((number, f"is newer than epoch {below}, which the plan is for"))
            continue
        reason = why_not(store, number, distrust if number == distrusted else ())
        if reason is None:
            return store.detail(number), skipped
        skipped.append((number, reason))
    if epoch is not None:
        return _not_that_one(store, epoch, skipped[0][1])
    name = shlex.quote(store.path)
    hint = f"`abs rebuild {name} --job JOB` lists the metadata that can be rebuilt"
    if _is_described(store, [number for number, _ in skipped]):
        repair = f"abs plan-recovery {name} --strategy repair --out plan.json"
        hint = f"`{repair}` recomputes the damaged parts, if it can; otherwise {FROM_THE_START}"
    message = f"no epoch is intact ({reasons('epoch', skipped) or 'there is none'})"
    return NoPlan(message, path=store.path, hint=hint)


def _is_described(store: NativeStore, epochs: Sequence[int]) -> bool:
    """Tell whether attempts, and the manifest and job graph of an epoch, can be read: a repair needs them."""
    try:
        store.attempts()
        complete = [store.topology(number) for number in epochs if store.has_manifest(number)]
    except FormatError:
        return False
    return bool(complete)


FROM_THE_START = (
    "nothing can be restored: start the job from the beginning with `abs run JOB --store NEWDIR --take-ownership`"
)
"""The hint if no epoch is intact and none can be repaired."""


def instead_of_repair(store: NativeStore) -> str:
    """Return what to do if an epoch cannot be repaired. Reads all files of the newest intact epoch."""
    intact = (number for number in own_line(store) if store.has_manifest(number) and why_not(store, number) is None)
    if next(intact, None) is None:
        return FROM_THE_START
    return f"`abs plan-recovery {shlex.quote(store.path)}` rolls the job back to an intact epoch"


def own_line(store: NativeStore) -> list[int]:
    """Epochs on the line of the newest attempt, newest first; by number alone if an attempt cannot be read."""
    try:
        lives = lives_of(store.attempts(), store.is_fenced)
    except FormatError:
        lives = list[Life]()
    return line(lives, store.epoch_numbers())


def _not_that_one(store: NativeStore, epoch: int, reason: str) -> NoPlan:
    """The answer for an epoch that was asked for and is not whole; says which other one is."""
    whole = newest_whole(store)
    if isinstance(whole, NoPlan):
        hint = f"no other epoch is intact; `abs validate {shlex.quote(store.path)}` says what is damaged"
    else:
        other = whole[0].facts.epoch
        hint = f"epoch {other} is the newest intact epoch: `abs plan-recovery {shlex.quote(f'{store.path}@{other}')}`"
    return NoPlan(f"epoch {epoch} cannot be restored: it {reason}", store.path, hint)


def why_not(store: NativeStore, epoch: int, distrust: Sequence[str] = ()) -> str | None:
    """Why a job cannot go back to this epoch, as what is said of it (`is incomplete: ...`), or None."""
    if not store.has_manifest(epoch):
        aborted = store.aborted(epoch)
        if aborted is not None:
            return f"was aborted: {aborted.reason}"
        missing = next((row.missing for row in store.epochs() if row.epoch == epoch), ())
        named = ", ".join(map(str, missing[:3])) + (" ..." if len(missing) > 3 else "")
        return f"is incomplete: not acked by {len(missing)} of its tasks, {named}"
    try:
        if parts_named(distrust, (part.task for part in store.parts(epoch)), epoch=epoch, path=store.path):
            return f"holds the part of {', '.join(distrust)}, which is distrusted"
        for pinned in relied_on(store, epoch):
            problem = change(store.storage, pinned)
            if problem is not None:
                return f"is damaged: {problem}"
    except UnknownTask:
        raise
    except FormatError as error:
        return f"is damaged: {error}"
    return None


def relied_on(store: NativeStore, epoch: int) -> list[PinnedFile]:
    """Every file that restoring the epoch relies on, and the newest attempt: a plan is stale after another life.

    Those that others name are as they are to be, by their digests, and not as they are.
    """
    sealed = [layout.STORE, layout.outcome(epoch)]
    sealed += store.attempt_paths()[-1:]
    manifest = store.manifest(epoch)
    graph = layout.topology(manifest.topology_sha256)
    files = [manifest.tasks_file, *(file for part in store.parts(epoch) for file in files_of(part))]
    named = {file.path: PinnedFile(file.path, file.bytes or 0, file.sha256 or "") for file in files}
    check_size(store.storage, graph)
    named[graph] = PinnedFile(graph, store.storage.size(graph) or 0, manifest.topology_sha256)
    return [*(pin_facts(store.storage, path) for path in sealed), *(named[path] for path in sorted(named))]


def what_changed(store: NativeStore, plan: Plan[NativePlan], *, copied: bool = False) -> str | None:
    """What a plan relies on and is no longer so, or None: the plan holds, also where its own restore was broken off.

    copied: the store is the copy that a restore of this plan made, whose own fact file is another one.
    """
    later = _later_attempts(store, plan, copied=copied)
    for pinned in plan.relies_on:
        if copied and pinned.path == layout.STORE:
            continue  # a copy has its own
        if copied and pinned.path.startswith(f"{layout.ATTEMPTS}/") and _not_copied(store, plan, pinned.path):
            continue
        problem = change(store.storage, pinned)
        if problem is not None:
            return problem
    for path in later:
        attempt = store.attempt(path)
        if attempt.kind not in ("restore", "repair", "rescale") or attempt.plan != plan_digest(plan):
            return f"the job has run since: there is {path}"
    if not copied and plan.body.kind is PlanKind.RECOVER:
        begun = {store.attempt(path).attempt for path in later}
        newer = [n for n in _complete(store) if n > plan.body.newest and store.manifest(n).attempt not in begun]
        if newer:
            known = plan.body.newest
            return f"the job has continued since: epoch {max(newer)} is complete, the plan covers epochs up to {known}"
    return None


def plan_digest(plan: Plan[NativePlan]) -> str:
    """What an attempt records of the plan that it carries out."""
    return digest(encode(plan))


def _not_copied(store: NativeStore, plan: Plan[NativePlan], path: str) -> bool:
    """Whether the copy at `store` has no such attempt of the original, or one of its own under that number: those that
    began after the plan's epoch are left behind."""
    return store.storage.size(path) is None or not store.attempt(path).is_of(plan.body.epoch or 0)


def _later_attempts(store: NativeStore, plan: Plan[NativePlan], *, copied: bool) -> list[str]:
    """The attempts that are newer than the newest one that the plan lists; of a copy, than those that were copied."""
    if copied:
        return [path for path in store.attempt_paths() if not store.attempt(path).is_of(plan.body.epoch or 0)]
    newest = max((file.path for file in plan.relies_on if file.path.startswith(f"{layout.ATTEMPTS}/")), default="")
    return [path for path in store.attempt_paths() if path > newest]


def carried_to(store: NativeStore, plan: Plan[NativePlan], *, copied: bool = False) -> int:
    """The epoch that carrying out a plan goes on from: the plan's own, or the newest whole one that a restore of this
    very plan made before it was broken off. The plan holds, and `copied` is as there (see `what_changed`)."""
    assert plan.body.epoch is not None
    begun = {store.attempt(path).attempt for path in _later_attempts(store, plan, copied=copied)}
    for epoch in reversed(store.epoch_numbers()) if begun else ():
        if epoch <= plan.body.epoch:
            break
        if store.has_manifest(epoch) and why_not(store, epoch) is None and store.manifest(epoch).attempt in begun:
            return epoch
    return plan.body.epoch


def _later(store: NativeStore, epoch: int) -> EpochDetail | None:
    """The newest epoch after `epoch` that some task acked: how far sources are known to have come."""
    for number in reversed(store.epoch_numbers()):
        if number <= epoch:
            return None
        try:
            detail = store.detail(number)
        except FormatError:
            continue
        if any(operator.tasks for operator in detail.operators):
            return detail
    return None
