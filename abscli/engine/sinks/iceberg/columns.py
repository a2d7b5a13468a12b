"""Columns of rows and of a table of Iceberg: what one is made with, and what does not fit into one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyarrow import types

_SAME = (
    types.is_boolean, types.is_int32, types.is_int64, types.is_float32, types.is_float64, types.is_date32,
    types.is_fixed_size_binary,
)  # fmt: skip
_WIDER = {(pa.int32(), pa.int64()), (pa.float32(), pa.float64())}
"""What Iceberg lets a column become."""


def as_taken(kind: pa.DataType) -> pa.DataType | None:
    """The type in which Iceberg holds every value of this one; None where there is none."""
    if types.is_dictionary(kind):
        return as_taken(kind.value_type)
    if any(is_same(kind) for is_same in _SAME) or isinstance(kind, pa.UuidType):
        return kind
    if types.is_integer(kind):
        return pa.decimal128(20) if types.is_uint64(kind) else pa.int64() if types.is_uint32(kind) else pa.int32()
    if types.is_float16(kind):
        return pa.float32()
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if types.is_date64(kind):
        return pa.date32()
    if types.is_time(kind):
        return pa.time64("us")
    if types.is_decimal(kind):
        return pa.decimal128(kind.precision, kind.scale) if kind.precision <= 38 else None
    return _nested(kind)


def _nested(kind: pa.DataType) -> pa.DataType | None:
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        item = as_taken(kind.value_type)
        return None if item is None else pa.list_(item)
    if types.is_map(kind):
        key, item = as_taken(kind.key_type), as_taken(kind.item_type)
        return None if key is None or item is None else pa.map_(key, item)
    if types.is_struct(kind):
        fields = [(field.name, as_taken(field.type)) for field in kind]
        return None if any(taken is None for _, taken in fields) else pa.struct(fields)
    return None


def made_for(rows: pa.Schema) -> pa.Schema:
    """The columns of a table for such rows; ValueError, naming those that it cannot have."""
    fields = [(field.name, as_taken(field.type)) for field in rows]
    if untaken := [name for name, taken in fields if taken is None]:
        wrong = ", ".join(f"{name} ({rows.field(name).type})" for name in untaken)
        raise ValueError(f"Iceberg has no type for {wrong}")
    return pa.schema(fields)


def disagreements(rows: pa.Schema, table: pa.Schema) -> Iterator[str]:
    """What keeps rows out of a table, each with both sides. table: what is not nullable there has to come.

    The order of columns is of no account, and a column that rows do not have is null. A column of nothing but nulls
    fits every column that may have them.
    """
    for field in rows:
        if field.name not in table.names:
            yield f"rows have a column {field.name} ({field.type}), which the table has not"
        elif not _fits(field.type, table.field(field.name).type):
            column = table.field(field.name).type
            yield f"column {field.name} is {field.type} in the rows, {as_taken(column) or column} in the table"
    for field in table:
        if field.name not in rows.names and not field.nullable:
            yield f"the table requires a column {field.name} ({field.type}), which rows have not"


def _fits(kind: pa.DataType, column: pa.DataType) -> bool:
    if types.is_null(kind):
        return True
    taken, wanted = as_taken(kind), as_taken(column)
    return taken is not None and wanted is not None and _widens(taken, wanted)


def _widens(kind: pa.DataType, to: pa.DataType) -> bool:
    if kind == to or (kind, to) in _WIDER:
        return True
    if types.is_decimal(kind) and types.is_decimal(to):
        return bool(kind.scale == to.scale and kind.precision <= to.precision)
    if types.is_list(kind) and types.is_list(to):
        return _widens(kind.value_type, to.value_type)
    if types.is_map(kind) and types.is_map(to):
        return _widens(kind.key_type, to.key_type) and _widens(kind.item_type, to.item_type)
    if types.is_struct(kind) and types.is_struct(to):
        names = [field.name for field in kind]
        return names == [field.name for field in to] and all(
            _widens(kind.field(name).type, to.field(name).type) for name in names
        )
    return False


def written_as(rows: Sequence[pa.Schema], table: pa.Schema) -> pa.Schema:
    """The columns of the table that such rows have, in its order."""
    return pa.schema([field for field in table if any(field.name in schema.names for schema in rows)])


def in_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same rows with these columns; ValueError, naming the column, where a value does not fit."""
    arrays = []
    for field in schema:
        if field.name in batch.schema.names:
            array = batch.column(field.name)
            try:
                array = array.cast(field.type)
            except pa.ArrowException as error:
                raise ValueError(f"column {field.name}: {error}") from None
        else:
            array = pa.nulls(batch.num_rows, field.type)
        if array.null_count and not field.nullable:
            raise ValueError(f"column {field.name} contains nulls, which the table does not allow")
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
