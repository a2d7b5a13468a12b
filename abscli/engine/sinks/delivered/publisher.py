"""The publisher of all targets but folders and buckets: the driver delivers rows to them after each manifest. Rows wait
in the store, or in transactions that the target has prepared.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from abscli.engine.errors import EngineStopped, UsageError
from abscli.engine.sinks.contract import Compared, History, Ownership, Taken
from abscli.engine.sinks.delivered.asking import AskedTarget, ask_store, ask_target, delivery_of, how_undone
from abscli.engine.sinks.delivered.renamed import ids_of
from abscli.engine.sinks.delivered.targets import folder_of_target, marks_by_id, target_of
from abscli.engine.sinks.gaps import rows_missing
from abscli.engine.sinks.staged.contract import Delivery, StagedPartName
from abscli.engine.sinks.staged.refusals import commits_lost, foreign_commits, rows_lost
from abscli.planner.lineage import is_on
from abscli.planner.target import Comparison, HistoryFacts, compare
from abscli.protocol.committer import Obstacle
from formats.ids import EpochId
from formats.job.model import Operator
from formats.native.facts import PartFacts
from formats.native.marks import forget_written, note_written
from formats.native.sink import PartId
from formats.storage import Storage


class TargetPublisher:
    """The `Publisher` of a sink to whose target rows are delivered.

    job: its name.
    directory: of the job file.
    """

    def __init__(self, sink: Operator, job: str, directory: str) -> None:
        self._sink = sink
        self._job = job
        self._directory = directory
        self._target = target_of(sink, job, directory)
        self._held: contextlib.ExitStack | None = None
        self._storage: Storage | None = None
        self._ids: tuple[str, ...] = (sink.id,)
        self._found: Comparison[Delivery] | None = None
        self._history: HistoryFacts[Delivery] | None = None
        self._foreign: Sequence[EpochId] = ()
        self._left: set[EpochId] = set()
        self._is_noted = False

    @property
    def operator(self) -> str:
        """Return the id of the sink."""
        return self._sink.id

    @property
    def title(self) -> str:
        """Return what messages call the target."""
        return self._target.title

    @property
    def place(self) -> str | None:
        """Return where a table of files lies; None for other targets."""
        return folder_of_target(self._sink, self._directory)

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Keep every other job of this name from the target. Raises StoreInUse."""
        with contextlib.ExitStack() as self._held:
            self._held.enter_context(self._target.hold())
            yield

    def compare(self, history: History) -> Compared:
        """Compare the target with a history (rules T1 to T7); see `Publisher.compare`."""
        storage = history.store.storage if history.store is not None else None
        self._ids = ids_of(history.promises, self.operator, history.before)
        if len(self._ids) > 1 and marks_by_id(self._sink):
            self._target = target_of(self._sink, self._job, self._directory, self._ids)
            if self._held is not None:
                self._held.enter_context(self._target.hold())
        target = self._target
        for one in target.unmet(None):
            raise UsageError(f"sink {self.operator}: {one.message}", hint=one.hint)
        id = history.before.get(self.operator, self.operator)
        asked = AskedTarget(self._sink, target, storage, self._ids, id, self._directory, history.parent)
        facts = ask_target(asked, how_undone(asked))
        self._history, _ = ask_store(asked, history.promises, facts)
        self._found = found = compare(self._history, facts)
        self._foreign = found.foreign
        parts = (part.file for delivery in self._history.named for part in delivery.parts)
        keys = frozenset(file.staged or file.prepared or "" for file in parts)
        return Compared(self.title, found.due, self._obstacles(found), found.foreign, keys)

    def _obstacles(self, found: Comparison[Delivery]) -> dict[Obstacle, Exception]:
        obstacles: dict[Obstacle, Exception] = {}
        if found.undone is not None:
            obstacles[Obstacle.UNDONE] = UsageError(
                f"sink {self.operator}: {found.undone}",
                hint="restore the missing data; or use --take-ownership to resume with the target as it is: rows that "
                "are still in the store are written again, and the others are lost",
            )
        if found.foreign:
            obstacles[Obstacle.FOREIGN] = self._refusal(found.foreign)
        if found.gap is not None:
            obstacles[Obstacle.MISSING] = rows_missing(self.operator, self.title, found.gap)
        lost = ((delivery, part.file) for delivery in found.due for part in self._target.lost(delivery))
        if first := next(lost, None):
            delivery, file = first
            root = delivery.storage.root
            obstacles[Obstacle.LOST] = rows_lost(self.operator, self.title, delivery.epoch.number, file, root)
        return obstacles

    def _refusal(self, epochs: Sequence[EpochId]) -> UsageError:
        return foreign_commits(self.operator, self.title, max(epoch.number for epoch in epochs))

    def take(self, ownership: Ownership) -> Taken:
        """Take the target for an attempt, and ask it again."""
        assert self._found is not None
        assert self._history is not None
        store, target = ownership.store, self._target
        self._storage = store.storage
        target.take(ownership.attempt.id, self._foreign, min(store.epoch_numbers(), default=0))
        if self._found.undone is not None or (self._found.foreign and not target.remembers):
            for id in self._ids:
                forget_written(store.storage, id)
        # Whoever had it before may have written a last one in between; from here on it cannot.
        shown = target.markers()
        self._left |= {*self._foreign}
        self._foreign = [
            epoch for epoch in shown if not is_on(self._history.line, epoch) and epoch not in self._left
        ]
        unfinished = target.unfinished()
        on_line = [epoch for epoch in shown if is_on(self._history.line, epoch) and epoch not in unfinished]
        newest = max(on_line, key=lambda epoch: epoch.number) if on_line and target.remembers else None
        return Taken(self._refusal(self._foreign) if self._foreign else None, newest)

    def delivery(self, parts: Sequence[PartFacts]) -> Delivery | None:
        """Return what one manifest names of the sink; None if that is nothing."""
        assert self._storage is not None
        files = {PartId(part.attempt_id, file.name): file for part in parts for file in part.sink}
        return delivery_of(self._storage, max((part.epoch for part in parts), default=0), self.operator, files)

    def publish(self, delivery: Delivery, *, is_resumed: bool) -> EpochId | None:
        """Deliver rows; see `Publisher.publish`."""
        target = self._target
        if is_resumed:
            lost = target.lost(delivery)
            parts = tuple(part for part in delivery.parts if part not in lost)
            if not parts:
                return None
            delivery = Delivery(delivery.epoch, parts, delivery.storage)
        target.publish(delivery)
        if not target.remembers:
            note_written(delivery.storage, self.operator, delivery.epoch)
            return None
        if not self._is_noted:  # it is the same one for as long as the attempt has it
            self._is_noted = True
            if (identity := target.identity()) is not None:
                note_written(delivery.storage, self.operator, delivery.epoch, (target.title, identity))
        # A marker may have the epoch of a part, which is older than that of the manifest.
        return EpochId(delivery.epoch.attempt_id, max(part.id.epoch for part in delivery.parts))

    def verify(self, commit: EpochId) -> None:
        """Raise EngineStopped if the target has become an older copy of itself, as after a failover."""
        if not self._target.has(commit):
            raise commits_lost(self.operator, self.title, commit)

    def discard(self, goes: Callable[[StagedPartName], bool]) -> None:
        """Remove rows that wait in the target itself."""
        self._target.discard(goes)

    def changed_meanwhile(self, newest: EpochId | None) -> EngineStopped | None:
        """Return None: a server would have to be asked, which may be why the job ended."""
        return None
