"""Live rows from state files, by key group: of the files of a task the newest row of a key is its value.

Nothing is read but footers and the row groups that can hold what is asked for, in ranges of a file. Digests are not
checked here; that is `abs validate`'s.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from formats.errors import Damaged
from formats.native.facts import StateFileFacts
from formats.native.hashing import key_groups
from formats.native.state.guards import check_row_groups, check_texts
from formats.native.state.references import rows_in_reach
from formats.native.state.tables import DUE, KEY_GROUP, StateKey, as_written, first_line, key_columns, without_removed
from formats.query.keys import key_arrays, last_of_each
from formats.query.predicate import (
    Predicate,
    check_columns,
    columns_of,
    field_path,
    filtered,
    keys_named,
    literal,
    may_hold,
)
from formats.storage import LocalStorage, Storage, open_input, ranges

CHUNK_ROWS = 262_144
"""Rows that are read at a time, unless a single key group has more."""


PIECES = 65_536
"""Into which the key groups of a task are cut at most."""


class RowGroup(NamedTuple):
    """A row group of a state file.

    first, last: its key groups.
    bounds: of its key columns, where they are known.
    """

    number: int
    rows: int
    first: int
    last: int
    bounds: dict[str, tuple[Any, Any]]


class StateFile:
    """One state file; Damaged if it is not there, has another size or cannot be read."""

    def __init__(self, storage: Storage, file: StateFileFacts) -> None:
        self.path = f"{storage.root}/{file.path}"
        self._reach = None if file.key_groups is None else range(file.key_groups[0], file.key_groups[1] + 1)
        self.facts = file
        size = ranges.size(storage, file.path)
        if size is None or (file.bytes is not None and size != file.bytes):
            damage = "is not there" if size is None else f"has {size} bytes, {file.bytes} were written"
            raise Damaged(damage, path=self.path, hint="another epoch may be whole")
        self._storage = storage
        self._local = threading.local()
        self._local.reader = opened = self._tried(self._open)
        self._metadata = opened.metadata
        check_row_groups(self._metadata, self.path)
        self._stored: pa.Schema = opened.schema_arrow
        self.schema = self._tried(lambda: as_written(self._stored.empty_table()).schema)
        key: StateKey = self._tried(lambda: key_columns(self.schema))
        self.key, self.placing = key.columns, key.placing
        if KEY_GROUP not in self.schema.names or not set(self.key) <= set(self.schema.names) or not self.key:
            raise Damaged(f"is not a state file: it lacks {KEY_GROUP} or its key columns", path=self.path)

    def _tried(self, action: Any) -> Any:
        try:
            return action()
        except (pa.ArrowException, OSError, KeyError, IndexError, ValueError, TypeError) as error:
            raise Damaged(f"is not a readable state file: {first_line(error)}", path=self.path) from None

    def _open(self, metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
        # What a row group needs is asked of a server at once, and not column by column.
        remote = not isinstance(self._storage, LocalStorage)
        return pq.ParquetFile(open_input(self._storage, self.facts.path), metadata=metadata, pre_buffer=remote)

    @property
    def _reader(self) -> pq.ParquetFile:
        """Each thread has its own."""
        if not hasattr(self._local, "reader"):
            self._local.reader = self._open(self._metadata)
        return self._local.reader

    @functools.cached_property
    def row_groups(self) -> list[RowGroup]:
        """Those that may hold key groups of the task, in order."""
        groups: list[RowGroup] = self._tried(self._row_groups)
        reach = self._reach
        return [g for g in groups if reach is None or (g.last >= reach.start and g.first < reach.stop)]

    def _row_groups(self) -> list[RowGroup]:
        metadata = self._metadata
        groups = []
        for i in range(metadata.num_row_groups):
            group = metadata.row_group(i)
            bounds: dict[str, tuple[Any, Any]] = {}
            for j in range(group.num_columns):
                column = group.column(j)
                if column.path_in_schema == KEY_GROUP or column.path_in_schema in self.key:
                    statistics = column.statistics
                    if statistics is not None and statistics.has_min_max:
                        bounds[column.path_in_schema] = (statistics.min, statistics.max)
            first, last = bounds.pop(KEY_GROUP, (0, 2**31 - 1))
            if any(self.schema.field(name).type != self._stored.field(name).type for name in bounds):
                bounds = {}  # statistics of another type than the column was written with
            groups.append(RowGroup(i, group.num_rows, first, last, bounds))
        return groups

    def read(
        self, groups: range | None, columns: Sequence[str] | None, where: Predicate | None = None
    ) -> pa.Table:
        """Rows of these key groups (None: all) that satisfy a condition on key columns; `columns` in that order. Of a
        file that a task has by key group, no others."""
        if self._reach is not None:
            start = max(self._reach.start, groups.start if groups else self._reach.start)
            stop = min(self._reach.stop, groups.stop if groups is not None else self._reach.stop)
            groups = range(start, max(start, stop))
        table: pa.Table = self._tried(lambda: self._read(groups, columns, where))
        return table

    def _read(self, groups: range | None, columns: Sequence[str] | None, where: Predicate | None) -> pa.Table:
        wanted = [
            group
            for group in self.row_groups
            if (groups is None or (group.last >= groups.start and group.first < groups.stop))
            and (where is None or may_hold(where, group.bounds, self.schema))
        ]
        names = list(self.schema.names if columns is None else columns)
        # Key groups are read only if a row group reaches beyond those that are wanted.
        inside = groups is None or all(group.first >= groups.start and group.last < groups.stop for group in wanted)
        needed = list(dict.fromkeys([*names, *([] if inside else [KEY_GROUP]), *(self.key if where else ())]))
        numbers = [group.number for group in wanted]
        table = as_written(self._reader.read_row_groups(numbers, columns=needed, use_threads=False), self.schema)
        check_texts(table)
        if groups is not None and not inside:
            column = table.column(KEY_GROUP)
            start = np.searchsorted(column.to_numpy(), [groups.start, groups.stop])  # files are sorted by key group
            table = table.slice(int(start[0]), int(start[1] - start[0]))
        if where is not None:
            table = filtered(table, where)
        return table.select(names)


class TaskRows:
    """The keyed state of one task: its files, oldest first. own: the key groups of the task."""

    def __init__(self, storage: Storage, facts: Sequence[StateFileFacts], own: range) -> None:
        self.own = own
        self.facts = tuple(facts)
        self._storage = storage

    @functools.cached_property
    def files(self) -> list[StateFile]:
        """Its files, opened; Damaged if one of them is not what it should be."""
        files = [StateFile(self._storage, file) for file in self.facts]
        if len({(file.key, file.schema.remove_metadata().to_string()) for file in files}) > 1:
            raise Damaged("has other columns than the older files of its task", path=files[-1].path)
        return files

    def unopened(self) -> TaskRows:
        """The same, none of whose files is open."""
        return TaskRows(self._storage, self.facts, self.own)

    @property
    def schema(self) -> pa.Schema:
        """Of every file."""
        return self.files[0].schema.remove_metadata()

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns."""
        return self.files[0].key

    @property
    def placing(self) -> tuple[str, ...]:
        """Those of them that say in which key group a row is."""
        return self.files[0].placing

    def chunks(self, rows: int = CHUNK_ROWS) -> list[range]:
        """The task's key groups in pieces of about as many rows, by the statistics of the row groups."""
        return split(self.own, self.files, rows)

    def read(self, groups: range, columns: Sequence[str] | None = None, where: Predicate | None = None) -> pa.Table:
        """One row a live key of these key groups, by key group. where: a condition on key columns alone."""
        names = list(self.schema.names if columns is None else columns)
        needed = dict.fromkeys([*names, *self.key, *([DUE] if DUE in self.schema.names else [])])
        newest = latest([file.read(groups, list(needed), where) for file in self.files], self.key)
        return without_removed(newest).select(names)


