"""Files of JSON lines, one object per line."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.json as pj

from abscli.engine.errors import UsageError
from abscli.engine.sources.columns import TYPES
from abscli.engine.sources.files.input_files import open_text
from abscli.engine.sources.files.line_files import FromLines, LineFiles
from abscli.engine.sources.files.readable import Parsing
from abscli.engine.sources.json_rows import parse_lines
from abscli.engine.sources.text_records import BYTE_ORDER_MARK, Spans, check_objects

_HEAD = 64 << 20
"""Bytes of the first file from which columns are inferred."""

HINT = (
    "fix that line: each line must be one JSON object (`jq -c .` writes one per line); or skip such lines with "
    "`on_error: skip`; or declare another type in `schema`, and run the job with a new store, because the types in an "
    "epoch cannot change"
)


class JsonLinesSource(FromLines):
    """A column per key. The types come from `schema`, else from the first file of all; they are kept in snapshots."""

    def __init__(self, files: LineFiles, schema: pa.Schema, parsing: Parsing) -> None:
        super().__init__(files)
        self._schema = schema
        self._parsing = parsing

    @property
    def connector(self) -> dict[str, str]:
        return {field.name: str(field.type) for field in self._schema}

    def read(self) -> pa.RecordBatch | None:
        chunk = self._files.next_lines()
        if chunk is None:
            return None
        split, data = chunk
        place = self._files.place(split)
        tables = self._parsing.parse(place, data, line_ends, lambda lines: parse_lines(lines, self._schema))
        table = pa.concat_tables([self._schema.empty_table(), *tables])
        self._files.advance(split, data, table.num_rows)
        columns = [table.column(f.name).combine_chunks().cast(f.type) for f in self._schema]
        columns = [c.chunk(0) if isinstance(c, pa.ChunkedArray) else c for c in columns]
        return pa.record_batch(columns, schema=self._schema)


def line_ends(data: bytes) -> list[int]:
    """Return where each line ends, the last one also without a line feed."""
    return [match.end() for match in re.finditer(rb"\n|(?<=[^\n])\Z", data)]


def infer_schema(path: str) -> pa.Schema:
    """Return the columns of a file of JSON lines, each with the type of its first values.

    Lines that are no objects are skipped here: the source reports them. Raises UsageError if no line is left, or the
    lines disagree about a type.
    """
    try:
        with open_text(path, _HEAD + 1) as file:
            data = file.read(_HEAD).removeprefix(BYTE_ORDER_MARK)
            lines = Spans.of_lines(data[: data.rfind(b"\n") + 1] if file.read(1) else data).records()
        objects = [line for line in lines if _is_object(line)]
        if not objects:
            first = lines[0][:200].decode("utf-8", "replace") if lines else ""
            problem = f"line 1 is not one JSON object: {first!r}" if lines else "it has no lines"
            raise UsageError(f"{path}: cannot infer the columns: {problem}", hint="add schema: {column: type, ...}")
        text = b"\n".join(objects)
        options = pj.ReadOptions(block_size=max(1 << 20, *(len(one) + 1 for one in objects)))
        schema = pj.read_json(pa.BufferReader(text), options).schema
    except (pa.ArrowInvalid, OSError) as error:
        raise UsageError(f"{path}: cannot infer the columns: {str(error).splitlines()[0]}") from None
    return pa.schema([f if str(f.type) in TYPES else pa.field(f.name, pa.string()) for f in schema])


def _is_object(line: bytes) -> bool:
    try:
        check_objects(Spans.of_values([line]))
    except pa.ArrowInvalid:
        return False
    return True
