"""Keyed state as rows, whatever its layout: blocks of one state and one key group at a time.

`read_blocks` takes a handle and the streams and yields blocks, lazily, key group by key group (RocksDB: state by
state).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Final
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from formats.flink.bytes import Reader
from formats.flink.files.streams import Streams, read_stream
from formats.flink.metadata.handles import (
    ChangelogHandle,
    FileChangelogHandle,
    IncrementalHandle,
    InMemoryChangelogHandle,
    KeyedHandle,
    KeyGroupsHandle,
    StreamHandle,
)
from formats.flink.state import changelog, keyed_canonical, keyed_heap, rocksdb
from formats.flink.state.changes import changes
from formats.flink.state.keyed_tables import KeyedState, RowBlock, Types
from formats.flink.state.meta import KeyedMeta, read_keyed_meta
from formats.flink.types.codecs import codec
from formats.flink.types.values import Codec, opaque

_DESCRIBED: Final[WeakKeyDictionary[Streams, dict[StreamHandle | None, tuple[KeyedMeta, str]]]] = WeakKeyDictionary()
"""The prefixes that were read: each state of a handle asks for that of the handle, and of every other subtask."""


def described(stream: StreamHandle | None, streams: Streams, length: int | None = None) -> tuple[KeyedMeta, str]:
    """The prefix of a stream, and what messages call the stream."""
    known = _DESCRIBED.setdefault(streams, {})
    if stream not in known:
        known[stream] = _read_described(stream, streams, length)
    return known[stream]


def _read_described(stream: StreamHandle | None, streams: Streams, length: int | None) -> tuple[KeyedMeta, str]:
    data = read_stream(streams, stream, 0, length)
    path = streams.name(stream) if stream is not None else ""
    reader = Reader(data, path)
    reader.kryo = streams.kryo
    return read_keyed_meta(reader), path


def _first_offset(handle: KeyGroupsHandle) -> int | None:
    """Where the first key group lies; None if all are empty."""
    return min((offset for offset in handle.offsets if offset), default=None)


def keyed_meta(handle: KeyedHandle, streams: Streams) -> KeyedMeta | None:
    """The states that a handle holds; None for one without a description of its own (changes alone)."""
    match handle:
        case KeyGroupsHandle():
            return described(handle.stream, streams, _first_offset(handle))[0]
        case IncrementalHandle():
            return described(handle.meta, streams)[0]
        case ChangelogHandle():
            metas = [keyed_meta(part, streams) for part in handle.materialized if part is not None]
            return next((meta for meta in metas if meta is not None), None)
        case InMemoryChangelogHandle() | FileChangelogHandle():
            return None


def read_blocks(
    handle: KeyedHandle,
    streams: Streams,
    max_parallelism: int,
    *,
    states: Collection[str] | None = None,
    groups: range | None = None,
    types: Types | None = None,
    key: Callable[[Codec], Codec] | None = None,
    measure: bool = False,
) -> Iterator[RowBlock]:
    """The rows of a keyed handle.

    states, groups: only these; types: see KeyedState; key: put around the key's codec (to check keys); measure: with
    the sizes of each row, where the layout has them (changelogs have none). A problem of one key group stands in its
    block; what makes all unreadable is raised: Damaged, NotFound, UnsupportedVersion.
    """
    for block in _blocks(handle, streams, max_parallelism, states, groups, types, key, measure):
        if states is None or block.table.name in states:
            yield block
        elif block.problem is not None and block.ends:  # it may have cost rows of the states that are asked for
            yield RowBlock(block.table, block.group, problem=block.problem, ends=True)


def _blocks(
    handle: KeyedHandle,
    streams: Streams,
    max_parallelism: int,
    states: Collection[str] | None,
    groups: range | None,
    types: Types | None,
    key: Callable[[Codec], Codec] | None,
    measure: bool,
) -> Iterator[RowBlock]:
    match handle:
        case KeyGroupsHandle():
            meta, path = described(handle.stream, streams, _first_offset(handle))
            state = keyed_state(meta, path, max_parallelism, types, key, measure)
            layout = keyed_canonical if keyed_canonical.is_canonical(handle, streams, meta) else keyed_heap
            yield from layout.read(handle, streams, state, states, groups)
        case IncrementalHandle():
            meta, path = described(handle.meta, streams)
            state = keyed_state(narrowed(meta, states), path, max_parallelism, types, key, measure)
            yield from rocksdb.read(handle, streams, state, states, groups)
        case _:
            since = list(changes(handle, streams))
            base = [part for part in handle.materialized if part] if isinstance(handle, ChangelogHandle) else []
            metas = [one for part in base if (one := keyed_meta(part, streams)) is not None]
            blocks = (
                block
                for part in base
                for block in read_blocks(
                    part, streams, max_parallelism, states=states, groups=groups, types=types, key=key
                )
            )
            yield from changelog.read(blocks, metas, since, max_parallelism, states, groups, types, key, streams.kryo)


def narrowed(meta: KeyedMeta, states: Collection[str] | None) -> KeyedMeta:
    """Return a prefix with these states alone, so that no codecs are made for the others. states: None for all."""
    if states is None:
        return meta
    return replace(meta, states=tuple(info for info in meta.states if info.name in states))


def keyed_state(
    meta: KeyedMeta,
    path: str,
    max_parallelism: int,
    types: Types | None = None,
    key: Callable[[Codec], Codec] | None = None,
    measure: bool = False,
) -> KeyedState:
    """The tables of a described stream; see `read_blocks`."""
    own = codec(meta.key) if meta.key is not None else opaque(meta.unknown_key or "?")
    state = KeyedState(meta, path, max_parallelism, types, key(own) if key is not None else None)
    for table in state.tables:
        table.measured = measure
    return state
