"""NEXMark's queries on abs, on Flink 2.3's SQL and on Spark Structured Streaming, beside each other: rows a second, and
seconds of processor.

    python -m tests.bench.nexmark.bench_nexmark [--queries q0,q1,...] [--events 2000000] [--rounds 3] [--cores 2]
        [--systems abs,flink,spark,inline] [--interval 1] [--stretches 10] [--backend hashmap]

All read the same events from Parquet files and write JSON lines into files, exactly-once, with an epoch, checkpoint or
batch a second, on as many cores; they alternate, and figures are medians. A row is one of the tables that the query
reads. Seconds, also those of processor of all processes, are those of the job, without the start of a JVM or of Spark.
The answers are counted and summed, and have to be DuckDB's.

What differs: abs and Flink have two files a table, which their tasks read side by side; Spark, whose batches are files,
one for each of --stretches. abs is on Spark, in one worker process a core; as `inline` it is one process. Flink's q4
puts out each change of an average, as lines of text, as it has no other sink in files for it; Spark has no q4.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

from abscli.engine.columns import join_inputs
from abscli.engine.sources.made import nexmark
from formats.job.model import Kind, Side
from tests.bench.nexmark import flink_sql, spark_queries
from tests.bench.nexmark.processor import session_seconds
from tests.support.flink.java import compiled
from tests.support.jobs.nexmark import PLACE, query_job
from tests.support.maven import jars

READS = {"q3": ("person", "auction"), "q4": ("auction", "bid"), "q8": ("person", "auction")}
"""The tables of queries that read more than bids."""

SUMMED = {"q3": "id", "q4": "average", "q5": "num", "q8": "id"}
"""A column of each answer, `price` of others."""

OURS = {"abs": "spark", "inline": "inline"}
"""Our engines."""

SPARK_RAN = re.compile(rb"ran for ([0-9.]+) s, ([0-9.]+) of processor, in \d+ batches")

Figures = tuple[float, float]
"""Seconds of a job, and seconds of processor."""


def write_events(folder: Path, events: int, stretches: int) -> None:
    """As files of two halves, and as one for each stretch of time."""
    for table, schema in nexmark.SCHEMAS.items():
        count = nexmark.rows_among(events, table) or 0
        make = nexmark.maker(table, seed=0, rate=nexmark.RATE)
        of_millis = pa.schema([
            field.with_type(pa.timestamp("ms")) if pa.types.is_timestamp(field.type) else field for field in schema
        ])  # fmt: skip
        for place in ("halves", "stretches"):
            (folder / place / table).mkdir(parents=True)
        halves = [pq.ParquetWriter(folder / "halves" / table / f"{i}.parquet", of_millis) for i in range(2)]
        for number, numbers in enumerate(np.array_split(np.arange(count, dtype=np.int64), stretches)):
            rows = pa.Table.from_batches([make(numbers)]).cast(of_millis)
            pq.write_table(rows, folder / "stretches" / table / f"{number:04}.parquet")
            for half, writer in enumerate(halves):
                writer.write_table(rows.take(np.flatnonzero(numbers % 2 == half)))
        for writer in halves:
            writer.close()


def run_ours(engine: str, query: str, events: Path, folder: Path, cores: int, interval: float) -> Figures:
    """Of a run in a process of its own."""
    code = "from tests.bench.nexmark.bench_nexmark import ours; import sys; ours(*sys.argv[1:])"
    command = [sys.executable, "-c", code, engine, query, str(events), str(folder), str(cores), str(interval)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, start_new_session=True)
    seconds, used = map(float, done.stdout.split()[-2:])
    return seconds, used


def ours(engine: str, query: str, events: str, folder: str, cores: str, interval: str) -> None:
    """One run, as the process that measures it. Prints its seconds, and those of processor."""
    from abscli.engine.drivers.spark import start_context
    from abscli.engine.job import JobOptions, run_job

    topology = query_job(query, 1, tasks=int(cores))
    sides = join_inputs(topology)  # a Parquet source says its columns only when it is read
    operators = []
    for op in topology.operators:
        if op.kind is Kind.SOURCE:
            options = op.connector or {}
            connector = {"type": "parquet", "path": f"{events}/{options['events']}/*.parquet"}
            connector |= {name: options[name] for name in ("event_time",) if name in options}
            op = msgspec.structs.replace(op, connector=connector)
        elif op.join:
            left = op.join.left
            (other,) = (edge.source for edge in topology.edges if edge.target == op.id and edge.source != left)
            ids = {Side.LEFT: left, Side.RIGHT: other}
            columns = {ids[side]: {f.name: str(f.type) for f in schema} for side, schema in sides[op.id].items()}
            op = msgspec.structs.replace(op, join=msgspec.structs.replace(op.join, columns=columns))
        operators.append(op)
    topology = msgspec.structs.replace(topology, operators=tuple(operators))
    context = start_context(f"local[{cores}]") if engine == "spark" else None
    options = JobOptions(
        str(PLACE), "job.py", engine=engine, context=context, workers=int(cores), interval=float(interval),
        sinks_in=folder,
    )  # fmt: skip
    began, before = time.monotonic(), session_seconds()
    assert run_job(topology, f"{folder}/store", options).finished
    print(time.monotonic() - began, session_seconds() - before)
    if context is not None:
        context.stop()


def run_spark(query: str, events: Path, folder: Path, cores: int, interval: float) -> Figures:
    command = [sys.executable, "-m", "tests.bench.nexmark.spark_queries", query, str(events), str(folder)]
    command += [str(cores), str(interval), "1"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    ran = SPARK_RAN.search(done.stdout)
    if ran is None:
        raise RuntimeError(f"{query} on Spark has failed: {done.stdout[-4000:].decode(errors='replace')}")
    return float(ran[1]), float(ran[2])


def right(query: str, events: Path) -> tuple[int, float]:
    """Rows of DuckDB's answer, and the sum of one column."""
    with duckdb.connect() as database:
        for table in nexmark.SCHEMAS:
            database.execute(f"CREATE VIEW {table} AS FROM '{events / 'halves' / table}/*.parquet'")
        sql = (PLACE / f"{query}.sql").read_text()
        return database.execute(f"SELECT count(*), sum({SUMMED.get(query, 'price')}) FROM ({sql})").fetchall()[0]


