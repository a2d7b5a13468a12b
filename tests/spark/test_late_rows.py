"""A roll-back behind a batch without input: late rows have other results, unless that batch runs again."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from abscli.cli.main import main
from abscli.stores.reasons import NoPlan
from abscli.stores.spark.plan import plan_spark
from formats.spark.plan import LateRows
from formats.spark.store import SparkStore
from formats.storage import LocalStorage
from tests.support.spark import cases
from tests.support.spark.data import copy_of


@pytest.mark.parametrize(
    ("case", "batch", "kept", "expected"),
    [
        ("incidents/two_deltas_swapped", 0, False, LateRows.OTHER_BATCHES),
        ("windows", 0, False, LateRows.OTHER_BATCHES),
        ("window_append", None, False, None),
        ("words", 2, False, None),
    ],
)
def test_a_plan_has_the_reason(
    case: str, batch: int | None, kept: bool, expected: LateRows | None, tmp_path: Path
) -> None:
    store = SparkStore(LocalStorage(copy_of(case, tmp_path)))
    plan = plan_spark(store, batch=batch, next_as_before=kept)
    assert not isinstance(plan, NoPlan)
    assert plan.body.late_rows is expected


@pytest.fixture(scope="module")
def session(spark: Any) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    session = SparkSession(spark)
    cases.set_conf(session, {})
    yield session
    for key in cases.BASE:
        session.conf.unset(key)


Row = tuple[str, int]


def add(source: Path, number: int, *seconds: int) -> None:
    source.mkdir(exist_ok=True)
    path = source / f"{number:03d}.json"
    path.write_text("\n".join(json.dumps({"at": f"2026-01-01T00:00:{second:02d}Z"}) for second in seconds))
    os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def go_on(session: Any, source: Path, checkpoint: Path) -> list[Row]:
    """Count rows by windows of 10 s, with a watermark of 10 s, until the input is read; the windows that came out."""
    from pyspark.sql.functions import col, window

    seen: list[Row] = []

    def sink(frame: Any, batch: int) -> None:
        seen.extend((str(row["window"]["start"].second), row["count"]) for row in frame.collect())

    lines = session.readStream.schema("at timestamp").option("maxFilesPerTrigger", 1).json(str(source))
    counts = lines.withWatermark("at", "10 seconds").groupBy(window(col("at"), "10 seconds")).count()
    writer = counts.writeStream.foreachBatch(sink).outputMode("append").option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    return sorted(seen)


@pytest.mark.minutes
def test_only_with_the_batch_without_input_late_rows_come_out_as_they_did(
    session: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, checkpoint = tmp_path / "input", tmp_path / "checkpoint"
    add(source, 0, *range(0, 31, 2))
    first = go_on(session, source, checkpoint)
    assert first, "batch 1 has no input and ends windows"
    shutil.copytree(checkpoint, tmp_path / "saved")
    add(source, 1, 12, 14, 50)  # 12 and 14 are late: the watermark is at 20
    expected = go_on(session, source, checkpoint)
    assert main(["validate", str(checkpoint)]) == 0
    made = {}
    for name, options in (("plain", []), ("kept", ["--keep-in-flight"])):
        plan, to = str(tmp_path / f"{name}.json"), tmp_path / name
        assert main(["plan-recovery", f"{tmp_path / 'saved'}@0", "--out", plan, *options]) == 0
        text = " ".join(capsys.readouterr().out.split())
        assert ("except for late rows" in text) == ("--keep-in-flight" in text) == (name == "plain")
        assert main(["restore", plan, "--to", str(to)]) == 0
        made[name] = go_on(session, source, to)
    assert made["kept"] == sorted([*first, *expected])
    assert made["plain"] != made["kept"]
