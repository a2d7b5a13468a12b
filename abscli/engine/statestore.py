"""Asks Spark's own state reader, for what is not read without it and as a referee."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from abscli.check.findings import Code, Finding, StoreReport
from abscli.engine.errors import EngineError
from formats.errors import FormatError
from formats.spark import layout
from formats.spark.codings import Family
from formats.spark.store import SparkStore
from formats.storage import Storage

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
    """The rows of one state as Spark's `statestore` source has them."""
    options: dict[str, Any] = {"batchId": epoch, "operatorId": family.operator.id}
    transform = (family.operator.name or "").startswith("transformWithState")
    if transform and family.grouped:
        options["stateVarName"] = family.name
    else:
        options["storeName"] = family.store.name
    return session.read.format("statestore").options(**options).load(store.path)


def spark_rows(context: Any, store: SparkStore, epoch: int, family: Family) -> Iterator[pa.RecordBatch]:
    """The rows of a state, read by Spark: structs `key` and `value` (or what it calls them), and `partition_id`.

    EngineError with the first line of what Spark says where it refuses.
    """
    try:
        with _session(context, store) as session:
            yield from _frame(session, store, epoch, family).toArrow().to_batches()
    except FormatError:
        raise
    except Exception as error:
        said = _said(error)
        hint = "the checkpoint was moved: a copy made by `abs restore` names its schemas where they are"
        moved = "FileNotFoundException" in said and "_stateSchema" in said
        raise EngineError(f"Spark does not read batch {epoch}: {said}", hint=hint if moved else None) from error


class AskedOfSpark:
    """A checkpoint whose state Spark itself reads, for whatever works through the view. Rows have plain columns, named
    as those that are read without Spark."""

    def __init__(self, store: SparkStore, context: Any) -> None:
        self._store, self._context = store, context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def state(self, epoch: int, operator: str, name: str | None = None) -> Iterator[pa.RecordBatch]:
        """As `CheckpointStore.state`; EngineError with what Spark says where it refuses."""
        family = self._store.family(epoch, operator, name)
        for batch in spark_rows(self._context, self._store, epoch, family):
            yield plain_columns(batch)


def plain_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The structs `key` and `value` (of transformWithState also `user_map_key` and so on) as columns of their own."""
    import pyarrow as pa

    names: list[str] = []
    arrays: list[pa.Array] = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        inside = pa.types.is_struct(field.type) and field.name != PARTITION
        parts = zip(field.type, column.flatten(), strict=True) if inside else [(field, column)]
        for part, array in parts:
            name, n = part.name, 1
            while name in names or (name == PARTITION and inside):
                n += 1
                name = f"{part.name}_{n}"
            names.append(name)
            arrays.append(array)
    at = names.index(PARTITION) if PARTITION in names else -1
    order = [i for i in range(len(names)) if i != at] + ([at] if at >= 0 else [])
    return pa.RecordBatch.from_arrays([arrays[i] for i in order], names=[names[i] for i in order])


def deep_findings(context: Any, storage: Storage, report: StoreReport) -> dict[int, list[Finding]]:
    """`deep_check` of all batches that a report holds to be restorable."""
    store = SparkStore(storage)
    return {epoch: deep_check(context, store, epoch) for epoch in report.restorable}


def deep_check(context: Any, store: SparkStore, epoch: int) -> list[Finding]:
    """What Spark's reader finds wrong with a batch's state, or finds other rows in than are found without it.

    Slow: Spark loads every partition of every store. Column families of joins are left out: it does not read them.
    """
    found: list[Finding] = []
    for family in store.families(epoch):
        if family.kind in ("internal", "timers") or (family.grouped and family.operator.name == "symmetricHashJoin"):
            continue
        path = f"{layout.STATE}/{family.operator.id}"
        try:
            with _session(context, store) as session:
                rows = _frame(session, store, epoch, family).groupBy(PARTITION).count().collect()
        except Exception as error:
            found.append(Finding(Code.UNREADABLE, None, None, path, f"Spark's own reader: {_said(error)}"))
            continue
        if family.opaque is not None:
            continue
        theirs = Counter({int(row[PARTITION]): int(row["count"]) for row in rows})
        ours: Counter[int] = Counter()
        try:
            for batch in store.state(epoch, str(family.operator.id), family.name):
                ours.update(batch.column(PARTITION).to_pylist())
        except FormatError as error:
            found.append(Finding(Code.UNREADABLE, None, None, error.path or path, error.message))
            continue
        for partition in sorted(theirs.keys() | ours.keys()):
            if theirs[partition] != ours[partition]:
                task = f"{family.operator.id}/{partition}"
                said = f"Spark's own reader has {theirs[partition]} rows, the files have {ours[partition]}"
                found.append(Finding(Code.ROW_MISMATCH, task, None, f"{path}/{partition}", said))
    return found


def _said(error: Exception) -> str:
    """The first line that says something: what Py4J puts before it does not."""
    lines = [line.removeprefix(": ") for line in str(error).splitlines()]
    told = [line for line in lines if line.strip() and not line.startswith("An error occurred while calling")]
    return (told or [type(error).__name__])[0][:300]
