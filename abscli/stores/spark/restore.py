"""Carries a plan for a Spark checkpoint out: a checked copy in a new folder, from which the query goes on.

The copy is made beside its place under a hidden name, checked as `abs validate` does, and renamed in one step: it is
there whole, or not at all. Nothing of the old checkpoint is touched.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from abscli.report.findings import StoreReport
from abscli.stores.spark.check import workers
from abscli.stores.spark.plan import digest, pieces, why_not
from abscli.stores.spark.relocate import renewed
from abscli.stores.spark.verdict import check_spark
from formats.errors import NoRecovery, NotFound, StalePlan
from formats.spark.gather import gather
from formats.spark.plan import SparkPlan
from formats.spark.store import SparkStore
from formats.storage import LocalStorage, Storage, check_path

UNFINISHED = ".abs-restoring-"
"""What the name of a copy begins with that is not whole yet."""

_AGAIN = "make a new plan with abs plan-recovery"


@dataclass(frozen=True, slots=True)
class Restored:
    """A copy that is there and has been checked. files, bytes: of it; elapsed: seconds."""

    to: str
    batch: int
    files: int
    bytes: int
    report: StoreReport
    elapsed: float


class _Placed(LocalStorage):
    """A folder under the name that it is going to have."""

    def __init__(self, folder: str, to: str) -> None:
        super().__init__(folder)
        self._to = to

    @property
    def root(self) -> str:
        return self._to


def check_plan(plan: SparkPlan, storage: Storage) -> None:
    """Whether all that a plan relies on is as it was; StalePlan, naming the first thing that is not."""
    _same_batches(plan, storage)
    for path, said in _pinned(plan):
        _same(path, said, _found(storage, path))


def restore_spark(
    plan: SparkPlan, storage: Storage, to: str, progress: Callable[[int], None] = lambda done: None
) -> Restored:
    """Make the copy at `to`, a folder that is not there or is empty. progress: told the bytes copied so far.

    FileExistsError; StalePlan if a file is not what it was; NoRecovery if the copy does not give exact results.
    """
    begun = time.monotonic()
    to = os.path.abspath(to)
    check_target(to, storage)
    _same_batches(plan, storage)
    os.makedirs(os.path.dirname(to), exist_ok=True)
    folder = os.path.join(os.path.dirname(to), UNFINISHED + secrets.token_hex(8))
    os.mkdir(folder)
    try:
        total = _copy(plan, storage, folder, to, progress)
        report = _checked(plan, folder, to)
        _sync(folder)
        os.rename(folder, to)
        _sync(os.path.dirname(to), deep=False)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return Restored(to, plan.batch, len(plan.keep) + len(plan.write), total, report, time.monotonic() - begun)


def check_target(to: str, storage: Storage) -> None:
    """Whether a copy may be made there; FileExistsError if something is in the way, or if it is in the checkpoint."""
    if os.path.lexists(to) and not (os.path.isdir(to) and not os.listdir(to)):
        raise FileExistsError(17, "is there already; a copy goes into a new folder", to)
    own = os.path.realpath(storage.root) if isinstance(storage, LocalStorage) else None
    if own is not None and (os.path.realpath(to) + os.sep).startswith(own + os.sep):
        raise FileExistsError(17, f"lies in the checkpoint {own}; a copy goes beside it", to)


def _same_batches(plan: SparkPlan, storage: Storage) -> None:
    """Whether the query has gone on since the plan was made."""
    store = SparkStore(storage)
    begun = max(store.epoch_numbers(), default=-1)
    committed = store.latest()
    if begun != plan.newest_begun or (committed or 0) > plan.newest_committed:
        raise StalePlan(
            f"the newest batch was {plan.newest_begun} when the plan was made and is {begun}: the query has gone on",
            path=plan.store, hint=f"stop the query, then {_AGAIN}",
        )  # fmt: skip


def _pinned(plan: SparkPlan) -> Iterator[tuple[str, str]]:
    for file in plan.keep:
        yield file.path, file.sha256
    for made in plan.write:
        if made.sha256 is not None:
            yield made.path, made.sha256


def _found(storage: Storage, path: str) -> str | None:
    try:
        return digest(storage, path)
    except NotFound:
        return None


def _same(path: str, said: str, found: str | None) -> None:
    if found is None:
        raise StalePlan(f"the plan relies on {path}, which is gone", path=path, hint=_AGAIN)
    if found != said:
        raise StalePlan(f"sha256 was {said[:16]} when the plan was made and is {found[:16]}", path=path, hint=_AGAIN)


def _copy(plan: SparkPlan, storage: Storage, folder: str, to: str, progress: Callable[[int], None]) -> int:
    """Every file, hashed as it is copied, so that what was checked is what is there. The bytes written."""
    done = 0
    made: set[str] = set()
    for file in plan.keep:
        hashed = hashlib.sha256()
        with _new(folder, file.path, made) as out:
            try:
                for piece in pieces(storage, file.path):
                    hashed.update(piece)
                    out.write(piece)
                    done += len(piece)
            except NotFound:
                _same(file.path, file.sha256, None)
        _same(file.path, file.sha256, hashed.hexdigest())
        progress(done)
    for written in plan.write:
        if written.text is not None:
            data = written.text.encode()
        else:
            try:
                data = storage.read(written.path)
            except NotFound:
                raise StalePlan(f"the plan relies on {written.path}, which is gone", path=written.path,
                                hint=_AGAIN) from None  # fmt: skip
            _same(written.path, written.sha256 or "", hashlib.sha256(data).hexdigest())
            data = renewed(written.path, data, to=to, moves=plan.moved)
        with _new(folder, written.path, made) as out:
            out.write(data)
        done += len(data)
    return done


@contextlib.contextmanager
def _new(folder: str, path: str, made: set[str]) -> Iterator[BinaryIO]:
    full = os.path.join(folder, check_path(path))
    parent = os.path.dirname(full)
    if parent not in made:
        os.makedirs(parent, exist_ok=True)
        made.add(parent)
    with open(full, "xb") as out:
        yield out


def _checked(plan: SparkPlan, folder: str, to: str) -> StoreReport:
    """What the checks say of the copy; NoRecovery unless the query goes on from the batch to exact results."""
    store = SparkStore(_Placed(folder, to))
    report = check_spark(gather(store.checkpoint, workers=workers(store, quick=False)))
    if report.latest_restorable != plan.batch:
        own = next((one for one in report.epochs if one.epoch == plan.batch), None)
        said = why_not(own, report) if own is not None else "it is not in the copy"
        raise NoRecovery(f"a copy up to batch {plan.batch} does not give exact results: {said}; nothing was kept of it",
                         path=plan.store, hint="go back further")  # fmt: skip
    return report


def _sync(folder: str, *, deep: bool = True) -> None:
    """Make files durable before their folder gets its name."""
    for parent, _, names in os.walk(folder) if deep else [(folder, [], [])]:
        for name in [*(os.path.join(parent, name) for name in names), parent]:
            fd = os.open(name, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
