"""State and log files of a native store: Arrow tables <-> bytes.

State is Parquet, sorted by key group and key, in row groups of at most ROW_GROUP rows, so that a reader takes
only the key groups it needs. A log is an Arrow IPC file whose batches stand in channel order.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from formats.bounds import Expansion, too_much
from formats.errors import Damaged
from formats.native.guards import check_log, check_log_schema, check_row_groups, open_state, read_row_group

KEY_GROUP = "__key_group"
ROW_GROUP = 65_536


def encode_state(table: pa.Table, key: Sequence[str]) -> bytes:
    """A state file. table: column `__key_group` (int32), the key columns, the value columns; one row a key."""
    import pyarrow.compute as pc

    sortable = [name for name in (KEY_GROUP, *key) if not pa.types.is_nested(table.schema.field(name).type)]
    order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in sortable])
    sink = pa.BufferOutputStream()
    metadata = {
        b"abs.key": json.dumps(list(key)).encode(),
        b"abs.schema": base64.b64encode(table.schema.remove_metadata().serialize()),  # Parquet has no timestamp[s]
    }
    pq.write_table(
        table.take(order).replace_schema_metadata(metadata),
        sink,
        row_group_size=ROW_GROUP,
        compression="zstd",
        compression_level=1,
        write_statistics=sortable,
    )
    return bytes(sink.getvalue())


def decode_state(data: bytes, path: str, key_groups: range | None = None) -> pa.Table:
    """The rows of a state file, or those of `key_groups`, decoding only row groups that hold some; Damaged."""
    import pyarrow.compute as pc

    try:
        file = open_state(data)
        check_row_groups(file.metadata, path)
        column = file.schema_arrow.get_field_index(KEY_GROUP)
        wanted = []
        for i in range(file.metadata.num_row_groups):
            statistics = file.metadata.row_group(i).column(column).statistics if key_groups is not None else None
            if key_groups is None or statistics is None or (
                statistics.max >= key_groups.start and statistics.min < key_groups.stop
            ):
                wanted.append(i)
        expansion = Expansion(path, len(data))
        pieces = [read_row_group(file, i, expansion) for i in wanted]  # one by one, since each may become anything
        table = as_written(pa.concat_tables(pieces) if pieces else file.read_row_groups([]))
        if key_groups is None:
            return table
        groups = table.column(KEY_GROUP)
        return table.filter(
            pc.and_(pc.greater_equal(groups, key_groups.start), pc.less(groups, key_groups.stop))
        )
    except (pa.ArrowException, OSError, KeyError, IndexError) as error:
        raise Damaged(f"is no readable state file: {first_line(error)}", path=path) from None


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
    except (pa.ArrowException, OSError) as error:
        raise Damaged(f"is no readable state file: {first_line(error)}", path=path) from None


def key_columns(schema: pa.Schema) -> list[str]:
    """The key columns that a state file names."""
    names: list[str] = json.loads((schema.metadata or {}).get(b"abs.key", b"[]"))
    return names


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
        return [reader.get_batch(i) for i in range(reader.num_record_batches)]
    except (pa.ArrowException, OSError) as error:
        raise Damaged(f"is no readable log file: {first_line(error)}", path=path) from None


def first_line(error: BaseException) -> str:
    """The first line of an exception's text: Arrow's go on for pages."""
    if isinstance(error, MemoryError):
        return too_much()
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
