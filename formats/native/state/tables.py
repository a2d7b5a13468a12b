"""State and log files of a native store: Arrow tables <-> bytes.

State is Parquet, sorted by key group and key, in row groups of whole key groups or of one alone, so that a reader
takes only the key groups it needs. A log is an Arrow IPC file whose batches stand in channel order.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from formats import watermark
from formats.bounds import Expansion, too_much
from formats.errors import Damaged
from formats.native.state.guards import check_log, check_log_schema, check_row_groups, open_state, read_row_group
from formats.native.state.ordering import by_key_group, key_order

KEY_GROUP = "__key_group"

DUE = watermark.DUE
"""Of state whose rows are removed again: the event time, in microseconds (int64), at which an operator looks at a row
once more. Null: the key was removed, and so are its rows in older files."""

ROW_GROUP = 65_536
"""Rows of a row group at most."""

SHARED_ROW_GROUP = 16_384
"""Rows up to which whole key groups share a row group: one each would cost small files more than they hold."""


class StateKey(NamedTuple):
    """The key columns of a state. placed: so many of them, the first, say in which key group a row is."""

    columns: tuple[str, ...]
    placed: int

    @classmethod
    def of(cls, columns: Sequence[str]) -> StateKey:
        """One whose columns all do."""
        return cls(tuple(columns), len(columns))

    @property
    def placing(self) -> tuple[str, ...]:
        """The columns that say in which key group a row is."""
        return self.columns[: self.placed]


def encode_state(table: pa.Table, key: Sequence[str]) -> bytes:
    """A state file. table: column `__key_group` (int32), the key columns, the value columns; one row a key."""
    return encode_tables([table], StateKey.of(key))


class Piece(NamedTuple):
    """Some bytes of a state file: a row group of so many rows of these key groups, or what stands before the first one
    or behind the last, which has none. removed: so many of the rows stand for removed keys; None of state that removes
    none."""

    data: bytes
    rows: int = 0
    first: int = 0
    last: int = 0
    removed: int | None = None


def encode_tables(tables: Iterable[pa.Table], key: StateKey, *, in_key_order: bool = False) -> bytes:
    """A state file whose rows come in tables, see `encoded_pieces`: the same file as of one table."""
    return b"".join(piece.data for piece in encoded_pieces(tables, key, in_key_order=in_key_order))


def encoded_pieces(tables: Iterable[pa.Table], key: StateKey, *, in_key_order: bool = False) -> Iterator[Piece]:
    """The bytes of a state file, a row group at a time, so that the file is nowhere in memory.

    tables: at least one, each of higher key groups than the one before. in_key_order: of each the rows are.
    """
    written = _Written()
    with contextlib.ExitStack() as stack:
        writer: pq.ParquetWriter | None = None
        rest: pa.Table | None = None
        for table in tables:
            ordered = _ordered(table, key.columns, in_key_order)
            if writer is None:
                writer = stack.enter_context(_writer(written, ordered.schema, key))
                yield Piece(written.take())
            rows = ordered if rest is None else pa.concat_tables([rest, ordered.replace_schema_metadata()])
            groups = rows.column(KEY_GROUP).to_numpy()
            slices = list(row_group_slices(groups))
            waiting = slices.pop() if slices and _shares(groups, slices[-1]) else range(0)
            for piece in slices:
                of_piece = rows.slice(piece.start, len(piece))
                writer.write_table(of_piece, row_group_size=ROW_GROUP)
                yield Piece(
                    written.take(), len(piece), groups[piece.start], groups[piece.stop - 1], removed_rows(of_piece)
                )
            rest = rows.slice(waiting.start, len(waiting))
        if writer is not None and rest is not None and rest.num_rows:
            writer.write_table(rest, row_group_size=ROW_GROUP)
            groups = rest.column(KEY_GROUP).to_numpy()
            yield Piece(written.take(), len(groups), groups[0], groups[-1], removed_rows(rest))
    yield Piece(written.take())


class _Written(io.RawIOBase):
    """What Arrow's writer takes for a file: its bytes are taken on before more are written."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []
        self._at = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        self._at += len(data)
        return len(data)

    def take(self) -> bytes:
        """The bytes since this was asked for last."""
        data, self._parts = b"".join(self._parts), []
        return data


