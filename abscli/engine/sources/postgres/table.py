"""What a database says of a table that is read by a growing key: whether it can be, and whether it is still the one of
which rows were read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from abscli.engine.errors import EngineStopped, JobFailed, UsageError
from abscli.engine.postgres.columns import Column, columns_of, prepare
from abscli.engine.postgres.database import Table, first_line, identifier
from abscli.engine.postgres.sqlstates import trouble_of
from abscli.engine.sources.columns import chosen, schema_of
from abscli.engine.sources.postgres.keys import Identity, Key
from formats.job.model import Operator

if TYPE_CHECKING:
    from psycopg import sql

    from abscli.engine.postgres.database import Connection

T = TypeVar("T")
KEY_TYPES = ("int2", "int4", "int8", "numeric", "text", "varchar", "uuid", "date", "timestamp", "timestamptz")
_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence", "c": "a type"}
_PUT_BACK = (
    "restore the old data; or read everything again, with --from-epoch 0 or another store; or mark the source "
    "deterministic: false, to resume anyway"
)
_UNIQUE = """
    select exists (select from pg_index where indrelid = %s and indisunique and indisvalid and indpred is null
    and indexprs is null and (select array_agg(attname::text) from pg_attribute where attrelid = indrelid
    and attnum = any(indkey[0:indnkeyatts - 1])) <@ %s::text[])"""
_SEQUENCE = """
    select s.seqrelid::regclass::text, seqcache, seqincrement
    from pg_sequence s where seqrelid = pg_get_serial_sequence(%s, %s)::regclass"""


@dataclass(frozen=True, slots=True)
class KeyedTable:
    """A source's table. key: its growing columns; strict: whether it has to be the one that was read before."""

    table: Table
    key: tuple[str, ...]
    strict: bool = True

    @classmethod
    def of(cls, operator: Operator) -> KeyedTable:
        """That of a source of type `postgres`."""
        options = operator.connector or {}
        schema, dot, name = options["table"].partition(".")
        if not dot:
            schema, name = None, schema
        strict = operator.deterministic and options.get("deterministic") is not False
        where = options.get("url_env"), options.get("service")
        return cls(Table(operator.id, name, schema, *where, role="source"), tuple(options["key"]), strict)

    @property
    def name(self) -> sql.Composable:
        """Quoted."""
        return identifier(self.table, self.table.name)

    def look(self, connection: Connection) -> Looked:
        """What the database says of it, on a connection that is made ready for it; UsageError where it cannot be read
        by its key."""
        prepare(connection)
        return self.asked(lambda: _look(self, connection))

    def asked(self, question: Callable[[], T]) -> T:
        """Return what a question comes to. Raises UsageError or JobFailed if the database refuses it.

        psycopg's errors that may pass are raised as they are: see `Table.answer`.
        """
        import psycopg

        try:
            return question()
        except (psycopg.OperationalError, psycopg.InterfaceError):
            raise
        except psycopg.errors.InsufficientPrivilege as error:
            raise UsageError(
                f"{self.table.owner}: no permission to read {self.table.title}: {first_line(error)}",
                hint=f"grant select on {self.table.title} to the user of the connection",
            ) from None
        except psycopg.Error as error:
            if trouble_of(error.sqlstate) is not None:
                raise
            raise JobFailed(f"{self.table.owner}: {self.table.title} cannot be read: {first_line(error)}") from None

    def told(self, error: Exception) -> Exception:
        """As what a task may raise."""
        import psycopg

        if not isinstance(error, psycopg.Error):
            return error
        return EngineStopped(
            f"{self.table.owner}: the database of {self.table.title} returned no rows: {first_line(error)}",
            hint="fix the reported error, and run the job again with --resume",
        )


def look_at(keyed: KeyedTable, seconds: float | None = None) -> Looked:
    """What the database says of a table, on a connection of its own. seconds: as of `Table.ask`, which it raises as;
    UsageError where it cannot be read by its key."""
    try:
        return keyed.table.ask(keyed.look, seconds=seconds)
    except Exception as error:
        raise keyed.told(error) from error


