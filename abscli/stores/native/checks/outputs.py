"""Output: the parts of sinks that complete epochs name are there, and what is visible is named by one of them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from abscli.engine.sinks.places import place_of
from abscli.planner.lineage import Life, by_number, is_on, lives_of, maker
from abscli.planner.settlement import with_makers
from abscli.report.findings import Code, Finding, StoreReport
from abscli.stores.native.checks import deliveries, tables
from abscli.stores.native.uploads import left_uploads
from formats.errors import FormatError
from formats.ids import TaskId
from formats.native.facts import AttemptFacts, SinkFile
from formats.native.probe import FileProbe, Prober
from formats.native.sink import (
    PartId,
    SinkClaim,
    SinkFolder,
    Stretch,
)
from formats.native.sink_bucket import SinkBucket, bucket_place, is_bucket
from formats.native.store import NativeStore
from formats.storage import Storage, real_place
from formats.view import FileFacts, Status

Reasons = dict[int, dict[str, str]]
"""Why output is not checked: epoch -> code -> reason, as `abscli.stores.registry.Checked` has them."""


@dataclass(frozen=True, slots=True)
class Due:
    """A part that a complete epoch names.

    epoch: the epoch that names it.
    task: the sink's task that wrote it.
    id: the attempt that wrote it, and its name.
    file: where it was written, and its size and digest.
    """

    epoch: int
    task: TaskId
    id: PartId
    file: SinkFile


@dataclass(frozen=True, slots=True)
class SinkLook:
    """What is in a sink's place: staged and superseded parts with their sizes, and the line that it shows.

    visible: the names of what readers see, by part; the id is "" of one that no attempt of the line can have made.
    again: names under which parts are visible a second time.
    waiting: the ids of uploads that are open, by part.
    elsewhere: the store that took the sink last, where it is another one, of whose line this one is a copy.
    """

    path: str
    storage: Storage
    visible: Mapping[PartId, str]
    staged: Mapping[PartId, int]
    superseded: Mapping[PartId, int]
    showing: tuple[Stretch, ...]
    elsewhere: str | None = None
    again: Sequence[str] = ()
    waiting: Mapping[PartId, Collection[str]] = field(default_factory=dict)

    def place(self, part: PartId) -> str | None:
        """Where a part lies, relative to the sink's place; None if it is nowhere."""
        if part in self.visible:
            return self.visible[part]
        for id in (part, PartId("", part.name)):  # the second: as a store of version 1 left it
            if id in self.staged:
                return id.staged
        for id in (part, PartId("", part.name)):
            if id in self.superseded:
                return id.superseded
        return None

    def is_uploaded(self, part: Due) -> bool:
        """Whether it waits as an upload."""
        return part.file.upload is not None and part.file.upload.id in self.waiting.get(part.id, ())


def with_output(
    store: NativeStore, report: StoreReport, prober: Prober, *, at_rest: bool
) -> tuple[StoreReport, Reasons]:
    """The report with what is to be said of sinks, and why some are not judged. Only the line that a sink shows is
    asked for: what was set aside of others is nobody's promise. at_rest: no job runs, so that nothing is about to be
    shown."""
    attempts, unknown = _attempts(store)
    by_path, in_tables = _due(store, report, attempts)
    if not attempts:
        reason = f"which attempts made the output is not known: {unknown}"
        return _unchecked(report, {part.epoch: [reason] for parts in by_path.values() for part in parts})
    unjudged: dict[int, list[str]] = {}
    beyond: dict[int, list[str]] = {}
    for path, due in sorted(by_path.items()):
        look = _look(place_of(attempts[-1].directory, path), store, attempts)
        if isinstance(look, str):
            for epoch in {part.epoch for part in due}:
                unjudged.setdefault(epoch, []).append(look)
            continue
        on_line = [part for part in due if maker(look.showing, part.epoch) == part.id.attempt_id]
        report = _accused(
            report, check_parts_shown(look, on_line, _probes(look, on_line, prober)), look.showing
        )
        if at_rest and len(report.epochs) > 1:
            # The folder may have had another name when an older epoch named a part: it is the operator that counts.
            operators = {part.task.operator for part in due}
            named = {part.id for parts in by_path.values() for part in parts if part.task.operator in operators}
            below = None if look.elsewhere is None else store.highest_number() + 1
            if below is not None and (later := [part for part in look.visible if part.epoch.number >= below]):
                beyond.setdefault(report.epochs[-1].epoch, []).append(
                    f"{path} shows {len(later)} parts of later epochs of {look.elsewhere}, of which this is a copy"
                )
            strangers = tuple(check_strangers(look, named, _sure_above(store, look.showing, report), below))
            report = msgspec.structs.replace(report, findings=(*report.findings, *strangers))
    for epoch, problem in tables.check_tables(store, in_tables):
        if isinstance(problem, str):
            unjudged.setdefault(epoch, []).append(problem)
        else:
            report = _accused(report, [(epoch, problem)], by_number(lives_of(attempts, store.is_fenced)))
    if at_rest:
        left = (*_uploads_left(store), *tables.transactions_left(store), *deliveries.rows_waiting(store))
        report = msgspec.structs.replace(report, findings=(*report.findings, *left))
    report, why = _unchecked(report, unjudged)
    report, why_more = _unchecked(report, beyond, Code.SINK_PART_UNNAMED)
    return report, {epoch: why.get(epoch, {}) | why_more.get(epoch, {}) for epoch in (why | why_more)}


