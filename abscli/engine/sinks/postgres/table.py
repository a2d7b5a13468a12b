"""Lock, commit markers and ownership of a PostgreSQL table, for both modes of the sink."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import pyarrow as pa

from abscli.engine.postgres.database import Table
from abscli.engine.sinks.postgres import preconditions
from abscli.engine.sinks.postgres.epochs import Epochs, replaced
from abscli.engine.sinks.postgres.holding import Holding
from abscli.engine.sinks.staged.contract import Unmet
from formats.ids import EpochId

if TYPE_CHECKING:
    from abscli.engine.postgres.database import Connection


class PostgresTable:
    """The methods of `Target` that both modes share.

    job: the job's name.
    key: columns of a unique index, by which rows replace older rows; empty if rows are appended.
    """

    remembers = True

    def __init__(self, table: Table, job: str, key: tuple[str, ...] = ()) -> None:
        self.operator = table.operator
        self.title = table.title
        self._table = table
        self._epochs = Epochs(table, job)
        self._holding = Holding(table, job)
        self._key = key
        self._attempt_id = ""

    def hold(self) -> AbstractContextManager[None]:
        """Keep other jobs of this name from the target; see `Target.hold`."""
        return self._holding.hold()

    def unmet(self, columns: pa.Schema | None) -> list[Unmet]:
        """List what the table and its server lack; see `Target.unmet`."""
        return preconditions.unmet(self._table, self._key, columns)

    def markers(self) -> list[EpochId]:
        """Return the epochs of the commit markers; see `Target.markers`."""

        def shown(connection: Connection) -> list[EpochId]:
            parts = self._epochs.shown(connection) if self._has_markers(connection) else []
            return list(dict.fromkeys(part.made_for for part in parts))

        return self._table.ask(shown, seconds=10)

    def unfinished(self) -> frozenset[EpochId]:
        """Return the epochs of which not all parts are committed; see `Target.unfinished`."""
        return self._table.ask(
            lambda connection: self._epochs.unfinished(connection) if self._has_markers(connection) else frozenset(),
            seconds=10,
        )

    def has(self, epoch: EpochId) -> bool:
        """Tell whether rows up to an epoch are committed; see `Target.has`."""

        def has(connection: Connection) -> bool:
            return self._has_markers(connection) and self._epochs.has_reached(connection, epoch)

        if self._attempt_id:  # whoever writes waits for the database
            return self._holding.within(has)
        return self._table.ask(has, seconds=10)

    def identity(self) -> str | None:
        """Return the object id of the table, which another table of this name does not have."""
        return self._table.ask(self._epochs.oid, seconds=10)

    def undone(self, identity: str | None) -> str | None:
        """Return how the table lost commits: it was dropped and created again."""
        if identity is None:
            return None
        return self._table.ask(lambda connection: replaced(self._epochs, connection), seconds=10)

    def _has_markers(self, connection: Connection) -> bool:
        """Tell whether the markers in the database speak of the table that is there now."""
        return self._epochs.is_there(connection) and not self._epochs.is_replaced(connection)

    def take(self, attempt_id: str, left: Collection[EpochId], oldest: int) -> None:
        """Make the target this attempt's; see `Target.take`."""
        self._attempt_id = attempt_id

        def take(connection: Connection) -> None:
            self._epochs.create(connection)
            if self._epochs.is_replaced(connection):
                self._epochs.forget_all(connection)
            self._epochs.claim(connection, attempt_id)
            parts = self._epochs.shown(connection)
            self._epochs.supersede(connection, [part for part in parts if part.made_for in left])
            self._epochs.forget_below(connection, oldest)

        self._holding.within(take)