def split(own: range, files: Sequence[StateFile], rows: int) -> list[range]:
    """Consecutive ranges of key groups with about `rows` rows of all files together; at least one key group each."""
    if sum(rows_in_reach(file.facts) for file in files) <= rows:
        return [own]
    step = -(-len(own) // PIECES)  # there may be as many key groups as there are numbers
    weight = np.zeros(-(-len(own) // step))
    for group in (group for file in files for group in file.row_groups):
        # Where in its key groups the rows of a row group are, nothing says: they count as evenly spread.
        first, last = max(group.first, own.start) - own.start, min(group.last, own.stop - 1) - own.start
        if first <= last:
            weight[first // step : last // step + 1] += group.rows / (last // step - first // step + 1)
    ranges, start, rows_so_far = [], own.start, 0.0
    for i, more in enumerate(weight.tolist()):
        if rows_so_far and rows_so_far + more > rows:
            ranges.append(range(start, own.start + i * step))
            start, rows_so_far = own.start + i * step, 0.0
        rows_so_far += more
    return [*ranges, range(start, own.stop)]


def latest(tables: Sequence[pa.Table], key: Sequence[str]) -> pa.Table:
    """One row a key of tables that stand oldest first, removed keys included; in order of key group if they have that
    column."""
    filled = [table for table in tables if table.num_rows]
    if len(filled) <= 1:
        return filled[0] if filled else tables[0]
    everything = pa.concat_tables(filled)
    rows = last_of_each(key_arrays(everything, key))
    table = everything.take(pa.array(rows))
    if KEY_GROUP in table.schema.names:
        order = np.argsort(table.column(KEY_GROUP).to_numpy(), kind="stable")
        table = table.take(pa.array(order))
    return table


def groups_of(where: Predicate, task: TaskRows, max_parallelism: int) -> list[int] | None:
    """The key groups that can hold what satisfies a condition; None for all."""
    named = keys_named(where, task.placing)
    if named is None:
        return None
    columns = [
        pa.array(
            [literal(one[name], task.schema.field(name).type, name).as_py() for one in named],
            task.schema.field(name).type,
        )
        for name in task.placing
    ]
    return sorted(set(key_groups(columns, max_parallelism).tolist()))


def live_rows(
    tasks: Iterator[TaskRows], max_parallelism: int, columns: Sequence[str] | None, where: Predicate | None
) -> Iterator[pa.Table]:
    """Live rows of several tasks that satisfy a condition, a chunk at a time, in order of key group.

    Columns of the condition need not be among `columns`.
    """
    pinned: tuple[list[int] | None] | None = None
    for task in tasks:
        if where is not None and pinned is None:
            # Once for all tasks: their key columns are the same. In a tuple, since None stands for every key group.
            pinned = (groups_of(where, task, max_parallelism),)
        only = pinned[0] if pinned else None
        pieces = None if only is None else [range(g, g + 1) for g in only if g in task.own]
        if pieces == []:
            continue  # not even opened
        names = list(task.schema.names if columns is None else check_columns(columns, task.schema))
        # Before older rows of a key are dropped only a condition on keys may be applied: it holds for all rows of a key
        # or for none. A condition on values could let a row pass that a newer one has replaced.
        of_keys = where is not None and columns_of(where) <= set(task.key)
        needed = list(dict.fromkeys([KEY_GROUP, *names, *(_roots(where, task.schema) if where else ())]))
        for groups in task.chunks() if pieces is None else pieces:
            table = task.read(groups, needed, where if of_keys else None)
            if where is not None and not of_keys:
                table = filtered(table, where)
            if table.num_rows:
                yield table.select(names)


def _roots(where: Predicate, schema: pa.Schema) -> list[str]:
    return [field_path(name, schema)[0][0] for name in sorted(columns_of(where))]
