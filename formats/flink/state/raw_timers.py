"""Timers in raw keyed state: those that an operator keeps on the heap beside another state backend (ForSt; RocksDB with
`state.backend.rocksdb.timer-service.factory: HEAP`).

At the offset of each key group: F1 CD 85 9F | i32 2 | i32 n, n x service. A service: UTF name | serializers of keys and
of namespaces | i32 n, n x timer by event time | the same by processing time. A timer: key, namespace, i64 milliseconds.
The states have the names that a state backend gives them. What does not begin so is of the operator's own.

Source: `InternalTimerServiceSerializationProxy`, `InternalTimersSnapshotReaderWriters`; held against a job's timers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator
from itertools import pairwise
from typing import Final

from formats.errors import Damaged
from formats.flink.bytes import Reader
from formats.flink.files.streams import Streams, read_stream
from formats.flink.metadata.handles import KeyedHandle, KeyGroupsHandle
from formats.flink.state.keyed_tables import HiddenRows, RowBlock, Table
from formats.flink.state.meta import StateInfo, StateKind
from formats.flink.types.codecs import codec
from formats.flink.types.serializers import Snapshot, Unknown, read_versioned
from formats.flink.types.values import BROKEN, Codec, HiddenValue

_MAGIC: Final = b"\xf1\xcd\x85\x9f"
_VERSION: Final = 2
_TIMER: Final = "org.apache.flink.streaming.api.operators.TimerSerializerSnapshot"
_I64: Final = struct.Struct(">q").unpack_from


def are_timers(handle: KeyedHandle, streams: Streams) -> bool:
    """Whether raw keyed state is that of timers. Damaged, NotFound."""
    if not isinstance(handle, KeyGroupsHandle) or not handle.offsets or handle.stream is None:
        return False
    head = read_stream(streams, handle.stream, min(handle.offsets), 8)
    return head == _MAGIC + struct.pack(">i", _VERSION)


def read(
    handle: KeyedHandle,
    streams: Streams,
    *,
    states: Collection[str] | None = None,
    groups: Collection[int] | None = None,
    key: Callable[[Codec], Codec] | None = None,
) -> Iterator[RowBlock]:
    """The timers of each service and key group, also where there are none; nothing where the state is not of timers.

    states, groups: only these; key: put around the key's codec (to check keys). What is damaged stands in a block, and
    the rest of its key group is lost.
    """
    if not are_timers(handle, streams) or not isinstance(handle, KeyGroupsHandle):
        return
    data = read_stream(streams, handle.stream)
    path = streams.name(handle.stream) if handle.stream is not None else ""
    bounds = [*sorted(set(handle.offsets)), len(data)]
    ends = dict(pairwise(bounds))
    for i, offset in enumerate(handle.offsets):
        group = handle.first + i
        if groups is not None and group not in groups:
            continue
        reader = Reader(data, path, offset, ends.get(offset, offset))
        reader.kryo = streams.kryo
        for block in _group(reader, group, key):
            if states is None or block.table.name in states or block.problem is not None:
                yield block


def _group(reader: Reader, group: int, key: Callable[[Codec], Codec] | None) -> Iterator[RowBlock]:
    where = f"timers of key group {group}"
    if reader.take(4, where) != _MAGIC or reader.i32(where) != _VERSION:
        reader.fail(f"{where}: not as timers begin", where, reader.pos)
    for _ in range(reader.count(14, "timer services")):
        name = reader.utf("timer service")
        try:
            serializers = read_versioned(reader), read_versioned(reader)
        except Unknown as error:  # what follows has no beginning that could be found
            hidden = HiddenRows(error.name, None, reader.left)
            yield RowBlock(_table(name, "event", None, key, error.name), group, hidden=hidden)
            return
        snapshot = Snapshot("timer", _TIMER, 2, nested=serializers)
        for kind in ("event", "processing"):
            block = _table(name, kind, snapshot, key).block(group)
            _add(block, reader)
            yield block
            if block.problem is not None or block.hidden is not None:
                return
    if reader.left:
        reader.fail(f"{where}: {reader.left} bytes are left", where, reader.pos)


def _table(
    service: str, kind: str, snapshot: Snapshot | None, key: Callable[[Codec], Codec] | None, unknown: str | None = None
) -> Table:
    info = StateInfo(f"_timer_state/{kind}_{service}", StateKind.PRIORITY_QUEUE, value=snapshot, unknown=unknown)
    table = Table(0, info, codec(snapshot.nested[0]) if snapshot is not None else codec(Snapshot("void", "", 1)))
    if key is not None:
        table.key = key(table.key)
    return table


def _add(block: RowBlock, reader: Reader) -> None:
    """The timers that follow; a problem where they cannot be read."""
    table, data = block.table, reader.data
    begin = reader.pos
    n = reader.count(8, "timers")
    pos = reader.pos
    try:
        for _ in range(n):
            key, pos = table.key.read(data, pos)
            namespace, pos = table.namespace.read(data, pos)
            if pos + 8 > reader.end:
                raise IndexError("ends too early")
            block.keys.append(key)
            block.namespaces.append(namespace)
            block.values.append(_I64(data, pos)[0])
            pos += 8
    except HiddenValue as hidden:
        block.hidden = HiddenRows(hidden.name, n - len(block.keys), reader.end - pos)
    except BROKEN as error:
        message = f"timers {table.name!r} of key group {block.group}: timer {len(block.keys) + 1} of {n}: {error}"
        block.problem = Damaged(message, path=reader.path)
    block.bytes = pos - begin - 4
    reader.pos = pos
