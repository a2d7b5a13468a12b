"""What is really there of a checkpoint: the reading side of validation.

`gather` looks at every file that `_metadata` refers to, and lets its `checks` read every stream; what it finds is
judged elsewhere. Codes are the words of the check's findings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from formats.errors import FormatError
from formats.flink import channels
from formats.flink.connectors.pending_files import check_sink_files
from formats.flink.connectors.pending_manifests import check_manifests
from formats.flink.dating import undated
from formats.flink.facts import states
from formats.flink.files.resolve import FileLike, How, directory_of, file_size, fits, plain, search_roots
from formats.flink.files.streams import Streams
from formats.flink.ids import Names, OperatorHash, SubtaskId
from formats.flink.metadata.file import FILE
from formats.flink.metadata.handles import (
    ChannelHandle,
    FileHandle,
    Handle,
    KeyGroupsHandle,
    Metadata,
    OperatorState,
    OperatorStateHandle,
    RelativeHandle,
    SegmentHandle,
    Subtask,
    handles,
    streams,
)
from formats.flink.problems import StreamProblem, StreamResult
from formats.flink.regional.agreement import check_agreement, check_splits
from formats.flink.regional.origins import check_origins
from formats.flink.store import FlinkStore
from formats.ids import TaskId
from formats.view import Status

FIELDS: Final = {
    "managed_operator": "managed operator state",
    "raw_operator": "raw operator state",
    "managed_keyed": "managed keyed state",
    "raw_keyed": "raw keyed state",
    "input_channels": "in-flight input",
    "output_channels": "in-flight output",
}


class FileEvidence(msgspec.Struct, frozen=True):
    """One reference to a file.

    task, field: whose it is.
    path: what messages call the file.
    written: where Flink looks for it.
    wanted: bytes that it must have; of a segment: at least.
    fits: it has them.
    size: bytes that it has; None if it is not there.
    how: how it was found.
    hint: what can be done where it is not there.
    states: of a file that is lost, the names of the states in it, as far as they are known.
    looked: False if it lies outside of the directories that were named, where it could not be looked for.
    """

    task: TaskId
    field: str
    path: str
    written: str
    wanted: int
    fits: bool
    size: int | None
    how: How | None
    hint: str
    states: tuple[str, ...] = ()
    looked: bool = True

    @property
    def lost(self) -> bool:
        """It is not there, or not as it was written."""
        return self.looked and not self.fits

    @property
    def closed(self) -> bool:
        """It lies outside of the directories that were named, so that it is not read."""
        return not self.looked or self.how is How.OUTSIDE


StreamCheck = Callable[[TaskId, OperatorState, Subtask, str, Handle, Streams], StreamResult]
"""Reads one handle of a subtask (its task, ..., the handle's field) to the last byte. Called only where every
file of the handle is there with its size."""


class EpochEvidence(msgspec.Struct, frozen=True):
    """One checkpoint.

    home: its directory in the store.
    problem: why its `_metadata` cannot be read.
    unchecked: code -> why.
    read: whether streams were read to the end.
    undated: why `modified` does not tell the age; None if it does.
    """

    epoch: int
    home: str
    status: Status
    metadata: Metadata | None
    problem: str | None
    modified: str | None
    names: Names
    files: tuple[FileEvidence, ...]
    problems: tuple[StreamProblem, ...]
    unchecked: dict[str, str]
    read: bool = False
    undated: str | None = None

    @property
    def path(self) -> str:
        """Of its `_metadata`, in the store."""
        return f"{self.home}/{FILE}" if self.home else FILE


def gather(
    store: FlinkStore, epoch: int, *, quick: bool = False, checks: tuple[StreamCheck, ...] = ()
) -> EpochEvidence:
    """Look at one checkpoint.

    quick: presence and sizes alone. checks: what reads the streams; `formats.flink.checks` has all there are.
    """
    home = store.home(epoch)
    if not store.has_metadata(epoch):
        status = Status.IN_PROGRESS if store.is_open(epoch) else Status.INCOMPLETE
        return EpochEvidence(epoch, home, status, None, None, None, {}, (), (), {})
    modified = store.modified(epoch)
    try:
        metadata = store.metadata(epoch)
    except FormatError as error:
        return EpochEvidence(epoch, home, Status.DAMAGED, None, error.message, modified, {}, (), (), {})
    names = store.names(metadata)
    at = store.streams(epoch)
    files: list[FileEvidence] = []
    problems: list[StreamProblem] = []
    reasons: dict[str, dict[str, None]] = {}
    named: dict[OperatorHash, tuple[str, ...]] = {}
    for task, operator, subtask, field, handle in every_handle(metadata, names):
        mine = [_file(store, epoch, task, field, stream) for stream in _files(handle)]
        # a handle that lacks a file is not read: each of its streams would only say so again
        if any(file.lost for file in mine):
            lost_states = _states(operator, handle, at, named)
            files += [msgspec.structs.replace(file, states=lost_states) if file.lost else file for file in mine]
            continue
        files += mine
        if any(file.closed for file in mine):
            continue
        problems += _offsets(task, field, handle, at)
        if not quick:
            for check in checks:
                result = check(task, operator, subtask, field, handle, at)
                problems += result.problems
                for code, reason in result.unchecked:
                    reasons.setdefault(code, {})[reason] = None
    for code, reason in _not_looked_at(files, quick):
        reasons.setdefault(code, {})[reason] = None
    for result in _whole(store, epoch, metadata, names, at, quick=quick):
        problems += result.problems
        for code, reason in result.unchecked:
            reasons.setdefault(code, {})[reason] = None
    unchecked = {code: _joined(list(each)) for code, each in reasons.items()}
    if not quick and channels.has_channels(metadata):
        if any(file.closed for file in files if file.field in ("input_channels", "output_channels")):
            unchecked["conservation"] = "in-flight data lies outside of the directories that were named"
        else:
            problems += _in_flight(metadata, at, names, unchecked)
    return EpochEvidence(
        epoch=epoch,
        home=home,
        status=Status.COMPLETE,
        metadata=metadata,
        problem=None,
        modified=modified,
        names=names,
        files=tuple(files),
        problems=tuple(problems),
        unchecked=unchecked,
        read=bool(checks) and not quick,
        undated=undated(store, epoch),
    )


def _whole(
    store: FlinkStore, epoch: int, metadata: Metadata, names: Names, at: Streams, *, quick: bool
) -> Iterator[StreamResult]:
    """What only all subtasks together can say."""

    def older(number: int) -> Metadata | None:
        try:
            return store.metadata(number)
        except FormatError:
            return None

    yield check_origins(metadata, names, older, store.plan)
    if not quick:
        yield check_splits(metadata, names, at)
        yield check_agreement(metadata, names, at)
        yield check_sink_files(metadata, names, at, store.streams(epoch).look_for)
        yield check_manifests(metadata, names, at, store.streams(epoch))


def _not_looked_at(files: list[FileEvidence], quick: bool) -> Iterator[tuple[str, str]]:
    """(code, why) of the files outside of the directories that were named: by directory, with what would look there."""
    for codes, mine, omission in (
        (("missing-file", "size-mismatch"), [file for file in files if not file.looked], "were not looked at"),
        (("unreadable", "misplaced-key"), [file for file in files if file.closed], "were not read"),
    ):
        if omission == "were not read" and quick:
            continue
        written = {file.written for file in mine}
        for folder in search_roots(map(directory_of, written)):
            names = [name for name in written if plain(name).startswith(f"{folder}/")]
            reason = f"{len(names)} files in {folder} {omission}: --search {folder}, or --path-map {folder}=NEW"
            for code in codes:
                yield code, reason


def _joined(reasons: list[str]) -> str:
    more = len(reasons) - 3
    return "; ".join(reasons[:3]) + (f"; and {more} more" if more > 0 else "")


def every_handle(
    metadata: Metadata, names: Names
) -> Iterator[tuple[TaskId, OperatorState, Subtask, str, Handle]]:
    """Every handle with whose it is, and its task."""
    for operator in metadata.operators:
        for subtask in operator.subtasks:
            for field, handle in handles(subtask):
                yield SubtaskId(operator.id, subtask.index).task(names), operator, subtask, field, handle


def _files(handle: Handle) -> Iterator[FileLike]:
    for stream in streams(handle):
        if isinstance(stream, FileHandle | RelativeHandle | SegmentHandle):
            yield stream


def _file(store: FlinkStore, epoch: int, task: TaskId, field: str, handle: FileLike) -> FileEvidence:
    at = store.streams(epoch)
    place = at.place(handle)
    looked, size = (True, None) if place is not None else at.outside(handle)
    relative = isinstance(handle, RelativeHandle) and at.home
    return FileEvidence(
        task=task,
        field=field,
        path=at.name(handle),
        written=f"{at.home}/{handle.path}" if relative else handle.path,
        wanted=file_size(handle),
        fits=at.fits(handle, place) if place is not None else size is not None and fits(handle, size),
        size=place.bytes if place is not None else size,
        how=place.how if place is not None else How.OUTSIDE if size is not None else None,
        hint=at.hint(handle) if place is None else "",
        looked=looked,
    )


def _states(
    operator: OperatorState, handle: Handle, at: Streams, named: dict[OperatorHash, tuple[str, ...]]
) -> tuple[str, ...]:
    """The names of the states in a handle whose file is lost: keyed ones as another subtask has them."""
    if isinstance(handle, OperatorStateHandle):
        return tuple(state.name for state in handle.states)
    if isinstance(handle, ChannelHandle):
        return ()
    if operator.id not in named:
        described = states(operator, at)
        named[operator.id] = tuple(state.name for state in described if state.keyed and state.name)
    return named[operator.id]


def _offsets(task: TaskId, field: str, handle: Handle, at: Streams) -> Iterator[StreamProblem]:
    """Offsets of key groups, elements and buffers lie within their stream."""
    match handle:
        case KeyGroupsHandle(stream=stream, offsets=offsets) if stream is not None:
            limit, starts = stream.size, list(offsets)
        case OperatorStateHandle(stream=stream) if stream is not None:
            limit, starts = stream.size, [offset for state in handle.states for offset in state.offsets]
        case ChannelHandle(stream=stream) if stream is not None:
            limit, starts = stream.size, [offset for part in handle.parts for offset in part.offsets]
        case _:
            return
    bad = [offset for offset in starts if not 0 <= offset < max(limit, 1)]
    if bad:
        message = f"{FIELDS[field]}: offset {bad[0]} lies outside its stream of {limit} bytes"
        yield StreamProblem("unreadable", task, None, at.name(stream), message)


def _in_flight(
    metadata: Metadata, at: Streams, names: Names, unchecked: dict[str, str]
) -> Iterator[StreamProblem]:
    """In-flight data of every channel is whole records, where both of its ends are known."""
    if channels.channel_bytes(metadata) > channels.MOST:
        unchecked["conservation"] = f"more than {channels.MOST >> 20} MiB of in-flight data"
        return
    try:
        flows = channels.in_flight(metadata, at)
    except FormatError as error:
        yield StreamProblem("unreadable", None, None, error.path, f"in-flight data: {error.message}")
        return
    lone = sum(1 for channel in flows if channel.sender is None or channel.receiver is None)
    for channel in flows:
        if channel.sender is not None and channel.receiver is not None and channel.records is None:
            name = channel.id(names)
            yield StreamProblem("unreadable", None, name, None, "its in-flight data does not end with a whole record")
    if lone:
        unchecked["missing-log"] = f"of {lone} channels with in-flight data, the other end could not be told"
