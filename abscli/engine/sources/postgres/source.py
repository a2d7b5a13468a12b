"""A source that reads the rows of a table by a growing key.

All of a table is one split, which the first task has: rows come in order of their keys. Where it goes on is the key
that was read last; the position's number is how many rows that were.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

import msgspec
import pyarrow as pa

from abscli.engine.errors import JobFailed, UsageError
from abscli.engine.sources.files.row_files import keep_schema, kept_schema
from abscli.engine.sources.postgres.keys import KINDS, Identity, Key, key_text, position_key, read_key, read_kinds
from abscli.engine.sources.postgres.reading import ROWS, Piece, TableReader, Waits
from abscli.engine.sources.postgres.table import KeyedTable, kinds_of, look_at, schema_in
from formats.errors import Unreachable
from formats.ids import TaskId
from formats.job.following import followed_every
from formats.job.model import Operator
from formats.view import Position

WAIT_SECONDS = 0.002
"""For which a source that has nothing to read leaves the processor to others."""

SOON = 0.05
"""Seconds until it is looked again whether those have ended that are waited for, or the database answers."""

AT_FIRST = 1.0
"""Seconds for the first rows, before there is anything else to do."""

SAY_AFTER = 2.0
"""Seconds of waiting that are not worth a word."""

END = "end"
"""Under which a source keeps the key up to which it reads."""


class _Fetch:
    """Something that a thread of its own comes to. It may be left alone: it keeps no process alive."""

    def __init__(self, work: Callable[[], Piece | None]) -> None:
        self._work = work
        self._done = threading.Event()
        self._piece: Piece | None = None
        self._error: BaseException | None = None
        threading.Thread(target=self._run, name="abs-table", daemon=True).start()

    def _run(self) -> None:
        try:
            self._piece = self._work()
        except BaseException as error:
            self._error = error
        self._done.set()

    def is_done(self, seconds: float) -> bool:
        """Whether it is, after so long at most."""
        return self._done.wait(seconds)

    def result(self) -> Piece | None:
        """What it came to; raises what that has raised."""
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._piece


class PostgresSource:
    """positions: restored ones; None to begin. connector: what an epoch has kept. As of `Source` otherwise."""

    watermark: int | None = None
    split = 0

    def __init__(
        self,
        operator: Operator,
        task: TaskId,
        positions: Iterable[Position] | None,
        connector: Mapping[str, str] | None,
    ) -> None:
        self._keyed = KeyedTable.of(operator)
        self._task = task
        self._title = self._keyed.table.title
        self._follows = (every := followed_every(operator)) is not None
        self._every = every or 0.0
        restored = None if positions is None else tuple(positions)
        mine = [Position(self._title, 0, 0)] if task.subtask == 0 else []
        self._position = next(iter(mine if restored is None else restored), None)
        if self._position is not None and self._position.split != self._title:
            raise UsageError(
                f"source {operator.id}: the epoch has a position in table {self._position.split}, but the job file "
                f"specifies {self._title}",
                hint="set the table of the source to its previous name; or start from the beginning, with "
                "--from-epoch 0 or a new store",
            )
        self._ended = self._position is None
        kinds, end = None, None
        if connector:
            where = f"operator {operator.id}"
            self._schema = kept_schema(dict(connector), where)
            kinds = read_kinds(connector, where)
            end = read_key(connector[END], len(self._keyed.key), where) if END in connector else None
        elif self._position is not None:
            looked = look_at(self._keyed)
            self._schema = schema_in(looked, operator)
            kinds = kinds_of(looked, self._schema)
        else:
            self._schema = pa.schema([])
        self._kinds = kinds
        # What was copied before the end was known is read up to where the table ends now.
        self._reader = TableReader(self._keyed, self._schema, kinds, follows=self._follows, end=end)
        self._lock = threading.Lock()
        self._closed = self._is_reading = False
        self._nothing = pa.RecordBatch.from_pylist([], self._schema)
        self._fetch: _Fetch | None = None
        self._left: tuple[Piece, int] | None = None
        self._look_at = 0.0
        self._is_first = True
        self._waiting = False
        self._ends: Mapping[str, int] | None = None
        self._rows: int | None = None

    # -- how far it is ------------------------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        return self._ended

    @property
    def positions(self) -> tuple[Position, ...]:
        return () if self._position is None else (self._position,)

    def cut(self) -> tuple[Position, ...]:
        """See `Source`."""
        return self.positions

    @property
    def unread(self) -> Collection[str]:
        return () if self._ended else (self._title,)

    @property
    def waiting(self) -> Collection[str]:
        return (self._title,) if self._waiting and not self._ended else ()

    @property
    def held_up(self) -> tuple[float, str] | None:
        waits: Waits | None = self._reader.waits
        if waits is None or time.monotonic() - waits.since < SAY_AFTER:
            return None
        return waits.since, waits.reason

    @property
    def connector(self) -> dict[str, str] | None:
        if self._kinds is None:
            return None
        kept = {**keep_schema(self._schema), KINDS: msgspec.json.encode(self._kinds).decode()}
        end = self._reader.end
        return kept if end is None else {**kept, END: key_text(end)}

    def stop_at(self, offsets: Mapping[str, int] | None = None, *, lines: int | None = None) -> None:
        """See `Source`."""
        self._ends, self._rows = offsets, lines

    def close(self) -> None:
        """See `Source`."""
        with self._lock:
            self._closed = True
            if not self._is_reading:  # else it is closed by whom that is
                self._reader.close()

    # -- reading ------------------------------------------------------------------------------------------

    def read(self) -> pa.RecordBatch | None:
        """See `Source`; no rows while there are none, or others may commit rows before them."""
        if self._ends is not None:
            most = self._may_read()
            return self._again(min(most, ROWS)) if most else None
        if self._rows == 0:
            return self._nothing
        if self._left is None and not self._ended:
            self._take()
        if self._left is not None:
            rows = self._give(ROWS if self._rows is None else self._rows)
            if self._left is None:
                self._go_on()
            return rows
        return None if self._ended else self._nothing

    def read_again(self, split: int, rows: int) -> pa.RecordBatch | None:
        """See `Source`."""
        return self._again(rows) if rows else self._nothing

    def _may_read(self) -> int:
        position = self._position
        if position is None or self._ends is None:
            return 0
        most = self._ends.get(self._title, 0) - (position.offset or 0)
        return max(0, most if self._rows is None else min(most, self._rows))

    def _take(self) -> None:
        """What has been fetched, if it is there; fetch what comes next, if it is time to."""
        now = time.monotonic()
        if self._fetch is None:
            if now < self._look_at:
                time.sleep(WAIT_SECONDS)
                return
            self._fetch = self._fetching(self._position)
        if not self._fetch.is_done(AT_FIRST if self._is_first else WAIT_SECONDS):
            self._is_first = False
            return
        self._is_first = False
        fetch, self._fetch = self._fetch, None
        try:
            piece = fetch.result()
        except Unreachable:
            self._look_at = time.monotonic() + SOON
            return
        if piece is not None and piece.rows.num_rows:
            self._left, self._waiting = (piece, 0), False
            return
        self._waiting = self._reader.waits is None
        if self._reader.at_end:
            self._end()
        self._look_at = time.monotonic() + (SOON if self._reader.waits is not None else self._every)

    def _go_on(self) -> None:
        """All that was fetched is given: fetch what comes next while others work on that."""
        if self._reader.at_end:
            self._end()
        else:
            self._fetch = self._fetching(self._position)

    def _end(self) -> None:
        self._ended = True
        self.close()

    def _fetching(self, position: Position | None) -> _Fetch:
        assert position is not None
        after, identity = self._stands(position)
        return _Fetch(lambda: self._fetched(lambda: self._reader.next(after, identity, ROWS)))

    def _fetched(self, work: Callable[[], Piece | None]) -> Piece | None:
        with self._lock:
            self._is_reading = True
        try:
            return None if self._closed else work()
        except Exception as error:
            raise self._keyed.told(error) from error
        finally:
            with self._lock:
                self._is_reading = False
                if self._closed:
                    self._reader.close()

    def _stands(self, position: Position) -> tuple[Key | None, Identity | None]:
        return position_key(position, len(self._keyed.key), self._task), Identity.parse(position.fingerprint)

    def _give(self, most: int) -> pa.RecordBatch:
        """Rows that have been fetched."""
        assert self._left is not None
        assert self._position is not None
        piece, first = self._left
        rows = piece.rows.slice(first, most)
        last = first + rows.num_rows
        count = (self._position.offset or 0) + rows.num_rows
        self._position = Position(
            self._title, count, count, text=key_text(piece.key(last - 1)), fingerprint=str(piece.identity)
        )
        self._left = (piece, last) if last < piece.rows.num_rows else None
        if self._rows is not None:
            self._rows -= rows.num_rows
        return rows

    def _again(self, count: int) -> pa.RecordBatch:
        """So many rows, which have been read before: nobody can commit one among them any more."""
        batches: list[pa.RecordBatch] = []
        self._drop_fetch()
        while count:
            if self._left is None:
                self._left = self._fetched_again(count), 0
            batches.append(self._give(count))
            count -= batches[-1].num_rows
        return batches[0] if len(batches) == 1 else pa.concat_batches(batches)

    def _drop_fetch(self) -> None:
        if self._fetch is not None:
            fetch, self._fetch = self._fetch, None
            with contextlib.suppress(Unreachable):
                piece = fetch.result()
                if piece is not None and piece.rows.num_rows:
                    self._left = piece, 0

    def _fetched_again(self, count: int) -> Piece:
        assert self._position is not None
        after, identity = self._stands(self._position)
        again = partial(self._reader.again, after, identity, min(count, ROWS))
        piece = self._fetched(lambda: self._keyed.table.until_answered(again))
        assert piece is not None
        if not piece.rows.num_rows:
            raise JobFailed(
                f"task {self._task}: rows of {self._title} that were already read are missing: {count:,} after "
                f"{', '.join(self._keyed.key)} = {', '.join(after or ('nothing',))}",
                hint="roll back with --from-epoch; in future, do not delete rows until an epoch contains them",
            )
        return piece
