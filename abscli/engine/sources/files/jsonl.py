"""Lines of JSON, an object each."""

from __future__ import annotations

import contextlib
import json
import math
import re
from functools import partial

import pyarrow as pa
import pyarrow.json as pj

from abscli.engine.errors import JobFailed, UsageError
from abscli.engine.failures import Failures
from abscli.engine.sources.columns import TYPES
from abscli.engine.sources.files.input_files import arrow_file
from abscli.engine.sources.files.line_files import FromLines, LineFiles
from abscli.engine.sources.files.readable import readable
from formats.ids import TaskId


class JsonLinesSource(FromLines):
    """A column per key. The types come from `schema`, else from the first file of all; they are kept in snapshots.
    failures: takes lines that do not fit them; None: they end the run."""

    def __init__(self, files: LineFiles, schema: pa.Schema, task: TaskId, failures: Failures | None = None) -> None:
        super().__init__(files)
        self._schema = schema
        self._task = task
        self._failures = failures

    @property
    def connector(self) -> dict[str, str]:
        return {field.name: str(field.type) for field in self._schema}

    def read(self) -> pa.RecordBatch | None:
        chunk = self._files.next_lines()
        if chunk is None:
            return None
        split, data = chunk
        try:
            failures = self._failures
            table = parse_rows(data, self._schema) if failures is None else self._readable(failures, split, data)
        except pa.ArrowInvalid as error:
            text = _with_numbers(data, self._schema)
            line, bad = _bad_line(text, self._schema)
            raise JobFailed(
                f"task {self._task}: {split}, record {self._files.splits.records(split) + 1 + line}: {bad[:200]!r} "
                f"does not fit the schema: {str(error).splitlines()[0]}",
                hint="fix that line; or skip such lines with `on_error: skip`; or declare another type in `schema`, "
                "and run the job with a new store, because the types in an epoch cannot change",
            ) from None
        self._files.advance(split, data, table.num_rows)
        columns = [table.column(f.name).combine_chunks().cast(f.type) for f in self._schema]
        columns = [c.chunk(0) if isinstance(c, pa.ChunkedArray) else c for c in columns]
        return pa.record_batch(columns, schema=self._schema)

    def _readable(self, failures: Failures, split: str, data: bytes) -> pa.Table:
        ends = [match.end() for match in re.finditer(rb"\n|(?<=[^\n])\Z", data)]
        begin = self._files.splits.offset(split)
        parse = partial(parse_rows, schema=self._schema)
        tables = readable(
            data, ends, parse, lambda at, line, error: failures.add_text(line, split, begin + at, error)
        )
        return pa.concat_tables([self._schema.empty_table(), *(table.select(self._schema.names) for table in tables)])


def parse_rows(data: bytes, schema: pa.Schema) -> pa.Table:
    """A row for each object, with these columns; pa.ArrowInvalid."""
    text = _with_numbers(data, schema)
    options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    return pj.read_json(pa.BufferReader(text), pj.ReadOptions(use_threads=False, block_size=len(text) + 1), options)


_NAMES = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _with_numbers(data: bytes, schema: pa.Schema) -> bytes:
    """The lines with a number where a column of floats has the name of one (`"NaN"`), as sinks write it: Arrow reads
    NaN and Infinity themselves, which are no JSON, but not their names. A line that is none is left for Arrow to
    refuse."""
    floats = [field.name for field in schema if pa.types.is_floating(field.type)]
    if not floats or not any(f'"{name}"'.encode() in data for name in _NAMES):
        return data
    return b"\n".join(_with_numbers_in(line, floats) for line in data.split(b"\n"))


def _with_numbers_in(line: bytes, floats: list[str]) -> bytes:
    if b'NaN"' in line or b'Infinity"' in line:
        with contextlib.suppress(ValueError, RecursionError):
            row = json.loads(line)
            names = {name: row[name] for name in floats if name in row and isinstance(row[name], str)}
            numbers = {name: _NAMES[text] for name, text in names.items() if text in _NAMES}
            if numbers:
                return json.dumps({**row, **numbers}).encode()
    return line


def _bad_line(data: bytes, schema: pa.Schema) -> tuple[int, str]:
    options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    lines = [line for line in data.split(b"\n") if line.strip()]
    for i, line in enumerate(lines):
        try:
            pj.read_json(pa.BufferReader(line), parse_options=options)
        except pa.ArrowInvalid:
            return i, line.decode("utf-8", "replace")
    return 0, lines[0].decode("utf-8", "replace") if lines else ""


def infer_schema(path: str) -> pa.Schema:
    """The columns of a file of JSON lines, each with the type of its first values; UsageError if there are none."""
    try:
        schema = pj.read_json(arrow_file(path)).schema
    except (pa.ArrowInvalid, OSError) as error:
        raise UsageError(f"{path}: cannot infer the columns: {str(error).splitlines()[0]}") from None
    return pa.schema([f if str(f.type) in TYPES else pa.field(f.name, pa.string()) for f in schema])
