"""The operator that puts columns of a table beside each row of a stream.

A task reads the whole file, or asks a database for all of it, when it starts. Its digest stands in every snapshot, so
that another table is noticed when the job goes on.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from abscli.engine.errors import JobFailed
from abscli.engine.operators.database_table import read_database_table, title_of
from abscli.engine.operators.join_columns import SUFFIX
from abscli.engine.operators.rows import columns
from abscli.engine.state.contract import State
from abscli.engine.state.key_table import Slots, same
from abscli.engine.state.list_column import ranges
from formats.ids import TaskId
from formats.job.model import Edge, LookupHow, Operator, Partition, key_group_range
from formats.native.hashing import Hashes, hash_rows

DIGEST = "table"
"""Under which a snapshot has the SHA-256 of the file."""


class Table(NamedTuple):
    """What is in a file, or what a database has. digest: SHA-256 of its bytes, or of its rows."""

    rows: pa.Table
    digest: str


class Prepared(NamedTuple):
    """A table for a stream whose key has these types. hashes: of the keys, ascending. rows: in their order."""

    hashes: Hashes
    keys: list[pa.Array]
    values: pa.RecordBatch
    schema: pa.Schema


def read_table(operator: Operator, directory: str, seconds: float | None = None) -> Table:
    """The table of a `lookup`, key columns first; JobFailed where it cannot be read, or lacks a column. seconds: for
    which a database is awaited, of which UsageError and EngineStopped are raised, too."""
    assert operator.lookup
    lookup = operator.lookup
    path = place_of_table(operator, directory)
    if not lookup.path:
        return Table(*read_database_table(operator, partial(_wanted, operator, path), seconds))
    try:
        with open(path, "rb") as file:
            data = file.read()
        table = _decoded(path, data)
    except (OSError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or (str(error).splitlines() or [type(error).__name__])[0]
        raise JobFailed(
            f"operator {operator.id}: cannot read its table {path}: {reason}",
            hint="put the table on storage that all workers can read: every worker loads the table when it starts",
        ) from None
    return Table(table.select(_wanted(operator, path, table.column_names)), hashlib.sha256(data).hexdigest())


def place_of_table(operator: Operator, directory: str) -> str:
    """What messages call the table."""
    assert operator.lookup
    path = operator.lookup.path
    return os.path.join(directory, path) if path else title_of(operator)


def _wanted(operator: Operator, place: str, there: Sequence[str]) -> list[str]:
    """Of the columns that are there, in the table's order, those that are used: the key first."""
    assert operator.lookup
    lookup = operator.lookup
    names = [*lookup.key, *(lookup.columns or [name for name in there if name not in lookup.key])]
    for name in names:
        if there.count(name) != 1:
            problem = "no column" if name not in there else "two columns"
            raise JobFailed(
                f"operator {operator.id}: its table {place} has {problem} {name!r}", hint="the table has the "
                f"columns {', '.join(there)}"
            )
    return names


def _decoded(path: str, data: bytes) -> pa.Table:
    if path.endswith(".csv"):
        from pyarrow import csv

        return csv.read_csv(pa.BufferReader(data))
    import pyarrow.parquet as pq

    return pq.read_table(pa.BufferReader(data))


def check_table(operator: Operator, table: Table, kept: Mapping[str, str] | None, directory: str) -> None:
    """JobFailed where it is another table than in the epoch that a job goes on from. kept: what that has of it."""
    before = (kept or {}).get(DIGEST)
    if before is None or before == table.digest or not operator.deterministic:
        return
    place = place_of_table(operator, directory)
    raise JobFailed(
        f"operator {operator.id}: its table {place} differs from the table of the epoch: expected SHA-256 "
        f"{before[:12]}…, got {table.digest[:12]}…",
        hint="restore the previous table; or set `deterministic: false` on the operator to resume with the changed "
        "table",
    )


def own_key_groups(operator: Operator, subtask: int, inputs: list[Edge]) -> range | None:
    """Those whose rows come to this task, where all inputs are spread by the key of the table; None for all."""
    assert operator.lookup
    key = operator.lookup.key
    if not inputs or any(edge.partition is not Partition.HASH or edge.key != key for edge in inputs):
        return None
    return key_group_range(subtask, operator.parallelism, operator.max_parallelism)


