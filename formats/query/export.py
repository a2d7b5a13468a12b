"""Rows to a file of the user's: Parquet, Arrow, JSON lines or CSV, by the ending of its name, a batch at a time."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import IO, BinaryIO, Protocol

import pyarrow as pa

from formats.disk import writing
from formats.errors import FormatError
from formats.output_file import OutputFile, OutputKind, temporary_name
from formats.values import plain

MARK = b"abs.rows"
"""Key in the metadata of Parquet and Arrow files, by which an earlier output of abs is recognised."""
ENDINGS = (".parquet", ".arrow", ".jsonl", ".csv")
_OF_ANY_TYPE = (".arrow", ".jsonl")
_INTERVAL = pa.struct([("months", pa.int32()), ("days", pa.int32()), ("nanoseconds", pa.int64())])
"""What stands in Parquet for an interval, of which it has no such type."""


class BadExport(FormatError):
    """A name with an unknown ending, or rows that the format cannot hold."""


def check_ending(path: str) -> str:
    """The ending of a name; BadExport for another than those of ENDINGS."""
    ending = os.path.splitext(path)[1].lower()
    if ending not in ENDINGS:
        hint = f"use a file name that ends in {' or '.join(ENDINGS)}"
        raise BadExport(f"{path!r} does not say which format", hint=hint)
    return ending


def new_folder(path: str) -> str:
    """A folder for files, made where there is none; BadExport for one that has something in it, and for none."""
    if not path or (os.path.lexists(path) and not os.path.isdir(path)):
        raise BadExport(f"{path!r} is not a directory", hint="specify a new directory")
    with writing(path):
        os.makedirs(path, exist_ok=True)
        if os.listdir(path):
            raise BadExport(f"{path!r} is not empty", hint="specify a new directory")
    return path


def _columns(schema: pa.Schema, other: pa.Schema) -> str:
    """The columns that another schema does not have so."""
    columns = [f"{field.name} of type {field.type}" for field in schema if field not in list(other)]
    return ", ".join(columns) or "other columns"


def _has_mark(schema: pa.Schema) -> bool:
    return MARK in (schema.metadata or {})


def _parquet_is_ours(file: BinaryIO) -> bool:
    import pyarrow.parquet as pq

    with contextlib.suppress(pa.ArrowException, OSError, ValueError):  # no Parquet, or damaged
        return _has_mark(pq.read_schema(file))
    return False


def _arrow_is_ours(file: BinaryIO) -> bool:
    with contextlib.suppress(pa.ArrowException, OSError, ValueError):
        return _has_mark(pa.ipc.open_file(file).schema)
    return False


_RECOGNISE = {".parquet": _parquet_is_ours, ".arrow": _arrow_is_ours}


def rows_file(path: str, *, force: bool = False) -> OutputFile:
    """Return the file that rows are written to. force: it may replace any file. BadExport for an unknown ending."""
    ending = check_ending(path)
    return OutputFile(path, OutputKind(f"{ending} rows", _RECOGNISE.get(ending)), force)


class RowsFile:
    """Rows being written, as a context: the file appears whole, under its name, when the block ends, or not at all."""

    def __init__(self, file: OutputFile | str, schema: pa.Schema) -> None:
        self.rows = 0
        self._file = rows_file(file) if isinstance(file, str) else file
        self._path = path = self._file.path
        self._schema = schema
        self._ending = check_ending(path)
        self._stack = ExitStack()

    def __enter__(self) -> RowsFile:
        status = self._file.check()
        if status is not None and not stat.S_ISREG(status.st_mode):
            raise BadExport("is not a regular file", path=self._path, hint="specify a regular file")
        with writing(self._path):
            self._temporary = temporary_name(self._path)
            fd = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)  # less umask
        try:
            raw = self._stack.enter_context(open(fd, "wb"))
            with self._named_in_errors():
                self._write = _writer(self._ending, self._schema, raw, self._stack)
        except BaseException:
            self._stack.close()
            self._discard()
            raise
        return self

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        """More rows; BadExport if the format cannot hold them."""
        if self._ending != ".jsonl" and not rows.schema.equals(self._schema):
            # Where a serializer is damaged in one subtask's file only, its values are of another type there.
            here, before = _columns(rows.schema, self._schema), _columns(self._schema, rows.schema)
            hint = "`abs validate` says whether what is read is whole; a file of .jsonl holds both"
            raise BadExport(f"has rows with {here}, and others with {before}", path=self._path, hint=hint)
        with self._named_in_errors():
            for batch in rows.to_batches() if isinstance(rows, pa.Table) else [rows]:
                self._write(batch)
        self.rows += rows.num_rows

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            with self._named_in_errors():
                self._stack.close()
            if kind is None:
                with writing(self._path):
                    self._file.publish(self._temporary)
        finally:
            self._discard()

    def _discard(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._temporary)

    @contextlib.contextmanager
    def _named_in_errors(self) -> Iterator[None]:
        try:
            with writing(self._path):
                yield
        except pa.ArrowException as error:
            message = f"cannot be written as {self._ending[1:]}: {str(error).splitlines()[0]}"
            hint = None if self._ending in _OF_ANY_TYPE else f"{' and '.join(_OF_ANY_TYPE)} hold values of any type"
            raise BadExport(message, path=self._path, hint=hint) from None


def write_rows(file: OutputFile | str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    """Write all batches; the number of rows."""
    with RowsFile(file, schema) as rows:
        for batch in batches:
            rows.write(batch)
    return rows.rows


class _Rows(Protocol):
    """A file of rows that is being written, as pyarrow has them."""

    def write_batch(self, batch: pa.RecordBatch, /) -> object: ...


def _writer(ending: str, schema: pa.Schema, raw: IO[bytes], stack: ExitStack) -> Callable[[pa.RecordBatch], object]:
    rows: _Rows | None = None
    if ending == ".parquet":
        import pyarrow.parquet as pq

        own = _with_mark(pa.schema([field.with_type(_in_parquet(field.type)) for field in schema]))
        file = stack.enter_context(pq.ParquetWriter(raw, own, compression="zstd"))
        return lambda batch: file.write_batch(_as(own, batch))
    if ending == ".arrow":
        rows = stack.enter_context(pa.ipc.new_file(raw, _with_mark(schema)))
    elif ending == ".csv":
        import pyarrow.csv as csv

        rows = stack.enter_context(csv.CSVWriter(raw, schema))
    if rows is not None:
        return rows.write_batch

    def lines(batch: pa.RecordBatch) -> None:
        for row in batch.to_pylist():
            raw.write(json.dumps(plain(row), ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n")

    return lines


def _with_mark(schema: pa.Schema) -> pa.Schema:
    return schema.with_metadata({**(schema.metadata or {}), MARK: b"1"})


def _in_parquet(kind: pa.DataType) -> pa.DataType:
    """A type as Parquet has it: itself, but for intervals, wherever in it they are."""
    types = pa.types
    if types.is_interval(kind):
        return _INTERVAL
    if not types.is_nested(kind) or types.is_union(kind):
        return kind
    fields = [kind.field(i) for i in range(kind.num_fields)]
    if types.is_map(kind):  # its only field is that of its entries
        fields = [kind.key_field, kind.item_field]
    own = [field.with_type(_in_parquet(field.type)) for field in fields]
    if own == fields:
        return kind
    if types.is_struct(kind):
        return pa.struct(own)
    if types.is_map(kind):
        return pa.map_(*own)
    return pa.large_list(own[0]) if types.is_large_list(kind) else pa.list_(own[0])


def _as(schema: pa.Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows with intervals as structs."""
    if batch.schema.equals(schema):
        return batch
    columns = [
        column if column.type.equals(field.type) else pa.array(_apart(column.to_pylist()), field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _apart(value: object) -> object:
    """A value of `to_pylist` with the parts of intervals by name."""
    if isinstance(value, pa.MonthDayNano):
        return {"months": value.months, "days": value.days, "nanoseconds": value.nanoseconds}
    if isinstance(value, dict):
        return {name: _apart(item) for name, item in value.items()}
    if isinstance(value, tuple):  # an entry of a map
        return tuple(_apart(item) for item in value)
    return [_apart(item) for item in value] if isinstance(value, list) else value
