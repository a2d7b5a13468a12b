"""Writing a native store: what the coordinator and the tasks put there, in the order that keeps it whole."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

from formats.errors import Damaged, NotFound, OtherJob
from formats.job import model as topologies
from formats.job.model import Topology
from formats.native import layout
from formats.native.committed import committed_after
from formats.native.facts import (
    AbortFacts,
    AttemptFacts,
    CommittedFacts,
    FenceFacts,
    ManifestFacts,
    PartFacts,
    RecoveryFacts,
    StoreFacts,
    TagFacts,
    TasksFacts,
    TriggerFacts,
    digest,
    files_of,
    header,
    seal,
    unseal,
)
from formats.storage import Putting, Storage, delete_all
from formats.timestamps import now, seconds_between
from formats.view import FileFacts, total


def create(storage: Storage, job: str) -> None:
    """Make the directory a store of `job`, or check that it is one; OtherJob if it is another's."""
    if check_store_of(storage, job):
        try:
            put_store(storage, job)
        except FileExistsError:  # another process was first; of whose attempts one goes on
            check_store_of(storage, job)


def check_store_of(storage: Storage, job: str) -> bool:
    """Tell whether the directory is empty, to be made a store; False if it is the store of `job` already.

    Raises OtherJob.
    """
    facts, strangers = _store_facts(storage), list[str]()
    if facts is None:
        strangers = [entry.name for entry in storage.list("") if entry.name != layout.LOCK]
        if layout.STORE in strangers:  # another process has made it one since
            facts = _store_facts(storage)
    if facts is not None and facts.job != job:
        raise OtherJob(
            f"is the store of job {facts.job!r}, not of {job!r}",
            path=storage.root,
            hint="give --store another directory",
        )
    if facts is None and strangers:
        raise OtherJob(
            f"is neither empty nor a store (it holds {strangers[0]!r})",
            path=storage.root,
            hint="give --store a new or empty directory",
        )
    return facts is None


def _store_facts(storage: Storage) -> StoreFacts | None:
    try:
        return unseal(storage.read(layout.STORE), StoreFacts, f"{storage.root}/{layout.STORE}")
    except NotFound:
        return None


def put_store(storage: Storage, job: str) -> None:
    """Say that the directory is a store; from then on it is one."""
    storage.put(layout.STORE, seal(StoreFacts(job=job, created=now(), **header(StoreFacts))))


def put_topology(storage: Storage, topology: Topology) -> str:
    """Store the job graph by its digest, and return that."""
    data = topologies.canonical(topology)
    sha256 = digest(data)
    path = layout.topology(sha256)
    if storage.size(path) is None:
        with contextlib.suppress(FileExistsError):  # another process has just stored the same graph
            storage.put(path, data)
            return sha256
    if storage.read(path) != data:
        raise Damaged(f"does not have the digest {sha256[:12]}… of its name", path=f"{storage.root}/{path}")
    return sha256


def put_attempt(storage: Storage, attempt: AttemptFacts) -> None:
    """Record a new life of the job; FileExistsError if another process took the number."""
    storage.put(layout.attempt(attempt.attempt), seal(attempt))


def put_recovery(storage: Storage, recovery: RecoveryFacts) -> None:
    """Record that tasks of a running attempt restarted."""
    storage.put(layout.recovery(recovery.attempt, recovery.number), seal(recovery))


def put_tag(storage: Storage, tag: TagFacts) -> None:
    """Give an epoch a name; FileExistsError if it has that already."""
    storage.put(layout.tag(tag.epoch, tag.name), seal(tag))


def put_fence(storage: Storage, epoch: int, attempt: AttemptFacts) -> None:
    """Take an epoch number from whoever owned the store before; FileExistsError if that one was quicker."""
    facts = FenceFacts(
        epoch=epoch, attempt=attempt.attempt, attempt_id=attempt.id, fenced=now(), **header(FenceFacts)
    )
    storage.put(layout.outcome(epoch), seal(facts))


def put_trigger(storage: Storage, trigger: TriggerFacts) -> None:
    """Record that an epoch has begun, before any source hears of it."""
    storage.put(layout.trigger(trigger.epoch, trigger.attempt_id), seal(trigger))


def put_file(storage: Putting, path: str, data: bytes, rows: int) -> FileFacts:
    """Write one data file and return how a fact file names it."""
    storage.put(path, data)
    return FileFacts(path=path, bytes=len(data), rows=rows, sha256=digest(data))


def put_part(storage: Storage, part: PartFacts) -> None:
    """Record a task's ack: everything that it names is durable."""
    storage.put(layout.ack(part.epoch, part.task_name, part.attempt_id), seal(part))