def check_parts_shown(
    look: SinkLook, due: Iterable[Due], probes: Mapping[str, FileProbe]
) -> Iterable[tuple[int, Finding]]:
    """Every part that an epoch names is visible, or waits to be. probes: by place; empty where only sizes are asked."""
    for part in due:
        place = look.place(part.id)
        if place is None and look.is_uploaded(part):
            continue
        where = os.path.join(look.path, place or part.file.object)
        probe = probes.get(place or "")
        size = probe.size if probe else None
        if place is None:
            message = f"an output part of {part.file.rows} rows is neither visible nor staged"
        elif probe is not None and probe.error is not None:
            message = f"an output part cannot be read: {probe.error}"
        elif size != part.file.bytes:
            message = f"an output part has {size} bytes, {part.file.bytes} were written"
        elif probe is not None and probe.sha256 not in (None, part.file.sha256):
            message = f"an output part has SHA-256 {probe.sha256[:12]}…, {part.file.sha256[:12]}… was written"
        else:
            continue
        yield part.epoch, Finding(Code.SINK_PART_MISSING, part.task, None, where, message)


def check_strangers(
    look: SinkLook, named: Collection[PartId], sure_above: int, below: int | None = None
) -> Iterable[Finding]:
    """Every visible part is one that an epoch names, as far as all epochs that could are there. below: of a copy, the
    number above all of its own; what the store that it is a copy of has taken since is not judged."""
    for part, name in sorted(look.visible.items(), key=lambda shown: shown[1]):
        epoch = part.epoch.number
        if below is not None and epoch >= below:
            continue
        if not is_on(look.showing, part.epoch) or (epoch > sure_above and part not in named):
            message = "is visible, and no epoch of the line that the sink shows names it: its rows may be there twice"
            yield Finding(Code.SINK_PART_UNNAMED, None, None, os.path.join(look.path, name), message)
    for name in look.again:
        message = "is visible, and its part is so under another name as well: its rows are there twice"
        yield Finding(Code.SINK_PART_UNNAMED, None, None, os.path.join(look.path, name), message)


def _uploads_left(store: NativeStore) -> Iterator[Finding]:
    """Uploads that nobody will complete; none where it is not known what may."""
    message = "an upload that no epoch names: the attempt that began it has ended"
    with contextlib.suppress(FormatError, OSError):
        for upload in left_uploads(store):
            yield Finding(Code.UPLOAD_LEFT, None, None, upload.uri, message)


def _attempts(store: NativeStore) -> tuple[list[AttemptFacts], str]:
    """The lives of the job, ascending; of none, why they are not known."""
    try:
        return store.attempts(), "none is recorded"
    except FormatError as error:
        return [], str(error)


def _due(
    store: NativeStore, report: StoreReport, attempts: list[AttemptFacts]
) -> tuple[dict[str, list[Due]], dict[str, list[tables.Due]]]:
    """The parts that complete epochs name, by the path of their sink; and those in tables, by sink."""
    ids = {a.attempt: a.id for a in attempts}
    due: dict[str, list[Due]] = {}
    in_tables: dict[str, list[tables.Due]] = {}
    for epoch in (row.epoch for row in report.epochs if row.verdict in (Status.COMPLETE, Status.DAMAGED)):
        try:
            parts = store.parts(epoch)
        except FormatError:
            continue
        for part in (part for part in parts if part.sink):
            task = part.task
            for file in part.sink:
                if file.staged is not None:
                    continue  # a file of the epoch, which is checked with all others
                if file.prepared is not None:
                    in_tables.setdefault(part.operator, []).append((epoch, task, file))
                    continue
                id = PartId(part.attempt_id or ids.get(part.attempt, ""), file.name)
                place = bucket_place(file.directory) if is_bucket(file.directory) else os.path.normpath(file.directory)
                due.setdefault(place, []).append(Due(epoch, task, id, file))
    return due, in_tables