def _shares(groups: npt.NDArray[np.int32], last: range) -> bool:
    """Whether the last row group may have key groups of the next table, too: it is no piece of one."""
    return len(last) <= SHARED_ROW_GROUP and (last.start == 0 or groups[last.start] != groups[last.start - 1])


def _ordered(table: pa.Table, key: Sequence[str], in_key_order: bool) -> pa.Table:
    if key and not in_key_order and table.num_rows:  # without rows a column may be in no piece at all
        table = one_piece(table)
        table = table.take(pa.array(key_order([table.column(name).chunk(0) for name in key])))
    if table.column(KEY_GROUP).null_count:
        return table  # whoever reads it says that rows have no key group
    groups = table.column(KEY_GROUP).to_numpy()
    return table if (groups[1:] >= groups[:-1]).all() else table.take(pa.array(by_key_group(groups)))


def one_piece(table: pa.Table) -> pa.Table:
    """The table with one chunk a column; ArrowInvalid where a column has more text than that can hold."""
    if all(column.num_chunks == 1 for column in table.columns):
        return table
    if not table.num_rows:
        return table.combine_chunks()
    return pa.table([pa.concat_arrays(column.chunks) for column in table.columns], schema=table.schema)


def _writer(sink: _Written, schema: pa.Schema, key: StateKey) -> pq.ParquetWriter:
    metadata = {
        b"abs.key": json.dumps(list(key.columns)).encode(),
        b"abs.schema": base64.b64encode(schema.remove_metadata().serialize()),  # Parquet has no timestamp[s]
    }
    if key.placed < len(key.columns):
        metadata[b"abs.placed"] = str(key.placed).encode()
    bounded = [name for name in (KEY_GROUP, *key.columns) if not pa.types.is_nested(schema.field(name).type)]
    # Of a key of one column no value comes twice: a dictionary of them would be as large as the column.
    repeating = [name for name in schema.names if (name,) != key.columns]
    options: dict[str, Any] = {"compression": "zstd", "compression_level": 1, "write_statistics": bounded}
    return pq.ParquetWriter(sink, schema.with_metadata(metadata), use_dictionary=repeating, **options)


def row_group_slices(groups: npt.NDArray[np.int32]) -> Iterator[range]:
    """The rows of each row group of a file whose rows have these key groups, ascending: whole key groups while they
    are few rows together, else pieces of one, so that no row group has a piece of one and something of another."""
    start = end = 0
    for stop in [*(np.flatnonzero(np.diff(groups)) + 1).tolist(), *([len(groups)] if len(groups) else [])]:
        if stop - start > SHARED_ROW_GROUP:
            if end > start:
                yield range(start, end)
            start = end
        if stop - start > SHARED_ROW_GROUP:
            for first in range(start, stop, ROW_GROUP):
                yield range(first, min(first + ROW_GROUP, stop))
            start = stop
        end = stop
    if end > start:
        yield range(start, end)


def decode_state(data: bytes, path: str, key_groups: range | None = None) -> pa.Table:
    """The rows of a state file, or those of `key_groups`, decoding only row groups that hold some; Damaged."""
    pieces = list(decoded_row_groups(data, path, key_groups))
    return pa.concat_tables(pieces) if pieces else _no_rows(data, path)


