"""The table of epochs beside a sink's table, `abs_epochs`: which attempt has shown which task's part of which epoch.

A row is written in the transaction that it speaks of, so that it is there exactly when the part's rows are.
"""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

from abscli.engine.postgres.columns import prepare
from abscli.engine.postgres.database import Table, identifier
from formats.ids import EpochId
from formats.native.transactions import Transaction, transaction_of

if TYPE_CHECKING:
    from psycopg import sql

    from abscli.engine.postgres.database import Connection
    from abscli.engine.sinks.staged.contract import Delivery

PIECE = 1 << 20
LOCK_TIMEOUT = "60s"
"""Rows may be locked for so long by another transaction: one that another epoch has prepared waits for its commit."""
NAME = "abs_epochs"
WHOLE = -1
"""In place of a task: the marker of a delivery all of whose parts are committed."""
_CREATE = """create table if not exists {} (
    target text not null, operator text not null, attempt_id text not null, epoch bigint not null, task int not null,
    rows bigint not null, sha256 text not null, job text not null, superseded boolean not null default false,
    shown timestamptz not null default now(), primary key (attempt_id, operator, epoch, task))"""
WRITERS = "abs_writers"
_CREATE_WRITERS = """create table if not exists {} (
    target text not null, job text not null, attempt_id text not null, table_oid oid not null, own_oid oid not null,
    primary key (target, job))"""


