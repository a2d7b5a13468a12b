"""Rows in the order of a column, in little memory where only the first of them are wanted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from formats.query.predicate import BadPredicate, check_columns


class Order(NamedTuple):
    """By which column, and whether the largest comes first."""

    column: str
    descending: bool


def order_of(text: str) -> Order:
    """`n`, or `-n` for the largest first."""
    return Order(text.removeprefix("-"), text.startswith("-"))


def in_order(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, orders: Iterable[Order], limit: int | None
) -> pa.Table:
    """The rows by the first column, those alike by the next, and so on; nulls come last. limit: the first so many, of
    which no more than twice as many, or a batch, are kept at a time. BadPredicate for a column that has no order."""
    keys = [(order.column, "descending" if order.descending else "ascending") for order in orders]
    check_columns([column for column, _ in keys], schema)
    for column, _ in keys:
        if pa.types.is_nested(kind := schema.field(column).type):
            raise BadPredicate(f"column {column!r} has no order: it is of type {kind}")
    best = schema.empty_table()
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if limit is not None and rows > max(limit, 65_536):
            best, waiting, rows = _first(best, waiting, keys, limit), [], 0
    return _first(best, waiting, keys, limit)


def _first(best: pa.Table, more: list[pa.RecordBatch], keys: list[tuple[str, str]], limit: int | None) -> pa.Table:
    table = pa.concat_tables([best, *map(_as_table, more)], promote_options="permissive")
    try:
        # Rows that are alike stay as they came: their number is the last key.
        numbered = table.append_column("__row", pa.array(range(table.num_rows), pa.int64()))
        indices = pc.sort_indices(numbered, sort_keys=[*keys, ("__row", "ascending")])
    except pa.ArrowException as error:
        raise BadPredicate(f"cannot be sorted: {str(error).splitlines()[0]}") from None
    return table.take(indices if limit is None else indices.slice(0, limit))


def _as_table(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])
