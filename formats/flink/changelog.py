"""Keyed state of the changelog backend: what was materialised, and the changes since, applied in their order.

A change is `u8 operation | i16 state | key | namespace | operand` in a key group (timers: `u8 | i16 | operand`), or,
in group -1, `u8 8 | i32 7 | info | [u8, Java-serialised TTL] [u8, default value] | i16 state | u8 kind`, which
describes a state. Files of changes begin with a byte that says whether the rest is a snappy stream; at each offset (of
the plain bytes behind it) stands one set: i32 n x (i32 m, i32 key group, m x (i32 length, change)).

The key's serializer stands in what was materialised and in the serializer of timers. Where there is neither, the usual
types are tried: one is believed if with it every change ends with its last byte and every key has the hash of its key
group. What only the job's own function can compute (merged windows of reducing state) is opaque.

Source: `StateChangeOperation`, `ChangelogBackendLogApplier`, `StateChangeFormat`; in-memory changes checked on real
ones.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

from formats.errors import Damaged
from formats.flink import snappy
from formats.flink.bytes import Reader
from formats.flink.codecs import codec
from formats.flink.handles import (
    ChangelogHandle,
    FileChangelogHandle,
    InMemoryChangelogHandle,
    KeyedHandle,
    StreamHandle,
)
from formats.flink.java_object import read_value
from formats.flink.keyed import Block, Hidden, KeyedState, Table, keyed_meta, read_blocks
from formats.flink.keys import GroupOf, words_hash
from formats.flink.keys import key_group as group_of_hash
from formats.flink.snapshots import Snapshot
from formats.flink.state_meta import KeyedMeta, Kind, StateInfo, read_info
from formats.flink.streams import Streams
from formats.flink.values import BROKEN, Codec, opaque, plain
from formats.flink.values import Hidden as HiddenValue

CLEAR, SET, SET_INTERNAL, ADD, MERGE, ADD_ELEMENT, PUT_ELEMENT, REMOVE, METADATA = range(9)
_I16: Final = struct.Struct(">h").unpack_from
_I32: Final = struct.Struct(">i").unpack_from
_GUESSES: Final = ("long", "int", "string", "short", "byte", "boolean", "bigint", "bigdec")
"""Not double, float and char: they have the bytes and the hashes of long, int and short."""
_UNLIKELY: Final = 1e-3
"""Chance of agreement by accident below which a guessed key type is believed."""

Types = Mapping[str, Callable[[Codec], Codec]]


class Change(NamedTuple):
    """One change; path: the stream that it stands in."""

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
    data = streams.read(stream, 0, None)
    if not data or data[0] > 1:
        raise Damaged("no file of changes: it begins with neither 0 nor 1", path=path)
    rest = data[1:]
    if data[0]:
        rest = b"".join(part for _, part in snappy.streams(rest, path, 1))
    r = Reader(rest, path, max(offset, 0))
    for _ in range(r.count(8, "key groups of changes")):
        n, group = r.i32("changes"), r.i32("key group")
        for _ in range(n):
            yield Change(group, r.take(r.i32("change"), "change"), path)


# -- what the changes are of ------------------------------------------------------------------------------


class Described(NamedTuple):
    """What the metadata changes say: infos by the number that changes use."""

    infos: dict[int, StateInfo]
    lost: str | None


def number_of(data: bytes) -> int:
    """The number of the state that a change is of."""
    number: int = _I16(data, 1)[0]
    return number


def describe(found: list[Change]) -> Described:
    """Read the metadata among changes. lost: an unknown serializer, behind which a state's number cannot be found."""
    infos: dict[int, StateInfo] = {}
    lost = None
    for change in found:
        if not change.data or change.data[0] != METADATA:
            continue
        r = Reader(change.data, change.path, 1)
        r.place.append("description of a state")
        r.i32("format")
        info, hidden = read_info(r)
        if hidden is not None:
            if r.end >= 3:  # the number stands at the very end
                infos[_I16(change.data, r.end - 3)[0]] = info
            lost = info.unknown
            continue
        if info.kind is Kind.KEY_VALUE:
            _skip_defaults(r, info)
        number = _I16(r.take(2, "number of the state"), 0)[0]
        infos[number] = info
    return Described(infos, lost)


def _skip_defaults(r: Reader, info: StateInfo) -> None:
    if r.flag("time to live"):
        read_value(r)
    if r.flag("default value") and info.value is not None:
        try:
            _, r.pos = codec(info.value).read(r.data, r.pos)
        except (HiddenValue, *BROKEN):
            r.pos = r.end - 3


def _key_snapshot(metas: list[KeyedMeta], infos: dict[int, StateInfo]) -> Snapshot | None:
    for meta in metas:
        if meta.key is not None:
            return meta.key
    for info in infos.values():
        if info.kind is Kind.PRIORITY_QUEUE and info.value is not None and info.value.kind == "timer":
            return info.value.nested[0]
    return None


