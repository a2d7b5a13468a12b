"""The sinks to which the driver delivers rows after each manifest: who may write them, what has to be delivered when an
attempt begins, and what after each manifest. Rows wait in the store, or in transactions that the target has prepared.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from abscli.engine.errors import UsageError
from abscli.engine.sinks.delivered.asking import AskedTarget, ask_store, ask_target, delivery_of, how_undone
from abscli.engine.sinks.delivered.renamed import ids_of
from abscli.engine.sinks.delivered.targets import marks_by_id, target_of
from abscli.engine.sinks.delivered_epochs import DeliveredEpochs
from abscli.engine.sinks.gaps import rows_missing
from abscli.engine.sinks.permissions import Permissions
from abscli.engine.sinks.promises import Promises
from abscli.engine.sinks.staged.contract import Delivery, StagedPartName, Target
from abscli.engine.sinks.staged.refusals import foreign_commits, rows_lost
from abscli.planner.lineage import is_on
from abscli.planner.target import Comparison, HistoryFacts, compare
from formats.ids import EpochId
from formats.job.model import Operator
from formats.native.facts import AttemptFacts, PartFacts
from formats.native.marks import forget_written, note_written
from formats.native.sink import PartId
from formats.native.store import NativeStore
from formats.storage import Storage


@dataclass(frozen=True, slots=True)
class DeliveryExamined:
    """A sink's target as an attempt found it.

    found: what it must get, and what stands against it.
    history: what the store says of it.
    ids: of the sink, as of `ids_of`.
    kept: the transactions that any manifest of the store names.
    """

    target: Target
    found: Comparison[Delivery]
    history: HistoryFacts[Delivery]
    ids: tuple[str, ...]
    kept: frozenset[str]

    @property
    def named(self) -> frozenset[str]:
        """Return the files or transactions of all rows that the history names for this target."""
        parts = (part for delivery in self.history.named for part in delivery.parts)
        return frozenset(part.file.staged or part.file.prepared or "" for part in parts)


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
        storage = store.storage if store is not None else None
        id = before.get(target.operator, target.operator)
        asked = AskedTarget(op, target, storage, ids, id, self._directory, parent)
        undone = how_undone(asked)
        if undone is not None and not self._permissions.take_ownership:
            raise UsageError(
                f"sink {target.operator}: {undone}",
                hint="restore the missing data; or use --take-ownership to resume with the target as it is: rows that "
                "are still in the store are written again, and the others are lost",
            )
        facts = ask_target(asked, undone)
        history, _ = ask_store(asked, promises, facts)
        found = compare(history, facts)
        self._may_leave(target, found.foreign)
        if found.gap is not None and not self._permissions.accept_missing:
            raise rows_missing(target.operator, target.title, found.gap)
        for delivery in found.due if undone is None and not self._permissions.accept_missing else ():
            for part in target.lost(delivery):
                root = delivery.storage.root
                raise rows_lost(target.operator, target.title, delivery.epoch.number, part.file, root)
        kept = frozenset(file.prepared for files in promises.named.values() for file in files if file.prepared)
        return DeliveryExamined(target, found, history, ids, kept)

    def _may_leave(self, target: Target, beyond: Sequence[EpochId]) -> None:
        if beyond and not self._permissions.take_ownership:
            raise foreign_commits(target.operator, target.title, max(epoch.number for epoch in beyond))

    def take(self, examined: Sequence[DeliveryExamined], store: NativeStore, attempt: AttemptFacts) -> None:
        """Write to every target what leads to the attempt's parent."""
        self._storage, self._newest, self._attempt_id = store.storage, attempt.parent, attempt.id
        oldest = min(store.epoch_numbers(), default=0)
        older = {life.id for life in store.attempts() if life.attempt < attempt.attempt}
        for one in examined:
            one.target.take(attempt.id, one.found.foreign, oldest)
            if one.found.undone is not None or (one.found.foreign and not one.target.remembers):
                for id in one.ids:
                    forget_written(store.storage, id)
            # Whoever had it before may have written a last one in between; from here on it cannot.
            shown = one.target.shown()
            beyond = [epoch for epoch in shown if not is_on(one.history.line, epoch)]
            if late := [epoch for epoch in beyond if epoch not in one.found.foreign]:
                self._may_leave(one.target, late)
                one.target.take(attempt.id, late, oldest)
            unfinished = one.target.unfinished()
            on_line = [epoch for epoch in shown if is_on(one.history.line, epoch) and epoch not in unfinished]
            if on_line and one.target.remembers:
                self._delivered.note(one.target.operator, max(on_line, key=lambda epoch: epoch.number))
            for delivery in one.found.due:
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
