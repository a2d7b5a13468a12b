"""Keyed state of the changelog backend as pairs: what was materialised, with the changes since applied to their bytes.

A change is cut where its key, its namespace and the key of a map's entry end; a value is never decoded. Only the
elements of a list, or the entries of a map, that were set as a whole are walked over. One key group is in memory at a
time, and all changes.

Source: `ChangelogBackendLogApplier` (2.3.0).
"""

from __future__ import annotations

import heapq
import struct
from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from typing import Final, NamedTuple

from formats.errors import Damaged
from formats.flink.bytes import Reader, Writer
from formats.flink.metadata.handles import ChangelogHandle
from formats.flink.rewriting.pair import (
    COMMA,
    KeyedPairs,
    Pair,
    cut_entries,
    cut_items,
    entry_begin,
    mismatch,
    place,
    read_count,
)
from formats.flink.rewriting.prefix import CannotRewrite, Prefix
from formats.flink.state.changes import (
    ADD,
    ADD_ELEMENT,
    CLEAR,
    MERGE,
    METADATA,
    PUT_ELEMENT,
    REMOVE,
    SET,
    SET_INTERNAL,
    Change,
    number_of,
)
from formats.flink.state.keyed_tables import KeyedState, Table, Types
from formats.flink.state.meta import VERSION, KeyedMeta, StateInfo, StateKind, read_info
from formats.flink.types.serializers import Snapshot, read_versioned
from formats.flink.types.values import BROKEN, HiddenValue

_I16: Final = struct.Struct(">h").unpack_from
_OUTER: Final = 8
"""Bytes of the header of a composite snapshot, and of the header of the list of its parts."""

HINT: Final = "a canonical savepoint of the job, or a checkpoint after the next materialization, has all of it"


class _Operation(NamedTuple):
    """A change of one state. data: as it was written, with the path of its stream."""

    table: Table
    data: bytes
    path: str


def changelog_pairs(
    handle: ChangelogHandle,
    parts: list[KeyedPairs],
    changes: list[Change],
    max_parallelism: int,
    kryo: int,
    types: Types | None = None,
) -> KeyedPairs:
    """What a handle holds.

    parts: what was materialised.
    changes: since then, in their order.
    kryo: which one the snapshot's classes are of.
    types: as of `KeyedState`.

    Raises CannotRewrite for what cannot be told from the bytes alone.
    """
    path = changes[0].path if changes else parts[0].state.path if parts else ""
    infos, numbers = _described(parts, changes, kryo)
    key, head = _key(parts, infos, path, kryo)
    meta = KeyedMeta(False, key, tuple(info for info, _ in infos.values()), 0)
    state = KeyedState(meta, path, max_parallelism, types)
    tables = {table.name: table for table in state.tables}
    by_group = _by_group(changes, numbers, tables, state)
    groups = range(handle.first, handle.first + handle.count)
    prefix = Prefix(head, tuple(infos.values()))
    return KeyedPairs(prefix, state, groups, lambda: _pairs(parts, tables, by_group, groups, state))


# -- what stands before state -----------------------------------------------------------------------------


def _described(
    parts: list[KeyedPairs], changes: list[Change], kryo: int
) -> tuple[dict[str, tuple[StateInfo, bytes]], list[dict[int, str]]]:
    """Every state by its name, with what describes it; for each change the names by number that hold for it.

    What was materialised comes first; a state that is described twice has to be the same.
    """
    infos: dict[str, tuple[StateInfo, bytes]] = {}

    def add(info: StateInfo, data: bytes | None, path: str) -> None:
        there = infos.get(info.name)
        if there is None:
            if data is None:
                raise CannotRewrite(
                    f"state {info.name!r}: serializer {info.unknown} is not known, and hides where what describes the "
                    "state ends", path=path, hint=HINT,
                )  # fmt: skip
            infos[info.name] = info, data
        elif there[0] != info:
            raise CannotRewrite(
                f"state {info.name!r} was materialized with other serializers than it was changed with", path=path,
                hint=HINT,
            )  # fmt: skip

    for part in parts:
        for info, data in part.prefix.infos:
            add(info, data, part.state.path)
    numbers: list[dict[int, str]] = []
    current: dict[int, str] = {}
    for change in changes:
        if change.data[:1] == bytes([METADATA]):
            reader = Reader(change.data, change.path, 1)
            reader.kryo = kryo
            reader.place.append("description of a state")
            reader.i32("format")
            begin = reader.pos
            info, lost = read_info(reader)
            add(info, None if lost is not None else change.data[begin : reader.pos], change.path)
            # behind the description stand default values, and at the very end the number and a byte
            if reader.end < 3:
                reader.fail("ends before the number of the state", "description")
            current = {**current, _I16(change.data, reader.end - 3)[0]: info.name}
        numbers.append(current)
    return infos, numbers


