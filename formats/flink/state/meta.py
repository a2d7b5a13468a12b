"""What stands before state: which states there are, of which kind, with which serializers.

Keyed: `i32 6 | u8 compressed | snapshot of the key serializer | i16 n | n x info`. Operator state: `i32 6 |
u8 compressed | i16 n | n x info | i16 m | m x info` (broadcast); up to Flink 1.17 `i32 5`, without the byte that says
whether it is compressed. An info is `UTF name | i32 kind | i32 n x (UTF, UTF)
options | i32 n x (UTF role, snapshot)`.

A snapshot of a class that is not known has no end. The reader then looks for what the next info must look like, so that
the names and serializers of later states are found all the same; the state itself is opaque.

Source: `KeyedBackendSerializationProxy`, `OperatorBackendSerializationProxy`, `StateMetaInfoSnapshotReadersWriters`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import msgspec

from formats.errors import UnsupportedVersion
from formats.flink.bytes import Reader, decode_utf
from formats.flink.types.serializer_classes import BASE
from formats.flink.types.serializers import Snapshot, Unknown, read_snapshot

VERSION: Final = 6
NEVER_COMPRESSED: Final = 5
"""The version of operator state before Flink 1.18."""
LIST: Final = f"{BASE}ListSerializerSnapshot"
MAP: Final = f"{BASE}MapSerializerSnapshot"
_ROLES: Final = frozenset({"VALUE_SERIALIZER", "NAMESPACE_SERIALIZER", "KEY_SERIALIZER", "USER_KEY_SERIALIZER"})


class StateKind(IntEnum):
    """What sort of state an info describes."""

    KEY_VALUE = 0
    OPERATOR = 1
    BROADCAST = 2
    PRIORITY_QUEUE = 3
    KEY_VALUE_V2 = 4


class StateInfo(msgspec.Struct, frozen=True):
    """One state.

    type: `VALUE`, `LIST`, `MAP`, `REDUCING`, `AGGREGATING` of keyed state.
    mode: of operator state.
    value, namespace: serializers.
    key: serializer of a broadcast state's keys.
    unknown: a snapshot class that could not be read.
    """

    name: str
    kind: StateKind
    type: str | None = None
    mode: str | None = None
    value: Snapshot | None = None
    namespace: Snapshot | None = None
    key: Snapshot | None = None
    unknown: str | None = None

    @property
    def word(self) -> str:
        """The kind in one word: `value`, `list`, `map`, ..., `timers`, `union`, `broadcast`."""
        if self.kind is StateKind.PRIORITY_QUEUE:
            return "timers"
        if self.kind is StateKind.BROADCAST:
            return "broadcast"
        if self.kind is StateKind.OPERATOR:
            return "union" if self.mode == "UNION" else "list"
        return (self.type or "value").lower()


class KeyedMeta(msgspec.Struct, frozen=True):
    """The prefix of keyed state.

    key: its serializer, None if it is not known (`unknown_key`).
    size: bytes of the prefix, None where an unknown serializer stands last and hides the end.
    begins: where the info of each state begins.
    """

    compressed: bool
    key: Snapshot | None
    states: tuple[StateInfo, ...]
    size: int | None
    unknown_key: str | None = None
    begins: tuple[int, ...] = ()


class OperatorMeta(msgspec.Struct, frozen=True):
    """The prefix of operator state.

    begins: where the info of each state begins, those of broadcast states last.
    version: VERSION or NEVER_COMPRESSED.
    """

    compressed: bool
    states: tuple[StateInfo, ...]
    broadcast: tuple[StateInfo, ...]
    size: int | None
    begins: tuple[int, ...] = ()
    version: int = VERSION


def _version(reader: Reader, subject: str, oldest: int = VERSION) -> int:
    at = reader.pos
    version = reader.i32(f"{subject} version")
    if 1 <= version < oldest:
        raise UnsupportedVersion(
            f"{subject} of version {version} (Flink before 1.7), this program reads {VERSION}",
            path=reader.path,
            hint="restore it with Flink 1.7 to 1.16 and take a new savepoint",
        )
    if not oldest <= version <= VERSION:
        if 0 < version < 100:
            raise UnsupportedVersion(f"{subject} of version {version}, this program reads {VERSION}", path=reader.path)
        reader.fail(f"{subject}: version {version}, expected {VERSION}", "version", at)
    return version


def read_keyed_meta(reader: Reader) -> KeyedMeta:
    """The prefix of a keyed stream, or the meta stream of a RocksDB handle; Damaged, UnsupportedVersion."""
    _version(reader, "keyed state")
    compressed = reader.flag("compressed")
    key, unknown = None, None
    try:
        key = read_snapshot(reader)
    except Unknown as error:
        unknown = error.name
        at = _next_info(reader, error.pos)
        if at is None:
            return KeyedMeta(compressed, None, (), None, unknown)
        # the number of states stands before the first one's name
        reader.pos = at - 2
    states, size, begins = _infos(reader, "states")
    return KeyedMeta(compressed, key, states, size, unknown, begins)


def read_operator_meta(reader: Reader) -> OperatorMeta:
    """The prefix of an operator-state stream; Damaged, UnsupportedVersion."""
    version = _version(reader, "operator state", NEVER_COMPRESSED)
    compressed = version != NEVER_COMPRESSED and reader.flag("compressed")
    states, size, begins = _infos(reader, "states")
    if size is None:
        return OperatorMeta(compressed, states, (), None, begins, version)
    broadcast, size, more = _infos(reader, "broadcast states")
    return OperatorMeta(compressed, states, broadcast, size, begins + more, version)


def _infos(reader: Reader, title: str) -> tuple[tuple[StateInfo, ...], int | None, tuple[int, ...]]:
    """`i16 n | n x info`, where they end, and where each begins; None for the end if the last ones are lost behind an
    unknown class."""
    at = reader.pos
    n = reader.u16(title)
    if n * 10 > reader.left:
        reader.fail(f"{n} {title} in {reader.left} bytes", title, at)
    infos: list[StateInfo] = []
    begins: list[int] = []
    for i in range(n):
        reader.place.append(f"state {i + 1} of {n}")
        begins.append(reader.pos)
        info, lost = read_info(reader)
        reader.place.pop()
        infos.append(info)
        if lost is not None:
            following = _next_info(reader, lost)
            if i + 1 == n or following is None:
                return tuple(infos), None, tuple(begins)
            reader.pos = following
    return tuple(infos), reader.pos, tuple(begins)


def read_info(reader: Reader) -> tuple[StateInfo, int | None]:
    """One info; where an unknown class begins in it, if one does. The reader's last place is that of the state."""
    name = reader.utf("state name")
    reader.place[-1] = f"state {name!r}"
    at = reader.pos
    number = reader.i32("kind of state")
    if number not in list(StateKind):
        reader.fail(f"kind of state {number}, expected 0 to {max(StateKind)}", "kind of state", at)
    options = {}
    for _ in range(reader.count(4, "options")):
        option = reader.utf("option")
        options[option] = reader.utf("option value")
    serializers: dict[str, Snapshot] = {}
    unknown, lost = None, None
    for _ in range(reader.count(8, "serializers")):
        role = reader.utf("serializer role")
        try:
            serializers[role] = read_snapshot(reader)
        except Unknown as error:
            unknown, lost = error.name, error.pos
            # a serializer that follows in the same state still has a name before it, by which it can be found
            if not _next_role(reader, serializers, role, lost):
                break
            lost = None
    info = StateInfo(
        name,
        StateKind(number),
        options.get("KEYED_STATE_TYPE"),
        options.get("OPERATOR_STATE_DISTRIBUTION_MODE"),
        _value(StateKind(number), options.get("KEYED_STATE_TYPE"), serializers),
        serializers.get("NAMESPACE_SERIALIZER"),
        serializers.get("KEY_SERIALIZER"),
        unknown,
    )
    return info, lost


