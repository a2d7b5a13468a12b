"""A table of Delta Lake: one commit an epoch, which carries Delta's own identifiers of transactions (`txn`).

A commit has two of them: that of the attempt that made the epoch, whose version is the epoch's number, and says that
it is there; and that of who writes the table, whose version is drawn anew by each claim. Of two commits at once with
one identifier Delta takes the first alone: so a driver that was stopped, and goes on when another has claimed the
table, writes nothing.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from abscli.engine.errors import EngineStopped
from abscli.engine.sinks.staged.columns import DELTA, in_columns, written_as
from abscli.engine.sinks.staged.contract import Delivery, StagedInStore, Unmet
from abscli.engine.sinks.staged.parquet_rows import opened
from abscli.engine.sinks.staged.refusals import (
    crowded,
    first_line,
    other_table,
    rows_refused,
    rows_refused_late,
    taken_over,
    unreadable,
    unwritten,
)
from abscli.engine.sinks.staged.tries import until_done, until_told
from formats.ids import EpochId
from formats.redaction import redact
from formats.scratch import scratch

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable, Schema
    from pyarrow.parquet import ParquetFile

Answer = TypeVar("Answer")
ATTEMPT, EPOCH, LEFT, JOB = "abs.attempt", "abs.epoch", "abs.left", "abs.job"
"""What the metadata of a commit say: whose rows it has; or, of a claim, which epochs were left behind."""
RESTORE = "RESTORE"
"""The name in the history of a commit that makes an older version the current one."""
CONSTRAINT = "delta.constraints."
"""Prefix of the properties of a table that are CHECK constraints."""
BUCKET_OPTIONS = {"connect_timeout": "5s", "timeout": "15s", "max_retries": "10", "retry_timeout": "3s"}
"""Of the storage client of a table in a bucket. It gives up soon, so that the reason is known; the sink tries again."""
_STORAGE = re.compile(r"Generic (?!DeltaTable)\w+ error|error sending request|HTTP error|\(os error \d+\)")
"""In the text of an error of the storage, whatever its class is: of the table and its rows there are others."""


class DeltaSink(StagedInStore):
    """A Delta table as a `Target`.

    path: of the table.
    job: the name of the job.
    """

    remembers = True

    def __init__(self, operator: str, path: str, job: str) -> None:
        self.operator = operator
        self.title = path
        self._path = path
        self._job = job
        self._line = f"abs-writer-{job}-{operator}"
        self._claim = 0
        self._own = -1
        self._seen = -1
        self._like: Like | None = None
        self._is_held = False
        self._options = BUCKET_OPTIONS if "://" in path else None

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Lock nothing: whoever takes the table takes it from others, whose commits fail from then on.

        Whoever holds the table waits for its storage.
        """
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False

    def unmet(self, columns: pa.Schema | None) -> list[Unmet]:
        """List the columns that the table does not take, or with which it cannot be created; see `Target.unmet`."""
        table = self._ask(lambda table: None if table is None else _columns_of(table.schema()))
        if columns is None:
            return []
        wrong = _misfits(columns, table)
        if not wrong:
            return []
        message = f"the table {self.title} does not take the rows: {'; '.join(wrong)}"
        return [Unmet(message, "change the table or the job; or give the sink another path")]

    def _ask(self, question: Callable[[DeltaTable | None], Answer]) -> Answer:
        """Return the answer to a question about the newest version of the table.

        Whoever writes the table waits for its storage; others ask once.
        """

        def ask() -> Answer:
            with self._reading():
                return question(self._table())

        return until_told(ask) if self._is_held else ask()

    def _table(self) -> DeltaTable | None:
        """Return the newest version of the table; None if it is missing."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        with self._reading():
            try:
                return DeltaTable(self._path, storage_options=self._options)
            except TableNotFoundError:
                return None

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Raise Unanswered for errors of the storage, EngineStopped for a table that cannot be read."""
        from deltalake.exceptions import DeltaError

        try:
            yield
        except (DeltaError, OSError) as error:
            temporary = unreadable(self.operator, self.title, shown(error))
            if is_of_storage(error):
                raise temporary from None
            raise EngineStopped(temporary.message, hint=temporary.hint) from None

    def markers(self) -> list[EpochId]:
        """Return the epochs of the commit markers; see `Target.markers`."""
        return self._ask(self._shown)

    def _shown(self, table: DeltaTable | None) -> list[EpochId]:
        own = [entry for entry in table.history() if entry.get(JOB) == self._name] if table is not None else []
        shown: list[EpochId] = []
        left: set[EpochId] = set()
        for entry in own:  # newest first: what was written again since a claim left it behind is shown
            if LEFT in entry:
                left |= {EpochId(id, number) for id, number in json.loads(entry[LEFT])}
            elif (epoch := EpochId(entry[ATTEMPT], int(entry[EPOCH]))) not in left:
                shown.append(epoch)
        return shown[::-1]

    @property
    def _name(self) -> str:
        return f"{self._job}/{self.operator}"

    def has(self, epoch: EpochId) -> bool:
        """Tell whether rows up to an epoch are committed; see `Target.has`."""
        return self._ask(
            lambda table: table is not None
            and (table.transaction_version(self._id(epoch.attempt_id)) or 0) >= epoch.number
        )

    def _id(self, attempt_id: str) -> str:
        return f"abs-{attempt_id}-{self.operator}"

    def identity(self) -> str | None:
        """Return the id of the table."""
        return self._ask(_id_of)

    def undone(self, identity: str | None) -> str | None:
        """Return how the table lost commits: it was replaced, or rolled back past a commit of this sink."""
        return self._ask(lambda table: self._undone(table, identity))

    def _undone(self, table: DeltaTable | None, identity: str | None) -> str | None:
        other = other_table(self.title, identity, _id_of(table))
        if table is None or other is not None:
            return other
        self._own, self._seen = -1, table.version()
        entries = table.history()
        newest = next((i for i, entry in enumerate(entries) if entry.get(JOB) == self._name), -1)
        return self._rolled_back(entries[: newest + 1])

    def _rolled_back(self, entries: Sequence[Mapping[str, Any]]) -> str | None:
        """Return how the table was rolled back past the newest commit of this sink; None if it was not.

        entries: of the history, newest first. The version of this sink's newest commit is kept for the next call.
        """
        for entry in reversed(entries):
            if entry.get(JOB) == self._name:
                self._own = int(entry["version"])
            elif str(entry.get("operation", "")).upper() == RESTORE and (to := _restored_version(entry)) < self._own:
                return f"{self.title} was rolled back to version {to} (RESTORE, version {entry['version']})"
        return None

    def take(self, attempt_id: str, left: Collection[EpochId], oldest: int) -> None:
        """Make the target this attempt's; see `Target.take`."""
        self._claim = secrets.randbits(60)
        behind = json.dumps([[epoch.attempt_id, epoch.number] for epoch in sorted(left)])

        def take() -> bool:
            table = self._table()
            if table is None:
                return True  # its first commit makes it, and claims it
            with self._reading():
                self._check_since(table)
                if table.transaction_version(self._line) == self._claim:
                    return True

            def claim(properties: CommitProperties) -> None:
                table.create_write_transaction([], "append", table.schema(), commit_properties=properties)

            return self._commit(claim, {LEFT: behind}, {self._line: self._claim})

        self._until_done(take)

    def _until_done(self, step: Callable[[], bool]) -> None:
        until_done(step, crowded(self.operator, self.title))

    def try_rows(self, rows: IO[bytes]) -> None:
        """Write rows to an empty copy of the table, unless it accepts every value; see `Target.try_rows`."""
        reason = self._why_refused(rows)
        if reason is not None:
            raise rows_refused(self.operator, self.title, reason)

    def _why_refused(self, rows: IO[bytes]) -> str | None:
        from deltalake import DeltaTable, Schema
        from pyarrow.parquet import ParquetFile

        if self._like is None:
            self._like = self._ask(_like_of)
        part = ParquetFile(rows)
        columns = None if self._like is None else _columns_of(self._like.schema)
        if wrong := _misfits(part.schema_arrow, columns):
            return "; ".join(wrong)
        written = DELTA.columns_for(part.schema_arrow) if columns is None else written_as([part.schema_arrow], columns)
        if not written.equals(part.schema_arrow):
            try:
                for batch in part.iter_batches():
                    in_columns(batch, written)
            except ValueError as error:
                return str(error)
        if self._like is None or self._like == Like(Schema.from_arrow(written), {}):
            return None  # the table is as it would be created for these rows
        with tempfile.TemporaryDirectory(dir=scratch()) as folder:
            empty = DeltaTable.create(folder, self._like.schema)
            if self._like.constraints:
                empty.alter.add_constraint(dict(self._like.constraints))
            try:
                self._write(empty, [part])
            except Exception as error:  # of rows that do not fit it raises whatever came of it
                return first_line(error)
        return None

    def publish(self, delivery: Delivery) -> None:
        """Write a delivery; see `Target.publish`."""
        with opened(delivery) as parts:
            self._until_done(lambda: self._apply(delivery, parts))

    def _apply(self, delivery: Delivery, parts: Sequence[ParquetFile]) -> bool:
        """Return True if the rows are committed, False if that has to be looked up."""
        id, epoch = self._id(delivery.epoch.attempt_id), delivery.epoch.number
        table = self._table()
        if table is None:
            self._create(pa.unify_schemas([part.schema_arrow for part in parts], promote_options="permissive"))
            return False
        with self._reading():
            self._check_since(table)
            if (table.transaction_version(self._line) or self._claim) != self._claim:
                raise taken_over(self.operator, self.title)
            if (table.transaction_version(id) or 0) >= epoch:
                return True

        def write(properties: CommitProperties) -> None:
            version = table.version()
            self._write(table, parts, properties)
            if table.version() == version + 1:  # nobody else wrote in between: there is nothing to look at later
                self._own = self._seen = version + 1

        metadata = {ATTEMPT: delivery.epoch.attempt_id, EPOCH: str(epoch)}
        return self._commit(write, metadata, {self._line: self._claim, id: epoch})

    def _check_since(self, table: DeltaTable) -> None:
        """Raise EngineStopped if the table was rolled back since the last call.

        `history` holds Python's lock while it reads the log, so that no other thread of the driver runs, not even the
        one that sends heartbeats: it is called only if somebody else has written.
        """
        version = table.version()
        since = table.history(version - self._seen) if 0 <= self._seen < version else []
        self._seen = version
        if (problem := self._rolled_back(since)) is not None:
            raise EngineStopped(
                f"sink {self.operator}: {problem} while the job ran: committed rows are missing",
                hint="restore the table version that contains these rows; or run "
                "`abs run --resume --take-ownership` to resume without them",
            )

    def _create(self, rows: pa.Schema) -> None:
        """Create the table for such rows, unless another process just has."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        def create(properties: CommitProperties) -> None:
            try:
                DeltaTable.create(
                    self._path, DELTA.columns_for(rows), mode="error", commit_properties=properties,
                    storage_options=self._options,
                )  # fmt: skip
            except DeltaError:
                if not DeltaTable.is_deltatable(self._path, self._options):
                    raise

        self._commit(create, {LEFT: "[]"}, {self._line: self._claim})

    def _commit(
        self, write: Callable[[CommitProperties], None], metadata: dict[str, str], transactions: dict[str, int]
    ) -> bool:
        """Return False if another writer was first.

        Raises Unanswered if the storage fails: the commit is there, or is not, or will be.
        """
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError

        properties = CommitProperties(
            custom_metadata={JOB: self._name, **metadata},
            app_transactions=[Transaction(id, version) for id, version in transactions.items()],
        )
        try:
            write(properties)
        except Exception as error:  # of rows that do not fit it raises whatever came of it
            if is_of_storage(error):
                raise unwritten(self.operator, self.title, shown(error)) from None
            if isinstance(error, CommitFailedError):
                return False
            raise rows_refused_late(self.operator, self.title, int(metadata.get(EPOCH, 0)), first_line(error)) from None
        return True

    def _write(
        self, table: DeltaTable, parts: Sequence[ParquetFile], properties: CommitProperties | None = None
    ) -> None:
        from deltalake import write_deltalake

        columns, schemas = _columns_of(table.schema()), [part.schema_arrow for part in parts]
        if wrong := dict.fromkeys(one for schema in schemas for one in _misfits(schema, columns)):
            raise ValueError("; ".join(wrong))
        written = written_as(schemas, columns)
        batches = (in_columns(batch, written) for part in parts for batch in part.iter_batches())
        rows = pa.RecordBatchReader.from_batches(written, batches)
        write_deltalake(table, rows, mode="append", commit_properties=properties)


def is_of_storage(error: Exception) -> bool:
    """Tell whether the storage of a table failed, and not the table or its rows."""
    return isinstance(error, OSError) or _STORAGE.search(str(error)) is not None


def shown(error: Exception) -> str:
    """Return the text of an error in one line, without the client's colours and arrows, and what a server sent."""
    text = re.sub(r"\x1b\[[0-9;]*m|↳", "", str(error)).partition("<")[0]
    return redact(" ".join(text.split()) or type(error).__name__)


