"""NEXMark's queries in Spark Structured Streaming: one run, in a process of its own.

    python -m tests.bench.nexmark.spark_queries QUERY EVENTS FOLDER CORES INTERVAL FILES

EVENTS: a folder with a folder of Parquet files a table, each of the same stretch of events; FILES of them are a batch.
Prints the seconds from the start of the query to its end, and those of processor.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from tests.bench.nexmark.processor import session_seconds

MISSING = {"q4": "it has no mean over all that it has aggregated: only sums of windows can be summed again"}
"""Queries that Structured Streaming does not take, and why."""

OPEN = ("q5", "q7", "q8")
"""Queries with windows: event time has no end there, and the last windows are never put out."""


def answer(query: str, table: Any) -> Any:
    """The frame of a query. table: gives that of a table."""
    from pyspark.sql import functions as f

    def timed(name: str) -> Any:
        return table(name).withWatermark("date_time", "0 seconds")

    if query == "q0":
        return table("bid")
    if query == "q1":
        return table("bid").withColumn("price", f.expr("0.908 * price"))
    if query == "q2":
        return table("bid").where("auction % 123 = 0").select("auction", "price")
    if query == "q3":
        persons = table("person").where("state in ('OR', 'ID', 'CA')").select("id", "name", "city", "state")
        auctions = table("auction").where("category = 10").select("seller", f.col("id").alias("auction"))
        pairs = persons.join(auctions, f.expr("id = seller"))
        return pairs.select("name", "city", "state", f.col("auction").alias("id"))
    if query == "q5":
        windows = f.window("date_time", "10 seconds", "2 seconds")
        counts = timed("bid").groupBy(windows, "auction").agg(f.count("*").alias("num"))
        most = counts.groupBy("window").agg(f.max("num").alias("most")).withColumnRenamed("window", "of")
        pairs = counts.join(most, f.expr("window = of and num = most"))
        return pairs.select("window.start", "window.end", "auction", "num")
    if query == "q7":
        prices = timed("bid").groupBy(f.window("date_time", "10 seconds")).agg(f.max("price").alias("most"))
        pairs = timed("bid").join(
            prices, f.expr("price = most and date_time between window.end - interval 10 seconds and window.end")
        )
        return pairs.select("auction", "bidder", "price", "date_time", "extra")
    assert query == "q8"
    came = timed("person").groupBy("id", "name", f.window("date_time", "10 seconds").alias("came")).agg(f.count("*"))
    sold = timed("auction").groupBy("seller", f.window("date_time", "10 seconds").alias("sold")).agg(f.count("*"))
    pairs = came.join(sold, f.expr("id = seller and came = sold"))
    return pairs.select("id", "name", "came.start")


def main() -> None:
    query, events, folder, cores, interval, files = sys.argv[1:]
    from abscli.engine.drivers.java import use_java

    use_java()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{cores}]").config("spark.ui.enabled", "false")
    options = {
        "spark.sql.shuffle.partitions": cores, "spark.sql.session.timeZone": "UTC", "spark.driver.memory": "3g",
        "spark.sql.parquet.inferTimestampNTZ.enabled": "false",  # watermarks are of times with a zone
        "spark.driver.extraJavaOptions": f"-XX:ActiveProcessorCount={cores}",
    }  # fmt: skip
    for name, value in options.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    def table(name: str) -> Any:
        schema = spark.read.parquet(f"{events}/{name}").schema
        return spark.readStream.schema(schema).option("maxFilesPerTrigger", files).parquet(f"{events}/{name}")

    frame = answer(query, table)
    began, before = time.monotonic(), session_seconds()
    writer = frame.writeStream.format("json").option("checkpointLocation", str(Path(folder) / "checkpoint"))
    running = writer.trigger(processingTime=f"{interval} seconds").start(str(Path(folder) / "out"))
    running.processAllAvailable()
    seconds, used = time.monotonic() - began, session_seconds() - before
    batches = running.lastProgress["batchId"] + 1
    running.stop()
    print(f"\nran for {seconds} s, {used} of processor, in {batches} batches")


if __name__ == "__main__":
    main()