def _value(kind: StateKind, type_: str | None, serializers: dict[str, Snapshot]) -> Snapshot | None:
    """The serializer of a state's values. The asynchronous API's (2.0 on, of ForSt) describes those of a list's
    elements and of a map's entries alone, from which that of the whole follows: the bytes are the same."""
    value = serializers.get("VALUE_SERIALIZER")
    if kind is not StateKind.KEY_VALUE_V2 or value is None:
        return value
    if type_ == "LIST":
        return Snapshot("list", LIST, 1, nested=(value,))
    user_key = serializers.get("USER_KEY_SERIALIZER")
    return Snapshot("map", MAP, 1, nested=(user_key, value)) if type_ == "MAP" and user_key is not None else value


def _next_role(reader: Reader, serializers: dict[str, Snapshot], role: str, start: int) -> bool:
    """Go on with the next serializer of the same state, if one with a role and a snapshot is found before the next."""
    end = _next_info(reader, start)
    for other in _ROLES - serializers.keys() - {role}:
        text = other.encode()
        mark = len(text).to_bytes(2, "big") + text + (2).to_bytes(4, "big")
        at = reader.data.find(mark, start, reader.end if end is None else end)
        if at >= 0:
            reader.pos = at
            return True
    return False


def _next_info(reader: Reader, start: int) -> int | None:
    """Where the next state's info begins: its name must have the length that stands before it."""
    places = []
    for mark, before in _MARKS:
        at = reader.data.find(mark, start, reader.end)
        while at >= 0:
            begin = _name_before(reader.data, start, at)
            if begin is not None:
                places.append(begin)
                break
            at = reader.data.find(mark, at + before, reader.end)
    return min(places, default=None)


def _utf(text: str) -> bytes:
    return len(text).to_bytes(2, "big") + text.encode()


_MARKS: Final = (
    (b"\0\0\0\0\0\0\0\1" + _utf("KEYED_STATE_TYPE"), 1),
    (b"\0\0\0\1\0\0\0\1" + _utf("OPERATOR_STATE_DISTRIBUTION_MODE"), 1),
    (b"\0\0\0\2\0\0\0\1" + _utf("OPERATOR_STATE_DISTRIBUTION_MODE"), 1),
    (b"\0\0\0\3\0\0\0\0\0\0\0\1" + _utf("VALUE_SERIALIZER"), 1),
    (b"\0\0\0\4\0\0\0\1" + _utf("KEYED_STATE_TYPE"), 1),
)
"""What follows the name of a state: kind, number of options, the first option or serializer."""


def _name_before(data: bytes, start: int, end: int) -> int | None:
    """Where a `UTF name` that ends at `end` begins."""
    for length in range(1, min(end - start - 2, 4096) + 1):
        at = end - length - 2
        if data[at] << 8 | data[at + 1] == length:
            try:
                name = decode_utf(data[at + 2 : end])
            except UnicodeError:
                continue
            if name.isprintable():
                return at
    return None
