"""A drill of our own store: an epoch is copied into a scratch folder, restored there with its sinks cut off, run to a
fresh epoch, and the state of the two is compared. The store itself is only read."""

from __future__ import annotations

import itertools
import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from abscli.diff.epochs import OperatorDiff, PositionDiff, diff_positions
from abscli.diff.state import Side, diff_operators
from abscli.engine.job import JobOptions
from abscli.stores.drills import Compared, Drilled
from abscli.stores.native.copying import Became, copy_store
from abscli.stores.native.diff import compare_rows
from abscli.stores.native.plan import own_line, plan_recovery
from abscli.stores.native.restore import check_job, restore
from abscli.stores.reasons import NoPlan, reasons
from abscli.stores.recovery import JobFile, RestoreRequest, Watcher
from formats.errors import Damaged, NoRecovery, NotFound
from formats.job.model import Topology
from formats.native.plan import NativePlan
from formats.native.store import NativeStore
from formats.plan import Plan
from formats.scratch import scratch
from formats.storage import LocalStorage

NOT_PROVED = (
    "that sources still have what comes after the epoch",
    "that sinks still have what the epoch's output says",
)


class Copy(NamedTuple):
    """An epoch in a store of its own. passed_over: newer ones, and why they cannot be restored."""

    store: NativeStore
    plan: Plan[NativePlan]
    epoch: int
    passed_over: dict[int, str]


def drill(store: NativeStore, epoch: int | None, job: JobFile, request: RestoreRequest, watch: Watcher) -> Drilled:
    """Prove that an epoch, or the newest one that is whole, can be restored.

    request: how the job is run.

    Raises NoRecovery where none can be, Damaged where it is the one that was named, OtherJob, EngineStopped, JobFailed.
    """
    folder = tempfile.mkdtemp(prefix="drill-", dir=scratch())
    try:
        return _drill(store, epoch, job, folder, request, watch)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _drill(
    store: NativeStore, epoch: int | None, job: JobFile, folder: str, request: RestoreRequest, watch: Watcher
) -> Drilled:
    clock = [time.monotonic()]
    watch("copying")
    copy = _copied(store, epoch, folder)
    check_job(copy.plan, copy.store, job.topology, job.changes)
    clock.append(time.monotonic())
    options = JobOptions(
        directory=job.directory, job_hint=shlex.quote(job.path), engine=request.engine, master=request.master,
        keep=None, until="drained", changes=job.changes, sinks_in=os.path.join(folder, "sinks"),
        state_memory=request.state_memory, insecure=request.insecure,
        whole=True,  # else the fresh epoch would refer to the files of the other one, and be compared with itself
    )  # fmt: skip
    running = watch.job(copy.plan.body.job)
    restored = restore(copy.plan, job.topology, options, on_progress=running, on_news=running.news)
    clock.append(time.monotonic())
    watch("comparing")
    after = NativeStore(LocalStorage(copy.store.path))
    left, right = Side(after, copy.epoch), Side(after, restored.epoch)
    details = after.detail(copy.epoch), after.detail(restored.epoch)
    ids = ([op.id for op in details[0].operators], [op.id for op in details[1].operators])
    operators = diff_operators(left, right, ids, quicker=compare_rows)
    compared = tuple(_compared(operators, replayed_into(after, copy.epoch)))
    problems = tuple(_problems(diff_positions(*details)))
    clock.append(time.monotonic())
    manifest = after.manifest(copy.epoch)
    seconds = [later - earlier for earlier, later in itertools.pairwise(clock)]
    return Drilled(
        store=store.path,
        system="abs",
        epoch=copy.epoch,
        proved=not problems and all(one.same is not False for one in compared),
        tasks=manifest.tasks,
        rows=manifest.state_rows,
        replayed=restored.replayed,
        seconds=dict(zip(("copied", "restored", "compared"), (round(one, 3) for one in seconds), strict=True)),
        compared=compared,
        problems=problems,
        passed_over=copy.passed_over,
        not_proved=NOT_PROVED,
    )


def _copied(store: NativeStore, epoch: int | None, folder: str) -> Copy:
    """The epoch, or the newest on the job's line that is whole, in a store below the folder."""
    if epoch is not None:
        return _copy(store, epoch, folder, {})
    passed_over: dict[int, str] = {}
    gone: set[int] = set()
    while True:
        numbers = [n for n in own_line(NativeStore(store.storage)) if store.has_manifest(n)]
        number = next((n for n in numbers if n not in passed_over and n not in gone), None)
        if number is None:
            why = reasons("epoch", sorted(passed_over.items(), reverse=True)) or "none is complete"
            where = shlex.quote(store.path)
            raise NoRecovery(f"no epoch can be restored ({why})", path=store.path,
                             hint=f"`abs validate {where}` lists the damaged files")  # fmt: skip
        try:
            return _copy(store, number, folder, passed_over)
        except NotFound:
            gone.add(number)  # a job that runs has removed it meanwhile, and has newer ones
        except Damaged as error:
            passed_over[number] = str(error)


def _copy(store: NativeStore, epoch: int, folder: str, passed_over: dict[int, str]) -> Copy:
    to = os.path.join(folder, f"store-{epoch}")
    copied = copy_store(store, epoch, to)
    assert all(row.outcome is Became.COPIED for row in copied.epochs)
    copy = NativeStore(LocalStorage(to))
    plan = plan_recovery(copy, epoch=epoch)
    if isinstance(plan, NoPlan):
        raise Damaged(plan.message, path=store.path)
    return Copy(copy, plan, epoch, passed_over)


def replayed_into(store: NativeStore, epoch: int) -> dict[str, int]:
    """The operators whose state is another one after the restore, since records that were on their way reach them: by
    id, how many records were on the way to it, or to one before it."""
    graph: Topology = store.topology(epoch)
    records: dict[str, int] = {}
    for part in store.parts(epoch):
        for log in part.logs:
            if log.records:
                records[part.operator] = records.get(part.operator, 0) + log.records
    reached = dict(records)
    waiting = list(records)
    while waiting:
        operator = waiting.pop()
        for edge in graph.edges:
            if edge.source == operator and edge.target not in reached:
                reached[edge.target] = reached[operator]
                waiting.append(edge.target)
    return reached


def _compared(operators: Iterable[OperatorDiff], replayed: dict[str, int]) -> Iterator[Compared]:
    for operator in operators:
        if not operator.states:
            continue
        lost = operator.removed or 0
        if operator.change in ("added", "removed"):
            yield Compared(operator.id, None, "the job file has it under another id, or not at all")
        elif operator.change == "unchanged":
            yield Compared(operator.id, True)
        elif operator.change == "unknown":
            notes = "; ".join(state.note for state in operator.states if state.note)
            yield Compared(operator.id, None, notes or "it cannot be compared")
        elif operator.id in replayed and not lost:
            on_the_way = f"{replayed[operator.id]:,} records that were on their way were replayed"
            yield Compared(operator.id, None, f"{on_the_way}; {operator.added} keys new, {operator.changed} changed")
        else:
            counts = f"{operator.added} keys new, {lost} lost, {operator.changed} changed"
            yield Compared(operator.id, False, counts)


def _problems(positions: Iterable[PositionDiff]) -> Iterator[str]:
    """A restore that ends when the logs are replayed reads no input: so no source may stand elsewhere."""
    for position in (one for one in positions if one.before != one.after):
        yield f"{position.task}: source position of {position.split} is another one after the restore"
