"""What a store's bytes lie in: a few methods, the same on a local file system, in memory and in a bucket.

The consistency contract: after `put` returns, the file is whole, durable and visible under its name, to `read` and to
`list`; before, no reader sees a part of it. A crash leaves the old state or the new one. `put` without `replace` never
overwrites: of any number that put one name at once, on any hosts, one succeeds. Where `put` raises Unreachable it is
not known whether the file is there.
Paths are relative, with `/`; one that leads out of the root raises UnsafePath. Nothing else than whole files is
written, and no clock is compared: `tests/formats/storage/` holds every place to this.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from formats.errors import FormatError, UnsafePath


class Entry(NamedTuple):
    """One name in a directory; size in bytes, None for a directory."""

    name: str
    size: int | None


class Written(NamedTuple):
    """A file with its size in bytes, and when it was last written (seconds since 1970, by the clock of the place)."""

    path: str
    bytes: int
    written: float


class Version(NamedTuple):
    """Which bytes a file has: where it is rewritten, it has another one.

    bytes: its size.
    tag: of the server's, without a blank.
    """

    bytes: int
    tag: str


class Putting(Protocol):
    """What files can be put into."""

    def put(self, path: str, data: bytes | memoryview, *, replace: bool = False) -> None:
        """Make a whole file appear, durably and in one step; FileExistsError unless `replace`."""


class Storage(Putting, Protocol):
    """The byte-level interface; see the module for the contract."""

    @property
    def root(self) -> str:
        """What messages call it."""

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """The bytes of a file, or a slice of them; NotFound if there is no such file."""

    def list(self, path: str) -> list[Entry]:
        """The names in a directory, sorted; empty if there is none. Names of unfinished writes are left out."""

    def size(self, path: str) -> int | None:
        """Size in bytes of a file; None if there is no such file (a directory or a pipe is none)."""

    def delete(self, path: str) -> None:
        """Remove a file, and its directory when that is empty; nothing if it is not there."""


@runtime_checkable
class WritableStorage(Storage, Protocol):
    """Where a store can be kept up, not only read."""

    def is_taken(self, path: str) -> bool:
        """Whether anything lies there, be it a file, a folder or a link that leads nowhere."""

    def inventory(self) -> Sequence[Written]:
        """Every file below the root, unfinished writes among them; symbolic links are not followed."""

    def move(self, path: str, to: str) -> None:
        """Give what lies there, whatever it is, another name, durably; FileExistsError if something has that name. A
        crash may leave it under both names."""


@runtime_checkable
class ServedStorage(WritableStorage, Protocol):
    """What servers have, in a bucket or on HDFS: each question goes there and back."""

    def below(self, path: str, *, after: str | None = None) -> Sequence[Written]:
        """Every file in a folder and in those within it, unfinished writes among them.

        after: only those whose names come behind this one.
        """

    def written(self, path: str) -> float | None:
        """When a file was last written, as seconds since 1970 by the server's clock; None if there is no such file."""

    def version(self, path: str) -> Version | None:
        """Which bytes a file has; None if there is no such file."""

    def versions(self, path: str) -> Sequence[tuple[str, Version | None]]:
        """The names in a directory, sorted, each with which bytes it has; None for a directory. Names of unfinished
        writes are left out."""

    def read_version(self, path: str, offset: int, length: int) -> tuple[bytes, Version]:
        """A slice of a file, of one byte at least, and which version of it that is of; NotFound."""

    def delete_all(self, paths: Iterable[str]) -> None:
        """As `delete`, of many at once."""

    def put_parts(self, path: str, pieces: Iterable[bytes], size: int | None = None) -> None:
        """Make a file of these pieces appear in one step, sent bit by bit, so that it may be larger than memory;
        whatever had the name is gone. If the pieces raise, nothing has changed.

        size: of all, where it is known.
        """

    def check_exclusive(self) -> None:
        """FormatError for a server that lets the same name be created twice: a store there would have two owners."""


def probe_exclusive(storage: WritableStorage) -> None:
    """FormatError for a place that lets the same name be created twice."""
    probe = f"{UNFINISHED}probe-{secrets.token_hex(8)}"
    storage.put(probe, b"1")
    try:
        storage.put(probe, b"2")
    except FileExistsError:
        return
    finally:
        storage.delete(probe)
    raise FormatError(
        "the server there lets a second writer create what is there already (an object store that does not hold to "
        "If-None-Match): two attempts could both complete an epoch",
        path=storage.root,
        hint="keep the store in a directory, on HDFS, or on an object store with conditional writes",
    )


def check_path(path: str) -> str:
    """`path` itself if it is relative and stays below the root; UnsafePath otherwise."""
    doubtful = not path or path[0] in "/." or path[-1] == "/" or "/." in path or "//" in path
    if "\\" in path or "\0" in path or (doubtful and any(part in ("", ".", "..") for part in path.split("/"))):
        raise UnsafePath(
            f"{path!r} is not a plain relative path",
            hint="the file that names it was not written by abs; do not trust this store",
        )
    return path


UNFINISHED = ".tmp-"
"""Names that begin so are no files of a store yet, or not any more."""


AT_ONCE = 32
"""Requests to servers that are under way at once."""


REACH = "are the URI, the network and the credentials right?"


def always() -> None:
    """Nothing is in the way of a file's getting its name. A function with a name: storages go to other processes."""
