"""Keyed state as the heap backend writes it in checkpoints and native savepoints.

After the prefix, at the offset of each key group: i32 key group, then for every state: i16 index into the infos, then
i32 n and n x (namespace, key, value), or of timers n x timer. With compression each state's part is a snappy stream of
its own. Values have no lengths: one that cannot be read hides what follows, to the end of the key group (compressed: to
the end of the state).
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from functools import partial
from typing import Any, Final

from formats.codec import snappy
from formats.flink.files.streams import Streams
from formats.flink.metadata.handles import KeyGroupsHandle
from formats.flink.state import key_groups
from formats.flink.state.heap_search import Search
from formats.flink.state.keyed_tables import HiddenRows, KeyedState, RowBlock, Table
from formats.flink.types.values import BROKEN, Codec, HiddenValue

_I16: Final = struct.Struct(">h").unpack_from
_I32: Final = struct.Struct(">i").unpack_from
_PATIENCE: Final = 1 << 11
"""Work that may be spent in a key group to find states again behind hidden ones, besides three for each of its bytes
(`heap_search`)."""
_MOST: Final = 1 << 26
"""Work that may be spent so in all key groups of a handle, some ten seconds of it."""


def read(
    handle: KeyGroupsHandle,
    streams: Streams,
    state: KeyedState,
    states: Collection[str] | None,
    groups: range | None,
) -> Iterator[RowBlock]:
    """Blocks of every key group, each state in the order of the file."""
    # of the handle, not of each key group: a hostile file has as many of those as it likes
    state.patience = _MOST
    yield from key_groups.read(handle, streams, state, states, groups, partial(_group, state=state))


def _group(data: bytes, group: int, begin: int, state: KeyedState) -> list[RowBlock]:
    if len(data) < 4:
        state.fail(f"key group {group}: {len(data)} bytes", begin)
    stored = _I32(data, 0)[0]
    if stored != group:
        state.fail(f"key group {stored} where {group} is due", begin)
    if not state.meta.compressed:
        return _uncompressed(data, begin, group, state)
    all_blocks: list[RowBlock] = []
    todo = {table.index for table in state.tables}
    for at, plain in snappy.streams(data[4:], state.path, begin + 4):
        blocks = run(plain, 0, begin + 4 + at, group, state, todo)
        all_blocks += blocks
        if len(blocks) != 1:
            message = f"key group {group}: a snappy stream of {len(blocks)} states, each has its own"
            _add(all_blocks, state, group).problem = state.damaged(message, begin + 4 + at)
    if todo and not any(block.problem is not None for block in all_blocks):
        _without(all_blocks, state, group, todo, begin + len(data))
    return all_blocks


def _uncompressed(data: bytes, begin: int, group: int, state: KeyedState) -> list[RowBlock]:
    """The states of a key group, with so much patience as its size and what is left of the handle's allow."""
    given = min(_PATIENCE + 3 * len(data), state.patience)
    search = None if state.key.kind == "opaque" else Search(data, state.keys_of(group), given)
    blocks = run(data, 4, begin, group, state, {table.index for table in state.tables}, search)
    # what this key group did not spend is left for those to come
    state.patience -= 0 if search is None else given - search.patience
    return blocks


def _without(blocks: list[RowBlock], state: KeyedState, group: int, todo: set[int], at: int) -> None:
    """Say that states of a key group are missing: Flink writes all of them, be they empty."""
    lost = ", ".join(repr(state.tables[i].name) for i in sorted(todo))
    _add(blocks, state, group).problem = state.damaged(f"key group {group} ends without {lost}", at)


def run(
    data: bytes, pos: int, begin: int, group: int, state: KeyedState, todo: set[int], search: Search | None = None
) -> list[RowBlock]:
    """`_run`, saying that a problem costs the rest of the key group."""
    blocks = _run(data, pos, begin, group, state, todo, search)
    if blocks and blocks[-1].problem is not None:
        blocks[-1].ends = True
    return blocks