def _key(
    parts: list[KeyedPairs], infos: dict[str, tuple[StateInfo, bytes]], path: str, kryo: int
) -> tuple[Snapshot | None, bytes]:
    """The serializer of the keys, and the bytes of a prefix up to the number of states."""
    if parts:
        first = parts[0]
        if any(part.prefix.head != first.prefix.head for part in parts):
            raise CannotRewrite("its keys were materialized with several serializers", path=path, hint=HINT)
        return first.state.meta.key, first.prefix.head
    if not infos:
        return None, b""
    for info, data in infos.values():
        if info.kind is StateKind.PRIORITY_QUEUE and info.value is not None and info.value.kind == "timer":
            w = Writer()
            w.i32(VERSION)
            w.u8(0)
            w.i32(2)
            w.raw(_first_part(data, path, kryo))
            return info.value.nested[0], bytes(w.data)
    raise CannotRewrite(
        "the type of its keys is not stored: it is state of the changelog backend, of which nothing was materialized "
        "yet, and it has no timers", path=path, hint=HINT,
    )  # fmt: skip


def _first_part(info: bytes, path: str, kryo: int) -> bytes:
    """The snapshot of a timer's key, cut out of what describes the timers."""
    r = Reader(info, path)
    r.kryo = kryo
    r.utf("state name")
    r.i32("kind of state")
    for _ in range(2 * r.count(4, "options")):
        r.utf("option")
    for _ in range(r.count(8, "serializers")):
        role = r.utf("serializer role")
        r.i32("snapshot format")
        if role == "VALUE_SERIALIZER":
            r.utf("snapshot class")
            r.i32("snapshot version")
            r.take(_OUTER, "outer snapshot")
            r.take(_OUTER, "nested snapshots")
            r.i32("number of nested snapshots")
            begin = r.pos
            read_versioned(r)
            return info[begin : r.pos]
        read_versioned(r)
    raise CannotRewrite("timers without a serializer", path=path)


# -- changes ----------------------------------------------------------------------------------------------


def _by_group(
    changes: list[Change], numbers: list[dict[int, str]], tables: dict[str, Table], state: KeyedState
) -> dict[int, list[_Operation]]:
    """Changes of state by key group, in their order."""
    by_group: dict[int, list[_Operation]] = defaultdict(list)
    last = numbers[-1] if numbers else {}
    for change, names in zip(changes, numbers, strict=True):
        if change.group < 0:
            continue
        number = number_of(change.data) if len(change.data) >= 3 else -1
        name = names.get(number) or last.get(number)
        if name is None:
            state.fail(f"key group {change.group}: a change of state {number}, which is not described")
        by_group[change.group].append(_Operation(tables[name], change.data, change.path))
    return by_group


def _pairs(
    parts: list[KeyedPairs],
    tables: dict[str, Table],
    by_group: dict[int, list[_Operation]],
    groups: range,
    state: KeyedState,
) -> Iterator[Pair]:
    def renumbered(part: KeyedPairs) -> Iterator[Pair]:
        number = [tables[table.name].index for table in part.state.tables]
        for pair in part.pairs():
            if pair.group in groups:
                yield pair._replace(state=number[pair.state])

    waiting = sorted(group for group in by_group if group in groups)
    base = heapq.merge(*map(renumbered, parts), key=lambda pair: pair.group)
    for group, own in groupby(base, key=lambda pair: pair.group):
        while waiting and waiting[0] < group:
            yield from _Group(waiting[0], state).applied((), by_group[waiting.pop(0)])
        if waiting and waiting[0] == group:
            yield from _Group(group, state).applied(own, by_group[waiting.pop(0)])
        elif len(parts) > 1:
            yield from sorted(own, key=lambda pair: pair.state)
        else:
            yield from own
    for group in waiting:
        yield from _Group(group, state).applied((), by_group[group])


