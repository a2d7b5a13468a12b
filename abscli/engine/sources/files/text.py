"""Lines of text."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from abscli.engine.sources.files import line_files

LINES = pa.schema([pa.field("line", pa.string())])
"""What a text source reads."""


class TextSource(line_files.FromLines):
    """One column `line`: UTF-8, invalid bytes replaced, without the line's end (`\\n` or `\\r\\n`)."""

    def read(self) -> pa.RecordBatch | None:
        texts: list[str] = []
        size = 0
        while size < line_files.CHUNK and (chunk := self._files.next_lines()) is not None:
            split, data = chunk
            text = data.decode("utf-8", "replace").removesuffix("\n")
            self._files.advance(split, data, text.count("\n") + 1)
            texts.append(text)
            size += len(data)
        if not texts:
            return None
        everything = "\n".join(texts)
        lines = pc.split_pattern(pa.array([everything], pa.large_string()), "\n").flatten().cast(pa.string())
        if "\r" in everything:
            lines = pc.replace_substring_regex(lines, r"\r$", "")
        return pa.record_batch([lines], names=["line"])
