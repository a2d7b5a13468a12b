"""A self-contained copy of a snapshot: which bytes go where, and the `_metadata` that refers to them.

Pure: values in, values out. In the copy every file lies beside `_metadata` under a relative handle (type 6), as in a
native savepoint of Flink's own, so the copy can be moved. Files of the changelog backend are named by their whole path,
as Flink itself names them: a job with that backend starts in claim mode alone, and its next checkpoints write the
handles that it started from as they are, so that relative ones would mean files beside those (FLINK-39964). A segment
of a merged file becomes a file of its own, and what only file merging needs (type 17, empty segments) becomes what
Flink writes without it. Inline bytes, offsets, ids and sizes stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from formats.flink.facts import kind
from formats.flink.files.resolve import FileLike, Place, of_changes
from formats.flink.metadata import properties
from formats.flink.metadata.file import FILE
from formats.flink.metadata.handles import (
    ChangelogHandle,
    ChannelHandle,
    EmptySegmentHandle,
    FileChangelogHandle,
    FileHandle,
    IncrementalHandle,
    InlineHandle,
    InMemoryChangelogHandle,
    KeyedHandle,
    KeyGroupsHandle,
    LocalFile,
    Metadata,
    OperatorStateHandle,
    RelativeHandle,
    SegmentHandle,
    StreamHandle,
    Subtask,
)

replace = msgspec.structs.replace

Map = Callable[[FileLike], StreamHandle]
"""What becomes of the handle of a file."""


class _Names(msgspec.Struct, frozen=True):
    """How the copy names its files.

    plain: those of a snapshot.
    changelog: those of the changelog backend.
    """

    plain: Map
    changelog: Map


class FileCopy(msgspec.Struct, frozen=True):
    """Bytes to be copied.

    place: where they are.
    start, length: the slice.
    target: name in the copy.
    """

    place: Place
    start: int
    length: int
    target: str


def copies(handles: dict[FileLike, Place]) -> dict[FileLike, FileCopy]:
    """A name of its own for every run of bytes. The same bytes, referred to twice, are copied once."""
    taken: dict[str, tuple[int, str, int, int]] = {}
    by_handle: dict[FileLike, FileCopy] = {}
    for handle, place in handles.items():
        start = handle.start if isinstance(handle, SegmentHandle) else 0
        # a file of changes is copied as it lies there: its handle's size counts its plain bytes, without the first
        length = place.bytes if of_changes(handle) else handle.size
        run = (place.folder, place.path, start, length)
        name = handle.logical_file if isinstance(handle, SegmentHandle) else handle.path.rsplit("/", 1)[-1]
        target = stem = _safe(name)
        number = 1
        # by bytes, not by handle: the same run under two handles is one file, two runs of one name are two
        while taken.setdefault(target, run) != run:
            number += 1
            target = f"{stem}-{number}"
        by_handle[handle] = FileCopy(place, start, length, target)
    return by_handle


def _safe(name: str) -> str:
    """A plain file name; Flink's own are UUIDs and stay as they are."""
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in name).lstrip(".")
    # shorter than the 255 bytes of a file name, for a number may come behind it
    return "file" if plain in ("", FILE) else plain[:200]


def rewritten(
    metadata: Metadata,
    copied: dict[FileLike, FileCopy],
    target: str,
    directory: str = "",
    own: Collection[RelativeHandle] = (),
) -> Metadata:
    """The metadata of the copy.

    target: absolute path or URI of the copy's directory; directory: the snapshot's own name, to tell its kind where its
    properties are lost. own: files that are of the copy alone, and lie in it already.
    """

    def relative(handle: FileLike) -> StreamHandle:
        return handle if handle in own else RelativeHandle(copied[handle].target, handle.size, of_changes(handle))

    def absolute(handle: FileLike) -> StreamHandle:
        place = target.rstrip("/") if "://" in target else f"file:{target.rstrip('/')}"
        return FileHandle(f"{place}/{copied[handle].target}", handle.size, of_changes(handle))

    names = _Names(relative, absolute)
    operators = tuple(
        # what was taken over from another checkpoint is the copy's own: it refers to nothing outside of it
        replace(operator, subtasks=tuple(
            replace(_subtask(subtask, names), ref_checkpoint=None) for subtask in operator.subtasks
        ))
        for operator in metadata.operators
    )
    copy = replace(metadata, operators=operators, problem=None)
    # properties that can be read are kept byte for byte; only lost ones are rewritten, of the kind that is guessed
    if metadata.version < 4 or (metadata.problem is None and metadata.tail is not None):
        return copy
    sort = kind(metadata, directory)
    written = properties.CHECKPOINT
    if sort.kind == "savepoint":
        written = properties.savepoint((sort.layout or "native").upper())
    return replace(copy, properties=written, tail=properties.encode(written))


def with_files(subtask: Subtask, change: Map) -> Subtask:
    """A subtask with other handles of its files."""
    return _subtask(subtask, _Names(change, change))


def _subtask(subtask: Subtask, names: _Names) -> Subtask:
    return replace(
        subtask,
        managed_operator=_operator(subtask.managed_operator, names.plain),
        raw_operator=_operator(subtask.raw_operator, names.plain),
        managed_keyed=_top(subtask.managed_keyed, names),
        raw_keyed=_top(subtask.raw_keyed, names),
        input_channels=tuple(_channel(handle, names.plain) for handle in subtask.input_channels),
        output_channels=tuple(_channel(handle, names.plain) for handle in subtask.output_channels),
    )


def _top(handle: KeyedHandle | None, names: _Names) -> KeyedHandle | None:
    # decided at the top: what a changelog materialised is named by its whole path, as its changes are
    return _keyed(handle, names.changelog if isinstance(handle, ChangelogHandle) else names.plain)


def _operator(handle: OperatorStateHandle | None, change: Map) -> OperatorStateHandle | None:
    # file merging writes a handle of nothing where Flink without it writes none
    if handle is None or (isinstance(handle.stream, EmptySegmentHandle) and not handle.states):
        return None
    return replace(handle, stream=_stream(handle.stream, change), folders=None)


def _channel(handle: ChannelHandle, change: Map) -> ChannelHandle:
    return replace(handle, stream=_stream(handle.stream, change))


def _stream(handle: StreamHandle | None, change: Map) -> StreamHandle | None:
    match handle:
        case FileHandle() | RelativeHandle() | SegmentHandle():
            return change(handle)
        case KeyGroupsHandle():
            return replace(handle, stream=_stream(handle.stream, change))
        case EmptySegmentHandle():
            return None
        case InlineHandle() | None:
            return handle


def _files(files: tuple[LocalFile, ...], change: Map) -> tuple[LocalFile, ...]:
    return tuple(replace(file, stream=_stream(file.stream, change)) for file in files)


def _keyed(handle: KeyedHandle | None, change: Map) -> KeyedHandle | None:
    match handle:
        case KeyGroupsHandle():
            return replace(handle, stream=_stream(handle.stream, change))
        case IncrementalHandle():
            return replace(
                handle,
                meta=_stream(handle.meta, change),
                shared=_files(handle.shared, change),
                private=_files(handle.private, change),
            )
        case ChangelogHandle():
            return replace(
                handle,
                materialized=tuple(_keyed(part, change) for part in handle.materialized),
                changes=tuple(_keyed(part, change) for part in handle.changes),
            )
        case FileChangelogHandle():
            parts = tuple(replace(part, stream=_stream(part.stream, change)) for part in handle.streams)
            return replace(handle, streams=parts)
        case InMemoryChangelogHandle() | None:
            return handle