def _id_of(table: DeltaTable | None) -> str | None:
    return str(table.metadata().id) if table is not None else None


@dataclass(frozen=True, slots=True)
class Like:
    """The properties of a table that decide whether it accepts a value.

    constraints: expressions by name.
    """

    schema: Schema
    constraints: Mapping[str, str]


def _columns_of(schema: Schema) -> pa.Schema:
    return pa.schema(schema.to_arrow())


def _misfits(rows: pa.Schema, table: pa.Schema | None) -> list[str]:
    """Return the reasons for which a table does not take rows. table: its columns; None for a new table."""
    if table is not None:
        return list(DELTA.disagreements(rows, table))
    try:
        DELTA.columns_for(rows)
    except ValueError as error:
        return [str(error)]
    return []


def _like_of(table: DeltaTable | None) -> Like | None:
    return Like(table.schema(), constraints_of(table.metadata().configuration)) if table is not None else None


def constraints_of(configuration: Mapping[str, str | None]) -> dict[str, str]:
    """Return the CHECK constraints among the properties of a table."""
    return {
        name.removeprefix(CONSTRAINT): expression
        for name, expression in configuration.items()
        if name.startswith(CONSTRAINT) and expression
    }


def _restored_version(entry: Mapping[str, Any]) -> int:
    """Return the version to which a RESTORE went back; -1 if its entry does not have it."""
    parameters = entry.get("operationParameters")
    version = str(parameters.get("version")) if isinstance(parameters, Mapping) else ""
    return int(version) if version.isdecimal() else -1
