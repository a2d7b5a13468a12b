"""A sink's task that writes to a table in two phases: a transaction a task and epoch, prepared when the epoch is cut
and committed by the driver once a manifest names it."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable
from typing import IO, TYPE_CHECKING

import msgspec

from abscli.engine.postgres.database import Table
from abscli.engine.sinks.part_files import PartFile
from abscli.engine.sinks.postgres.epochs import LOCK_TIMEOUT, Epochs, columns_of, copy_rows, end, prepared, target
from abscli.engine.sinks.postgres.values import ColumnCheck, CopyPart
from abscli.engine.sinks.staged.refusals import first_line, rows_refused
from abscli.engine.sinks.staging import StagingSink
from formats.job.model import Operator
from formats.native.facts import SinkFile
from formats.native.sink import epoch_of_part
from formats.native.transactions import Transaction
from formats.scratch import scratch
from formats.storage.pieces import WHOLE

if TYPE_CHECKING:
    from abscli.engine.postgres.database import Connection



class PostgresSink(StagingSink):
    """Rows wait as CSV in memory, many on this machine's disk, until their epoch is cut: so a transaction is open only
    while it is filled."""

    def __init__(
        self, operator: Operator, index: int, attempt: str, may_show: Callable[[], None] = lambda: None, *, job: str
    ) -> None:
        self._table = Table.of(operator)
        super().__init__(operator, index, attempt, may_show, path=self._table.place, type="csv")
        self._epochs = Epochs(self._table, job)
        self._incarnation = secrets.token_hex(4)
        self._columns = ColumnCheck(self._table)

    def _new_part(self, file: IO[bytes]) -> PartFile:
        return CopyPart(file, self._name_of(file), self._name, check=self._columns)

    def _begin(self) -> IO[bytes]:
        return tempfile.SpooledTemporaryFile(WHOLE, dir=scratch())

    def _put(self, file: IO[bytes], part: SinkFile) -> SinkFile:
        import psycopg

        transaction = Transaction(self._attempt, epoch_of_part(part.name), self._index, self._table.operator)
        try:
            with file:
                self._table.ask(lambda connection: self._prepare(connection, file, part, transaction))
        except psycopg.Error as error:
            raise rows_refused(self._table.operator, self._table.title, first_line(error)) from None
        return msgspec.structs.replace(part, prepared=transaction.gid(self._incarnation))

    def _prepare(self, connection: Connection, file: IO[bytes], part: SinkFile, transaction: Transaction) -> None:
        from psycopg import sql

        # A worker has no successor while its lease is valid. The lease is checked after the transactions are listed,
        # and before each try, which may follow an outage: so a failed worker never rolls back its successor's.
        waiting = prepared(connection)
        self._may_show()
        gid = transaction.gid(self._incarnation)
        if gid in waiting:  # the answer of an earlier try was lost with its connection
            return
        # A transaction that a failed process prepared may have other rows, and it holds the key of the part in the
        # table of epochs. No manifest names it: otherwise this task would not replay the epoch.
        for other in [name for name, whose in waiting.items() if whose == transaction]:
            end(connection, "rollback", other)
        columns = columns_of(file)
        connection.execute("begin")
        connection.execute(f"set local lock_timeout = '{LOCK_TIMEOUT}'")
        copy_rows(connection, target(self._table), columns, file)
        self._epochs.note(connection, transaction, part.rows, part.sha256)
        connection.execute(sql.SQL("prepare transaction {}").format(sql.Literal(gid)))

    def _drop(self, file: IO[bytes]) -> None:
        file.close()

    def _name_of(self, file: IO[bytes]) -> str:
        return f"{scratch()}/(rows of a sink)"
