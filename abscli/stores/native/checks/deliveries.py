"""Rows that wait in the store: epochs of the job's line name them, and the target of their sink does not show them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from abscli.engine.errors import EngineError
from abscli.engine.sinks.delivered.deliveries import deliveries_of, shown_by, undelivered
from abscli.engine.sinks.delivered.renamed import ids_of
from abscli.engine.sinks.delivered.targets import target_of
from abscli.engine.sinks.promises import Promises, read_promises
from abscli.engine.sinks.staged.contract import Target
from abscli.planner.lineage import line, stretches
from abscli.report.findings import Code, Finding
from formats.errors import FormatError
from formats.ids import TaskId
from formats.job.promises import is_staged
from formats.native.store import NativeStore


def rows_waiting(store: NativeStore) -> Iterator[Finding]:
    """A finding for each part; none where it is not known what a target shows. No job may run on the store."""
    try:
        attempts = store.attempts()
        operators = store.topology_by_digest(attempts[-1].topology_sha256).operators if attempts else ()
        staged = [op for op in operators if is_staged(op)]
        promises = read_promises(store) if staged else None
    except (FormatError, EngineError):
        return
    for op in staged:
        with contextlib.suppress(EngineError):  # its package is not installed here
            if promises is not None:
                ids = ids_of(promises, op.id, {})
                yield from _waiting(store, promises, target_of(op, store.job, attempts[-1].directory, ids), ids)


def _waiting(store: NativeStore, promises: Promises, target: Target, ids: Sequence[str]) -> Iterator[Finding]:
    newest = line(promises.lives, promises.parts)[:1]
    try:
        shown = shown_by(target, store.storage, ids) if newest else []
    except (FormatError, EngineError):
        return
    for epoch in newest:
        named = deliveries_of(store.storage, promises, epoch, target.operator)
        for delivery in undelivered(named, shown, stretches(promises.lives, epoch)):
            for part in delivery.parts:
                message = f"{part.file.rows} rows of epoch {delivery.epoch.number} are not in {target.title} yet"
                task = TaskId(target.operator, part.id.task)
                yield Finding(Code.SINK_PART_WAITING, task, None, part.file.staged, message)
