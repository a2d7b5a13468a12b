"""Asks Spark's own state reader, for what is not read without it and as a referee."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from abscli.engine.drivers.spark import first_line, start_context
from abscli.engine.errors import EngineError
from abscli.report.findings import Code, Finding, StoreReport
from abscli.stores.spark.check import with_findings
from formats.errors import FormatError
from formats.spark import layout
from formats.spark.ids import StateTask
from formats.spark.state.codings import Family
from formats.spark.store import SparkStore
from formats.storage import Storage
from formats.view import CheckpointStore

if TYPE_CHECKING:
    import pyarrow as pa

PARTITION = "partition_id"


@contextlib.contextmanager
def _session(context: Any, store: SparkStore) -> Iterator[Any]:
    """A session of its own with the settings that the checkpoint needs: the reader does not find them itself."""
    from pyspark.sql import SparkSession

    session = SparkSession(context).newSession()
    for key, value in store.reader_conf().items():
        session.conf.set(key, value)
    session.conf.set("spark.sql.session.timeZone", "UTC")
    yield session


def _frame(session: Any, store: SparkStore, epoch: int, family: Family) -> Any:
    """Read one state with Spark's `statestore` source. Raises EngineError if that does not return it."""
    options = {"batchId": epoch, **_options(family)}
    frame = session.read.format("statestore").options(**options).load(store.path)
    # Spark's reader calls the time of a timer by another name than the state's schema does.
    return frame.withColumnRenamed("expiration_timestamp_ms", _EXPIRY) if family.kind == "timers" else frame


def _options(family: Family) -> dict[str, Any]:
    """Return the options of the `statestore` source for a state. Raises EngineError if that does not return it."""
    options: dict[str, Any] = {"operatorId": family.operator.id}
    if not family.grouped:
        options["storeName"] = family.store.name
    elif family.operator.name == "symmetricHashJoin":
        side, _, family_name = (family.name or "").partition("-")
        if family_name not in _JOINED:
            message = f"Spark's reader returns only all rows of the {side} side of a join, not {family.name}"
            raise EngineError(message, hint=f"use {side}-{' or '.join(_JOINED)}")
        options["joinSide"] = side
    elif family.kind == "timers" and (family.name or "").endswith(_REGISTERED):
        options["readRegisteredTimers"] = True
    elif family.kind in ("internal", "timers"):
        raise EngineError(f"Spark's reader does not return {family.name}, which Spark keeps for itself")
    else:
        options["stateVarName"] = family.name
    return options


_JOINED = ("keyWithIndexToValue", "keyWithTsToValues")
"""Column families of newer joins that hold the rows of a side."""
_EXPIRY = "expiryTimestampMs"
_REGISTERED = "Timers_keyToTimestamp"
"""The end of the name of the column family with the timers of a query; another one has them by time."""


def spark_rows(context: Any, store: SparkStore, epoch: int, family: Family) -> Iterator[pa.RecordBatch]:
    """The rows of a state, read by Spark: plain columns, named as those that are read without it, and `partition_id`.

    EngineError with the first line of what Spark says where it refuses.
    """
    try:
        with _session(context, store) as session:
            frame = _frame(session, store, epoch, family)
            names = _plain_names(frame.schema)
            for batch in _apart(frame).toArrow().to_batches():
                yield _flat(batch, names)
    except (FormatError, EngineError):
        raise
    except Exception as error:
        message = first_line(error)
        hint = "make a copy with `abs restore`: the checkpoint was moved, and the copy has corrected schema paths"
        moved = "FileNotFoundException" in message and "_stateSchema" in message
        raise EngineError(f"Spark cannot read batch {epoch}: {message}", hint=hint if moved else None) from error


