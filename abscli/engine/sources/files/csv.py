"""Files of CSV, a column for each field of the first line."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv as pc

from abscli.engine.errors import JobFailed, UsageError
from abscli.engine.sources.columns import TYPES, chosen
from abscli.engine.sources.files.csv_records import CsvRecords
from abscli.engine.sources.files.input_files import open_text
from abscli.engine.sources.files.line_files import FromLines, LineFiles
from abscli.engine.sources.files.readable import Parsing, Place
from abscli.engine.sources.text_records import BYTE_ORDER_MARK, check_utf8

_HEAD = 1 << 20
"""Bytes of the first file from which types are inferred."""

HINT = (
    "fix that record, or skip such records with on_error: skip (to declare another type for the column "
    "in schema, run the job with a new store: the types in an epoch cannot change)"
)
"""The beginning of a hint; a command that continues the job follows."""


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
    """The columns of `schema` of files of CSV; where each file has them its first line says."""

    def __init__(self, files: LineFiles, form: CsvForm, schema: pa.Schema, parsing: Parsing) -> None:
        super().__init__(files)
        self._parsing = parsing
        self._form = form
        self._records = CsvRecords(form.delimiter)
        self._schema = schema
        self._names: tuple[str, list[str]] | None = None

    @property
    def connector(self) -> dict[str, str]:
        return {field.name: str(field.type) for field in self._schema}

    def read(self) -> pa.RecordBatch | None:
        """See `Source`."""
        files, failures = self._files, self._parsing.failures
        rows = self._schema.empty_table()
        before = failures.count if failures is not None else 0
        while not rows.num_rows:  # of the first line alone there is no row
            if failures is not None and failures.count > before:
                break  # a file of such records must not keep epochs waiting
            chunk = files.next_lines()
            if chunk is None:
                return None
            rows = self._rows(*chunk)
            files.advance(*chunk, rows.num_rows)
        columns = [rows.column(field.name).combine_chunks() for field in self._schema]
        columns = [c.chunk(0) if isinstance(c, pa.ChunkedArray) else c for c in columns]
        return pa.record_batch(columns, schema=self._schema)

    def _rows(self, split: str, data: bytes) -> pa.Table:
        names, records = self._header(split, data)
        place = self._files.place(split)
        place = Place(split, place.offset + len(data) - len(records), place.records)
        tables = self._parsing.parse(
            place, records, self._records.all_ends, lambda some: self._parse(some, names)
        )
        return pa.concat_tables([self._schema.empty_table(), *tables])

    def _parse(self, records: bytes, names: list[str]) -> pa.Table:
        if not records.strip(b"\r\n"):
            return self._schema.empty_table()
        check_utf8(records)
        if self._records.has_malformed(records):
            raise pa.ArrowInvalid("a quoted field is not closed, or text follows its closing quote")
        return self._form.read(records, names, self._schema)

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
        try:
            names, more = _names(head, self._form)
        except pa.ArrowInvalid as error:
            raise JobFailed(f"task {self._files.task}: {split}: its first line cannot be read: {error}") from None
        if more:  # Arrow ends a line there, and all of it would be the first one
            raise JobFailed(
                f"task {self._files.task}: {split}: its lines end with a carriage return without a line feed",
                hint="convert the file: lines must end with a line feed, optionally preceded by a carriage return",
            )
        twice = [name for name in self._schema.names if names.count(name) > 1]
        if twice:
            raise JobFailed(
                f"task {self._files.task}: {split} has {names.count(twice[0])} columns named {twice[0]!r}",
                hint="rename one of them in the first line, or read other columns with columns: [...]",
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


def infer_csv(path: str, form: CsvForm, wanted: list[str] | None, where: str) -> pa.Schema:
    """The columns of a file, with types that its first records fit. wanted: which of them; UsageError."""
    if not form.header:
        hint = "add schema: {column: type, ...}, a column for each field"
        raise UsageError(f"{where}: `header: false` needs a schema", hint=hint)
    try:
        with open_text(path, _HEAD + 1) as file:
            head = file.read(_HEAD)
            end = CsvRecords(form.delimiter).last_end(head)
            head = head[:end] if end and file.read(1) else head
            schema = form.read(_well_formed(head, form), None, None).schema
    except (pa.ArrowInvalid, OSError) as error:
        raise UsageError(f"{path}: cannot infer the columns: {str(error).splitlines()[0]}") from None
    twice = [name for name in wanted or schema.names if schema.names.count(name) > 1]
    if twice:
        raise UsageError(
            f"{where}: {path} has {schema.names.count(twice[0])} columns named {twice[0]!r}",
            hint="rename one of them in the first line, or read other columns with columns: [...]",
        )
    schema = pa.schema([f if str(f.type) in TYPES else pa.field(f.name, pa.string()) for f in schema])
    # A column that is empty so far may have anything.
    schema = pa.schema([pa.field(f.name, pa.string()) if pa.types.is_null(f.type) else f for f in schema])
    return chosen(schema, wanted, path)


def _well_formed(records: bytes, form: CsvForm) -> bytes:
    """Return the records whose quoted fields are closed: whoever reads the file reports the others."""
    check, begin, kept = CsvRecords(form.delimiter), 0, []
    if not check.has_malformed(records):
        return records
    for end in check.all_ends(records):
        record, begin = records[begin:end], end
        if not check.has_malformed(record):
            kept.append(record)
    return b"".join(kept)


def _head(path: str, form: CsvForm) -> bytes:
    """The first record of a file; JobFailed."""
    try:
        with open_text(path, _HEAD) as file:
            data = file.read(_HEAD)
    except OSError as error:
        raise JobFailed(f"cannot read {path}: {error.strerror or error}") from error
    return data[: _end_of_header(data, form)]


def _end_of_header(data: bytes, form: CsvForm) -> int:
    return CsvRecords(form.delimiter).end_of(data, 1)


def _names(data: bytes, form: CsvForm) -> tuple[list[str], int]:
    """(the names of the first line, how many rows Arrow finds behind it in the same record)."""
    line = data[: _end_of_header(data, form)].removeprefix(BYTE_ORDER_MARK)
    if CsvRecords(form.delimiter).has_malformed(line):
        raise pa.ArrowInvalid("a quoted name is not closed, or text follows its closing quote")
    table = form.read(line, None, None)
    return table.schema.names, table.num_rows