def guess_key(found: list[Change], infos: dict[int, StateInfo], max_parallelism: int) -> Codec | None:
    """The one usual key type with which all changes read to their ends and all keys hash to their groups."""
    keyed = [c for c in found if c.group >= 0 and c.data and c.data[0] != METADATA]
    keyed = [c for c in keyed if len(c.data) >= 3 and _kind(infos, c) is Kind.KEY_VALUE]
    believed: list[Codec] = []
    for kind in (*_GUESSES, "row"):
        key = plain(kind) if kind != "row" else _binary_row(max_parallelism)
        assert key is not None
        check = key if kind == "row" else GroupOf(max_parallelism)(key)
        tables = {number: Table(number, info, check) for number, info in infos.items()}
        distinct: set[bytes] = set()
        try:
            for change in keyed:
                table = tables[number_of(change.data)]
                group, end = check.read(change.data, 3)
                if group != change.group:
                    raise ValueError("another key group")
                distinct.add(change.data[3:end])
                read_operand(table, change.data[0], change.data, end)
        except HiddenValue:
            pass
        except (KeyError, *BROKEN):
            continue
        if distinct and max_parallelism ** -len(distinct) < _UNLIKELY:
            believed.append(key)
    if len(believed) != 1:
        return None
    return _shown_row() if believed[0].kind == "row" else believed[0]


def _kind(infos: dict[int, StateInfo], change: Change) -> Kind | None:
    info = infos.get(number_of(change.data))
    return info.kind if info is not None else None


def _binary_row(max_parallelism: int) -> Codec:
    """Reads the key group of a binary row, whatever its fields."""
    blob = _blob()

    def read(buf: bytes, pos: int) -> tuple[Any, int]:
        value, end = blob.read(buf, pos)
        if value.length < 16 or value.length % 8:
            raise ValueError("no binary row")
        return group_of_hash(words_hash(value.data), max_parallelism), end

    return Codec("row", read, "int32")


def _blob() -> Codec:
    return codec(Snapshot("binaryrow", "", 0))


def _shown_row() -> Codec:
    inner = _blob().read

    def read(buf: bytes, pos: int) -> tuple[Any, int]:
        value, end = inner(buf, pos)
        return value.data, end

    return Codec("bytes", read, "binary")


def read_operand(table: Table, operation: int, data: bytes, pos: int) -> tuple[Any, Any]:
    """(namespace, what the operation works with); ValueError unless it ends with its bytes."""
    namespace, pos = table.namespace.read(data, pos)
    operand: Any = None
    if operation in (SET, SET_INTERNAL, ADD):
        operand, pos = table.value.read(data, pos)
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


# -- reading ----------------------------------------------------------------------------------------------


def read(
    handle: KeyedHandle,
    streams: Streams,
    max_parallelism: int,
    states: Collection[str] | None,
    groups: range | None,
    types: Types | None,
    key: Callable[[Codec], Codec] | None,
) -> Iterator[Block]:
    """State by state, each by key group, after the last change.

    With `key` (a check of keys) nothing is applied: a block for what was materialised, then one for each change.
    """
    from formats.flink.changelog_replay import Replay

    base = [part for part in handle.materialized if part is not None] if isinstance(handle, ChangelogHandle) else []
    found = list(changes(handle, streams))
    if groups is not None:
        found = [change for change in found if change.group in groups or change.group < 0]
    metas = [meta for part in base if (meta := keyed_meta(part, streams)) is not None]
    described = describe(found)
    infos = dict(described.infos)
    snapshot = _key_snapshot(metas, infos)
    known = codec(snapshot) if snapshot is not None else guess_key(found, infos, max_parallelism)
    own = known or opaque("a key whose serializer is not stored")
    path = found[0].path if found else ""
    meta = KeyedMeta(False, snapshot, tuple(infos[number] for number in sorted(infos)), 0)
    state = KeyedState(meta, path, max_parallelism, types, key(own) if key is not None else own)
    tables = dict(zip(sorted(infos), state.tables, strict=True))
    blocks = (
        block
        for part in base
        for block in read_blocks(part, streams, max_parallelism, states=states, groups=groups, types=types, key=key)
    )
    if key is not None:
        yield from blocks
        yield from _checked(found, tables, state)
        return
    yield from Replay(tables, states).run(blocks, found, described.lost)


def _checked(found: list[Change], tables: dict[int, Table], state: KeyedState) -> Iterator[Block]:
    """A block for every change, with the key group that its key hashes to."""
    for change in found:
        if change.group < 0:
            continue
        table, block, data = None, None, change.data
        try:
            table = tables[number_of(data)]
            block = table.block(change.group)
            if table.timers:
                for at, timer_key, namespace in timers(table, data):
                    block.keys.append(timer_key)
                    block.namespaces.append(namespace)
                    block.values.append(at)
            else:
                row_key, pos = table.key.read(data, 3)
                namespace, operand = read_operand(table, data[0], data, pos)
                block.keys.append(row_key)
                block.namespaces.append(namespace)
                block.values.append(operand)
                if block.user_keys is not None:
                    block.user_keys.append(None)
        except HiddenValue as hidden:
            assert block is not None
            block.hidden = Hidden(hidden.name, 1, len(data))
        except (KeyError, *BROKEN) as error:
            block = block or Block(next(iter(tables.values()), nothing()), change.group)
            block.problem = state.damaged(f"key group {change.group}: a change that cannot be read: {error}")
        yield block


def nothing() -> Table:
    """What stands for a state that is not known."""
    return Table(0, StateInfo("?", Kind.KEY_VALUE), opaque("?"))


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
