"""Writes keyed state as canonical savepoints have it (`state.keyed_canonical`), which every backend starts from."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

from formats.flink.metadata.handles import KeyGroupsHandle, RelativeHandle
from formats.flink.rewriting.pair import Pair
from formats.flink.rewriting.sink import Sink

TAG: Final = 7
"""Of the handle of such a stream."""
_END: Final = b"\xff\xff"
_PIECE: Final = 1 << 20
_LENGTH: Final = struct.Struct(">i")
_INDEX: Final = struct.Struct(">H")


def write_canonical(sink: Sink, name: str, prefix: bytes, groups: range, pairs: Iterable[Pair]) -> KeyGroupsHandle:
    """The handle of a stream that was written under this name.

    prefix: what stands before the state (`rewriting.prefix`).
    pairs: by key group, each state of it in one piece; a state's number is that of the prefix.
    """
    offsets = dict.fromkeys(groups, 0)
    size = sink.write_pieces(name, _stream(prefix, pairs, offsets))
    return KeyGroupsHandle(TAG, groups.start, tuple(offsets.values()), RelativeHandle(name, size))


def _stream(prefix: bytes, pairs: Iterable[Pair], offsets: dict[int, int]) -> Iterator[bytes]:
    buffer = bytearray(prefix)
    flushed = 0
    for group, own in groupby(pairs, key=lambda pair: pair.group):
        if offsets[group]:
            raise AssertionError(f"key group {group} comes twice")
        offsets[group] = flushed + len(buffer)
        previous: Pair | None = None
        for pair in own:
            if previous is None:
                buffer += _INDEX.pack(pair.state)
            else:
                _frame(buffer, previous, None if previous.state == pair.state else _INDEX.pack(pair.state))
            previous = pair
            if len(buffer) >= _PIECE:
                flushed += len(buffer)
                yield bytes(buffer)
                buffer.clear()
        if previous is not None:
            _frame(buffer, previous, _END)
    yield bytes(buffer)


def _frame(buffer: bytearray, pair: Pair, following: bytes | None) -> None:
    """A pair; following: what stands behind the last one of a state, whose key says so by its highest bit."""
    key = pair.key if following is None else bytes([pair.key[0] | 0x80]) + pair.key[1:]
    buffer += _LENGTH.pack(len(key))
    buffer += key
    buffer += _LENGTH.pack(len(pair.value))
    buffer += pair.value
    buffer += following or b""
