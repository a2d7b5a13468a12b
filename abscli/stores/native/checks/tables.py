"""Output in tables: what complete epochs name is committed, or prepared to be; and nothing is prepared for nobody."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from abscli.engine.errors import EngineError
from abscli.engine.postgres.database import Table
from abscli.engine.sinks.postgres.epochs import Epochs, prepared
from abscli.report.findings import Code, Finding
from abscli.stores.native.prepared import SECONDS, left_transactions, tables_of
from formats.errors import FormatError
from formats.ids import TaskId
from formats.native.facts import SinkFile
from formats.native.store import NativeStore
from formats.native.transactions import transaction_of

if TYPE_CHECKING:
    from abscli.engine.postgres.database import Connection

Due = tuple[int, TaskId, SinkFile]
"""An epoch, and a part in a transaction that it names."""


def check_tables(store: NativeStore, due: Mapping[str, list[Due]]) -> Iterator[tuple[int, Finding] | tuple[int, str]]:
    """What is wrong with epochs' output, and for each epoch whose output cannot be looked for, why. due: by sink."""
    try:
        tables = tables_of(store)
    except FormatError as error:
        yield from _unknown(due, f"which tables sinks write is not known: {error}")
        return
    for operator, parts in due.items():
        if operator not in tables:
            yield from _unknown({operator: parts}, f"sink {operator} writes to no table any more")
            continue
        try:
            findings = _missing(tables[operator], store.job, parts)
        except EngineError as error:
            yield from _unknown({operator: parts}, error.message)
        else:
            yield from findings


def _missing(table: Table, job: str, due: list[Due]) -> list[tuple[int, Finding]]:
    with_epochs = Epochs(table, job)
    gids = [(file, transaction_of(file.prepared or "")) for _, _, file in due]

    def there(connection: Connection) -> set[str]:
        waiting = set(prepared(connection))
        if not with_epochs.is_there(connection):
            return waiting
        shown = {part.gid for _, part in gids if part is not None and with_epochs.has(connection, part)}
        return waiting | shown

    present = table.ask(there, seconds=SECONDS)
    return [
        (epoch, Finding(Code.SINK_PART_MISSING, task, None, f"postgres:{table.title}/{file.prepared}",
                        f"{file.rows} rows are neither committed nor prepared"))
        for epoch, task, file in due
        if file.prepared not in present
    ]  # fmt: skip


def _unknown(due: Mapping[str, list[Due]], reason: str) -> Iterator[tuple[int, str]]:
    for epoch in sorted({epoch for parts in due.values() for epoch, _, _ in parts}):
        yield epoch, reason


def transactions_left(store: NativeStore) -> Iterator[Finding]:
    """Transactions that nobody will finish; none where it is not known which may be."""
    message = "a prepared transaction that no epoch names: the attempt that prepared it has ended"
    try:
        left = left_transactions(store)
    except (FormatError, EngineError):
        return
    for one in left:
        yield Finding(Code.TRANSACTION_LEFT, None, None, one.uri, message)
