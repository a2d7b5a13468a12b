"""Keyed state as the pairs of RocksDB (`state.pairs`), from whichever layout, in the bytes that Flink wrote.

Values are cut, not decoded: what has lengths of its own (canonical savepoints, RocksDB) needs no serializer at all; in
the heap's layout each value is walked over to know where it ends, so that a class of the job's own stands in the way.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterator
from typing import Final

from formats.codec import snappy
from formats.flink.bytes import Reader
from formats.flink.files.streams import Streams, read_stream
from formats.flink.metadata.handles import ChangelogHandle, IncrementalHandle, KeyedHandle, KeyGroupsHandle
from formats.flink.rewriting.changelog import changelog_pairs
from formats.flink.rewriting.pair import COMMA, KeyedPairs, Pair, cut_entries, cut_items, mismatch, place
from formats.flink.rewriting.prefix import CannotRewrite, Prefix, keyed_prefix
from formats.flink.state import keyed_canonical, rocksdb
from formats.flink.state.changes import changes
from formats.flink.state.key_groups import spans
from formats.flink.state.keyed_tables import KeyedState, Table, Types
from formats.flink.types.values import BROKEN, HiddenValue

_U16: Final = struct.Struct(">H").unpack_from
_I32: Final = struct.Struct(">i").unpack_from
_END: Final = 0xFFFF
HINT: Final = "a canonical savepoint of the job can be rewritten: flink savepoint JOB --type CANONICAL"


def keyed_pairs(
    handle: KeyedHandle, streams: Streams, max_parallelism: int, types: Types | None = None
) -> KeyedPairs:
    """What a handle holds. CannotRewrite for layouts whose state is not one stream of it, and why.

    types: as of `KeyedState`.
    """
    groups = range(handle.first, handle.first + handle.count)
    match handle:
        case KeyGroupsHandle():
            begin = min((offset for offset in handle.offsets if offset), default=None)
            prefix, state = _described(handle, streams, max_parallelism, begin, types)
            if keyed_canonical.is_canonical(handle, streams, state.meta):
                return KeyedPairs(prefix, state, groups, lambda: _canonical(handle, streams, state))
            return KeyedPairs(prefix, state, groups, lambda: _heap(handle, streams, state))
        case IncrementalHandle():
            prefix, state = _described(handle, streams, max_parallelism, None, types)
            return KeyedPairs(prefix, state, groups, lambda: _rocksdb(handle, streams, state))
        case ChangelogHandle():
            parts = [
                keyed_pairs(part, streams, max_parallelism, types) for part in handle.materialized if part is not None
            ]
            return changelog_pairs(handle, parts, list(changes(handle, streams)), max_parallelism, streams.kryo, types)
        case _:
            raise CannotRewrite("it has changes of the changelog backend without what they change", hint=HINT)


def _described(
    handle: KeyGroupsHandle | IncrementalHandle,
    streams: Streams,
    max_parallelism: int,
    end: int | None,
    types: Types | None,
) -> tuple[Prefix, KeyedState]:
    stream = handle.stream if isinstance(handle, KeyGroupsHandle) else handle.meta
    data = read_stream(streams, stream, 0, end)
    path = streams.name(stream) if stream is not None else ""
    reader = Reader(data, path)
    reader.kryo = streams.kryo
    meta, prefix = keyed_prefix(reader)
    return prefix, KeyedState(meta, path, max_parallelism, types)


# -- canonical --------------------------------------------------------------------------------------------


def _canonical(handle: KeyGroupsHandle, streams: Streams, state: KeyedState) -> Iterator[Pair]:
    for group, begin, end in spans(handle):
        data = read_stream(streams, handle.stream, begin, end - begin)
        if state.meta.compressed:
            data = b"".join(plain for _, plain in snappy.streams(data, state.path, begin))
        yield from _frames(data, group, begin, state)


def _frames(data: bytes, group: int, begin: int, state: KeyedState) -> Iterator[Pair]:
    pos, end = 2, len(data)
    index = _U16(data, 0)[0] if end >= 2 else _END
    while index != _END:
        if index >= len(state.tables):
            state.fail(f"key group {group}: state {index} of {len(state.tables)}", begin + pos - 2)
        last = False
        while not last:
            parts = []
            for _ in range(2):
                n = _I32(data, pos)[0] if pos + 4 <= end else -1
                if not 0 <= n <= end - pos - 4:
                    state.fail(f"key group {group}: a frame of {n} bytes, {end - pos - 4} are left", begin + pos)
                parts.append(data[pos + 4 : pos + 4 + n])
                pos += 4 + n
            key, value = parts
            if len(key) < state.prefix:
                state.fail(f"key group {group}: a key of {len(key)} bytes", begin + pos)
            last = key[0] & 0x80 != 0
            if last:
                if pos + 2 > end:
                    state.fail(f"key group {group} ends too early", begin + pos)
                key = bytes([key[0] & 0x7F]) + key[1:]
            yield Pair(group, index, key, value)
        index = _U16(data, pos)[0]
        pos += 2
    if pos != end:
        state.fail(f"key group {group}: {end - pos} bytes after its end", begin + pos)


# -- RocksDB ----------------------------------------------------------------------------------------------


def _rocksdb(handle: IncrementalHandle, streams: Streams, state: KeyedState) -> Iterator[Pair]:
    with rocksdb.raw_families(handle, streams, state) as families:

        def rows(table: Table) -> Iterator[Pair]:
            for key, value in families[table.name]():
                yield Pair(int.from_bytes(key[: state.prefix], "big"), table.index, key, value)

        # each family is in the order of its keys, which begin with the key group
        yield from heapq.merge(*(rows(table) for table in state.tables), key=lambda pair: pair[:2])


# -- heap -------------------------------------------------------------------------------------------------


def _heap(handle: KeyGroupsHandle, streams: Streams, state: KeyedState) -> Iterator[Pair]:
    cutters = [_Cutter(table, state) for table in state.tables]
    for group, begin, end in spans(handle):
        data = read_stream(streams, handle.stream, begin, end - begin)
        if len(data) < 4 or _I32(data, 0)[0] != group:
            state.fail(f"key group {group} does not begin with its number", begin)
        parts = [(begin, data, 4)]
        if state.meta.compressed:
            parts = [(at, plain, 0) for at, plain in snappy.streams(data[4:], state.path, begin + 4)]
        pairs: list[Pair] = []
        for at, plain, pos in parts:
            while pos < len(plain):
                index = _U16(plain, pos)[0] if pos + 6 <= len(plain) else _END
                if index >= len(cutters):
                    state.fail(f"key group {group}: state {index} of {len(cutters)}", at + pos)
                pos = cutters[index].cut(plain, pos + 2, group, pairs)
        yield from sorted(pairs, key=lambda pair: pair.state)


class _Cutter:
    """Cuts the entries of one state out of a key group of the heap's layout."""

    def __init__(self, table: Table, state: KeyedState) -> None:
        self.table = table
        self.state = state
        self.problem = mismatch(table)

    def cut(self, data: bytes, pos: int, group: int, pairs: list[Pair]) -> int:
        """Append the pairs that begin at the `i32 n` at `pos`, and where they end; CannotRewrite, Damaged."""
        table, state = self.table, self.state
        n = _I32(data, pos)[0]
        pos += 4
        least = table.value.least if table.timers else table.key.least + table.namespace.least + table.value.least
        # held against what is left before anything is read: a damaged count promises billions
        if n < 0 or n * max(least, 1) > len(data) - pos:
            state.fail(f"key group {group}, state {table.name!r}: {n} entries in {len(data) - pos} bytes")
        if n and self.problem is not None:
            raise CannotRewrite(f"state {table.name!r} is {self.problem}", path=state.path, hint=HINT)
        lead = group.to_bytes(state.prefix, "big")
        try:
            for _ in range(n):
                pos = self._timer(data, pos, lead, pairs) if table.timers else self._entry(data, pos, lead, pairs)
        except HiddenValue as hidden:
            message = f"state {table.name!r} has values of {hidden.name}, whose ends only its class knows"
            raise CannotRewrite(message, path=state.path, hint=HINT) from None
        except BROKEN as error:
            state.fail(f"key group {group}, state {table.name!r}: {error or 'ends too early'}")
        if pos > len(data):
            state.fail(f"key group {group}, state {table.name!r}: ends too early")
        return pos

    def _timer(self, data: bytes, pos: int, lead: bytes, pairs: list[Pair]) -> int:
        _, end = self.table.value.read(data, pos)
        pairs.append(Pair(int.from_bytes(lead, "big"), self.table.index, lead + data[pos:end], b""))
        return end

    def _entry(self, data: bytes, pos: int, lead: bytes, pairs: list[Pair]) -> int:
        table = self.table
        _, middle = table.namespace.read(data, pos)
        _, end = table.key.read(data, middle)
        key = lead + place(table, data[middle:end], data[pos:middle])
        group = int.from_bytes(lead, "big")
        if table.is_list:
            items, after = cut_items(table, data, end)
            pairs.append(Pair(group, table.index, key, COMMA.join(items)))
        elif table.is_map:
            entries, after = cut_entries(table, data, end)
            pairs += [Pair(group, table.index, key + user_key, value) for user_key, value in entries]
        else:
            _, after = table.value.read(data, end)
            pairs.append(Pair(group, table.index, key, data[end:after]))
        return after
