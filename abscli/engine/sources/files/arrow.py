"""Files of Arrow: the file format with its footer, and the stream format without."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate

import pyarrow as pa
import pyarrow.ipc as ipc

from abscli.engine.sources.files.input_files import AHEAD_OF_ROWS, arrow_file, is_uri, open_file
from abscli.engine.sources.files.row_files import RowFile, plain_types

_MAGIC = b"ARROW1"


def open_arrow(path: str, columns: list[str] | None) -> RowFile:
    """See `OpenRowFile`."""
    with open_file(path, AHEAD_OF_ROWS) as file:
        begins = file.read(len(_MAGIC))
    return _Batches(path, columns) if begins == _MAGIC else _Stream(path, columns)


class _Batches:
    """The file format: batches are found by their number."""

    def __init__(self, path: str, columns: list[str] | None) -> None:
        self._map = _mapped(path)
        schema = ipc.open_file(self._map).schema
        self._schema = plain_types(schema)
        one, own = _fields(schema, columns)
        counted = ipc.open_file(self._map, options=ipc.IpcReadOptions(included_fields=one))
        self._ends = list(accumulate(counted.get_batch(i).num_rows for i in range(counted.num_record_batches)))
        self.rows = self._ends[-1] if self._ends else 0
        self._reader = ipc.open_file(self._map, options=ipc.IpcReadOptions(included_fields=own))
        self._batch: tuple[int, pa.RecordBatch] | None = None

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def read(self, start: int, most: int) -> pa.RecordBatch:
        """See `RowFile`."""
        number = bisect_right(self._ends, start)
        if self._batch is None or self._batch[0] != number:
            self._batch = number, self._reader.get_batch(number)
        return self._batch[1].slice(start - (self._ends[number - 1] if number else 0), most)

    def close(self) -> None:
        """See `RowFile`."""
        self._batch = None
        self._map.close()


class _Stream:
    """The stream format: batches come one after the other."""

    def __init__(self, path: str, columns: list[str] | None) -> None:
        self._map = _mapped(path)
        schema = ipc.open_stream(self._map).schema
        self._schema = plain_types(schema)
        one, self._fields = _fields(schema, columns)
        self.rows = sum(batch.num_rows for batch in self._from_start(one))
        self._left: Iterator[pa.RecordBatch] = iter(())
        self._batch: pa.RecordBatch | None = None
        self._first = self.rows

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def read(self, start: int, most: int) -> pa.RecordBatch:
        """See `RowFile`."""
        if self._batch is None or start < self._first:
            self._left, self._first = self._from_start(self._fields), 0
            self._batch = next(self._left)
        while start >= self._first + self._batch.num_rows:
            self._first += self._batch.num_rows
            self._batch = next(self._left)
        return self._batch.slice(start - self._first, most)

    def _from_start(self, fields: list[int]) -> Iterator[pa.RecordBatch]:
        self._map.seek(0)
        return iter(ipc.open_stream(self._map, options=ipc.IpcReadOptions(included_fields=fields)))

    def close(self) -> None:
        """See `RowFile`."""
        self._batch = None
        self._map.close()


def _mapped(path: str) -> pa.NativeFile:
    return arrow_file(path) if is_uri(path) else pa.memory_map(path)


def _fields(schema: pa.Schema, columns: list[str] | None) -> tuple[list[int], list[int]]:
    """(one field, by which rows are counted without reading the others; the numbers of the columns, none: all)."""
    names = schema.names
    wanted = [] if columns is None else [names.index(name) for name in columns if name in names]
    return [0] if names else [], wanted
