"""The states of one operator: which there are, and their rows as record batches.

Between the layouts (`keyed`, `operator_state`) and the store: all subtasks of an operator, one state after the other.
Nothing here knows of directories; `streams` opens what handles name.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from formats.errors import FormatError, NotFound
from formats.flink.connectors.rows import TYPES
from formats.flink.files.streams import Streams
from formats.flink.metadata.handles import (
    ChangelogHandle,
    KeyedHandle,
    Mode,
    OperatorState,
    OperatorStateHandle,
    key_groups,
    state_size,
)
from formats.flink.state import raw_timers
from formats.flink.state.columns import keyed_batches, keyed_columns, operator_batch
from formats.flink.state.keyed import keyed_meta, narrowed, read_blocks
from formats.flink.state.keyed_tables import HiddenRows, KeyedState, RowBlock, Table, Types
from formats.flink.state.meta import KeyedMeta, StateInfo
from formats.flink.state.operator import OperatorRows, operator_meta, read_operator_state
from formats.flink.types.serializers import Snapshot, describe
from formats.flink.types.values import POSSIBLY

if TYPE_CHECKING:
    import pyarrow as pa

OPERATOR_WORDS: Final = {Mode.SPLIT_DISTRIBUTE: "list", Mode.UNION: "union", Mode.BROADCAST: "broadcast"}
OF_OPERATOR: Final = "@operator"
"""What stands behind the name of operator state where keyed state of the same operator has that name, too."""
WHOLE: Final = "keyed state"
"""What keyed state is called of which not even the names can be read."""


@dataclass(slots=True)
class StateSummary:
    """One state of an operator over all of its subtasks.

    name: None for what cannot be told apart; of operator state as `shown_name` has it.
    kind: `value`, `list`, `map`, `reducing`, `aggregating`, `timers`; of operator state `list`, `union`, `broadcast`.
    keyed: whether it is keyed state.
    key: its key columns.
    identity: the columns that tell its rows apart, none where only whole rows do.
    rows: None unless they were counted and all are known.
    bytes: uncompressed, as the layout has them; None as for rows.
    opaque: what cannot be read of it and why, in words.
    problem: why rows are missing.
    serializers: as plain values.
    stored: the name that Flink has, of operator state.
    raw: timers of raw keyed state.
    """

    name: str | None
    kind: str
    keyed: bool
    key: tuple[str, ...] = ()
    identity: tuple[str, ...] = ()
    rows: int | None = None
    bytes: int | None = None
    opaque: str | None = None
    problem: FormatError | None = None
    serializers: dict[str, Any] = field(default_factory=dict)
    stored: str | None = None
    raw: bool = False


def summaries(
    operator: OperatorState, streams: Streams, *, count: bool = False, types: Types | None = None
) -> list[StateSummary]:
    """The states of an operator, keyed ones first.

    count: read all rows, to know how many there are, their bytes, and how much is hidden; else only what stands before
    the rows is read. Never raises for damaged state: `problem` says it.
    """
    summary = _Summary(operator, streams, count, types)
    for subtask in operator.subtasks:
        if subtask.managed_keyed is not None:
            summary.add_keyed(subtask.managed_keyed)
        if subtask.raw_keyed is not None:
            summary.add_raw(subtask.raw_keyed)
    summary.add_hidden()
    for subtask in operator.subtasks:
        if subtask.managed_operator is not None:
            summary.add_operators(subtask.managed_operator)
    return summary.shown()


def shown_name(name: str, keyed: Container[str | None]) -> str:
    """What operator state is called beside keyed states with these names: Flink keeps the two apart, so that both may
    have one name, which then is the keyed state's."""
    return f"{name}{OF_OPERATOR}" if name in keyed else name


