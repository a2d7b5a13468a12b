"""Handles between bytes and values; reading and writing stand side by side, tag by tag.

A tag decides what follows, whatever the version of the file. Source: `MetadataV2V3SerializerBase`,
`MetadataV3Serializer`, `ChannelStateHandleSerializerV1` and `V2`.
"""

from __future__ import annotations

from typing import Final, TypeVar

from msgspec.structs import replace

from formats.errors import FormatError
from formats.flink.bytes import Reader, Writer
from formats.flink.metadata.handles import (
    ChangelogHandle,
    ChangeStream,
    ChannelHandle,
    ChannelPart,
    EmptySegmentHandle,
    FileChangelogHandle,
    FileHandle,
    IncrementalHandle,
    InlineHandle,
    InMemoryChange,
    InMemoryChangelogHandle,
    KeyedHandle,
    KeyGroupsHandle,
    LocalFile,
    MergedFolders,
    Mode,
    OperatorPart,
    OperatorStateHandle,
    RelativeHandle,
    SegmentHandle,
    StreamHandle,
)

DEPTH: Final = 8
"""Handles within handles beyond which a file is garbage; Flink's own are at most three deep."""

MAX_KEY_GROUPS: Final = 1 << 15
"""Flink's upper bound of the max parallelism."""

_MODES: Final = tuple(Mode)

T = TypeVar("T")


class Unwritable(FormatError):
    """A handle that the format has no bytes for."""


# -- streams ----------------------------------------------------------------------------------------------


def read_stream(r: Reader, field: str, depth: int = 0) -> StreamHandle | None:
    """A stream handle; None for a null one. Damaged if it is none."""
    at = r.pos
    tag = r.u8(field)
    if tag == 6:
        return RelativeHandle(r.utf(field), r.size(field))
    if tag == 1:
        return InlineHandle(r.utf(field), r.take(r.i32(field), field))
    if tag == 2:
        size = r.size(field)
        return FileHandle(r.utf(field), size)
    if tag == 0:
        return None
    if tag == 15:
        start, size = r.size(field), r.size(field)
        scope = r.i32(field)
        if scope not in (0, 1):
            raise r.error(f"a scope of {scope}, 0 (exclusive) or 1 (shared) is due", field, r.pos - 4)
        return SegmentHandle(r.utf(field), start, size, scope, r.utf(field))
    if tag == 16:
        return EmptySegmentHandle()
    if tag == 3:
        _deep(r, field, depth)
        first, offsets = _offsets(r, field)
        return KeyGroupsHandle(3, first, offsets, read_stream(r, field, depth + 1))
    raise r.error(f"a stream handle of unknown type {tag}", field, at)


def write_stream(w: Writer, handle: StreamHandle | None) -> None:
    match handle:
        case None:
            w.u8(0)
        case RelativeHandle(path=path, size=size):
            w.u8(6)
            w.utf(path)
            w.i64(size)
        case InlineHandle(name=name, data=data):
            w.u8(1)
            w.utf(name)
            w.i32(len(data))
            w.raw(data)
        case FileHandle(path=path, size=size):
            w.u8(2)
            w.i64(size)
            w.utf(path)
        case SegmentHandle():
            w.u8(15)
            w.i64(handle.start)
            w.i64(handle.size)
            w.i32(handle.scope)
            w.utf(handle.path)
            w.utf(handle.logical_file)
        case EmptySegmentHandle():
            w.u8(16)
        case KeyGroupsHandle():
            if handle.tag != 3:
                raise Unwritable(f"key groups of type {handle.tag} as a stream, only type 3 can be one")
            w.u8(3)
            _write_groups(w, handle.first, handle.count)
            w.i64s(handle.offsets)
            write_stream(w, handle.stream)


# -- keyed state ------------------------------------------------------------------------------------------


def read_keyed(r: Reader, field: str, depth: int = 0) -> KeyedHandle | None:
    """A keyed state handle; None for a null one. Damaged if it is none."""
    at = r.pos
    tag = r.u8(field)
    if tag == 0:
        return None
    if tag in (12, 7, 3):
        first, offsets = _offsets(r, field)
        stream = read_stream(r, field, depth + 1)
        return KeyGroupsHandle(tag, first, offsets, stream, r.utf(field) if tag == 12 else None)
    if tag in (11, 5):
        return _read_incremental(r, field, tag, depth)
    if tag in (14, 8):
        _deep(r, field, depth)
        first, count = _groups(r, field)
        checkpointed = r.i64(field)
        materialized = tuple(read_keyed(r, field, depth + 1) for _ in range(r.count(1, field)))
        changes = tuple(read_keyed(r, field, depth + 1) for _ in range(r.count(1, field)))
        materialization = r.i64(field)
        checkpoint = r.i64(field) if tag == 14 else None
        ident = r.utf(field)
        return ChangelogHandle(
            tag, first, count, checkpointed, materialized, changes, materialization, checkpoint, ident
        )
    if tag == 9:
        first, count = _groups(r, field)
        start, end = r.i64(field), r.i64(field)
        inline = tuple(InMemoryChange(r.i32(field), r.take(r.i32(field), field)) for _ in range(r.count(8, field)))
        return InMemoryChangelogHandle(first, count, start, end, inline, r.utf(field))
    if tag in (13, 10):
        first, count = _groups(r, field)
        parts = tuple(ChangeStream(r.size(field), _read_changes(r, field, depth)) for _ in range(r.count(9, field)))
        size, checkpointed, ident = r.size(field), r.i64(field), r.utf(field)
        storage = r.utf(field) if tag == 13 else None
        return FileChangelogHandle(tag, first, count, parts, size, checkpointed, ident, storage)
    raise r.error(f"a keyed state handle of unknown type {tag}", field, at)


