"""Going back to a checkpoint of Flink: choose the newest whole one, and write a copy that Flink can start from.

Read facts, decide purely (`stores.flink.verdict`, `formats.flink.rewrite`), then act. The source is only
read; the copy is a new directory, and its `_metadata` appears last and in one step: without it there is nothing to
start from.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterator

import msgspec

from abscli.stores.flink.verdict import beyond_repair
from abscli.stores.reasons import reasons
from formats.errors import Damaged, FormatError, NoRecovery, StalePlan
from formats.flink.evidence import EpochEvidence, StreamCheck, gather
from formats.flink.facts import file_handles, kind
from formats.flink.files.resolve import FileLike, How, Place, directory_of
from formats.flink.metadata.file import FILE, encode, parse
from formats.flink.metadata.handles import (
    FileHandle,
    Metadata,
    OperatorStateHandle,
    RelativeHandle,
    SegmentHandle,
    changelogs,
    handles,
    streams,
)
from formats.flink.rewrite import Copy, copies, rewritten
from formats.flink.store import FlinkStore
from formats.storage import LocalStorage

_CHUNK = 8 << 20

CLAIMED = (
    "the changelog backend goes on in claim mode alone: Flink then owns the files and deletes what it no longer needs"
)


class NotRead(msgspec.Struct, frozen=True):
    """A directory that nobody named, with files of the snapshot that were therefore not read."""

    directory: str
    files: int


class FlinkPlan(msgspec.Struct, frozen=True):
    """How to get a snapshot of Flink that can be restored.

    store: as the user wrote it; epoch, kind: the one that was chosen; skipped: newer ones, and why not they;
    in_place: Flink can restore it where it is; repairs: what a copy sets right, in words; files, bytes: to be copied;
    sha256: of the `_metadata` that the plan was made of; not_read: what lies outside of the directories that were
    named; claim: a job goes on from it only if Flink claims it.
    """

    store: str
    epoch: int
    kind: str
    directory: str
    skipped: tuple[tuple[int, str], ...]
    in_place: bool
    repairs: tuple[str, ...]
    files: int
    bytes: int
    sha256: str
    not_read: tuple[NotRead, ...] = ()
    claim: bool = False

    @property
    def command(self) -> str | None:
        """The line that starts a job from the snapshot as it is; None if it needs a copy first."""
        return run_line(self.directory, claim=self.claim) if self.in_place else None


class FlinkRestored(msgspec.Struct, frozen=True):
    """What `restore` wrote. command: the line that starts a job from it."""

    epoch: int
    directory: str
    files: int
    bytes: int
    repairs: tuple[str, ...]
    command: str


def run_line(directory: str, *, claim: bool) -> str:
    """`flink run -s URI JOB.jar`, quoted.

    claim: only where it must be (`_must_claim`), for Flink then owns what it starts from and deletes it in time.
    """
    uri = directory if "://" in directory else "file://" + os.path.abspath(directory)
    return f"flink run -s {shlex.quote(uri)}{' -claimMode CLAIM' * claim} JOB.jar"


def _must_claim(metadata: Metadata) -> bool:
    """Whether a job goes on from it in claim mode alone.

    In Flink's default mode, NO_CLAIM, the first checkpoint is a full one, which the changelog backend cannot take: the
    job starts, fails at that checkpoint, and is restarted for ever.
    """
    return next(changelogs(metadata), None) is not None


def plan_flink(
    store: FlinkStore,
    *,
    epoch: int | None = None,
    checks: tuple[StreamCheck, ...] = (),
    progress: Callable[[int], None] | None = None,
) -> FlinkPlan:
    """The newest whole checkpoint, or `epoch`.

    Whole: every byte that it refers to is in a directory that was named, be it elsewhere than Flink looks. checks: what
    reads the streams to the end; without, presence and sizes alone. progress: told the bytes of every read. Raises
    NoRecovery, NotFound.
    """
    numbers = [epoch] if epoch is not None else sorted(store.epoch_numbers(), reverse=True)
    if epoch is not None:
        store.home(epoch)
    skipped: list[tuple[int, str]] = []
    searchable = False
    for number in numbers:
        store.streams(number).on_read = progress
        evidence = gather(store, number, checks=checks)
        reason = beyond_repair(evidence) or _out_of_reach(evidence)
        if reason is None:
            return _plan(store, evidence, tuple(skipped))
        skipped.append((number, reason))
        searchable |= any(file.lost or file.closed for file in evidence.files)
    raise NoRecovery(
        f"checkpoint {epoch} cannot be restored: {skipped[0][1]}" if epoch is not None
        else f"none is whole ({reasons('checkpoint', skipped) or 'there is none'})",
        path=store.path,
        hint=("--search DIR looks for lost files in other directories; " if searchable else "")
        + f"abs validate {shlex.quote(store.path)} names what is lost and what is still whole",
    )


def closed_folders(evidence: EpochEvidence) -> dict[str, int]:
    """Directories outside of those that were named -> how many files of the checkpoint lie there, unread."""
    files = {file.written for file in evidence.files if file.closed}
    return dict(sorted(Counter(directory_of(written) for written in files).items()))


def _out_of_reach(evidence: EpochEvidence) -> str | None:
    """Why a snapshot that only a copy could restore cannot be copied: some of its files may not be read."""
    closed = closed_folders(evidence)
    if not closed or not any(_repairs(evidence)):
        return None
    folder, number = next(iter(closed.items()))
    return f"it needs a copy, and {number} of its files lie in {folder}, which was not named: --search {folder}"


def _plan(store: FlinkStore, evidence: EpochEvidence, skipped: tuple[tuple[int, str], ...]) -> FlinkPlan:
    metadata = evidence.metadata
    assert metadata is not None  # beyond_repair says so of those without
    closed = closed_folders(evidence)
    wanted = copies(_places(store, evidence.epoch, whole=not closed))
    runs = {copy.target: copy.length for copy in wanted.values()}
    repairs = tuple(_repairs(evidence))
    return FlinkPlan(
        store=store.path,
        epoch=evidence.epoch,
        kind=kind(metadata, evidence.home).kind,
        directory=f"{store.storage.root}/{evidence.home}" if evidence.home else store.storage.root,
        skipped=skipped,
        in_place=not repairs,
        repairs=repairs,
        files=len(runs),
        bytes=sum(runs.values()),
        sha256=_digest(store, evidence.epoch),
        not_read=tuple(NotRead(folder, number) for folder, number in closed.items()),
        claim=_must_claim(metadata),
    )


def _repairs(evidence: EpochEvidence) -> Iterator[str]:
    """What keeps Flink from restoring the snapshot where it lies, and a copy sets right."""
    metadata = evidence.metadata
    if metadata is not None and metadata.problem is not None:
        yield f"its properties cannot be read ({metadata.problem}): they are written anew"
    for how, said in (
        (How.FOUND, "are not where Flink looks"),
        (How.MOVED, "are named by the path from before the move"),
        (How.MAPPED, "are named by the path from before the move"),
    ):
        files = {file.written: file.path for file in evidence.files if file.how is how}
        if files:
            written, found = min(files.items())
            yield f"{len(files)} files {said}: {written} is {found}"
    relative = _of_changelog(metadata, RelativeHandle) if metadata is not None else set()
    if relative:
        yield (
            f"{len(relative)} files of the changelog backend have relative paths, which the checkpoints that follow "
            "would look for beside themselves"
        )


def _of_changelog(metadata: Metadata, kind: type[FileHandle | RelativeHandle]) -> set[str]:
    """Paths of the files of the changelog backend whose handles are of this kind."""
    return {
        stream.path for handle in changelogs(metadata) for stream in streams(handle) if isinstance(stream, kind)
    }


def restore_flink(
    store: FlinkStore,
    plan: FlinkPlan,
    target: str,
    *,
    progress: Callable[[int], None] | None = None,
) -> FlinkRestored:
    """Write the copy to a new directory.

    progress: called with the bytes of every piece. Raises StalePlan if the snapshot has changed since, Damaged if a
    file no longer gives its bytes, FormatError if the target is there already or lies in the source. Whatever goes
    wrong, no `_metadata` appears, and what was written is removed.
    """
    check_plan(store, plan)
    metadata = store.metadata(plan.epoch)
    copied = copies(_places(store, plan.epoch))
    copy_metadata = rewritten(metadata, copied, os.path.abspath(target), os.path.basename(plan.directory))
    new = encode(copy_metadata)
    parse(new)
    made = _new_directory(store, target)
    written: list[str] = []
    total = 0
    try:
        for copy in {copy.target: copy for copy in copied.values()}.values():
            written.append(copy.target)
            _copy(store, copy, os.path.join(target, copy.target), progress)
            total += copy.length
        LocalStorage(target).put(FILE, new)
    except BaseException:
        for name in written:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(target, name))
        if made:
            with contextlib.suppress(OSError):
                os.rmdir(target)
        raise
    repairs = (*plan.repairs, *_converted(metadata), *_bound(copy_metadata))
    command = run_line(target, claim=_must_claim(metadata))
    return FlinkRestored(plan.epoch, target, len(written), total, repairs, command)


def check_plan(store: FlinkStore, plan: FlinkPlan) -> None:
    """StalePlan if the snapshot is not the one that the plan was made of, or is gone."""
    gone = plan.epoch not in store.epoch_numbers() or not store.has_metadata(plan.epoch)
    if gone or _digest(store, plan.epoch) != plan.sha256:
        said = "is gone" if gone else "has changed since the plan was made"
        hint = "make a new plan with abs plan-recovery"
        raise StalePlan(f"the {FILE} of checkpoint {plan.epoch} {said}", path=store.path, hint=hint)


def _bound(metadata: Metadata) -> Iterator[str]:
    """What ties the copy to its place, and to the job that starts from it."""
    if not _must_claim(metadata):
        return
    named = _of_changelog(metadata, FileHandle)
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
    if segments or merged:
        yield f"{len(segments)} segments of merged files are files of their own in the copy"


def _places(store: FlinkStore, epoch: int, *, whole: bool = True) -> dict[FileLike, Place]:
    """Where every file of a checkpoint lies. whole: NoRecovery if one lies nowhere that was named; else without it."""
    at = store.streams(epoch)
    found: dict[FileLike, Place] = {}
    for _, _, handle in file_handles(store.metadata(epoch)):
        place = at.place(handle)
        if place is not None:
            found[handle] = place
        elif whole:
            looked, size = at.outside(handle)
            said = "is not there" if looked and size is None else "lies outside of the directories that were named"
            raise NoRecovery(f"{at.name(handle)} {said}", path=store.path, hint=at.hint(handle))
    return found


def _digest(store: FlinkStore, epoch: int) -> str:
    home = store.home(epoch)
    return hashlib.sha256(store.storage.read(f"{home}/{FILE}" if home else FILE)).hexdigest()


def _new_directory(store: FlinkStore, target: str) -> bool:
    """Make the target; whether it was made here. FormatError if it holds anything, or lies where is read from."""
    if "://" in target:
        raise FormatError("copies are written to local directories", path=target)
    real = os.path.realpath(target)
    for folder in store.folders:
        if isinstance(folder.storage, LocalStorage):
            for root in folder.roots:
                if real == root or real.startswith(root + os.sep):
                    raise FormatError(f"lies in {root}, which is read from", path=target, hint="name a new directory")
    try:
        os.makedirs(target)
        return True
    except FileExistsError:
        if not os.path.isdir(target) or os.listdir(target):
            raise FormatError(
                "is there already and is not an empty directory", path=target, hint="name a new directory"
            ) from None
        return False


def _copy(store: FlinkStore, copy: Copy, path: str, progress: Callable[[int], None] | None) -> None:
    storage = store.folders[copy.place.folder].storage
    with open(path, "xb") as f:
        done = 0
        while done < copy.length:
            data = storage.read(copy.place.path, copy.start + done, min(_CHUNK, copy.length - done))
            if not data:
                where = f"{storage.root}/{copy.place.path}"
                raise Damaged(f"gave {done} of {copy.length} bytes", path=where, hint="is it being changed?")
            f.write(data)
            done += len(data)
            if progress is not None:
                progress(len(data))
        f.flush()
        os.fsync(f.fileno())
