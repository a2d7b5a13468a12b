"""Staged rows: those that epochs of the job's history name, and that the target of their sink does not have yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from abscli.engine.errors import EngineError
from abscli.engine.sinks.delivered.deliveries import deliveries_of, matches_target, shown_by, undelivered, waiting
from abscli.engine.sinks.delivered.targets import target_of
from abscli.engine.sinks.gaps import find_gap, records_of
from abscli.engine.sinks.promises import Promises, read_promises
from abscli.engine.sinks.staged.contract import Delivery, Target
from abscli.planner.lineage import is_on, line, stretches
from abscli.report.findings import Code, Finding, SinkVerdict
from abscli.stores.native.checks.named_parts import NamedOutput, SinkFindings
from abscli.stores.native.targets import Targets
from formats.errors import FormatError
from formats.ids import TaskId
from formats.job.model import Operator
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
    due = waiting(target, undelivered(named, shown, history))
    lost: list[tuple[int, Finding]] = []
    if target.remembers:
        records = records_of(promises, epoch, id, is_own)
        oldest_due = due[0].epoch.number if due else None
        gap = find_gap(records, epoch, oldest_due, history, shown, target.has)
        if gap is not None:
            lost = [(epoch, Finding(Code.SINK_PART_MISSING, None, None, target.title, f"the target lacks {gap}"))]
    return SinkFindings(
        of_epochs=lost, history=history, of_store=tuple(_waiting(target, due)), unchecked=elsewhere
    )


def _waiting(target: Target, due: Sequence[Delivery]) -> Iterator[Finding]:
    for delivery in due:
        for part in delivery.parts:
            message = f"{part.file.rows} rows of epoch {delivery.epoch.number} are not in {target.title} yet"
            task = TaskId(target.operator, part.id.task)
            yield Finding(Code.SINK_PART_PENDING, task, None, part.file.staged, message)