def answered(query: str, rows: Iterator[dict[str, object]]) -> tuple[int, float]:
    """The same of rows that were shown."""
    column = SUMMED.get(query, "price")
    if query == "q4":
        rows = iter({row["category"]: row for row in rows}.values())
    values = [float(str(row[column])) for row in rows]
    return len(values), sum(values)


def shown(query: str, system: str, out: Path) -> Iterator[dict[str, object]]:
    """The rows in the files of a run, of one task in their order."""
    files = [path for path in out.rglob("*") if path.is_file()]
    for path in sorted(files, key=lambda path: path.stat().st_mtime_ns):
        if any(part.startswith(("_", ".")) for part in path.relative_to(out).parts):
            continue
        for line in path.read_text().splitlines():
            if system == "flink" and query == "q4":
                _, category, average = re.split(r"\[|, ", line.rstrip("]"))
                yield {"category": category, "average": average}
            else:
                yield json.loads(line)


def flink_classes(folder: Path) -> str:
    """Flink's class path with the job, Parquet and, for that, Hadoop's classes, of which Spark has some."""
    spark = Path(pyspark.__file__).parent / "jars"
    more = [*jars("org.apache.flink:flink-sql-parquet:2.3.0", alone=True), *spark.glob("hadoop-client-*.jar")]
    return compiled(folder, "NexmarkJob.java", more=more)


@dataclass(frozen=True, slots=True)
class Bench:
    """root: a folder for runs; classes: Flink's class path."""

    root: Path
    classes: str
    cores: int
    interval: float
    backend: str

    def run(self, system: str, query: str, events: Path) -> Figures:
        """Of a run; what is wrong with its rows is printed."""
        folder = self.root / "run"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        out = folder / ("shown" if system in OURS else "out")
        match system:
            case "abs" | "inline":
                figures = run_ours(OURS[system], query, events / "halves", folder, self.cores, self.interval)
            case "flink":
                figures = flink_sql.run(
                    self.classes, query, events / "halves", out, self.cores, self.interval, self.backend
                )
            case _:
                figures = run_spark(query, events / "stretches", folder, self.cores, self.interval)
        count, total = right(query, events)
        answer = answered(query, shown(query, system, out))
        if system == "spark" and query in spark_queries.OPEN:
            print(f"  {query} on spark has {answer[0]} of {count} rows: windows that are open stay so at the end")
        elif answer[0] != count or abs(answer[1] - float(total)) > 1e-9 * abs(float(total)):
            print(f"  {query} on {system} is not right: {answer}, and DuckDB has {count, total}", flush=True)
        return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", default=",".join(flink_sql.QUERIES))
    parser.add_argument("--systems", default="abs,flink,spark")
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--interval", type=float, default=1.0)
    parser.add_argument("--stretches", type=int, default=10)
    parser.add_argument("--backend", default="hashmap")
    asked = parser.parse_args()
    systems = asked.systems.split(",")
    with tempfile.TemporaryDirectory(prefix="abs-bench-") as root:
        events = Path(root) / "events"
        write_events(events, asked.events, asked.stretches)
        classes = ""
        if "flink" in systems:
            try:
                classes = flink_classes(Path(root) / "classes")
            except pytest.skip.Exception as reason:
                sys.exit(f"no Flink: {reason}")
        bench = Bench(Path(root), classes, asked.cores, asked.interval, asked.backend)
        for query in asked.queries.split(","):
            rows = sum(nexmark.rows_among(asked.events, table) or 0 for table in READS.get(query, ("bid",)))
            figures: dict[str, list[Figures]] = {system: [] for system in systems}
            for _ in range(asked.rounds):
                for system in systems:
                    if system == "spark" and query in spark_queries.MISSING:
                        continue
                    try:
                        figures[system].append(bench.run(system, query, events))
                    except (RuntimeError, subprocess.CalledProcessError) as error:
                        print(f"  {query} on {system} has failed: {str(error)[-1000:]}", flush=True)
            for system, runs in figures.items():
                if not runs:
                    print(f"{query} {system}: none: {spark_queries.MISSING.get(query, 'it has failed')}", flush=True)
                    continue
                took, used = (statistics.median(column) for column in zip(*runs, strict=True))
                each = ", ".join(f"{rows / seconds / 1e3:.0f}" for seconds, _ in runs)
                print(f"{query} {system}: {rows / took / 1e3:.0f} k rows/s ({each}), {used:.1f} s of processor, "
                      f"{rows / used / 1e3:.0f} k rows a second of it", flush=True)  # fmt: skip


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    main()
