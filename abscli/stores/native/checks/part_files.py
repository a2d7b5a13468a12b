"""Part files: the files or objects that complete epochs name are there, and every visible one is named by an epoch."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from abscli.engine.sinks.gaps import FilesOfSink, find_gap_in_files, records_of
from abscli.engine.sinks.places import place_of
from abscli.engine.sinks.promises import read_promises
from abscli.planner.lineage import Life, by_number, is_on, line, maker
from abscli.planner.settlement import with_makers
from abscli.planner.target import Gap
from abscli.report.findings import Code, Finding, SinkVerdict
from abscli.stores.native.checks.named_parts import NamedOutput, NamedPart, SinkFindings, Way
from abscli.stores.native.uploads import left_uploads
from formats.errors import FormatError
from formats.ids import EpochId
from formats.job.model import Operator
from formats.native.probe import FileProbe, Prober
from formats.native.sink import PartId, SinkClaim, SinkFolder, Stretch
from formats.native.sink_bucket import SinkBucket, is_bucket
from formats.storage import Storage, real_place
from formats.view import FileFacts


@dataclass(frozen=True, slots=True)
class SinkLook:
    """What is in a sink's place: staged and superseded parts with their sizes, and the line that it shows.

    visible: the names of what readers see, by part; the id is "" of one that no attempt of the line can have made.
    again: names under which parts are visible a second time.
    waiting: the ids of uploads that are open, by part.
    elsewhere: the store that took the sink last, where it is another one, of whose line this one is a copy.
    markers: commit markers.
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
    markers: Sequence[EpochId] = ()

    def place(self, part: PartId) -> str | None:
        """Where a part lies, relative to the sink's place; None if it is nowhere."""
        if part in self.visible:
            return self.visible[part]
        if part in self.staged:
            return part.staged
        return part.superseded if part in self.superseded else None

    def is_uploaded(self, part: NamedPart) -> bool:
        """Whether it waits as an upload."""
        return part.file.upload is not None and part.file.upload.id in self.waiting.get(part.id, ())

    def has(self, part: NamedPart) -> bool:
        """Whether a part is here, wherever it lies."""
        return self.place(part.id) is not None or self.is_uploaded(part)


def check_files(output: NamedOutput, id: str, sink: Operator, directory: str, prober: Prober) -> SinkFindings:
    """Check the folder, or the place in a bucket, that a sink of the job file writes to.

    Only parts of the history that the target has are asked for: parts that were set aside with another branch are
    promised to nobody. id: of the sink in the newest epoch; directory: of the job file.
    """
    path = place_of(directory, (sink.connector or {})["path"])
    named = [part for part in output.by_sink.get(id, ()) if part.way is Way.FILE]
    look = _look(path, output)
    if isinstance(look, str):
        return SinkFindings(
            unchecked=[(epoch, Code.SINK_PART_MISSING, look) for epoch in sorted({part.epoch for part in named})],
            unasked=(SinkVerdict.UNKNOWN, look),
        )
    in_history = [part for part in named if maker(look.showing, part.epoch) == part.id.attempt_id]
    here = [part for part in in_history if _is_for(part, path, directory) or look.has(part)]
    elsewhere = {part.epoch: part.file.directory for part in in_history if part not in here}
    unchecked = [
        (epoch, Code.SINK_PART_MISSING, f"sink {id} wrote to {place} then, and the job file names {path}")
        for epoch, place in elsewhere.items()
    ]
    missing = list(check_parts_shown(look, here, _probes(look, here, prober)))
    if output.at_rest and not missing and (gap := _gap(output, id, look, directory)) is not None:
        epoch, lacks = gap
        missing.append((epoch, Finding(Code.SINK_PART_MISSING, None, None, path, f"the folder lacks {lacks}")))
    of_store: list[Finding] = []
    if output.at_rest and output.report.epochs:
        below = None if look.elsewhere is None else output.store.highest_number() + 1
        if below is not None and (later := [part for part in look.visible if part.epoch.number >= below]):
            reason = f"{path} shows {len(later)} parts of later epochs of {look.elsewhere}, of which this is a copy"
            unchecked.append((output.report.epochs[-1].epoch, Code.UNREFERENCED_SINK_PART, reason))
        sure = _sure_above(output, look.showing)
        of_store += check_strangers(look, {part.id for part in named}, sure, below)
        try:
            of_store += _uploads_left(output, path)
        except (FormatError, OSError) as error:
            reason = f"uploads to {path} could not be listed: {error}"
            unchecked.append((output.report.epochs[-1].epoch, Code.ABANDONED_UPLOAD, reason))
    return SinkFindings(of_epochs=missing, history=look.showing, of_store=of_store, unchecked=unchecked)


