"""Files of CSV, a column for each field of the first line."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv as pc

from abscli.engine.errors import JobFailed, UsageError
from abscli.engine.failures import Failures
from abscli.engine.sources.columns import TYPES, chosen
from abscli.engine.sources.files.csv_records import CsvRecords
from abscli.engine.sources.files.input_files import open_file
from abscli.engine.sources.files.line_files import FromLines, LineFiles
from abscli.engine.sources.files.readable import readable

_HEAD = 1 << 20
"""Bytes of the first file from which types are inferred."""

_MEND = (
    "fix that record, or skip such records with on_error: skip (to declare another type for the column "
    "in schema, run the job with a new store: the types in an epoch cannot change)"
)
"""What an error's hint begins with; how to go on from there follows it."""


class CsvForm(NamedTuple):
    """How the files are written: between fields, whether the first line names columns, and what an empty value is
    written as (in a column of text that is a text like others)."""

    delimiter: str = ","
    header: bool = True
    nulls: tuple[str, ...] = ("",)

    @classmethod
    def of(cls, connector: dict[str, Any]) -> CsvForm:
        """As the options of a source say it."""
        return cls(connector.get("delimiter", ","), connector.get("header", True), tuple(connector.get("nulls", ("",))))

    def read(self, data: bytes, names: list[str] | None, schema: pa.Schema | None) -> pa.Table:
        """Rows of records. names: of their fields; None: the first record has them. schema: columns that are wanted."""
        return pc.read_csv(
            pa.BufferReader(data),
            pc.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
            pc.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
            pc.ConvertOptions(
                null_values=list(self.nulls),
                column_types=schema,
                include_columns=schema.names if schema is not None else None,
            ),
        )


class CsvSource(FromLines):
    """The columns of `schema` of files of CSV; where each file has them its first line says. failures: takes records
    that do not fit them; None: they end the run."""

    def __init__(
        self, files: LineFiles, form: CsvForm, schema: pa.Schema, failures: Failures | None = None
    ) -> None:
        super().__init__(files)
        self._failures = failures
        self._form = form
        self._schema = schema
        self._names: tuple[str, list[str]] | None = None

    @property
    def connector(self) -> dict[str, str]:
        return {field.name: str(field.type) for field in self._schema}

    def read(self) -> pa.RecordBatch | None:
        """As of `Source`."""
        files, table = self._files, None
        before = self._failures.count if self._failures is not None else 0
        while table is None or not table.num_rows:  # of the first line alone there is no row
            if self._failures is not None and self._failures.count > before:
                return self._schema.empty_table().to_batches()[0]  # a file of these must not keep epochs waiting
            chunk = files.next_lines()
            if chunk is None:
                return None
            split, data = chunk
            names, rows = self._header(split, data)
            begin = files.splits.offset(split) + len(data) - len(rows)
            table = self._parsed(split, names, rows, begin) if rows.strip(b"\r\n") else None
            files.advance(split, data, table.num_rows if table is not None else 0)
        columns = [table.column(field.name).combine_chunks() for field in self._schema]
        columns = [c.chunk(0) if isinstance(c, pa.ChunkedArray) else c for c in columns]
        return pa.record_batch(columns, schema=self._schema)

    def _header(self, split: str, data: bytes) -> tuple[list[str], bytes]:
        """(names of its fields, what follows them)."""
        if not self._form.header:
            return self._schema.names, data
        begins = self._files.splits.offset(split) == 0
        if self._names is None or self._names[0] != split or begins:
            head = data if begins else _head(self._files.path(split), self._form)
            self._names = split, self._field_names(split, head)
        return self._names[1], data[_end_of_header(data, self._form) :] if begins else data

    def _field_names(self, split: str, head: bytes) -> list[str]:
        names, more = _names(head, self._form)
        if more:  # Arrow ends a line there, and all of it would be the first one
            raise JobFailed(
                f"task {self._files.task}: {split}: its lines end with a carriage return without a line feed",
                hint="convert the file: lines must end with a line feed, optionally preceded by a carriage return",
            )
        missing = [name for name in self._schema.names if name not in names]
        if missing:
            raise JobFailed(
                f"task {self._files.task}: {split} has no column {missing[0]!r}; its first line contains "
                f"{', '.join(names)}",
                hint="all files of a source must have the same columns; if the files have no header line, set "
                "header: false",
            )
        return names

    def _parsed(self, split: str, names: list[str], rows: bytes, begin: int) -> pa.Table:
        """begin: of these rows, in the split."""
        failures = self._failures
        if failures is not None:
            tables = readable(
                rows,
                CsvRecords(self._form.delimiter).all_ends(rows),
                lambda records: self._form.read(records, names, self._schema),
                lambda at, record, error: failures.add_text(record, split, begin + at, error),
            )
            return pa.concat_tables([self._schema.empty_table(), *tables])
        try:
            return self._form.read(rows, names, self._schema)
        except pa.ArrowInvalid as error:
            raise self._bad_record(split, names, rows, error) from None

    def _bad_record(self, split: str, names: list[str], rows: bytes, error: pa.ArrowInvalid) -> JobFailed:
        ends = CsvRecords(self._form.delimiter).all_ends(rows)
        # By halves: a chunk has so many records that to read each alone would take minutes.
        first = bisect_left(ends, True, key=lambda end: not self._fits(names, rows[:end]))
        at = ends[first - 1] if first else 0
        number = self._files.splits.records(split) + (
            self._form.read(rows[:at], names, self._schema).num_rows if rows[:at].strip() else 0
        )
        try:
            self._form.read(rows[at : ends[first]], names, self._schema)
        except pa.ArrowInvalid as its_own:
            error = its_own
        text = rows[at:].split(b"\n")[0].decode("utf-8", "replace")
        reason = str(error).splitlines()[0]
        return JobFailed(f"task {self._files.task}: {split}, record {number + 1}: {text[:200]!r}: {reason}", hint=_MEND)

    def _fits(self, names: list[str], rows: bytes) -> bool:
        try:
            return not rows.strip() or self._form.read(rows, names, self._schema) is not None
        except pa.ArrowInvalid:
            return False


