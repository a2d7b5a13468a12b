"""The age and the order of checkpoints, as far as modification times tell.

Flink stores no time in a checkpoint, and numbers begin again at 1 if a job id is used by a second run (application
mode: `000...0`; a roll-back under a fixed id). The modification time of `_metadata`, which Flink writes last, tells
more, unless a copy has changed it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from formats.errors import FormatError, UnsafePath
from formats.flink.metadata.file import FILE
from formats.flink.metadata.handles import SegmentHandle
from formats.storage import LocalStorage, ServedStorage, Storage

if TYPE_CHECKING:
    from formats.flink.files.folders import Folder, FolderStreams
    from formats.flink.files.resolve import FileLike

COPIED: Final = 1.0
"""Seconds within which a job does not complete two checkpoints, and a copy writes them."""


class Checkpoints(Protocol):
    """The checkpoints of a job, see `formats.flink.store.FlinkStore`."""

    storage: Storage
    folder: Folder

    def epoch_numbers(self) -> list[int]: ...

    def has_metadata(self, epoch: int) -> bool: ...

    def home(self, epoch: int) -> str: ...

    def modified_at(self, epoch: int) -> float | None: ...

    def files(self, epoch: int) -> list[tuple[str, FileLike]]: ...

    def streams(self, epoch: int) -> FolderStreams: ...


def later_below(modified: Mapping[int, float], newest: int) -> tuple[int, ...]:
    """Return the checkpoints with a lower number than `newest` that were modified later, the latest first.

    modified: when the `_metadata` of each was modified, in seconds since 1970.
    """
    if newest not in modified or _is_copied_at_once(modified.values()):
        return ()
    later = [number for number, time in modified.items() if number < newest and time > modified[newest]]
    return tuple(sorted(later, key=lambda number: modified[number], reverse=True))


def why_undated(name: str, modified: float | None, others: Collection[float], files: Mapping[str, float]) -> str | None:
    """Return why the modification time of a `_metadata` does not tell when its checkpoint was taken; None if it does.

    name: of the `_metadata`, for the message. modified: in seconds since 1970; None if the storage has no times.
    others: the same of all completed checkpoints of the job.
    files: files that the checkpoint refers to, with their times. Flink writes each of them before the `_metadata`.
    """
    if modified is None:
        return f"the storage has no modification time of {name}"
    if _is_copied_at_once(others):
        return "all checkpoints here were modified within one second, as by a copy"
    if newer := [file for file, time in files.items() if time > modified]:
        return f"{name} is older than {min(newer)}, to which it refers, as after a copy"
    return None


def _is_copied_at_once(modified: Collection[float]) -> bool:
    return len(modified) > 1 and max(modified) - min(modified) < COPIED


def completed(store: Checkpoints) -> dict[int, float]:
    """Return when the `_metadata` of each completed checkpoint was modified, as far as the storage knows times."""
    times = {number: store.modified_at(number) for number in store.epoch_numbers() if store.has_metadata(number)}
    return {number: time for number, time in times.items() if time is not None}


def undated(store: Checkpoints, epoch: int) -> str | None:
    """Return why the age of a completed checkpoint is unknown; None if it is known. See `why_undated`.

    Raises Damaged, UnsupportedVersion for a `_metadata` that cannot be read.
    """
    home = store.home(epoch)
    name = f"{home}/{FILE}" if home else FILE
    modified, times = store.modified_at(epoch), completed(store)
    files = _file_times(store, epoch)
    reason = why_undated(name, modified, times.values(), files)
    # Object stores keep whole seconds, so that equal times of a small checkpoint say nothing there.
    if reason is None and files and isinstance(store.storage, LocalStorage) and {*files.values()} == {modified}:
        return f"{name} and all its files have one modification time, as after a copy"
    return reason


def rivals(store: Checkpoints, newest: int) -> tuple[int, ...]:
    """Return the completed checkpoints with a lower number that were modified later than `newest`, if both times count.

    Then the job id was used by several runs, and the highest number may be of a run that is over.
    """
    modified = completed(store)
    later = later_below(modified, newest)
    if not later or not _counts(store, newest):
        return ()
    return tuple(number for number in later if _counts(store, number))


def _counts(store: Checkpoints, epoch: int) -> bool:
    """Tell whether a time says when a checkpoint was taken. Of a damaged `_metadata` it may be that of the damage."""
    try:
        return undated(store, epoch) is None
    except FormatError:
        return False


def last_change(store: Checkpoints, epoch: int) -> float | None:
    """Return when a file in the directory of a checkpoint was modified last; of an empty directory, when it was made.

    None if that is not known. A file that was removed does not count.
    """
    home = store.home(epoch)
    if isinstance(store.storage, ServedStorage):
        inside = (file.written for file in store.storage.inventory() if file.path.startswith(f"{home}/"))
        return max(inside, default=None)
    if not isinstance(store.storage, LocalStorage):
        return None
    files = [f"{home}/{name}" for name in store.folder.names(home)]
    return max(_local_times(store.storage, files or [home]).values(), default=None)


def _file_times(store: Checkpoints, epoch: int) -> dict[str, float]:
    """Return when the files of a checkpoint in its own store were modified.

    Segments are left out: Flink appends those of later checkpoints to the same file.
    """
    handles = [handle for _, handle in store.files(epoch) if not isinstance(handle, SegmentHandle)]
    at = store.streams(epoch)
    places = (at.place(handle) for handle in handles)
    paths = {place.path for place in places if place is not None and place.folder == 0}
    if isinstance(store.storage, ServedStorage):
        return {file.path: file.written for file in store.storage.inventory() if file.path in paths}
    return _local_times(store.storage, paths) if isinstance(store.storage, LocalStorage) else {}


def _local_times(storage: LocalStorage, paths: Iterable[str]) -> dict[str, float]:
    times: dict[str, float] = {}
    for path in paths:
        try:
            times[path] = os.stat(storage.local_path(path)).st_mtime
        except (OSError, UnsafePath):  # it is reported as missing elsewhere
            continue
    return times
