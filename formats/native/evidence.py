"""What a native store says of itself, gathered for validation: facts as read, and what could not be read, and why.

Nothing here raises because of what a file holds, except UnsupportedVersion: a newer format is not damage.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

from formats.errors import Damaged, FormatError, NotFound, UnsupportedVersion
from formats.ids import TaskId
from formats.job.expand import task_ids
from formats.job.model import Topology
from formats.native import layout
from formats.native.fact_files import MAX_FACTS
from formats.native.facts import (
    AbortFacts,
    AttemptFacts,
    FenceFacts,
    ManifestFacts,
    PartFacts,
    StoreFacts,
    TagFacts,
    TriggerFacts,
)
from formats.native.probe import FileProbe, Prober
from formats.native.store import NativeStore, files_of, is_native
from formats.storage import Storage, walk
from formats.storage.ranges import range_of, whole_file
from formats.view import FileFacts, Status

T = TypeVar("T")


class Problem(msgspec.Struct, frozen=True):
    """A fact file that could not be read.

    code: of the findings of interface `abs.validate`.
    """

    code: str
    path: str
    message: str
    task: TaskId | None = None


class EpochEvidence(msgspec.Struct, frozen=True):
    """All that is known of one epoch.

    status: from which files there are alone.
    files: tasks file and topology, as the manifest names them.
    parts: None where they could not be read.
    probes: by path, of `files` and of every file that a part names.
    packs: of an open epoch, in which its acks are.
    outcome: the file that says what became of it.
    home: the id of the attempt whose work it is, "" where that is not known.
    """

    epoch: int
    status: Status
    manifest: ManifestFacts | None = None
    trigger: TriggerFacts | None = None
    reason: str | None = None
    topology: Topology | None = None
    files: tuple[FileFacts, ...] = ()
    parts: tuple[PartFacts, ...] | None = None
    probes: dict[str, FileProbe] = {}
    problems: tuple[Problem, ...] = ()
    packs: tuple[str, ...] = ()
    quick: bool = False
    outcome: str | None = None
    home: str = ""

    @property
    def has_manifest(self) -> bool:
        """Whether it was complete once, whatever became of it."""
        return self.status in (Status.COMPLETE, Status.DAMAGED)

    @property
    def head(self) -> ManifestFacts | TriggerFacts | None:
        """What names the parent, the generation and the policy."""
        return self.manifest or self.trigger

    def paths(self) -> Iterator[str]:
        """Every file that the epoch accounts for."""
        if self.outcome is not None:
            yield self.outcome
        if self.home and not self.has_manifest:
            yield layout.trigger(self.epoch, self.home)
        yield from (file.path for file in self.files)
        for part in self.parts or ():
            yield from (whole_file(file.path) for file in files_of(part))
        yield from self.packs


class StoreEvidence(msgspec.Struct, frozen=True):
    """What is known of the store apart from its epochs.

    files: the names of all there was when the look began.
    fences: the paths of those at numbers under which no epoch had begun.
    recoveries: the paths of the records of live recoveries, readable or not.
    tags: those that could be read.
    """

    readable: bool
    attempts: tuple[AttemptFacts, ...]
    files: tuple[str, ...]
    problems: tuple[Problem, ...]
    fences: tuple[str, ...] = ()
    recoveries: tuple[str, ...] = ()
    tags: tuple[TagFacts, ...] = ()


class _Notes:
    """Reads facts and notes what could not be read."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def read(
        self, reader: Callable[[], T], path: str, code: str = "unreadable", task: TaskId | None = None
    ) -> T | None:
        try:
            return reader()
        except UnsupportedVersion:
            raise
        except NotFound as error:
            missing = code if code == "manifest-unreadable" else "missing-file"
            self.problems.append(Problem(missing, path, error.message, task))
        except FormatError as error:
            self.problems.append(Problem(code, path, error.message, task))
        except OSError as error:
            self.problems.append(Problem(code, path, error.strerror or str(error), task))
        return None


def open_for_validation(storage: Storage) -> tuple[NativeStore, tuple[Problem, ...]]:
    """A store whose own fact file may be damaged or gone: the epochs behind it are worth knowing all the more."""
    try:
        return NativeStore(storage), ()
    except Damaged as error:
        problem = Problem("unreadable", layout.STORE, error.message)
    except NotFound:
        if not is_native(storage):
            raise
        problem = Problem("missing-file", layout.STORE, "is not there: nothing says whose store this is")
    nameless = StoreFacts(schema="", version="", job="", created="")
    return NativeStore(storage, facts=nameless), (problem,)


