"""The files that sources read: on this machine, relative to the job file, or by their URI in a bucket or on HDFS.

In a bucket nothing is appended to: a file that has grown was put anew, and has another version. Each request says of
which version its bytes are, so that no two are mixed.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import glob
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from formats.errors import FormatError, NotFound
from formats.storage import (
    AT_ONCE,
    HdfsStorage,
    LocalStorage,
    ObjectStorage,
    Slices,
    Version,
    local_name,
    open_storage,
)

if TYPE_CHECKING:
    import pyarrow as pa

AHEAD = 8 << 20
"""Bytes of a file that is read from the beginning on which one request to a server asks for, at least."""

AHEAD_OF_ROWS = 256 << 10
"""The same of a file whose reader goes from place to place."""


class Status(NamedTuple):
    """How a file stands.

    size: in bytes.
    modified: in nanoseconds; None where a server says which version it is.
    tag: that version.
    number: of the file itself, whatever is written to it; None where a server has it.
    """

    size: int
    modified: int | None = None
    tag: str | None = None
    number: int | None = None


class InputFile(Protocol):
    """A file that is open, from its beginning on; what is wrong with it is an OSError."""

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes; fewer only at its end."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Go there."""

    def tell(self) -> int:
        """Where it is."""

    def fileno(self) -> int:
        """Of the file system."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


def is_uri(path: str) -> bool:
    """Whether a path of a source leads to a server."""
    return "://" in local_name(path)


def path_of(directory: str, split: str) -> str:
    """Where a split lies. directory: of the job file."""
    return split if is_uri(split) else os.path.join(directory, local_name(split))


def matching_files(pattern: str, directory: str) -> dict[str, Status]:
    """The files that match, sorted, and how they stand: relative to the job file, or URIs as the pattern begins.
    FormatError for a URI that leads nowhere, and Unreachable."""
    pattern = local_name(pattern)
    if is_uri(pattern):
        root, key = _parted(pattern)
        walk = _walk(_storage(root), "", key.split("/"))
        return {split: _of_version(version) for split, version in sorted((f"{root}/{name}", v) for name, v in walk)}
    paths = sorted(glob.glob(pattern, root_dir=directory, recursive=True))
    status = {path: status_of(os.path.join(directory, path)) for path in paths}
    return {path: stands for path, stands in status.items() if stands is not None}


def fitting(splits: Iterable[str], pattern: str, directory: str) -> set[str]:
    """Those of the splits that a pattern names; of URIs, without asking anybody."""
    splits, pattern = set(splits), local_name(pattern)
    if not is_uri(pattern):
        there = {split for split in splits if not is_uri(split)}
        return there.intersection(glob.iglob(pattern, root_dir=directory, recursive=True)) if there else set()
    own, wanted = _parted(pattern)
    fits = set()
    for split in filter(is_uri, splits):
        root, key = _parted(split)
        if root == own and _fits(key.split("/"), wanted.split("/")):
            fits.add(split)
    return fits


def status_of(path: str) -> Status | None:
    """None where there is no such file; OSError, Unreachable."""
    if not is_uri(path):
        try:
            return of_stat(os.stat(path)) if os.path.isfile(path) else None
        except FileNotFoundError:  # gone meanwhile
            return None
    root, key = _parted(path)
    version = _storage(root).version(key)
    return None if version is None else _of_version(version)


def statuses(paths: Iterable[str]) -> dict[str, Status | None]:
    """Of many, of which servers are asked at once."""
    paths = list(paths)
    if not any(map(is_uri, paths)):
        return {path: status_of(path) for path in paths}
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="abs-ask") as pool:
        return dict(zip(paths, pool.map(status_of, paths), strict=True))


def of_stat(status: os.stat_result) -> Status:
    """What the file system says."""
    return Status(status.st_size, status.st_mtime_ns, number=status.st_ino)


def status_of_open(file: InputFile) -> Status:
    """Of a file that is open."""
    if isinstance(file, ServedFile | UnpackedFile):
        return file.status
    return of_stat(os.fstat(file.fileno()))


def open_file(path: str, ahead: int = AHEAD) -> InputFile:
    """A file, to be read; OSError, Unreachable. ahead: bytes that are asked of a server at least."""
    return ServedFile(path, ahead) if is_uri(path) else open(path, "rb")


def open_text(path: str, ahead: int = AHEAD) -> InputFile:
    """Open a file of text, unpacked if it begins as gzip or Zstandard does. Raises OSError, Unreachable."""
    file = open_file(path, ahead)
    with contextlib.ExitStack() as opened:
        opened.enter_context(file)
        begin = file.read(_MAGIC_BYTES)
        codec = next((codec for magic, codec in _MAGIC.items() if begin.startswith(magic)), None)
        if codec is not None:
            return UnpackedFile(functools.partial(open_file, path, ahead), codec)
        file.seek(0)
        opened.pop_all()
    return file


def arrow_file(path: str) -> pa.NativeFile | str:
    """What Arrow's readers take; OSError, Unreachable."""
    import pyarrow as pa

    return pa.PythonFile(ServedFile(path, AHEAD_OF_ROWS), mode="r") if is_uri(path) else path


_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_MAGIC_BYTES = max(map(len, _MAGIC))
_STEP = 1 << 20
"""Bytes that are unpacked at a time."""
_WINDOW = 4 << 20
"""Bytes before the position that are kept: a reader goes back to the beginning of a record that was not complete."""