class Epochs:
    """The rows of one sink's table. job: whose sink it is."""

    def __init__(self, table: Table, job: str) -> None:

        self.table = table
        self._job = job
        self._name: sql.Composable = identifier(table, NAME)
        self._writers: sql.Composable = identifier(table, WRITERS)

    def create(self, connection: Connection) -> None:
        """Make the table, if it is not there."""
        from psycopg import sql

        # Two jobs that begin at once would both make it, of which one fails.
        with connection.transaction():
            connection.execute("select pg_advisory_xact_lock(hashtextextended('abs:epochs', 0))")
            connection.execute(sql.SQL(_CREATE).format(self._name))
            connection.execute(sql.SQL(_CREATE_WRITERS).format(self._writers))

    def claim(self, connection: Connection, attempt_id: str) -> None:
        """Only this attempt writes the table from here on, of all of the job."""
        from psycopg import sql

        query = (
            "insert into {} (target, job, attempt_id, table_oid, own_oid) "
            "values (%s, %s, %s, to_regclass(%s), to_regclass(%s)) on conflict (target, job) do update "
            "set attempt_id = excluded.attempt_id, table_oid = excluded.table_oid, own_oid = excluded.own_oid"
        )
        values = (self.table.title, self._job, attempt_id, *self._names(connection))
        connection.execute(sql.SQL(query).format(self._writers), values)

    def is_replaced(self, connection: Connection) -> bool:
        """Tell whether the table was dropped and created again since the newest attempt took it.

        If `abs_writers` has another object id, too, the database was restored from a dump, and its markers tell what it
        contains. Raises psycopg.Error.
        """
        from psycopg import sql

        table, writers = self._names(connection)
        if connection.execute("select to_regclass(%s)", (writers,)).fetchone() == (None,):
            return False
        query = (
            "select 1 from {} where target = %s and job = %s and table_oid <> to_regclass(%s) "
            "and own_oid = to_regclass(%s)"
        )
        values = (self.table.title, self._job, table, writers)
        return connection.execute(sql.SQL(query).format(self._writers), values).fetchone() is not None

    def oid(self, connection: Connection) -> str | None:
        """Return the object id of the sink's table; None if there is no table."""
        row = connection.execute("select to_regclass(%s)::oid::text", (self._names(connection)[0],)).fetchone()
        return str(row[0]) if row is not None and row[0] is not None else None

    def forget_all(self, connection: Connection) -> None:
        """Delete all markers of the job for this table: the rows that they stand for are gone."""
        self._run(connection, "delete from {} where target = %s and job = %s", (self.table.title, self._job))

    def _names(self, connection: Connection) -> tuple[str, str]:
        """Return the quoted names of the sink's table and of the table of writers."""
        return target(self.table).as_string(connection), self._writers.as_string(connection)

    def is_claimed_by(self, connection: Connection, attempt_id: str) -> bool:
        """Whether it is this attempt that writes the table; nobody else can claim it before the transaction ends that
        is open."""
        from psycopg import sql

        query = "select attempt_id from {} where target = %s and job = %s for update"
        row = connection.execute(sql.SQL(query).format(self._writers), (self.table.title, self._job)).fetchone()
        return row == (attempt_id,)

    def is_there(self, connection: Connection) -> bool:
        """Whether it has been made."""
        name = self._name.as_string(connection)
        return connection.execute("select to_regclass(%s)", (name,)).fetchone() != (None,)

    def note(self, connection: Connection, part: Transaction, rows: int, sha256: str) -> None:
        """In the transaction that is open: it writes the part."""
        values = (self.table.title, *_key(part), rows, sha256, self._job)
        columns = "target, attempt_id, epoch, task, operator, rows, sha256, job"
        self._run(connection, f"insert into {{}} ({columns}) values (%s, %s, %s, %s, %s, %s, %s, %s)", values)

    def note_delivery(self, connection: Connection, delivery: Delivery) -> None:
        """Write the marker of a delivery, when all its parts are committed or in the transaction that is open."""
        values = (
            self.table.title, delivery.epoch.attempt_id, delivery.epoch.number, WHOLE, delivery.parts[0].id.operator,
            sum(part.file.rows for part in delivery.parts), "", self._job,
        )  # fmt: skip
        columns = "target, attempt_id, epoch, task, operator, rows, sha256, job"
        query = f"insert into {{}} ({columns}) values (%s, %s, %s, %s, %s, %s, %s, %s) on conflict do nothing"
        self._run(connection, query, values)

    def has(self, connection: Connection, part: Transaction) -> bool:
        """Tell whether a part is committed. A later part of the same task and attempt implies it."""
        query = "select 1 from {} where attempt_id = %s and epoch >= %s and task = %s and operator = %s limit 1"
        return self._run(connection, query, _key(part)).fetchone() is not None

    def shown(self, connection: Connection) -> list[Transaction]:
        """What the table shows of the job, but what was accepted as being of another line."""
        query = (
            "select attempt_id, epoch, task, operator from {} where target = %s and job = %s and not superseded "
            "order by epoch"
        )
        rows: list[Any] = self._run(connection, query, (self.table.title, self._job)).fetchall()
        return [Transaction(*row) for row in rows]

    def supersede(self, connection: Connection, parts: Iterable[Transaction]) -> None:
        """Mark parts as accepted although they are not part of the history. Their rows stay in the table."""
        query = "update {} set superseded = true where attempt_id = %s and epoch = %s and task = %s and operator = %s"
        for part in parts:
            self._run(connection, query, _key(part))

    def forget_below(self, connection: Connection, epoch: int) -> None:
        """Delete markers below an epoch, except the newest per attempt and task, which stands for all older ones."""
        query = (
            "delete from {0} old where target = %s and job = %s and exists (select 1 from {0} newer "
            "where newer.attempt_id = old.attempt_id and newer.operator = old.operator and newer.task = old.task "
            "and newer.epoch > old.epoch and newer.epoch < %s)"
        )
        self._run(connection, query, (self.table.title, self._job, epoch))

    def has_reached(self, connection: Connection, epoch: EpochId) -> bool:
        """Tell whether all rows of an epoch, or of a later epoch of its attempt, are committed, on any branch."""
        query = (
            "select 1 from {} where target = %s and job = %s and attempt_id = %s and epoch >= %s and task = %s limit 1"
        )
        values = (self.table.title, self._job, epoch.attempt_id, epoch.number, WHOLE)
        return self._run(connection, query, values).fetchone() is not None

    def unfinished(self, connection: Connection) -> frozenset[EpochId]:
        """Return the epochs of parts that are committed, above the newest marker of a delivery of their attempt."""
        query = (
            "select distinct attempt_id, epoch from {0} part where target = %s and job = %s and task <> %s and "
            "not exists (select 1 from {0} whole where whole.target = part.target and whole.job = part.job "
            "and whole.task = %s and whole.attempt_id = part.attempt_id and whole.epoch >= part.epoch)"
        )
        rows: list[Any] = self._run(connection, query, (self.table.title, self._job, WHOLE, WHOLE)).fetchall()
        return frozenset(EpochId(*row) for row in rows)

    def _run(self, connection: Connection, query: str, values: tuple[object, ...]) -> Any:
        from psycopg import sql

        return connection.execute(sql.SQL(query).format(self._name), values)