class _Summary:
    """Gathers the states of one operator from its handles.

    rows: by whether it is keyed, and its name; None where it has none, or none that can be read.
    hidden: what cannot be read of a keyed state, by its name.
    """

    def __init__(self, operator: OperatorState, streams: Streams, count: bool, types: Types | None) -> None:
        self._operator, self._streams, self._count, self._types = operator, streams, count, types
        self.rows: dict[tuple[bool, str | None], StateSummary] = {}
        self.hidden: dict[str, list[HiddenRows]] = {}

    def add_keyed(self, handle: KeyedHandle) -> None:
        """Keyed state of a subtask."""
        try:
            meta = keyed_meta(handle, self._streams)
            if meta is not None:
                state = KeyedState(meta, "", self._operator.max_parallelism, self._types)
                for table in state.tables:
                    self._row(table, meta)
            if self._count or isinstance(handle, ChangelogHandle):
                self._read(handle)
        except FormatError as error:
            self._unread(error, handle)

    def _unread(self, error: FormatError, handle: KeyedHandle) -> None:
        row = self.rows.setdefault((True, None), StateSummary(None, "keyed", True, opaque=error.message))
        row.problem = row.problem or error
        row.bytes = (row.bytes or 0) + state_size(handle)

    def _row(self, table: Table, meta: KeyedMeta | None) -> StateSummary:
        info = table.info
        row = self.rows.get((True, info.name))
        if row is None:
            columns = keyed_columns(table)
            key = tuple(column.name for column in columns if column.source == "keys")
            own = tuple(column.name for column in columns if table.timers or column.source != "values")
            row = StateSummary(info.name, info.word, True, key, own, opaque=_static(table))
            row.serializers = serializers(info, meta.key if meta is not None else None)
            self.rows[True, info.name] = row
        return row

    def _read(self, handle: KeyedHandle) -> None:
        for block in read_blocks(handle, self._streams, self._operator.max_parallelism, types=self._types):
            row = self._row(block.table, None)
            if block.problem is not None:
                row.problem = row.problem or block.problem
            if not self._count:
                continue
            row.rows = (row.rows or 0) + len(block.keys)
            row.bytes = (row.bytes or 0) + block.bytes
            if block.hidden is not None:
                self.hidden.setdefault(block.table.name, []).append(block.hidden)
                if not block.table.is_map:  # whose entries have several rows
                    row.rows += block.hidden.entries or 0
        if self._count:
            for row in self.rows.values():
                if row.keyed and row.name is not None and row.rows is None and row.problem is None:
                    row.rows, row.bytes = 0, 0

    def add_raw(self, handle: KeyedHandle) -> None:
        """Raw keyed state of a subtask."""
        try:
            if raw_timers.are_timers(handle, self._streams):
                for block in raw_timers.read(handle, self._streams):
                    self._add_timers(block)
                return
        except FormatError as error:
            self._unread(error, handle)
            return
        row = self.rows.setdefault((True, None), StateSummary(None, "raw keyed", True))
        row.opaque = "raw keyed state has a format of its operator's own"
        row.bytes = (row.bytes or 0) + state_size(handle)

    def _add_timers(self, block: RowBlock) -> None:
        row = self._row(block.table, None)
        row.raw = True
        row.problem = row.problem or block.problem
        if block.hidden is not None:
            self.hidden.setdefault(block.table.name, []).append(block.hidden)
        if self._count:
            row.rows = (row.rows or 0) + len(block.keys)
            row.bytes = (row.bytes or 0) + block.bytes

    def add_hidden(self) -> None:
        """What is hidden of each keyed state, and by it of others, once all of them have been read."""
        for name, lost in self.hidden.items():
            row = self.rows.get((True, name))
            if row is None:
                continue
            row.opaque = _words(lost)
            for other in {other for part in lost for other in part.states} - self.hidden.keys():
                if (behind := self.rows.get((True, other))) is not None:
                    behind.opaque = f"some lies behind values of {lost[0].name}, which have no length"
                    behind.rows = None

    def shown(self) -> list[StateSummary]:
        """The states, no two of one name."""
        keyed = {name for of_key, name in self.rows if of_key}
        for (of_key, name), row in self.rows.items():
            if not of_key and name is not None:
                row.name = shown_name(name, keyed)
        return list(self.rows.values())

    def add_operators(self, handle: OperatorStateHandle) -> None:
        """Operator state of a subtask."""
        for part in handle.states:
            empty = StateSummary(part.name, OPERATOR_WORDS[part.mode], False, stored=part.name)
            row = self.rows.setdefault((False, part.name), empty)
            if part.mode is Mode.BROADCAST:
                row.identity = ("subtask", "map_key")
            else:
                row.rows = (row.rows or 0) + len(part.offsets)
        try:
            meta = operator_meta(handle, self._streams)
            for info in (*meta.states, *meta.broadcast) if meta is not None else ():
                if (False, info.name) in self.rows:
                    row = self.rows[False, info.name]
                    row.serializers = row.serializers or serializers(info, None)
                    if info.unknown is not None:
                        row.opaque = f"serializer {info.unknown} is not known"
            if self._count:
                for rows in read_operator_state(handle, self._streams, types=self._types):
                    row = self.rows[False, rows.name]
                    row.problem = row.problem or rows.problem
                    if rows.keys is not None:
                        row.rows = (row.rows or 0) + len(rows.keys)
                    if rows.hidden is not None and row.opaque is None:
                        row.opaque = f"values are of {rows.hidden}, which only its class can read"
        except FormatError as error:
            for part in handle.states:
                row = self.rows[False, part.name]
                row.problem = row.problem or error


def serializers(info: StateInfo, key: Snapshot | None) -> dict[str, Any]:
    """What a state is made of, as plain values."""
    named = {"key": info.key or key, "namespace": info.namespace, "value": info.value}
    out: dict[str, Any] = {role: describe(part) for role, part in named.items() if part is not None}
    if info.unknown is not None:
        out["unknown"] = info.unknown
    return out