class TableLookup:
    """own: the key groups of the rows that come; None: of all. connector: what snapshots keep of the table."""

    state: State | None = None

    def __init__(self, operator: Operator, task: TaskId, table: Table, own: range | None = None) -> None:
        assert operator.lookup
        self._operator = operator
        self._lookup = operator.lookup
        self._task = task
        self._table = table.rows
        self._own = own
        self._prepared: Prepared | None = None
        self.connector = {DIGEST: table.digest}

    def process(self, batch: pa.RecordBatch, first: int, origin: str = "") -> pa.RecordBatch | None:
        keys = columns(batch, self._lookup.key, self._operator.id)
        if self._prepared is None:
            self._prepared = self._prepare(batch.schema)
        table, hashes = self._prepared, hash_rows(keys)
        start = np.searchsorted(table.hashes, hashes, side="left")
        counts = np.searchsorted(table.hashes, hashes, side="right") - start
        rows: Slots = np.repeat(np.arange(batch.num_rows, dtype=np.int64), counts)
        places = ranges(start, counts)
        equal = same([key.take(pa.array(rows)) for key in keys], [key.take(pa.array(places)) for key in table.keys])
        rows, places = rows[equal], places[equal]
        if self._lookup.how is LookupHow.LEFT:
            alone = np.setdiff1d(np.arange(batch.num_rows, dtype=np.int64), rows)
            rows, places = np.concatenate([rows, alone]), np.concatenate([places, np.full(len(alone), -1)])
            order = np.argsort(rows, kind="stable")
            rows, places = rows[order], places[order]
        values = table.values.take(pa.array(places, mask=places < 0))
        return pa.record_batch([*batch.take(pa.array(rows)).columns, *values.columns], schema=table.schema)

    def _prepare(self, schema: pa.Schema) -> Prepared:
        """The table, by the key as rows of these columns have it."""
        table = self._table
        for name in self._lookup.key:
            wanted = schema.field(name).type
            try:
                column = table.column(name).cast(wanted)
            except (pa.ArrowException, NotImplementedError):
                raise JobFailed(
                    f"task {self._task}: key column {name!r} is {wanted} in the stream, and "
                    f"{table.schema.field(name).type} in its table {place_of_table(self._operator, '')}",
                    hint="cast the stream's column in a map before the lookup",
                ) from None
            table = table.set_column(table.column_names.index(name), name, column)
        # Null is equal to nothing, as in SQL.
        batch = _one_batch(table.filter(_has_key(table, self._lookup.key)))
        hashes = hash_rows([batch.column(name) for name in self._lookup.key])
        if self._own is not None:
            groups = hashes % np.uint64(self._operator.max_parallelism)
            mine = (groups >= np.uint64(self._own.start)) & (groups < np.uint64(self._own.stop))
            batch, hashes = batch.filter(pa.array(mine)), hashes[mine]
        order = np.argsort(hashes, kind="stable")
        batch = batch.take(pa.array(order))
        values = batch.select([name for name in batch.schema.names if name not in self._lookup.key])
        fields = [
            field.with_name(field.name + SUFFIX) if field.name in schema.names else field for field in values.schema
        ]
        return Prepared(
            hashes[order], [batch.column(name) for name in self._lookup.key], values,
            pa.schema([*schema, *(field.with_nullable(True) for field in fields)]),
        )  # fmt: skip

    def flush(self, watermark: int | None) -> Iterator[pa.RecordBatch]:
        yield from ()

    def close(self) -> None:
        pass


def _has_key(table: pa.Table, key: tuple[str, ...]) -> pa.Array:
    valid = np.logical_and.reduce([table.column(name).is_valid().to_numpy() for name in key])
    return pa.array(valid)


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    """In one piece, without dictionaries, which belong to their batches."""
    plain = [
        column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        for column in table.columns
    ]
    whole = pa.table(plain, names=table.column_names).combine_chunks()
    arrays = [
        pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type) for column in whole.columns
    ]
    return pa.record_batch(arrays, names=whole.column_names)
