"""The input and output of validation: what the files of a store are, in threads, each distinct file once a run."""

from __future__ import annotations

import functools
import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from formats.bounds import too_much
from formats.errors import FormatError
from formats.storage import Storage, StoredFile
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


class FileProbe(msgspec.Struct, frozen=True):
    """What a file is.

    size None: it is not there; what was not looked at is None, too.
    rows, key_groups (lowest, highest): of a state or log file whose digest holds.
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


class Prober:
    """Looks at files. quick: presence and size alone; progress: called with the bytes of every chunk, by any thread
    but one at a time."""

    def __init__(
        self, storage: Storage, *, quick: bool = False, progress: Callable[[int], None] | None = None
    ) -> None:
        self.storage = storage
        self.quick = quick
        self._progress = progress
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str | None], FileProbe] = {}

    def probe(
        self, files: Iterable[FileFacts], *, quick: bool | None = None, widths: Mapping[str, int] = MappingProxyType({})
    ) -> dict[str, FileProbe]:
        """By path. A file is read only if its size is what was written, decoded only if its digest is.

        quick: other than the prober's own, for fact files, which are read in any case; widths: by path of a state file
        the number of key groups, where it is known.
        """
        quick = self.quick if quick is None else quick
        wanted = {(file.path, file.sha256): file for file in files}
        new = [file for key, file in wanted.items() if key not in self._known]
        if len(new) > 1 and not quick:
            with ThreadPoolExecutor(min(len(new), 2 * (os.cpu_count() or 1))) as pool:
                probes = list(pool.map(functools.partial(self._probe, quick=quick, widths=widths), new))
        else:
            probes = [self._probe(file, quick=quick, widths=widths) for file in new]
        self._known.update({(file.path, file.sha256): probe for file, probe in zip(new, probes, strict=True)})
        return {path: self._known[path, sha256] for path, sha256 in wanted}

    def beside(self, storage: Storage) -> Prober:
        """One that looks as this one does, at files elsewhere."""
        return Prober(storage, quick=self.quick, progress=self._progress)

    def forget(self, path: str) -> None:
        """Look at a file again the next time that it is asked for."""
        self._known = {key: probe for key, probe in self._known.items() if key[0] != path}

    def _probe(self, file: FileFacts, *, quick: bool, widths: Mapping[str, int]) -> FileProbe:
        try:
            size = self.storage.size(file.path)
            if quick or size is None or (file.bytes is not None and size != file.bytes):
                return FileProbe(file.path, size)
            sha256, data = self._digest(file.path)
        except (FormatError, OSError) as error:
            return FileProbe(file.path, None, error=_reason(error))
        if sha256 != file.sha256:
            return FileProbe(file.path, size, sha256)
        try:
            rows, key_groups, strays = self._decode(file.path, size, data, widths.get(file.path))
        except Exception as error:  # whatever a crafted file makes the decoders raise is a finding
            return FileProbe(file.path, size, sha256, error=_reason(error))
        return FileProbe(file.path, size, sha256, rows, key_groups, strays)

    def _digest(self, path: str) -> tuple[str, bytes | None]:
        """SHA-256 of a file, and its bytes where they are one chunk."""
        sha, offset = hashlib.sha256(), 0
        while True:
            chunk = self.storage.read(path, offset, CHUNK)
            sha.update(chunk)
            if self._progress is not None:
                with self._lock:
                    self._progress(len(chunk))
            if len(chunk) < CHUNK:
                return sha.hexdigest(), chunk if offset == 0 else None
            offset += len(chunk)

    def _decode(
        self, path: str, size: int, data: bytes | None, width: int | None
    ) -> tuple[int | None, tuple[int, int] | None, int | None]:
        """Rows, key groups and strays."""
        if not path.endswith((".parquet", ".arrow")):
            return None, None, None
        import pyarrow as pa

        slices = StoredFile(self.storage, path, size)
        source = pa.PythonFile(slices, mode="r") if data is None else pa.BufferReader(data)
        if path.endswith(".arrow"):
            return _log(source), None, None
        import pyarrow.parquet as pq

        from formats.native.guards import check_row_groups

        file = pq.ParquetFile(source)
        check_row_groups(file.metadata, path)
        rows, key_groups = _state(file)
        return rows, key_groups, _strays(file, width) if width is not None and rows else None


def _state(file: pq.ParquetFile) -> tuple[int, tuple[int, int] | None]:
    """Rows of a state file, and its lowest and highest key group."""
    import pyarrow.compute as pc

    from formats.native.tables import KEY_GROUP

    rows, lowest, highest = 0, None, None
    for batch in file.iter_batches(batch_size=ROWS, columns=[KEY_GROUP]):
        column = batch.column(KEY_GROUP)
        if column.null_count:
            raise ValueError(f"{column.null_count} rows have no {KEY_GROUP}")
        rows += len(column)
        seen = pc.min_max(column).as_py()
        lowest = seen["min"] if lowest is None else min(lowest, seen["min"])
        highest = seen["max"] if highest is None else max(highest, seen["max"])
    return rows, None if lowest is None or highest is None else (lowest, highest)


def _strays(file: pq.ParquetFile, width: int) -> int:
    """Rows, of KEYS from the middle of a state file, whose key group is not that of their key."""
    import pyarrow as pa

    from formats.native.hashing import key_groups
    from formats.native.tables import KEY_GROUP, as_written, key_columns

    schema = as_written(file.schema_arrow.empty_table()).schema
    names = key_columns(file.schema_arrow)
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
