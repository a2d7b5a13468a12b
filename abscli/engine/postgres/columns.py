"""Columns of a query as Arrow has them, and rows by COPY: each value as text that says exactly what it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyarrow import csv

if TYPE_CHECKING:
    from psycopg import sql

    from abscli.engine.postgres.database import Connection

_TYPES = {
    "bool": pa.bool_(), "int2": pa.int32(), "int4": pa.int32(), "int8": pa.int64(), "float4": pa.float64(),
    "float8": pa.float64(), "numeric": pa.float64(), "date": pa.date32(), "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us"),
}  # fmt: skip
"""By the name of a base type; all others are text."""
_MOMENTS = ("timestamp", "timestamptz")
_SESSION = (
    "set client_encoding to 'UTF8'", "set datestyle to 'ISO'", "set timezone to 'UTC'", "set extra_float_digits to 1",
)  # fmt: skip
_DAYS = "({}::date - date '1970-01-01')"
_MICROSECONDS = "round(extract(epoch from {}) * 1000000)::bigint"
_BASES = """
    with recursive base(oid, at) as (
        select oid, oid from pg_type where oid = any(%s)
        union all select base.oid, typbasetype from base join pg_type on pg_type.oid = at where typtype = 'd')
    select base.oid, typname, format_type(base.oid, null) from base join pg_type on pg_type.oid = at
    where typtype <> 'd'"""


class Column(NamedTuple):
    """Of a table or a query. kind: its type, as the database calls it; base: that type's name, of a domain that of
    what it is made of."""

    name: str
    kind: str
    base: str

    @property
    def type(self) -> pa.DataType:
        """As Arrow has it, where nothing else is said."""
        return _TYPES.get(self.base, pa.string())


def is_moment(column: Column) -> bool:
    """Tell whether a column has dates or times, which can be infinite in a database."""
    return column.base in (*_MOMENTS, "date")


def prepare(connection: Connection) -> None:
    """Make texts of values the same on every connection, whatever a database or a user has set."""
    for statement in _SESSION:
        connection.execute(statement)


def columns_of(connection: Connection, query: sql.Composed) -> list[Column]:
    """The columns of a query, in its order; psycopg's errors where it is none."""
    cursor = connection.execute(query)
    described = [(column.name, column.type_code) for column in cursor.description or ()]
    bases = {oid: (str(kind), str(base)) for oid, base, kind in
             connection.execute(_BASES, ([oid for _, oid in described],)).fetchall()}  # fmt: skip
    return [Column(name, *bases[oid]) for name, oid in described]


def selected(columns: Sequence[Column], schema: pa.Schema) -> sql.Composable:
    """What to select so that `decoded` has the columns of a schema, which are among these."""
    from psycopg import sql

    by_name = {column.name: column for column in columns}
    return sql.SQL(", ").join(_expression(by_name[field.name], field.type) for field in schema)


def _expression(column: Column, type: pa.DataType) -> sql.Composable:
    from psycopg import sql

    name = sql.Identifier(column.name)
    if pa.types.is_date(type):
        return sql.SQL(_DAYS).format(name)
    if not pa.types.is_timestamp(type):
        return sql.SQL("{}::text").format(name)
    moment: sql.Composable = name if column.base in _MOMENTS else sql.SQL("{}::timestamp").format(name)
    return sql.SQL(_MICROSECONDS).format(moment)


def copied(connection: Connection, query: sql.Composable) -> bytes:
    """The rows of a query, as CSV without a line of names."""
    from psycopg import sql

    with connection.cursor() as cursor, cursor.copy(sql.SQL("copy ({}) to stdout (format csv)").format(query)) as copy:
        return b"".join(copy)


def decoded(data: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of such CSV, whose columns were selected as of `selected`; ArrowInvalid for a value that is of another
    type."""
    if not data:
        return pa.RecordBatch.from_pylist([], schema)
    # Two columns may have one name.
    names = [str(number) for number in range(len(schema))]
    types = {name: _as_copied(field.type) for name, field in zip(names, schema, strict=True)}
    table = csv.read_csv(
        pa.BufferReader(data),
        # A value may not go over more than two blocks.
        read_options=csv.ReadOptions(column_names=names, block_size=max(1 << 20, len(data) + 1)),
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types=types, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
        ),
    ).combine_chunks()
    arrays = [
        _typed(pa.concat_arrays(column.chunks), field.type)
        for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.record_batch(arrays, schema=schema)


def _as_copied(type: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(type):
        return pa.int64()
    return pa.int32() if pa.types.is_date(type) else type


def _typed(column: pa.Array, type: pa.DataType) -> pa.Array:
    return column.cast(pa.timestamp("us")).cast(type) if pa.types.is_timestamp(type) else column.cast(type)