def _read_changes(r: Reader, field: str, depth: int) -> StreamHandle | None:
    """A stream handle that is known to be of changes: nothing in its own bytes says so."""
    stream = read_stream(r, field, depth + 1)
    return replace(stream, changes=True) if isinstance(stream, FileHandle | RelativeHandle) else stream


def _read_incremental(r: Reader, field: str, tag: int, depth: int) -> IncrementalHandle:
    checkpoint, backend = r.i64(field), r.utf(field)
    first, count = _groups(r, field)
    checkpointed = r.i64(field) if tag == 11 else None
    meta = read_stream(r, field, depth + 1)
    shared, private = _files(r, field, depth), _files(r, field, depth)
    ident = r.utf(field) if tag == 11 else None
    return IncrementalHandle(tag, checkpoint, backend, first, count, checkpointed, meta, shared, private, ident)


def _files(r: Reader, field: str, depth: int) -> tuple[LocalFile, ...]:
    return tuple(LocalFile(r.utf(field), read_stream(r, field, depth + 1)) for _ in range(r.count(3, field)))


def write_keyed(w: Writer, handle: KeyedHandle | None) -> None:
    match handle:
        case None:
            w.u8(0)
        case KeyGroupsHandle():
            w.u8(handle.tag)
            _write_groups(w, handle.first, handle.count)
            w.i64s(handle.offsets)
            write_stream(w, handle.stream)
            if handle.tag == 12:
                w.utf(_required(handle.id))
        case IncrementalHandle():
            w.u8(handle.tag)
            w.i64(handle.checkpoint_id)
            w.utf(handle.backend)
            _write_groups(w, handle.first, handle.count)
            if handle.tag == 11:
                w.i64(_required(handle.checkpointed_size))
            write_stream(w, handle.meta)
            for files in (handle.shared, handle.private):
                w.i32(len(files))
                for file in files:
                    w.utf(file.name)
                    write_stream(w, file.stream)
            if handle.tag == 11:
                w.utf(_required(handle.id))
        case ChangelogHandle():
            w.u8(handle.tag)
            _write_groups(w, handle.first, handle.count)
            w.i64(handle.checkpointed_size)
            for parts in (handle.materialized, handle.changes):
                w.i32(len(parts))
                for part in parts:
                    write_keyed(w, part)
            w.i64(handle.materialization_id)
            if handle.tag == 14:
                w.i64(_required(handle.checkpoint_id))
            w.utf(handle.id)
        case InMemoryChangelogHandle():
            w.u8(9)
            _write_groups(w, handle.first, handle.count)
            w.i64(handle.start)
            w.i64(handle.end)
            w.i32(len(handle.changes))
            for change in handle.changes:
                w.i32(change.key_group)
                w.i32(len(change.data))
                w.raw(change.data)
            w.utf(handle.id)
        case FileChangelogHandle():
            w.u8(handle.tag)
            _write_groups(w, handle.first, handle.count)
            w.i32(len(handle.streams))
            for stream in handle.streams:
                w.i64(stream.offset)
                write_stream(w, stream.stream)
            w.i64(handle.size)
            w.i64(handle.checkpointed_size)
            w.utf(handle.id)
            if handle.tag == 13:
                w.utf(_required(handle.storage))


# -- operator state ---------------------------------------------------------------------------------------


def read_operator(r: Reader, field: str) -> OperatorStateHandle | None:
    """The handle of operator state, behind its `i32 0 or 1`; None for a null one. Damaged if it is none."""
    at = r.pos
    there = r.i32(field)
    if there == 0:
        return None
    if there != 1:
        raise r.error(f"{there} operator state handles where 0 or 1 is due", field, at)
    at = r.pos
    tag = r.u8(field)
    if tag not in (4, 17):
        raise r.error(f"an operator state handle of unknown type {tag}", field, at)
    states = []
    for _ in range(r.count(7, field)):
        name, mode = r.utf(field), r.u8(field)
        if mode >= len(_MODES):
            raise r.error(f"a distribution mode of {mode} for state {name!r}", field, r.pos - 1)
        states.append(OperatorPart(name, _MODES[mode], r.i64s(r.i32(field), field)))
    folders = MergedFolders(r.utf(field), r.utf(field), r.flag(field)) if tag == 17 else None
    return OperatorStateHandle(tuple(states), read_stream(r, field, 1), folders)


