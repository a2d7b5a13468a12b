"""Carries a plan for a checkpoint of Flink out: a self-contained copy that Flink can start from.

The source is only read. The copy appears whole and in one step, in a bucket with its `_metadata` (`stores.copying`),
which refers to the files beside it alone (`formats.flink.rewrite`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator

import msgspec

from abscli.stores.copying import NewCopy, check_target, new_copy, work_of
from abscli.stores.flink.plan import directory_of_epoch, metadata_path, must_claim, of_changelog, places, to_copy
from abscli.stores.pinned import check_files, stale
from formats.flink.facts import file_handles
from formats.flink.metadata.file import FILE, encode, parse
from formats.flink.metadata.handles import (
    Backend,
    FileHandle,
    Metadata,
    OperatorStateHandle,
    RelativeHandle,
    SegmentHandle,
    handles,
)
from formats.flink.plan import FlinkPlan, run_line
from formats.flink.rewrite import copies, rewritten
from formats.flink.store import FlinkStore
from formats.plan import Plan
from formats.plan import encode as encode_plan
from formats.storage import local_name, open_storage

CLAIMED = (
    "the changelog backend goes on in claim mode alone: Flink then owns the files and deletes what it no longer needs"
)


class FlinkRestored(msgspec.Struct, frozen=True):
    """What `restore` wrote.

    backend: the state backend that the job must be configured with; None if every backend reads the state.
    command: the line that starts a job from it.
    """

    epoch: int
    directory: str
    files: int
    bytes: int
    repairs: tuple[str, ...]
    backend: Backend | None
    command: str


def check_plan(plan: Plan[FlinkPlan], store: FlinkStore) -> None:
    """Whether all that a plan relies on is as it was: StalePlan; NoRecovery if a file of the checkpoint is gone."""
    assert plan.store is not None
    check_files(plan, open_storage(plan.store))
    _check_epoch(plan, store)
    runs = to_copy(store, plan.body.epoch)
    files, size = len(runs), sum(runs.values())
    if (files, size) != (plan.body.files, plan.body.bytes):
        raise stale(
            plan,
            f"a copy would be of {files:,} files and {size:,} bytes, expected {plan.body.files:,} and "
            f"{plan.body.bytes:,}",
        )


def _check_epoch(plan: Plan[FlinkPlan], store: FlinkStore) -> None:
    """StalePlan unless what the plan relies on, and the directory that it names, are those of its epoch."""
    home = store.home(plan.body.epoch)
    path, directory = metadata_path(store, home), directory_of_epoch(store, home)
    if path not in {file.path for file in plan.relies_on}:
        raise stale(plan, f"it does not list {path}")
    # The command in a plan is printed for people to run: it must be of the checkpoint that was checked.
    if directory != plan.body.directory:
        raise stale(plan, f"checkpoint {plan.body.epoch} is in {directory}, expected {plan.body.directory}")


def sources(store: FlinkStore) -> list[str]:
    """The places that the store's files are read from."""
    return [root for folder in store.folders for root in folder.roots]


def restore(
    plan: Plan[FlinkPlan], store: FlinkStore, to: str, progress: Callable[[int], None] = lambda count: None
) -> FlinkRestored:
    """Write the copy to a new directory.

    progress: told the bytes of every piece.

    Raises StalePlan if the snapshot has changed since, NoRecovery if a file is gone, Damaged if one no longer gives its
    bytes, FormatError if something is in the way.
    """
    check_plan(plan, store)
    epoch = plan.body.epoch
    target = check_target(to, sources(store))
    with new_copy(target, work=work_of(encode_plan(plan), target), counts=FILE, progress=progress) as copy:
        metadata = fill(copy, store, epoch, store.metadata(epoch), target)
        copy.settle()
        files, size = copy.files - 1, copy.bytes - len(encode(metadata))
    repairs = (*plan.body.repairs, *_converted(store.metadata(epoch)), *bound(metadata))
    command = run_line(target, claim=must_claim(metadata), backend=plan.body.backend)
    return FlinkRestored(epoch, local_name(to), files, size, repairs, plan.body.backend, command)


def fill(
    folder: NewCopy,
    store: FlinkStore,
    epoch: int,
    metadata: Metadata,
    target: str,
    own: Collection[RelativeHandle] = (),
) -> Metadata:
    """Write every file of a copy that is to appear at `target`, its `_metadata` last, which is returned.

    metadata: that of the checkpoint, or what has become of it; own: files that lie in the folder already.

    Raises NoRecovery if a file is gone, Damaged if one no longer gives its bytes.
    """
    copied = copies(places(store, epoch, metadata=metadata, own=own))
    directory = os.path.basename(directory_of_epoch(store, store.home(epoch)))
    copy = rewritten(metadata, copied, target, directory, own)
    encoded = encode(copy)
    parse(encoded)
    for run in {run.target: run for run in copied.values()}.values():
        storage = store.folders[run.place.folder].storage
        folder.copy(storage, run.place.path, run.target, start=run.start, length=run.length)
    folder.write(FILE, encoded)
    return copy


def bound(metadata: Metadata) -> Iterator[str]:
    """What ties the copy to its place, and to the job that starts from it."""
    if not must_claim(metadata):
        return
    named = of_changelog(metadata, FileHandle)
    if named:
        yield f"{len(named)} files of the changelog backend are named by their whole path: start from it where it is"
    yield CLAIMED


def _converted(metadata: Metadata) -> Iterator[str]:
    segments = {stream for _, _, stream in file_handles(metadata) if isinstance(stream, SegmentHandle)}
    merged = any(
        isinstance(handle, OperatorStateHandle) and handle.folders is not None
        for operator in metadata.operators
        for subtask in operator.subtasks
        for _, handle in handles(subtask)
    )
    if metadata.regional:
        yield "state that was taken over from an older checkpoint is the copy's own, which names no other"
    if segments or merged:
        yield f"{len(segments)} segments of merged files are files of their own in the copy"
