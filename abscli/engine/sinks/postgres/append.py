"""A table to which rows are appended: workers prepare a transaction per part, and the driver commits it after the
manifest.

Rows are staged in the table's own database, since a second copy of them through the driver takes twice the time: so
publishing them is one statement. A transaction also writes its commit marker. The marker of the delivery comes last: an
older copy of the database may have some parts of it. Transactions that no manifest can name any more are rolled back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import IO, TYPE_CHECKING

from abscli.engine.sinks.postgres.epochs import end, prepared
from abscli.engine.sinks.postgres.table import PostgresTable
from abscli.engine.sinks.staged.contract import Delivery, StagedPart, StagedPartName
from abscli.engine.sinks.staged.refusals import rows_lost, taken_over

if TYPE_CHECKING:
    from abscli.engine.postgres.database import Connection


class AppendedTable(PostgresTable):
    """See `Target`."""

    def try_rows(self, rows: IO[bytes]) -> None:
        """Do nothing: a transaction that is prepared contains the rows."""

    def lost(self, delivery: Delivery) -> list[StagedPart]:
        """Return the parts that are neither prepared nor committed."""

        def lost(connection: Connection) -> list[StagedPart]:
            waiting, has_markers = prepared(connection), self._has_markers(connection)
            return [
                part for part in delivery.parts
                if part.file.prepared not in waiting and not (has_markers and self._epochs.has(connection, part.id))
            ]  # fmt: skip

        return self._table.ask(lost, seconds=10)

    def discard(self, goes: Callable[[StagedPartName], bool]) -> None:
        """Roll back prepared transactions of this sink."""

        def roll_back(connection: Connection) -> None:
            for gid, part in prepared(connection).items():
                if part.operator == self.operator and goes(StagedPartName(part, gid)):
                    end(connection, "rollback", gid)

        self._holding.within(roll_back)

    def publish(self, delivery: Delivery) -> None:
        """Commit the transactions of a delivery that are still prepared; see `Target.publish`.

        Raises Damaged if one is neither prepared nor committed.
        """

        def commit(connection: Connection) -> None:
            if not self._epochs.is_claimed_by(connection, self._attempt_id):
                raise taken_over(self.operator, self.title)
            waiting = prepared(connection)
            for part in delivery.parts:
                if part.file.prepared in waiting:
                    end(connection, "commit", part.file.prepared)
                if not self._epochs.has(connection, part.id):
                    raise rows_lost(self.operator, self.title, delivery.epoch.number, part.file)
            self._epochs.note_delivery(connection, delivery)

        self._holding.within(commit)
