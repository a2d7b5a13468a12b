"""The directories that the user named, listed as they are asked for, and the streams in them."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterator, Sequence

from msgspec.structs import replace

from formats.errors import Damaged, FormatError, NotFound, UnsafePath
from formats.flink.files.resolve import (
    FileLike,
    How,
    PathMap,
    Place,
    covers,
    directory_of,
    file_size,
    fits,
    is_named,
    is_plain,
    of_changes,
    plain,
    resolve,
    server_of,
)
from formats.flink.metadata.handles import (
    EmptySegmentHandle,
    InlineHandle,
    KeyGroupsHandle,
    RelativeHandle,
    SegmentHandle,
    StreamHandle,
)
from formats.storage import LocalStorage, Storage, open_storage

COPY_ELSEWHERE = "if another checkpoint or savepoint has a copy: --search DIR"
"""A hint for a missing file of the checkpoint's own directories."""


MOVED_ELSEWHERE = "neither here nor where Flink looks for it; if it was moved: --search DIR, or --path-map OLD=NEW"
"""A hint for a missing file that `_metadata` names by an absolute path."""


class Folder:
    """One directory.

    only: names at its root that belong to it (None: all), so that a job's directory does not bring its neighbours in.
    """

    def __init__(self, storage: Storage, only: Sequence[str] | None = None) -> None:
        self.storage = storage
        self.only = only
        self._listed: dict[str, dict[str, int | None]] = {}
        self._names: dict[str, list[tuple[str, int]]] | None = None
        root = plain(storage.root)
        if isinstance(storage, LocalStorage):
            absolute = os.path.abspath(storage.root)
            self.roots: tuple[str, ...] = tuple(dict.fromkeys((absolute, os.path.realpath(absolute))))
        else:
            self.roots = (root,)

    def names(self, path: str) -> dict[str, int | None]:
        """What is in a directory: name -> bytes, None for a directory. What leads out of the root is left out."""
        sizes = self._listed.get(path)
        if sizes is None:
            try:
                entries = self.storage.list(path)
            except UnsafePath:
                entries = []
            sizes = {e.name: e.size for e in entries if path or self.only is None or e.name in self.only}
            self._listed[path] = sizes
        return sizes

    def size(self, path: str) -> int | None:
        folder, _, name = path.rpartition("/")
        if folder and self._listed.get(folder) is None and not self.has_folder(folder):
            return None
        return self.names(folder).get(name)

    def has_folder(self, path: str) -> bool:
        """Whether a directory is there, by its parents' lists, so that nothing is asked of what is not."""
        at = ""
        for part in path.split("/"):
            names = self.names(at)
            if part not in names or names[part] is not None:
                return False
            at = f"{at}/{part}" if at else part
        return True

    def walk(self, path: str = "") -> dict[str, int]:
        """Every file at or below a directory: path from the root -> bytes."""
        files: dict[str, int] = {}
        stack = [path]
        while stack:
            at = stack.pop()
            for name, size in self.names(at).items():
                full = f"{at}/{name}" if at else name
                if size is None:
                    stack.append(full)
                else:
                    files[full] = size
        return files

    def named(self, name: str) -> Sequence[tuple[str, int]]:
        if self._names is None:
            self._names = {}
            for path, size in sorted(self.walk().items()):
                self._names.setdefault(path.rsplit("/", 1)[-1], []).append((path, size))
        return self._names.get(name, ())


def _look_on_this_machine(path: str) -> tuple[bool, int | None]:
    if not path.startswith("/") or "\0" in path:
        return False, None
    try:
        there = os.stat(path)
    except (OSError, ValueError):
        return os.path.isdir(os.path.dirname(path)), None
    return True, there.st_size if stat.S_ISREG(there.st_mode) else None


class NotLookedAt(NotFound):
    """A file outside of the directories that the user named: whether it is there is not known."""


