"""Two states in whatever order their rows come, compared in bounded memory: rows go into buckets by the hash of their
key, buckets to temporary files when they grow, and then bucket meets bucket."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from abscli.diff.rows import Compared, compare
from formats.native.hashing import key_groups
from formats.query.keys import NTH, key_arrays, last_of_each, numbered, plain_column
from formats.scratch import scratch
from formats.select import HIDDEN


class Incomparable(Exception):
    """The rows of a state have values of types that cannot be compared. Its text says of which column and types."""


BUCKETS = 64
MEMORY = 96 << 20
"""Bytes of one side that stay in memory before buckets go to files."""


class Buckets:
    """One side. Rows with equal keys are in one bucket, whichever side they are of."""

    def __init__(self, folder: Path, key: Sequence[str], batches: Iterable[pa.RecordBatch]) -> None:
        self._folder = folder
        self._key = key
        self._held: list[list[pa.Table]] = [[] for _ in range(BUCKETS)]
        self._bytes = 0
        self._written = 0
        self.schema: pa.Schema | None = None
        for batch in batches:
            self._add(batch)

    def _add(self, batch: pa.RecordBatch) -> None:
        table = pa.Table.from_batches([batch])
        table = table.select([name for name in table.schema.names if name not in HIDDEN or name in self._key])
        self.schema = table.schema if self.schema is None else _unified(self.schema, table.schema)
        if not table.num_rows:
            return
        names = self._key or table.schema.names
        columns = [_hashed(column) for column in key_arrays(table, names)]
        groups = key_groups(columns, BUCKETS)
        order = np.argsort(groups, kind="stable")
        ends = np.searchsorted(groups[order], np.arange(BUCKETS + 1))
        table = table.take(pa.array(order))
        for i in np.unique(groups).tolist():
            self._held[i].append(table.slice(int(ends[i]), int(ends[i + 1] - ends[i])))
        self._bytes += table.nbytes
        if self._bytes > MEMORY:
            self._flush()

    def _flush(self) -> None:
        for i, tables in enumerate(self._held):
            if tables:
                path = self._folder / f"{i}-{self._written}.arrow"
                table = pa.concat_tables(tables, promote_options="default").combine_chunks()
                with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as file:
                    file.write_table(table)
        self._held = [[] for _ in range(BUCKETS)]
        self._bytes = 0
        self._written += 1

    def bucket(self, i: int) -> pa.Table | None:
        """Everything in one bucket; None if there was never a row."""
        if self.schema is None:
            return None
        files = sorted(self._folder.glob(f"{i}-*.arrow")) if self._written else ()
        tables = [pa.ipc.open_file(path).read_all() for path in files]
        return pa.concat_tables([self.schema.empty_table(), *tables, *self._held[i]], promote_options="default")


def _unified(one: pa.Schema, other: pa.Schema) -> pa.Schema:
    """Return the schema of rows of both: a struct has the fields of either, since a subtask describes a subclass only
    once it has met it. Raises Incomparable for types that have nothing in common."""
    if one.equals(other):
        return one
    try:
        return pa.unify_schemas([one, other])
    except pa.ArrowException as error:
        raise Incomparable(str(error).splitlines()[0][:300]) from None


def _hashed(column: pa.Array) -> pa.Array:
    """Return a key column as it is hashed: of nested values a text that does not depend on fields without a value."""
    if pa.types.is_nested(column.type):
        return pa.array([repr(_without_nulls(value)) for value in column.to_pylist()], pa.string())
    return plain_column(column)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return sorted((name, _without_nulls(item)) for name, item in value.items() if item is not None)
    return [_without_nulls(item) for item in value] if isinstance(value, list | tuple) else value


def compare_any(
    left: Iterable[pa.RecordBatch], right: Iterable[pa.RecordBatch], key: Sequence[str], *, rows: bool
) -> Iterator[Callable[[], Compared]]:
    """Comparisons that together cover both, to be carried out one after another while the iterator is open.

    Without key columns whole rows are keys, and may be there several times. Both sides have the same key columns.
    """
    with tempfile.TemporaryDirectory(prefix="diff-", dir=scratch()) as folder:
        sides = []
        for name, batches in (("left", left), ("right", right)):
            (Path(folder) / name).mkdir()
            sides.append(Buckets(Path(folder) / name, key, batches))
        left_schema, right_schema = _of_both(*(side.schema for side in sides), key=key)
        for i in range(BUCKETS):
            tables = [side.bucket(i) for side in sides]
            sample = next((table for table in tables if table is not None), None)
            if sample is None:
                return
            a, b = (sample.schema.empty_table() if table is None else table for table in tables)
            a, b = _as(a, left_schema), _as(b, right_schema)
            if a.num_rows or b.num_rows:
                yield partial(_bucket, a, b, key, rows=rows)


def _of_both(
    left: pa.Schema | None, right: pa.Schema | None, *, key: Sequence[str]
) -> tuple[pa.Schema | None, pa.Schema | None]:
    """Return the schemas of both sides with the same types for columns that both have, where they have one.

    Raises Incomparable where the types of a key column have nothing in common.
    """
    if left is None or right is None or left.equals(right):
        return left, right
    for name in [name for name in left.names if name in right.names]:
        try:
            field = _unified(pa.schema([left.field(name)]), pa.schema([right.field(name)])).field(0)
        except Incomparable:
            if name in key or not key:
                raise
            continue  # values of other types are compared as texts
        left, right = (side.set(side.get_field_index(name), field) for side in (left, right))
    return left, right


def _as(table: pa.Table, schema: pa.Schema | None) -> pa.Table:
    if schema is None or table.schema.equals(schema):
        return table
    return pa.concat_tables([schema.empty_table(), table], promote_options="default")


def _bucket(left: pa.Table, right: pa.Table, key: Sequence[str], *, rows: bool) -> Compared:
    names = list(key or right.schema.names)
    if any(side.num_rows != len(last_of_each(key_arrays(side, names))) for side in (left, right) if side.num_rows):
        left, right = (
            side.append_column(NTH, pa.array(numbered(key_arrays(side, names)))) for side in (left, right)
        )
        names.append(NTH)
    return compare(left, right, names, rows=rows)
