"""The sinks of a job, as the driver has them: for each a `Committer`, which decides, and a `Publisher`, which acts."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from abscli.engine.errors import EngineStopped, UsageError
from abscli.engine.sinks.contract import Compared, History, Ownership, Publisher
from abscli.engine.sinks.delivered.publisher import TargetPublisher
from abscli.engine.sinks.delivered.targets import title_of
from abscli.engine.sinks.elsewhere import refused, waiting_elsewhere
from abscli.engine.sinks.examined import Examined
from abscli.engine.sinks.file_publisher import FilePublisher
from abscli.engine.sinks.places import folder_of
from abscli.engine.sinks.promises import NO_PROMISES, read_promises
from abscli.engine.sinks.staged.contract import Delivery, StagedPartName
from abscli.engine.telemetry.news import StaysWritten
from abscli.engine.waits import Doing, StepTimer, Wait
from abscli.protocol.committer import (
    AttemptBegun,
    Committer,
    CommitterStage,
    DiscardAbandoned,
    DiscardUnnamed,
    Event,
    ManifestWritten,
    Obstacle,
    Permissions,
    Publish,
    Refuse,
    RowsPublished,
    Take,
    TargetAsked,
    TargetTaken,
    VerifyCommit,
)
from formats.ids import EpochId
from formats.job.model import Operator, Topology, as_sink
from formats.job.promises import is_delivered
from formats.native.facts import AttemptFacts, PartFacts
from formats.native.marks import note_published
from formats.native.store import NativeStore
from formats.storage import real_place


@dataclass(frozen=True, slots=True)
class SinksExamined:
    """The sinks of a job as an attempt found them.

    compared: by sink.
    files: those that write part files.
    kept: the transactions that any manifest of the store names.
    """

    compared: Mapping[str, Compared]
    files: Sequence[Examined]
    kept: frozenset[str]

    def stays_written(self) -> Iterator[StaysWritten]:
        """Return what targets have that does not belong to the history and cannot be removed."""
        for operator, one in self.compared.items():
            if one.foreign:
                epochs = tuple(sorted({epoch.number for epoch in one.foreign}))
                yield StaysWritten(operator, one.title, epochs)

    def covered(self) -> frozenset[object]:
        """Return the keys of the parts that have been looked for."""
        return frozenset().union(*(one.keys for one in self.compared.values()))


NO_SINKS = SinksExamined({}, (), frozenset())
NO_ERRORS: Mapping[Obstacle, Exception] = {}


@dataclass(frozen=True, slots=True)
class SinkSteps:
    """Time the steps of one sink on the driver.

    operator: its id.
    target: what messages call its target.
    """

    operator: str
    target: str
    timer: StepTimer

    def ask(self) -> AbstractContextManager[None]:
        """Time a question to the target, or taking it."""
        return self.timer.run(Wait(self.operator, Doing.ASK, self.target))

    def publish(self, delivery: Delivery) -> AbstractContextManager[None]:
        """Time the publication of rows."""
        rows = sum(part.file.rows for part in delivery.parts)
        return self.timer.run(Wait(self.operator, Doing.PUBLISH, self.target, delivery.epoch.number, rows))


class AttemptSink:
    """One sink of an attempt: tells its committer what happens, and carries out the answers.

    steps: times what is done at the target.
    """

    def __init__(self, publisher: Publisher, permissions: Permissions, steps: SinkSteps) -> None:
        self.publisher = publisher
        self._permissions = permissions
        self._steps = steps
        self._committer: Committer[Delivery] = Committer(permissions)
        self._ownership: Ownership | None = None

    def compare(self, history: History) -> Compared:
        """Compare the target with a history. Raises the error of the first obstacle that is not permitted (D1)."""
        self._committer = Committer(self._permissions)
        with self._steps.ask():
            compared = self.publisher.compare(history)
        asked = TargetAsked(history.parent, compared.due, frozenset(compared.obstacles))
        self._on(asked, compared.obstacles)
        return compared

    def take(self, ownership: Ownership) -> None:
        """Take the target for an attempt, and publish pending rows (D2, D3)."""
        self._ownership = ownership
        self._on(AttemptBegun())

    def publish(self, epoch: int, parts: Sequence[PartFacts]) -> None:
        """Publish what the manifest of an epoch names (D4 to D6). parts: all of this sink's."""
        self._on(ManifestWritten(epoch, self.publisher.delivery(parts)))

    def changed_meanwhile(self) -> EngineStopped | None:
        """See `Publisher.changed_meanwhile`."""
        return self.publisher.changed_meanwhile(self._committer.newest)

    def _on(self, event: Event[Delivery], errors: Mapping[Obstacle, Exception] = NO_ERRORS) -> None:
        """Tell the committer of an event, and of those that follow from its answers. errors: for refusals."""
        events = deque([event])
        while events:
            self._committer, actions = self._committer.on(events.popleft())
            for action in actions:
                match action:
                    case Refuse(obstacle):
                        raise errors[obstacle]
                    case Take():
                        assert self._ownership is not None
                        with self._steps.ask():
                            taken = self.publisher.take(self._ownership)
                        errors = {} if taken.refusal is None else {Obstacle.FOREIGN: taken.refusal}
                        events.append(TargetTaken(taken.refusal is not None, taken.newest))
                    case VerifyCommit(commit):
                        with self._steps.ask():
                            self.publisher.verify(commit)
                    case Publish(delivery):
                        is_resumed = self._committer.stage is CommitterStage.STARTING
                        with self._steps.publish(delivery):
                            newest = self.publisher.publish(delivery, is_resumed=is_resumed)
                        events.append(RowsPublished(newest))
                    case DiscardAbandoned():
                        with self._steps.ask():
                            self.publisher.discard(self._abandoned())
                    case DiscardUnnamed(epoch):
                        with self._steps.ask():
                            self.publisher.discard(self._unnamed(epoch))

    def _abandoned(self) -> Callable[[StagedPartName], bool]:
        assert self._ownership is not None
        older = {life.id for life in self._ownership.older}
        first, named = self._ownership.attempt.first_epoch, self._ownership.kept
        return partial(_is_abandoned, older=older, first_epoch=first, named=named)

    def _unnamed(self, epoch: int) -> Callable[[StagedPartName], bool]:
        assert self._ownership is not None
        id = self._ownership.attempt.id
        return lambda part: part.id.attempt_id == id and part.id.epoch <= epoch


