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
from formats.flink.files.streams import Streams, read_stream
from formats.flink.metadata.handles import KeyGroupsHandle
from formats.flink.state import key_groups
from formats.flink.state.key_groups import spans
from formats.flink.state.keyed_tables import KeyedState, RowBlock
from formats.flink.state.meta import KeyedMeta
from formats.flink.state.pairs import PairReader

_U16: Final = struct.Struct(">H").unpack_from
_I32: Final = struct.Struct(">i").unpack_from
_END: Final = 0xFFFF
PIECE: Final = 4096
"""Rows of a block of `pieces`."""


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

    def decode(data: bytes, group: int, begin: int) -> Iterator[RowBlock]:
        if state.meta.compressed:
            data = b"".join(plain for _, plain in snappy.streams(data, state.path, begin))
        return _group(data, group, begin, state, readers)

    yield from key_groups.read(handle, streams, state, states, groups, decode)


def pieces(
    handle: KeyGroupsHandle, streams: Streams, state: KeyedState, group: int, begin: int, end: int
) -> Iterator[RowBlock]:
    """The rows of one key group that is not compressed, as blocks of at most PIECE rows: it is never whole in memory.
    Damaged where its frames do not fit."""
    frames = _Frames(handle, streams, begin, end, state)
    readers = [PairReader(table, state) for table in state.tables]
    index = frames.short()
    while index != _END:
        if index >= len(readers):
            state.fail(f"key group {group}: state {index} of {len(readers)}", frames.at)
        reader, last = readers[index], False
        block = reader.table.block(group)
        while not last:
            key, value = frames.frame(), frames.frame()
            if not key:
                state.fail(f"key group {group}: a key of no bytes", frames.at)
            last = key[0] & 0x80 != 0
            if last:
                key = bytes([key[0] & 0x7F]) + key[1:]
                index = frames.short()
            problem = reader.add(block, key, value)
            if problem is not None and block.problem is None:
                block.problem = state.damaged(f"{problem} (key group {group})", frames.at)
            if len(block.keys) >= PIECE:
                yield block
                block = reader.table.block(group)
        yield block


class _Frames:
    """Frames of a stream, read AHEAD of them. at: offset of the next."""

    AHEAD: Final = 1 << 20

    def __init__(self, handle: KeyGroupsHandle, streams: Streams, begin: int, end: int, state: KeyedState) -> None:
        self._handle, self._streams, self._end, self._state = handle, streams, end, state
        self.at, self._data, self._begin = begin, b"", begin

    def short(self) -> int:
        """The next two bytes, as a number."""
        return int.from_bytes(self._take(2), "big")

    def frame(self) -> bytes:
        """The bytes of the next frame."""
        return self._take(int.from_bytes(self._take(4), "big", signed=True))

    def _take(self, count: int) -> bytes:
        if not 0 <= count <= self._end - self.at:
            self._state.fail(f"a frame of {count} bytes, {self._end - self.at} are left", self.at)
        begin = self.at - self._begin
        if begin + count > len(self._data):
            length = min(max(count, self.AHEAD), self._end - self.at)
            self._data = read_stream(self._streams, self._handle.stream, self.at, length)
            self._begin, begin = self.at, 0
        self.at += count
        return self._data[begin : begin + count]


def _group(data: bytes, group: int, begin: int, state: KeyedState, readers: list[PairReader]) -> Iterator[RowBlock]:
    end, pos = len(data), 0
    block: RowBlock | None = None
    index = _U16(data, 0)[0] if end >= 2 else _END
    pos = 2
    while True:
        if index >= len(readers):
            message = f"key group {group}: state {index} of {len(readers)}"
            lost = block or RowBlock(key_groups.nowhere(state), group)
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
