"""The input and output of validation: what the files of a store are, in threads, each distinct file once a run."""

from __future__ import annotations

import functools
import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from formats.bounds import too_much
from formats.errors import FormatError
from formats.native.facts import StateFileFacts
from formats.storage import ServedStorage, Storage, StoredFile, concurrently, ranges
from formats.view import FileFacts

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

CHUNK = 8 << 20
"""Bytes read at a time; a file up to this size is read once, a larger one is never whole in memory."""

ROWS = 65_536
"""Rows decoded at a time."""

KEYS = 4096
"""Keys of a state file that are hashed, from the middle of it: a writer that hashes otherwise shows in any of them, and
to hash all takes several times as long as their digest."""


Slice = tuple[int, int]
"""Offset and length."""


class FileProbe(msgspec.Struct, frozen=True):
    """What a file is.

    size None: it is not there; what was not looked at is None, too.
    rows, key_groups (lowest, highest): of a state or log file whose digest holds.
    row_groups: of a state file whose digest holds, by offset the first and last key group and the rows.
    slices: SHA-256 of the row groups and of the footer that facts name, by offset and length, whether or not the
    file's own holds.
    strays: of the KEYS keys that were hashed, how many stand in a key group that is not their hash's.
    error: why it could not be read.
    """

    path: str
    size: int | None
    sha256: str | None = None
    rows: int | None = None
    key_groups: tuple[int, int] | None = None
    strays: int | None = None
    error: str | None = None
    row_groups: dict[int, tuple[int, int, int]] | None = None
    slices: dict[Slice, str] = {}


Key = tuple[str, str | None]
"""Path and digest: what a file is called, and what it should be."""


class Prober:
    """Looks at files. quick: presence and size alone; progress: called with the bytes of every chunk, by any thread
    but one at a time; expected: with the bytes that are about to be read of files elsewhere; decode: also what is in
    state and logs."""

    def __init__(
        self, storage: Storage, *, quick: bool = False, progress: Callable[[int], None] | None = None,
        expected: Callable[[int], None] = lambda count: None, decode: bool = True,
    ) -> None:  # fmt: skip
        self.storage = storage
        self.quick = quick
        self._decodes = decode
        self._progress = progress
        self._expected = expected
        self._lock = threading.Lock()
        self._known: dict[Key, FileProbe] = {}
        self._sliced: dict[Key, set[Slice]] = {}

    def probe(
        self, files: Iterable[FileFacts], *, quick: bool | None = None,
        widths: Mapping[str, int] = MappingProxyType({}), most: int | None = None,
    ) -> dict[str, FileProbe]:
        """By path. A file is read only if its size is what was written, decoded only if its digest is.

        quick: other than the prober's own, for fact files, which are read in any case; widths: by path of a state file
        the number of key groups, where it is known; most: bytes of a file beyond which it is not read.
        """
        quick = self.quick if quick is None else quick
        wanted: dict[Key, set[Slice]] = {}
        sizes: dict[Key, FileFacts] = {}
        for file in files:
            key = file.path, file.sha256
            sizes[key] = file
            # Of one file several tasks may each name the row groups that are theirs.
            wanted.setdefault(key, set()).update(_slices(file))
        new = [
            (sizes[key], sorted(slices))
            for key, slices in wanted.items()
            if key not in self._known or not (quick or slices <= self._sliced[key])
        ]
        look = functools.partial(self._probe, quick=quick, widths=widths, most=most)
        if len(new) > 1 and not quick and not isinstance(self.storage, ServedStorage):
            with ThreadPoolExecutor(min(len(new), 2 * (os.cpu_count() or 1))) as pool:
                probes = list(pool.map(look, *zip(*new, strict=True)))
        else:
            probes = concurrently(self.storage, lambda one: look(*one), new)
        for (file, slices), probe in zip(new, probes, strict=True):
            self._known[file.path, file.sha256] = probe
            self._sliced[file.path, file.sha256] = set(slices)
        return {path: self._known[path, sha256] for path, sha256 in wanted}

    def beside(self, storage: Storage, files: Iterable[FileFacts]) -> dict[str, FileProbe]:
        """Looks, as at files of its own, at some elsewhere: a sink's, which may be Parquet and are no state."""
        wanted = list(files)
        if not self.quick:
            self._expected(sum(file.bytes or 0 for file in wanted))
        return Prober(storage, quick=self.quick, progress=self._progress, decode=False).probe(wanted)

    def forget(self, path: str) -> None:
        """Look at a file again the next time that it is asked for."""
        self._known = {key: probe for key, probe in self._known.items() if key[0] != path}

    def _probe(
        self, file: FileFacts, slices: Sequence[Slice], *, quick: bool, widths: Mapping[str, int], most: int | None
    ) -> FileProbe:
        try:
            size = ranges.size(self.storage, file.path)
            if quick or size is None or (file.bytes is not None and size != file.bytes):
                return FileProbe(file.path, size)
            if most is not None and size > most:
                return FileProbe(file.path, size, error=f"has {size} bytes, at most {most} are read of such a file")
            sha256, sliced, data = self._digest(file.path, slices)
        except (FormatError, OSError) as error:
            return FileProbe(file.path, None, error=_reason(error))
        if sha256 != file.sha256:
            return FileProbe(file.path, size, sha256, slices=sliced)
        try:
            decoded = self._decode(file.path, size, data, widths.get(file.path))
        except ImportError:  # a missing package is no damage
            raise
        except Exception as error:  # whatever a crafted file makes the decoders raise is a finding
            return FileProbe(file.path, size, sha256, error=_reason(error))
        return msgspec.structs.replace(decoded, sha256=sha256, slices=sliced)

    def _digest(self, path: str, slices: Sequence[Slice]) -> tuple[str, dict[Slice, str], bytes | None]:
        """SHA-256 of a file and of slices of it, and its bytes where they are one chunk."""
        sha, offset = hashlib.sha256(), 0
        parts = [(start, start + length, hashlib.sha256()) for start, length in slices]
        while True:
            chunk = ranges.read(self.storage, path, offset, CHUNK)
            sha.update(chunk)
            view = memoryview(chunk)
            for start, stop, part in parts:
                if start < offset + len(chunk) and stop > offset:
                    part.update(view[max(0, start - offset) : stop - offset])
            if self._progress is not None:
                with self._lock:
                    self._progress(len(chunk))
            if len(chunk) < CHUNK:
                sliced = {(start, stop - start): part.hexdigest() for start, stop, part in parts}
                return sha.hexdigest(), sliced, chunk if offset == 0 else None
            offset += len(chunk)

    def _decode(self, path: str, size: int, data: bytes | None, width: int | None) -> FileProbe:
        """What is in it."""
        if not self._decodes or not path.endswith((".parquet", ".arrow")):
            return FileProbe(path, size)
        import pyarrow as pa

        slices = StoredFile(self.storage, path, size)
        source = pa.PythonFile(slices, mode="r") if data is None else pa.BufferReader(data)
        if path.endswith(".arrow"):
            return FileProbe(path, size, rows=_log(source))
        import pyarrow.parquet as pq

        from formats.native.state.guards import check_row_groups

        file = pq.ParquetFile(source)
        check_row_groups(file.metadata, path)
        row_groups = _state(file)
        rows = sum(count for _, _, count in row_groups.values())
        filled = [(first, last) for first, last, count in row_groups.values() if count]
        key_groups = (min(first for first, _ in filled), max(last for _, last in filled)) if filled else None
        strays = _strays(file, width) if width is not None and rows else None
        return FileProbe(path, size, rows=rows, key_groups=key_groups, strays=strays, row_groups=row_groups)