def _is_abandoned(part: StagedPartName, *, older: Collection[str], first_epoch: int, named: Collection[str]) -> bool:
    """Tell whether no manifest can name rows any more that wait in a target.

    older: the ids of the store's older attempts.
    first_epoch: of the attempt that takes the target. Rows that a copy of the store has staged since have higher
    numbers.
    named: the rows that manifests of the store name.
    """
    return part.id.attempt_id in older and part.id.epoch < first_epoch and part.name not in named


class Outputs:
    """The sinks of one attempt. `hold` them, `examine` them, `take` them, then `publish` after every manifest.

    sinks_in: see `abscli.engine.job.JobOptions`.
    timer: times what is done at the targets.
    """

    def __init__(
        self, topology: Topology, directory: str, *, take_ownership: bool = False, accept_missing: bool = False,
        sinks_in: str | None = None, timer: StepTimer | None = None,
    ) -> None:  # fmt: skip
        self._sinks: list[Operator] = [sink for op in topology.operators if (sink := as_sink(op)) is not None]
        self._permissions = Permissions(take_ownership, accept_missing)
        self._sinks_in = sinks_in
        in_files = [op for op in self._sinks if sinks_in is not None or not is_delivered(op)]
        folders = {op.id: folder_of(op, directory, sinks_in) for op in in_files}
        self._by_sink: dict[str, AttemptSink] = {}
        timer = StepTimer() if timer is None else timer
        for op in self._sinks:
            publisher: Publisher
            if op.id in folders:
                others = {folder for id, folder in folders.items() if id != op.id}
                publisher = FilePublisher(op, directory, folders[op.id], others)
            else:
                publisher = TargetPublisher(op, topology.job, directory)
            steps = SinkSteps(op.id, folders[op.id] if op.id in folders else title_of(op), timer)
            self._by_sink[op.id] = AttemptSink(publisher, self._permissions, steps)

    def check_apart(self, store: str) -> None:
        """Raise UsageError for a sink inside the store, where `gc` would remove its output.

        store: path or URI.
        """
        root = real_place(store)
        for operator, one in self._by_sink.items():
            place = one.publisher.place
            if place is not None and f"{real_place(place)}/".startswith(f"{root}/"):
                raise UsageError(
                    f"sink {operator}: {place} is inside the store, {store}",
                    hint="set the path of the sink to a directory outside the store",
                )

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Lock the sinks against every other job. Raises StoreInUse, naming the holder."""
        with contextlib.ExitStack() as stack:
            for one in self._by_sink.values():
                stack.enter_context(one.publisher.hold())
            yield

    def examine(
        self, store: NativeStore | None, parent: int, origins: Mapping[str, str] | None = None
    ) -> SinksExamined:
        """Compare every sink with the history that leads to epoch `parent`; nothing is changed.

        store: None if it does not exist yet.
        origins: the ids that operators had in that epoch; None if all are the same.
        Raises UsageError if a target has foreign commits; Damaged if rows of the history are missing.
        """
        promises = read_promises(store) if store is not None and (self._sinks or parent > 0) else NO_PROMISES
        before = {op.id: op.id for op in self._sinks} if origins is None else origins
        history = History(store, promises, parent, before)
        compared = {operator: one.compare(history) for operator, one in self._by_sink.items()}
        files = [
            one.publisher.examined for one in self._by_sink.values()
            if isinstance(one.publisher, FilePublisher) and one.publisher.examined is not None
        ]  # fmt: skip
        kept = frozenset(file.prepared for named in promises.named.values() for file in named if file.prepared)
        examined = SinksExamined(compared, files, kept)
        if store is not None and self._sinks_in is None and not self._permissions.accept_missing:
            for waiting in waiting_elsewhere(store, promises, parent, examined.covered()):
                raise refused(waiting, parent)
        return examined

    def take(self, examined: SinksExamined, store: NativeStore, attempt: AttemptFacts) -> None:
        """Make every target the attempt's, and make it show exactly what belongs to the attempt's parent."""
        older = [life for life in store.attempts() if life.attempt < attempt.attempt]
        for one in self._by_sink.values():
            one.take(Ownership(store, attempt, older, examined.kept))

    def publish(self, parts: Sequence[PartFacts]) -> Mapping[str, float]:
        """Publish the parts that a complete epoch names, and return the seconds that each sink took.

        This can be repeated without harm.
        Raises Overtaken if another attempt has taken a sink; Damaged if a part is missing or was replaced.
        """
        seconds: dict[str, float] = {}
        if not parts:
            return seconds
        epoch, by_operator = max(part.epoch for part in parts), dict[str, list[PartFacts]]()
        for part in parts:
            by_operator.setdefault(part.operator, []).append(part)
        for operator, one in self._by_sink.items():
            began = time.monotonic()
            one.publish(epoch, by_operator.get(operator, []))
            seconds[operator] = time.monotonic() - began
        return seconds

    def note_published(self, store: NativeStore, epoch: int) -> None:
        """Note in the store that all rows which lead to a complete epoch are published, at the end of a run.

        A sink may be given another target after that: see `elsewhere`.
        """
        if epoch == 0 or self._sinks_in is not None:
            return
        id = EpochId(store.manifest(epoch).attempt_id, epoch)
        for sink in self._sinks:
            note_published(store.storage, sink.id, id)

    def changed_meanwhile(self) -> EngineStopped | None:
        """Return the error for a folder or bucket that another attempt has taken over, or that became an older copy of
        itself; None if there is none."""
        return next((error for one in self._by_sink.values() if (error := one.changed_meanwhile()) is not None), None)