@dataclass(frozen=True, slots=True)
class Looked:
    """What was seen of a table. columns: all; family: its oid and those of its partitions."""

    keyed: KeyedTable
    identity: Identity
    columns: tuple[Column, ...]
    family: tuple[int, ...]

    def key_casts(self) -> sql.Composable:
        """Places for the values of a key, as the types that its columns have."""
        from psycopg import sql

        by_name = {column.name: column.base for column in self.columns}
        casts = (sql.SQL("%s::pg_catalog.{}").format(sql.Identifier(by_name[name])) for name in self.keyed.key)
        return sql.SQL(", ").join(casts)


def _look(keyed: KeyedTable, connection: Connection) -> Looked:
    from psycopg import sql

    table = keyed.table
    text = keyed.name.as_string(connection)
    query = """select oid::bigint, coalesce(pg_relation_filenode(oid), 0)::bigint, relkind::text, relhassubclass,
        pg_is_in_recovery() from pg_class where oid = to_regclass(%s)"""
    row: Any = connection.execute(query, (text,)).fetchone()
    if row is None:
        raise UsageError(
            f"{table.owner}: there is no table {table.title}",
            hint="set `table` to the name of a table, or to schema.name",
        )
    oid, file, kind, has_children, in_recovery = row
    if kind not in ("r", "p") or (kind == "r" and has_children):
        what = _KINDS.get(kind, "a table that others inherit from")
        raise UsageError(
            f"{table.owner}: {table.title} is {what}: open transactions that write to it cannot be detected",
            hint="use a regular table without child tables, or a partitioned table",
        )
    if in_recovery:
        raise UsageError(
            f"{table.owner}: the database of {table.title} is a standby: transactions that are still in progress are "
            "not visible on it",
            hint="connect to the primary",
        )
    columns = tuple(columns_of(connection, sql.SQL("select * from {} limit 0").format(keyed.name)))
    _check_key(keyed, connection, oid, text, columns)
    tree = """with recursive tree(oid) as (select %s::oid union all select inhrelid from pg_inherits join tree
        on inhparent = tree.oid) select oid::bigint from tree"""
    family: list[Any] = connection.execute(tree, (oid,)).fetchall()
    return Looked(keyed, Identity(oid, file), columns, tuple(oid for (oid,) in family))


def _check_key(
    keyed: KeyedTable, connection: Connection, oid: int, text: str, columns: Sequence[Column]
) -> None:
    table, by_name = keyed.table, {column.name: column for column in columns}
    title = f"{table.title}'s key ({', '.join(keyed.key)})"
    for name in keyed.key:
        if name not in by_name:
            message = f"{table.owner}: {table.title} has no column {name!r}"
            raise UsageError(message, hint=f"available columns: {', '.join(by_name)}")
        if by_name[name].base not in KEY_TYPES:
            raise UsageError(
                f"{table.owner}: column {name!r} of {title} is {by_name[name].kind}, so it cannot be an increasing key",
                hint=f"use a column of type {' or '.join(KEY_TYPES)}",
            )
    query = "select attname::text from pg_attribute where attrelid = %s and attname = any(%s) and not attnotnull"
    nullable: Any = connection.execute(query, (oid, list(keyed.key))).fetchone()
    if nullable is not None:
        raise UsageError(
            f"{table.owner}: column {nullable[0]!r} of {title} may be null, and a row without a key would not be read",
            hint=f"run `alter table {table.title} alter column {nullable[0]} set not null`",
        )
    if connection.execute(_UNIQUE, (oid, list(keyed.key))).fetchone() != (True,):
        raise UsageError(
            f"{table.owner}: two rows of {table.title} may have the same key: there is no unique index on "
            f"{', '.join(keyed.key)}",
            hint="add a column that makes the key unique, such as key: [created, id]; or create a unique index",
        )
    sequence: Any = connection.execute(_SEQUENCE, (text, keyed.key[0])).fetchone()
    if sequence is not None and sequence[1] > 1:
        raise UsageError(
            f"{table.owner}: sequence {sequence[0]} gives each session {sequence[1]} numbers at a time, so lower "
            "numbers can appear after higher ones",
            hint=f"run `alter sequence {sequence[0]} cache 1`, and reconnect the sessions that write to the table",
        )
    if sequence is not None and sequence[2] < 0:
        raise UsageError(f"{table.owner}: {title} has decreasing keys: sequence {sequence[0]} counts down")


