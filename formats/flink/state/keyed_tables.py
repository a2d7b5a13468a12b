"""What all layouts of keyed state share: its tables with their codecs, and blocks of rows.

A block has columns of equal length: keys, namespaces, values, and for map state the user keys, one row per entry. What
cannot be read is said, not dropped: `hidden` where a class of its own stands in the way, `problem` where bytes are
damaged; rows before it are there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from formats.errors import Damaged, FormatError
from formats.flink.state.keys import GroupOf
from formats.flink.state.meta import KeyedMeta, StateInfo, StateKind
from formats.flink.types.codecs import codec
from formats.flink.types.composites import timer_codec
from formats.flink.types.values import Codec, opaque

Types = Mapping[str, Callable[[Codec], Codec]]
"""Codecs that the user named, by state."""


@dataclass(frozen=True, slots=True)
class HiddenRows:
    """What a value of a class of its own hides.

    name: of the class.
    entries: of this state that are not shown, None if not even their number is known.
    bytes: that were passed over.
    states: other states that lie behind it, too.
    resumed: the states behind it were found again (`heap_search`).
    """

    name: str
    entries: int | None
    bytes: int
    states: tuple[str, ...] = ()
    resumed: bool = False


@dataclass(slots=True)
class RowBlock:
    """Rows of one state in one key group.

    user_keys: None unless it is map state.
    values: of timers, their timestamps.
    ends: what follows in the key group is lost to the problem.
    bytes: that the rows take in the file, uncompressed.
    sizes: where that was asked for: of each row the bytes of what tells it apart, and of its value; of a map on the
    heap, whose entries have no bounds, the first row has all of it.
    """

    table: Table
    group: int
    keys: list[Any] = field(default_factory=list)
    namespaces: list[Any] = field(default_factory=list)
    user_keys: list[Any] | None = None
    values: list[Any] = field(default_factory=list)
    hidden: HiddenRows | None = None
    problem: FormatError | None = None
    ends: bool = False
    bytes: int = 0
    sizes: list[tuple[int, int]] | None = None


class Table:
    """One keyed state with its codecs compiled.

    index: among the infos of its stream.
    item: codec of a map's values, a list's elements, else of the value.
    """

    __slots__ = ("index", "info", "is_list", "is_map", "item", "key", "measured", "namespace", "timers", "user_key",
                 "value")  # fmt: skip

    def __init__(self, index: int, info: StateInfo, key: Codec, value: Codec | None = None) -> None:
        self.index = index
        self.info = info
        self.measured = False
        self.timers = info.kind is StateKind.PRIORITY_QUEUE
        self.key = key
        stored = codec(info.value) if info.value is not None else opaque(info.unknown or "?")
        if self.timers:
            self.value = stored
            if stored.kind == "timer":
                self.key, self.namespace = stored.parts
            else:
                self.namespace = opaque(info.unknown or "?")
        else:
            self.namespace = codec(info.namespace) if info.namespace is not None else opaque(info.unknown or "?")
            self.value = value or stored
        self.is_map = info.type == "MAP" and self.value.kind == "map"
        self.is_list = info.type == "LIST" and self.value.kind == "list"
        self.user_key: Codec | None = self.value.parts[0] if self.is_map else None
        self.item = self.value.parts[1] if self.is_map else self.value.parts[0] if self.is_list else self.value

    @property
    def name(self) -> str:
        return self.info.name

    def block(self, group: int) -> RowBlock:
        """An empty one."""
        return RowBlock(self, group, user_keys=[] if self.is_map else None, sizes=[] if self.measured else None)


def unknown_table() -> Table:
    """What stands for a state that is not known."""
    return Table(0, StateInfo("?", StateKind.KEY_VALUE), opaque("?"))


class KeyedState:
    """A handle's prefix, read: its tables, and what the layouts need.

    max_parallelism: of the operator, which decides how wide the key group stands in RocksDB's keys.
    types: codecs that the user named for states whose values Flink does not describe.
    path: what messages call the stream.
    patience: work that may still be spent on the search for states behind hidden ones (`heap_search`).
    """

    def __init__(
        self,
        meta: KeyedMeta,
        path: str,
        max_parallelism: int,
        types: Types | None = None,
        key: Codec | None = None,
    ) -> None:
        self.meta = meta
        self.path = path
        self.prefix = 1 if max_parallelism <= 128 else 2
        self.max_parallelism = max_parallelism
        self.patience = 0
        self._checked_group = -1
        self._checked: list[Table] | None = None
        own = codec(meta.key) if meta.key is not None else opaque(meta.unknown_key or "?")
        self.key = key or own
        self.tables = [Table(i, info, self.key) for i, info in enumerate(meta.states)]
        for i, table in enumerate(self.tables):
            if types and table.name in types and not table.timers:
                self.tables[i] = Table(i, table.info, self.key, types[table.name](table.value))
            if key is not None and table.timers and table.value.kind == "timer":
                self._check_timer(table, key)

    def _check_timer(self, table: Table, key: Codec) -> None:
        """Timers carry keys, too: read them by the same codec."""
        table.key = key
        table.value = timer_codec(key, table.namespace)

    def keys_of(self, group: int) -> list[Table]:
        """The same tables, reading key groups where keys are, until this is called again; a key of another group than
        this one is broken."""
        self._checked_group = group
        if self._checked is None:
            own = codec(self.meta.key) if self.meta.key is not None else opaque(self.meta.unknown_key or "?")
            check = GroupOf(self.max_parallelism)(own)
            inner = check.read

            def read(buf: bytes, pos: int) -> tuple[Any, int]:
                own_group, end = inner(buf, pos)
                if own_group is not None and own_group != self._checked_group:
                    raise ValueError(f"a key of key group {own_group}")
                return own_group, end

            check.read = read
            self._checked = KeyedState(self.meta, self.path, self.max_parallelism, None, check).tables
        return self._checked

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        raise self.damaged(message, at)

    def damaged(self, message: str, at: int | None = None) -> Damaged:
        return Damaged(message if at is None else f"{message} (offset {at})", path=self.path)