def replaced(epochs: Epochs, connection: Connection) -> str | None:
    """Return how the table of a sink lost its rows, as a message goes on; None if it did not."""
    if not epochs.is_replaced(connection):
        return None
    return f"{epochs.table.title} was dropped and created again: the rows that the sink had committed are missing"


def copy_rows(connection: Connection, into: sql.Composable, columns: Sequence[str], file: IO[bytes]) -> None:
    """Copy rows of CSV into a table; `file` stands behind its line of names. Raises psycopg.Error."""
    from psycopg import sql

    prepare(connection)
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    copying = sql.SQL("copy {} ({}) from stdin (format csv)").format(into, names)
    with connection.cursor() as cursor, cursor.copy(copying) as copy:
        while piece := file.read(PIECE):
            copy.write(piece)


def columns_of(file: IO[bytes]) -> list[str]:
    """The names in the first line of CSV, which is read."""
    file.seek(0)
    return next(csv.reader(io.StringIO(file.readline().decode())))


def target(table: Table) -> sql.Composable:
    """The sink's table, quoted."""
    return identifier(table, table.name)


def prepared(connection: Connection) -> dict[str, Transaction]:
    """The transactions of abs that wait in this database, by their names."""
    query = "select gid from pg_prepared_xacts where database = current_database() and gid like 'abs-%'"
    gids = [str(gid) for (gid,) in connection.execute(query).fetchall()]
    return {gid: part for gid in gids if (part := transaction_of(gid)) is not None}


def end(connection: Connection, verb: str, gid: str) -> None:
    """Commit a prepared transaction or roll it back; do nothing if it does not exist any more."""
    import psycopg
    from psycopg import sql

    with contextlib.suppress(psycopg.errors.UndefinedObject):
        connection.execute(sql.SQL(f"{verb} prepared {{}}").format(sql.Literal(gid)))


def prepared_at(connection: Connection, gid: str) -> float:
    """When a transaction was prepared, in seconds since 1970."""
    query = "select extract(epoch from prepared)::float8 from pg_prepared_xacts where gid = %s"
    row: Any = connection.execute(query, (gid,)).fetchone()
    return float(row[0]) if row is not None else 0.0


def lock(connection: Connection, table: Table, job: str) -> bool:
    """Keep other jobs of this name from the table while the connection lasts; False where one has it."""
    name = f"abs:{job}:{table.title}"
    return connection.execute("select pg_try_advisory_lock(hashtextextended(%s, 0))", (name,)).fetchone() == (True,)


@contextlib.contextmanager
def holding(connection: Connection, table: Table, job: str) -> Iterator[bool]:
    """Keep jobs from the table meanwhile; False where one has it."""
    is_held = lock(connection, table, job)
    try:
        yield is_held
    finally:
        if is_held:
            connection.execute("select pg_advisory_unlock_all()")


def _key(part: Transaction) -> tuple[object, ...]:
    return part.attempt_id, part.epoch, part.task, part.operator
