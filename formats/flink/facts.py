"""What the metadata of one snapshot says, as facts for people who know Flink, and as `abs inspect -o json` has them.

Sizes, two kinds, as Flink has them: *state size* is what all handles refer to, whoever wrote it; *checkpointed size*
is what this very checkpoint wrote. Both count a file once for every handle; `file_bytes` counts each file once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from formats.flink import channels
from formats.flink.connectors import committables, splits
from formats.flink.connectors.committables import Committable
from formats.flink.connectors.enumerators import Enumerator, enumerator
from formats.flink.connectors.split_kinds import Split
from formats.flink.files.resolve import FileLike
from formats.flink.files.streams import Streams
from formats.flink.ids import Names, OperatorHash
from formats.flink.metadata.file import WRITTEN_BY
from formats.flink.metadata.handles import (
    Backend,
    ChangelogHandle,
    FileHandle,
    Handle,
    IncrementalHandle,
    InlineHandle,
    InMemoryChangelogHandle,
    KeyedHandle,
    KeyGroupsHandle,
    Metadata,
    OperatorState,
    Properties,
    RelativeHandle,
    SegmentHandle,
    StreamHandle,
    Subtask,
    checkpointed_size,
    handles,
    key_groups,
    state_size,
)
from formats.flink.metadata.handles import streams as below

SAMPLE = 16
"""Subtasks of an operator whose state files are asked for the names of its states."""


# -- sizes ------------------------------------------------------------------------------------------------


def subtask_size(subtask: Subtask) -> int:
    """Flink's state size of one subtask."""
    return sum(state_size(handle) for _, handle in handles(subtask))


def subtask_checkpointed(subtask: Subtask) -> int:
    """Flink's checkpointed size of one subtask."""
    return sum(checkpointed_size(handle) for _, handle in handles(subtask))


def coordinator_size(operator: OperatorState) -> int:
    """Bytes of the coordinator's state, 0 if there is none."""
    return operator.coordinator.size if operator.coordinator is not None else 0


def operator_size(operator: OperatorState) -> int:
    """Flink's state size of an operator, its coordinator's included."""
    return coordinator_size(operator) + sum(subtask_size(subtask) for subtask in operator.subtasks)


def operator_checkpointed(operator: OperatorState) -> int:
    """Flink's checkpointed size of an operator, its coordinator's included."""
    return coordinator_size(operator) + sum(subtask_checkpointed(subtask) for subtask in operator.subtasks)


def total_checkpointed(metadata: Metadata) -> int:
    """Bytes that this checkpoint wrote, as far as its handles tell."""
    return sum(operator_checkpointed(operator) for operator in metadata.operators)


# -- kinds ------------------------------------------------------------------------------------------------


def keyed_handles(metadata: Metadata) -> Iterator[KeyedHandle]:
    """Every managed keyed handle, those within changelogs too."""

    def below(handle: KeyedHandle | None) -> Iterator[KeyedHandle]:
        if handle is not None:
            yield handle
        if isinstance(handle, ChangelogHandle):
            for part in (*handle.materialized, *handle.changes):
                yield from below(part)

    for operator in metadata.operators:
        for subtask in operator.subtasks:
            yield from below(subtask.managed_keyed)


def backends(metadata: Metadata) -> list[str]:
    """What wrote the keyed state, as far as the types of handles tell."""
    writers = set()
    for handle in keyed_handles(metadata):
        match handle:
            case KeyGroupsHandle():
                writers.add("canonical" if handle.tag == 7 else "heap")
            case IncrementalHandle():
                writers.add("rocksdb")
            case ChangelogHandle():
                writers.add("changelog")
    return sorted(writers)