def schema_in(looked: Looked, operator: Operator) -> pa.Schema:
    """The columns that a source reads; UsageError for one that the table has not."""
    options, table = operator.connector or {}, looked.keyed.table
    own = pa.schema([(column.name, column.type) for column in looked.columns])
    if "schema" not in options:
        return chosen(own, options.get("columns"), f"{table.owner}: {table.title}")
    declared = schema_of(options["schema"], f"operator {operator.id}")
    chosen(own, declared.names, f"{table.owner}: {table.title}")
    return declared


def kinds_of(looked: Looked, schema: pa.Schema) -> dict[str, str]:
    """The database's types of the columns that are read, and of the key."""
    wanted = {*schema.names, *looked.keyed.key}
    return {column.name: column.kind for column in looked.columns if column.name in wanted}


def check_same(
    looked: Looked, connection: Connection, before: Identity | None, key: Key | None, kinds: dict[str, str] | None
) -> None:
    """JobFailed where it is not the table of which rows up to a key were read, or these are other rows by now.

    kinds: types of its columns then. Rows that were read may be deleted; what would take their keys again is told.
    """
    table, strict = looked.keyed.table, looked.keyed.strict
    now = {column.name: column.kind for column in looked.columns}
    for name, kind in (kinds or {}).items():
        if now.get(name) != kind:
            raise JobFailed(
                f"{table.owner}: column {name!r} of {table.title} is {now.get(name, 'missing')}, but was {kind} in the "
                "epoch",
                hint="undo the change to the table; or read everything again, with --from-epoch 0 or a new "
                "store",
            )
    if not strict or before is None:
        return
    if before.oid != looked.identity.oid:
        raise JobFailed(
            f"{table.owner}: {table.title} is another table than was read: its oid is {looked.identity.oid}, the epoch "
            f"notes {before.oid}",
            hint=_PUT_BACK,
        )
    if key is not None and (reason := _started_over(looked, connection, before, key)) is not None:
        raise JobFailed(
            f"{table.owner}: {table.title} is not what was read: {reason}, and rows up to "
            f"{', '.join(looked.keyed.key)} = {', '.join(key)} were read",
            hint=_PUT_BACK,
        )


def has_more(looked: Looked, connection: Connection, key: Key | None) -> bool:
    """Whether there are rows behind a key."""
    from psycopg import sql

    keyed = looked.keyed
    bound: sql.Composable = sql.SQL("")
    if key is not None:
        names = sql.SQL(", ").join(map(sql.Identifier, keyed.key))
        bound = sql.SQL("where ({}) > ({})").format(names, looked.key_casts())
    query = sql.SQL("select exists (select from {} {})").format(keyed.name, bound)
    return connection.execute(query, key or ()).fetchone() == (True,)


def _started_over(looked: Looked, connection: Connection, before: Identity, key: Key) -> str | None:
    """Why keys up to this one may be given again; None where they are not."""
    from psycopg import sql

    keyed = looked.keyed
    names, casts = sql.SQL(", ").join(map(sql.Identifier, keyed.key)), looked.key_casts()
    query = sql.SQL(
        "select exists (select from {0} where ({1}) = ({2})), exists (select from {0} where ({1}) >= ({2})), "
        "exists (select from {0})"
    ).format(keyed.name, names, casts)
    row: Any = connection.execute(query, (*key, *key)).fetchone()
    is_there, has_later, has_any = row
    if is_there or has_later:
        return None
    last = _last_number(looked, connection)
    if last is not None:
        return f"its sequence stands at {last}" if last < int(key[0]) else None
    if has_any:
        return "all of its keys are smaller"
    return "it is empty, and was emptied or rewritten as a whole" if before.file != looked.identity.file else None


def _last_number(looked: Looked, connection: Connection) -> int | None:
    """Of the sequence that gives the key; None where that is not known."""
    keyed = looked.keyed
    if len(keyed.key) != 1 or {c.name: c.base for c in looked.columns}[keyed.key[0]] not in ("int2", "int4", "int8"):
        return None
    query = """select pg_get_serial_sequence(%s, %s), coalesce(has_sequence_privilege(pg_get_serial_sequence(%s, %s),
        'select,usage'), false)"""
    names = keyed.name.as_string(connection), keyed.key[0]
    sequence, may_look = connection.execute(query, (*names, *names)).fetchone() or (None, False)
    if sequence is None or not may_look:
        return None
    row: Any = connection.execute("select coalesce(pg_sequence_last_value(%s::regclass), 0)", (sequence,)).fetchone()
    return int(row[0])
