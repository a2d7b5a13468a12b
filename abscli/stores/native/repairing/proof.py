"""Whether parts that were made again are those that were lost: against the neighbours' counters, and against what is
left of the old parts.

Every channel has to balance, so that what stayed and what was made anew are one cut. What comes again record by record
must be the same, rows by key and logs in order; files need not be, since rows stand as their keys came. What does not
depend on the order of inputs must hold the same rows, too: so a function or an input that is not what it was is found
where routes and counts happen to be equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from abscli.graph.backedges import back_edges
from abscli.planner.repair import settled_contents
from abscli.stores.native.checks.conservation import check_conservation
from abscli.stores.native.repairing.repair_plan import Repair
from formats.errors import NoRecovery
from formats.ids import TaskId
from formats.job.model import Topology, key_group_range
from formats.native.facts import LogFacts, PartFacts
from formats.native.state.live_rows import TaskRows
from formats.native.state.tables import decode_log
from formats.storage import Storage
from formats.storage.ranges import read

HINT = "run with the code and the source files that the epoch was taken with; or plan without --strategy repair"


def check_parts(
    repair: Repair,
    made: Mapping[TaskId, PartFacts],
    old: Storage,
    new: Storage,
    *,
    barriers_known: bool,
) -> None:
    """NoRecovery unless the parts that were made fit to those that stay, and are what is known of those that they take
    the place of.

    old, new: where the files of either lie.
    barriers_known: whether all barriers on the way were where they had been.
    """
    parts = {**repair.adopted(), **made}
    ordered = tuple(parts[task] for task in sorted(parts))
    for finding in check_conservation(repair.topology, ordered, repair.remains.trigger.policy):
        raise _differs(repair, finding.task, f"{finding.channel or 'its counters'}: {finding.message}")
    settled = frozenset[str]()
    if repair.remains.trigger.policy == "aligned" and barriers_known:
        settled = settled_contents(repair.topology, back_edges(repair.topology))
    for task in repair.again.tasks:
        before, after = repair.remains.parts.get(task), made[task]
        if before is None or task in repair.distrust:
            continue
        whole = task not in repair.missing
        same_order = task in repair.again.repeatable
        if same_order:
            for problem in _numbers(before, after):
                raise _differs(repair, task, problem)
            for problem in _logs(before, after, old, new) if whole else ():
                raise _differs(repair, task, problem)
        counted = before.rows is not None and after.rows is not None
        if (same_order or task.operator in settled) and counted and before.rows != after.rows:
            raise _differs(repair, task, f"{before.rows:,} keys were in its state, {after.rows:,} are now")
        if whole and before.state and (same_order or task.operator in settled):
            for problem in _state(repair.topology, before, after, old, new):
                raise _differs(repair, task, problem)
        for problem in _shown(before, after) if repair.remains.committed else ():
            raise _differs(repair, task, problem)


def _differs(repair: Repair, task: TaskId | None, problem: str) -> NoRecovery:
    return NoRecovery(
        f"epoch {repair.epoch} is not repaired: {task} does not come out as it was: {problem}", hint=HINT
    )


def _numbers(before: PartFacts, after: PartFacts) -> Iterator[str]:
    for noun, then, now in (
        ("records sent", before.sent, after.sent),
        ("records received", before.received, after.received),
        ("rows dealt out", before.round_robin, after.round_robin),
    ):
        if then != now:
            yield f"{noun} were {then}, are {now}"
    positions = {p.split: (p.offset, p.records) for p in after.positions or ()}
    for position in before.positions or ():
        now_at = positions.get(position.split, (0, 0))
        if now_at != (position.offset, position.records):
            yield (
                f"{position.split} had been read up to byte {position.offset}, record {position.records}, and is at "
                f"byte {now_at[0]}, record {now_at[1]} now"
            )


def _logs(before: PartFacts, after: PartFacts, old: Storage, new: Storage) -> Iterator[str]:
    now = {log.channel: log for log in after.logs}
    for log in before.logs:
        if log.records != now[log.channel].records:
            yield f"{log.records:,} records of {log.channel} were logged, {now[log.channel].records:,} are now"
        elif log.records:
            left, right = _log_rows(log, old), _log_rows(now[log.channel], new)
            if left.schema != right.schema or any(map(_differ, left.columns, right.columns)):
                yield f"the log of {log.channel} holds other records"


def _differ(left: pa.ChunkedArray, right: pa.ChunkedArray) -> bool:
    return _first_difference(left.combine_chunks(), right.combine_chunks()) is not None


def _log_rows(log: LogFacts, storage: Storage) -> pa.Table:
    assert log.file is not None
    return pa.Table.from_batches(decode_log(read(storage, log.file.path), log.file.path)).combine_chunks()


def _state(topology: Topology, before: PartFacts, after: PartFacts, old: Storage, new: Storage) -> Iterator[str]:
    task = before.task
    operator = topology.operator(task.operator)
    own = key_group_range(task.subtask, operator.parallelism, operator.max_parallelism)
    then, now = TaskRows(old, before.state, own), TaskRows(new, after.state, own)
    if then.schema != now.schema:
        yield f"its state has columns {', '.join(now.schema.names)}, it had {', '.join(then.schema.names)}"
        return
    key = then.key
    for groups in then.chunks():
        left, right = (_by_key(rows.read(groups), key) for rows in (then, now))
        if left.num_rows != right.num_rows:
            yield f"{left.num_rows:,} keys of key groups {groups.start} to {groups.stop - 1} are {right.num_rows:,} now"
            return
        for name in left.schema.names:
            row = _first_difference(left.column(name).combine_chunks(), right.column(name).combine_chunks())
            if row is not None:
                where = {column: left.column(column)[row].as_py() for column in key}
                values = left.column(name)[row].as_py(), right.column(name)[row].as_py()
                yield f"{name} of {where} was {values[0]!r}, is {values[1]!r}"
                return


def _by_key(table: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """In an order that two tables of the same keys have in common."""
    try:
        return table.sort_by([(name, "ascending") for name in key])
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):  # a type of key without an order
        keys = [repr(row) for row in table.select(list(key)).to_pylist()]
        return table.take(pa.array(np.argsort(keys, kind="stable")))


def _first_difference(left: pa.Array, right: pa.Array) -> int | None:
    """The first row that differs; sums of floats may differ in their last digits, by the order of what was added."""
    if left.equals(right):
        return None
    if pa.types.is_floating(left.type) and left.is_null().equals(right.is_null()):
        ours, theirs = (column.fill_null(0).to_numpy(zero_copy_only=False) for column in (left, right))
        close = np.isclose(ours, theirs, rtol=1e-9, equal_nan=True)
        return None if close.all() else int(np.argmin(close))
    # By what is shown of them as well: in a list NaN is no NaN.
    same = (a == b or repr(a) == repr(b) for a, b in zip(left.to_pylist(), right.to_pylist(), strict=True))
    return next((row for row, equal in enumerate(same) if not equal), None)


def _shown(before: PartFacts, after: PartFacts) -> Iterator[str]:
    """What a sink has shown stays shown: it must be what would be shown now."""
    then = {file.name: file for file in before.sink}
    now = {file.name: file for file in after.sink}
    for name in sorted(then.keys() | now.keys()):
        was, will = then.get(name), now.get(name)
        if was is None or will is None or (was.sha256, was.rows) != (will.sha256, will.rows):
            rows = tuple(file.rows if file else 0 for file in (was, will))
            yield f"{name}, which readers have seen, held {rows[0]:,} rows, and would hold {rows[1]:,}, or other ones"