def state_backend(metadata: Metadata) -> Backend | None:
    """Return the state backend without which Flink cannot read the keyed state; None if every backend reads it.

    Only canonical savepoints are read by every backend. ForSt (2.x) is told from RocksDB by its files, which stay in a
    directory `db` of the task.
    """
    needed: set[Backend] = set()
    for handle in keyed_handles(metadata):
        if isinstance(handle, KeyGroupsHandle) and handle.tag != 7:
            needed.add("hashmap")
        if isinstance(handle, IncrementalHandle):
            files = (file.stream.path for file in handle.shared if isinstance(file.stream, FileHandle))
            needed.add("forst" if any(path.rpartition("/")[0].endswith("/db") for path in files) else "rocksdb")
    return needed.pop() if len(needed) == 1 else None


class KindFacts(msgspec.Struct, frozen=True):
    """What sort of snapshot it is.

    kind: `checkpoint`, `full checkpoint` or `savepoint`.
    layout: of a savepoint, `canonical` or `native`.
    stop: of a stop-with-savepoint, `suspend` or `terminate`.
    certain: its properties say so; else it is guessed from its handles and directory.
    """

    kind: str
    layout: str | None
    stop: str | None
    certain: bool


def kind(metadata: Metadata, directory: str = "") -> KindFacts:
    """The kind of a snapshot. directory: the name of its own, for files without properties."""
    properties = metadata.properties
    if properties is not None and properties.kind == "CheckpointType":
        return KindFacts("full checkpoint" if properties.name.startswith("Full") else "checkpoint", None, None, True)
    if properties is not None:
        stop = properties.after.lower() if properties.after in ("SUSPEND", "TERMINATE") else None
        return KindFacts("savepoint", properties.layout.lower() if properties.layout else None, stop, True)
    canonical = "canonical" in backends(metadata)
    if metadata.tail is not None and metadata.problem is None:  # null, which only tools that write savepoints leave
        return KindFacts("savepoint", "canonical" if canonical else None, None, True)
    if canonical or directory.startswith("savepoint-"):
        return KindFacts("savepoint", "canonical" if canonical else None, None, False)
    return KindFacts("checkpoint", None, None, False)


TYPES = {
    "KeyGroupsHandle": "key groups",
    "IncrementalHandle": "rocksdb files",
    "ChangelogHandle": "changelog",
    "InMemoryChangelogHandle": "changelog in memory",
    "FileChangelogHandle": "changelog files",
    "OperatorStateHandle": "operator state",
    "ChannelHandle": "channel state",
}


def _type(handle: Handle) -> str:
    if isinstance(handle, KeyGroupsHandle) and handle.tag == 7:
        return "key groups, canonical"
    return TYPES.get(type(handle).__name__, type(handle).__name__)


