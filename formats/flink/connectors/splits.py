"""How far the sources had read: the splits that are known, from the reader's own operator state.

A FLIP-27 source keeps its splits as the list state `SourceReaderState`: byte arrays (i32 length), each an i32 version
of the split's serializer, an i32 length and the split. The split's class is not named; kinds are told apart by their
shape, and a split must be used up to its last byte.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from formats.errors import Damaged, NotFound
from formats.flink.bytes import Reader
from formats.flink.connectors import old_kafka
from formats.flink.connectors.split_kinds import Split, cdc, kinesis, pulsar
from formats.flink.files.streams import Streams
from formats.flink.metadata.handles import Subtask
from formats.flink.state.operator import raw_elements
from formats.flink.types.strings import read_string
from formats.flink.types.values import BROKEN

STATE: Final = "SourceReaderState"
_MOST: Final = 64 << 20


def splits(subtask: Subtask, streams: Streams) -> tuple[Split, ...] | None:
    """The splits of one task; None if it is no source that is known. Damaged, NotFound if its stream cannot be read."""
    handle = subtask.managed_operator
    if handle is None or handle.stream is None or handle.stream.size > _MOST:
        return None
    part = next((part for part in handle.states if part.name in (STATE, old_kafka.STATE)), None)
    if part is None:
        return None
    if part.name == old_kafka.STATE:
        return tuple(map(old_kafka.read_position, raw_elements(handle, streams)[old_kafka.STATE]))
    data = streams.read(handle.stream)
    path = streams.name(handle.stream)
    return tuple(read_framed(item, path) for item in _elements(data, part.offsets, path))


def _elements(data: bytes, offsets: tuple[int, ...], path: str) -> Iterator[bytes]:
    for offset in offsets:
        r = Reader(data, path, pos=max(offset, 0))
        yield r.take(r.i32(STATE), STATE)


def read_framed(data: bytes, path: str | None = None) -> Split:
    """A split with its serializer's version and its length before it. Damaged."""
    r = Reader(data, path)
    version = r.i32("split version")
    body = r.take(r.i32("split"), "split")
    if r.left:
        raise r.error(f"{r.left} bytes after a split", "split")
    return read_split(version, body)


def read_split(version: int, body: bytes) -> Split:
    """A split as its serializer wrote it; one of no kind that is known has neither kind nor id."""
    for read in (_number_sequence, _kafka, _file, kinesis, pulsar, cdc):
        known = read(version, body)
        if known is not None:
            return known
    return Split(None, None, None, None, len(body))


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
    return Split(
        "kafka", f"{topic}-{partition}", start, None if unbounded else stop, len(body), _KAFKA_WORDS.get(start)
    )


_KAFKA_WORDS: Final = {-1: "latest", -2: "earliest", -3: "committed"}
"""Offsets that stand for others, of partitions of which nothing was read yet."""


def _file(version: int, body: bytes) -> Split | None:
    """`FileSourceSplit`, version 1: UTF id, path, i64 offset, i64 length, [i64 modified, i64 size,] i32 n x UTF host,
    u8 whether a position follows: i64 offset (-1: none), i64 records behind it. Before Flink 1.15 it had no time and
    size, under the same version."""
    if version != 1:
        return None
    for times in (2, 0):
        r = Reader(body)
        try:
            r.utf("id")
            path = _path(r)
            offset, _ = r.i64s(2, "bounds")
            r.i64s(times, "times")
            for _ in range(r.count(2, "hosts")):
                r.utf("host")
            position = r.i64s(2, "position") if r.flag("has a position") else (-1, 0)
        except (Damaged, *BROKEN):
            continue
        if not r.left and offset >= 0 and position[0] >= -1 and position[1] >= 0:
            name = f"{path}:{offset}" if offset else path
            return Split("file", name, position[1] if position[0] < 0 else None, None, len(body))
    return None


def _path(r: Reader) -> str:
    """`Path`: u8 whether there is one, then scheme, user, host, i32 port, path, query and fragment of its URI, each
    text behind whether there is one."""
    if not r.flag("path"):
        return ""
    texts: list[str] = []
    for field in ("scheme", "user", "host", "port", "path", "query", "fragment"):
        if field == "port":
            port = r.i32(field)
            texts.append(f":{port}" if port >= 0 else "")
        elif r.flag(field):
            text, r.pos = read_string(r.data, r.pos)
            texts.append(text or "")
        else:
            texts.append("")
    scheme, user, host, port_text, path, query, fragment = texts
    authority = f"//{user}{'@' if user else ''}{host}{port_text}" if host else ""
    return (f"{scheme}:" if scheme else "") + authority + path + (f"?{query}" if query else "") + (
        f"#{fragment}" if fragment else ""
    )


def read_element(element: bytes, path: str | None = None) -> Split:
    """The split that an element of the state holds: an array of bytes, with its length before it. Damaged."""
    r = Reader(element, path)
    return read_framed(r.take(r.i32(STATE), STATE), path or STATE)


def moved_to(element: bytes, position: int) -> bytes | None:
    """The element with its split read on from elsewhere; None for a kind of split of which that is not known."""
    version, body = element[4:8], split_moved_to(read_element(element), element[12:], position)
    if body is None:
        return None
    return (len(body) + 8).to_bytes(4, "big") + version + len(body).to_bytes(4, "big") + body


def split_moved_to(split: Split, body: bytes, position: int) -> bytes | None:
    """A split's own bytes, read on from elsewhere; None as of `moved_to`."""
    if split.kind == "file" and position >= 0:
        return _file_moved_to(body, position)
    if split.kind not in ("kafka", "number-sequence") or (split.kind == "number-sequence" and position < 0):
        return None
    # both end with the position and where reading stops
    return body[:-16] + position.to_bytes(8, "big", signed=True) + body[-8:]


def _file_moved_to(body: bytes, records: int) -> bytes:
    """A file's split read again but for so many of its records: the position, which stands last, is another."""
    # a position is there if the same bytes without one are a split as well: its mark is 17 bytes from the end
    with_position = body[-17] == 1 and _file(1, body[:-17] + b"\0") is not None
    return body[: -17 if with_position else -1] + struct.pack(">?qq", True, -1, records)


def readable(subtask: Subtask, streams: Streams) -> tuple[Split, ...] | None:
    """The same, None where they cannot be read."""
    try:
        return splits(subtask, streams)
    except (Damaged, NotFound):
        return None
