"""Where the file of a handle lies now: as written, moved with its job, mapped by the user, or found by its name.

Pure over listings. A path taken from a file is only ever looked up in the directories that the user named; it never
opens another one. What lies nowhere in them is lost only where they are the place that the path means (`covers`);
elsewhere it was not looked at. In order:

1. a relative path below the directory of `_metadata`; an absolute one where it says, if that is in such a directory;
2. an absolute path by `--path-map OLD=NEW`;
3. by the longest tail of an absolute path that is there (`<job id>/shared/<uuid>`, `shared/<uuid>`): a moved job;
4. by name and size: a file that lies beside its place (FLINK-39964), or in a directory that was named to be searched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from formats.flink.metadata.handles import FileHandle, RelativeHandle, SegmentHandle, StreamHandle
from formats.path_maps import split_map
from formats.storage import common_name


class Listing(Protocol):
    """The files of one directory that the user named, at any depth."""

    @property
    def roots(self) -> tuple[str, ...]:
        """Plain absolute paths (no scheme, no trailing slash) that are this directory."""

    def size(self, path: str) -> int | None:
        """Bytes of a file, by its path from the root; None if it is not there."""

    def named(self, name: str) -> Sequence[tuple[str, int]]:
        """Files of this name at any depth: (path, bytes)."""

    def has_folder(self, path: str) -> bool:
        """Whether a directory is there, by its path from the root."""


class How(StrEnum):
    """How a file was found."""

    WRITTEN = "as written"
    MAPPED = "path map"
    MOVED = "moved"
    FOUND = "by name and size"
    COPIED = "copied"
    """A copy of a file that is also where Flink looks for it, outside of the directories that were named."""
    OUTSIDE = "by name alone"
    """Where Flink looks, outside of the directories that were named: there with its size, and never opened."""


class Place(msgspec.Struct, frozen=True):
    """Where a file lies.

    folder: which of the listings.
    path: from its root.
    bytes: that it really has.
    how: how it was found.
    """

    folder: int
    path: str
    bytes: int
    how: How


class PathMap(msgspec.Struct, frozen=True):
    """`--path-map OLD=NEW`: paths that began with `old` begin with `new` now. Both are plain."""

    old: str
    new: str


FileLike = FileHandle | RelativeHandle | SegmentHandle


def plain(path: str) -> str:
    """A path without scheme and authority of its own file system: `file:///a/b` and `file:/a/b` are `/a/b`.

    Other schemes stay: `s3a://bucket/a` is `s3://bucket/a`, for the variants name the same store.
    """
    scheme, colon, rest = path.partition(":")
    if not colon or "/" in scheme or len(scheme) < 2:
        return _trim(path)
    if scheme == "file":
        return _trim("/" + re.sub(r"^//[^/]*", "", rest).lstrip("/"))
    return _trim(re.sub("^abfss:", "abfs:", common_name(path)))


def _trim(path: str) -> str:
    return path.rstrip("/") or "/"


def parse_path_map(text: str) -> PathMap:
    """`OLD=NEW`; ValueError if it is not that."""
    old, new = split_map(text)
    if not old or not new:
        raise ValueError(f"{text!r} is not OLD=NEW")
    return PathMap(plain(old), plain(new))


JOB_ID: Final = re.compile(r"[0-9a-f]{32}")

LEAST: Final = 3
"""Parts, separated by slashes, of a directory that is worth a search: `/data/checkpoints`, `s3://bucket`."""

FRAMED: Final = 11
"""Bytes that a compressed file of changes has at least: the byte that says so, and the beginning of a snappy stream."""


def of_changes(handle: StreamHandle) -> bool:
    """Whether the handle's file is one of changes, which begins with a byte of its own and may be compressed."""
    return isinstance(handle, FileHandle | RelativeHandle) and handle.changes


def file_size(handle: FileLike) -> int:
    """Bytes that the handle's file must have; of a segment: at least; of a file of changes: unless it is compressed."""
    if isinstance(handle, SegmentHandle):
        return handle.start + handle.size
    return handle.size + handle.changes


def fits(handle: FileLike, size: int) -> bool:
    """Whether a file of this size can be the handle's. One of changes may be compressed: its first byte says more."""
    if isinstance(handle, SegmentHandle):
        return size >= file_size(handle)
    return size == file_size(handle) or (handle.changes and size >= FRAMED)


def is_plain(path: str) -> bool:
    """Whether a path stays below where it is put."""
    parts = path.split("/")
    return bool(path) and "\\" not in path and "\0" not in path and not any(p in ("", ".", "..") for p in parts)


