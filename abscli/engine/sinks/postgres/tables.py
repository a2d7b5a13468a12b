"""The driver's hand on the sinks of a job that write to tables: who may, what the tables show, and committing what is
prepared.

What a manifest of the line names is committed, again where it is not known whether it was; that it was says the table
of epochs. What no manifest names is rolled back once none can name it any more: when the epoch of its number has been
decided, by this attempt or before it. Rows that are committed cannot be taken back: so going back behind them is
refused, or an explicit choice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from abscli.engine.errors import UsageError
from abscli.engine.postgres.database import Table
from abscli.engine.sinks.delivered_epochs import DeliveredEpochs
from abscli.engine.sinks.gaps import Gap, find_gap, records_of, rows_missing
from abscli.engine.sinks.permissions import Permissions
from abscli.engine.sinks.postgres.epochs import Epochs, end, prepared, replaced, target
from abscli.engine.sinks.postgres.holding import Holding
from abscli.engine.sinks.promises import Promises
from abscli.engine.sinks.staged.refusals import foreign_commits
from abscli.planner.lineage import is_on, stretches
from formats.errors import Damaged
from formats.ids import EpochId
from formats.job.model import Operator
from formats.native.facts import AttemptFacts, PartFacts, SinkFile
from formats.native.sink import Stretch
from formats.native.store import NativeStore
from formats.native.transactions import Transaction, transaction_of

if TYPE_CHECKING:
    from abscli.engine.postgres.database import Connection


@dataclass(frozen=True, slots=True)
class TableExamined:
    """A sink's table as an attempt found it.

    title: what messages call it.
    due: what manifests of the line name.
    named: what any manifest of the store names, by transaction's name.
    beyond: what the table shows that is not of the line.
    back: what was left behind, and is of the line again.
    """

    operator: str
    title: str
    due: Mapping[str, SinkFile]
    named: frozenset[str]
    beyond: tuple[Transaction, ...]
    back: tuple[Transaction, ...]


class _Hold:
    """A table, and what holds it."""

    def __init__(self, table: Table, job: str) -> None:
        self.table = table
        self.epochs = Epochs(table, job)
        self.holding = Holding(table, job)
        self.attempt_id = ""


class Tables:
    """The tables of one attempt to which workers append in prepared transactions. job: its name."""

    def __init__(self, sinks: Sequence[Operator], job: str, permissions: Permissions) -> None:
        self._permissions = permissions
        self._delivered = DeliveredEpochs()
        tables = [Table.of(op) for op in sinks]
        self._holds = {table.operator: _Hold(table, job) for table in tables}

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Keep every other job of this name from these tables meanwhile; StoreInUse where one has them."""
        with contextlib.ExitStack() as stack:
            for hold in self._holds.values():
                stack.enter_context(hold.holding.hold())
            yield

    def examine(
        self, promises: Promises, parent: int, before: Mapping[str, str]
    ) -> list[TableExamined]:
        """What has to be done for every table, so that it shows what leads to epoch `parent`; nothing is changed.

        before: by sink, its id in that epoch, as far as it was there. UsageError for a table that is not there, or
        shows what is not of the line; Damaged where a part of the line is gone.
        """
        return [
            hold.table.ask(
                lambda connection, hold=hold: self._examine(  # type: ignore[misc]
                    connection, hold, promises, parent, before.get(hold.table.operator, hold.table.operator)
                ),
                seconds=10,
            )
            for hold in self._holds.values()
        ]

    def _examine(
        self, connection: Connection, hold: _Hold, promises: Promises, parent: int, origin: str
    ) -> TableExamined:
        import psycopg
        from psycopg import sql

        table = hold.table
        try:
            connection.execute(sql.SQL("select from {} limit 0").format(target(table)))
        except psycopg.errors.UndefinedTable:
            raise UsageError(
                f"sink {table.operator}: there is no table {table.title}",
                hint="create the table, with the same column names as the rows",
            ) from None
        if connection.execute("show max_prepared_transactions").fetchone() == ("0",):
            raise UsageError(
                f"sink {table.operator}: the database does not allow prepared transactions: "
                "max_prepared_transactions is 0",
                hint="set max_prepared_transactions to at least twice the sink's parallelism, and restart PostgreSQL",
            )
        due = {gid: file for gid, file in _due(promises, parent, origin).items() if file.directory == table.place}
        named = frozenset(file.prepared for parts in promises.parts.values() for by_id in parts.values()
                          for file in by_id.values() if file.prepared is not None)  # fmt: skip
        has_written = any(
            one.operator == origin and one.target == table.place for one in promises.committed.get(parent, ())
        )
        problem = replaced(hold.epochs, connection) if has_written else None
        if problem is not None and not self._permissions.take_ownership:
            raise UsageError(
                f"sink {table.operator}: {problem}",
                hint="restore the table from a backup; or use --take-ownership to resume without these rows",
            )
        if not hold.epochs.is_there(connection):
            shown: list[Transaction] = []
            left: list[Transaction] = []
        else:
            shown, left = hold.epochs.shown(connection), hold.epochs.left(connection)
        line: Sequence[Stretch] = stretches(promises.lives, parent) if parent else ()
        if not self._permissions.accept_missing:
            gap = gap_of(promises, parent, origin, table, shown, left)
            if gap is not None:
                raise rows_missing(table.operator, table.title, gap)
        parts_due = {transaction_of(gid) for gid in due}
        beyond = tuple(part for part in shown if part not in parts_due and not is_on(line, part.made_for))
        if beyond and not self._permissions.take_ownership:
            raise foreign_commits(table.operator, table.title, max(part.epoch for part in beyond))
        waiting, seen = prepared(connection), _newest_of_each_task([*shown, *left])
        lost = [gid for gid in due if gid not in waiting and not _is_seen(transaction_of(gid), seen)]
        if lost and not self._permissions.accept_missing:
            raise _transaction_missing(table, due[lost[0]], lost[0])
        back = tuple(part for part in left if part in parts_due)
        return TableExamined(table.operator, table.title, due, named, beyond, back)

    def take(self, examined: Sequence[TableExamined], store: NativeStore, attempt: AttemptFacts) -> None:
        """Make every table show exactly what belongs to the attempt's parent, as far as it can."""
        older = {life.id for life in store.attempts() if life.attempt < attempt.attempt}
        oldest = min(store.epoch_numbers(), default=0)
        for one in examined:
            hold = self._holds[one.operator]
            hold.attempt_id = attempt.id
            hold.table.ask(hold.epochs.create)
            hold.table.ask(lambda connection, hold=hold: hold.epochs.claim(connection, attempt.id))  # type: ignore[misc]
            hold.table.ask(lambda connection, hold=hold, one=one: hold.epochs.supersede(connection, one.beyond))  # type: ignore[misc]
            hold.table.ask(
                lambda connection, hold=hold, one=one: hold.epochs.supersede(connection, one.back, superseded=False)  # type: ignore[misc]
            )
            self._commit(hold, one.due)

            def undecided(gid: str, part: Transaction, one: TableExamined = one) -> bool:
                # A copy of the store may have gone on further: what it has prepared there has higher numbers.
                return part.attempt_id not in older or part.epoch >= attempt.first_epoch or gid in one.named

            self._roll_back(hold, lambda gid, part: not undecided(gid, part))
            hold.table.ask(lambda connection, hold=hold: hold.epochs.forget_below(connection, oldest))  # type: ignore[misc]

    def reveal(self, parts: Sequence[PartFacts]) -> None:
        """The manifest that names these parts is written: they are committed. Again is no harm.

        EngineStopped where the database does not answer, or another job has the table; Damaged where a part is gone.
        """
        epoch = max((part.epoch for part in parts), default=0)
        for operator, hold in self._holds.items():
            files = [file for part in parts if part.operator == operator for file in part.sink]
            due = {file.prepared: file for file in files if file.prepared is not None}
            hold.holding.keep()
            self._commit(hold, due)

            def is_lost(gid: str, part: Transaction, hold: _Hold = hold) -> bool:
                # Of a task that was lost since, and has made the rows again.
                return part.attempt_id == hold.attempt_id and part.epoch <= epoch

            self._roll_back(hold, is_lost)

    def _commit(self, hold: _Hold, due: Mapping[str, SinkFile]) -> None:
        def commit(connection: Connection) -> None:
            operator, title = hold.table.operator, hold.table.title
            is_replaced = hold.epochs.is_replaced(connection)
            self._delivered.check(
                operator, title, lambda epoch: not is_replaced and hold.epochs.has_reached(connection, epoch)
            )
            waiting = prepared(connection)
            for gid in sorted(due):
                if gid in waiting:
                    end(connection, "commit", gid)
                part = transaction_of(gid)
                if part is None:
                    continue
                if hold.epochs.has(connection, part):
                    newest = self._delivered.newest(operator) or part.made_for
                    self._delivered.note(operator, max(newest, part.made_for, key=lambda epoch: epoch.number))
                elif not self._permissions.accept_missing:
                    raise _transaction_missing(hold.table, due[gid], gid)

        if due:
            hold.table.ask(commit)

    def _roll_back(self, hold: _Hold, goes: Callable[[str, Transaction], bool]) -> None:
        def roll_back(connection: Connection) -> None:
            for gid, part in prepared(connection).items():
                if part.operator == hold.table.operator and goes(gid, part):
                    end(connection, "rollback", gid)

        hold.table.ask(roll_back)


