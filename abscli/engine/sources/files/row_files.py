"""Files that are written once and hold rows: Parquet and Arrow, with a position in rows for each."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Protocol

import pyarrow as pa

from abscli.engine.errors import JobFailed
from abscli.engine.sources.files.fingerprints import PIECE, Fingerprint, of_pieces
from abscli.engine.sources.files.input_files import open_file, path_of
from abscli.engine.sources.splits import FromSplits, Splits
from formats.errors import Damaged
from formats.ids import TaskId

ROWS = 1 << 16
"""Rows of a batch, at most."""

_COLUMNS = "arrow-schema"
"""Under which a source keeps its columns."""


class RowFile(Protocol):
    """A file of rows that is open."""

    rows: int

    @property
    def schema(self) -> pa.Schema:
        """Of all its columns."""

    def read(self, start: int, most: int) -> pa.RecordBatch:
        """Rows from `start` on, which is before the end: one at least, `most` at most."""

    def close(self) -> None:
        """Let go of it."""


OpenRowFile = Callable[[str, list[str] | None], RowFile]
"""From a path, and the columns to read, to the file; OSError, ArrowException."""


class RowFilesSource(FromSplits):
    """The columns of `schema` of the files of one task, one after the other."""

    def __init__(
        self,
        open_file: OpenRowFile,
        schema: pa.Schema,
        splits: Splits,
        directory: str,
        task: TaskId,
    ) -> None:
        super().__init__(splits)
        self._open = open_file
        self._schema = schema
        self._directory = directory
        self._task = task
        self._file: tuple[str, RowFile, str] | None = None

    @property
    def connector(self) -> dict[str, str]:
        return keep_schema(self._schema)

    def read(self) -> pa.RecordBatch | None:
        """See `Source`."""
        splits = self.splits
        while (name := splits.next()) is not None:
            offset = splits.offset(name)
            file, fingerprint = self._opened(name)
            end = file.rows if splits.ends is None else min(file.rows, splits.ends[name])
            if offset > file.rows:
                raise JobFailed(
                    f"task {self._task}: {self._path(name)} has {file.rows} rows, but {offset} rows were already read",
                    hint="restore the file, or roll back with --from-epoch: a source file must not change",
                )
            if offset < end:
                rows = self._read(name, file, offset, min(ROWS, end - offset, splits.rows or ROWS))
                if splits.rows is not None:
                    splits.rows -= rows.num_rows
                splits.advance(name, rows.num_rows, rows.num_rows, fingerprint)
                return rows
            splits.end(name)
            self._let_go()
        return None

    def _read(self, name: str, file: RowFile, start: int, most: int) -> pa.RecordBatch:
        try:
            rows = file.read(start, most)
        except (pa.ArrowException, OSError) as error:
            raise self._unreadable(name, error) from error
        return pa.record_batch([self._column(name, rows, field) for field in self._schema], schema=self._schema)

    def _column(self, name: str, rows: pa.RecordBatch, field: pa.Field) -> pa.Array:
        column = rows.column(field.name)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if column.type == field.type:
            return column
        try:
            return column.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise JobFailed(
                f"task {self._task}: column {field.name!r} of {self._path(name)} is of type {column.type}, but of "
                f"type {field.type} in the first file: {str(error).splitlines()[0]}",
                hint="write all files of a source with the same column types",
            ) from None

    def _opened(self, name: str) -> tuple[RowFile, str]:
        """(the file, its fingerprint)."""
        if self._file is None or self._file[0] != name:
            self._let_go()
            path = self._path(name)
            try:
                with open_file(path, PIECE) as plain:
                    fingerprint = str(of_pieces(plain))
                file = self._open(path, self._schema.names)
            except (pa.ArrowException, OSError) as error:
                raise self._unreadable(name, error) from error
            self._file = name, file, fingerprint
            self._prove(name, fingerprint)
            missing = [column for column in self._schema.names if column not in file.schema.names]
            if missing:
                raise JobFailed(
                    f"task {self._task}: {path} has no column {missing[0]!r}; it has {', '.join(file.schema.names)}",
                    hint="select the columns that all files of the source have, with columns: [...]",
                )
        return self._file[1:]

    def _prove(self, name: str, fingerprint: str) -> None:
        before = self.splits.fingerprint(name)
        one, other = Fingerprint.parse(before or ""), Fingerprint.parse(fingerprint)
        if one is not None and other is not None and one.crc != other.crc:
            raise JobFailed(
                f"task {self._task}: {self._path(name)} was replaced after {self.splits.offset(name):,} rows were "
                "read: its checksum has changed",
                hint="restore the previous file; or read everything again, with --from-epoch 0 or a new store",
            )

    def _let_go(self) -> None:
        if self._file is not None:
            self._file[1].close()
        self._file = None

    def _unreadable(self, name: str, error: Exception) -> JobFailed:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        return JobFailed(
            f"task {self._task}: cannot read {self._path(name)}: {reason}",
            hint="check that the file is complete; write files under a temporary name, and rename them once they are "
            "complete",
        )

    def _path(self, name: str) -> str:
        return path_of(self._directory, name)


def plain_types(schema: pa.Schema) -> pa.Schema:
    """Return the columns without metadata, with values in place of dictionaries and of views."""
    return pa.schema([pa.field(field.name, _plain(field.type)) for field in schema])


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type that operators get: few of Arrow's functions take views, which Polars writes."""
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind.fields])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_plain(kind.value_type)))
    return kind


def keep_schema(schema: pa.Schema) -> dict[str, str]:
    """Columns, as an epoch keeps them."""
    return {_COLUMNS: base64.b64encode(schema.serialize()).decode()}


def kept_schema(connector: dict[str, str], where: str) -> pa.Schema:
    """The columns that an epoch has kept; Damaged if they cannot be read."""
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(connector[_COLUMNS], validate=True)))
    except (KeyError, ValueError, OSError, pa.ArrowException) as error:
        raise Damaged(f"{where}: the columns that the epoch has kept cannot be read: {error}") from error
