"""The changes that Flink's changelog backend writes.

A change is `u8 operation | i16 state | key | namespace | operand` in a key group (timers: `u8 | i16 | operand`), or,
in group -1, `u8 8 | i32 7 | info | [u8, Java-serialised TTL] [u8, default value] | i16 state | u8 kind`, which
describes a state. Files of changes begin with a byte that says whether the rest is a snappy stream; neither sizes nor
offsets in handles count it, and both are of plain bytes. At each offset stands one set: i32 n x (i32 m, i32 key group,
m x (i32 length, change)).

Source: `StateChangeOperation`, `StateChangeFormat`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from formats.codec import snappy
from formats.errors import Damaged
from formats.flink.bytes import Reader
from formats.flink.files.resolve import of_changes
from formats.flink.files.streams import Streams
from formats.flink.metadata.handles import (
    ChangelogHandle,
    FileChangelogHandle,
    InMemoryChangelogHandle,
    KeyedHandle,
    StreamHandle,
)
from formats.flink.state.keyed_tables import Table

CLEAR, SET, SET_INTERNAL, ADD, MERGE, ADD_ELEMENT, PUT_ELEMENT, REMOVE, METADATA = range(9)
_I16: Final = struct.Struct(">h").unpack_from
_I32: Final = struct.Struct(">i").unpack_from


class Change(NamedTuple):
    """One change.

    group: its key group, -1 for a change of the metadata.
    path: the stream that it stands in.
    """

    group: int
    data: bytes
    path: str


def changes(handle: KeyedHandle | None, streams: Streams) -> Iterator[Change]:
    """The changes of a handle in their order; Damaged, NotFound."""
    match handle:
        case InMemoryChangelogHandle():
            for change in handle.changes:
                yield Change(change.key_group, change.data, "_metadata")
        case FileChangelogHandle():
            for part in handle.streams:
                if part.stream is not None:
                    yield from _set_of(part.stream, part.offset, streams)
        case ChangelogHandle():
            for inner in handle.changes:
                yield from changes(inner, streams)
        case _:
            return


def _set_of(stream: StreamHandle, offset: int, streams: Streams) -> Iterator[Change]:
    path = streams.name(stream)
    # all of it: offsets are of plain bytes, and a snappy stream cannot be entered in its middle
    data = streams.read(stream, 0, None)
    if not data or data[0] > 1:
        raise Damaged("no file of changes: it begins with neither 0 nor 1", path=path)
    rest = data[1:]
    if data[0]:
        rest = b"".join(part for _, part in snappy.streams(rest, path, 1))
    due = stream.size if of_changes(stream) else len(rest)
    if len(rest) != due:
        raise Damaged(f"a file of changes with {len(rest)} plain bytes, {due} were written", path=path)
    r = Reader(rest, path, max(offset, 0))
    for _ in range(r.count(8, "key groups of changes")):
        n, group = r.i32("changes"), r.i32("key group")
        # a count too large needs no check: the first change that is not there raises
        for _ in range(n):
            yield Change(group, r.take(r.i32("change"), "change"), path)


def number_of(data: bytes) -> int:
    """The number of the state that a change is of."""
    number: int = _I16(data, 1)[0]
    return number


def read_operand(table: Table, operation: int, data: bytes, pos: int) -> tuple[Any, Any]:
    """(namespace, what the operation works with); ValueError unless it ends with its bytes."""
    namespace, pos = table.namespace.read(data, pos)
    operand: Any = None
    if operation in (SET, SET_INTERNAL, ADD):
        operand, pos = table.value.read(data, pos)
    # one number for two things: an element for a list, an entry for a map
    elif operation == ADD_ELEMENT and not table.is_map:
        operand, pos = table.item.read(data, pos)
    elif operation in (ADD_ELEMENT, PUT_ELEMENT) and table.user_key is not None:
        key, pos = table.user_key.read(data, pos)
        item, pos = table.item.read(data, pos)
        operand = (key, item)
    elif operation == REMOVE and table.user_key is not None:
        operand, pos = table.user_key.read(data, pos)
    elif operation == MERGE:
        target, pos = table.namespace.read(data, pos)
        n = _I32(data, pos)[0]
        pos += 4
        if not 0 <= n <= len(data):
            raise ValueError(f"{n} namespaces")
        sources = []
        for _ in range(n):
            source, pos = table.namespace.read(data, pos)
            sources.append(source)
        operand = (target, sources)
    elif operation != CLEAR:
        raise ValueError(f"operation {operation}")
    if pos != len(data):
        raise ValueError(f"{len(data)} bytes, {pos} of them used")
    return namespace, operand


def timers(table: Table, data: bytes) -> Iterator[tuple[Any, Any, Any]]:
    """Timers of a change: several are added at once, one is removed."""
    pos, n = 3, 1
    if data[0] == ADD_ELEMENT:
        n = _I32(data, 3)[0]
        pos = 7
        if not 0 <= n * 8 <= len(data) - 7:
            raise ValueError(f"{n} timers in {len(data) - 7} bytes")
    elif data[0] != REMOVE:
        raise ValueError(f"operation {data[0]} on timers")
    for _ in range(n):
        timer, pos = table.value.read(data, pos)
        yield timer
    if pos != len(data):
        raise ValueError(f"{len(data)} bytes, {pos} of them used")
