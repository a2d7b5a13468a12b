"""Keyed state of the changelog backend: what was materialised, and the changes since, applied in their order.

The key's serializer stands in what was materialised and in the serializer of timers. Where there is neither, the usual
types are tried: one is believed if with it every change ends with its last byte and every key has the hash of its key
group. What only the job's own function can compute (merged windows of reducing state) is opaque.

Source: `ChangelogBackendLogApplier`; in-memory changes checked on real ones.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final, NamedTuple

from formats.flink.bytes import Reader
from formats.flink.java_object import read_value
from formats.flink.state.changelog_replay import Replay
from formats.flink.state.changes import METADATA, Change, number_of, read_operand, timers
from formats.flink.state.keyed_tables import HiddenRows, KeyedState, RowBlock, Table, Types, unknown_table
from formats.flink.state.keys import GroupOf, words_hash
from formats.flink.state.keys import key_group as group_of_hash
from formats.flink.state.meta import KeyedMeta, StateInfo, StateKind, read_info
from formats.flink.types.codecs import codec
from formats.flink.types.serializers import Snapshot
from formats.flink.types.values import BROKEN, Codec, HiddenValue, opaque, plain

_I16: Final = struct.Struct(">h").unpack_from
_GUESSES: Final = ("long", "int", "string", "short", "byte", "boolean", "bigint", "bigdec")
"""Not double, float and char: they have the bytes and the hashes of long, int and short."""
_UNLIKELY: Final = 1e-3
"""Chance of agreement by accident below which a guessed key type is believed."""


class Described(NamedTuple):
    """What the changes of the metadata say.

    infos: of the states, by the number that other changes use.
    lost: an unknown serializer, behind which a state's number cannot be found.
    """

    infos: dict[int, StateInfo]
    lost: str | None


def describe(changes: list[Change], kryo: int = 5) -> Described:
    """Read the metadata among changes. lost: an unknown serializer, behind which a state's number cannot be found."""
    infos: dict[int, StateInfo] = {}
    lost = None
    for change in changes:
        if not change.data or change.data[0] != METADATA:
            continue
        r = Reader(change.data, change.path, 1)
        r.kryo = kryo
        r.place.append("description of a state")
        r.i32("format")
        info, hidden = read_info(r)
        if hidden is not None:
            if r.end >= 3:  # the number stands at the very end
                infos[_I16(change.data, r.end - 3)[0]] = info
            lost = info.unknown
            continue
        if info.kind is StateKind.KEY_VALUE:
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
            # behind the default value stand only the number and the kind, three bytes: it need not be read to be passed
            r.pos = r.end - 3


def _key_snapshot(metas: list[KeyedMeta], infos: dict[int, StateInfo]) -> Snapshot | None:
    for meta in metas:
        if meta.key is not None:
            return meta.key
    for info in infos.values():
        if info.kind is StateKind.PRIORITY_QUEUE and info.value is not None and info.value.kind == "timer":
            return info.value.nested[0]
    return None


def guess_key(changes: list[Change], infos: dict[int, StateInfo], max_parallelism: int) -> Codec | None:
    """The one usual key type with which all changes read to their ends and all keys hash to their groups."""
    keyed = [c for c in changes if c.group >= 0 and c.data and c.data[0] != METADATA]
    keyed = [c for c in keyed if len(c.data) >= 3 and _kind(infos, c) is StateKind.KEY_VALUE]
    believed: list[Codec] = []
    # a binary row hashes by its bytes, whatever its fields are, so that it can be tried without their types
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
        # what a class of its own hides speaks neither for nor against a type; the keys before it do
        except HiddenValue:
            pass
        except (KeyError, *BROKEN):
            continue
        # a wrong type gives one key in max_parallelism the right group by accident; equal keys prove nothing twice
        if distinct and max_parallelism ** -len(distinct) < _UNLIKELY:
            believed.append(key)
    # where two types fit, to show either would be a guess that looks like a fact
    if len(believed) != 1:
        return None
    return _shown_row() if believed[0].kind == "row" else believed[0]


def _kind(infos: dict[int, StateInfo], change: Change) -> StateKind | None:
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


# -- reading ----------------------------------------------------------------------------------------------


def read(
    blocks: Iterator[RowBlock],
    metas: list[KeyedMeta],
    changes: list[Change],
    max_parallelism: int,
    states: Collection[str] | None,
    groups: range | None,
    types: Types | None,
    key: Callable[[Codec], Codec] | None,
    kryo: int,
) -> Iterator[RowBlock]:
    """State by state, each by key group, after the last change.

    blocks, metas: of what was materialised, and its descriptions; found: the changes since, in their order.
    With `key` (a check of keys) nothing is applied: a block for what was materialised, then one for each change.
    """
    # group -1 describes the states, whatever key groups are asked for
    if groups is not None:
        changes = [change for change in changes if change.group in groups or change.group < 0]
    described = describe(changes, kryo)
    infos = dict(described.infos)
    snapshot = _key_snapshot(metas, infos)
    key_codec = codec(snapshot) if snapshot is not None else guess_key(changes, infos, max_parallelism)
    own = key_codec or opaque("a key whose serializer is not stored")
    path = changes[0].path if changes else ""
    meta = KeyedMeta(False, snapshot, tuple(infos[number] for number in sorted(infos)), 0)
    state = KeyedState(meta, path, max_parallelism, types, key(own) if key is not None else own)
    # changes name a state by its number; tables were made in the order of the numbers
    tables = dict(zip(sorted(infos), state.tables, strict=True))
    # a check is of the bytes as they lie there: what a later change overwrites has to be right, too
    if key is not None:
        yield from blocks
        yield from _checked(changes, tables, state)
        return
    yield from Replay(tables, states).run(blocks, changes, described.lost)


def _checked(changes: list[Change], tables: dict[int, Table], state: KeyedState) -> Iterator[RowBlock]:
    """A block for every change, with the key group that its key hashes to."""
    for change in changes:
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
                # of a change one operand is shown, not the entries in it: the columns need equal length all the same
                if block.user_keys is not None:
                    block.user_keys.append(None)
        except HiddenValue as hidden:
            assert block is not None
            block.hidden = HiddenRows(hidden.name, 1, len(data))
        except (KeyError, *BROKEN) as error:
            block = block or RowBlock(next(iter(tables.values()), unknown_table()), change.group)
            block.problem = state.damaged(f"key group {change.group}: a change that cannot be read: {error}")
        yield block