def complete(
    storage: Storage,
    trigger: TriggerFacts,
    job: str,
    parts: tuple[PartFacts, ...],
    *,
    idle: bool,
    moved: dict[str, str] | None = None,
    removed: tuple[str, ...] = (),
    committed: Iterable[CommittedFacts] = (),
    state_rows: int | None = None,
    tasks_file: FileFacts | None = None,
    ack_files: Sequence[str] | None = None,
) -> ManifestFacts:
    """Make an epoch complete: the tasks file, then the manifest; then the acks, which it replaces, go.

    moved, removed: operators of its parent, see `ManifestFacts`. committed: as its parent's manifest says.
    state_rows: of all parts, where they have not all counted theirs. tasks_file: where that is there already.
    ack_files: those, where that is not one for each part.

    FileExistsError if the number has an outcome: a later attempt has taken the store over.
    """
    tasks_file = tasks_file or put_tasks(storage, trigger, parts)
    manifest = _manifest(
        trigger, job, parts, tasks_file, idle=idle, moved=moved, removed=removed, committed=committed,
        state_rows=state_rows,
    )  # fmt: skip
    storage.put(layout.outcome(trigger.epoch), seal(manifest))
    if ack_files is None:
        ack_files = [layout.ack(part.epoch, part.task_name, part.attempt_id) for part in parts]
    delete_all(storage, [*ack_files, layout.trigger(trigger.epoch, trigger.attempt_id)])
    return manifest


def complete_anew(
    storage: Storage,
    trigger: TriggerFacts,
    job: str,
    parts: tuple[PartFacts, ...],
    *,
    idle: bool,
    moved: dict[str, str],
    removed: tuple[str, ...],
    committed: Iterable[CommittedFacts],
    replace: bool = True,
) -> ManifestFacts:
    """Make an epoch complete that a repair has taken over: the tasks file, then, in one step, the manifest in place of
    the outcome that the number has.

    replace: else FileExistsError if it has one.
    """
    tasks_file = put_tasks(storage, trigger, parts)
    manifest = _manifest(
        trigger, job, parts, tasks_file, idle=idle, moved=moved, removed=removed, committed=committed
    )
    storage.put(layout.outcome(trigger.epoch), seal(manifest), replace=replace)
    return manifest


def put_tasks(storage: Storage, trigger: TriggerFacts, parts: tuple[PartFacts, ...]) -> FileFacts:
    """Write the tasks file, which counts for nothing until a manifest names it."""
    body = seal(TasksFacts(epoch=trigger.epoch, parts=parts, **header(TasksFacts)))
    return put_file(storage, layout.tasks_file(trigger.epoch, trigger.attempt_id), body, len(parts))


def _manifest(
    trigger: TriggerFacts,
    job: str,
    parts: tuple[PartFacts, ...],
    tasks_file: FileFacts,
    *,
    idle: bool,
    moved: dict[str, str] | None,
    removed: tuple[str, ...],
    committed: Iterable[CommittedFacts],
    state_rows: int | None = None,
) -> ManifestFacts:
    state = {f.path: f for p in parts for f in p.state}
    files = {f.path: f for p in parts for f in files_of(p)}
    own = layout.epoch_dir(trigger.epoch) + "/"
    completed = now()
    return ManifestFacts(
        job=job,
        epoch=trigger.epoch,
        parent=trigger.parent,
        attempt=trigger.attempt,
        generation=trigger.generation,
        policy=trigger.policy,
        topology_sha256=trigger.topology_sha256,
        triggered=trigger.triggered,
        completed=completed,
        duration=seconds_between(trigger.triggered, completed),
        tasks=len(parts),
        bytes=(tasks_file.bytes or 0) + sum(f.bytes or 0 for f in files.values() if f.path.startswith(own)),
        state_bytes=sum(f.bytes or 0 for f in state.values()),
        state_rows=total([p.rows for p in parts]) if state_rows is None else state_rows,
        log_records=sum(log.records for p in parts for log in p.logs),
        idle=idle,
        tasks_file=tasks_file,
        attempt_id=trigger.attempt_id,
        moved=moved or {},
        removed=removed,
        committed=committed_after(committed, moved or {}, trigger.parent, parts),
        **header(ManifestFacts),
    )


def put_aborted(storage: Storage, epoch: int, attempt: AttemptFacts, reason: str) -> None:
    """Record that an epoch was given up; FileExistsError if the number has an outcome."""
    facts = AbortFacts(
        epoch=epoch,
        attempt=attempt.attempt,
        reason=reason,
        aborted=now(),
        attempt_id=attempt.id,
        **header(AbortFacts),
    )
    storage.put(layout.outcome(epoch), seal(facts))