def gap_of(
    promises: Promises,
    parent: int,
    operator: str,
    table: Table,
    shown: Sequence[Transaction],
    left: Sequence[Transaction],
) -> Gap | None:
    """Find rows that a table must have and that no kept manifest names.

    operator: the sink's id in the epoch `parent`.
    shown, left: the markers of the table, see `Epochs.shown` and `Epochs.left`.
    """
    records = records_of(promises, parent, operator, lambda name: name == table.place)
    cut = [part.epoch for gid in _due(promises, parent, operator) if (part := transaction_of(gid)) is not None]
    oldest = min((epoch for epoch in records if cut and epoch >= min(cut)), default=None)
    marks = [part.made_for for part in (*shown, *left)]

    def has(epoch: EpochId) -> bool:
        return any(mark.attempt_id == epoch.attempt_id and mark.number >= epoch.number for mark in marks)

    line = stretches(promises.lives, parent) if parent else ()
    return find_gap(records, parent, oldest, line, [part.made_for for part in shown], has)


def _newest_of_each_task(parts: Sequence[Transaction]) -> dict[Transaction, int]:
    """Return the newest epoch of each task of each attempt. A table that has this part has all older parts of the task.

    Keys: the task's transaction with epoch 0.
    """
    newest: dict[Transaction, int] = {}
    for part in parts:
        task = part._replace(epoch=0)
        newest[task] = max(part.epoch, newest.get(task, 0))
    return newest


def _is_seen(part: Transaction | None, newest: Mapping[Transaction, int]) -> bool:
    return part is not None and newest.get(part._replace(epoch=0), 0) >= part.epoch


def _due(promises: Promises, parent: int, operator: str) -> dict[str, SinkFile]:
    """What manifests of the line name of a sink, by transaction. operator: its id in the epoch `parent`."""
    due: dict[str, SinkFile] = {}
    epoch = parent
    while epoch in promises.parts:
        for file in promises.parts[epoch].get(operator, {}).values():
            if file.prepared is not None:
                due[file.prepared] = file
        operator = promises.origins.get(epoch, {}).get(operator, operator)
        epoch = promises.parents[epoch]
    return due


def _transaction_missing(table: Table, file: SinkFile, gid: str) -> Damaged:
    return Damaged(
        f"{file.rows} rows are missing: the transaction {gid} is neither prepared nor committed",
        path=table.title,
        hint="somebody rolled the transaction back in the database: use --from-epoch to resume from an epoch before "
        "it; or use --accept-missing-parts to resume without its rows",
    )
