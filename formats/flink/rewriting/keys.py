"""Single keys in keyed state: found by their columns, removed, given another value, or added.

A key is compared by what its bytes decode to, so its type must be decoded exactly: text, whole numbers, booleans and
bytes. A value, or a key that is new, is written by `encoding`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

import msgspec

from formats.errors import FormatError
from formats.flink.rewriting.encoding import CannotEncode, encoded
from formats.flink.rewriting.pair import COMMA, Pair, entry_begin, place
from formats.flink.rewriting.prefix import CannotRewrite
from formats.flink.state.columns import Column, arrow_type, keyed_columns
from formats.flink.state.key_lookup import groups_of
from formats.flink.state.keyed_tables import KeyedState, Table
from formats.flink.state.keys import hash_of, key_group
from formats.flink.state.pairs import PairReader
from formats.flink.types.values import BROKEN, SUBCLASSES, Codec, HiddenValue
from formats.query.predicate import literal

_EXACT: Final = frozenset({"string", "bool", "binary", "int8", "int16", "int32", "int64"})

_TTL: Final = frozenset({"last_access", "value"})
"""What a value with a time to live has."""

Key = tuple[tuple[str, str], ...]
"""Text by column; the column of a key that was written as one value is ``."""


class KeyTest:
    """Whether a key is the one that is meant. CannotRewrite for a key that its type cannot be.

    given: text by column.
    """

    def __init__(self, codec: Codec, columns: Sequence[Column], key: Key) -> None:
        self.codec = codec
        names = [column.name for column in columns]
        given = dict(key) if key[0][0] else dict.fromkeys(names[:1], key[0][1])
        # columns of a key with fields may be named as they are in it, too
        given = {name if name in names else f"key.{name}": text for name, text in given.items()}
        if set(given) != set(names) or (not key[0][0] and len(names) != 1):
            raise CannotRewrite(f"the key has the columns {', '.join(names)}, not {', '.join(given) or 'one value'}")
        self.given = given
        self._wanted = []
        for column in columns:
            if column.shape not in _EXACT or codec.hides not in (None, SUBCLASSES):
                raise CannotRewrite(f"column {column.name} of the key is not of a type that is decoded exactly")
            try:
                value = literal(given[column.name], arrow_type(column.shape), column.name).as_py()
            except FormatError as error:
                raise CannotRewrite(error.message) from None
            self._wanted.append((column.take, value))

    def __call__(self, value: Any) -> bool:
        """Of a decoded key."""
        return all((value if take is None else take(value)) == wanted for take, wanted in self._wanted)

    def is_same(self, other: KeyTest) -> bool:
        """Whether another one is of the same key."""
        return [value for _, value in self._wanted] == [value for _, value in other._wanted]

    def encode(self) -> bytes:
        """The key's bytes; CannotEncode."""
        values = [value for _, value in self._wanted]
        return encoded(self.codec, values[0] if self._wanted[0][0] is None else values)


def key_test(table: Table, key: Key) -> KeyTest:
    """As of one state."""
    return KeyTest(table.key, [c for c in keyed_columns(table) if c.source == "keys" and "opaque" not in c.name], key)


@dataclass(slots=True)
class Met:
    """What a line about a key has met.

    before, after: a value in words.
    """

    rows: int = 0
    bytes: int = 0
    before: str | None = None
    after: str | None = None
    kinds: dict[str, None] = field(default_factory=dict)


