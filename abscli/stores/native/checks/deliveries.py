"""Rows that epochs of the job's history name, and that the target of their sink does not have, or not yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from abscli.engine.errors import EngineError
from abscli.engine.postgres.database import Table
from abscli.engine.sinks.delivered.deliveries import deliveries_of, matches_target, shown_by, still_due
from abscli.engine.sinks.delivered.targets import target_of
from abscli.engine.sinks.gaps import find_gap, records_of
from abscli.engine.sinks.promises import Promises, read_promises
from abscli.engine.sinks.staged.contract import Delivery, StagedPart, Target
from abscli.planner.lineage import is_on, line, stretches
from abscli.report.findings import Code, Finding, SinkVerdict
from abscli.stores.native.checks.named_parts import NamedOutput, SinkFindings
from abscli.stores.native.prepared import TableSink, left_transactions
from abscli.stores.native.targets import Targets
from formats.errors import FormatError
from formats.ids import TaskId
from formats.job.model import Operator
from formats.job.promises import prepares_rows
from formats.native.store import NativeStore


def check_deliveries(output: NamedOutput, sink: Operator, targets: Targets) -> SinkFindings:
    """Compare what the target of a sink has with what the newest epoch of the history and those before it name.

    A running job delivers an epoch right after its manifest: then, and for a single epoch, nothing is compared.
    """
    if not output.at_rest:
        reason = "delivered rows are compared for a whole store on which no job runs"
        return SinkFindings(unasked=(SinkVerdict.UNCHECKED, reason))
    store, ids = output.store, targets.ids_of(sink)
    try:
        promises = read_promises(store)
        target = target_of(sink, store.job, targets.directory, ids)
        newest = line(promises.lives, promises.parts)[:1]
        if not newest:
            return SinkFindings()
        return _compare(store, promises, _Asked(sink, target, ids, targets.directory, newest[0]))
    except (FormatError, EngineError) as error:
        return SinkFindings(unasked=(SinkVerdict.UNKNOWN, error.message))


@dataclass(frozen=True, slots=True)
class _Asked:
    """A target and the epoch to compare it with.

    ids: of the sink, as of `ids_of`.
    directory: of the job file.
    """

    sink: Operator
    target: Target
    ids: Sequence[str]
    directory: str
    epoch: int


def _compare(store: NativeStore, promises: Promises, asked: _Asked) -> SinkFindings:
    """Report the rows that a target does not have: pending if they are staged, else missing."""
    target, epoch = asked.target, asked.epoch
    operators = {op.id for op in store.topology(epoch).operators}
    id = next((id for id in asked.ids if id in operators), target.operator)
    history = stretches(promises.lives, epoch)
    shown = shown_by(target, store.storage, asked.ids)
    has_shown = target.remembers and any(is_on(history, one) for one in shown)
    is_own = matches_target(asked.sink, asked.directory, promises.committed.get(epoch, ()), id, has_shown)
    every = deliveries_of(store.storage, promises, epoch, id)
    named = [one for one in every if is_own(one.directory)]
    foreign = [one for one in every if one.epoch.number == epoch and one not in named]
    reasons = [f"sink {id} wrote to {one.directory} then, and the job file names another target" for one in foreign]
    elsewhere = [(epoch, Code.SINK_PART_PENDING, reason) for reason in reasons]
    due = still_due(target, named, shown, history)
    lost = [(one.epoch.number, _lost(target, part)) for one in due for part in target.lost(one)
            if part.file.prepared is not None]  # fmt: skip
    if target.remembers and not lost:
        records = records_of(promises, epoch, id, is_own)
        oldest_due = due[0].epoch.number if due else None
        gap = find_gap(records, epoch, oldest_due, history, shown, target.has)
        if gap is not None:
            lost = [(epoch, Finding(Code.SINK_PART_MISSING, None, None, target.title, f"the target lacks {gap}"))]
    abandoned = _abandoned(store, TableSink(Table.of(asked.sink), asked.ids)) if prepares_rows(asked.sink) else ()
    return SinkFindings(
        of_epochs=lost, history=history, of_store=(*_waiting(target, due), *abandoned), unchecked=elsewhere
    )


def _waiting(target: Target, due: Sequence[Delivery]) -> Iterator[Finding]:
    for delivery in due:
        lost = target.lost(delivery)
        for part in delivery.parts:
            if part.file.prepared is None or part not in lost:
                message = f"{part.file.rows} rows of epoch {delivery.epoch.number} are not in {target.title} yet"
                yield Finding(Code.SINK_PART_PENDING, _task_of(target, part), None, _place_of(target, part), message)


def _lost(target: Target, part: StagedPart) -> Finding:
    """Report rows that were staged in the target and are gone. Files that the store lacks are reported by its check."""
    message = f"{part.file.rows} rows are neither committed nor prepared"
    return Finding(Code.SINK_PART_MISSING, _task_of(target, part), None, _place_of(target, part), message)


def _abandoned(store: NativeStore, sink: TableSink) -> Iterator[Finding]:
    """Report prepared transactions that nobody will finish."""
    message = "a prepared transaction that no epoch names: the attempt that prepared it has ended"
    for transaction in left_transactions(store, [sink]):
        yield Finding(Code.ABANDONED_TRANSACTION, None, None, transaction.uri, message)


def _task_of(target: Target, part: StagedPart) -> TaskId:
    return TaskId(target.operator, part.id.task)


def _place_of(target: Target, part: StagedPart) -> str | None:
    """Return where rows wait: a file of the store, or a transaction of the target's database."""
    return part.file.staged or f"postgres:{target.title}/{part.file.prepared}"