def _apart(frame: Any) -> Any:
    """The frame with other names within its structs: Arrow wants each but once, and Spark's aggregates are all `sum`.
    Year-month intervals, which PySpark does not have in Arrow, are their months."""
    from pyspark.sql.functions import col
    from pyspark.sql.types import ArrayType, IntegerType, MapType, StructType, YearMonthIntervalType

    def named_apart(of: Any) -> Any:
        if isinstance(of, StructType):
            renamed, taken = StructType(), set[str]()
            for field in of.fields:
                name, n = field.name, 1
                while name in taken:
                    n += 1
                    name = f"{field.name}_{n}"
                taken.add(name)
                renamed.add(name, named_apart(field.dataType), field.nullable)
            return renamed
        if isinstance(of, ArrayType):
            return ArrayType(named_apart(of.elementType), of.containsNull)
        if isinstance(of, MapType):
            return MapType(named_apart(of.keyType), named_apart(of.valueType), of.valueContainsNull)
        return IntegerType() if isinstance(of, YearMonthIntervalType) else of

    return frame.select(*(col(field.name).cast(named_apart(field.dataType)) for field in frame.schema.fields))


def _plain_names(schema: Any) -> list[str]:
    """The names of columns once structs are taken apart, `partition_id` last."""
    from formats.spark.state.tables import unique

    names = []
    for field in schema.fields:
        if field.name != PARTITION:
            inside = getattr(field.dataType, "fields", None)
            names += [field.name] if inside is None else [part.name for part in inside]
    return [*unique(names), PARTITION]


def _flat(batch: pa.RecordBatch, names: list[str]) -> pa.RecordBatch:
    """The structs `key` and `value` (of transformWithState also `user_map_key` and so on) as columns of their own."""
    import pyarrow as pa

    arrays: list[pa.Array] = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if field.name != PARTITION:
            arrays += column.flatten() if pa.types.is_struct(field.type) else [column]
    return pa.RecordBatch.from_arrays([*arrays, batch.column(PARTITION)], names=names)


class AskedOfSpark(SparkStore):
    """A checkpoint whose state Spark itself reads."""

    def __init__(self, store: SparkStore, context: Any) -> None:
        super().__init__(store.storage)
        self._context = context

    def state(self, epoch: int, operator: str, name: str | None = None) -> Iterator[pa.RecordBatch]:
        """As of any store; EngineError with what Spark says where it refuses."""
        yield from spark_rows(self._context, self, epoch, self.family(epoch, operator, name))


class SparkReader:
    """Spark's own reader, as `abscli.stores.base.OwnReader`."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def asked(self, store: CheckpointStore) -> AskedOfSpark:
        assert isinstance(store, SparkStore)
        return AskedOfSpark(store, self._context)

    def confirmed(self, storage: Storage, report: StoreReport) -> StoreReport:
        store = SparkStore(storage)
        return with_findings(report, {epoch: deep_check(self._context, store, epoch) for epoch in report.restorable})


@contextlib.contextmanager
def running(master: str, show: Callable[[str], None]) -> Iterator[SparkReader]:
    """Spark is started, and stopped in the end."""
    show("starting Spark")
    context = start_context(master)
    try:
        yield SparkReader(context)
    finally:
        context.stop()


def deep_check(context: Any, store: SparkStore, epoch: int) -> list[Finding]:
    """Compare a batch's state with what Spark's own reader returns: errors, and other numbers of rows in a partition.

    Slow, as Spark loads every partition of every store. State that Spark's reader does not return is skipped.
    """
    findings: list[Finding] = []
    for family in store.families(epoch):
        try:
            _options(family)
        except EngineError:
            continue
        path = layout.operator_dir(family.operator.id)
        try:
            with _session(context, store) as session:
                rows = _frame(session, store, epoch, family).groupBy(PARTITION).count().collect()
        except Exception as error:
            findings.append(Finding(Code.UNREADABLE, None, None, path, "Spark's own reader failed: "
                f"{first_line(error)}"))
            continue
        if family.opaque is not None:
            continue
        theirs = Counter({int(row[PARTITION]): int(row["count"]) for row in rows})
        ours: Counter[int] = Counter()
        try:
            for batch in store.state(epoch, str(family.operator.id), family.name):
                ours.update(batch.column(PARTITION).to_pylist())
        except FormatError as error:
            findings.append(Finding(Code.UNREADABLE, None, None, error.path or path, error.message))
            continue
        for partition in sorted(theirs.keys() | ours.keys()):
            if theirs[partition] != ours[partition]:
                task = StateTask(family.operator.id, partition)
                message = f"Spark's own reader has {theirs[partition]} rows, the files have {ours[partition]}"
                findings.append(Finding(Code.ROW_MISMATCH, task.id, None, layout.task_dir(task), message))
    return findings
