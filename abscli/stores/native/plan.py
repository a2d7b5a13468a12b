"""Plans from a store: read facts, decide purely (abscli.planner), and pin what was relied on."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from abscli.planner.lineage import Life, line
from abscli.planner.plan import plan_full, plan_partial
from abscli.stores.pinned import change, pin
from abscli.stores.reasons import reasons
from formats.errors import FormatError, NoRecovery, UnknownTask
from formats.job.model import Topology
from formats.native import layout
from formats.native.facts import digest, digest_1
from formats.native.plan import NativePlan
from formats.native.store import NativeStore, files_of
from formats.native.writer import now
from formats.plan import PinnedFile, Plan, encode
from formats.storage import absolute, walk
from formats.view import EpochDetail

SYSTEM = "abs"

Skips = list[tuple[int, str]]


def plan_recovery(
    store: NativeStore, *, epoch: int | None = None, distrust: Sequence[str] = (), below: int | None = None
) -> Plan[NativePlan]:
    """The job is down: back to the newest whole epoch (or to `epoch`). Every digest is checked on the way.

    distrust: tasks whose part of epoch `below` (default: the newest) must not be used, so an older epoch is taken.
    Raises NoRecovery if no epoch is whole, NotFound for an unknown one, UnknownTask.
    """
    detail, skipped = newest_whole(store, epoch=epoch, distrust=distrust, below=below)
    number = detail.facts.epoch
    return _sealed(store, number, plan_full(
        store.topology(number),
        detail,
        topology_sha256=store.topology_sha256(number),
        skipped=skipped,
        later=_later(store, number),
    ))  # fmt: skip


def plan_failed(store: NativeStore, failed: Sequence[str]) -> Plan[NativePlan]:
    """These tasks of the running job have died: what must restart, from the newest whole epoch."""
    detail, skipped = newest_whole(store)
    number = detail.facts.epoch
    return _sealed(store, number, plan_partial(
        store.topology(number),
        failed,
        detail=detail,
        topology_sha256=store.topology_sha256(number),
        skipped=skipped,
        later=_later(store, number),
    ))  # fmt: skip


def plan_graph(topology: Topology, failed: Sequence[str]) -> Plan[NativePlan]:
    """What must restart when these tasks of a job have died, from its graph alone."""
    return Plan(system=SYSTEM, created=now(), store=None, body=plan_partial(topology, failed), relies_on=())


def _sealed(store: NativeStore, epoch: int, body: NativePlan) -> Plan[NativePlan]:
    return Plan(
        system=SYSTEM, created=now(), store=absolute(store.path), body=body, relies_on=tuple(relied_on(store, epoch))
    )


def newest_whole(
    store: NativeStore, *, epoch: int | None = None, distrust: Sequence[str] = (), below: int | None = None
) -> tuple[EpochDetail, Skips]:
    """The newest epoch on the job's own line whose every file has its digest, and why newer ones were passed over."""
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
        raise _not_that_one(store, epoch, skipped[0][1])
    raise NoRecovery(
        f"no epoch is whole ({reasons('epoch', skipped) or 'there is none'})",
        path=store.path,
        hint=f"`abs validate {shlex.quote(store.path)}` names what is damaged, `abs rebuild {shlex.quote(store.path)} "
        "--job JOB` says what can be made anew; else the job starts from the beginning in a new store",
    )


def own_line(store: NativeStore) -> list[int]:
    """Epochs on the line of the newest attempt, newest first; by number alone if an attempt cannot be read."""
    try:
        lives = [Life(a.first_epoch, a.parent) for a in store.attempts()]
    except FormatError:
        lives = []
    return line(lives, store.epoch_numbers())


def _not_that_one(store: NativeStore, epoch: int, reason: str) -> NoRecovery:
    """The error for an epoch that was asked for and is not whole; says which other one is."""
    try:
        other = newest_whole(store)[0].facts.epoch
        hint = f"epoch {other} is the newest whole one: `abs plan-recovery {shlex.quote(f'{store.path}@{other}')}`"
    except NoRecovery:
        where = shlex.quote(store.path)
        hint = f"no other epoch is whole; `abs validate {where}` says what is damaged"
    return NoRecovery(f"epoch {epoch} cannot be restored: it {reason}", path=store.path, hint=hint)


