"""Pairs of keyed state, as RocksDB and canonical savepoints have it (`state.pairs`), cut from bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from formats.flink.rewriting.prefix import Prefix
from formats.flink.state.keyed_tables import KeyedState, Table

COMMA: Final = b","
"""Stands between the elements of a list."""

_I32: Final = struct.Struct(">i").unpack_from


class Pair(NamedTuple):
    """One entry of a state.

    state: its number among those of the stream.
    key: begins with the key group.
    """

    group: int
    state: int
    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class KeyedPairs:
    """The keyed state of one subtask.

    pairs: by key group, each state of it in one piece; can be taken once.
    """

    prefix: Prefix
    state: KeyedState
    groups: range
    pairs: Callable[[], Iterator[Pair]]


def is_framed(table: Table) -> bool:
    """Whether lengths stand behind key and namespace, which would not be told apart without."""
    return table.key.length < 0 and table.namespace.length < 0


def mismatch(table: Table) -> str | None:
    """Why the values of a state cannot be cut: a map or list must have the serializer of one."""
    kind = table.info.type
    if (kind == "MAP") != table.is_map or (kind == "LIST") != table.is_list:
        return f"a {table.info.word} whose serializer is {table.value.kind}"
    return None


def joined(key: bytes, namespace: bytes) -> bytes:
    """A key and a namespace of no fixed length, each with its length behind it."""
    return b"".join(part + len(part).to_bytes(_width(len(part)), "little") for part in (key, namespace))


def place(table: Table, key: bytes, namespace: bytes) -> bytes:
    """What a pair's key has behind the key group, of map state before the key of the entry."""
    return joined(key, namespace) if is_framed(table) else key + namespace


def entry_begin(table: Table, prefix: int, key: bytes) -> int:
    """Where the key of a map's entry begins in the key of a pair. prefix: bytes of the key group; `values.BROKEN`,
    HiddenValue."""
    _, end = table.key.read(key, prefix)
    framed = is_framed(table)
    begin = end + (_width(end - prefix) if framed else 0)
    _, at = table.namespace.read(key, begin)
    return at + (_width(at - begin) if framed else 0)


def cut_items(table: Table, data: bytes, pos: int) -> tuple[list[bytes], int]:
    """The elements of a list, `i32 n` and n of them, and where they end; `values.BROKEN`, HiddenValue."""
    n, pos = read_count(data, pos)
    items = []
    for _ in range(n):
        _, after = table.item.read(data, pos)
        items.append(data[pos:after])
        pos = after
    return items, pos


def cut_entries(table: Table, data: bytes, pos: int) -> tuple[list[tuple[bytes, bytes]], int]:
    """The entries of a map, `i32 n` and n of them, each value behind its mark of null; as `cut_items`."""
    assert table.user_key is not None
    n, pos = read_count(data, pos)
    entries = []
    for _ in range(n):
        _, middle = table.user_key.read(data, pos)
        end = middle + 1
        if not data[middle]:
            _, end = table.item.read(data, end)
        entries.append((data[pos:middle], data[middle:end]))
        pos = end
    return entries, pos


def read_count(data: bytes, pos: int) -> tuple[int, int]:
    """The number of entries at a position, and where they begin; `values.BROKEN`."""
    n = _I32(data, pos)[0]
    if n < 0:
        raise ValueError(f"{n} entries")
    return n, pos + 4


def _width(length: int) -> int:
    """Bytes of a length that follows what it is of."""
    return max(1, (length.bit_length() + 7) // 8)
