"""Part files by the type of their sink: JSON lines, CSV and Parquet. Each can be read alone, and its bytes depend on
its rows and their order, not on how they were cut into batches."""

from __future__ import annotations

import base64
import contextlib
import hashlib
from abc import ABC, abstractmethod
from typing import IO

import pyarrow as pa

from abscli.engine.errors import JobFailed
from abscli.engine.sinks.json_lines import iso_durations, json_lines
from formats.disk import writing

ROWS = 65_536
"""Of a row group of Parquet, but for the last of a part."""


class PartFile(ABC):
    """Rows on their way to a file, which is counted and digested as it is written.

    file: takes the bytes. name: what messages call it. sink: what they call the sink.
    """

    def __init__(self, file: IO[bytes], name: str, sink: str) -> None:
        self.file = file
        self.rows = 0
        self.bytes = 0
        self._name = name
        self._sink = sink
        self._digest = hashlib.sha256()

    @property
    def sha256(self) -> str:
        """Of what has been written."""
        return self._digest.hexdigest()

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows; JobFailed where a file of this type cannot hold them."""
        self._write(batch)
        self.rows += batch.num_rows

    @abstractmethod
    def _write(self, batch: pa.RecordBatch) -> None: ...

    def finish(self) -> None:  # noqa: B027 — most files end with their last row
        """Write what stands behind the last row."""

    def abandon(self) -> None:  # noqa: B027
        """It will never be a part."""

    def put(self, data: bytes | memoryview) -> None:
        """More bytes."""
        with writing(self._name, len(data)):
            self.file.write(data)
        self._digest.update(data)
        self.bytes += len(data)


class JsonLinesPart(PartFile):
    """An object a line: columns in order, nulls kept, NaN and infinities by name."""

    def _write(self, batch: pa.RecordBatch) -> None:
        for data in json_lines(batch):
            self.put(data)


class TablePart(PartFile):
    """A file with one set of columns, that of its first rows. TYPE: what messages call it."""

    TYPE = ""
    _schema: pa.Schema | None = None

    def _write(self, batch: pa.RecordBatch) -> None:
        if self._schema is None:
            self._schema = batch.schema.remove_metadata()
            self._check(self._schema)
        elif not batch.schema.equals(self._schema):
            raise JobFailed(
                f"sink {self._sink}: rows with columns {_columns(batch.schema)} after rows with "
                f"{_columns(self._schema)}: all rows of a {self.TYPE} file must have the same columns",
                hint="use a separate sink for each kind of row, or write the rows as jsonl",
            )
        self._append(batch)

    def _check(self, schema: pa.Schema) -> None:
        """JobFailed for columns that a file of this type cannot hold."""
        names = schema.names
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise JobFailed(
                f"sink {self._sink}: two columns are called {twice!r}", hint="give each column a unique name"
            )

    def _cannot_hold(self, schema: pa.Schema, error: Exception) -> JobFailed:
        message = f"sink {self._sink}: a {self.TYPE} file cannot hold columns {_columns(schema)}: {error}"
        return JobFailed(message, hint="write the rows as jsonl")

    @abstractmethod
    def _append(self, batch: pa.RecordBatch) -> None: ...


class CsvPart(TablePart):
    """A line with the columns' names, then one for each row; null is nothing at all, empty text is `""`.

    Times with a zone are in UTC, durations in ISO 8601, bytes in Base64.
    """

    TYPE = "CSV"

    def _check(self, schema: pa.Schema) -> None:
        super()._check(schema)
        if nested := [field.name for field in schema if pa.types.is_nested(field.type)]:
            message = f"sink {self._sink}: column {nested[0]} is nested, which CSV cannot hold"
            raise JobFailed(message, hint="write the rows as jsonl or parquet")

    def _append(self, batch: pa.RecordBatch) -> None:
        from pyarrow import csv

        options = csv.WriteOptions(include_header=not self.rows)
        buffer = pa.BufferOutputStream()
        try:
            csv.write_csv(as_text(batch), buffer, options)
        except pa.ArrowException as error:
            raise self._cannot_hold(batch.schema, error) from None
        self.put(memoryview(buffer.getvalue()))


def as_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with columns of text in place of those that Arrow writes to CSV in part, without a unit, or not."""
    columns = [_as_text(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _as_text(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return column.cast(pa.timestamp(kind.unit, "UTC"))  # an offset in text has no seconds, and some zones had
    if pa.types.is_duration(kind):
        return pa.array(iso_durations(column), pa.string())
    if pa.types.is_string_view(kind):
        return column.cast(pa.string())
    if isinstance(kind, pa.UuidType):
        return pa.array([None if value is None else str(value) for value in column.to_pylist()], pa.string())
    binary = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
    if any(is_kind(kind) for is_kind in binary):
        encoded = (None if value is None else base64.b64encode(value).decode() for value in column.to_pylist())
        return pa.array(encoded, pa.string())
    return column


class ParquetPart(TablePart):
    """Row groups of `ROWS` rows, wherever batches end."""

    TYPE = "Parquet"

    def __init__(self, file: IO[bytes], name: str, sink: str) -> None:
        super().__init__(file, name, sink)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._out = _Out(self)

    def _check(self, schema: pa.Schema) -> None:
        from pyarrow import parquet

        super()._check(schema)
        try:
            self._writer = parquet.ParquetWriter(self._out, schema)
        except pa.ArrowException as error:
            raise self._cannot_hold(schema, error) from None

    def _append(self, batch: pa.RecordBatch) -> None:
        while batch.num_rows:
            piece = batch.slice(0, ROWS - self._waiting_rows)
            self._waiting.append(piece)
            self._waiting_rows += piece.num_rows
            batch = batch.slice(piece.num_rows)
            if self._waiting_rows == ROWS:
                self._put_group()

    def _put_group(self) -> None:
        if not self._waiting:
            return
        table = pa.Table.from_batches(self._waiting, self._schema).combine_chunks()
        self._waiting, self._waiting_rows = [], 0
        try:
            self._writer.write_table(table, row_group_size=ROWS)
        except pa.ArrowException as error:
            raise self._cannot_hold(table.schema, error) from None

    def finish(self) -> None:
        """See `PartFile`."""
        self._put_group()
        self._writer.close()

    def abandon(self) -> None:
        """See `PartFile`. The writer would write its footer when it is collected, into a file that is closed."""
        if self._schema is not None:
            with contextlib.suppress(OSError, pa.ArrowException):
                self._writer.close()


class _Out:
    """What a writer of pyarrow's takes for a file; who closes the real one is another."""

    closed = False

    def __init__(self, part: PartFile) -> None:
        self._part = part

    def write(self, data: bytes) -> int:
        self._part.put(data)
        return len(data)

    def tell(self) -> int:
        return self._part.bytes

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


PART_FILES: dict[str, type[PartFile]] = {"jsonl": JsonLinesPart, "csv": CsvPart, "parquet": ParquetPart}
"""By the type of a sink, which is how the names of its parts end."""


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} ({field.type})" for field in schema) or "none"
