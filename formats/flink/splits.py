"""How far the sources had read: the splits that are known, from the reader's own operator state.

A FLIP-27 source keeps its splits as the list state `SourceReaderState`: byte arrays (i32 length), each an i32 version
of the split's serializer, an i32 length and the split. The split's class is not named; two are told apart by their
shape, and a split must be used up to its last byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from formats.errors import Damaged, NotFound
from formats.flink.bytes import Reader
from formats.flink.files.streams import Streams
from formats.flink.metadata.handles import Subtask

STATE: Final = "SourceReaderState"
_MOST: Final = 64 << 20


class Split(msgspec.Struct, frozen=True):
    """One split of a source task.

    kind: `number-sequence`, `kafka`, or None for one that is not known.
    next: the number or offset that comes next.
    end: the last number, or the offset where a bounded read stops; None if unbounded.
    bytes: of the split as stored.
    """

    kind: str | None
    id: str | None
    next: int | None
    end: int | None
    bytes: int


def splits(subtask: Subtask, streams: Streams) -> tuple[Split, ...] | None:
    """The splits of one task; None if it is no FLIP-27 source. Damaged, NotFound if its stream cannot be read."""
    handle = subtask.managed_operator
    if handle is None or handle.stream is None:
        return None
    part = next((part for part in handle.states if part.name == STATE), None)
    if part is None:
        return None
    if handle.stream.size > _MOST:
        return None
    data = streams.read(handle.stream)
    path = streams.name(handle.stream)
    return tuple(_split(item, path) for item in _elements(data, part.offsets, path))


def _elements(data: bytes, offsets: tuple[int, ...], path: str) -> Iterator[bytes]:
    for offset in offsets:
        r = Reader(data, path, pos=max(offset, 0))
        yield r.take(r.i32(STATE), STATE)


def _split(data: bytes, path: str) -> Split:
    r = Reader(data, path)
    version = r.i32("split version")
    body = r.take(r.i32("split"), "split")
    if r.left:
        raise r.error(f"{r.left} bytes after a split", "split")
    return _number_sequence(version, body) or _kafka(version, body) or Split(None, None, None, None, len(body))


def _number_sequence(version: int, body: bytes) -> Split | None:
    """`NumberSequenceSplit`, version 1: UTF id, i64 next number, i64 last number."""
    r = Reader(body)
    try:
        split = Split("number-sequence", r.utf("id"), r.i64("from"), r.i64("to"), len(body))
    except Damaged:
        return None
    return split if version == 1 and not r.left and split.next is not None and split.next >= 0 else None


def _kafka(version: int, body: bytes) -> Split | None:
    """`KafkaPartitionSplit`, version 0: UTF topic, i32 partition, i64 next offset, i64 stopping offset."""
    r = Reader(body)
    try:
        topic, partition, start, stop = r.utf("topic"), r.i32("partition"), r.i64("offset"), r.i64("stop")
    except Damaged:
        return None
    if version != 0 or r.left or partition < 0 or not topic:
        return None
    unbounded = stop == -(1 << 63)
    return Split("kafka", f"{topic}-{partition}", start, None if unbounded else stop, len(body))


def readable(subtask: Subtask, streams: Streams) -> tuple[Split, ...] | None:
    """The same, None where they cannot be read."""
    try:
        return splits(subtask, streams)
    except (Damaged, NotFound):
        return None