def store_evidence(
    store: NativeStore, problems: tuple[Problem, ...] = (), attempt: int | None = None
) -> StoreEvidence:
    """The store's own facts, attempts and job graphs, and the names of all files; to be called before the epochs are
    read (see `lasting_files`). attempt: look at the record of this one alone, and list nothing."""
    notes = _Notes()
    notes.problems += problems
    if attempt is None:
        files = tuple(entry.name for entry in walk(store.storage) if not entry.name.startswith(f"{layout.ASIDE}/"))
    else:
        files = (layout.attempt(attempt),) if store.storage.size(layout.attempt(attempt)) is not None else ()
    attempts = [
        record
        for name in files
        if name.startswith(f"{layout.ATTEMPTS}/")
        and (record := notes.read(functools.partial(store.attempt, name), name)) is not None
    ]
    recoveries = tuple(name for name in files if name.startswith(f"{layout.RECOVERIES}/"))
    for name in recoveries:
        notes.read(functools.partial(store.recovery, name), name)
    tags = tuple(
        tag for path in store.tag_paths() if (tag := notes.read(functools.partial(store.tag, path), path)) is not None
    ) if attempt is None else ()  # fmt: skip
    graphs = {name for name in files if name.startswith("topologies/")}
    for name in sorted(graphs):
        sha256 = name.removeprefix("topologies/").removesuffix(".json")
        notes.read(functools.partial(store.topology_by_digest, sha256), name, "digest-mismatch")
    for life in attempts if attempt is None else ():
        if (graph := layout.topology(life.topology_sha256)) not in graphs:
            message = f"attempt {life.attempt} ran this job graph, which is not there"
            notes.problems.append(Problem("topology-missing", graph, message))
    fences = [n for n in store.fences() if not store.has_trigger(n)] if attempt is None else []
    for number in fences:
        notes.read(functools.partial(store.fence, number), layout.outcome(number))
    paths = tuple(layout.outcome(number) for number in fences)
    return StoreEvidence(not problems, tuple(attempts), files, tuple(notes.problems), paths, recoveries, tags)


def lasting_files(store: NativeStore, evidence: StoreEvidence) -> Iterator[str]:
    """The files that were there before the epochs were read and still are; those that a running job writes or removes
    meanwhile are nobody's fault."""
    now = {entry.name for entry in walk(store.storage)}
    yield from (name for name in evidence.files if name in now)


def epoch_evidence(store: NativeStore, epoch: int, prober: Prober) -> EpochEvidence | None:
    """All that can be known of one epoch; None if a job that runs has removed it meanwhile."""
    if store.has_manifest(epoch):
        notes = _Notes()
        manifest = notes.read(lambda: store.manifest(epoch), layout.outcome(epoch), "manifest-unreadable")
        evidence = _evidence(store, epoch, prober, notes, Status.COMPLETE, manifest=manifest)
        return evidence if store.has_manifest(epoch) else None
    evidence = _open_evidence(store, epoch, prober)
    if store.has_manifest(epoch):  # it became complete while it was being read
        return epoch_evidence(store, epoch, prober)
    return evidence if store.has_trigger(epoch) else None


def _open_evidence(store: NativeStore, epoch: int, prober: Prober) -> EpochEvidence:
    notes = _Notes()
    trigger = notes.read(lambda: store.trigger(epoch), layout.trigger(epoch, store.home(epoch) or ""))
    path, kind = layout.outcome(epoch), store.outcome_kind(epoch)
    given_up = notes.read(lambda: store.aborted(epoch), path)
    if kind is FenceFacts:
        notes.read(lambda: store.fence(epoch), path)
        status = Status.INCOMPLETE
    elif kind is AbortFacts:
        status = Status.ABORTED
    else:
        running = trigger is not None and trigger.attempt == store.running_attempt()
        status = Status.IN_PROGRESS if running else Status.INCOMPLETE
    reason = given_up.reason if given_up else None
    return _evidence(store, epoch, prober, notes, status, trigger=trigger, reason=reason)


