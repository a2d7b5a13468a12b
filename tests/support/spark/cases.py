"""Real checkpoints of Spark Structured Streaming, made by small queries, and what Spark's own reader says of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
ROW_CHECKSUM = "spark.sql.streaming.stateStore.rowChecksum.enabled"
CODEC = "spark.sql.streaming.stateStore.compression.codec"
IDS = "spark.sql.streaming.stateStore.checkpointFormatVersion"
BASE = {
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "3",
    "spark.sql.streaming.stateStore.maintenanceInterval": "200ms",
    "spark.sql.session.timeZone": "UTC",
}
Query = Callable[[Any, Any], Any]
"""From a session and a stream of the rows of `rows` to the result of a streaming query."""

SCHEMA = (
    "id int, b boolean, by byte, sh short, l long, f float, d double, s string, bin binary, da date, ts timestamp, "
    "tn timestamp_ntz, dec decimal(10,2), big decimal(30,5), ym int, dt interval day to second, "
    "st struct<a:int,b:string>, arr array<int>, arrs array<string>, m map<string,long>"
)


def rows(start: int, count: int) -> list[tuple[Any, ...]]:
    """Rows of all types; every seventh is null but for its id."""
    from datetime import timedelta
    from decimal import Decimal

    made: list[tuple[Any, ...]] = []
    for i in range(start, start + count):
        if i % 7 == 6:
            made.append((i, *([None] * 19)))
            continue
        made.append(
            (
                i,
                i % 2 == 0,
                i % 100 - 50,
                i * 7 - 300,
                i * 10**12 - 5,
                i / 4,
                -i / 3,
                "wörd" * (i % 5) + str(i),
                bytes(range(i % 11)),
                date(1969, 12, 1 + i % 28),
                datetime(2026, 1, 1 + i % 28, 3, 4, 5, 678901),
                datetime(1999, 1, 1 + i % 28, 3, 4, 5, 6),
                Decimal(i) / 4 - 7,
                Decimal(-i) * 10**20 + Decimal("0.00001"),
                None,
                timedelta(days=i, microseconds=-i),
                (i if i % 3 else None, f"s{i}"),
                [i, None, -i],
                ["x" * (i % 9), None] if i % 2 else [],
                {f"k{i}": i, "other": None},
            )
        )
    return made


def run(session: Any, folder: Path, query: Query, conf: dict[str, str], batches: int = 5, count: int = 20) -> Path:
    """Run a query over `batches` files of `count` rows each; the checkpoint that it leaves."""
    set_conf(session, conf)
    source, checkpoint = folder / "input", folder / "checkpoint"
    for batch in range(batches):
        frame = session.createDataFrame(rows(batch * count // 2, count), SCHEMA)
        columns = ["if(b is null, null, make_ym_interval(id, -1)) ym" if f == "ym" else f for f in frame.columns]
        frame = frame.selectExpr(*columns)
        frame.coalesce(1).write.parquet(str(folder / f"made-{batch}"))
        source.mkdir(exist_ok=True)
        part = next((folder / f"made-{batch}").glob("part-*"))
        part.rename(source / f"b{batch:03d}.parquet")
    go_on(session, source, checkpoint, query)
    return checkpoint


def go_on(session: Any, source: Path, checkpoint: Path, query: Query) -> None:
    """Run a query until its input is read, from where its checkpoint stands."""
    schema = SCHEMA.replace("ym int", "ym interval year to month")
    stream = session.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(source))
    writer = query(session, stream).writeStream.format("noop")
    writer = writer.outputMode("append" if query in (sessions, limited) else "update")
    writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()


def set_conf(session: Any, conf: dict[str, str]) -> None:
    """The settings of the cases, so that none leaks from one to the next."""
    for key in (PROVIDER, CHANGELOG, ROW_CHECKSUM, CODEC, IDS):
        session.conf.unset(key)
    for key, value in {**BASE, **conf}.items():
        session.conf.set(key, value)


def read(session: Any, checkpoint: Path, **options: Any) -> list[dict[str, Any]]:
    """The rows of one store as Spark's own reader gives them, keys and values as plain objects."""
    frame = session.read.format("statestore").options(**options).load(str(checkpoint))
    from pyspark.sql.functions import col

    if "key" in frame.columns and "ym" in frame.schema["key"].dataType.names:  # PySpark has no year-month interval
        frame = frame.withColumn("key", col("key").withField("ym", col("key.ym").cast("int")))
    from pyspark.sql.types import StructType

    names: list[str] = []
    for name in frame.schema["value"].dataType.names if "value" in frame.columns else ():
        n = sum(known.partition("#")[0] == name for known in names)
        names.append(f"{name}#{n}" if n else name)
    if len(names) > 0:  # a row's columns by name must not hide one another
        fields = frame.schema["value"].dataType.fields
        apart = StructType()
        for name, field in zip(names, fields, strict=True):
            apart = apart.add(name, field.dataType)
        frame = frame.withColumn("value", col("value").cast(apart))
    return [row.asDict(recursive=True) for row in frame.collect()]


