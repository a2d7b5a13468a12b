"""What a `_metadata` file says of the bytes that hold the state: handles, as values.

A *stream handle* names one run of bytes (inline, a file, a slice of a file). The other handles say what lies in such
streams: keyed state, operator state, channel state. Every class keeps what a writer needs to give the same bytes again:
`tag` is the handle's type byte in the file, where several tags share a shape. Sizes and offsets are bytes; key groups
are numbers from 0 to max parallelism - 1. A null handle (tag 0) is None.

Source: the classes of `org.apache.flink.runtime.state` and `MetadataV2V3SerializerBase`; checked on real files.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Literal, TypeAlias

import msgspec

from formats.flink.ids import OperatorHash


class _Value(msgspec.Struct, frozen=True, gc=False):
    """Handles form trees, never cycles: the collector need not look at them."""


# -- streams ----------------------------------------------------------------------------------------------


class InlineHandle(_Value, frozen=True, gc=False):
    """Tag 1: the bytes themselves.

    name: what Flink called the stream; often a path, but no such file exists.
    """

    name: str
    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)


class FileHandle(_Value, frozen=True, gc=False):
    """Tag 2: a whole file.

    path: an absolute URI (`file:/...`, `s3://...`), as Flink wrote it.
    changes: it is a file of changes, whose `size` counts neither its first byte nor what compression saves.
    """

    path: str
    size: int
    changes: bool = False


class RelativeHandle(_Value, frozen=True, gc=False):
    """Tag 6: a whole file.

    path: relative to the directory of `_metadata`.
    changes: as for a FileHandle.
    """

    path: str
    size: int
    changes: bool = False


class SegmentHandle(_Value, frozen=True, gc=False):
    """Tag 15: `size` bytes from `start` of a merged file.

    path: absolute URI.
    scope: 0 exclusive, 1 shared.
    """

    path: str
    start: int
    size: int
    scope: int
    logical_file: str


class EmptySegmentHandle(_Value, frozen=True, gc=False):
    """Tag 16: a segment of nothing; there is no file to open."""

    @property
    def size(self) -> int:
        return 0


class KeyGroupsHandle(_Value, frozen=True, gc=False):
    """Tags 3, 7, 12: keyed state by key group, in one stream.

    tag: 12 (2.x and late 1.x) or 3 (older): heap state, or a full snapshot; 7: a canonical savepoint.
    offsets: [i] is where key group first + i begins in the stream; 0 in a canonical savepoint: the group is empty.
    id: tag 12 only.

    As a *stream* handle (tag 3 again) it stands for its own stream.
    """

    tag: int
    first: int
    offsets: tuple[int, ...]
    stream: StreamHandle | None
    id: str | None = None

    @property
    def count(self) -> int:
        """Number of key groups."""
        return len(self.offsets)

    @property
    def size(self) -> int:
        return self.stream.size if self.stream is not None else 0


StreamHandle: TypeAlias = (
    InlineHandle | FileHandle | RelativeHandle | SegmentHandle | EmptySegmentHandle | KeyGroupsHandle
)


# -- keyed state ------------------------------------------------------------------------------------------


Backend = Literal["hashmap", "rocksdb", "forst"]
"""State backends, as `state.backend.type` names them."""


class LocalFile(_Value, frozen=True, gc=False):
    """One file of a RocksDB instance.

    name: what it is called there (`000028.sst`, `CURRENT`, `OPTIONS-000012`).
    """

    name: str
    stream: StreamHandle | None


class IncrementalHandle(_Value, frozen=True, gc=False):
    """Tags 5, 11: the files of one RocksDB instance, and a stream with the serializers (`meta`).

    checkpoint_id: of the checkpoint that made it.
    backend: a UUID, which stays from checkpoint to checkpoint.
    checkpointed_size, id: tag 11 only.
    shared: files that other checkpoints may refer to, too.
    """

    tag: int
    checkpoint_id: int
    backend: str
    first: int
    count: int
    checkpointed_size: int | None
    meta: StreamHandle | None
    shared: tuple[LocalFile, ...]
    private: tuple[LocalFile, ...]
    id: str | None = None


class ChangelogHandle(_Value, frozen=True, gc=False):
    """Tags 8, 14: state of the changelog backend: what was materialised, then the changes since.

    materialized, changes: None among them is a null handle, which Flink passes over.
    checkpoint_id: tag 14 only.
    """

    tag: int
    first: int
    count: int
    checkpointed_size: int
    materialized: tuple[KeyedHandle | None, ...]
    changes: tuple[KeyedHandle | None, ...]
    materialization_id: int
    checkpoint_id: int | None
    id: str


class InMemoryChange(_Value, frozen=True, gc=False):
    """One change of an in-memory changelog.

    key_group: -1 for a change of the metadata.
    """

    key_group: int
    data: bytes


class InMemoryChangelogHandle(_Value, frozen=True, gc=False):
    """Tag 9: changes `start` to `end` (sequence numbers), inline."""

    first: int
    count: int
    start: int
    end: int
    changes: tuple[InMemoryChange, ...]
    id: str


class ChangeStream(_Value, frozen=True, gc=False):
    """A stream of changes and the offset where this handle's part of it begins, in the plain bytes behind the first
    byte of the file."""

    offset: int
    stream: StreamHandle | None


class FileChangelogHandle(_Value, frozen=True, gc=False):
    """Tags 10, 13: changes in streams.

    size: of all of them.
    storage: the changelog storage's name, tag 13 only.
    """

    tag: int
    first: int
    count: int
    streams: tuple[ChangeStream, ...]
    size: int
    checkpointed_size: int
    id: str
    storage: str | None = None


KeyedHandle: TypeAlias = (
    KeyGroupsHandle | IncrementalHandle | ChangelogHandle | InMemoryChangelogHandle | FileChangelogHandle
)


# -- operator state ---------------------------------------------------------------------------------------


class Mode(IntEnum):
    """How operator state is dealt out to the subtasks of the next life."""

    SPLIT_DISTRIBUTE = 0
    UNION = 1
    BROADCAST = 2


class OperatorPart(_Value, frozen=True, gc=False):
    """One named operator state.

    offsets: where its elements begin in the stream (one for a broadcast state).
    """

    name: str
    mode: Mode
    offsets: tuple[int, ...]


class MergedFolders(_Value, frozen=True, gc=False):
    """What tag 17 adds.

    task_owned, shared: directories that its task merges files into, as absolute URIs.
    empty: nothing to open.
    """

    task_owned: str
    shared: str
    empty: bool


class OperatorStateHandle(_Value, frozen=True, gc=False):
    """Tags 4, 17: operator state of one subtask, all names in one stream.

    folders: tag 17 only.
    """

    states: tuple[OperatorPart, ...]
    stream: StreamHandle | None
    folders: MergedFolders | None = None


# -- channel state ----------------------------------------------------------------------------------------


class ChannelPart(_Value, frozen=True, gc=False):
    """In-flight data of one channel.

    gate: index of the input gate, or of the result partition.
    channel: index of the input channel, or of the subpartition.
    size: bytes of its network buffers together.
    offsets: of the buffers in the stream.
    """

    gate: int
    channel: int
    size: int
    offsets: tuple[int, ...]


class ChannelHandle(_Value, frozen=True, gc=False):
    """In-flight data of one subtask in one stream.

    size: what the handle says, which is what Flink counts.
    merged: None: one channel (types 1, 2); else the bytes of the packed list that `parts` was read from (types 3, 4).
    """

    subtask: int
    size: int
    stream: StreamHandle | None
    parts: tuple[ChannelPart, ...]
    merged: bytes | None = None


# -- the file ---------------------------------------------------------------------------------------------


class MasterState(_Value, frozen=True, gc=False):
    """State of a master hook (checkpointing of the JobManager's own), which only its hook can read."""

    version: int
    name: str
    data: bytes


class Subtask(_Value, frozen=True, gc=False):
    """The state of one subtask of an operator.

    finished: it had ended, and has no state.
    ref_checkpoint: version 7 only, the checkpoint that this state was taken over from (regional checkpoints).
    legacy: version 2 only, the 8 bytes of a field that nothing reads.
    """

    index: int
    finished: bool = False
    managed_operator: OperatorStateHandle | None = None
    raw_operator: OperatorStateHandle | None = None
    managed_keyed: KeyedHandle | None = None
    raw_keyed: KeyedHandle | None = None
    input_channels: tuple[ChannelHandle, ...] = ()
    output_channels: tuple[ChannelHandle, ...] = ()
    ref_checkpoint: int | None = None
    legacy: int = 0


class OperatorState(_Value, frozen=True, gc=False):
    """One operator.

    name, uid: None where the version (below 5) does not store them, or they are empty.
    finished: all of its subtasks had ended.
    chain_length: version 2 only, read by nobody.
    """

    id: OperatorHash
    name: str | None
    uid: str | None
    parallelism: int
    max_parallelism: int
    coordinator: StreamHandle | None
    subtasks: tuple[Subtask, ...]
    finished: bool = False
    chain_length: int = 0


class Properties(_Value, frozen=True, gc=False):
    """The Java-serialised tail (version 4 and later): what was asked for when the snapshot was taken.

    kind: `CheckpointType` or `SavepointType`.
    sharing: the sharing strategy of a checkpoint.
    after: post-checkpoint action of a savepoint: `NONE`, `SUSPEND`, `TERMINATE`.
    layout: format type of a savepoint: `CANONICAL`, `NATIVE`.
    """

    kind: str
    name: str
    sharing: str | None
    after: str | None
    layout: str | None
    forced: bool
    discard_subsumed: bool
    discard_finished: bool
    discard_cancelled: bool
    discard_failed: bool
    discard_suspended: bool
    unclaimed: bool


class Metadata(_Value, frozen=True, gc=False):
    """A whole `_metadata` file.

    properties: None where the version (below 4) has none, and where they cannot be understood.
    tail: the bytes of the properties as they were written; None where the version has none.
    problem: why the tail cannot be understood.
    """

    version: int
    checkpoint_id: int
    master_states: tuple[MasterState, ...]
    operators: tuple[OperatorState, ...]
    properties: Properties | None = None
    tail: bytes | None = None
    problem: str | None = None

    @property
    def regional(self) -> bool:
        """Whether the state of some subtask is of an older checkpoint (FLIP-600)."""
        return any(one.ref_checkpoint is not None for operator in self.operators for one in operator.subtasks)


# -- questions to handles ---------------------------------------------------------------------------------

Handle: TypeAlias = StreamHandle | KeyedHandle | OperatorStateHandle | ChannelHandle


def key_groups(handle: KeyedHandle) -> range:
    """The key groups that a handle is responsible for."""
    return range(handle.first, handle.first + handle.count)


def streams(handle: Handle | None) -> Iterator[StreamHandle]:
    """Every stream below a handle, in the order of the file. A channel's stream may be shared with other handles."""
    match handle:
        case None:
            return
        case InlineHandle() | FileHandle() | RelativeHandle() | SegmentHandle() | EmptySegmentHandle():
            yield handle
        case KeyGroupsHandle() | OperatorStateHandle() | ChannelHandle():
            yield from streams(handle.stream)
        case IncrementalHandle():
            yield from streams(handle.meta)
            for file in (*handle.shared, *handle.private):
                yield from streams(file.stream)
        case ChangelogHandle():
            for part in (*handle.materialized, *handle.changes):
                yield from streams(part)
        case FileChangelogHandle():
            for change in handle.streams:
                yield from streams(change.stream)


def changelogs(metadata: Metadata) -> Iterator[ChangelogHandle]:
    """Every handle of the changelog backend."""
    for operator in metadata.operators:
        for subtask in operator.subtasks:
            for _, handle in handles(subtask):
                if isinstance(handle, ChangelogHandle):
                    yield handle


def state_size(handle: Handle | None) -> int:
    """What Flink's `getStateSize` says of a handle: all bytes that it refers to, whoever wrote them."""
    match handle:
        case None:
            return 0
        case OperatorStateHandle():
            return handle.stream.size if handle.stream is not None else 0
        case IncrementalHandle():
            return sum(stream.size for stream in streams(handle))
        case ChangelogHandle():
            return sum(state_size(part) for part in (*handle.materialized, *handle.changes))
        case InMemoryChangelogHandle():
            return sum(len(change.data) for change in handle.changes)
        case _:
            return handle.size


def checkpointed_size(handle: Handle | None) -> int:
    """What Flink's `getCheckpointedSize` says: the bytes that this very checkpoint wrote, where the handle tells."""
    if isinstance(handle, IncrementalHandle | ChangelogHandle | FileChangelogHandle):
        size = handle.checkpointed_size
        return state_size(handle) if size is None or size < 0 else size
    return state_size(handle)


def handles(subtask: Subtask) -> Iterator[tuple[str, Handle]]:
    """A subtask's handles with the name of their field."""
    for field in ("managed_operator", "raw_operator", "managed_keyed", "raw_keyed"):
        handle = getattr(subtask, field)
        if handle is not None:
            yield field, handle
    for field in ("input_channels", "output_channels"):
        for handle in getattr(subtask, field):
            yield field, handle


def has_state(operator: OperatorState) -> bool:
    """Whether an operator has state that can be shown: what its coordinator and its channels hold is none."""
    return any(
        handle is not None
        for subtask in operator.subtasks
        for handle in (subtask.managed_keyed, subtask.raw_keyed, subtask.managed_operator)
    )
