"""The sinks to which the driver delivers rows after each manifest: who may write them, what has to be delivered when an
attempt begins, and what after each manifest. Rows wait in the store, or in transactions that the target has prepared.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from abscli.engine.errors import UsageError
from abscli.engine.sinks.delivered.renamed import ids_of
from abscli.engine.sinks.delivered.targets import marks_by_id, target_of, title_of
from abscli.engine.sinks.delivered_epochs import DeliveredEpochs
from abscli.engine.sinks.gaps import find_gap, records_of, rows_missing
from abscli.engine.sinks.permissions import Permissions
from abscli.engine.sinks.places import place_of
from abscli.engine.sinks.promises import Promises
from abscli.engine.sinks.staged.contract import Delivery, StagedPart, StagedPartName, Target
from abscli.engine.sinks.staged.refusals import foreign_commits, rows_lost
from abscli.planner.lineage import is_on, stretches
from formats.ids import EpochId
from formats.job.model import Operator
from formats.native.facts import AttemptFacts, CommittedFacts, PartFacts, SinkFile
from formats.native.marks import forget_written, note_written, target_written, written
from formats.native.sink import PartId, Stretch, epoch_of_part, task_of_part
from formats.native.store import NativeStore
from formats.native.transactions import Transaction
from formats.storage import Storage


@dataclass(frozen=True, slots=True)
class DeliveryExamined:
    """A sink's target as an attempt found it.

    due: what manifests of the line name and it does not show, in their order.
    beyond: what it shows that is not of the line.
    line: newest stretch first.
    ids: of the sink, as of `ids_of`.
    named: where the rows wait that manifests of the line name for this target.
    kept: the transactions that any manifest of the store names.
    undone: how it has lost what it had.
    """

    target: Target
    due: tuple[Delivery, ...]
    beyond: tuple[EpochId, ...]
    line: tuple[Stretch, ...]
    ids: tuple[str, ...]
    named: frozenset[str]
    kept: frozenset[str]
    undone: str | None


class Deliveries:
    """The targets of one attempt to which the driver delivers rows.

    job: its name.
    directory: of the job file.
    """

    def __init__(self, sinks: Sequence[Operator], job: str, directory: str, permissions: Permissions) -> None:
        self._sinks = sinks
        self._job = job
        self._directory = directory
        self._targets = {op.id: target_of(op, job, directory) for op in sinks}
        self._held: contextlib.ExitStack | None = None
        self._permissions = permissions
        self._storage: Storage | None = None
        self._newest = 0
        self._attempt_id = ""
        self._delivered = DeliveredEpochs()
        self._noted: set[str] = set()

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Keep every other job of this name from these targets meanwhile; StoreInUse where one has them."""
        with contextlib.ExitStack() as self._held:
            for target in self._targets.values():
                self._held.enter_context(target.hold())
            yield

    def examine(
        self, store: NativeStore | None, promises: Promises, parent: int, before: Mapping[str, str]
    ) -> list[DeliveryExamined]:
        """What has to be written to every target, so that it shows what leads to epoch `parent`; nothing is changed.

        before: by sink, its id in that epoch, as far as it was there. UsageError for a target that shows what is not of
        the line; Damaged where rows are missing that it does not show.
        """
        return [self._examine(op, store, promises, parent, before) for op in self._sinks]

    def _target(self, op: Operator, ids: tuple[str, ...]) -> Target:
        """That of a sink with these ids, which is held if those of the job are."""
        if len(ids) > 1 and marks_by_id(op):
            self._targets[op.id] = target_of(op, self._job, self._directory, ids)
            if self._held is not None:
                self._held.enter_context(self._targets[op.id].hold())
        return self._targets[op.id]

    def _examine(
        self, op: Operator, store: NativeStore | None, promises: Promises, parent: int, before: Mapping[str, str]
    ) -> DeliveryExamined:
        ids = ids_of(promises, op.id, before)
        target = self._target(op, ids)
        target.check()
        undone = target.undone(_identity(target, store.storage, ids) if store is not None else None)
        if undone is not None and not self._permissions.take_ownership:
            raise UsageError(
                f"sink {target.operator}: {undone}",
                hint="restore the missing data; or use --take-ownership to resume with the target as it is: rows that "
                "are still in the store are written again, and the others are lost",
            )
        line = tuple(stretches(promises.lives, parent)) if parent else ()
        shown = shown_by(target, store.storage if store is not None else None, ids)
        beyond = tuple(epoch for epoch in shown if not is_on(line, epoch))
        self._may_leave(target, beyond)
        id = before.get(target.operator, target.operator)
        has_shown = target.remembers and any(is_on(line, epoch) for epoch in shown)
        is_own = matches_target(op, self._directory, promises.committed.get(parent, ()), id, has_shown)
        named: list[Delivery] = []
        if store is not None:
            named = [one for one in deliveries_of(store.storage, promises, parent, id) if is_own(one.directory)]
        due = still_due(target, named, shown, line)
        if target.remembers and undone is None and not self._permissions.accept_missing:
            oldest_due = due[0].epoch.number if due else None
            records = records_of(promises, parent, id, is_own)
            gap = find_gap(records, parent, oldest_due, line, shown, target.has)
            if gap is not None:
                raise rows_missing(target.operator, target.title, gap)
        for delivery in due if undone is None and not self._permissions.accept_missing else ():
            for part in target.lost(delivery):
                root = delivery.storage.root
                raise rows_lost(target.operator, target.title, delivery.epoch.number, part.file, root)
        places = frozenset(part.file.staged or part.file.prepared or "" for one in named for part in one.parts)
        kept = frozenset(file.prepared for files in promises.named.values() for file in files if file.prepared)
        return DeliveryExamined(target, tuple(due), beyond, line, ids, places, kept, undone)

    def _may_leave(self, target: Target, beyond: Sequence[EpochId]) -> None:
        if beyond and not self._permissions.take_ownership:
            raise foreign_commits(target.operator, target.title, max(epoch.number for epoch in beyond))

    def take(self, examined: Sequence[DeliveryExamined], store: NativeStore, attempt: AttemptFacts) -> None:
        """Write to every target what leads to the attempt's parent."""
        self._storage, self._newest, self._attempt_id = store.storage, attempt.parent, attempt.id
        oldest = min(store.epoch_numbers(), default=0)
        older = {life.id for life in store.attempts() if life.attempt < attempt.attempt}
        for one in examined:
            one.target.take(attempt.id, one.beyond, oldest)
            if one.undone is not None or (one.beyond and not one.target.remembers):
                for id in one.ids:
                    forget_written(store.storage, id)
            # Whoever had it before may have written a last one in between; from here on it cannot.
            shown = one.target.shown()
            beyond = [epoch for epoch in shown if not is_on(one.line, epoch)]
            if late := [epoch for epoch in beyond if epoch not in one.beyond]:
                self._may_leave(one.target, late)
                one.target.take(attempt.id, late, oldest)
            on_line = [epoch for epoch in shown if is_on(one.line, epoch)]
            if on_line and one.target.remembers:
                self._delivered.note(one.target.operator, max(on_line, key=lambda epoch: epoch.number))
            for delivery in one.due:
                self._apply(one.target, delivery)
            one.target.discard(partial(_is_abandoned, older=older, first_epoch=attempt.first_epoch, named=one.kept))

    def reveal(self, parts: Sequence[PartFacts]) -> None:
        """Deliver the rows of the parts that a complete epoch names. This can be repeated without harm."""
        newest = max((part.epoch for part in parts), default=self._newest)

        def is_lost(part: StagedPartName) -> bool:
            # It is of a process that was lost since: its replacement has made the rows again.
            return part.id.attempt_id == self._attempt_id and part.id.epoch <= newest

        for operator, target in self._targets.items():
            assert self._storage is not None
            mine = [part for part in parts if part.operator == operator]
            files = {PartId(part.attempt_id, file.name): file for part in mine for file in part.sink}
            delivery = delivery_of(self._storage, max((part.epoch for part in mine), default=0), operator, files)
            fresh = delivery.behind(self._newest) if delivery is not None else None
            if fresh is not None:
                self._write(target, fresh)
            target.discard(is_lost)
        self._newest = newest

    def _apply(self, target: Target, delivery: Delivery) -> None:
        lost = target.lost(delivery)
        parts = tuple(part for part in delivery.parts if part not in lost)
        if parts:
            self._write(target, Delivery(delivery.epoch, parts, delivery.storage))

    def _write(self, target: Target, delivery: Delivery) -> None:
        """Apply a delivery; EngineStopped if the target has lost the rows of the one before."""
        self._delivered.check(target.operator, target.title, target.has)
        target.apply(delivery)
        if target.remembers:  # a marker may have the epoch of a part, which is older than that of the manifest
            newest = max(part.id.epoch for part in delivery.parts)
            self._delivered.note(target.operator, EpochId(delivery.epoch.attempt_id, newest))
        if not target.remembers:
            note_written(delivery.storage, target.operator, delivery.epoch)
        elif target.operator not in self._noted:
            # It is the same one for as long as the attempt has it.
            self._noted.add(target.operator)
            if (identity := target.identity()) is not None:
                note_written(delivery.storage, target.operator, delivery.epoch, (target.title, identity))


