"""A table of Iceberg: one commit an epoch, which sets the sink's property of the table (`marks`) in one step with its
rows.

A commit asserts which snapshot is the current one, the one of which the property was read: of two at once the catalog
takes one, and the other is told, reads the property again, and then writes or not. So does one of which nobody knows
what became. pyiceberg would repeat a commit upon what somebody else has written meanwhile, without a look at the
property: it is not let. A claim is a commit without rows, for the same reason: whoever was stopped in the middle of a
commit asserts a snapshot that is not the current one any more.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any, TypeVar

import msgspec

from abscli.engine.errors import EngineError, EngineStopped, JobFailed
from abscli.engine.sinks.iceberg.marks import CLAIM, JOB, Commit, Marks, epochs_of, is_undone, line_of, summary_of
from abscli.engine.sinks.iceberg.place import TablePlace, shown
from abscli.engine.sinks.staged.columns import ICEBERG, in_columns, written_as
from abscli.engine.sinks.staged.contract import Delivery, StagedInStore, Unmet
from abscli.engine.sinks.staged.parquet_rows import opened
from abscli.engine.sinks.staged.refusals import crowded, other_table, rows_refused, taken_over, unreadable, unwritten
from abscli.engine.sinks.staged.tries import until_done, until_told, within
from formats.ids import EpochId
from formats.job.model import Operator

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

ANSWER_SECONDS = 30.0
"""Seconds that a catalog may take for one answer to a writer; ASK_SECONDS: to others."""
ASK_SECONDS = 10.0
Answer = TypeVar("Answer")
MADE_WITH = {"write.metadata.delete-after-commit.enabled": "true"}
"""Properties of a table that the sink makes. Each commit rewrites its metadata; the newest hundred files stay."""


class IcebergTable(StagedInStore):
    """An Iceberg table as a `Target`.

    job: the name of the job.
    directory: of its file.
    """

    remembers = True

    def __init__(self, operator: Operator, directory: str, job: str) -> None:
        self.operator = operator.id
        self._place = TablePlace.of(operator, directory)
        self.title = self._place.title
        self._name = f"{job}/{operator.id}"
        self._property = f"abs.sink.{self._name}"
        self._catalog: Catalog | None = None
        self._is_held = False
        self._writer = ""
        self._uuid: str | None = None
        self._columns: pa.Schema | None = None

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Lock nothing: who takes the table takes it from others, whose commits fail from then on."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
            self._close()

    def _close(self) -> None:
        catalog, self._catalog = self._catalog, None
        if catalog is not None:
            catalog.close()

    def _ask(self, question: Callable[[Table | None], Answer]) -> Answer:
        """Return the answer to a question about the table as it is now.

        Whoever writes the table waits for its catalog. For others the catalog is opened for this question alone.
        """
        if self._is_held:
            return until_told(lambda: question(self._load()), self._close)
        try:
            return question(self._load())
        finally:
            self._close()

    def _columns_of_table(self) -> pa.Schema | None:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        def columns(table: Table | None) -> pa.Schema | None:
            return schema_to_pyarrow(table.schema(), include_field_ids=False) if table is not None else None

        return self._ask(columns)

    # -- what is there -------------------------------------------------------------------------------------

    def unmet(self, columns: pa.Schema | None) -> list[Unmet]:
        """List the columns that the table does not take, or for which it cannot be created; see `Target.unmet`."""
        if columns is None:
            self._ask(lambda table: None)
            return []
        wrong = self._faults(columns)
        if not wrong:
            return []
        message = f"{self.title} does not take the rows: {'; '.join(wrong)}"
        return [Unmet(message, "change the table, or name another one")]

    def _faults(self, rows: pa.Schema) -> list[str]:
        columns = self._columns_of_table()
        if columns is not None:
            return list(ICEBERG.disagreements(rows, columns))
        try:
            ICEBERG.columns_for(rows)
        except ValueError as error:
            return [str(error)]
        return []

    def try_rows(self, rows: IO[bytes]) -> None:
        """Convert rows to the columns of the table; see `Target.try_rows`."""
        from pyarrow.parquet import ParquetFile

        part = ParquetFile(rows)
        if self._columns is None:
            self._columns = self._columns_of_table()
        try:
            if self._columns is None:  # the first delivery makes the table
                ICEBERG.columns_for(part.schema_arrow)
                return
            if wrong := list(ICEBERG.disagreements(part.schema_arrow, self._columns)):
                raise ValueError("; ".join(wrong))
            written = written_as([part.schema_arrow], self._columns)
            if not written.equals(part.schema_arrow):
                for batch in part.iter_batches():
                    in_columns(batch, written)
        except ValueError as error:
            raise rows_refused(self.operator, self.title, str(error)) from None

    def markers(self) -> list[EpochId]:
        """Return the epochs of the commit markers; see `Target.markers`."""
        return self._ask(lambda table: self._marks(table).shown() if table is not None else [])

    def has(self, epoch: EpochId) -> bool:
        """Tell whether rows up to an epoch are committed; see `Target.has`."""
        return self._ask(lambda table: table is not None and self._marks(table).has_reached(epoch))

    def identity(self) -> str | None:
        """Return the UUID of the table."""
        return self._ask(_uuid)

    def undone(self, identity: str | None) -> str | None:
        """Return how the target lost commits; see `Target.undone`."""
        return self._ask(lambda table: self._undone(table, identity))

    def _undone(self, table: Table | None, identity: str | None) -> str | None:
        other = other_table(self.title, identity, _uuid(table))
        if table is None or other is not None:
            return other
        marks, line = self._property_of(table), _line(table)
        if not is_undone(marks, line, _commits(table)):
            return None
        newest = max((epoch.number for epoch in marks.shown()), default=0)
        current = line[0].id if line else "none"
        return (
            f"{self.title} was set back to snapshot {current}, and has lost snapshot {marks.snapshot}, with rows up to "
            f"epoch {newest}"
        )

    def _load(self, *, make: bool = False) -> Table | None:
        """The table as it is; None where it is not there. make: also a catalog that is not there yet."""
        if self._catalog is None:
            self._catalog = self._within(lambda: self._place.open(make=make))
            if self._catalog is None:
                return None
        catalog = self._catalog
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        try:
            return self._within(lambda: catalog.load_table(self._place.table))
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        except EngineError:
            raise
        except Exception as error:  # a catalog's client raises whatever comes of it
            raise unreadable(self.operator, self.title, shown(error)) from None

    def _within(self, call: Callable[[], Answer]) -> Answer:
        """Return the answer of the catalog. Raises Unanswered if it takes too long."""
        seconds = ANSWER_SECONDS if self._is_held else ASK_SECONDS
        reason = f"its catalog has not answered for {seconds:.0f} s"
        return within(seconds, call, lambda: unreadable(self.operator, self.title, reason))

    def _property_of(self, table: Table) -> Marks:
        try:
            return Marks.read(table.properties.get(self._property))
        except ValueError as error:
            raise EngineStopped(
                f"sink {self.operator}: the property {self._property} of {self.title} cannot be read: {error}",
                hint="restore the value of the property from the previous table metadata; or remove the property, so "
                "that the snapshot summaries are used instead",
            ) from None

    def _marks(self, table: Table) -> Marks:
        """Return the marks of the table: its property, and the epochs of snapshots that the property does not imply.

        The property names the newest epoch of each attempt, and no longer those that were pruned.
        """
        marks, line = self._property_of(table), _line(table)
        if is_undone(marks, line, _commits(table)):
            marks = marks.up_to(max((epoch.number for epoch in epochs_of(self._name, line)), default=0))
        return marks.with_epochs([epoch for epoch in epochs_of(self._name, line) if not marks.has_reached(epoch)])

    # -- what changes it -----------------------------------------------------------------------------------

    def take(self, attempt_id: str, left: Collection[EpochId], oldest: int) -> None:
        """Make the target this attempt's; see `Target.take`."""
        self._writer = f"{attempt_id} {secrets.token_hex(8)}"

        def take() -> bool:
            table = self._load()
            self._uuid = _uuid(table)
            if table is None or self._property_of(table).writer == self._writer:
                return True  # its first commit makes it, and claims it
            marks = self._marks(table).taken(self._writer, left, oldest)
            self._write(table, [], marks, {JOB: self._name, CLAIM: self._writer})
            return False

        self._until_done(take)

    def publish(self, delivery: Delivery) -> None:
        """Commit a delivery; see `Target.publish`."""
        with opened(delivery) as parts:
            self._until_done(lambda: self._apply(delivery, parts))

    def _apply(self, delivery: Delivery, parts: Sequence[ParquetFile]) -> bool:
        """Tell whether the rows are committed; if not, try to commit them."""
        table = self._load(make=True)
        if self._uuid is not None and (undone := self._undone(table, self._uuid)) is not None:
            raise EngineStopped(
                f"sink {self.operator}: while the job ran, the table was changed: {undone}",
                hint="run `abs run --resume`; its error message lists the possible actions; staged rows are kept in "
                "the store",
            )
        if table is None:
            self._create(parts)
            return False
        self._uuid = _uuid(table)
        marks = self._marks(table)
        if marks.writer not in ("", self._writer):
            raise taken_over(self.operator, self.title)
        if marks.has(delivery.epoch) or marks.has_left(delivery.epoch):
            return True
        marks = msgspec.structs.replace(marks.with_epochs([delivery.epoch]), writer=self._writer)
        self._write(table, parts, marks, summary_of(self._name, delivery.epoch))
        return False

    def _until_done(self, step: Callable[[], bool]) -> None:
        until_done(step, crowded(self.operator, self.title), self._close)

    def _create(self, parts: Sequence[ParquetFile]) -> None:
        """Make the table, unless somebody else just has."""
        import pyarrow as pa
        from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchNamespaceError, TableAlreadyExistsError

        try:
            rows = pa.unify_schemas([part.schema_arrow for part in parts], promote_options="permissive")
            schema = ICEBERG.columns_for(rows)
        except (ValueError, TypeError) as error:
            raise self._unfit(str(error)) from None
        assert self._catalog is not None
        catalog, properties = self._catalog, {**MADE_WITH, self._property: Marks(self._writer).text()}

        def create() -> None:
            try:
                catalog.create_table(self._place.table, schema, properties=properties)
            except NoSuchNamespaceError:
                with contextlib.suppress(NamespaceAlreadyExistsError):
                    catalog.create_namespace(self._place.table.rpartition(".")[0])
                catalog.create_table(self._place.table, schema, properties=properties)

        try:
            self._within(create)
        except TableAlreadyExistsError:
            return
        except EngineError:
            raise
        except Exception as error:
            raise self._unwritten(error) from None

    def _write(self, table: Table, parts: Sequence[ParquetFile], marks: Marks, summary: dict[str, str]) -> None:
        """Try to commit the rows; without any, of a claim, the property alone."""
        import pyarrow as pa
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        columns = schema_to_pyarrow(table.schema(), include_field_ids=False)
        schemas = [part.schema_arrow for part in parts]
        if wrong := dict.fromkeys(one for schema in schemas for one in ICEBERG.disagreements(schema, columns)):
            raise self._unfit("; ".join(wrong))
        written = written_as(schemas, columns) if schemas else columns
        batches = (in_columns(batch, written) for part in parts for batch in part.iter_batches())
        self._commit(table, pa.RecordBatchReader.from_batches(written, batches), marks, summary)

    def _commit(self, table: Table, rows: pa.RecordBatchReader, marks: Marks, summary: dict[str, str]) -> None:
        """Try it: whether it is there the table says."""
        import pyarrow as pa
        from pyiceberg.exceptions import CommitFailedException

        _let_fail(table)
        transaction = table.transaction()
        try:
            # pyiceberg divides rows among partitions only where it has all of them.
            whole = rows if table.spec().is_unpartitioned() else rows.read_all()
            transaction.append(whole, snapshot_properties=summary)
        except (ValueError, TypeError, NotImplementedError, pa.ArrowException) as error:
            raise self._unfit(shown(error)) from None
        except Exception as error:
            raise self._unwritten(error) from None
        snapshot = transaction.table_metadata.current_snapshot()
        assert snapshot is not None
        marks = msgspec.structs.replace(marks, snapshot=snapshot.snapshot_id, sequence=snapshot.sequence_number or 0)
        transaction.set_properties({self._property: marks.text()})
        try:
            self._within(transaction.commit_transaction)
        except CommitFailedException:
            return
        except EngineError:
            raise
        except Exception as error:
            # It is there, or is not, or will be: who tries again asserts the same snapshot, and one of both fails.
            raise self._unwritten(error) from None

    def _unfit(self, message: str) -> JobFailed:
        return JobFailed(
            f"sink {self.operator}: {self.title} rejected the rows: {message}",
            hint="undo the change to the table and resume; or change the job so that the table accepts its rows, and "
            "use --from-epoch to resume from an epoch before these rows",
        )

    def _unwritten(self, error: Exception) -> EngineStopped:
        from pyiceberg.exceptions import ForbiddenError, UnauthorizedError

        temporary = unwritten(self.operator, self.title, shown(error))
        is_final = isinstance(error, (ForbiddenError, UnauthorizedError, PermissionError))
        return EngineStopped(temporary.message, hint=temporary.hint) if is_final else temporary


def _uuid(table: Table | None) -> str | None:
    return str(table.metadata.table_uuid) if table is not None else None


def _let_fail(table: Table) -> None:
    """Have commits fail that somebody else was before: pyiceberg would try again on its own."""
    properties = {**table.metadata.properties, "commit.retry.num-retries": "0"}
    table.metadata = table.metadata.model_copy(update={"properties": properties})


def _commits(table: Table) -> dict[int, Commit]:
    return {commit.id: commit for commit in map(_commit_of, table.metadata.snapshots)}


def _line(table: Table) -> list[Commit]:
    current = table.current_snapshot()
    return list(line_of(_commit_of(current) if current is not None else None, _commits(table)))


def _commit_of(snapshot: Any) -> Commit:
    summary = snapshot.summary.additional_properties if snapshot.summary is not None else {}
    return Commit(snapshot.snapshot_id, snapshot.parent_snapshot_id, snapshot.sequence_number or 0, summary)