def _static(table: Table) -> str | None:
    """What the serializers alone say cannot be read."""
    if table.info.unknown is not None:
        return f"serializer {table.info.unknown} is not known"
    for part, codec in (("keys", table.key), ("namespaces", table.namespace), ("values", table.value)):
        if codec.hides is not None and codec.hides not in POSSIBLY:
            every = "" if codec.kind == "opaque" else "some "
            return f"{every}{part} are of {codec.hides}, which only its class can read"
    return None


def _words(lost: list[HiddenRows]) -> str:
    entries = [part.entries for part in lost]
    all_counted = None not in entries
    number = f"{sum(part or 0 for part in entries)} entries" if all_counted else "an unknown number of entries"
    size = sum(part.bytes for part in lost)
    text = f"{number} of {lost[0].name} in {size} bytes cannot be read"
    return text + ("; the states behind them were found again" if any(part.resumed for part in lost) else "")


# -- rows -------------------------------------------------------------------------------------------------


def batches(
    operator: OperatorState,
    streams: Streams,
    name: str | None,
    *,
    types: Types | None = None,
    groups: Sequence[int] | None = None,
    path: str | None = None,
    places: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The rows of one state, subtask by subtask, keyed state by key group.

    name: may be left out where the operator has just one state. groups: of keyed state only these key groups. places:
    with the columns of `formats.flink.state.places`. Rows that can be read are given before a problem is raised:
    NotFound (no such state), Damaged, UnsupportedVersion.
    """
    chosen = _keyed_state(operator, streams, name)
    if chosen is None:
        all_rows = summaries(operator, streams, types=types)
        unread = next((row.problem for row in all_rows if row.name is None and row.problem is not None), None)
        named = [row for row in all_rows if row.name is not None]
        if unread is not None and name not in {row.name for row in named}:
            raise unread  # what cannot be read may well have it
        chosen = _choose(named, name, operator, path)
    subtasks = sorted(operator.subtasks, key=lambda subtask: subtask.index)
    if chosen.keyed:
        states = {chosen.name or ""}
        for subtask in subtasks:
            keyed = subtask.raw_keyed if chosen.raw else subtask.managed_keyed
            if keyed is None:
                continue
            place = subtask.index if places else None
            if chosen.raw:
                yield from keyed_batches(raw_timers.read(keyed, streams, states=states, groups=groups), place)
                continue
            own = key_groups(keyed)
            for part in [None] if groups is None else [range(n, n + 1) for n in groups if n in own]:
                yield from keyed_batches(
                    read_blocks(keyed, streams, operator.max_parallelism, states=states, groups=part, types=types),
                    place,
                )
        return
    for subtask in subtasks:
        if subtask.managed_operator is None or chosen.stored is None:
            continue
        # what the user names a type of is read so, also where we would know better
        known = {**TYPES, **(types or {})}
        names = frozenset({chosen.stored})
        for rows in read_operator_state(subtask.managed_operator, streams, names=names, types=known):
            if rows.values:
                yield operator_batch(subtask.index, rows, places=places)
            if rows.problem is not None:
                raise rows.problem


def tables(
    operator: OperatorState, streams: Streams, types: Types | None = None, name: str | None = None
) -> Iterator[Table]:
    """The keyed states as each subtask describes them; nothing of what cannot be read. name: only that state."""
    states = None if name is None else {name}
    for subtask in operator.subtasks:
        with suppress(FormatError):
            meta = keyed_meta(subtask.managed_keyed, streams) if subtask.managed_keyed is not None else None
            if meta is not None:
                yield from KeyedState(narrowed(meta, states), "", operator.max_parallelism, types).tables


def tables_of_timers(operator: OperatorState, streams: Streams) -> Iterator[Table]:
    """The timers in raw keyed state, as the first subtask that has any describes them."""
    for subtask in operator.subtasks:
        if subtask.raw_keyed is not None:
            with suppress(FormatError):
                first = key_groups(subtask.raw_keyed)[:1]
                yield from (block.table for block in raw_timers.read(subtask.raw_keyed, streams, groups=first))
                return


def _keyed_state(operator: OperatorState, streams: Streams, name: str | None) -> StateSummary | None:
    """A keyed state that the first subtasks know, so that not all need to be asked."""
    described = next(tables(operator, streams, name=name), None) if name is not None else None
    return StateSummary(described.name, described.info.word, True) if described is not None else None


def _choose(states: list[StateSummary], name: str | None, operator: OperatorState, path: str | None) -> StateSummary:
    have = ", ".join(sorted({row.name or "" for row in states})) or "none"
    if name is None:
        if len(states) == 1:
            return states[0]
        raise NotFound(f"operator {operator.uid or operator.id} has {len(states)} states: {have}", path=path)
    for row in states:
        if row.name == name:
            return row
    raise NotFound(f"operator {operator.uid or operator.id} has no state {name!r}; it has {have}", path=path)


__all__ = ["OperatorRows", "StateSummary", "batches", "serializers", "summaries", "tables"]