def why_not(store: NativeStore, epoch: int, distrust: Sequence[str] = ()) -> str | None:
    """Why a job cannot go back to this epoch, as what is said of it (`is incomplete: ...`), or None."""
    if not store.has_manifest(epoch):
        aborted = store.aborted(epoch)
        if aborted is not None:
            return f"was given up: {aborted.reason}"
        missing = next((row.missing for row in store.epochs() if row.epoch == epoch), ())
        named = ", ".join(missing[:3]) + (" ..." if len(missing) > 3 else "")
        return f"is incomplete: not acked by {len(missing)} of its tasks, {named}"
    try:
        tasks = {part.task for part in store.parts(epoch)}
        for task in distrust:
            if task not in tasks:
                raise UnknownTask(f"epoch {epoch} has no task {task!r}", path=store.path)
        if distrust:
            return f"holds the part of {', '.join(distrust)}, which is not to be used"
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
    sealed = [layout.STORE, store.outcome_path(epoch) or layout.outcome(epoch)]
    sealed += [entry.name for entry in walk(store.storage, layout.ATTEMPTS)][-1:]
    manifest = store.manifest(epoch)
    named = {layout.topology(manifest.topology_sha256): manifest.topology_sha256}
    named[manifest.tasks_file.path] = manifest.tasks_file.sha256 or ""
    for part in store.parts(epoch):
        for file in files_of(part):
            named[file.path] = file.sha256 or ""
    return [pin(store.storage, path) for path in sealed] + [
        PinnedFile(path, store.storage.size(path) or 0, sha256) for path, sha256 in sorted(named.items())
    ]


def what_changed(store: NativeStore, plan: Plan[NativePlan], *, copied: bool = False) -> str | None:
    """What a plan relies on and is no longer so, or None: the plan holds, also where its own restore was broken off.

    copied: the store is the copy that a restore of this plan made, whose own fact file is another one.
    """
    later = _later_attempts(store, plan, copied=copied)
    for pinned in plan.relies_on:
        if pinned.path == layout.STORE and (copied or pinned.sha256 == digest_1(store.facts)):
            continue  # a copy has its own; and the restore itself brings a store of version 1 up
        if copied and pinned.path.startswith(f"{layout.ATTEMPTS}/") and _not_copied(store, plan, pinned.path):
            continue
        problem = change(store.storage, pinned)
        if problem is not None:
            return problem
    for path in later:
        attempt = store.attempt(path)
        if attempt.kind != "restore" or attempt.plan != plan_digest(plan):
            return f"the job has run since: there is {path}"
    return None


def plan_digest(plan: Plan[NativePlan]) -> str:
    """What an attempt records of the plan that it carries out."""
    return digest(encode(plan))


def _not_copied(store: NativeStore, plan: Plan[NativePlan], path: str) -> bool:
    """Whether the copy at `store` has no such attempt of the original, or one of its own under that number: those that
    began after the plan's epoch are left behind."""
    return store.storage.size(path) is None or store.attempt(path).first_epoch > (plan.body.epoch or 0)


def _later_attempts(store: NativeStore, plan: Plan[NativePlan], *, copied: bool) -> list[str]:
    """The attempts that are newer than the newest one that the plan lists; of a copy, than those that were copied."""
    if copied:
        paths = [entry.name for entry in walk(store.storage, layout.ATTEMPTS)]
        return [path for path in paths if store.attempt(path).first_epoch > (plan.body.epoch or 0)]
    newest = max((file.path for file in plan.relies_on if file.path.startswith(f"{layout.ATTEMPTS}/")), default="")
    return [entry.name for entry in walk(store.storage, layout.ATTEMPTS) if entry.name > newest]


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
