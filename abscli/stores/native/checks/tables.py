"""PostgreSQL tables: the rows that complete epochs name are committed or prepared, and no transaction is left over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from abscli.engine.errors import EngineError
from abscli.engine.postgres.database import Table
from abscli.engine.sinks.gaps import Gap
from abscli.engine.sinks.postgres.epochs import Epochs, prepared, replaced
from abscli.engine.sinks.postgres.tables import gap_of
from abscli.engine.sinks.promises import read_promises
from abscli.planner.lineage import by_number, line
from abscli.report.findings import Code, Finding, SinkVerdict
from abscli.stores.native.checks.named_parts import NamedOutput, NamedPart, SinkFindings, Way
from abscli.stores.native.prepared import SECONDS, TableSink, left_transactions
from abscli.stores.native.targets import Targets
from formats.errors import FormatError
from formats.job.model import Operator
from formats.native.transactions import transaction_of

if TYPE_CHECKING:
    from abscli.engine.postgres.database import Connection


def check_table(output: NamedOutput, id: str, sink: Operator, targets: Targets) -> SinkFindings:
    """Check the table that a sink of the job file writes in transactions. id: of the sink in the newest epoch."""
    written = TableSink.of(sink, targets)
    table = written.table
    named = [part for part in output.by_sink.get(id, ()) if part.way is Way.PREPARED]
    try:
        missing = _missing(table, output.store.job, named) if named else []
        if output.at_rest and not missing:
            missing = _lost(output, written)
        left = tuple(_left(output, written)) if output.at_rest else ()
    except (FormatError, EngineError) as error:
        reason = error.message
        epochs = sorted({part.epoch for part in named})
        return SinkFindings(
            unchecked=[(epoch, Code.SINK_PART_MISSING, reason) for epoch in epochs],
            unasked=(SinkVerdict.UNKNOWN, reason),
        )
    return SinkFindings(of_epochs=missing, history=by_number(output.lives), of_store=left)


def _missing(table: Table, job: str, named: Sequence[NamedPart]) -> list[tuple[int, Finding]]:
    with_epochs = Epochs(table, job)
    gids = [(gid, transaction_of(gid)) for part in named if (gid := part.file.prepared) is not None]

    def there(connection: Connection) -> set[str]:
        waiting = set(prepared(connection))
        if not with_epochs.is_there(connection):
            return waiting
        shown = {gid for gid, part in gids if part is not None and with_epochs.has(connection, part)}
        return waiting | shown

    present = table.ask(there, seconds=SECONDS)
    return [
        (part.epoch, Finding(Code.SINK_PART_MISSING, part.task, None, f"postgres:{table.title}/{part.file.prepared}",
                             f"{part.file.rows} rows are neither committed nor prepared"))
        for part in named
        if part.file.prepared not in present
    ]  # fmt: skip


def _lost(output: NamedOutput, sink: TableSink) -> list[tuple[int, Finding]]:
    """Report rows that the table lacks and that no kept epoch names."""
    store, table = output.store, sink.table
    promises = read_promises(store)
    newest = line(promises.lives, promises.parts)[:1]
    if not newest:
        return []
    epochs = Epochs(table, store.job)
    operators = {op.id for op in store.topology(newest[0]).operators}
    id = next((id for id in sink.ids if id in operators), table.operator)

    def gap(connection: Connection) -> Gap | str | None:
        if (problem := replaced(epochs, connection)) is not None:
            return problem
        is_there = epochs.is_there(connection)
        shown, left = (epochs.shown(connection), epochs.left(connection)) if is_there else ([], [])
        return gap_of(promises, newest[0], id, table, shown, left)

    found = table.ask(gap, seconds=SECONDS)
    if found is None:
        return []
    message = found if isinstance(found, str) else f"the table lacks {found}"
    return [(newest[0], Finding(Code.SINK_PART_MISSING, None, None, f"postgres:{table.title}", message))]


def _left(output: NamedOutput, sink: TableSink) -> Iterator[Finding]:
    """Report prepared transactions that nobody will finish."""
    message = "a prepared transaction that no epoch names: the attempt that prepared it has ended"
    for transaction in left_transactions(output.store, [sink]):
        yield Finding(Code.ABANDONED_TRANSACTION, None, None, transaction.uri, message)
