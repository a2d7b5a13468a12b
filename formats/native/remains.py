"""What is left of an epoch that a repair is to make whole: who took it, and the parts that can still be read.

An epoch that did not become complete has its trigger and acks; one that did has its tasks file, which the manifest
names. Where the manifest is lost or damaged, the tasks file stands for it: it is written when all tasks have acked.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from formats.errors import Damaged, FormatError, NoRecovery
from formats.ids import TaskId
from formats.native import layout
from formats.native.facts import (
    AbortFacts,
    AttemptFacts,
    ManifestFacts,
    PartFacts,
    TasksFacts,
    TriggerFacts,
    header,
    is_id,
    unseal,
)
from formats.native.names import check_facts
from formats.native.store import NativeStore, files_of
from formats.storage.ranges import whole_file


class Remains(msgspec.Struct, frozen=True):
    """An epoch as a repair finds it.

    trigger: what its manifest says of itself, or would have said.
    taker: the attempt that took it.
    committed: whether it was complete, so that its output may have been shown.
    idle: whether the job had nothing left to do.
    parts: those that can be read, by task.
    tasks_known: whether all that were acked are among them; a damaged tasks file names parts that are not.
    facts: the files that say so, as far as they can be read.
    moved, removed: as its manifest has them.
    """

    trigger: TriggerFacts
    taker: AttemptFacts
    committed: bool
    idle: bool
    parts: dict[TaskId, PartFacts]
    tasks_known: bool
    facts: tuple[str, ...]
    moved: dict[str, str] = {}
    removed: tuple[str, ...] = ()

    @property
    def epoch(self) -> int:
        return self.trigger.epoch


def remains_of(store: NativeStore, epoch: int) -> Remains:
    """What is left of an epoch. NoRecovery where that is too little to say what it was, or where it was given up."""
    path = layout.outcome(epoch)
    if store.outcome_kind(epoch) is AbortFacts:
        aborted = store.aborted(epoch)
        raise _beyond(store, epoch, f"was aborted: {aborted.reason if aborted else 'the reason is not recorded'}")
    manifest = _manifest(store, epoch)
    if manifest is not None:
        taker = _attempt(store, epoch, manifest.attempt, manifest.attempt_id)
        tasks = _tasks(store, epoch, manifest.attempt_id)
        facts = (path, *((manifest.tasks_file.path,) if tasks else ()))
        return Remains(_trigger_of(manifest), taker, True, manifest.idle, _by_task(tasks), tasks is not None, facts,
                       manifest.moved, manifest.removed)  # fmt: skip
    trigger = _trigger(store, epoch)
    if trigger is not None:
        taker = _attempt(store, epoch, trigger.attempt, trigger.attempt_id)
        # One that was begun before it may have become complete after it.
        parent = max(trigger.parent, _newest_before(store, taker, epoch))
        trigger = msgspec.structs.replace(trigger, parent=parent)
        parts = dict(_acks(store, epoch, trigger))
        acks = tuple(dict.fromkeys(store.ack_path(epoch, task, trigger.attempt_id) for task in parts))
        return Remains(trigger, taker, False, False, parts, True,
                       (layout.trigger(epoch, trigger.attempt_id), *acks))  # fmt: skip
    for taker in reversed(store.attempts()):
        tasks = _tasks(store, epoch, taker.id)
        if tasks is not None:
            return Remains(_trigger_by(store, taker, epoch), taker, True, False, _by_task(tasks), True,
                           (layout.tasks_file(epoch, taker.id),))  # fmt: skip
    if epoch not in store.epoch_numbers():
        raise store.no_epoch(epoch)
    raise _beyond(store, epoch, "has lost its manifest and the list of its parts")


def has_remains(store: NativeStore, epoch: int) -> bool:
    """Whether a number that has a directory is or was an epoch, and not a fence alone."""
    if store.has_manifest(epoch) or store.has_trigger(epoch):
        return True
    folders = (entry.name for entry in store.storage.list(layout.epoch_dir(epoch)) if entry.size is None)
    return any(store.storage.size(layout.tasks_file(epoch, id)) is not None for id in folders if is_id(id))


def files_named(store: NativeStore, path: str) -> list[str]:
    """The files that an ack or a tasks file names, or that they lie in; none where it cannot be read."""
    where = f"{store.path}/{path}"
    try:
        if path.endswith("/tasks.json"):
            parts: tuple[PartFacts, ...] = unseal(store.storage.read(path), TasksFacts, where).parts
        else:
            parts = (unseal(store.storage.read(path), PartFacts, where),)
        for part in parts:
            check_facts(part, where)
    except FormatError:
        return []
    return [whole_file(file.path) for part in parts for file in files_of(part)]


def _beyond(store: NativeStore, epoch: int, reason: str) -> NoRecovery:
    return NoRecovery(f"epoch {epoch} cannot be repaired: it {reason}", path=store.path,
                      hint="plan without --strategy repair to take the job back to an epoch that is whole")  # fmt: skip


def _manifest(store: NativeStore, epoch: int) -> ManifestFacts | None:
    try:
        return store.manifest(epoch)
    except FormatError:
        return None


def _trigger(store: NativeStore, epoch: int) -> TriggerFacts | None:
    try:
        return store.trigger(epoch)
    except FormatError:
        return None


def _acks(store: NativeStore, epoch: int, trigger: TriggerFacts) -> Iterator[tuple[TaskId, PartFacts]]:
    for task in store.tasks(epoch):
        try:
            part = store.part(epoch, task, trigger.attempt_id)
        except Damaged:
            continue
        if part is not None:
            yield task, part


def _tasks(store: NativeStore, epoch: int, home: str) -> tuple[PartFacts, ...] | None:
    """The parts in a tasks file that holds its own digest; None if there is no such file."""
    path = layout.tasks_file(epoch, home)
    where = f"{store.path}/{path}"
    try:
        tasks = unseal(store.storage.read(path), TasksFacts, where)
        check_facts(tasks, where)
    except FormatError:
        return None
    return tasks.parts if tasks.epoch == epoch else None


def _by_task(parts: tuple[PartFacts, ...] | None) -> dict[TaskId, PartFacts]:
    return {part.task: part for part in parts or ()}


def _attempt(store: NativeStore, epoch: int, number: int, id: str) -> AttemptFacts:
    attempt = next((life for life in store.attempts() if (life.attempt, life.id) == (number, id)), None)
    if attempt is None:
        raise _beyond(store, epoch, f"was taken by attempt {number}, of which there is no record")
    return attempt


def _trigger_of(manifest: ManifestFacts) -> TriggerFacts:
    return TriggerFacts(
        epoch=manifest.epoch,
        parent=manifest.parent,
        attempt=manifest.attempt,
        generation=manifest.generation,
        policy=manifest.policy,
        topology_sha256=manifest.topology_sha256,
        triggered=manifest.triggered,
        attempt_id=manifest.attempt_id,
        **header(TriggerFacts),
    )


def _trigger_by(store: NativeStore, taker: AttemptFacts, epoch: int) -> TriggerFacts:
    """Of an epoch whose manifest is lost: as its attempt took all of its epochs, its parent being the one before."""
    # A number of which nothing is known was complete and removed, or was not copied: what it named is of this line.
    own = (n for n in range(epoch - 1, taker.first_epoch - 1, -1) if store.outcome_kind(n) is not AbortFacts)
    return TriggerFacts.of(taker, epoch, next(own, taker.parent), triggered=taker.started)


def _newest_before(store: NativeStore, taker: AttemptFacts, epoch: int) -> int:
    """The newest complete epoch of an attempt below one, or what the attempt went on from."""
    own = [n for n in store.epoch_numbers() if taker.first_epoch <= n < epoch and store.has_manifest(n)]
    return max(own, default=taker.parent)
