"""A table whose rows are replaced by key: one transaction writes what a manifest names, and its commit markers.

It runs on the connection by which the driver holds the table, and only while the attempt is the one that claimed the
table last. So a driver that was stopped, and continues after another attempt has taken the table, writes nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING

from abscli.engine.postgres.database import Table
from abscli.engine.sinks.postgres.epochs import LOCK_TIMEOUT, columns_of, copy_rows, target
from abscli.engine.sinks.postgres.table import PostgresTable
from abscli.engine.sinks.staged.contract import Delivery, StagedInStore
from abscli.engine.sinks.staged.refusals import first_line, rows_refused, rows_refused_late, taken_over

if TYPE_CHECKING:
    from psycopg import sql

    from abscli.engine.postgres.database import Connection

STAGE = "abs_rows"
TRIAL_LOCK_TIMEOUT = "200ms"
"""Shorter than `deadlock_timeout` of PostgreSQL (1 s): the trial gives way to a delivery."""
TRIAL_SECONDS = 10.0
"""For which a trial waits for the database."""
_HAS_RULES = """
    select relkind <> 'r' or relhastriggers or relhasrules or relrowsecurity
        or 1 < (select count(*) from pg_index where indrelid = pg_class.oid and (indisunique or indisexclusion))
    from pg_class where oid = to_regclass(%s)"""
"""Query: does a table have rules that a copy of its columns lacks (triggers, foreign keys, more unique indexes)?"""
ORDER = "abs_row_number"
"""A column of the rows while they are on their way: of several with one key the last one stays."""


class UpsertedTable(PostgresTable, StagedInStore):
    """See `Target`.

    key: columns of a unique index, by which rows replace older rows.
    job: the job's name.
    """

    def __init__(self, table: Table, key: Sequence[str], job: str) -> None:
        super().__init__(table, job, tuple(key))

    def publish(self, delivery: Delivery) -> None:
        """Write a delivery; see `Target.publish`."""
        import psycopg

        epoch = delivery.epoch.number
        try:
            self._holding.within(lambda connection: self._apply(connection, delivery))
        except psycopg.Error as error:
            raise rows_refused_late(self.operator, self.title, epoch, first_line(error)) from None

    def try_rows(self, rows: IO[bytes]) -> None:
        """Try rows in a transaction that is rolled back; see `Target.try_rows`."""
        import psycopg

        def attempt(connection: Connection) -> None:
            # Another transaction may have the rows: the delivery waits for it.
            gives_way = contextlib.suppress(psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)
            with gives_way, connection.transaction(force_rollback=True):
                connection.execute(f"set local lock_timeout = '{TRIAL_LOCK_TIMEOUT}'")
                name = target(self._table).as_string(connection)
                if connection.execute(_HAS_RULES, (name,)).fetchone() == (False,):
                    self._copy_only(connection, rows)
                else:
                    self._merge(connection, rows)
                    connection.execute("set constraints all immediate")

        try:
            self._table.ask(attempt, seconds=TRIAL_SECONDS)
        except psycopg.Error as error:
            raise rows_refused(self.operator, self.title, first_line(error)) from None

    def _copy_only(self, connection: Connection, rows: IO[bytes]) -> None:
        """Copy rows to a temporary table with the same columns, NOT NULL and CHECK constraints."""
        from psycopg import sql

        like = "create temporary table {} (like {} including constraints including defaults including generated)"
        connection.execute(sql.SQL(like).format(sql.Identifier(STAGE), target(self._table)))
        copy_rows(connection, sql.Identifier("pg_temp", STAGE), columns_of(rows), rows)

    def _apply(self, connection: Connection, delivery: Delivery) -> None:
        with connection.transaction():
            connection.execute(f"set local lock_timeout = '{LOCK_TIMEOUT}'")
            if not self._epochs.is_claimed_by(connection, self._attempt_id):
                raise taken_over(self.operator, self.title)
            if self._epochs.has(connection, delivery.parts[0].id):
                return
            for part in delivery.parts:
                self._epochs.note(connection, part.id, part.file.rows, part.file.sha256)
                with delivery.open(part) as file:
                    self._merge(connection, file)
            self._epochs.note_delivery(connection, delivery)

    def _merge(self, connection: Connection, file: IO[bytes]) -> None:
        from psycopg import sql

        columns = columns_of(file)
        stage, order = sql.Identifier("pg_temp", STAGE), sql.Identifier(ORDER)
        names, key, table = _names(columns), _names(self._key), target(self._table)
        create = sql.SQL("create temporary table {} on commit drop as select {} from {} limit 0")
        connection.execute(create.format(sql.Identifier(STAGE), names, table))
        connection.execute(sql.SQL("alter table {} add column {} bigserial").format(stage, order))
        copy_rows(connection, stage, columns, file)
        others = [name for name in columns if name not in self._key]
        sets = sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in others)
        action = sql.SQL("update set {}").format(sets) if others else sql.SQL("nothing")
        merge = sql.SQL(
            "insert into {table} ({names}) select {names} from "
            "(select distinct on ({key}) * from {stage} order by {key}, {order} desc) newest "
            "on conflict ({key}) do {action}"
        )
        connection.execute(
            merge.format(table=table, names=names, key=key, stage=stage, order=order, action=action)
        )
        connection.execute(sql.SQL("drop table {}").format(stage))


def _names(columns: Sequence[str]) -> sql.Composable:
    from psycopg import sql

    return sql.SQL(", ").join(map(sql.Identifier, columns))
