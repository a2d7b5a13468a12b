"""Prepared transactions that nobody will finish: their attempts ended before a manifest named them.

A prepared transaction outlives its session, holds its locks and keeps the server from cleaning up. Only transactions
are judged that attempts of this store have prepared, for epochs whose outcome this store knows, and only while no job
holds the table: a manifest may yet name any other. The databases are those of the job file that the user names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from abscli.engine.postgres.database import Table
from abscli.engine.sinks.postgres.epochs import end, holding, prepared, prepared_at
from abscli.stores.native.targets import Targets
from formats.job.model import Operator
from formats.job.promises import prepares_rows
from formats.native.store import NativeStore

if TYPE_CHECKING:
    from abscli.engine.postgres.database import Connection

SECONDS = 5.0
"""How long a database that does not answer is waited for."""
SCHEME = "postgres:"


class LeftTransaction(NamedTuple):
    """A transaction that nobody will finish. table: of its sink; begun: when it was prepared, seconds since 1970."""

    table: str
    gid: str
    begun: float

    @property
    def uri(self) -> str:
        """What messages call it."""
        return f"{SCHEME}{self.table}/{self.gid}"


class TableSink(NamedTuple):
    """A table that a sink of the job file writes in transactions. ids: that the sink has had in the store."""

    table: Table
    ids: Sequence[str]

    @classmethod
    def all_of(cls, targets: Targets) -> list[TableSink]:
        """Return the tables of all sinks of the job file that write in transactions."""
        return [cls.of(sink, targets) for sink in targets.sinks.values() if prepares_rows(sink)]

    @classmethod
    def of(cls, sink: Operator, targets: Targets) -> TableSink:
        """Return the table of one sink of the job file."""
        return cls(Table.of(sink), targets.ids_of(sink))


def left_transactions(store: NativeStore, sinks: Iterable[TableSink]) -> list[LeftTransaction]:
    """List the prepared transactions in the databases of these tables that nobody will finish.

    No job may run on the store. Raises FormatError, UsageError and EngineStopped if that cannot be known.
    """
    return [left for sink in sinks for left in _left_in(store, sink, going=())]


def roll_back(store: NativeStore, sinks: Iterable[TableSink], uris: Collection[str]) -> None:
    """Roll back those of these transactions that still nobody will finish. uris: as of `LeftTransaction.uri`."""
    for sink in sinks if uris else ():
        _left_in(store, sink, going=uris)


def _left_in(store: NativeStore, sink: TableSink, going: Collection[str]) -> list[LeftTransaction]:
    """going: those to roll back."""
    attempts = {attempt.id for attempt in store.attempts()}
    complete = filter(store.has_manifest, store.epoch_numbers())
    named = {file.prepared for epoch in complete for part in store.parts(epoch) for file in part.sink}
    highest = store.highest_number()
    table = sink.table

    def look(connection: Connection) -> Iterator[LeftTransaction]:
        with holding(connection, table, store.job) as is_held:
            # A copy of the store may run on: what it has prepared is its own.
            for gid, part in prepared(connection).items() if is_held else ():
                is_ours = part.operator in sink.ids and part.attempt_id in attempts and part.epoch <= highest
                if is_ours and gid not in named:
                    left = LeftTransaction(table.title, gid, prepared_at(connection, gid))
                    if left.uri in going:
                        end(connection, "rollback", gid)
                    yield left

    return table.ask(lambda connection: list(look(connection)), seconds=SECONDS)
