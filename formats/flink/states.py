"""The states of an epoch by name, and their rows: what the store's view asks for.

The states of an operator and their rows are the work of `formats.flink.state_rows`; this module finds the operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from formats.flink.state_rows import StateSummary, Types, batches, summaries, tables
from formats.view import StateFacts

if TYPE_CHECKING:
    import pyarrow as pa

    from formats.flink.handles import OperatorState
    from formats.flink.store import FlinkStore
    from formats.flink.streams import Streams
    from formats.predicate import Predicate


def list_states(
    store: FlinkStore,
    epoch: int,
    *,
    count: bool = False,
    types: Types | None = None,
    only: str | None = None,
    whole: bool = False,
) -> list[StateFacts]:
    """Every state, by operator. count: read all rows, to know how many there are and how much of them is hidden; only:
    of this operator; whole: its key with all that tells rows apart, as windows and the keys of maps do."""
    metadata = store.metadata(epoch)
    names = store.names(metadata)
    streams = store.streams(epoch)
    return [
        _facts(names[operator.id], row, row.identity if whole else row.key)
        for operator in metadata.operators
        if only in (None, names[operator.id])
        for row in summaries(operator, streams, count=count, types=types)
    ]


def hidden(store: FlinkStore, epoch: int, operator: str) -> dict[str | None, str]:
    """State of an operator -> why rows of it are missing from what can be read."""
    from formats.flink import facts
    from formats.flink.store import COUNTED

    found = store.find_operator(epoch, operator)
    if "heap" not in facts.backends(msgspec.structs.replace(store.metadata(epoch), operators=(found,))):
        return {}
    rows = summaries(found, store.streams(epoch), count=facts.operator_size(found) <= COUNTED)
    return {row.name: row.opaque for row in rows if row.opaque is not None}


def _facts(operator: str, row: StateSummary, key: tuple[str, ...]) -> StateFacts:
    opaque = row.opaque
    if row.problem is not None:
        opaque = f"{opaque}; {row.problem}" if opaque else str(row.problem)
    return StateFacts(operator, row.name, row.kind, key, row.rows, row.bytes, opaque)


def read_state(
    store: FlinkStore, epoch: int, operator: str, name: str | None, *, types: Types | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of one state; NotFound if there is none of that name."""
    found = store.find_operator(epoch, operator)
    return batches(found, store.streams(epoch), name, types=types, path=store.path)


def select(
    store: FlinkStore,
    epoch: int,
    operator: str,
    name: str | None,
    columns: Sequence[str] | None,
    where: Predicate | None,
) -> Iterator[pa.RecordBatch]:
    """The rows of one state that satisfy a condition; where it names whole keys, only their key groups are read."""
    from formats.predicate import check_columns, expression

    found = store.find_operator(epoch, operator)
    streams = store.streams(epoch)
    groups = _groups(found, streams, name, where) if where is not None else None
    for batch in batches(found, streams, name, types=store.types, groups=groups, path=store.path):
        check_columns(columns or (), batch.schema)
        yield batch if where is None else batch.filter(expression(where, batch.schema))


def _groups(operator: OperatorState, streams: Streams, name: str | None, where: Predicate) -> list[int] | None:
    """The key groups of the keys that a condition names; None if it names none, or their hash is not known."""
    from formats.flink.columns import keyed_columns
    from formats.flink.key_lookup import groups_of
    from formats.predicate import keys_named

    table = next((table for table in tables(operator, streams) if table.name == name), None)
    if table is None:
        return None
    key = [column.name for column in keyed_columns(table) if column.source == "keys"]
    named = keys_named(where, key) if key else None
    return None if named is None else groups_of(named, table.key, operator.max_parallelism)


def state_schema(store: FlinkStore, epoch: int, operator: str, name: str | None) -> pa.Schema:
    """The columns of a state; of operator state those of its first rows."""
    import pyarrow as pa

    from formats.flink.columns import arrow_type, keyed_columns

    found = store.find_operator(epoch, operator)
    streams = store.streams(epoch)
    operators_own = {part.name for s in found.subtasks if s.managed_operator for part in s.managed_operator.states}
    if name not in operators_own:
        for table in tables(found, streams, store.types):
            if table.name == name:
                return pa.schema([pa.field(column.name, arrow_type(column.shape)) for column in keyed_columns(table)])
    rows = batches(found, streams, name, types=store.types, path=store.path)
    return next((batch.schema for batch in rows), pa.schema([]))
