"""Changes of the changelog backend applied to what was materialised, in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from formats.errors import Damaged
from formats.flink.state.changes import (
    ADD,
    ADD_ELEMENT,
    CLEAR,
    MERGE,
    REMOVE,
    SET,
    SET_INTERNAL,
    Change,
    number_of,
    read_operand,
    timers,
)
from formats.flink.state.keyed_tables import HiddenRows, RowBlock, Table, unknown_table
from formats.flink.types.values import BROKEN, HiddenValue, Opaque


def freeze(value: Any) -> Any:
    """A decoded value as a key of a dictionary."""
    return tuple(map(freeze, value)) if isinstance(value, list | tuple) else value


class _Entry(NamedTuple):
    key: Any
    namespace: Any
    value: Any  # of map state: {frozen user key: (user key, value)}


class Replay:
    """State in memory, by state and (key group, key, namespace)."""

    def __init__(self, tables: dict[int, Table], states: Collection[str] | None) -> None:
        self.by_number = tables
        self.wanted = states
        self.tables: dict[str, Table] = {}
        self.rows: dict[str, dict[tuple[int, Any, Any], _Entry]] = {}
        self.merged: set[str] = set()

    def run(self, blocks: Iterator[RowBlock], changes: list[Change], lost: str | None) -> Iterator[RowBlock]:
        hidden: dict[str, HiddenRows] = {}
        for block in blocks:
            if block.problem is not None:
                yield block
            if block.hidden is not None:
                hidden[block.table.name] = block.hidden
            self._start(block)
        for change in changes:
            if change.group < 0:
                continue
            problem = self._apply(change, hidden)
            if problem is not None:
                yield problem
        for name, table in self.tables.items():
            if self.wanted is None or name in self.wanted:
                yield from self._blocks(name, table, hidden.get(name))

    def _rows(self, table: Table) -> dict[tuple[int, Any, Any], _Entry]:
        self.tables.setdefault(table.name, table)
        return self.rows.setdefault(table.name, {})

    def _start(self, block: RowBlock) -> None:
        rows = self._rows(block.table)
        for i, (key, namespace, value) in enumerate(zip(block.keys, block.namespaces, block.values, strict=True)):
            at = (block.group, freeze(key), freeze(namespace))
            # a key may have several timers in a namespace: only with the timestamp is it one of them
            if block.table.timers:
                rows[(block.group, (freeze(key), value), freeze(namespace))] = _Entry(key, namespace, value)
            # map state is kept by user key, so that a change of one entry leaves the others as they are
            elif block.user_keys is not None:
                entry = rows.setdefault(at, _Entry(key, namespace, {}))
                entry.value[freeze(block.user_keys[i])] = (block.user_keys[i], value)
            else:
                rows[at] = _Entry(key, namespace, value)

    def _apply(self, change: Change, hidden: dict[str, HiddenRows]) -> RowBlock | None:
        data = change.data
        name = "?"
        try:
            table = self.by_number[number_of(data)]
            name = table.name
            rows = self._rows(table)
            if table.timers:
                for at, key, namespace in timers(table, data):
                    place = (change.group, (freeze(key), at), freeze(namespace))
                    if data[0] == REMOVE:
                        rows.pop(place, None)
                    else:
                        rows[place] = _Entry(key, namespace, at)
                return None
            key, pos = table.key.read(data, 3)
            namespace, operand = read_operand(table, data[0], data, pos)
            self._change(table, rows, data[0], (change.group, freeze(key), freeze(namespace)), key, namespace, operand)
        except HiddenValue as met:
            # the row stays as it was before this change; `hidden` says that it may be out of date
            before = hidden.get(name)
            entries = (before.entries or 0) + 1 if before is not None else 1
            hidden[name] = HiddenRows(met.name, entries, len(data) + (before.bytes if before is not None else 0))
        except (KeyError, *BROKEN) as error:
            block = RowBlock(next(iter(self.by_number.values()), unknown_table()), change.group)
            message = f"state {name!r}, key group {change.group}: a change that cannot be read: {error}"
            block.problem = Damaged(message, path=change.path)
            return block
        return None

    def _change(
        self,
        table: Table,
        rows: dict[tuple[int, Any, Any], _Entry],
        operation: int,
        at: tuple[int, Any, Any],
        key: Any,
        namespace: Any,
        operand: Any,
    ) -> None:
        if operation == CLEAR:
            rows.pop(at, None)
        elif operation == MERGE:
            self._merge(table, rows, at, key, operand)
        elif table.is_map:
            # to set a map replaces all of it; a map that has become empty is no row, as in Flink
            entry = rows.get(at) if operation not in (SET, SET_INTERNAL) else None
            entries: dict[Any, Any] = entry.value if entry is not None else {}
            if operation == REMOVE:
                entries.pop(freeze(operand), None)
            else:
                pairs = operand if operation in (SET, SET_INTERNAL, ADD) else [operand]
                entries.update((freeze(user_key), (user_key, value)) for user_key, value in pairs)
            if entries:
                rows[at] = _Entry(key, namespace, entries)
            else:
                rows.pop(at, None)
        elif table.is_list and operation in (ADD, ADD_ELEMENT):
            entry = rows.get(at)
            before = entry.value if entry is not None else []
            items = [*before, *(operand if operation == ADD else [operand])]
            if items:
                rows[at] = _Entry(key, namespace, items)
        elif table.is_list and not operand:
            rows.pop(at, None)  # to set a list of nothing clears it, as in Flink
        else:
            rows[at] = _Entry(key, namespace, operand)

    def _merge(
        self, table: Table, rows: dict[tuple[int, Any, Any], _Entry], at: tuple[int, Any, Any], key: Any, operand: Any
    ) -> None:
        target, sources = operand
        # windows that merged: the sources are gone in any case. Lists are joined and one value alone moves; what two
        # values make together only the job's own function can say
        taken = [rows.pop((at[0], at[1], freeze(source)), None) for source in sources]
        place = (at[0], at[1], freeze(target))
        values = [entry.value for entry in (rows.get(place), *taken) if entry is not None]
        if not values:
            return
        if table.is_list:
            rows[place] = _Entry(key, target, [item for value in values for item in value])
        elif len(values) == 1:
            rows[place] = _Entry(key, target, values[0])
        else:
            self.merged.add(table.name)
            rows[place] = _Entry(key, target, Opaque("merged by the job's own function", 0, b""))

    def _blocks(self, name: str, table: Table, hidden: HiddenRows | None) -> Iterator[RowBlock]:
        if name in self.merged and table.value.hides is None:
            # the schema follows from the codec: this gives it a column for what is opaque
            table.value.hides = "the job's own function"
        by_group: dict[int, RowBlock] = {}
        for (group, _, _), entry in self.rows[name].items():
            block = by_group.setdefault(group, table.block(group))
            items = entry.value.values() if table.is_map else [(None, entry.value)]
            for user_key, value in items:
                block.keys.append(entry.key)
                block.namespaces.append(entry.namespace)
                block.values.append(value)
                if block.user_keys is not None:
                    block.user_keys.append(user_key)
        for group in sorted(by_group):
            yield by_group[group]
        if hidden is not None:
            # a block of no rows, for a page that counts: what is hidden belongs to the state, not to one key group
            lost = table.block(min(by_group, default=0))
            lost.hidden = hidden
            yield lost
