"""What the metadata of one snapshot says, as plain facts for people who know Flink.

Sizes, two kinds, as Flink has them: *state size* is what all handles refer to, whoever wrote it; *checkpointed size*
is what this very checkpoint wrote. Both count a file once for every handle; `file_bytes` counts each file once.

The dictionary of `describe`:

    metadata_version, written_by    of the file; which Flink can have written it
    kind                            checkpoint | full checkpoint | savepoint
    layout                          of a savepoint: canonical | native
    stop                            of a stop-with-savepoint: suspend | terminate; else None
    kind_known                      false where the properties are missing and the kind is guessed
    backends                        rocksdb, heap, canonical, changelog: by the handles' types
    checkpoint-id, directory, modified, unaligned
    state_size, checkpointed_size, file_bytes, files, inline_bytes, shared_bytes
    properties, properties_problem
    master_states                   [{name, version, bytes}]
    operators                       [{operator-name ... operator-total-size-in-bytes, as Flink's `savepoint_metadata`
                                    has them (the last one is the checkpointed size), then ours: proved-uid, state-size,
                                    fully-finished, finished-subtasks, states, subtasks}]
      states                        [{name, kind, keyed, key, rows, bytes, opaque, serializers}]; those of keyed state
                                    are named in the state files, of which the first SAMPLE subtasks' are read
      subtasks                      [{subtask, finished, state_size, checkpointed_size, parts, key_groups, splits,
                                    taken_over_from}]
        parts                       {managed_operator: {type, bytes}, ...}
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from formats.flink import channels, splits
from formats.flink.files.resolve import FileLike
from formats.flink.files.streams import Streams
from formats.flink.metadata.file import WRITTEN_BY
from formats.flink.metadata.handles import (
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

UNREAD = ("rows", "bytes", "opaque")
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


def describe(
    metadata: Metadata,
    *,
    names: dict[str, str],
    directory: str,
    modified: str | None,
    streams: Streams,
    counted: str | None = None,
) -> dict[str, Any]:
    """The dictionary of this module's docstring. names: proved uids by hash; counted: hash of the operator whose rows
    are to be counted, which reads all of its state."""
    return {
        **summary(metadata, directory=directory, modified=modified),
        "properties": msgspec.to_builtins(metadata.properties) if metadata.properties else None,
        "properties_problem": metadata.problem,
        "master_states": [{"name": m.name, "version": m.version, "bytes": len(m.data)} for m in metadata.master_states],
        "operators": [
            _operator(metadata, operator, names.get(operator.id), streams, operator.id == counted)
            for operator in metadata.operators
        ],
    }


def summary(metadata: Metadata, *, directory: str, modified: str | None) -> dict[str, Any]:
    """The first part of `describe`: what the metadata alone says of the whole."""
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
    return {
        "metadata_version": metadata.version,
        "written_by": WRITTEN_BY[metadata.version],
        "kind": sort.kind,
        "layout": sort.layout,
        "stop": sort.stop,
        "kind_known": sort.certain,
        "backends": backends(metadata),
        "checkpoint-id": metadata.checkpoint_id,
        "directory": directory,
        "modified": modified,
        "unaligned": channels.has_channels(metadata),
        "state_size": sum(operator_size(operator) for operator in metadata.operators),
        "checkpointed_size": total_checkpointed(metadata),
        "file_bytes": sum(files.values()),
        "files": len(files),
        "inline_bytes": inline,
        "shared_bytes": sum(shared.values()),
    }


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


def states(operator: OperatorState, streams: Streams, *, count: bool = False) -> list[dict[str, Any]]:
    """The states of an operator by name. count: read all rows, for their number and bytes."""
    from formats.flink.state.rows import OPERATOR_WORDS, summaries

    few = operator if count else msgspec.structs.replace(operator, subtasks=operator.subtasks[:SAMPLE])
    described = {
        (row.keyed, row.name): {
            "name": row.name,
            "kind": row.kind,
            "keyed": row.keyed,
            "key": list(row.key),
            "rows": row.rows if count else None,
            "bytes": row.bytes if count else None,
            "opaque": row.opaque or (row.problem.message if row.problem is not None else None),
            "serializers": row.serializers,
        }
        for row in summaries(few, streams, count=count)
    }
    for subtask in operator.subtasks:
        for handle in (subtask.managed_operator, subtask.raw_operator):
            for part in handle.states if handle is not None else ():
                row: dict[str, Any] = dict.fromkeys(UNREAD)
                row |= {"name": part.name, "kind": OPERATOR_WORDS[part.mode], "keyed": False, "key": []}
                described.setdefault((False, part.name), {**row, "serializers": {}})
    return list(described.values())


def _operator(
    metadata: Metadata, operator: OperatorState, proved: str | None, streams: Streams, count: bool
) -> dict[str, Any]:
    return {
        "checkpoint-id": metadata.checkpoint_id,
        "operator-name": operator.name,
        "operator-uid": operator.uid,
        "operator-uid-hash": operator.id,
        "operator-parallelism": operator.parallelism,
        "operator-max-parallelism": operator.max_parallelism,
        "operator-subtask-state-count": len(operator.subtasks),
        "operator-coordinator-state-size-in-bytes": coordinator_size(operator),
        "operator-total-size-in-bytes": operator_checkpointed(operator),
        "proved-uid": proved,
        "state-size": operator_size(operator),
        "fully-finished": operator.finished,
        "finished-subtasks": sum(s.finished for s in operator.subtasks),
        "states": states(operator, streams, count=count),
        "subtasks": [_subtask(s, streams) for s in sorted(operator.subtasks, key=lambda s: s.index)],
    }


def _subtask(subtask: Subtask, at: Streams) -> dict[str, Any]:
    parts: dict[str, dict[str, Any]] = {}
    for field, handle in handles(subtask):
        part = parts.setdefault(field, {"type": _type(handle), "bytes": 0})
        part["bytes"] += state_size(handle)
    keyed = subtask.managed_keyed or subtask.raw_keyed
    groups = key_groups(keyed) if keyed is not None else None
    source_splits = splits.readable(subtask, at)
    return {
        "subtask": subtask.index,
        "finished": subtask.finished,
        "state_size": subtask_size(subtask),
        "checkpointed_size": subtask_checkpointed(subtask),
        "parts": parts,
        "key_groups": [groups.start, groups.stop - 1] if groups else None,
        "splits": msgspec.to_builtins(source_splits) if source_splits is not None else None,
        "taken_over_from": subtask.ref_checkpoint,
    }
