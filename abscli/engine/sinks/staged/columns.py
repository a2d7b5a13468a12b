"""Columns of rows, and of Delta and Iceberg tables: which types a table has, and which columns fit into another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import types


@dataclass(frozen=True, slots=True)
class TableFormat:
    """The column types of a table format.

    integers: for Arrow's integer types, the types that hold all their values.
    time: the type for times of day; None if the format has none.
    has_fixed_binary: whether there is a type for bytes of a fixed length.
    narrows: whether an integer column takes rows of every integer type, as long as their values fit.
    """

    name: str
    integers: Mapping[pa.DataType, pa.DataType]
    time: pa.DataType | None
    has_fixed_binary: bool
    narrows: bool

    def column_type(self, kind: pa.DataType) -> pa.DataType | None:
        """Return the type of a column that holds every value of an Arrow type; None if the format has none."""
        if types.is_dictionary(kind):
            return self.column_type(kind.value_type)
        if types.is_integer(kind):
            return self.integers[kind]
        if types.is_boolean(kind) or types.is_float32(kind) or types.is_float64(kind):
            return kind
        if types.is_float16(kind):
            return pa.float32()
        if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
            return pa.string()
        if types.is_fixed_size_binary(kind) or isinstance(kind, pa.UuidType):
            return kind if self.has_fixed_binary else pa.binary()
        if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
            return pa.binary()
        if types.is_timestamp(kind):
            return pa.timestamp("us", None if kind.tz is None else "UTC")
        if types.is_date(kind):
            return pa.date32()
        if types.is_time(kind):
            return self.time
        if types.is_decimal(kind):
            return pa.decimal128(kind.precision, kind.scale) if kind.precision <= 38 else None
        return self._nested(kind)

    def _nested(self, kind: pa.DataType) -> pa.DataType | None:
        if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
            item = self.column_type(kind.value_type)
            return None if item is None else pa.list_(item)
        if types.is_map(kind):
            key, item = self.column_type(kind.key_type), self.column_type(kind.item_type)
            return None if key is None or item is None else pa.map_(key, item)
        if types.is_struct(kind):
            fields = [(field.name, self.column_type(field.type)) for field in kind]
            return None if any(type is None for _, type in fields) else pa.struct(fields)
        return None

    def columns_for(self, rows: pa.Schema) -> pa.Schema:
        """Return the columns of a new table. Raises ValueError, naming the columns that it cannot have."""
        fields = [(field.name, self.column_type(field.type)) for field in rows]
        if unknown := [name for name, type in fields if type is None]:
            wrong = ", ".join(f"{name} ({rows.field(name).type})" for name in unknown)
            raise ValueError(f"{self.name} has no type for {wrong}")
        return pa.schema(fields)

    def disagreements(self, rows: pa.Schema, table: pa.Schema) -> Iterator[str]:
        """Yield the reasons for which a table does not take rows, each with both types.

        Columns may come in any order. A column that the rows do not have is null, which the table must allow. A column
        that has only nulls fits every column that allows them.
        """
        for field in rows:
            if field.name not in table.names:
                yield f"rows have a column {field.name} ({field.type}), which the table does not have"
            elif not self._fits(field.type, table.field(field.name).type):
                column = table.field(field.name).type
                shown = self.column_type(column) or column
                yield f"column {field.name} is {field.type} in the rows, {shown} in the table"
        for field in table:
            if field.name not in rows.names and not field.nullable:
                yield f"the table requires a column {field.name} ({field.type}), which rows do not have"

    def _fits(self, kind: pa.DataType, column: pa.DataType) -> bool:
        if types.is_null(kind):
            return True
        type, wanted = self.column_type(kind), self.column_type(column)
        return type is not None and wanted is not None and self._widens(type, wanted)

    def _widens(self, kind: pa.DataType, to: pa.DataType) -> bool:
        if kind == to or (kind, to) in _WIDER or (self.narrows and types.is_integer(kind) and types.is_integer(to)):
            return True
        if types.is_decimal(kind) and types.is_decimal(to):
            return bool(kind.scale == to.scale and kind.precision <= to.precision)
        if types.is_list(kind) and types.is_list(to):
            return self._widens(kind.value_type, to.value_type)
        if types.is_map(kind) and types.is_map(to):
            return self._widens(kind.key_type, to.key_type) and self._widens(kind.item_type, to.item_type)
        if types.is_struct(kind) and types.is_struct(to):
            names = [field.name for field in kind]
            return names == [field.name for field in to] and all(
                self._widens(kind.field(name).type, to.field(name).type) for name in names
            )
        return False


_WIDER = {(pa.int32(), pa.int64()), (pa.float32(), pa.float64())}
_UINT64 = pa.decimal128(20)
ICEBERG = TableFormat(
    "Iceberg",
    {
        pa.int8(): pa.int32(), pa.int16(): pa.int32(), pa.int32(): pa.int32(), pa.int64(): pa.int64(),
        pa.uint8(): pa.int32(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): _UINT64,
    },
    time=pa.time64("us"), has_fixed_binary=True, narrows=False,
)  # fmt: skip
"""Types of the Iceberg table specification, versions 1 and 2."""
DELTA = TableFormat(
    "Delta",
    {
        pa.int8(): pa.int8(), pa.int16(): pa.int16(), pa.int32(): pa.int32(), pa.int64(): pa.int64(),
        pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): _UINT64,
    },
    time=None, has_fixed_binary=False, narrows=True,
)  # fmt: skip
"""Primitive types of the Delta transaction log protocol, with `timestampNtz`."""


def written_as(rows: Sequence[pa.Schema], table: pa.Schema) -> pa.Schema:
    """Return the columns of the table that rows have, in the order of the table."""
    return pa.schema([field for field in table if any(field.name in schema.names for schema in rows)])


def in_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert rows to these columns. Raises ValueError, naming the column, if a value does not fit."""
    if batch.schema.equals(schema):
        return batch
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
