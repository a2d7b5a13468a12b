"""Output: the parts of sinks that complete epochs name are there, and what is visible is named by one of them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from abscli.planner.lineage import Life, by_number, is_on, lives_of, maker
from abscli.report.findings import Code, Finding, StoreReport
from formats.errors import FormatError
from formats.ids import TaskId
from formats.native.facts import AttemptFacts, SinkFile
from formats.native.probe import FileProbe, Prober
from formats.native.sink import (
    PartId,
    SinkClaim,
    SinkFolder,
    Stretch,
    epoch_of_part,
)
from formats.native.store import NativeStore
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
    """What is in a sink's folder: visible, staged and superseded parts with their sizes, and the line they show.

    elsewhere: the store that took the sink last, where it is another one, of whose line this one is a copy.
    """

    path: str
    visible: Mapping[str, int]
    staged: Mapping[PartId, int]
    superseded: Mapping[PartId, int]
    showing: tuple[Stretch, ...]
    elsewhere: str | None = None

    def place(self, part: PartId) -> str | None:
        """Where a part lies, relative to the folder; None if it is nowhere."""
        if part.name in self.visible and is_on(self.showing, part.epoch):
            return part.name
        for id in (part, PartId("", part.name)):  # the second: as a store of version 1 left it
            if id in self.staged:
                return id.staged
        for id in (part, PartId("", part.name)):
            if id in self.superseded:
                return id.superseded
        return None


def with_output(
    store: NativeStore, report: StoreReport, prober: Prober, *, at_rest: bool
) -> tuple[StoreReport, Reasons]:
    """The report with what is to be said of sinks, and why some are not judged. Only the line that a sink shows is
    asked for: what was set aside of others is nobody's promise. at_rest: no job runs, so that nothing is about to be
    shown."""
    attempts, unknown = _attempts(store)
    by_path = _due(store, report, attempts)
    if not attempts:
        reason = f"which attempts made the output is not known: {unknown}"
        return _unchecked(report, {part.epoch: [reason] for parts in by_path.values() for part in parts})
    unjudged: dict[int, list[str]] = {}
    beyond: dict[int, list[str]] = {}
    for path, due in sorted(by_path.items()):
        look = _look(os.path.join(attempts[-1].directory, path), store, attempts)
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
            if below is not None and (later := [n for n in look.visible if epoch_of_part(n) >= below]):
                beyond.setdefault(report.epochs[-1].epoch, []).append(
                    f"{path} shows {len(later)} parts of later epochs of {look.elsewhere}, of which this is a copy"
                )
            strangers = tuple(check_strangers(look, named, _sure_above(store, look.showing, report), below))
            report = msgspec.structs.replace(report, findings=(*report.findings, *strangers))
    report, why = _unchecked(report, unjudged)
    report, why_more = _unchecked(report, beyond, Code.SINK_PART_UNNAMED)
    return report, {epoch: why.get(epoch, {}) | why_more.get(epoch, {}) for epoch in (why | why_more)}


def check_parts_shown(
    look: SinkLook, due: Iterable[Due], probes: Mapping[str, FileProbe]
) -> Iterable[tuple[int, Finding]]:
    """Every part that an epoch names is visible, or waits to be. probes: by place; empty where only sizes are asked."""
    for part in due:
        place = look.place(part.id)
        where = os.path.join(look.path, place or part.file.name)
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
    for name in sorted(look.visible):
        epoch = epoch_of_part(name)
        if below is not None and epoch >= below:
            continue
        id = maker(look.showing, epoch)
        if id is None or (epoch > sure_above and PartId(id, name) not in named):
            message = "is visible, and no epoch of the line that the sink shows names it: its rows may be there twice"
            yield Finding(Code.SINK_PART_UNNAMED, None, None, os.path.join(look.path, name), message)


def _attempts(store: NativeStore) -> tuple[list[AttemptFacts], str]:
    """The lives of the job, ascending; of none, why they are not known."""
    try:
        return store.attempts(), "none is recorded"
    except FormatError as error:
        return [], str(error)


def _due(store: NativeStore, report: StoreReport, attempts: list[AttemptFacts]) -> dict[str, list[Due]]:
    """The parts that complete epochs name, by the path of their sink."""
    ids = {a.attempt: a.id for a in attempts}
    due: dict[str, list[Due]] = {}
    for epoch in (row.epoch for row in report.epochs if row.verdict in (Status.COMPLETE, Status.DAMAGED)):
        try:
            parts = store.parts(epoch)
        except FormatError:
            continue
        for part in (part for part in parts if part.sink):
            task = part.task
            for file in part.sink:
                id = PartId(part.attempt_id or ids.get(part.attempt, ""), file.name)
                due.setdefault(os.path.normpath(file.directory), []).append(Due(epoch, task, id, file))
    return due


def _look(path: str, store: NativeStore, attempts: list[AttemptFacts]) -> SinkLook | str:
    """What is in the folder, or why that says nothing about this store."""
    if not os.path.isdir(path):
        return f"{path} is not there: the sink is looked for where the job file was when the job ran last"
    folder = SinkFolder(path)
    try:
        # In the order in which a part moves: what is shown meanwhile is seen at least once.
        staged, superseded, claim = folder.staged(), folder.superseded(), folder.newest_claim()
        visible = folder.visible()
    except FormatError as error:
        return f"what {path} says of itself cannot be read: {error}"
    if claim is not None and claim.attempt_id not in {attempt.id for attempt in attempts}:
        return f"{path} shows the output of another store now, {claim.store}"
    lives = lives_of(attempts, store.is_fenced)
    own = os.path.realpath(store.path)
    elsewhere = claim.store if claim is not None and os.path.realpath(claim.store) != own else None
    return SinkLook(path, visible, staged, superseded, _showing(claim, lives), elsewhere)


def _showing(claim: SinkClaim | None, lives: list[Life]) -> tuple[Stretch, ...]:
    return claim.line if claim is not None else by_number(lives)


def _probes(look: SinkLook, due: Iterable[Due], prober: Prober) -> dict[str, FileProbe]:
    """Sizes, and digests unless the prober is quick, by place in the folder."""
    files = {
        place: FileFacts(place, part.file.bytes, part.file.rows, part.file.sha256)
        for part in due
        if (place := look.place(part.id)) is not None
    }
    return prober.beside(SinkFolder(look.path).storage).probe(files.values())


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
