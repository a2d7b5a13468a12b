"""The output that complete epochs name, by sink, and what a check of one target says of it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from abscli.planner.lineage import Life, lives_of
from abscli.report.findings import Code, Finding, SinkVerdict, StoreReport
from abscli.stores.native.targets import newest_id
from formats.errors import FormatError
from formats.ids import TaskId
from formats.job.model import Operator
from formats.job.promises import is_delivered
from formats.native.facts import AttemptFacts, ManifestFacts, PartFacts, SinkFile
from formats.native.sink import PartId, Stretch
from formats.native.store import NativeStore
from formats.view import Status

COMPLETED = (Status.COMPLETE, Status.DAMAGED)
"""The verdicts of epochs that have a manifest."""


class Way(Enum):
    """How the rows of a part reach the target."""

    FILE = "a file or an object that is renamed or completed"
    DELIVERED = "written or committed by the driver after the manifest"


def way_of(sink: Operator) -> Way:
    """Return how the rows of a sink reach its target."""
    return Way.DELIVERED if is_delivered(sink) else Way.FILE


@dataclass(frozen=True, slots=True)
class NamedPart:
    """A part of a sink's output that a complete epoch names.

    epoch: the epoch that names it.
    task: the sink's task that wrote it.
    id: the attempt that wrote it, and its name.
    file: where it was written, and its size and digest.
    """

    epoch: int
    task: TaskId
    id: PartId
    file: SinkFile

    @property
    def way(self) -> Way:
        """How its rows reach the target."""
        return Way.FILE if self.file.staged is None and self.file.prepared is None else Way.DELIVERED


@dataclass(frozen=True, slots=True)
class NamedOutput:
    """The output that the checked epochs of a store name.

    report: the verdicts on these epochs.
    attempts: ascending.
    by_sink: by the id that the sink has in the newest epoch.
    at_rest: the whole store is checked and no job runs on it, so that no output is about to be published.
    """

    store: NativeStore
    report: StoreReport
    attempts: Sequence[AttemptFacts]
    by_sink: Mapping[str, Sequence[NamedPart]]
    at_rest: bool

    @property
    def lives(self) -> list[Life]:
        """The attempts that have epochs of their own."""
        return lives_of(self.attempts, self.store.is_fenced)

    @property
    def completed(self) -> set[int]:
        """The epochs that have a manifest."""
        return {row.epoch for row in self.report.epochs if row.verdict in COMPLETED}


@dataclass(frozen=True, slots=True)
class SinkFindings:
    """What the check of one target says.

    of_epochs: findings that take away from the epoch that names the rows.
    history: the epochs that the target has, by attempt; an epoch outside of it cannot be judged by the target.
    of_store: findings that concern no epoch.
    unchecked: epoch, code, and the reason why that could not be checked.
    unasked: the verdict and the reason where the target was not, or could not be, asked at all.
    """

    of_epochs: Sequence[tuple[int, Finding]] = ()
    history: Sequence[Stretch] = ()
    of_store: Sequence[Finding] = ()
    unchecked: Sequence[tuple[int, Code, str]] = ()
    unasked: tuple[SinkVerdict, str] | None = None


@dataclass(frozen=True, slots=True)
class SinkParts:
    """The parts of sinks that epochs name, gathered while the epochs are checked.

    by_epoch: an epoch whose parts could not be read is missing.
    moved: the old id of an operator -> its new one, as manifests say it.
    """

    by_epoch: dict[int, tuple[PartFacts, ...]] = field(default_factory=dict)
    moved: dict[str, str] = field(default_factory=dict)

    def add(self, manifest: ManifestFacts, parts: Sequence[PartFacts] | None) -> None:
        """Add an epoch. parts: None if they could not be read."""
        self.moved.update(manifest.moved)
        if parts is not None:
            self.by_epoch[manifest.epoch] = tuple(part for part in parts if part.sink)

    @classmethod
    def read(cls, store: NativeStore, report: StoreReport) -> SinkParts:
        """Read the parts that the epochs of a report name."""
        sinks = cls()
        for epoch in (row.epoch for row in report.epochs if row.verdict in COMPLETED):
            with contextlib.suppress(FormatError):  # the check of the epoch reports it
                sinks.add(store.manifest(epoch), store.parts(epoch))
        return sinks

    def by_sink(self, report: StoreReport) -> dict[str, list[NamedPart]]:
        """Group the parts that complete epochs name by the newest id of their sink."""
        named: dict[str, list[NamedPart]] = {}
        for epoch in (row.epoch for row in report.epochs if row.verdict in COMPLETED):
            for part in self.by_epoch.get(epoch, ()):
                for file in part.sink:
                    id = PartId(part.attempt_id, file.name)
                    sink = newest_id(part.operator, self.moved)
                    named.setdefault(sink, []).append(NamedPart(epoch, part.task, id, file))
        return named