def _evidence(
    store: NativeStore,
    epoch: int,
    prober: Prober,
    notes: _Notes,
    status: Status,
    *,
    manifest: ManifestFacts | None = None,
    trigger: TriggerFacts | None = None,
    reason: str | None = None,
) -> EpochEvidence:
    head = manifest or trigger
    topology, parts = None, None
    files: list[FileFacts] = []
    probes: dict[str, FileProbe] = {}
    packs = tuple(store.pack_paths(epoch, trigger.attempt_id)) if trigger is not None else ()
    if head is not None:
        graph = FileFacts(layout.topology(head.topology_sha256), None, None, head.topology_sha256)
        files = [graph] if manifest is None else [graph, manifest.tasks_file]
        # Read whole even by a quick look: what stands in these decides which other files are looked for.
        probes = prober.probe(files, quick=False, most=MAX_FACTS)
        if _sound(probes, graph):
            topology = notes.read(lambda: store.topology(epoch), graph.path)
        if manifest is None:
            parts = _acked(store, epoch, topology, notes, head.attempt_id)
        elif _sound(probes, manifest.tasks_file):
            parts = notes.read(lambda: store.parts(epoch), manifest.tasks_file.path)
        named = [file for part in parts or () for file in files_of(part)]
        widths = _widths(topology, parts)
        probes |= prober.probe(named, widths=widths)
        _look_into_packs(store, named, probes, prober, notes, packs)
    return EpochEvidence(
        epoch=epoch,
        status=status,
        manifest=manifest,
        trigger=trigger,
        reason=reason,
        topology=topology,
        files=tuple(files),
        parts=parts,
        probes=probes,
        problems=tuple(notes.problems),
        packs=packs,
        quick=prober.quick,
        outcome=layout.outcome(epoch) if store.has_outcome(epoch) else None,
        home=manifest.attempt_id if manifest else store.home(epoch) or "",
    )


def _look_into_packs(
    store: NativeStore,
    named: Sequence[FileFacts],
    probes: dict[str, FileProbe],
    prober: Prober,
    notes: _Notes,
    open_packs: tuple[str, ...],
) -> None:
    """Note what is not as written in packs beside the ranges that parts name, which `probes` are of. Nothing refers to
    that any more when an epoch is complete, the line of acks included.

    open_packs: of this epoch, where it is not complete.
    """
    lain_in = {whole_file(file.path) for file in named if range_of(file.path) is not None and not prober.quick}
    for path in sorted(lain_in.union(open_packs)):
        code = "unreadable" if path in open_packs else "unreferenced-file"
        size = store.storage.size(path)
        pack = notes.read(functools.partial(store.pack, path), path, code) if size is not None else None
        if pack is None:
            continue
        if size != pack.bytes:
            notes.problems.append(Problem(code, path, f"has {size} bytes, {pack.bytes} were written"))
        for file in pack.files if not prober.quick else ():
            probe = probes.get(file.path) or prober.probe([file])[file.path]
            if file.path not in probes and probe.sha256 != file.sha256:
                message = f"has SHA-256 {(probe.sha256 or 'unknown')[:12]}…, its pack says {(file.sha256 or '')[:12]}…"
                notes.problems.append(Problem(code, file.path, message))


def _widths(topology: Topology | None, parts: tuple[PartFacts, ...] | None) -> dict[str, int]:
    """The number of key groups of every state file, by path."""
    groups = {op.id: op.max_parallelism for op in topology.operators} if topology else {}
    return {
        file.path: groups[operator]
        for part in parts or ()
        if (operator := part.operator) in groups
        for file in part.state
    }


def _acked(
    store: NativeStore, epoch: int, topology: Topology | None, notes: _Notes, home: str
) -> tuple[PartFacts, ...] | None:
    """The parts of an epoch that is not complete; None without a job graph to say whose."""
    if topology is None:
        return None
    parts = []
    for task in task_ids(topology):
        path = store.ack_path(epoch, task, home)
        part = notes.read(functools.partial(store.part, epoch, task, home), path, task=task)
        if part is not None:
            parts.append(part)
    return tuple(parts)


def _sound(probes: dict[str, FileProbe], file: FileFacts) -> bool:
    probe = probes[file.path]
    return probe.error is None and probe.sha256 is not None and probe.sha256 == file.sha256
