"""Splits that no task has yet, changed in the coordinator's state of their source: its enumerator hands them out when
the job starts. Of those that tasks have it keeps the names, which stay, so that it does not hand them out again.
`connectors.enumerators` says how the state lies.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeAlias

from formats.flink.bytes import Reader
from formats.flink.connectors.enumerators import enumerator
from formats.flink.connectors.split_kinds import Split
from formats.flink.connectors.splits import read_split
from formats.flink.metadata.handles import InlineHandle, OperatorState

Edit: TypeAlias = Callable[[Split, bytes], bytes | None]
"""From a split that waits to its bytes in the copy; None: it goes. Of some only the name is stored, and no bytes."""


def with_waiting(operator: OperatorState, edit: Edit) -> InlineHandle | None:
    """The coordinator's state of a source with the splits that wait as `edit` has them; None if none do."""
    handle, known = operator.coordinator, enumerator(operator)
    if known is None or not known.splits or not isinstance(handle, InlineHandle):
        return None
    r = Reader(handle.data)
    outer, version = r.take(4, "version"), r.i32("version of the enumerator")
    state = r.take(r.i32("enumerator"), "enumerator")
    match known.kind:
        case "file":
            new = _files(state, edit)
        case "number-sequence":
            new = _numbers(state, edit)
        case "kafka":
            new = _kafka(version, state, edit)
        case "kinesis":
            new = _kinesis(version, state, edit)
        case _:
            return None
    return InlineHandle(handle.name, outer + struct.pack(">ii", version, len(new)) + new)


def _files(state: bytes, edit: Edit) -> bytes:
    magic, own, count, paths = struct.unpack_from("<IiII", state)
    pieces, pos = [], 16
    for _ in range(count):
        (length,) = struct.unpack_from("<I", state, pos)
        body = state[pos + 4 : pos + 4 + length]
        pos += 4 + length
        new = edit(read_split(own, body), body)
        if new is not None:
            pieces.append(struct.pack("<I", len(new)) + new)
    return struct.pack("<IiII", magic, own, len(pieces), paths) + b"".join(pieces) + state[pos:]


def _numbers(state: bytes, edit: Edit) -> bytes:
    r = Reader(state)
    pieces = []
    for _ in range(r.i32("splits")):
        begin = r.pos
        r.utf("id")
        r.i64s(2, "numbers")
        body = state[begin : r.pos]
        pieces.append(edit(read_split(1, body), body))
    return _counted(pieces)


def _kafka(version: int, state: bytes, edit: Edit) -> bytes:
    """Partitions with their status, of which those with a task stay."""
    r = Reader(state)
    count = r.i32("partitions")
    own = r.i32("version of the splits") if version == 3 else 0
    pieces = []
    for _ in range(count):
        begin = r.pos
        if version == 3:
            body = r.take(r.i32("split"), "split")
            split = read_split(own, body)
        else:
            body, split = b"", Split("kafka", f"{r.utf('topic')}-{r.i32('partition')}", None, None, 0)
        waits = r.i32("status") != 0
        piece = state[begin : r.pos]
        new = edit(split, body) if waits else body
        if new is not None:
            pieces.append(piece if new == body else struct.pack(">i", len(new)) + new + piece[-4:])
    versions = struct.pack(">i", own) if version == 3 else b""
    return struct.pack(">i", len(pieces)) + versions + b"".join(pieces) + state[r.pos :]


def _kinesis(version: int, state: bytes, edit: Edit) -> bytes:
    r = Reader(state)
    if r.flag("has seen a shard"):
        r.utf("last shard")
    head = state[: r.pos]
    count, own = r.i32("shards"), r.i32("version of the splits")
    pieces = []
    for _ in range(count):
        begin = r.pos
        body = r.take(r.i32("split"), "split")
        waits = version == 0 or r.i32("status") != 0
        if waits and edit(read_split(own, body), body) is None:
            continue
        pieces.append(state[begin : r.pos])
    return head + struct.pack(">ii", len(pieces), own) + b"".join(pieces) + state[r.pos :]


def _counted(pieces: list[bytes | None]) -> bytes:
    """Those that stay, behind their number."""
    kept = [piece for piece in pieces if piece is not None]
    return struct.pack(">i", len(kept)) + b"".join(kept)