class UnpackedFile:
    """The text of a compressed file; positions are bytes of the text. Several streams may follow each other in a file.

    To go back further than the window, the file is opened and unpacked from its beginning again. What is wrong with it
    is an OSError, also a file that ends within a stream.
    """

    def __init__(self, open_packed: Callable[[], InputFile], codec: str) -> None:
        self._open = open_packed
        self._codec = codec
        self._begin()

    def _begin(self) -> None:
        import pyarrow as pa

        self._packed = self._open()
        self._text = pa.CompressedInputStream(pa.PythonFile(self._packed, mode="r"), self._codec)
        self._at, self._first, self._window = 0, 0, bytearray()

    @property
    def status(self) -> Status:
        """How the compressed file stands."""
        return status_of_open(self._packed)

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes of the text; fewer only at its end."""
        while size < 0 or self._first + len(self._window) < self._at + size:
            piece = self._text.read(_STEP)
            if not piece:
                break
            self._window += piece
        begin = self._at - self._first
        data = bytes(self._window[begin : begin + size if size >= 0 else None])
        self._at += len(data)
        old = max(0, begin + len(data) - max(_WINDOW, len(data)))
        del self._window[:old]
        self._first += old
        return data

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Go to a position of the text, or to its end if it is shorter."""
        if whence:
            raise OSError(errno.EINVAL, "positions of a compressed file count from its beginning")
        if offset < self._first:
            self.close()
            self._begin()
        self._at = min(offset, self._first + len(self._window))
        while self._at < offset and self.read(min(_STEP, offset - self._at)):
            pass
        return self._at

    def tell(self) -> int:
        """Return the position in the text."""
        return self._at

    def fileno(self) -> int:
        """Return the descriptor of the compressed file."""
        return self._packed.fileno()

    def close(self) -> None:
        """Close the compressed file."""
        self._text.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()


class ServedFile(Slices):
    """A file in a bucket or on HDFS, of one version; OSError where another one comes."""

    def __init__(self, path: str, ahead: int = AHEAD) -> None:
        root, self._key = _parted(path)
        self._storage = _storage(root)
        self._path = path
        self._ahead = ahead
        with _errors_of_files(path):
            version = self._storage.version(self._key)
        if version is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        super().__init__(version.bytes)
        self._version = version
        self._first, self._buffer = 0, b""

    @property
    def status(self) -> Status:
        """How it stands, as long as it can be read."""
        return _of_version(self._version)

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._size - self._at)
        size = left if size < 0 else min(size, left)
        if size and not self._first <= self._at <= self._at + size <= self._first + len(self._buffer):
            self._fetch(min(max(size, self._ahead), left))
        begin = self._at - self._first
        self._at += size
        return self._buffer[begin : begin + size] if size else b""

    def _fetch(self, length: int) -> None:
        with _errors_of_files(self._path):
            data, version = self._storage.read_version(self._key, self._at, length)
        if version != self._version or len(data) != length:
            raise OSError(errno.ESTALE, "the file was replaced while it was being read", self._path)
        self._first, self._buffer = self._at, data


@contextlib.contextmanager
def _errors_of_files(path: str) -> Iterator[None]:
    try:
        yield
    except NotFound as error:
        if "bucket" in error.message:
            raise
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None


@functools.lru_cache(maxsize=64)
def _storage(root: str) -> ObjectStorage | HdfsStorage:
    storage = open_storage(root)
    if isinstance(storage, LocalStorage):
        raise FormatError("is not a bucket or HDFS URI", path=root)
    return storage


def _parted(uri: str) -> tuple[str, str]:
    """(the bucket, or the authority of HDFS; the path in it)."""
    scheme, _, rest = uri.partition("://")
    authority, _, key = rest.partition("/")
    return f"{scheme}://{authority}", key


def _of_version(version: Version) -> Status:
    return Status(version.bytes, tag=version.tag)


def _walk(
    storage: ObjectStorage | HdfsStorage, folder: str, parts: Sequence[str]
) -> Iterator[tuple[str, Version]]:
    """Files in a folder whose path from there matches, as `glob` has it."""
    part, rest = parts[0], parts[1:]
    lead = f"{folder}/" if folder else ""
    if part == "**":  # no folder, or one and more
        yield from _walk(storage, folder, rest or ["*"])
        for name, version in storage.versions(folder):
            if version is None and _fits([name], ["*"]):
                yield from _walk(storage, lead + name, parts)
    elif not glob.has_magic(part):
        if rest:
            yield from _walk(storage, lead + part, rest)
        elif part and (version := storage.version(lead + part)) is not None:
            yield lead + part, version
    else:
        for name, version in storage.versions(folder):
            if not _fits([name], [part]):
                continue
            if rest and version is None:
                yield from _walk(storage, lead + name, rest)
            elif not rest and version is not None:
                yield lead + name, version


def _fits(names: Sequence[str], parts: Sequence[str]) -> bool:
    if not parts or not names:
        return not parts and not names
    name, part = names[0], parts[0]
    hidden = name.startswith(".") and not part.startswith(".")
    if part == "**":
        if len(parts) == 1:
            return not any(other.startswith(".") for other in names)
        return _fits(names, parts[1:]) or (not hidden and _fits(names[1:], parts))
    return not hidden and fnmatchcase(name, part) and _fits(names[1:], parts[1:])
