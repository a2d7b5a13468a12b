"""Check the preconditions of a PostgreSQL table, all at once and before the job starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from abscli.engine.postgres.database import Table, first_line, identifier
from abscli.engine.sinks.postgres.epochs import NAME, WRITERS, target
from abscli.engine.sinks.postgres.values import columns_in, kind_of, unfit_columns
from abscli.engine.sinks.staged.contract import Unmet

if TYPE_CHECKING:
    from abscli.engine.postgres.database import Connection

_TYPES: Final = {
    "boolean": "boolean", "float": "real", "double": "double precision", "text": "text", "date": "date", "time": "time",
    "duration": "interval", "binary": "bytea", "null": "text",
}  # fmt: skip
_INTEGERS: Final = {
    "int8": "smallint", "int16": "smallint", "int32": "integer", "int64": "bigint",
    "uint8": "smallint", "uint16": "integer", "uint32": "bigint", "uint64": "numeric(20)",
}  # fmt: skip
_MARKER_RIGHTS: Final = ("select", "insert", "update", "delete")


def column_type(type: pa.DataType) -> str | None:
    """Return a type of PostgreSQL that keeps each value of an Arrow type; None if there is none."""
    kind = kind_of(type)
    if kind == "integer":
        return _INTEGERS[str(type)]
    if kind == "decimal":
        return f"numeric({type.precision},{max(type.scale, 0)})" if type.scale >= 0 else "numeric"
    if kind == "timestamp":
        return "timestamp" if type.tz is None else "timestamptz"
    return _TYPES.get(kind or "")


def create_table(name: str, key: Sequence[str], columns: pa.Schema) -> str | None:
    """Return the statement that creates a table for rows; None if a column has no type there.

    name: quoted. key: the columns of the primary key, if there is one.
    """
    types = [(field.name, column_type(field.type)) for field in columns]
    if any(type is None for _, type in types):
        return None
    lines = [f"{_quoted(name)} {type}" for name, type in types]
    lines += [f"primary key ({', '.join(map(_quoted, key))})"] if key else []
    return f"create table {name} ({', '.join(lines)})"


def unmet(table: Table, key: Sequence[str], columns: pa.Schema | None) -> list[Unmet]:
    """List what a table and its server lack.

    key: of a sink with `mode: upsert`; else empty.
    columns: of the rows; None if they are not known before the job runs.
    Raises UsageError and EngineStopped if the database cannot be asked.
    """
    return table.ask(lambda connection: list(_unmet(connection, table, key, columns)), seconds=10)


def _unmet(connection: Connection, table: Table, key: Sequence[str], columns: pa.Schema | None) -> Iterator[Unmet]:
    name = target(table).as_string(connection)
    is_there = _is_there(connection, name)
    if not is_there:
        create = create_table(name, key, columns) if columns is not None else None
        primary_key = "a primary key and " if key else ""
        yield Unmet(
            f"there is no table {table.title}",
            f"run in the database: {create}" if create else
            f"create the table with {primary_key}the same column names as the rows",
        )  # fmt: skip
    yield from _setting(connection, key)
    yield from _marker_tables(connection, table)
    if is_there:
        lacking = list(_rights(connection, name, table.title, ("select", "insert", "update") if key else ("insert",)))
        yield from lacking
        if key and not lacking:  # the question needs the same rights
            yield from _unique_key(connection, table, key)
        if columns is not None:
            yield from _columns(connection, table, columns)


def _setting(connection: Connection, key: Sequence[str]) -> Iterator[Unmet]:
    if not key and connection.execute("show max_prepared_transactions").fetchone() == ("0",):
        yield Unmet(
            "the database does not allow prepared transactions: max_prepared_transactions is 0",
            "set max_prepared_transactions to at least twice the sink's parallelism, and restart PostgreSQL",
        )


def _marker_tables(connection: Connection, table: Table) -> Iterator[Unmet]:
    """Check the tables of the commit markers, which the sink creates beside its table."""
    names = [identifier(table, name).as_string(connection) for name in (NAME, WRITERS)]
    missing = [name for name in names if not _is_there(connection, name)]
    query = "select coalesce(%s, current_schema()), has_schema_privilege(coalesce(%s, current_schema()), 'create')"
    if missing and (row := connection.execute(query, (table.schema, table.schema)).fetchone()) is not None:
        schema, may_create = row
        if not may_create:
            yield Unmet(
                f"the user {_user(connection)} may not create the tables {' and '.join(missing)} for commit markers",
                f"run in the database: grant create on schema {schema} to {_user(connection)}",
            )
    for name in names:
        if name not in missing:
            yield from _rights(connection, name, name, _MARKER_RIGHTS)


def _rights(connection: Connection, name: str, title: str, rights: Sequence[str]) -> Iterator[Unmet]:
    lacking = [
        right for right in rights
        if connection.execute("select has_table_privilege(to_regclass(%s), %s)", (name, right)).fetchone() == (False,)
    ]  # fmt: skip
    if lacking:
        yield Unmet(
            f"the user {_user(connection)} lacks the right to {' and '.join(lacking)} on {title}",
            f"run in the database: grant {', '.join(lacking)} on {name} to {_user(connection)}",
        )


def _unique_key(connection: Connection, table: Table, key: Sequence[str]) -> Iterator[Unmet]:
    from psycopg import errors, sql

    columns = sql.SQL(", ").join(map(sql.Identifier, key))
    plan = sql.SQL("explain insert into {0} ({1}) select {1} from {0} limit 0 on conflict ({1}) do nothing")
    try:
        connection.execute(plan.format(target(table), columns))
    except errors.UndefinedColumn as error:
        yield Unmet(
            f"{table.title} does not have all columns of the key: {', '.join(key)}",
            f"set `key` to columns of the table: {first_line(error)}",
        )
    except errors.InvalidColumnReference:
        yield Unmet(
            f"{table.title} has no primary key or unique index on {', '.join(key)}",
            f"run in the database: create unique index on {table.title} ({', '.join(key)})",
        )


def _columns(connection: Connection, table: Table, columns: pa.Schema) -> Iterator[Unmet]:
    there = columns_in(connection, table)
    for message, hint in unfit_columns(table.title, there, columns):
        yield Unmet(message, hint)
    for name, column in there.items():
        if column.is_needed and name not in columns.names:
            yield Unmet(
                f"column {name!r} of {table.title} is NOT NULL without a default, and the rows have no such column",
                "give the column a default; or add it to the rows in the job",
            )


def _is_there(connection: Connection, name: str) -> bool:
    return connection.execute("select to_regclass(%s)", (name,)).fetchone() != (None,)


def _user(connection: Connection) -> str:
    row = connection.execute("select quote_ident(current_user)").fetchone()
    return str(row[0]) if row is not None else ""


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'