def _gap(output: NamedOutput, id: str, look: SinkLook, directory: str) -> tuple[int, Gap] | None:
    """Return rows of pruned epochs that the place lacks, and the newest epoch of its history."""
    try:
        promises = read_promises(output.store)
    except FormatError:
        return None  # a finding of its own says what cannot be read
    newest = line(promises.lives, promises.parts)[:1]
    if not newest:
        return None
    records = records_of(promises, newest[0], id, lambda target: place_of(directory, target) == look.path)
    there = {*look.visible, *look.staged, *look.superseded, *look.waiting}
    files = FilesOfSink(look.markers, look.showing, there, there - look.visible.keys())
    gap = find_gap_in_files(promises, newest[0], id, records, files)
    return None if gap is None else (newest[0], gap)


def _is_for(part: NamedPart, path: str, directory: str) -> bool:
    """Whether a part was written for this place; a relative path is one from the job file. Compares names alone: what
    the store names is not looked at."""
    return place_of(directory, part.file.directory) == path


def check_parts_shown(
    look: SinkLook, due: Iterable[NamedPart], probes: Mapping[str, FileProbe]
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
            message = "is visible, but no epoch of the sink's history names it: its rows may be duplicates"
            yield Finding(Code.UNREFERENCED_SINK_PART, None, None, os.path.join(look.path, name), message)
    for name in look.again:
        message = "is visible, and its part is so under another name as well: its rows are there twice"
        yield Finding(Code.UNREFERENCED_SINK_PART, None, None, os.path.join(look.path, name), message)


def _uploads_left(output: NamedOutput, path: str) -> Iterator[Finding]:
    """Report uploads to a bucket that nobody will complete. Raises FormatError or OSError if they cannot be listed."""
    message = "an upload that no epoch names: the attempt that began it has ended"
    for upload in left_uploads(output.store, [path]):
        yield Finding(Code.ABANDONED_UPLOAD, None, None, upload.uri, message)


def _look(path: str, output: NamedOutput) -> SinkLook | str:
    """Look at a sink's place. Returns why that says nothing about this store, where it does not."""
    if not is_bucket(path) and not os.path.isdir(path):
        return f"{path} is missing"
    lives = output.lives
    staged: Mapping[PartId, int] = {}
    waiting: Mapping[PartId, Collection[str]] = {}
    again: list[str] = []
    try:
        place = SinkBucket(path) if is_bucket(path) else SinkFolder(path)
        # In the order in which a part moves: a part that is published meanwhile is seen at least once.
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
        markers = place.markers()
    except FormatError as error:
        return f"what {path} says of itself cannot be read: {error}"
    except OSError as error:
        return f"{path} cannot be read: {error.strerror or error}"
    if claim is not None and claim.attempt_id not in {attempt.id for attempt in output.attempts}:
        return f"{path} shows the output of another store now, {claim.store}"
    is_copy = claim is not None and real_place(claim.store) != real_place(output.store.path)
    return SinkLook(
        path, place.storage, visible, staged, superseded, _showing(claim, lives),
        claim.store if claim is not None and is_copy else None, again, waiting, markers,
    )  # fmt: skip


def _showing(claim: SinkClaim | None, lives: list[Life]) -> tuple[Stretch, ...]:
    return claim.line if claim is not None else by_number(lives)


def _probes(look: SinkLook, due: Iterable[NamedPart], prober: Prober) -> dict[str, FileProbe]:
    """Sizes, and digests unless the prober is quick, by place in the folder."""
    files = {
        place: FileFacts(place, part.file.bytes, part.file.rows, part.file.sha256)
        for part in due
        if (place := look.place(part.id)) is not None
    }
    return prober.beside(look.storage, files.values())


def _sure_above(output: NamedOutput, showing: tuple[Stretch, ...]) -> int:
    """Return the epoch above which all manifests of the target's history are there and could be read."""
    complete = output.completed
    epoch = max((n for n in complete if maker(showing, n) is not None), default=0)
    with contextlib.suppress(FormatError):
        while epoch in complete:
            output.store.parts(epoch)
            epoch = output.store.manifest(epoch).parent
    return epoch