def _is_abandoned(part: StagedPartName, *, older: Collection[str], first_epoch: int, named: Collection[str]) -> bool:
    """Tell whether no manifest can name rows any more that wait in a target.

    older: the ids of the store's older attempts.
    first_epoch: of the attempt that takes the target. A copy of the store may have gone on further: what it has staged
    there has higher numbers.
    named: the rows that manifests of the store name.
    """
    return part.id.attempt_id in older and part.id.epoch < first_epoch and part.name not in named


def _identity(target: Target, storage: Storage, ids: Sequence[str]) -> str | None:
    """Which one of its name the target was when the sink wrote there last; None where that is not known. ids: of the
    sink."""
    return next((one for id in ids if (one := target_written(storage, id, target.title)) is not None), None)


def matches_target(
    op: Operator, directory: str, committed: Sequence[CommittedFacts], id: str, has_shown: bool
) -> Callable[[str], bool]:
    """Return a predicate: whether a target's name in a manifest is a name of the sink's current target.

    If the target has rows of the history and no record has its name, it is the sink's previous target, which was moved
    or is spelled differently. All names match then.

    directory: of the job file.
    committed: the records of the epoch from which the job resumes.
    id: the sink's id in that epoch.
    has_shown: whether the target has rows of the history.
    """
    title, has_path = title_of(op), "path" in (op.connector or {})

    def is_for(made_for: str) -> bool:
        return made_for == title or (has_path and place_of(directory, made_for) == place_of(directory, title))

    is_known = any(one.operator == id and is_for(one.target) for one in committed)
    return (lambda made_for: True) if has_shown and not is_known else is_for


