"""Prepared transactions in databases that nobody will finish: what attempts had prepared that ended before a manifest
named it.

A prepared transaction outlives everybody, holds its locks and keeps the server from cleaning up. Those are judged that
attempts of this store have prepared, for epochs that this store knows the outcome of, and only while no job holds the
table: any other may be named by a manifest yet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple

from abscli.engine.postgres.database import Table
from abscli.engine.sinks.postgres.epochs import holding, prepared, prepared_at
from abscli.engine.sinks.postgres.tables import end
from formats.job.model import Kind
from formats.native.store import NativeStore

if TYPE_CHECKING:
    from abscli.engine.postgres.database import Connection

SECONDS = 5.0
"""How long a database that does not answer is waited for."""
SCHEME = "postgres:"


class LeftTransaction(NamedTuple):
    """One that nobody will finish. table: of its sink; begun: when it was prepared, seconds since 1970."""

    table: str
    gid: str
    begun: float

    @property
    def uri(self) -> str:
        """What messages call it."""
        return f"{SCHEME}{self.table}/{self.gid}"


def tables_of(store: NativeStore) -> dict[str, Table]:
    """The tables of the job's sinks, by operator, as its attempts had them, the newest last."""
    digests = [attempt.topology_sha256 for attempt in store.attempts()]
    return {
        op.id: Table.of(op)
        for digest in dict.fromkeys(digests)
        for op in store.topology_by_digest(digest).operators
        if op.kind is Kind.SINK and op.connector is not None and op.connector.get("type") == "postgres"
    }


def left_transactions(store: NativeStore) -> list[LeftTransaction]:
    """Those of all sinks of the store; no job may run on it. FormatError, UsageError and EngineStopped where that
    cannot be known."""
    return [left for table in tables_of(store).values() for left in _left_in(store, table, going=None)]


def give_up(store: NativeStore, uris: Collection[str]) -> None:
    """Roll back those of these that nobody will finish still, as `LeftTransaction.uri` names them."""
    for table in tables_of(store).values() if uris else ():
        _left_in(store, table, going=uris)


def _left_in(store: NativeStore, table: Table, going: Collection[str] | None) -> list[LeftTransaction]:
    """going: those to roll back."""
    attempts = {attempt.id for attempt in store.attempts()}
    complete = filter(store.has_manifest, store.epoch_numbers())
    named = {file.prepared for epoch in complete for part in store.parts(epoch) for file in part.sink}
    highest = store.highest_number()

    def look(connection: Connection) -> Iterator[LeftTransaction]:
        with holding(connection, table, store.job) as is_held:
            # A copy of the store may run on: what it has prepared is its own.
            for gid, part in prepared(connection).items() if is_held else ():
                is_ours = part.operator == table.operator and part.attempt_id in attempts and part.epoch <= highest
                if is_ours and gid not in named:
                    left = LeftTransaction(table.title, gid, prepared_at(connection, gid))
                    if going is not None and left.uri in going:
                        end(connection, "rollback", gid)
                    yield left

    return table.ask(lambda connection: list(look(connection)), seconds=SECONDS)