def write_operator(w: Writer, handle: OperatorStateHandle | None) -> None:
    w.i32(handle is not None)
    if handle is None:
        return
    w.u8(4 if handle.folders is None else 17)
    w.i32(len(handle.states))
    for state in handle.states:
        w.utf(state.name)
        w.u8(state.mode)
        w.i32(len(state.offsets))
        w.i64s(state.offsets)
    if handle.folders is not None:
        w.utf(handle.folders.task_owned)
        w.utf(handle.folders.shared)
        w.u8(handle.folders.empty)
    write_stream(w, handle.stream)


# -- channel state ----------------------------------------------------------------------------------------


def read_channels(r: Reader, field: str, *, typed: bool, output: bool) -> tuple[ChannelHandle, ...]:
    """The channel state of one subtask and direction. typed: whether a type byte stands first (version 6 and later)."""
    plain, merged = (2, 4) if output else (1, 3)
    channels = []
    for _ in range(r.count(1, field)):
        at = r.pos
        tag = r.u8(field) if typed else plain
        if tag == plain:
            subtask = r.i32(field)
            part, stream = _read_channel(r, field)
            channels.append(ChannelHandle(subtask, part.size, stream, (part,)))
        elif tag == merged:
            subtask, size = r.i32(field), r.size(field)
            stream = read_stream(r, field, 1)
            packed = r.take(r.i32(field), field)
            channels.append(ChannelHandle(subtask, size, stream, _unpack(r, packed, field), packed))
        else:
            raise r.error(f"a channel state handle of unknown type {tag}", field, at)
    return tuple(channels)


def _read_channel(r: Reader, field: str) -> tuple[ChannelPart, StreamHandle | None]:
    gate, channel = r.i32(field), r.i32(field)
    offsets = r.i64s(r.i32(field), field)
    size = r.size(field)
    return ChannelPart(gate, channel, size, offsets), read_stream(r, field, 1)


def _unpack(r: Reader, packed: bytes, field: str) -> tuple[ChannelPart, ...]:
    inner = Reader(packed, r.path)
    inner.place = [*r.place, f"packed channels that end at offset {r.pos}"]
    parts = []
    for _ in range(inner.count(20, field)):
        gate, channel, size = inner.i32(field), inner.i32(field), inner.size(field)
        parts.append(ChannelPart(gate, channel, size, inner.i64s(inner.i32(field), field)))
    if inner.left:
        raise inner.error(f"{inner.left} bytes after the last channel", field)
    return tuple(parts)


def write_channels(w: Writer, handles: tuple[ChannelHandle, ...], *, typed: bool, output: bool) -> None:
    w.i32(len(handles))
    for handle in handles:
        if handle.merged is not None:
            if not typed:
                raise Unwritable("channel state of several channels in one handle needs version 6 or later")
            w.u8(4 if output else 3)
            w.i32(handle.subtask)
            w.i64(handle.size)
            write_stream(w, handle.stream)
            w.i32(len(handle.merged))
            w.raw(handle.merged)
            continue
        part = handle.parts[0]
        if typed:
            w.u8(2 if output else 1)
        w.i32(handle.subtask)
        w.i32(part.gate)
        w.i32(part.channel)
        w.i32(len(part.offsets))
        w.i64s(part.offsets)
        w.i64(handle.size)
        write_stream(w, handle.stream)


# -- common -----------------------------------------------------------------------------------------------


def _groups(r: Reader, field: str) -> tuple[int, int]:
    """First key group and their number."""
    at = r.pos
    first, count = r.i32(field), r.i32(field)
    if first < 0 or count < 0 or first + count > MAX_KEY_GROUPS:
        raise r.error(f"{count} key groups from {first}, there are at most {MAX_KEY_GROUPS}", field, at)
    return first, count


def _offsets(r: Reader, field: str) -> tuple[int, tuple[int, ...]]:
    first, count = _groups(r, field)
    return first, r.i64s(count, field)


def _write_groups(w: Writer, first: int, count: int) -> None:
    w.i32(first)
    w.i32(count)


def _deep(r: Reader, field: str, depth: int) -> None:
    if depth >= DEPTH:
        raise r.error(f"handles more than {DEPTH} deep", field)


def _required(value: T | None) -> T:
    if value is None:
        raise Unwritable("a handle lacks a field that its type must have")
    return value