# -- the whole --------------------------------------------------------------------------------------------


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What the metadata alone says of a snapshot.

    metadata_version, written_by: of the file; which Flink can have written it.
    kind, layout, stop: as of `KindFacts`.
    kind_known: False where the properties are missing and the kind is guessed.
    backends: rocksdb, heap, canonical, changelog: by the handles' types.
    modified: when the file was written, None if that is not known.
    regional: the state of some subtasks was taken over from an older checkpoint.
    """

    metadata_version: int
    written_by: str
    kind: str
    layout: str | None
    stop: str | None
    kind_known: bool
    backends: list[str]
    checkpoint_id: int = msgspec.field(name="checkpoint-id")
    directory: str
    modified: str | None
    unaligned: bool
    regional: bool
    state_size: int
    checkpointed_size: int
    file_bytes: int
    files: int
    inline_bytes: int
    shared_bytes: int


class DescribedMaster(msgspec.Struct, frozen=True):
    """State of a master hook."""

    name: str
    version: int
    bytes: int


class DescribedState(msgspec.Struct, frozen=True):
    """A state of an operator. Those of keyed state are named in the state files, of which SAMPLE are read.

    rows, bytes: None where they were not counted.
    opaque: why rows of it cannot be read.
    serializers: of key, namespace and value, each as plain values; `unknown`: the class of one that is not known.
    """

    name: str | None
    kind: str
    keyed: bool
    key: tuple[str, ...] = ()
    rows: int | None = None
    bytes: int | None = None
    opaque: str | None = None
    serializers: dict[str, Any] = msgspec.field(default_factory=dict)


class DescribedPart(msgspec.Struct, frozen=True):
    """What a subtask has of one sort of state."""

    type: str
    bytes: int


class DescribedSubtask(msgspec.Struct, frozen=True):
    """One subtask.

    parts: by the sort of state, such as `managed_operator`.
    key_groups: the first and the last.
    splits: None where it reads none, or they are not known.
    committables: what a sink has still to commit; None where it is no committer.
    taken_over_from: the checkpoint whose state this is, of a regional one.
    """

    subtask: int
    finished: bool
    state_size: int
    checkpointed_size: int
    parts: dict[str, DescribedPart]
    key_groups: tuple[int, int] | None
    splits: tuple[Split, ...] | None
    committables: tuple[Committable, ...] | None
    taken_over_from: int | None


class DescribedOperator(msgspec.Struct, frozen=True, rename="kebab"):
    """One operator: the columns of Flink's `savepoint_metadata` as it calls them, then ours.

    operator_total_size_in_bytes: its checkpointed size.
    proved_uid: a guess that its hash proves.
    enumerator: of a source, what its coordinator holds; None where that is not known.
    """

    checkpoint_id: int
    operator_name: str | None
    operator_uid: str | None
    operator_uid_hash: OperatorHash
    operator_parallelism: int
    operator_max_parallelism: int
    operator_subtask_state_count: int
    operator_coordinator_state_size_in_bytes: int
    operator_total_size_in_bytes: int
    proved_uid: str | None
    state_size: int
    fully_finished: bool
    finished_subtasks: int
    enumerator: Enumerator | None
    states: list[DescribedState]
    subtasks: list[DescribedSubtask]


class Described(Summary, frozen=True, kw_only=True):
    """All of a snapshot. properties_problem: why they cannot be understood."""

    properties: Properties | None
    properties_problem: str | None
    master_states: list[DescribedMaster]
    operators: list[DescribedOperator]


def describe(
    metadata: Metadata,
    *,
    names: Names,
    directory: str,
    modified: str | None,
    streams: Streams,
    counted: OperatorHash | None = None,
) -> Described:
    """All that there is to say. names: proved uids; counted: the operator whose rows are to be counted, which reads all
    of its state."""
    return Described(
        **msgspec.structs.asdict(summary(metadata, directory=directory, modified=modified)),
        properties=metadata.properties,
        properties_problem=metadata.problem,
        master_states=[DescribedMaster(m.name, m.version, len(m.data)) for m in metadata.master_states],
        operators=[
            _operator(metadata, operator, names.get(operator.id), streams, operator.id == counted)
            for operator in metadata.operators
        ],
    )


def summary(metadata: Metadata, *, directory: str, modified: str | None) -> Summary:
    """The first part of `describe`."""
    sort = kind(metadata, directory)
    files: dict[str, int] = {}
    inline = 0
    for stream in every_stream(metadata):
        if isinstance(stream, InlineHandle):
            inline += stream.size
        elif isinstance(stream, SegmentHandle):
            files[stream.path] = max(files.get(stream.path, 0), stream.start + stream.size)
        elif isinstance(stream, FileHandle | RelativeHandle):
            files[stream.path] = stream.size
    for handle in keyed_handles(metadata):
        if isinstance(handle, InMemoryChangelogHandle):
            inline += state_size(handle)
    shared = {
        stream: stream.size
        for handle in keyed_handles(metadata)
        if isinstance(handle, IncrementalHandle)
        for file in handle.shared
        for stream in below(file.stream)
    }
    return Summary(
        metadata_version=metadata.version,
        written_by=WRITTEN_BY[metadata.version],
        kind=sort.kind,
        layout=sort.layout,
        stop=sort.stop,
        kind_known=sort.certain,
        backends=backends(metadata),
        checkpoint_id=metadata.checkpoint_id,
        directory=directory,
        modified=modified,
        unaligned=channels.has_channels(metadata),
        regional=metadata.regional,
        state_size=sum(operator_size(operator) for operator in metadata.operators),
        checkpointed_size=total_checkpointed(metadata),
        file_bytes=sum(files.values()),
        files=len(files),
        inline_bytes=inline,
        shared_bytes=sum(shared.values()),
    )


def every_stream(metadata: Metadata) -> Iterator[StreamHandle]:
    """Every stream that the metadata refers to, coordinators' included."""
    for operator in metadata.operators:
        if operator.coordinator is not None:
            yield operator.coordinator
        for subtask in operator.subtasks:
            for _, handle in handles(subtask):
                yield from below(handle)


