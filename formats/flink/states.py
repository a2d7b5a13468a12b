"""State of operators as the view has it: which there is, how much is hidden, rows under a condition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from formats.flink import facts
from formats.flink.ids import Names
from formats.flink.state.keyed_tables import Types
from formats.flink.state.places import PLACES
from formats.flink.state.rows import StateSummary, batches, summaries, tables, tables_of_timers
from formats.view import StateFacts

if TYPE_CHECKING:
    import pyarrow as pa

    from formats.flink.files.streams import Streams
    from formats.flink.metadata.handles import Metadata, OperatorState
    from formats.flink.state.keyed_tables import Table
    from formats.query.predicate import Predicate


COUNTED = 64 << 20
"""Bytes of state that are read to count rows where nobody asked for them."""


def list_states(
    operators: Iterable[OperatorState],
    names: Names,
    streams: Streams,
    *,
    count: bool = False,
    types: Types | None = None,
    whole: bool = False,
) -> list[StateFacts]:
    """Every state of the operators that `names` has, by operator.

    count: read all rows, to know how many there are and how much of them is hidden.
    whole: its key with all that tells rows apart, as windows and the keys of maps do.
    """
    return [
        _facts(names[operator.id], row, row.identity if whole else row.key)
        for operator in operators
        if operator.id in names
        for row in summaries(operator, streams, count=count, types=types)
    ]


def hidden(operator: OperatorState, metadata: Metadata, streams: Streams) -> dict[str | None, str]:
    """State of an operator -> why rows of it are missing from what can be read."""
    if "heap" not in facts.backends(msgspec.structs.replace(metadata, operators=(operator,))):
        return {}
    rows = summaries(operator, streams, count=facts.operator_size(operator) <= COUNTED)
    return {row.name: row.opaque for row in rows if row.opaque is not None}


def _facts(operator: str, row: StateSummary, key: tuple[str, ...]) -> StateFacts:
    opaque = row.opaque
    if row.problem is not None:
        opaque = f"{opaque}; {row.problem}" if opaque else str(row.problem)
    return StateFacts(operator, row.name, row.kind, key, row.rows, row.bytes, opaque)


def select(
    operator: OperatorState,
    streams: Streams,
    name: str | None,
    columns: Sequence[str] | None,
    where: Predicate | None,
    *,
    types: Types | None,
    path: str,
) -> Iterator[pa.RecordBatch]:
    """The rows of one state that satisfy a condition; where it names whole keys, only their key groups are read."""
    from formats.flink.state.one_schema import alike
    from formats.query.predicate import check_columns, columns_of, filtered

    named = {*(columns or ()), *(columns_of(where) if where is not None else ())}
    groups = _groups(operator, streams, name, where) if where is not None else None
    places = not named.isdisjoint(PLACES)
    rows = batches(operator, streams, name, types=types, groups=groups, path=path, places=places)
    for batch in alike(rows, lambda: state_schema(operator, streams, name, types=types, path=path)):
        check_columns(columns or (), batch.schema)
        yield batch if where is None else filtered(batch, where)


def _groups(operator: OperatorState, streams: Streams, name: str | None, where: Predicate) -> list[int] | None:
    """The key groups of the keys that a condition names; None if it names none, or their hash is not known."""
    from formats.flink.state.columns import keyed_columns
    from formats.flink.state.key_lookup import groups_of
    from formats.query.predicate import keys_named

    placed = keys_named(where, [PLACES[0]])
    if placed is not None and all(one[PLACES[0]].isdecimal() for one in placed):
        return sorted({int(one[PLACES[0]]) for one in placed})
    every = chain(tables(operator, streams, name=name), tables_of_timers(operator, streams))
    table = next((table for table in every if table.name == name), None)
    if table is None:
        return None
    key = [column.name for column in keyed_columns(table) if column.source == "keys"]
    named = keys_named(where, key) if key else None
    return None if named is None else groups_of(named, table.key, operator.max_parallelism)


def state_schema(
    operator: OperatorState, streams: Streams, name: str | None, *, types: Types | None, path: str
) -> pa.Schema:
    """Return the columns of a state, as all subtasks together describe them."""
    import pyarrow as pa

    from formats.flink.state.columns import arrow_type, keyed_columns
    from formats.flink.state.one_schema import may_differ, united

    def schema_of(table: Table) -> pa.Schema:
        return pa.schema([pa.field(column.name, arrow_type(column.shape)) for column in keyed_columns(table)])

    described = (schema_of(table) for table in tables(operator, streams, types, name) if table.name == name)
    if (first := next(described, None)) is None:
        described = (schema_of(table) for table in tables_of_timers(operator, streams) if table.name == name)
        first = next(described, None)
    if first is None:
        described = (batch.schema for batch in batches(operator, streams, name, types=types, path=path))
        first = next(described, pa.schema([]))
    return united([first, *described]) if may_differ(first) else first