def shown_by(target: Target, storage: Storage | None, ids: Sequence[str]) -> list[EpochId]:
    """What a target shows, as far as it or the store knows. storage: the store, None where there is none yet. ids: of
    the sink."""
    if target.remembers or storage is None:
        return target.shown()
    return [epoch for id in ids if (epoch := written(storage, id)) is not None]


def deliveries_of(storage: Storage, promises: Promises, parent: int, operator: str) -> list[Delivery]:
    """What manifests of the line of `parent` name, as far as they are there, oldest first. operator: the sink's id in
    that epoch."""
    named: list[Delivery] = []
    epoch = parent
    while epoch in promises.parts:
        delivery = delivery_of(storage, epoch, operator, promises.parts[epoch].get(operator, {}))
        named += [delivery] if delivery is not None else []
        operator = promises.origins.get(epoch, {}).get(operator, operator)
        epoch = promises.parents[epoch]
    return named[::-1]


def delivery_of(
    storage: Storage, epoch: int, operator: str, files: Mapping[PartId, SinkFile]
) -> Delivery | None:
    """What one manifest names of a sink; None where that is nothing."""
    parts = sorted(
        StagedPart(Transaction(id.attempt_id, epoch_of_part(id.name), task_of_part(id.name), operator), file)
        for id, file in files.items()
        if file.staged is not None or file.prepared is not None
    )
    return Delivery(EpochId(parts[0].id.attempt_id, epoch), tuple(parts), storage) if parts else None


def undelivered(named: Sequence[Delivery], shown: Sequence[EpochId], line: Sequence[Stretch]) -> list[Delivery]:
    """Those that a target does not show: deliveries come in their order and as a whole, so all above the newest that it
    shows of the line. An older one is not written again: what has come since would be written over."""
    newest = max((epoch.number for epoch in shown if is_on(line, epoch)), default=0)
    due = []
    for delivery in named:
        if delivery.epoch.number > newest:
            due.append(delivery.behind(newest))
            newest = delivery.epoch.number
    return [delivery for delivery in due if delivery is not None]


def still_due(
    target: Target, named: Sequence[Delivery], shown: Sequence[EpochId], line: Sequence[Stretch]
) -> list[Delivery]:
    """Return the deliveries that a target does not have, or has only in part.

    Single markers may have expired, so it is asked for each delivery that its markers do not show.
    named, shown, line: see `undelivered`.
    """
    unfinished = target.unfinished()
    due = undelivered(named, [epoch for epoch in shown if epoch not in unfinished], line)

    def is_there(delivery: Delivery) -> bool:
        is_whole = unfinished.isdisjoint(part.id.made_for for part in delivery.parts)
        return target.remembers and is_whole and target.has(delivery.epoch)

    return [delivery for delivery in due if not is_there(delivery)]
