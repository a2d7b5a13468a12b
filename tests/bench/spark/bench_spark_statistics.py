"""Statistics of a large state: seconds and memory of `abs inspect --stats`.

    python -m tests.bench.spark.bench_spark_statistics --gigabytes 10 --folder /tmp/statistics --provider rocks

A query of Spark's writes a tenth of it; each of its partitions is there ten times by hard links, which only the place
of their keys would tell.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.support.spark import cases

COPIES = 10
PARTITIONS = 64
TEXT = 1024
"""Characters of a row's text, which does not compress to less than half."""
BATCHES = 2
PROVIDERS: dict[str, dict[str, str]] = {
    "rocks": {cases.PROVIDER: cases.ROCKS},
    "changelog": {cases.PROVIDER: cases.ROCKS, cases.CHANGELOG: "true"},
    "hdfs": {},
}
COUNT = '"spark.sql.shuffle.partitions":"{}"'


def write(checkpoint: Path, gigabytes: float, provider: str) -> None:
    """Run a query that counts rows by key and keeps a text of each, until its state is so large."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as f

    from abscli.engine.drivers.spark import start_context

    os.environ.setdefault("SPARK_DRIVER_MEMORY", "6g")
    session = SparkSession(start_context("local[2]"))
    cases.set_conf(session, {**PROVIDERS[provider], "spark.sql.shuffle.partitions": str(PARTITIONS)})
    rows = round(gigabytes * 1e9 / COPIES / (TEXT + 64) / BATCHES)
    stream: Any = session.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).option("numPartitions", 2)
    text = f.concat(*(f.sha2(f.concat(f.col("value"), f.lit(f"-{i}")), 256) for i in range(TEXT // 64)))
    counted = stream.load().groupBy("value").agg(f.count("*").alias("n"), f.first(text).alias("text"))
    writer = counted.writeStream.format("noop").outputMode("update").option("checkpointLocation", str(checkpoint))
    query = writer.start()
    while (query.lastProgress or {"batchId": -1})["batchId"] < BATCHES - 1 and query.isActive:
        query.awaitTermination(1)
    query.stop()
    if query.exception() is not None:
        raise SystemExit(str(query.exception()))
    session.stop()


def multiply(checkpoint: Path) -> None:
    """Every partition ten times, by links, and the logs say so."""
    state = checkpoint / "state/0"
    for partition in range(PARTITIONS):
        for path in sorted((state / str(partition)).rglob("*")):
            for copy in range(1, COPIES):
                place = state / str(partition + copy * PARTITIONS) / path.relative_to(state / str(partition))
                place.parent.mkdir(parents=True, exist_ok=True)
                if path.is_file():
                    os.link(path, place)
    for path in checkpoint.glob("offsets/[0-9]*"):
        path.write_text(path.read_text().replace(COUNT.format(PARTITIONS), COUNT.format(PARTITIONS * COPIES)))
    metadata = state / "_metadata/metadata"
    own, more = (f'"numPartitions":{count}' for count in (PARTITIONS, PARTITIONS * COPIES))
    metadata.write_text(metadata.read_text().replace(own, more))
    for path in [*checkpoint.glob("offsets/.*.crc"), *state.glob("_metadata/.*.crc")]:
        path.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--provider", choices=PROVIDERS, default="rocks")
    parser.add_argument("--keep", action="store_true")
    asked = parser.parse_args()
    checkpoint = asked.folder / asked.provider
    if not checkpoint.exists():
        began = time.perf_counter()
        write(checkpoint, asked.gigabytes, asked.provider)
        multiply(checkpoint)
        print(f"written in {time.perf_counter() - began:.0f} s")
    command = [sys.executable, "-m", "abscli", "inspect", str(checkpoint), "--stats", "-o", "json"]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, check=True)
    seconds = time.perf_counter() - began
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    files = [path.stat().st_size for path in (checkpoint / "state").rglob("*") if path.is_file()]
    print(f"{sum(files) / 1e9:.1f} GB in {len(files):,} files: {seconds:.1f} s, {usage.ru_maxrss / 1024:.0f} MiB")
    for state in json.loads(done.stdout)["states"]:
        largest = (state["largest_keys"] or [None])[0]
        print(
            f"  {state['operator']}: {state['how']}, {state['rows']:,} rows, {state['bytes']:,} bytes, skew"
            f" {state['skew_subtasks']}, {state['sample']}, largest key {largest}, not known: {state['unknown']}"
        )
    if not asked.keep:
        shutil.rmtree(checkpoint)


if __name__ == "__main__":
    os.nice(19)
    main()
