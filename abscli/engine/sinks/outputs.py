"""The sinks of a job, as the driver has them: who may write them, and what is published when.

Part files are staged next to the place where they become visible (`files`). To all other targets the driver delivers
rows (`delivered.deliveries`). All sinks are examined before any of them is changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from abscli.engine.errors import EngineStopped, UsageError
from abscli.engine.sinks.delivered.deliveries import Deliveries, DeliveryExamined
from abscli.engine.sinks.delivered.targets import folder_of_target
from abscli.engine.sinks.elsewhere import key_of, refused, waiting_elsewhere
from abscli.engine.sinks.examined import Examined
from abscli.engine.sinks.files import Files
from abscli.engine.sinks.permissions import Permissions
from abscli.engine.sinks.promises import NO_PROMISES, read_promises
from abscli.engine.telemetry.news import StaysWritten
from formats.ids import EpochId
from formats.job.model import Operator, Topology, as_sink
from formats.job.promises import is_delivered
from formats.native.facts import AttemptFacts, PartFacts
from formats.native.marks import note_published
from formats.native.store import NativeStore
from formats.storage import real_place


@dataclass(frozen=True, slots=True)
class SinksExamined:
    """The sinks of a job as an attempt found them."""

    files: Sequence[Examined] = ()
    deliveries: Sequence[DeliveryExamined] = ()

    def stays_written(self) -> Iterator[StaysWritten]:
        """Return what targets have that does not belong to the history and cannot be removed."""
        for one in self.deliveries:
            if one.found.foreign:
                epochs = tuple(sorted({epoch.number for epoch in one.found.foreign}))
                yield StaysWritten(one.target.operator, one.target.title, epochs)

    def covered(self, before: Mapping[str, str]) -> set[object]:
        """Return the keys of the parts that have been looked for. before: by sink, its id in the epoch of the parts."""
        covered: set[object] = {
            key_of(before.get(sink.operator, sink.operator), id, file)
            for sink in self.files
            for id, file in sink.wanted.due.items()
        }
        covered.update(place for one in self.deliveries for place in one.named)
        return covered


class Outputs:
    """The sinks of one attempt. `hold` them, `examine` them, `take` them, then `reveal` after every manifest.

    sinks_in: see `abscli.engine.job.JobOptions`.
    """

    def __init__(
        self, topology: Topology, directory: str, *, take_ownership: bool = False, accept_missing: bool = False,
        sinks_in: str | None = None,
    ) -> None:  # fmt: skip
        self._sinks: list[Operator] = [sink for op in topology.operators if (sink := as_sink(op)) is not None]
        in_files = [op for op in self._sinks if sinks_in is not None or not is_delivered(op)]
        delivered = [op for op in self._sinks if op not in in_files]
        self._permissions = Permissions(take_ownership, accept_missing)
        self._files = Files(in_files, directory, self._permissions, sinks_in)
        self._deliveries = Deliveries(delivered, topology.job, directory, self._permissions)
        self._places = [
            *self._files.places,
            *((op.id, place) for op in delivered if (place := folder_of_target(op, directory)) is not None),
        ]
        self._sinks_in = sinks_in

    def check_apart(self, store: str) -> None:
        """Raise UsageError for a sink inside the store, where `gc` would remove its output.

        store: path or URI.
        """
        root = real_place(store)
        for operator, place in self._places:
            if f"{real_place(place)}/".startswith(f"{root}/"):
                raise UsageError(
                    f"sink {operator}: {place} is inside the store, {store}",
                    hint="set the path of the sink to a directory outside the store",
                )

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Lock the sinks against every other job. Raises StoreInUse, naming the holder."""
        with self._files.hold(), self._deliveries.hold():
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
        before = {id: id for id, _ in self._files.places} if origins is None else origins
        deliveries = self._deliveries.examine(store, promises, parent, before)
        examined = SinksExamined(self._files.examine(store, promises, parent, before), deliveries)
        if store is not None and self._sinks_in is None and not self._permissions.accept_missing:
            for one in waiting_elsewhere(store, promises, parent, examined.covered(before)):
                raise refused(one, parent)
        return examined

    def take(self, examined: SinksExamined, store: NativeStore, attempt: AttemptFacts) -> None:
        """Claim every sink for the attempt, and make it show exactly what belongs to the attempt's parent."""
        self._deliveries.take(examined.deliveries, store, attempt)
        self._files.take(examined.files, store, attempt)

    def reveal(self, parts: Sequence[PartFacts]) -> None:
        """Publish the parts that a complete epoch names. This can be repeated without harm.

        Raises Overtaken if another attempt has taken a sink; Damaged if a part is missing or was replaced.
        """
        self._files.reveal(parts)
        self._deliveries.reveal(parts)

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
        return self._files.changed_meanwhile()
