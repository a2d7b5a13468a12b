"""Rows that epochs of the job's history name, and that the target of their sink does not have, or not yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from abscli.engine.errors import EngineError
from abscli.engine.postgres.database import Table
from abscli.engine.sinks.delivered.asking import AskedTarget, ask_store, ask_target, how_undone
from abscli.engine.sinks.delivered.targets import target_of
from abscli.engine.sinks.promises import Promises, read_promises
from abscli.engine.sinks.staged.contract import Delivery, StagedPart, Target
from abscli.planner.lineage import line
from abscli.planner.target import compare
from abscli.report.findings import Code, Finding, SinkVerdict
from abscli.stores.native.checks.named_parts import NamedOutput, SinkFindings
from abscli.stores.native.prepared import TableSink, left_transactions
from abscli.stores.native.targets import Targets
from formats.errors import FormatError
from formats.ids import EpochId, TaskId
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
        operators = {op.id for op in store.topology(newest[0]).operators}
        id = next((id for id in ids if id in operators), target.operator)
        asked = AskedTarget(sink, target, store.storage, ids, id, targets.directory, newest[0])
        return _findings(store, asked, promises)
    except (FormatError, EngineError) as error:
        return SinkFindings(unasked=(SinkVerdict.UNKNOWN, error.message))


def _findings(store: NativeStore, asked: AskedTarget, promises: Promises) -> SinkFindings:
    """Report rows that a target lacks (pending if they are staged, else missing), and foreign rows."""
    target, epoch = asked.target, asked.epoch
    facts = ask_target(asked, how_undone(asked))
    history, others = ask_store(asked, promises, facts)
    found = compare(history, facts)
    elsewhere = [
        (epoch, Code.SINK_PART_PENDING,
         f"sink {asked.id} wrote to {one.directory} then, and the job file names another target")
        for one in others if one.epoch.number == epoch
    ]  # fmt: skip
    lost = [(one.epoch.number, _lost(target, part)) for one in found.due for part in target.lost(one)
            if part.file.prepared is not None and found.undone is None]  # fmt: skip
    problem = found.undone if found.gap is None else f"the target lacks {found.gap}"
    if problem is not None and not lost:
        lost = [(epoch, Finding(Code.SINK_PART_MISSING, None, None, target.title, problem))]
    abandoned = _abandoned(store, TableSink(Table.of(asked.sink), asked.ids)) if prepares_rows(asked.sink) else ()
    beyond = _foreign(target, found.foreign)
    return SinkFindings(
        of_epochs=lost, history=history.line, of_store=(*_waiting(target, found.due), *beyond, *abandoned),
        unchecked=elsewhere,
    )  # fmt: skip


def _foreign(target: Target, epochs: Sequence[EpochId]) -> Iterator[Finding]:
    """Report commits that are not part of the history."""
    for attempt in sorted({epoch.attempt_id for epoch in epochs}):
        numbers = [epoch.number for epoch in epochs if epoch.attempt_id == attempt]
        message = (
            f"rows up to epoch {max(numbers)} were committed by attempt {attempt[:8]}, which is not part of the history"
        )
        yield Finding(Code.UNREFERENCED_SINK_PART, None, None, target.title, message)


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
