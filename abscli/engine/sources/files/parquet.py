"""Files of Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

import pyarrow as pa
import pyarrow.parquet as pq

from abscli.engine.sources.files import row_files
from abscli.engine.sources.files.input_files import arrow_file
from abscli.engine.sources.files.row_files import plain_types


class ParquetRows:
    """See `RowFile`: a row group is read batch by batch; where reading begins in its middle, it is skipped so far."""

    def __init__(self, path: str, columns: list[str] | None) -> None:
        self._file = pq.ParquetFile(arrow_file(path), memory_map=False)
        metadata = self._file.metadata
        self.rows: int = metadata.num_rows
        self._ends = list(accumulate(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)))
        self._columns = columns
        self._at = -1
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._left: pa.RecordBatch | None = None

    @property
    def schema(self) -> pa.Schema:
        return plain_types(self._file.schema_arrow)

    def read(self, start: int, most: int) -> pa.RecordBatch:
        """See `RowFile`."""
        skip = 0 if start == self._at else self._begin(start)
        rows = self._left if self._left is not None and self._left.num_rows else next(self._batches)
        while skip >= rows.num_rows:
            skip -= rows.num_rows
            rows = next(self._batches)
        taken = rows.slice(skip, most)
        self._left = rows.slice(skip + taken.num_rows)
        self._at = start + taken.num_rows
        return taken

    def _begin(self, start: int) -> int:
        """Batches from the row group on that has a row; returns how many rows of it come before that."""
        group = next(i for i, end in enumerate(self._ends) if start < end)
        self._left = None
        self._batches = self._file.iter_batches(
            row_files.ROWS, row_groups=list(range(group, len(self._ends))), columns=self._columns, use_threads=False
        )
        return start - (self._ends[group - 1] if group else 0)

    def close(self) -> None:
        """See `RowFile`."""
        self._file.close(force=True)
