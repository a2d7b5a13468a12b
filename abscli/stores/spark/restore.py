"""Carries a plan for a Spark checkpoint out: a checked copy in a new folder, from which the query goes on.

The copy appears whole and in one step, in a bucket with its last file (`stores.copying`), once it has been checked as
`abs validate` does. Nothing of the old checkpoint is touched.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from abscli.report.findings import StoreReport
from abscli.stores.copying import NewCopy, check_target, new_copy, roots, work_of
from abscli.stores.pinned import check_files, difference, stale
from abscli.stores.spark.check import workers
from abscli.stores.spark.plan import why_not
from abscli.stores.spark.relocate import Relocation, renewed
from abscli.stores.spark.sink_copy import check_sink, counts_of, log_folders, write_sink
from abscli.stores.spark.verdict import check_spark
from formats.errors import NoRecovery, NotFound
from formats.plan import BadPlan, PinnedFile, Plan, encode
from formats.spark import layout
from formats.spark.evidence.gathering import gather
from formats.spark.plan import SparkPlan
from formats.spark.store import SparkStore
from formats.storage import Storage, absolute, file_name, top_folder


@dataclass(frozen=True, slots=True)
class SparkRestored:
    """A copy that is there and has been checked.

    sink_to: where the log of the sink is, if it was brought back.
    files: how many it has.
    bytes: of all of them.
    elapsed: seconds.
    """

    to: str
    sink_to: str | None
    batch: int
    files: int
    bytes: int
    report: StoreReport
    elapsed: float


def check_plan(plan: Plan[SparkPlan], store: SparkStore) -> None:
    """Whether all that a plan relies on is as it was; StalePlan, naming the first thing that is not."""
    _check_batches(plan, store)
    _own_files(plan)
    check_files(plan, store.storage)
    if plan.body.sink is not None:
        check_sink(plan, plan.body.sink)


def restore(
    plan: Plan[SparkPlan],
    store: SparkStore,
    to: str,
    progress: Callable[[int], None] = lambda count: None,
    *,
    sink_to: str | None = None,
) -> SparkRestored:
    """Make the copy at `to`, a folder that is not there or is empty. progress: told the bytes of every piece.

    sink_to: such a folder for the log of the plan's sink.

    FormatError if something is in the way; StalePlan if a file is not what it was; NoRecovery if the copy does not give
    exact results.
    """
    begun = time.monotonic()
    read_from = [*roots(store.storage), *log_folders(plan.body.sink)]
    to = check_target(to, read_from)
    _check_batches(plan, store)
    encoded = encode(plan)
    with contextlib.ExitStack() as copies:
        if plan.body.sink is not None and sink_to is not None:
            sink_to = check_target(sink_to, read_from)
            # Entered first, it appears last: what is there then goes with a checkpoint that is there.
            log = new_copy(
                sink_to, work=work_of(encoded, sink_to), counts=counts_of(plan.body.sink), progress=progress
            )
            write_sink(plan, plan.body.sink, copies.enter_context(log))
        checkpoint = new_copy(to, work=work_of(encoded, to), counts=layout.METADATA, progress=progress)
        copy = copies.enter_context(checkpoint)
        _copy(plan, store, copy, to)
        report = _checked(plan, copy.reading)
    return SparkRestored(to, sink_to, plan.body.batch, copy.files, copy.bytes, report, time.monotonic() - begun)


def _check_batches(plan: Plan[SparkPlan], store: SparkStore) -> None:
    """Whether the query has gone on since the plan was made."""
    fresh = SparkStore(store.storage)
    begun = max(fresh.epoch_numbers(), default=-1)
    committed = fresh.latest()
    if begun != plan.body.newest_started:
        change = f"the newest batch was {plan.body.newest_started} when it was made and is {begun}"
    elif committed is not None and committed > plan.body.newest_committed:
        change = f"batch {committed} has been committed since it was made"
    else:
        return
    raise stale(plan, f"{change}: the query has continued; stop it first")


def _own_files(plan: Plan[SparkPlan]) -> dict[str, PinnedFile]:
    """The files whose own bytes are rewritten, by path; BadPlan if the plan does not rely on one of them."""
    pinned = {file.path: file for file in plan.relies_on}
    own = [file.path for file in plan.body.write if file.text is None]
    for path in own:
        if path not in pinned:
            raise BadPlan(f"the plan rewrites {path}, but does not contain its checksum",
                          hint="make a new plan with abs plan-recovery")  # fmt: skip
    return {path: pinned[path] for path in own}


def _copy(plan: Plan[SparkPlan], store: SparkStore, copy: NewCopy, to: str) -> None:
    """Every file, hashed as it is copied, so that what was checked is what is there."""
    own = _own_files(plan)
    places: dict[str, list[str]] = {}
    for moved in plan.body.restored_files:
        places.setdefault(moved.source, []).append(moved.path)
    written = {file.path: file for file in plan.body.write}
    sources = {
        place: pinned for pinned in plan.relies_on for place in places.get(pinned.path, [pinned.path])
    }  # fmt: skip
    logs = True
    for path in sorted({*written, *sources}, key=_order):
        if logs and not _is_log(path):
            copy.settle()
            logs = False
        file = written.get(path)
        if file is None:
            copy.copy(store.storage, sources[path].path, path, pinned=(plan, sources[path]))
        elif file.text is not None:
            copy.write(path, file.text.encode())
        else:
            copy.write(path, _renewed(plan, store, own[path], to))


def _order(path: str) -> tuple[int, int, str]:
    """The order in which a copy is written where it does not appear in one step.

    The offsets of the newest batches come first: where offsets are without the query's id, which comes last, Spark
    (4.2 on) does not start, and an older one looks for the state of just that batch. A place with state and without
    offsets it takes for a new checkpoint, and begins from nothing.
    """
    entry = layout.log_entry(file_name(path))
    return _FIRST.get(top_folder(path), len(_FIRST)), -entry[0] if entry else 0, path


_FIRST = {layout.OFFSETS: 0, layout.COMMITS: 1}


def _is_log(path: str) -> bool:
    return top_folder(path) in _FIRST


def _renewed(plan: Plan[SparkPlan], store: SparkStore, pinned: PinnedFile, to: str) -> bytes:
    """A file of its own bytes, with the places in it that hold in the copy."""
    try:
        data = store.storage.read(pinned.path)
    except NotFound:
        raise stale(plan, f"{pinned.path} is missing") from None
    problem = difference(pinned, hashlib.sha256(data).hexdigest())
    if problem is not None:
        raise stale(plan, problem)
    copied = {file.path for file in plan.relies_on} | {file.path for file in plan.body.restored_files}
    return renewed(pinned.path, data, Relocation(absolute(store.path), to, plan.body.moved, copied))


def _checked(plan: Plan[SparkPlan], storage: Storage) -> StoreReport:
    """What the checks say of the copy; NoRecovery unless the query goes on from the batch to exact results."""
    store = SparkStore(storage)
    report = check_spark(gather(store.checkpoint, workers=workers(store, quick=False)))
    if report.latest_restorable != plan.body.batch:
        own = next((one for one in report.epochs if one.epoch == plan.body.batch), None)
        reason = why_not(own, report) if own is not None else "it is not in the copy"
        raise NoRecovery(
            f"a copy up to batch {plan.body.batch} does not give exact results: {reason}; nothing was kept of it",
            path=plan.store, hint="roll back further",
        )  # fmt: skip
    return report