class _Group:
    """The state of one key group, in memory.

    rows: by state; of a map by the key up to its namespace, then by the entry's key.
    """

    def __init__(self, group: int, state: KeyedState) -> None:
        self._group = group
        self._state = state
        self._lead = group.to_bytes(state.prefix, "big")
        self._rows: dict[int, dict[bytes, bytes]] = {table.index: {} for table in state.tables}
        self._maps: dict[int, dict[bytes, dict[bytes, bytes]]] = {
            table.index: {} for table in state.tables if table.is_map
        }

    def applied(self, base: Iterator[Pair] | tuple[()], operations: list[_Operation]) -> Iterator[Pair]:
        """The pairs of the group after all changes."""
        for pair in base:
            maps = self._maps.get(pair.state)
            if maps is None:
                self._rows[pair.state][pair.key] = pair.value
            else:
                end = self._entry_begin(self._state.tables[pair.state], pair.key)
                maps.setdefault(pair.key[:end], {})[pair.key[end:]] = pair.value
        for operation in operations:
            self._apply(operation)
        for table in self._state.tables:
            if table.is_map:
                for key, entries in self._maps[table.index].items():
                    for user_key, value in entries.items():
                        yield Pair(self._group, table.index, key + user_key, value)
            else:
                for key, value in self._rows[table.index].items():
                    yield Pair(self._group, table.index, key, value)

    def _entry_begin(self, table: Table, key: bytes) -> int:
        try:
            return entry_begin(table, self._state.prefix, key)
        except HiddenValue as hidden:
            message = f"state {table.name!r} has keys of {hidden.name}, whose ends only its class knows"
            raise CannotRewrite(message, path=self._state.path, hint=HINT) from None
        except BROKEN as error:
            self._state.fail(f"key group {self._group}, state {table.name!r}: a key that cannot be read: {error}")

    def _apply(self, operation: _Operation) -> None:
        table, data, path = operation
        try:
            if table.timers:
                self._timers(table, data)
            else:
                _, middle = table.key.read(data, 3)
                _, end = table.namespace.read(data, middle)
                self._change(table, data, data[3:middle], data[middle:end], end)
        except HiddenValue as hidden:
            message = f"state {table.name!r} was changed by values of {hidden.name}, whose ends only its class knows"
            raise CannotRewrite(message, path=path, hint=HINT) from None
        except BROKEN as error:
            message = f"key group {self._group}, state {table.name!r}: a change that cannot be read: {error}"
            raise Damaged(message, path=path) from None

    def _timers(self, table: Table, data: bytes) -> None:
        """Several are added at once, one is removed."""
        rows, pos = self._rows[table.index], 3
        count = 1
        if data[0] == ADD_ELEMENT:
            count, pos = read_count(data, 3)
        elif data[0] != REMOVE:
            raise ValueError(f"operation {data[0]} on timers")
        for _ in range(count):
            _, end = table.value.read(data, pos)
            timer, pos = self._lead + data[pos:end], end
            if data[0] == REMOVE:
                rows.pop(timer, None)
            else:
                rows[timer] = b""
        _all_used(data, pos)

    def _change(self, table: Table, data: bytes, key: bytes, namespace: bytes, pos: int) -> None:
        """pos: where what the operation works with begins."""
        operation, at = data[0], self._lead + place(table, key, namespace)
        problem = mismatch(table)
        if problem is not None:
            raise CannotRewrite(f"state {table.name!r} is {problem}", path=self._state.path, hint=HINT)
        if operation == CLEAR:
            _all_used(data, pos)
            (self._maps if table.is_map else self._rows)[table.index].pop(at, None)
        elif operation == MERGE:
            self._merge(table, data, key, pos)
        elif table.is_map:
            self._entries(table, data, at, pos)
        elif table.is_list:
            self._items(table, data, at, pos)
        elif operation in (SET, SET_INTERNAL, ADD):
            self._rows[table.index][at] = data[pos:]
        else:
            raise ValueError(f"operation {operation}")

    def _items(self, table: Table, data: bytes, at: bytes, pos: int) -> None:
        rows, operation = self._rows[table.index], data[0]
        if operation == ADD_ELEMENT:
            items = [data[pos:]]
        elif operation in (SET, SET_INTERNAL, ADD):
            items, pos = cut_items(table, data, pos)
            _all_used(data, pos)
        else:
            raise ValueError(f"operation {operation} on a list")
        before = [rows[at]] if at in rows and operation in (ADD, ADD_ELEMENT) else []
        if before or items:
            rows[at] = COMMA.join([*before, *items])
        else:
            rows.pop(at, None)

    def _entries(self, table: Table, data: bytes, at: bytes, pos: int) -> None:
        assert table.user_key is not None
        maps, operation = self._maps[table.index], data[0]
        entries: dict[bytes, bytes] = {}
        # to set a map replaces all of it
        if operation not in (SET, SET_INTERNAL):
            entries = maps.get(at, {})
        if operation == REMOVE:
            entries.pop(data[pos:], None)
        elif operation in (ADD_ELEMENT, PUT_ELEMENT):
            _, middle = table.user_key.read(data, pos)
            # one entry alone has no mark of null: its value is there
            entries[data[pos:middle]] = b"\0" + data[middle:]
        elif operation in (SET, SET_INTERNAL, ADD):
            more, pos = cut_entries(table, data, pos)
            _all_used(data, pos)
            entries.update(more)
        else:
            raise ValueError(f"operation {operation} on a map")
        # a map that has become empty is no row, as in Flink
        if entries:
            maps[at] = entries
        else:
            maps.pop(at, None)

    def _merge(self, table: Table, data: bytes, key: bytes, pos: int) -> None:
        """Windows that merged: lists are joined and one value alone moves; what two values make together only the
        job's own function can say."""
        _, end = table.namespace.read(data, pos)
        target = self._lead + place(table, key, data[pos:end])
        count, pos = read_count(data, end)
        rows = self._rows[table.index]
        values = [rows[target]] if target in rows else []
        for _ in range(count):
            _, end = table.namespace.read(data, pos)
            value = rows.pop(self._lead + place(table, key, data[pos:end]), None)
            pos = end
            values += [] if value is None else [value]
        _all_used(data, pos)
        if len(values) > 1 and not table.is_list:
            raise CannotRewrite(
                f"state {table.name!r}: windows were merged by the job's own function since it was materialized",
                path=self._state.path, hint=HINT,
            )  # fmt: skip
        if values:
            rows[target] = COMMA.join(values)


def _all_used(data: bytes, pos: int) -> None:
    if pos != len(data):
        raise ValueError(f"{len(data)} bytes, {pos} of them used")
