"""State and log files whose bytes stand for more than fits into memory are refused before they are decoded.

A run of equal values, a dictionary, a compressed buffer: a kilobyte of Parquet or Arrow can stand for any number of
rows and bytes. What abs writes has at most `tables.ROW_GROUP` rows a row group, and the batches of the engine in a log.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from formats.bounds import Expansion
from formats.errors import Damaged

MAX_ROWS = 1 << 22
"""Rows of one row group, or of one batch of a log: many times what abs writes."""

_FRAMES = (0xFD2FB528, 0x184D2204)
"""How compressed frames begin: zstd and LZ4, as little-endian numbers."""


def check_row_groups(metadata: pq.FileMetaData, path: str) -> None:
    """Damaged if a row group of a state file claims more rows, or more values of a column, than any written one has."""
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        most = max([group.num_rows, *(group.column(j).num_values for j in range(group.num_columns))])
        if not 0 <= group.num_rows <= most <= MAX_ROWS:
            raise Damaged(f"row group {i} has {most} rows, a row group of a store has at most {MAX_ROWS}", path=path)


def open_state(data: bytes) -> pq.ParquetFile:
    """A state file whose texts are read as dictionaries: each stands in memory once until it is known how much all of
    them are."""
    file = pq.ParquetFile(pa.BufferReader(data))
    texts = text_columns(file.schema_arrow)
    return pq.ParquetFile(pa.BufferReader(data), read_dictionary=texts) if texts else file


def text_columns(schema: pa.Schema) -> list[str]:
    """The columns that are to be read as dictionaries."""
    return [field.name for field in schema if pa.types.is_string(field.type) or _is_binary(field.type)]


def _is_binary(kind: pa.DataType) -> bool:
    return kind in (pa.binary(), pa.large_string(), pa.large_binary())


def read_row_group(file: pq.ParquetFile, number: int, expansion: Expansion) -> pa.Table:
    """A row group of a file that `open_state` has opened, its dictionaries spelt out. Raises Damaged beyond the
    bound, ArrowInvalid for text that is not UTF-8."""
    rows = file.metadata.row_group(number).num_rows
    for field in file.schema_arrow:
        if not pa.types.is_nested(field.type) and not pa.types.is_dictionary(field.type):
            expansion.add(rows * _width(field.type))
    table = file.read_row_group(number, use_threads=False)
    for i, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            column = table.column(i)
            for chunk in column.chunks:
                lengths = pc.binary_length(chunk.dictionary).take(chunk.indices)
                expansion.add(int(pc.sum(pc.cast(lengths, pa.int64())).as_py() or 0))
            table = table.set_column(i, field.with_type(field.type.value_type), column.cast(field.type.value_type))
    check_texts(table)
    return table


def _width(kind: pa.DataType) -> int:
    """Bytes of a value of a fixed width; 0 of others."""
    try:
        return int(kind.bit_width + 7) // 8
    except ValueError:
        return 0


def check_texts(table: pa.Table) -> None:
    """Raise ArrowInvalid for a text column whose bytes are not UTF-8: Parquet is read without looking at them."""
    for column in table.columns:
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type) or pa.types.is_nested(column.type):
            column.validate(full=True)


def check_log(data: bytes, path: str) -> None:
    """Damaged if the compressed buffers of an Arrow file say that they become more than the bound: before each frame
    stands how many bytes it becomes, and Arrow takes so much and no more."""
    words = np.frombuffer(data, "<u4", len(data) // 4)
    expansion = Expansion(path, len(data))
    for frame in _FRAMES:
        for at in np.flatnonzero(words == frame).tolist():
            if at >= 2:
                expansion.add(int(words[at - 2]) | int(words[at - 1] & 0x7FFFFFFF) << 32)


def check_log_schema(schema: pa.Schema, path: str) -> None:
    """Damaged if a column has a type that stands for its values in a way which abs does not write."""
    for field in schema:
        if pa.types.is_run_end_encoded(field.type) or "view" in str(field.type):
            raise Damaged(f"column {field.name!r} is of type {field.type}, which no log has", path=path)
