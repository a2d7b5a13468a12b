"""One key through the epochs of a store: what each complete epoch has of it, of which only that is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from formats.errors import Damaged, FormatError, NotFound
from formats.select import rows, schema_of, selection_of
from formats.view import CheckpointStore, EpochFacts, StateFacts, Status

if TYPE_CHECKING:
    import pyarrow as pa

EPOCH, TRIGGERED, PRESENT = "__epoch", "__triggered", "__present"
"""Columns before those of the state. A key that an epoch has not is a row there without values."""


def history(
    store: CheckpointStore,
    state: StateFacts,
    keys: Sequence[str],
    columns: Sequence[str] | None = None,
    *,
    last: int | None = None,
    trouble: list[FormatError],
) -> Iterator[pa.Table]:
    """What each complete epoch has of these keys, newest first.

    state: as one of the epochs has it. last: no epoch after this one. trouble: gets what could not be read.
    """
    for facts in reversed(store.epochs()):
        if facts.status in (Status.COMPLETE, Status.DAMAGED) and (last is None or facts.epoch <= last):
            try:
                yield _at(store, facts, state, keys, columns)
            except FormatError as error:
                if not isinstance(error, NotFound) or facts.epoch in store.epoch_numbers():
                    trouble.append(error)  # else a job that runs has removed it meanwhile


def _at(
    store: CheckpointStore, facts: EpochFacts, state: StateFacts, keys: Sequence[str], columns: Sequence[str] | None
) -> pa.Table:
    import pyarrow as pa

    own = [one for one in store.states(facts.epoch) if (one.operator, one.name) == (state.operator, state.name)]
    table = pa.table({})
    if own:
        selection = selection_of(own[0], keys, (), columns)
        schema = schema_of(store, facts.epoch, own[0], selection)
        found = list(rows(store, facts.epoch, own[0], selection))
        table = pa.Table.from_batches(found) if found else schema.empty_table()
    count = max(table.num_rows, 1)
    heads = {
        EPOCH: pa.array([facts.epoch] * count, pa.int64()),
        TRIGGERED: pa.array([facts.triggered] * count, pa.string()),
        PRESENT: pa.array([table.num_rows > 0] * count, pa.bool_()),
    }
    if not table.num_rows:
        table = pa.table([pa.nulls(1, field.type) for field in table.schema], schema=_nullable(table.schema))
    return pa.table({**heads, **{name: table.column(name) for name in table.schema.names}})


def _nullable(schema: pa.Schema) -> pa.Schema:
    """The same columns, each of which may have nulls."""
    import pyarrow as pa

    return pa.schema([field.with_nullable(True) for field in schema])


def joined(tables: Sequence[pa.Table], path: str) -> pa.Table:
    """All of them, with the columns of all; Damaged where epochs have a column of types that do not go together."""
    import pyarrow as pa

    try:
        return pa.concat_tables(
            [table.cast(_nullable(table.schema)) for table in tables], promote_options="permissive"
        )
    except pa.ArrowException as error:
        first = str(error).splitlines()[0]
        raise Damaged(f"epochs have a column of different types: {first}", path=path,
                      hint="--columns leaves it out; PATH@N shows one epoch") from None  # fmt: skip
