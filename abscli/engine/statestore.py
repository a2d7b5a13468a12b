"""Asks Spark's own state reader, for what is not read without it and as a referee."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from abscli.check.findings import Code, Finding
from abscli.engine.errors import EngineError
from formats.errors import FormatError
from formats.spark import layout
from formats.spark.codings import Family
from formats.spark.store import SparkStore

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
        raise EngineError(f"Spark does not read batch {epoch}: {_said(error)}") from error


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
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
