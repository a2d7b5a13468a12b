"""Reading a table by its key: pieces of rows in order of their keys, up to where no smaller key can come any more.

One thread at a time uses a reader, which is not that of the task: a database may take its time, and barriers go on.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from abscli.engine.errors import JobFailed
from abscli.engine.postgres.columns import copied, decoded, is_moment, selected
from abscli.engine.sources.postgres.horizon import Writer, as_text, remaining, writers
from abscli.engine.sources.postgres.keys import Identity, Key
from abscli.engine.sources.postgres.table import KeyedTable, Looked, check_same
from formats.errors import Unreachable

if TYPE_CHECKING:
    from psycopg import sql

    from abscli.engine.postgres.database import Connection

ROWS = 1 << 13
"""Rows of a piece, at most."""


class Piece(NamedTuple):
    """Rows in order of their keys. keys: a text column for each column of the key; identity: of the table."""

    rows: pa.RecordBatch
    keys: tuple[pa.Array, ...]
    identity: Identity

    def key(self, row: int) -> Key:
        """Of a row."""
        return tuple(column[row].as_py() for column in self.keys)


class Waits(NamedTuple):
    """What a reader waits for, and since when, by the monotonic clock."""

    reason: str
    since: float


class _Candidate(NamedTuple):
    """The greatest key that was seen, and the transactions that may still commit smaller ones."""

    key: Key
    writers: Sequence[Writer]


class TableReader:
    """Of one task. schema: the columns that it reads; kinds: as of `check_same`, which is asked on every connection.

    end: rows up to that key are read, and no others; None: not known yet, or all that come.
    waits: for whom it waits, as it stands.
    """

    def __init__(
        self, keyed: KeyedTable, schema: pa.Schema, kinds: dict[str, str] | None, *, follows: bool, end: Key | None
    ) -> None:
        self.end = end
        self.waits: Waits | None = None
        self.at_end = False
        self._keyed = keyed
        self._schema = schema
        self._kinds = kinds
        self._follows = follows
        self._connection: Connection | None = None
        self._looked: Looked | None = None
        self._identity: Identity | None = None
        self._safe: Key | None = None
        self._candidate: _Candidate | None = None

    def next(self, after: Key | None, identity: Identity | None, most: int) -> Piece | None:
        """Up to so many rows behind a key; None where there are none now: `at_end` says whether there will be.

        identity: of the table that was read up to there. Raises Unreachable where the database does not answer;
        JobFailed, UsageError.
        """
        try:
            return self._keyed.table.answer(
                self._connected(after, identity), lambda at: self._keyed.asked(lambda: self._next(at, after, most))
            )
        except Unreachable as error:
            self._let_go()
            self._wait(error.message)
            raise

    def again(self, after: Key | None, identity: Identity | None, most: int) -> Piece:
        """Rows that were read before: nobody is waited for. Raises as `next`."""
        try:
            return self._keyed.table.answer(
                self._connected(after, identity),
                lambda at: self._keyed.asked(lambda: self._rows(at, after, self.end, most)),
            )
        except Unreachable:
            self._let_go()
            raise

    def close(self) -> None:
        """Let go of the connection."""
        self._let_go()

    def _next(self, connection: Connection, after: Key | None, most: int) -> Piece | None:
        if self._safe is None:
            self._look_how_far(connection, after)
        if self._safe is None:
            return None
        piece = self._rows(connection, after, self._safe, most)
        self.waits = None
        if piece.rows.num_rows < most:
            self.at_end = not self._follows
            self._safe = None  # all of it is read: further on it has to be looked for
        return piece

    def _look_how_far(self, connection: Connection, after: Key | None) -> None:
        """Set `_safe`, once nobody may commit a smaller key any more."""
        assert self._looked is not None
        if self._candidate is None:
            self._look_whether_same(connection, after)
            greatest = self.end or self._greatest(connection, after)
            if greatest is None:
                self.waits, self.at_end = None, not self._follows
                return
            if not self._follows:
                self.end = greatest
            # Who comes later gets a greater key.
            self._candidate = _Candidate(greatest, writers(connection, self._looked.family))
            open_ones = list(self._candidate.writers)
        else:
            open_ones = remaining(self._candidate.writers, writers(connection, self._looked.family))
        if open_ones:
            more = f" and {len(open_ones) - 1} more" if len(open_ones) > 1 else ""
            title = self._keyed.table.title
            self._wait(f"{as_text(open_ones[0])}{more} may commit rows to {title} before those that are there")
            return
        self.waits = None
        self._safe, self._candidate = self._candidate.key, None

    def _look_whether_same(self, connection: Connection, after: Key | None) -> None:
        """A table may be replaced, or emptied, or get a partition, while it is followed."""
        looked = self._keyed.look(connection)
        check_same(looked, connection, self._identity, after, self._kinds)
        self._looked, self._identity = looked, looked.identity

    def _greatest(self, connection: Connection, after: Key | None) -> Key | None:
        from psycopg import sql

        # With the table's name: alone they would mean the texts that are selected.
        names = [sql.Identifier("t", name) for name in self._keyed.key]
        query = sql.SQL("select {} from {} t{} order by {} limit 1").format(
            sql.SQL(", ").join(sql.SQL("{}::text").format(name) for name in names),
            self._keyed.name,
            self._bound(">", after),
            sql.SQL(", ").join(sql.SQL("{} desc").format(name) for name in names),
        )
        row: Any = connection.execute(query).fetchone()
        return None if row is None else tuple(row)

    def _rows(self, connection: Connection, after: Key | None, upto: Key | None, most: int) -> Piece:
        from psycopg import errors, sql

        assert self._looked is not None
        names = [sql.Identifier("t", name) for name in self._keyed.key]
        where = self._bound(">", after) + self._bound("<=", upto, also=after is not None)
        keys = sql.SQL(", ").join(sql.SQL("{}::text").format(name) for name in names)
        rows = sql.SQL("from {} t{} order by {} limit {}").format(
            self._keyed.name, where, sql.SQL(", ").join(names), sql.Literal(most)
        )
        columns = selected(self._looked.columns, self._schema)
        try:
            return self._piece(copied(connection, sql.SQL("select {}, {} {}").format(columns, keys, rows)))
        except (errors.DataError, errors.FeatureNotSupported):
            self._refuse_infinity(connection, keys, rows)
            raise

    def _refuse_infinity(self, connection: Connection, keys: sql.Composable, rows: sql.Composable) -> None:
        """Raise JobFailed if one of these rows has a time that is infinite, which Arrow does not have."""
        from psycopg import sql

        assert self._looked is not None
        for column in self._looked.columns:
            if column.name not in self._schema.names or not is_moment(column):
                continue
            at = sql.Identifier("t", column.name)
            query = sql.SQL("select {}, {}::text from (select * {}) t where not isfinite({}) limit 1").format(
                keys, at, rows, at
            )
            if (row := connection.execute(query).fetchone()) is not None:
                key = ", ".join(f"{name}={value}" for name, value in zip(self._keyed.key, row, strict=False))
                table = self._keyed.table
                raise JobFailed(
                    f"{table.owner}: column {column.name!r} of the row with {key} in {table.title} is {row[-1]}, which "
                    "a timestamp of a job cannot be",
                    hint=f"declare it as text in the source's schema, {{{column.name}: string}}; or read a view that "
                    "has another value for it",
                )

    def _piece(self, data: bytes) -> Piece:
        assert self._looked is not None
        keys = [pa.field(f"key {number}", pa.string()) for number in range(len(self._keyed.key))]
        try:
            rows = decoded(data, pa.schema([*self._schema, *keys]))
        except pa.ArrowException as error:
            reason = (str(error).splitlines() or [""])[0]
            table = self._keyed.table
            raise JobFailed(
                f"{table.owner}: a value of {table.title} does not match the type of its column in the source: "
                f"{reason}",
                hint="declare another type in the source's schema, such as string",
            ) from None
        width = len(self._schema)
        columns = pa.record_batch(rows.columns[:width], schema=self._schema)
        return Piece(columns, tuple(rows.columns[width:]), self._looked.identity)

    def _bound(self, operator: str, key: Key | None, *, also: bool = False) -> sql.Composable:
        from psycopg import sql

        if key is None:
            return sql.SQL("")
        assert self._looked is not None
        names = sql.SQL(", ").join(map(sql.Identifier, self._keyed.key))
        bases = {column.name: column.base for column in self._looked.columns}
        values = sql.SQL(", ").join(
            sql.SQL("{}::pg_catalog.{}").format(sql.Literal(value), sql.Identifier(bases[name]))
            for name, value in zip(self._keyed.key, key, strict=True)
        )
        return sql.SQL(f" {'and' if also else 'where'} ({{}}) {operator} ({{}})").format(names, values)

    def _connected(self, after: Key | None, identity: Identity | None) -> Connection:
        if self._connection is not None and not self._connection.closed:
            return self._connection
        self._candidate = None  # transactions of another life of the server have other names
        self._identity = self._identity or identity
        connection = self._keyed.table.reach(self._wait)
        self._connection = connection
        self._keyed.table.answer(
            connection, lambda at: self._keyed.asked(lambda: self._look_whether_same(at, after))
        )
        return connection

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _wait(self, reason: str) -> None:
        since = self.waits.since if self.waits is not None else time.monotonic()
        self.waits = Waits(reason, since)
