"""Lines of text."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from abscli.engine.sources.files import line_files
from abscli.engine.sources.files.jsonl import line_ends
from abscli.engine.sources.files.readable import Parsing
from abscli.engine.sources.text_records import check_utf8

LINES = pa.schema([pa.field("line", pa.string())])
"""What a text source reads."""

HINT = (
    "convert the file to UTF-8, for example with `iconv -f LATIN1 -t UTF-8`; or skip such lines with `on_error: skip`"
)


class TextSource(line_files.FromLines):
    """One column `line` of UTF-8, without the line's end (`\\n` or `\\r\\n`)."""

    def __init__(self, files: line_files.LineFiles, parsing: Parsing) -> None:
        super().__init__(files)
        self._parsing = parsing

    def read(self) -> pa.RecordBatch | None:
        tables: list[pa.Table] = []
        size = 0
        while size < line_files.CHUNK and (chunk := self._files.next_lines()) is not None:
            split, data = chunk
            lines = pa.concat_tables([
                LINES.empty_table(), *self._parsing.parse(self._files.place(split), data, line_ends, _lines)
            ])  # fmt: skip
            self._files.advance(split, data, lines.num_rows)
            tables.append(lines)
            size += len(data)
        if not tables:
            return None
        lines = pa.concat_tables(tables).combine_chunks()
        return lines.to_batches()[0] if lines.num_rows else pa.RecordBatch.from_pylist([], LINES)


def _lines(data: bytes) -> pa.Table:
    """Return one row per line, also if it is empty. Raises ArrowInvalid for bytes that are not UTF-8."""
    check_utf8(data)
    text = pa.array([data.removesuffix(b"\n")], pa.large_binary())
    lines = pc.split_pattern(text.cast(pa.large_string()), "\n").flatten().cast(pa.string())
    if b"\r" in data:
        lines = pc.replace_substring_regex(lines, r"\r$", "")
    return pa.table([lines], schema=LINES)
