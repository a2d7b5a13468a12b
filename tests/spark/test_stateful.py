"""Queries that keep state of their own, run by real Spark: what its reader returns, and what a restart emits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from abscli.cli.main import main
from abscli.stores.spark.reader import spark_rows
from formats.spark.store import SparkStore
from formats.storage import LocalStorage
from tests.spark.test_state import fingerprint, rows
from tests.support.schemas import checked
from tests.support.spark import cases
from tests.support.spark.stateful import ENCODING, KINDS, go_on, make, reads

pytestmark = [
    pytest.mark.minutes,
    pytest.mark.soak,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]


@pytest.fixture(scope="module")
def session(spark: Any) -> Iterator[Any]:
    pytest.importorskip("pandas", reason="pandas is not installed")
    pytest.importorskip("google.protobuf", reason="protobuf is not installed")
    from pyspark.sql import SparkSession

    session = SparkSession(spark)
    yield session
    for key in (*cases.BASE, cases.PROVIDER, cases.CHANGELOG, cases.ROW_CHECKSUM, cases.IDS, ENCODING):
        session.conf.unset(key)


def lines(batches: Iterable[pa.RecordBatch], columns: list[str]) -> Counter[str]:
    return Counter(str(row) for batch in batches for row in batch.select(columns).to_pylist())


@pytest.mark.parametrize("name", KINDS)
def test_rows_are_those_of_sparks_reader_and_a_copy_goes_on_to_the_same_rows(
    name: str, session: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind, checkpoint, plan = KINDS[name], tmp_path / "checkpoint", tmp_path / "plan.json"
    emitted = make(session, tmp_path, kind)
    assert main(["validate", str(checkpoint), "-o", "json"]) == 0
    newest = checked(capsys.readouterr().out)["latest_restorable"]
    store = SparkStore(LocalStorage(checkpoint))
    for read in reads(session, checkpoint, range(newest - 2, newest + 1)):
        options = read["options"]
        wanted = options.get("stateVarName")
        if "readRegisteredTimers" in options:
            names = [family.name or "" for family in store.families(options["batchId"])]
            wanted = next(one for one in names if one.endswith("Timers_keyToTimestamp"))
            family = store.family(options["batchId"], "0", wanted)
            columns = ["g", "kb", "expiryTimestampMs", "partition_id"]
            asked = spark_rows(session.sparkContext, store, options["batchId"], family)
            own = store.state(options["batchId"], "0", wanted)
            assert lines(asked, columns) == lines(own, columns) != Counter()
        got = Counter(map(fingerprint, rows(store, options["batchId"], "0", wanted)))
        assert got == Counter(map(fingerprint, read["rows"])), options
    back = newest - 2
    assert main(["plan-recovery", f"{checkpoint}@{back}", "--out", str(plan)]) == 0
    assert main(["restore", str(plan), "--to", str(tmp_path / "copy")]) == 0
    again = go_on(session, tmp_path / "input", tmp_path / "copy", kind.then or kind.query)
    later = [found for batch, found in emitted.items() if batch > back]
    assert sum(again.values(), Counter()) == sum(later, Counter()) != Counter()
