"""The table of a `lookup` that a database has: a table of it, or the answer to a query."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from abscli.engine.errors import EngineError, JobFailed
from abscli.engine.postgres.columns import Column, columns_of, copied, decoded, prepare, selected
from abscli.engine.postgres.database import Table, first_line, identifier
from formats.errors import FormatError
from formats.job.model import Operator

if TYPE_CHECKING:
    from psycopg import sql

    from abscli.engine.postgres.database import Connection

ChooseColumns = Callable[[Sequence[str]], Sequence[str]]
"""From the names that a table has to those that are wanted; JobFailed for one that it has not."""


def title_of(operator: Operator) -> str:
    """What messages call it."""
    assert operator.lookup
    return operator.lookup.table or "(the answer to its query)"


def read_database_table(
    operator: Operator, choose: ChooseColumns, seconds: float | None = None
) -> tuple[pa.Table, str]:
    """Its rows in an order of their own, and a digest of them, which does not depend on where they lie.

    seconds: for which the database is awaited, as of `Table.ask`. Raises JobFailed, UsageError, EngineStopped.
    """
    assert operator.lookup
    lookup = operator.lookup
    schema, dot, name = lookup.table.partition(".")
    where = lookup.url_env or None, lookup.service or None
    table = Table(operator.id, name if dot else schema, schema if dot else None, *where, role="operator")
    try:
        return table.ask(lambda connection: _read(connection, _source(table, lookup.query), choose), seconds=seconds)
    except Exception as error:
        raise _told(operator, error) from error


def _told(operator: Operator, error: Exception) -> Exception:
    """As what a task may raise."""
    if isinstance(error, EngineError | FormatError):
        return error
    import psycopg

    if not isinstance(error, psycopg.Error | pa.ArrowException):
        return error
    return JobFailed(
        f"operator {operator.id}: cannot read its table {title_of(operator)}: {first_line(error)}",
        hint="check that the database user may read the table: every worker reads the whole table when it starts",
    )


def _source(table: Table, query: str) -> sql.Composable:
    from psycopg import sql

    return sql.SQL("({}) answer").format(sql.SQL(query)) if query else identifier(table, table.name)


def _read(connection: Connection, source: sql.Composable, choose: ChooseColumns) -> tuple[pa.Table, str]:
    from psycopg import sql

    prepare(connection)
    connection.execute("set default_transaction_read_only to on")
    columns = columns_of(connection, sql.SQL("select * from {} limit 0").format(source))
    by_name = {column.name: column for column in columns}
    wanted = [by_name[name] for name in choose([column.name for column in columns])]
    schema = pa.schema([(column.name, column.type) for column in wanted])
    order = sql.SQL(", ").join(sql.Literal(number) for number in range(1, len(wanted) + 1))
    query = sql.SQL("select {} from {} order by {}").format(selected(wanted, schema), source, order)
    data = copied(connection, query)
    return pa.Table.from_batches([decoded(data, schema)]), _digest(wanted, data)


def _digest(columns: Sequence[Column], data: bytes) -> str:
    described = "\n".join(f"{column.name} {column.kind}" for column in columns)
    return hashlib.sha256(described.encode() + b"\0" + data).hexdigest()
