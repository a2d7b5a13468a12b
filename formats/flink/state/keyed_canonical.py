"""Keyed state as canonical savepoints have it, and full checkpoints of RocksDB before 2.0.

After the prefix, at the offset of each key group that is not empty: i16 state index, then pairs of frames, a key and
a value. If the highest bit of a key is set, an i16 follows the pair: 0xFFFF at the group's end, else the next state.
Compressed: one snappy stream a group. Keys and values are those of RocksDB (`pairs`). Everything has a length, so a
value of a class of its own hides nothing but itself.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from typing import Final

from formats.codec import snappy
from formats.errors import FormatError
from formats.flink.files.streams import Streams, read_stream
from formats.flink.metadata.handles import KeyGroupsHandle
from formats.flink.state.keyed_heap import spans
from formats.flink.state.keyed_tables import KeyedState, RowBlock
from formats.flink.state.meta import KeyedMeta
from formats.flink.state.pairs import PairReader

_U16: Final = struct.Struct(">H").unpack_from
_I32: Final = struct.Struct(">i").unpack_from
_END: Final = 0xFFFF


def is_canonical(handle: KeyGroupsHandle, streams: Streams, meta: KeyedMeta) -> bool:
    """Whether a stream by key groups has this layout: by its tag, else by what its key groups begin with.

    A heap stream has every key group, and each begins with its own number; group 0 of this layout may begin so, too,
    and is told by its frames.
    """
    if handle.tag == 7:
        return True
    if any(offset == 0 for offset in handle.offsets):
        return True
    for group, begin, end in reversed(spans(handle)):
        head = read_stream(streams, handle.stream, begin, min(end - begin, 16))
        if len(head) < 4:
            return False
        if meta.compressed:
            return head.startswith(snappy.BEGIN[:4])
        if _I32(head, 0)[0] != group:
            return True
        if group:
            return False
        return _walks(read_stream(streams, handle.stream, begin, end - begin))
    return False


def _walks(data: bytes) -> bool:
    """Whether group 0 is a chain of frames up to its last byte, which is no accident: an operator of max parallelism 1,
    as SQL's global aggregates are, has no other group to tell the layout by."""
    pos, end = 2, len(data)
    while pos + 5 <= end:
        last = data[pos + 4] & 0x80
        for _ in ("key", "value"):
            n = _I32(data, pos)[0] if pos + 4 <= end else -1
            if not 0 <= n <= end - pos - 4:
                return False
            pos += 4 + n
        if last:
            if pos + 2 > end:
                return False
            if _U16(data, pos)[0] == _END:
                return pos + 2 == end
            pos += 2
    return False


def read(
    handle: KeyGroupsHandle,
    streams: Streams,
    state: KeyedState,
    states: Collection[str] | None,
    groups: range | None,
) -> Iterator[RowBlock]:
    """Blocks of every key group, state by state in the order of the file."""
    readers = [PairReader(table, state) for table in state.tables]
    for group, begin, end in spans(handle):
        if groups is not None and group not in groups:
            continue
        try:
            data = read_stream(streams, handle.stream, begin, end - begin)
            if state.meta.compressed:
                data = b"".join(plain for _, plain in snappy.streams(data, state.path, begin))
        except FormatError as error:
            yield RowBlock(readers[0].table if readers else state.tables[0], group, problem=error, ends=True)
            continue
        for block in _group(data, group, begin, state, readers):
            if states is None or block.table.name in states or block.problem is not None:
                yield block


def _group(data: bytes, group: int, begin: int, state: KeyedState, readers: list[PairReader]) -> Iterator[RowBlock]:
    end, pos = len(data), 0
    block: RowBlock | None = None
    index = _U16(data, 0)[0] if end >= 2 else _END
    pos = 2
    while True:
        if index >= len(readers):
            message = f"key group {group}: state {index} of {len(readers)}"
            lost = block or RowBlock(state.tables[0], group)
            lost.problem, lost.ends = state.damaged(message, begin + pos - 2), True
            yield lost
            return
        reader = readers[index]
        block = reader.table.block(group)
        last = False
        while not last:
            start = pos
            try:
                n = _I32(data, pos)[0]
                if not 0 < n <= end - pos - 4:
                    raise ValueError(f"a key of {n} bytes, {end - pos - 4} are left")
                key = data[pos + 4 : pos + 4 + n]
                pos += 4 + n
                m = _I32(data, pos)[0]
                if not 0 <= m <= end - pos - 4:
                    raise ValueError(f"a value of {m} bytes, {end - pos - 4} are left")
                value = data[pos + 4 : pos + 4 + m]
                pos += 4 + m
                # free for this mark: key groups are below 128 in one byte, below 2**15 in two
                last = key[0] & 0x80 != 0
                if last:
                    key = bytes([key[0] & 0x7F]) + key[1:]
                    index = _U16(data, pos)[0]
                    pos += 2
            except (struct.error, ValueError) as error:
                message = f"key group {group}, state {reader.table.name!r}, entry {len(block.keys) + 1}: {error}"
                block.problem, block.ends = state.damaged(message, begin + start), True
                yield block
                return
            problem = reader.add(block, key, value)
            if problem is not None and block.problem is None:
                block.problem = state.damaged(f"{problem} (key group {group})", begin + start)
        yield block
        if index == _END:
            if pos != end:
                block = RowBlock(reader.table, group)
                block.problem = state.damaged(f"key group {group}: {end - pos} bytes after its end", begin + pos)
                yield block
            return