def infer_csv(path: str, form: CsvForm, wanted: list[str] | None, where: str) -> pa.Schema:
    """The columns of a file, with types that its first records fit. wanted: which of them; UsageError."""
    if not form.header:
        hint = "add schema: {column: type, ...}, a column for each field"
        raise UsageError(f"{where}: `header: false` needs a schema", hint=hint)
    try:
        with open_file(path, _HEAD + 1) as file:
            head = file.read(_HEAD)
            end = CsvRecords(form.delimiter).last_end(head)
            schema = form.read(head[:end] if end and file.read(1) else head, None, None).schema
    except (pa.ArrowInvalid, OSError) as error:
        raise UsageError(f"{path}: cannot infer the columns: {str(error).splitlines()[0]}") from None
    schema = pa.schema([f if str(f.type) in TYPES else pa.field(f.name, pa.string()) for f in schema])
    # A column that is empty so far may have anything.
    schema = pa.schema([pa.field(f.name, pa.string()) if pa.types.is_null(f.type) else f for f in schema])
    return chosen(schema, wanted, path)


def _head(path: str, form: CsvForm) -> bytes:
    """The first record of a file; JobFailed."""
    try:
        with open_file(path, _HEAD) as file:
            data = file.read(_HEAD)
    except OSError as error:
        raise JobFailed(f"cannot read {path}: {error.strerror}") from error
    return data[: _end_of_header(data, form)]


def _end_of_header(data: bytes, form: CsvForm) -> int:
    return CsvRecords(form.delimiter).end_of(data, 1)


def _names(data: bytes, form: CsvForm) -> tuple[list[str], int]:
    """(the names of the first line, how many rows Arrow finds behind it in the same record)."""
    line = data[: _end_of_header(data, form)].removeprefix(b"\xef\xbb\xbf")
    table = form.read(line, None, None)
    return table.schema.names, table.num_rows