class KeyFinder:
    """Finds the pairs of a key in one state, and makes new ones."""

    def __init__(self, table: Table, state: KeyedState, key: Key, map_key: str | None = None) -> None:
        self.table = table
        self.state = state
        self._entry = None if map_key is None else _entry(table, map_key)
        self.test = key_test(table, key)
        # where the hash of the key is known, no other key group has to be looked through
        self._groups = groups_of([self.test.given], table.key, state.max_parallelism)
        self._reader = PairReader(table, state)

    def finds(self, pair: Pair) -> bool:
        """Whether a pair of the state is the key's. CannotRewrite, Damaged."""
        if self._groups is not None and pair.group not in self._groups:
            return False
        try:
            if self.table.timers:
                (_, key, _), _ = self.table.value.read(pair.key, self.state.prefix)
            else:
                key, _ = self.table.key.read(pair.key, self.state.prefix)
                if self._entry is not None and self.test(key):
                    return bool(self._entry == self._map_key(pair.key))
        except HiddenValue as hidden:
            raise CannotRewrite(f"keys of {hidden.name} are not decoded") from None
        except BROKEN as error:
            self.state.fail(f"state {self.table.name!r}: a key that cannot be read: {error}")
        return self.test(key)

    def is_same(self, other: KeyFinder) -> bool:
        """Whether another one of the same state finds the same pairs."""
        return self.test.is_same(other.test) and self._entry == other._entry

    def _map_key(self, key: bytes) -> Any:
        """The key of the entry that a pair is of."""
        assert self.table.user_key is not None
        return self.table.user_key.read(key, entry_begin(self.table, self.state.prefix, key))[0]

    def shown(self, data: bytes) -> str:
        """A value in words."""
        try:
            return msgspec.json.encode(plain(self.table.value if self.table.is_list else self.table.item,
                                              self._reader.value(data))).decode()  # fmt: skip
        except (HiddenValue, TypeError, *BROKEN):
            return f"{len(data)} bytes"

    def value(self, json: str, before: bytes | None = None) -> bytes:
        """A value's bytes; CannotRewrite for states whose entries are not one value, and for types not written.

        before: what it replaces, whose last access a value with a time to live keeps unless it says its own.
        """
        table = self.table
        if table.timers or (table.is_map and self._entry is None):
            also = "; map_key names an entry" if table.is_map else ""
            message = f"state {table.name!r} is {table.info.word}: only its keys as wholes can be removed{also}"
            raise CannotRewrite(message)
        given = msgspec.json.decode(json)
        try:
            if table.is_list:
                if not isinstance(given, list):
                    raise CannotEncode(f"{json} is not a list")
                return COMMA.join(encoded(table.item, item) for item in given)
            if table.is_map and given is None:
                return b"\1"
            if table.item.kind == "ttl" and not (isinstance(given, dict) and set(given) == _TTL):
                given = {"last_access": self._last_access(before), "value": given}
            return (b"\0" if table.is_map else b"") + encoded(table.item, given)
        except CannotEncode as error:
            raise CannotRewrite(f"state {table.name!r}: {error}") from None

    def _last_access(self, before: bytes | None) -> int:
        """When a value was used last, in milliseconds since 1970; CannotEncode if it is new."""
        if before is None or (self.table.is_map and before[0]):
            raise CannotEncode("it is new and has a time to live: write value: {last_access: MILLISECONDS, value: ...}")
        return int.from_bytes(before[self.table.is_map :][:8], "big", signed=True)

    def new(self, json: str, max_parallelism: int) -> Pair:
        """A pair for a key that is not there; CannotRewrite."""
        table = self.table
        if table.namespace.kind != "voidnamespace":
            raise CannotRewrite(f"state {table.name!r} has windows: a new key would need one")
        try:
            key = self.test.encode()
        except CannotEncode as error:
            raise CannotRewrite(f"the key is new, and cannot be written: {error}") from None
        group = group_of(table.key, key, max_parallelism)
        if group is None:
            raise CannotRewrite(f"the key is new, and the hash of {table.key.kind} is the job's own")
        body = place(table, key, b"\0")
        if table.user_key is not None:
            try:
                body += encoded(table.user_key, self._entry)
            except CannotEncode as error:
                raise CannotRewrite(f"the entry is new, and its key cannot be written: {error}") from None
        return Pair(group, table.index, group.to_bytes(self.state.prefix, "big") + body, self.value(json))


def _entry(table: Table, map_key: str) -> Any:
    """The key of a map's entry, from text; CannotRewrite."""
    if table.user_key is None:
        raise CannotRewrite(f"state {table.name!r} is not a map, and has no entries that map_key could name")
    if table.user_key.shape not in _EXACT or table.user_key.hides is not None:
        raise CannotRewrite(f"the entries of state {table.name!r} have keys that are not decoded exactly")
    try:
        return literal(map_key, arrow_type(table.user_key.shape), "map_key").as_py()
    except FormatError as error:
        raise CannotRewrite(error.message) from None


def group_of(codec: Codec, key: bytes, max_parallelism: int) -> int | None:
    """The key group of a key's bytes; None where its hash is not known."""
    hash_key = hash_of(codec)
    if hash_key is None:
        return None
    value, end = codec.read(key, 0)
    return key_group(hash_key(key, 0, end, value), max_parallelism)


def with_new(pairs: Iterator[Pair], new: list[tuple[Pair, Callable[[], bool]]]) -> Iterator[Pair]:
    """Pairs by key group with further ones, each behind those of its state in its key group, or else at its end.

    new: with what is asked when these have passed: whether it is still to come.
    """
    waiting = sorted(new, key=lambda item: item[0][:2])

    def taken(chosen: list[tuple[Pair, Callable[[], bool]]]) -> Iterator[Pair]:
        for item in chosen:
            waiting.remove(item)
            if item[1]():
                yield item[0]

    # a canonical savepoint has the states of a key group in no order, each in one piece
    for group, own in groupby(pairs, key=lambda pair: pair.group):
        yield from taken([item for item in waiting if item[0].group < group])
        for state, run in groupby(own, key=lambda pair: pair.state):
            yield from run
            yield from taken([item for item in waiting if item[0][:2] == (group, state)])
        yield from taken([item for item in waiting if item[0].group == group])
    yield from taken(list(waiting))


def plain(codec: Codec, value: Any) -> Any:
    """A decoded value as JSON has it, as far as that goes."""
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if value is None or isinstance(codec.shape, str):
        return value
    if codec.shape[0] == "struct" and isinstance(value, tuple):
        parts: Sequence[Codec | None] = codec.parts
        names = [name for name, _ in codec.shape[1]]
        padded = [None] * (len(names) - len(parts)) + list(parts)
        return {
            name: item if part is None else plain(part, item)
            for name, part, item in zip(names, padded, value, strict=True)
        }
    if codec.shape[0] == "list" and codec.parts:
        return [plain(codec.parts[0], item) for item in value]
    return value