def everything(session: Any, stream: Any) -> Any:
    """An aggregation whose keys and buffers have every type that they can have."""
    keys = ["id", "b", "by", "sh", "l", "f", "d", "s", "bin", "da", "ts", "tn", "dec", "big", "ym", "dt", "st", "arr"]
    values = ["first(m) m", "max(arrs) arrs", "sum(dec) sd", "sum(big) sb", "max(s) ms", "avg(d) av", "first(st) fs"]
    values += ["max(tn) mt", "first(dt) fd", "count(*) n", "max(bin) mb", "first(b) fb", "max(by) mby"]
    from pyspark.sql import functions as f

    return stream.groupBy(*keys).agg(*[f.expr(value) for value in values])


def total(session: Any, stream: Any) -> Any:
    return stream.groupBy().count()


def by_id(session: Any, stream: Any) -> Any:
    return stream.groupBy("id").count()


def sessions(session: Any, stream: Any) -> Any:
    from pyspark.sql import functions as f

    return stream.withWatermark("ts", "40 days").groupBy("b", f.session_window("ts", "6 hours")).count()


def dedup_within(session: Any, stream: Any) -> Any:
    return stream.withWatermark("ts", "40 days").dropDuplicatesWithinWatermark(["id", "s"])


def join(session: Any, stream: Any) -> Any:
    left = stream.select("id", "s", "ts").withWatermark("ts", "40 days")
    right = stream.selectExpr("id as id2", "d", "ts as ts2").withWatermark("ts2", "40 days")
    return left.join(right, on=[left.id == right.id2, left.ts == right.ts2])


def limited(session: Any, stream: Any) -> Any:
    return stream.select("id").limit(50)


CASES: dict[str, tuple[Query, dict[str, str]]] = {
    "types": (everything, {}),
    "types_zstd_checksummed": (everything, {CODEC: "zstd", ROW_CHECKSUM: "true"}),
    "types_rocks": (everything, {PROVIDER: ROCKS}),
    "types_changelog": (everything, {PROVIDER: ROCKS, CHANGELOG: "true"}),
    "ids_changelog_checksummed": (by_id, {PROVIDER: ROCKS, CHANGELOG: "true", CODEC: "zstd", ROW_CHECKSUM: "true"}),
    "ids_changelog_zstd": (by_id, {PROVIDER: ROCKS, CHANGELOG: "true", CODEC: "zstd"}),
    "ids_v2": (by_id, {PROVIDER: ROCKS, CHANGELOG: "true", IDS: "2"}),
    "total": (total, {}),
    "sessions": (sessions, {}),
    "sessions_changelog": (sessions, {PROVIDER: ROCKS, CHANGELOG: "true"}),
    "dedup_within": (dedup_within, {PROVIDER: ROCKS, CHANGELOG: "true"}),
    "join": (join, {}),
    "join_changelog": (join, {PROVIDER: ROCKS, CHANGELOG: "true"}),
    "join_v3": (
        join,
        {PROVIDER: ROCKS, CHANGELOG: "true", "spark.sql.streaming.join.stateFormatVersion": "3"},
    ),
    "limited": (limited, {}),
}


def main(folder: str, *names: str) -> None:
    """Make the cases, or those of these names, with their truth. `--truth` before the names: only the truth."""
    from pyspark.sql import SparkSession

    from abscli.engine.drivers.spark import start_context

    session = SparkSession(start_context("local[2]"))
    anew = names[:1] != ("--truth",)
    for name in (names if anew else names[1:]) or CASES:
        query, conf = CASES[name]
        target = Path(folder) / "data" / name
        target.mkdir(parents=True, exist_ok=True)
        try:
            checkpoint = run(session, target, query, conf) if anew else target / "checkpoint"
            set_conf(session, conf)
        except Exception as error:
            print(name, "FAILED", str(error)[:300])  # noqa: T201
            continue
        finally:
            if "spark.sql.streaming.join.stateFormatVersion" in conf:
                session.conf.unset("spark.sql.streaming.join.stateFormatVersion")
        stores = session.read.format("state-metadata").load(str(checkpoint)).collect()
        truth: list[dict[str, Any]] = []
        for batch in range(5):
            for row in stores:
                options = {"operatorId": row.operatorId, "storeName": row.stateStoreName, "batchId": batch}
                try:
                    got = read(session, checkpoint, **options)
                    truth.append({"options": options, "rows": got})
                except Exception as error:
                    truth.append({"options": options, "error": str(error)[:300]})
        out = Path(folder) / "truth" / f"{name}.json"
        out.parent.mkdir(exist_ok=True)
        out.write_text(json.dumps({"case": name, "spark_reader": truth}, default=str))
        print(name, len(truth), sum("error" in t for t in truth), flush=True)  # noqa: T201
    session.stop()


if __name__ == "__main__":
    import sys

    main(*sys.argv[1:])