def decoded_row_groups(data: bytes, path: str, key_groups: range | None = None) -> Iterator[pa.Table]:
    """As `decode_state`, a row group at a time: a file decoded is several times as large as the file."""
    try:
        file = open_state(data)
        check_row_groups(file.metadata, path)
        column = file.schema_arrow.get_field_index(KEY_GROUP)
        expansion = Expansion(path, len(data))
        for i in range(file.metadata.num_row_groups):
            statistics = file.metadata.row_group(i).column(column).statistics if key_groups is not None else None
            if key_groups is None or statistics is None or (
                statistics.max >= key_groups.start and statistics.min < key_groups.stop
            ):
                table = as_written(read_row_group(file, i, expansion))
                yield table if key_groups is None else of_key_groups(table, key_groups)
    except (pa.ArrowException, OSError, KeyError, IndexError, ValueError, TypeError) as error:
        raise Damaged(f"is not a readable state file: {first_line(error)}", path=path) from None


def _no_rows(data: bytes, path: str) -> pa.Table:
    try:
        return as_written(open_state(data).read_row_groups([]))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Damaged(f"is not a readable state file: {first_line(error)}", path=path) from None


def of_key_groups(table: pa.Table, key_groups: range) -> pa.Table:
    """The rows of a state file's table that belong to these key groups."""
    import pyarrow.compute as pc

    groups = table.column(KEY_GROUP)
    return table.filter(pc.and_(pc.greater_equal(groups, key_groups.start), pc.less(groups, key_groups.stop)))


def as_written(table: pa.Table, schema: pa.Schema | None = None) -> pa.Table:
    """The table with the types that it was given, which are part of the keys' hashes. schema: these, where they are
    known; the table may have some of its columns only."""
    if schema is None:
        encoded = (table.schema.metadata or {}).get(b"abs.schema")
        if encoded is None:
            return table
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(encoded)))
    own = pa.schema([schema.field(name) for name in table.schema.names])
    if own.types == table.schema.types:
        return table
    return table.cast(own).replace_schema_metadata(table.schema.metadata)


def state_rows(data: bytes, path: str) -> int:
    """Rows that the footer of a state file claims; Damaged if unreadable."""
    try:
        return int(pq.ParquetFile(pa.BufferReader(data)).metadata.num_rows)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Damaged(f"is not a readable state file: {first_line(error)}", path=path) from None


def key_columns(schema: pa.Schema) -> StateKey:
    """The key columns that a state file names; ValueError where they cannot be."""
    metadata = schema.metadata or {}
    try:
        names = json.loads(metadata.get(b"abs.key", b"[]"))
    except RecursionError:
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("its key columns are not a list of names")
    placed = int(metadata.get(b"abs.placed", len(names)))
    if not 0 <= placed <= len(names) or (names and not placed):
        raise ValueError(f"{placed} of {len(names)} key columns say in which key group a row is")
    return StateKey(tuple(names), placed)


def removed_rows(table: pa.Table) -> int | None:
    """How many rows of a state's table stand for removed keys; None of state that removes none."""
    return table.column(DUE).null_count if DUE in table.schema.names else None


def without_removed(table: pa.Table) -> pa.Table:
    """The rows of keys that are there, of a table that has the newest row of each."""
    return table.filter(table.column(DUE).is_valid()) if removed_rows(table) else table


def encode_log(batches: Sequence[pa.RecordBatch]) -> bytes:
    """A log file of one channel; at least one batch, all of one schema."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batches[0].schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def decode_log(data: bytes, path: str) -> list[pa.RecordBatch]:
    """The batches of a log file, in order; Damaged if unreadable."""
    try:
        check_log(data, path)
        reader = pa.ipc.open_file(pa.BufferReader(data))
        check_log_schema(reader.schema, path)
        batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
        for batch in batches:
            batch.validate(full=True)  # Arrow takes offsets and texts as they are, and would read beyond a buffer
        return batches
    except (pa.ArrowException, OSError) as error:
        raise Damaged(f"is not a readable log file: {first_line(error)}", path=path) from None


def first_line(error: BaseException) -> str:
    """The first line of an exception's text: Arrow's go on for pages."""
    if isinstance(error, MemoryError):
        return too_much()
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