def resolve(
    handle: FileLike, home: str, folders: Sequence[Listing], maps: Sequence[PathMap] = (), *, only_written: bool = False
) -> Place | None:
    """Where a handle's file lies; None if nowhere in these folders.

    home: directory of `_metadata`, from the root of folder 0, empty for that root itself. only_written: as Flink itself
    would look, that is step 1 alone.
    """
    if isinstance(handle, RelativeHandle):
        if not is_plain(handle.path):
            return None
        at = f"{home}/{handle.path}" if home else handle.path
        place = _at(0, at, folders, How.WRITTEN)
    else:
        place = _written(plain(handle.path), folders)
    if place is not None or only_written:
        return place
    if not isinstance(handle, RelativeHandle):
        path = plain(handle.path)
        for mapping in maps:
            if path.startswith(mapping.old + "/"):
                mapped = _written(mapping.new + path[len(mapping.old) :], folders)
                if mapped is not None:
                    return msgspec.structs.replace(mapped, how=How.MAPPED)
        moved = _moved(path, handle, folders)
        if moved is not None:
            return moved
    return _by_name(handle, folders)


def is_named(path: str, folders: Sequence[Listing], maps: Sequence[PathMap] = ()) -> bool:
    """Tell whether a file of this absolute path would be in a directory that the user named, as written or mapped."""
    written = plain(path)
    mapped = [m.new + written[len(m.old) :] for m in maps if written.startswith(m.old + "/")]
    return any(
        where.startswith(root + "/") for where in (written, *mapped) for folder in folders for root in folder.roots
    )


def covers(path: str, folders: Sequence[Listing]) -> bool:
    """Tell whether a file of this absolute path would be in these directories if its job was moved there.

    They must have the directory that the path ends with (`shared`, `chk-7`), and must not be another job's: a job that
    took over a snapshot refers to files of the job before. A file that is where the path says was not moved: look there
    first.
    """
    parts = plain(path).split("/")[:-1]
    jobs = [i for i, part in enumerate(parts) if JOB_ID.fullmatch(part)]
    below = next(iter(parts[jobs[-1] + 1 :] if jobs else parts[-1:]), "")
    for folder in folders:
        names = {root.rpartition("/")[2] for root in folder.roots}
        other = jobs and any(JOB_ID.fullmatch(name) for name in names) and parts[jobs[-1]] not in names
        if not other and is_plain(below) and folder.has_folder(below):
            return True
    return False


def directory_of(path: str) -> str:
    """The directory that a user would name to have a file of this absolute path looked at: that of its job where the
    path has one (`<job id>/shared`, whatever lies between), else its own."""
    parts = plain(path).split("/")[:-1]
    jobs = [i for i, part in enumerate(parts) if JOB_ID.fullmatch(part)]
    return "/".join(parts[: jobs[-1] + 2] if jobs else parts) or "/"


def server_of(path: str) -> str | None:
    """Return scheme and authority of a URI, such as `s3://bucket`; None for a path of a local file system."""
    match = re.match(r"[a-z][a-z0-9+.-]+://[^/]+", plain(path))
    return match[0] if match else None


def search_roots(directories: Iterable[str]) -> tuple[str, ...]:
    """Return the fewest directories to name with `--search` so that each of these is searched.

    That is one that contains all of them, such as the bucket if its paths have random parts (entropy injection). It is
    each of them if that would be the root of a local file system, or a directory directly below it.
    """
    every = sorted({plain(directory) for directory in directories})
    servers = {server_of(directory) for directory in every}
    if len(every) < 2 or len(servers) > 1:
        return tuple(every)
    common: list[str] = []
    for level in zip(*(directory.split("/") for directory in every), strict=False):
        if len({*level}) > 1:
            break
        common.append(level[0])
    return ("/".join(common),) if len(common) >= LEAST else tuple(every)


def _at(folder: int, path: str, folders: Sequence[Listing], how: How) -> Place | None:
    size = folders[folder].size(path)
    return None if size is None else Place(folder, path, size, how)


def _written(path: str, folders: Sequence[Listing]) -> Place | None:
    for i, folder in enumerate(folders):
        for root in folder.roots:
            below = path[len(root) + 1 :]
            if path.startswith(root + "/") and is_plain(below):
                place = _at(i, below, folders, How.WRITTEN)
                if place is not None:
                    return place
    return None


def _moved(path: str, handle: FileLike, folders: Sequence[Listing]) -> Place | None:
    """By the longest tail that is there with its size; a tail of two parts and more also with another size."""
    parts = [part for part in path.split("/") if part]
    other: Place | None = None
    for start in range(len(parts)):
        tail = "/".join(parts[start:])
        if not is_plain(tail):
            continue
        for i in range(len(folders)):
            place = _at(i, tail, folders, How.MOVED)
            if place is not None and fits(handle, place.bytes):
                return place
            # with another size it is the same file, damaged, but only if a directory before its name agrees, too
            if place is not None and other is None and start < len(parts) - 1:
                other = place
    return other


def _by_name(handle: FileLike, folders: Sequence[Listing]) -> Place | None:
    name = handle.path.rsplit("/", 1)[-1]
    for i, folder in enumerate(folders):
        for path, size in folder.named(name):
            if fits(handle, size):
                return Place(i, path, size, How.FOUND)
    return None