def _slices(file: FileFacts) -> Iterator[Slice]:
    """What facts name of a state file with a digest of its own."""
    if isinstance(file, StateFileFacts):
        yield from ((group.offset, group.bytes) for group in file.row_groups)
        if file.bytes is not None:
            yield file.footer.offset, file.bytes - file.footer.offset


def _state(file: pq.ParquetFile) -> dict[int, tuple[int, int, int]]:
    """Of each row group of a state file, by offset, the lowest and the highest key group, and the rows."""
    import pyarrow.compute as pc

    from formats.native.state.row_groups import spans
    from formats.native.state.tables import KEY_GROUP

    row_groups = {}
    for number, place in enumerate(spans(file.metadata)):
        rows, lowest, highest = 0, 2**31 - 1, 0
        for batch in file.iter_batches(batch_size=ROWS, columns=[KEY_GROUP], row_groups=[number]):
            column = batch.column(KEY_GROUP)
            if column.null_count:
                raise ValueError(f"{column.null_count} rows have no {KEY_GROUP}")
            seen = pc.min_max(column).as_py()
            rows, lowest, highest = rows + len(column), min(lowest, seen["min"]), max(highest, seen["max"])
        row_groups[place.start] = (lowest, highest, rows)
    return row_groups


def _strays(file: pq.ParquetFile, width: int) -> int:
    """Rows, of KEYS from the middle of a state file, whose key group is not that of their key."""
    import pyarrow as pa

    from formats.native.hashing import key_groups
    from formats.native.state.tables import KEY_GROUP, as_written, key_columns

    schema = as_written(file.schema_arrow.empty_table()).schema
    names = key_columns(file.schema_arrow).placing
    if not names:
        raise ValueError("it names no key columns")
    middle = file.num_row_groups // 2
    batch = next(file.iter_batches(batch_size=KEYS, row_groups=[middle], columns=[KEY_GROUP, *names]))
    table = as_written(pa.Table.from_batches([batch]), schema).combine_chunks()
    hashed = key_groups([table.column(name).chunk(0) for name in names], width)
    return int((hashed != table.column(KEY_GROUP).to_numpy()).sum())


def _log(source: pa.NativeFile) -> int:
    """Rows of a log file."""
    import pyarrow as pa

    reader = pa.ipc.open_file(source)
    return sum(int(reader.get_batch(i).num_rows) for i in range(reader.num_record_batches))


def _reason(error: Exception) -> str:
    """One line: Arrow's messages go on for pages."""
    if isinstance(error, MemoryError):
        return too_much()
    message = error.message if isinstance(error, FormatError) else str(error)
    return (message.splitlines() or [""])[0][:200] or type(error).__name__