def _run(
    data: bytes, pos: int, begin: int, group: int, state: KeyedState, todo: set[int], search: Search | None
) -> list[RowBlock]:
    """States from `pos` on, each of `todo` at most once, which they are taken from. The last block says what stopped
    it: hidden, problem, or neither at the last byte. begin: offset of `data` in the stream."""
    blocks: list[RowBlock] = []
    while pos < len(data):
        start = pos
        if pos + 6 > len(data):
            _add(blocks, state, group).problem = state.damaged(f"key group {group}: ends within a state", begin + pos)
            return blocks
        index = _I16(data, pos)[0]
        if index not in todo:
            message = f"key group {group}: state {index} of {len(state.tables)}, or for the second time"
            _add(blocks, state, group).problem = state.damaged(message, begin + pos)
            return blocks
        todo.discard(index)
        table = state.tables[index]
        n = _I32(data, pos + 2)[0]
        pos += 6
        block = table.block(group)
        blocks.append(block)
        least = table.value.least if table.timers else table.key.least + table.namespace.least + table.value.least
        # held against what is left before anything is read: a damaged count promises billions
        if n < 0 or n * max(least, 1) > len(data) - pos:
            message = f"key group {group}, state {table.name!r}: {n} entries in {len(data) - pos} bytes"
            block.problem = state.damaged(message, begin + start)
            return blocks
        # the readers write into it as they go: what they would return is lost when a value cannot be read
        cursor = [0, pos]
        try:
            if table.timers:
                pos = _timers(table.value, data, pos, n, block, cursor)
            else:
                pos = _entries(table, data, pos, n, block, cursor)
            block.bytes = pos - start
        except HiddenValue as hidden:
            # compressed, each state is a stream of its own: nothing of another one lies behind this value
            behind = () if state.meta.compressed else tuple(state.tables[i].name for i in sorted(todo))
            block.hidden = HiddenRows(hidden.name, n - cursor[0], len(data) - cursor[1], behind)
            if behind:
                at = None if search is None else search.place(todo, cursor[1])
                if at is not None:
                    rest = run(data, at, begin, group, state, set(todo), search)
                    block.hidden = HiddenRows(hidden.name, n - cursor[0], at - cursor[1], (), resumed=True)
                    blocks += rest
                    todo.clear()  # all of them came, or the place would not have been believed
            return blocks
        except BROKEN as error:
            entry = f"state {table.name!r}, entry {cursor[0] + 1} of {n}"
            message = f"key group {group}, {entry}: {error or 'ends too early'}"
            block.problem = state.damaged(message, begin + cursor[1])
            return blocks
        # a void namespace is stepped over without a look, and values of no bytes do not look either
        if pos > len(data):
            block.problem = state.damaged(f"key group {group}, state {table.name!r}: ends too early", begin + start)
            return blocks
    if todo and not state.meta.compressed:
        _without(blocks, state, group, todo, begin + len(data))
    return blocks


def _add(blocks: list[RowBlock], state: KeyedState, group: int) -> RowBlock:
    blocks.append(RowBlock(blocks[-1].table if blocks else key_groups.nowhere(state), group))
    return blocks[-1]


def _timers(value: Codec, data: bytes, pos: int, n: int, block: RowBlock, cursor: list[int]) -> int:
    read = value.read
    keys, namespaces, values = block.keys, block.namespaces, block.values
    for i in range(n):
        cursor[0], cursor[1] = i, pos
        (at, key, namespace), pos = read(data, pos)
        keys.append(key)
        namespaces.append(namespace)
        values.append(at)
        if block.sizes is not None:
            block.sizes.append((pos - cursor[1], 0))
    return pos


def _entries(table: Table, data: bytes, pos: int, n: int, block: RowBlock, cursor: list[int]) -> int:
    """n x (namespace, key, value). `cursor` keeps where the entry in hand begins, for messages."""
    read_namespace, read_key, read_value = table.namespace.read, table.key.read, table.value.read
    keys, namespaces, values, user_keys = block.keys, block.namespaces, block.values, block.user_keys
    # the usual namespace: one byte that says nothing, not worth a call for each row
    void = table.namespace.kind == "voidnamespace"
    value: Any
    for i in range(n):
        cursor[0], cursor[1] = i, pos
        if void:
            namespace = None
            pos += 1
        else:
            namespace, pos = read_namespace(data, pos)
        key, pos = read_key(data, pos)
        begin = pos
        value, pos = read_value(data, pos)
        if block.sizes is not None and (user_keys is None or value):
            block.sizes.append((begin - cursor[1], pos - begin))
            block.sizes += [(0, 0)] * (0 if user_keys is None else len(value) - 1)
        if user_keys is None:
            keys.append(key)
            namespaces.append(namespace)
            values.append(value)
        else:
            for user_key, item in value:
                keys.append(key)
                namespaces.append(namespace)
                user_keys.append(user_key)
                values.append(item)
    return pos