class FolderStreams:
    """The streams of one snapshot (`files.streams.Streams`).

    home: directory of its `_metadata` in folder 0.
    """

    def __init__(self, home: str, folders: Sequence[Folder], maps: Sequence[PathMap] = (), kryo: int = 5) -> None:
        self.home = home
        self.kryo = kryo
        self.folders = tuple(folders)
        self.maps = tuple(maps)
        self.on_read: Callable[[int], None] | None = None
        """Told the bytes of each read, for who waits."""
        self._places: dict[FileLike, Place | None] = {}
        self._outside: dict[FileLike, tuple[bool, int | None]] = {}
        self._servers: dict[str, Folder] = {}

    def place(self, handle: FileLike) -> Place | None:
        """Where the handle's file lies; None if nowhere."""
        if handle not in self._places:
            place = resolve(handle, self.home, self.folders, self.maps)
            if place is not None and place.how is not How.WRITTEN and not isinstance(handle, RelativeHandle):
                _, size = self._look_where_written(plain(handle.path))
                if size is not None and fits(handle, size):
                    place = replace(place, how=How.COPIED)
            self._places[handle] = place
        return self._places[handle]

    def outside(self, handle: FileLike) -> tuple[bool, int | None]:
        """Look for a file outside of the directories that were named: was that possible, and its bytes if it exists.

        A path of this machine, or of the bucket in which the checkpoint is, is looked at by its name alone, and never
        opened. A path of another machine, bucket or mount is not looked at.
        """
        if handle not in self._outside:
            self._outside[handle] = self._look(handle)
        return self._outside[handle]

    def _look(self, handle: FileLike) -> tuple[bool, int | None]:
        if isinstance(handle, RelativeHandle) or is_named(handle.path, self.folders, self.maps):
            return True, None
        looked, size = self._look_where_written(plain(handle.path))
        return looked or covers(handle.path, self.folders), size

    def _look_where_written(self, path: str) -> tuple[bool, int | None]:
        """Look for a file where Flink looks for it. path: absolute, outside of the directories that were named."""
        if isinstance(self.folders[0].storage, LocalStorage):
            return _look_on_this_machine(path)
        server = server_of(path)
        if server is None or server not in {server_of(root) for folder in self.folders for root in folder.roots}:
            return False, None
        folder, _, name = path.removeprefix(f"{server}/").rpartition("/")
        try:
            # The same bucket, so that the same credentials are used. One list per directory, however many files.
            if server not in self._servers:
                self._servers[server] = Folder(open_storage(server))
            return True, self._servers[server].names(folder).get(name)
        except FormatError:  # only a part of the bucket may be read
            return False, None

    def look_for(self, path: str) -> tuple[bool, int | None]:
        """Look for a file that is not of the snapshot, such as of a sink, in directories that the user named.

        path: plain and absolute. Returns whether the file would be in one of them, and its bytes if it is.
        """
        looked = False
        for folder, below in self._named(path):
            looked = True
            if is_plain(below) and (size := folder.size(below)) is not None:
                return True, size
        return looked, None

    def names_in(self, directory: str) -> Collection[str]:
        """Return the names in a directory that is not of the snapshot; none if the user did not name it."""
        for folder, below in self._named(directory):
            if not below or (is_plain(below) and folder.has_folder(below)):
                return folder.names(below)
        return ()

    def read_named(self, path: str, most: int) -> bytes:
        """Read at most so many bytes of a file that is not of the snapshot; FormatError."""
        for folder, below in self._named(path):
            if is_plain(below) and folder.size(below) is not None:
                return folder.storage.read(below, 0, most)
        raise NotFound("does not exist", path=path)

    def _named(self, path: str) -> Iterator[tuple[Folder, str]]:
        """Yield the directories, besides the store, in which a path would be, with the path in each."""
        moved = [m.new + path[len(m.old) :] for m in self.maps if path.startswith(f"{m.old}/")]
        for folder in self.folders[1:]:
            for root in folder.roots:
                for where in (path, *moved):
                    if where == root or where.startswith(f"{root}/"):
                        yield folder, where[len(root) + 1 :]

    def fits(self, handle: FileLike, place: Place) -> bool:
        """Whether the file at a place has the size that the handle says. One of changes says by its first byte whether
        it is compressed, and then its size says nothing."""
        if not fits(handle, place.bytes) or not of_changes(handle) or place.bytes == file_size(handle):
            return fits(handle, place.bytes)
        return self.folders[place.folder].storage.read(place.path, 0, 1) != b"\0"

    def read(self, handle: StreamHandle, offset: int = 0, length: int | None = None) -> bytes:
        if isinstance(handle, InlineHandle):
            return handle.data[offset:] if length is None else handle.data[offset : offset + length]
        if isinstance(handle, EmptySegmentHandle):
            return b""
        if isinstance(handle, KeyGroupsHandle):
            return self.read(handle.stream, offset, length) if handle.stream is not None else b""
        place = self.place(handle)
        if place is None:
            looked, there_is = self.outside(handle)
            if looked and there_is is None:
                raise Damaged("is not there", path=self.name(handle), hint=self.hint(handle))
            message = "was not opened: it lies outside of the directories that were named"
            raise NotLookedAt(message, path=self.name(handle), hint=self.hint(handle))
        start = handle.start if isinstance(handle, SegmentHandle) else 0
        whole = place.bytes if of_changes(handle) else handle.size
        there = min(place.bytes - start, whole) - offset  # what a file has grown by was not written by Flink
        wanted = there if length is None else min(length, there)  # a length from a file may be any number
        if offset < 0 or wanted <= 0:
            return b""
        if self.on_read is not None:
            self.on_read(wanted)
        return self.folders[place.folder].storage.read(place.path, start + offset, wanted)

    def size(self, handle: StreamHandle) -> int | None:
        if isinstance(handle, InlineHandle | EmptySegmentHandle):
            return handle.size
        if isinstance(handle, KeyGroupsHandle):
            return self.size(handle.stream) if handle.stream is not None else 0
        place = self.place(handle)
        if place is None:
            return None
        if isinstance(handle, SegmentHandle):
            return max(min(handle.size, place.bytes - handle.start), 0)
        return place.bytes

    def name(self, handle: StreamHandle) -> str:
        if isinstance(handle, InlineHandle | EmptySegmentHandle):
            return f"{self.home}/_metadata" if self.home else "_metadata"
        if isinstance(handle, KeyGroupsHandle):
            return self.name(handle.stream) if handle.stream is not None else "_metadata"
        place = self.place(handle)
        if place is not None:
            return self.shown(place)
        if isinstance(handle, FileLike) and not handle.path.startswith("/") and ":" not in handle.path:
            return f"{self.home}/{handle.path}" if self.home else handle.path
        return handle.path

    def shown(self, place: Place) -> str:
        """What messages call a file: relative in the store itself, whole in other directories."""
        return place.path if place.folder == 0 else f"{self.folders[place.folder].storage.root}/{place.path}"

    def hint(self, handle: FileLike) -> str:
        """Return what the user can do about a missing file."""
        if ":" in handle.path or handle.path.startswith("/"):
            looked, size = (True, None) if self.place(handle) is not None else self.outside(handle)
            if looked and size is None:
                return MOVED_ELSEWHERE
            return f"it is in no directory that was named: --search {directory_of(handle.path)}, or --path-map OLD=NEW"
        return COPY_ELSEWHERE