def file_handles(metadata: Metadata) -> Iterator[tuple[OperatorState, Subtask, FileLike]]:
    """Every reference to a file, with whose it is."""
    for operator in metadata.operators:
        for subtask in operator.subtasks:
            for _, handle in handles(subtask):
                for stream in below(handle):
                    if isinstance(stream, FileHandle | RelativeHandle | SegmentHandle):
                        yield operator, subtask, stream


def states(operator: OperatorState, streams: Streams, *, count: bool = False) -> list[DescribedState]:
    """The states of an operator by name. count: read all rows, for their number and bytes."""
    from formats.flink.state.rows import OPERATOR_WORDS, shown_name, summaries

    few = operator if count else msgspec.structs.replace(operator, subtasks=operator.subtasks[:SAMPLE])
    described = {
        (row.keyed, row.name if row.keyed else row.stored): DescribedState(
            name=row.name,
            kind=row.kind,
            keyed=row.keyed,
            key=row.key,
            rows=row.rows if count else None,
            bytes=row.bytes if count else None,
            opaque=row.opaque or (row.problem.message if row.problem is not None else None),
            serializers=row.serializers,
        )
        for row in summaries(few, streams, count=count)
    }
    keyed = {name for of_key, name in described if of_key}
    for subtask in operator.subtasks:
        for handle in (subtask.managed_operator, subtask.raw_operator):
            for part in handle.states if handle is not None else ():
                name = shown_name(part.name, keyed)
                described.setdefault((False, part.name), DescribedState(name, OPERATOR_WORDS[part.mode], keyed=False))
    return list(described.values())


def _operator(
    metadata: Metadata, operator: OperatorState, proved: str | None, streams: Streams, count: bool
) -> DescribedOperator:
    return DescribedOperator(
        checkpoint_id=metadata.checkpoint_id,
        operator_name=operator.name,
        operator_uid=operator.uid,
        operator_uid_hash=operator.id,
        operator_parallelism=operator.parallelism,
        operator_max_parallelism=operator.max_parallelism,
        operator_subtask_state_count=len(operator.subtasks),
        operator_coordinator_state_size_in_bytes=coordinator_size(operator),
        operator_total_size_in_bytes=operator_checkpointed(operator),
        proved_uid=proved,
        state_size=operator_size(operator),
        fully_finished=operator.finished,
        finished_subtasks=sum(s.finished for s in operator.subtasks),
        enumerator=enumerator(operator),
        states=states(operator, streams, count=count),
        subtasks=[_subtask(s, streams) for s in sorted(operator.subtasks, key=lambda s: s.index)],
    )


def _subtask(subtask: Subtask, at: Streams) -> DescribedSubtask:
    parts: dict[str, DescribedPart] = {}
    for field, handle in handles(subtask):
        before = parts[field] if field in parts else DescribedPart(_type(handle), 0)
        parts[field] = DescribedPart(before.type, before.bytes + state_size(handle))
    keyed = subtask.managed_keyed or subtask.raw_keyed
    groups = key_groups(keyed) if keyed is not None else None
    return DescribedSubtask(
        subtask=subtask.index,
        finished=subtask.finished,
        state_size=subtask_size(subtask),
        checkpointed_size=subtask_checkpointed(subtask),
        parts=parts,
        key_groups=(groups.start, groups.stop - 1) if groups else None,
        splits=splits.readable(subtask, at),
        committables=committables.readable(subtask, at),
        taken_over_from=subtask.ref_checkpoint,
    )