def _look(path: str, store: NativeStore, attempts: list[AttemptFacts]) -> SinkLook | str:
    """What is in a sink's place, or why that says nothing about this store."""
    if not is_bucket(path) and not os.path.isdir(path):
        return f"{path} is not there: the sink is looked for where the job file was when the job ran last"
    place = SinkBucket(path) if is_bucket(path) else SinkFolder(path)
    lives = lives_of(attempts, store.is_fenced)
    staged: Mapping[PartId, int] = {}
    waiting: Mapping[PartId, Collection[str]] = {}
    again: list[str] = []
    try:
        # In the order in which a part moves: what is shown meanwhile is seen at least once.
        if isinstance(place, SinkBucket):
            waiting, superseded, claim = place.waiting(), place.superseded(), place.newest_claim()
            visible: dict[PartId, str] = {}
            for shown in place.shown():
                again += [visible[shown.part]] if shown.part in visible else []
                visible[shown.part] = shown.object
        else:
            staged, superseded, claim = place.staged(), place.superseded(), place.newest_claim()
            names = place.visible()
            visible = {part: part.name for part in with_makers(names, _showing(claim, lives))}
    except FormatError as error:
        return f"what {path} says of itself cannot be read: {error}"
    except OSError as error:
        return f"{path} cannot be read: {error.strerror or error}"
    if claim is not None and claim.attempt_id not in {attempt.id for attempt in attempts}:
        return f"{path} shows the output of another store now, {claim.store}"
    elsewhere = claim.store if claim is not None and real_place(claim.store) != real_place(store.path) else None
    return SinkLook(
        path, place.storage, visible, staged, superseded, _showing(claim, lives), elsewhere, again, waiting
    )


def _showing(claim: SinkClaim | None, lives: list[Life]) -> tuple[Stretch, ...]:
    return claim.line if claim is not None else by_number(lives)


def _probes(look: SinkLook, due: Iterable[Due], prober: Prober) -> dict[str, FileProbe]:
    """Sizes, and digests unless the prober is quick, by place in the folder."""
    files = {
        place: FileFacts(place, part.file.bytes, part.file.rows, part.file.sha256)
        for part in due
        if (place := look.place(part.id)) is not None
    }
    return prober.beside(look.storage).probe(files.values())


def _sure_above(store: NativeStore, showing: tuple[Stretch, ...], report: StoreReport) -> int:
    """Above this epoch all that the sink's line consists of are still there and could be read."""
    complete = {row.epoch for row in report.epochs if row.verdict in (Status.COMPLETE, Status.DAMAGED)}
    epoch = max((n for n in complete if maker(showing, n) is not None), default=0)
    with contextlib.suppress(FormatError):
        while epoch in complete:
            store.parts(epoch)
            epoch = store.manifest(epoch).parent
    return epoch


def _accused(
    report: StoreReport, findings: Iterable[tuple[int, Finding]], showing: tuple[Stretch, ...]
) -> StoreReport:
    """The report with findings that take away from epochs: neither they nor what came after them on the line that is
    shown can be restored without a loss."""
    by_epoch: dict[int, list[Finding]] = {}
    for epoch, finding in findings:
        by_epoch.setdefault(epoch, []).append(finding)
    if not by_epoch:
        return report
    epochs = tuple(
        msgspec.structs.replace(row, verdict=Status.DAMAGED, findings=(*row.findings, *by_epoch[row.epoch]))
        if row.epoch in by_epoch
        else row
        for row in report.epochs
    )
    oldest = min(by_epoch)
    restorable = tuple(n for n in report.restorable if n < oldest or maker(showing, n) is None)
    return msgspec.structs.replace(report, epochs=epochs, restorable=restorable)


def _unchecked(
    report: StoreReport, unjudged: Mapping[int, Sequence[str]], code: Code = Code.SINK_PART_MISSING
) -> tuple[StoreReport, Reasons]:
    """The report without a word on output of these epochs, and the reasons, of which a sink has one each."""
    rows = tuple(
        msgspec.structs.replace(row, unchecked=(*row.unchecked, code))
        if row.epoch in unjudged
        else row
        for row in report.epochs
    )
    reasons = {epoch: {str(code): "; ".join(unjudged[epoch])} for epoch in sorted(unjudged)}
    return msgspec.structs.replace(report, epochs=rows), reasons
