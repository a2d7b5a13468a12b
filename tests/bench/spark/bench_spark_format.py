"""Spark checkpoints read and checked without a JVM, against Spark's own reader.

    python -m tests.bench.spark.bench_spark_format FOLDER

It keeps what it makes in FOLDER and uses it again. It prints: the truth table (rows that agree with Spark's reader,
verdicts), times for a checkpoint of 1,000 batches x 200 partitions, and rows decoded a second, ours and Spark's, with
what Spark needs to start.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

BATCHES, PARTITIONS, CYCLE = 1000, 200, 4
ROWS = 1_000_000


def truth() -> None:
    """Rows and verdicts of all cases under tests/data/spark."""
    from abscli.stores.spark.verdict import check_spark
    from formats.errors import FormatError
    from formats.spark.checkpoint import Checkpoint
    from formats.spark.evidence.gathering import gather
    from formats.spark.store import SparkStore
    from formats.storage import LocalStorage
    from tests.spark.test_state import fingerprint, hidden, rows
    from tests.support.spark.data import CASES, unpack

    agree = total = reads = right = 0
    for case in CASES:
        path = unpack(case)
        store = SparkStore(LocalStorage(path))
        for read in case.truth["reads"]:
            if "rows" not in read:
                continue
            options = read["options"]
            name = options.get("stateVarName", options.get("storeName"))
            try:
                got = rows(store, options.get("batchId", store.latest()), str(options["operatorId"]), name)
            except FormatError as error:
                print(f"  {case}: {options}: {error}")
                got = []
            if "#" not in json.dumps(read["rows"]):
                got = [{part: hidden(value) for part, value in row.items()} for row in got]
            said = Counter(fingerprint(row) for row in read["rows"])
            agree += (said & Counter(map(fingerprint, got))).total()
            total += said.total()
            reads += 1
        report = check_spark(gather(Checkpoint(LocalStorage(path))))
        right += report.damaged == case.damaged
    print(f"truth: {agree} of {total} rows agree in {reads} reads; verdict right of {right} of {len(CASES)} cases")


def start_spark() -> Any:
    from pyspark.sql import SparkSession

    from abscli.engine.drivers.spark import start_context

    return SparkSession(start_context("local[2]"))


def make(folder: Path) -> None:
    """With Spark: a checkpoint of 200 partitions to be multiplied, and one with a million rows of state."""
    if (folder / "done").exists():
        return
    from tests.support.spark.cases import set_conf

    session = start_spark()
    for name, partitions, rows, batches in (("small", PARTITIONS, 2000, 8), ("large", 2, ROWS, 1)):
        target = folder / name
        shutil.rmtree(target, ignore_errors=True)
        set_conf(session, {"spark.sql.shuffle.partitions": str(partitions)})
        schema = "id long, word string, n double"
        for _ in range(batches):
            frame = session.range(rows).selectExpr("id", "concat('word-', id) word", "id / 3 n")
            frame.coalesce(1).write.mode("append").parquet(str(target / "input"))
        stream = session.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(target / "input"))
        grouped = stream.groupBy("id", "word").agg({"n": "sum", "id": "count"})
        writer = grouped.writeStream.format("noop").outputMode("update").trigger(availableNow=True)
        writer.option("checkpointLocation", str(target / "checkpoint")).start().awaitTermination()
        if batches >= CYCLE:
            wait_for_snapshots(target / "checkpoint/state/0", partitions)
    session.stop()
    (folder / "done").touch()


def wait_for_snapshots(state: Path, partitions: int) -> None:
    """Until Spark's maintenance, which works beside the query, has written what `multiply` copies; TimeoutError."""
    until = time.monotonic() + 120
    while sum(1 for _ in state.glob(f"*/{CYCLE}.snapshot")) < partitions:
        if time.monotonic() > until:
            raise TimeoutError(f"not every partition of {state} has {CYCLE}.snapshot")
        time.sleep(0.1)


def multiply(real: Path, target: Path) -> int:
    """A checkpoint of 1,000 batches: the first versions of each partition over and over, with their snapshot.

    Each delta puts absolute counts, so a whole cycle of them leads to the state that the snapshot at its end holds.
    """
    if target.exists():
        return sum(len(files) for _, _, files in os.walk(target))
    shutil.copytree(real, target, ignore=shutil.ignore_patterns("[0-9]*", ".[0-9]*"))
    for log in ("offsets", "commits", "sources/0"):
        (target / log).mkdir(parents=True, exist_ok=True)
        for batch in range(BATCHES):
            text = (real / log / str(min(batch, 1))).read_text()
            (target / log / str(batch)).write_text(text.replace('"logOffset":1', f'"logOffset":{batch}'))
    shutil.copytree(real / "state/0/_metadata", target / "state/0/_metadata", dirs_exist_ok=True)
    for partition in range(PARTITIONS):
        own, new = real / f"state/0/{partition}", target / f"state/0/{partition}"
        new.mkdir(parents=True, exist_ok=True)
        if (own / "_metadata").exists():
            shutil.copytree(own / "_metadata", new / "_metadata", dirs_exist_ok=True)
        for version in range(1, BATCHES + 1):
            kinds = {"delta": (version - 1) % CYCLE + 1}
            if version % (3 * CYCLE) == 0:
                kinds["snapshot"] = CYCLE
            for kind, of in kinds.items():
                os.link(own / f"{of}.{kind}", new / f"{version}.{kind}")
                if (own / f".{of}.{kind}.crc").exists():
                    os.link(own / f".{of}.{kind}.crc", new / f".{version}.{kind}.crc")
    return sum(len(files) for _, _, files in os.walk(target))


def large_checkpoint(folder: Path) -> None:
    """Times of what `inspect` and `validate` call, each in a process of its own."""
    made = folder / "multiplied"
    files = multiply(folder / "small/checkpoint", made)
    print(f"checkpoint of {BATCHES} batches x {PARTITIONS} partitions, {files} files:")
    calls = {
        "epochs()": "store.epochs()",
        "detail(newest)": "store.detail(999)",
        "raw(newest)": "store.raw(999)",
        "validate --quick": "check_spark(gather(store.checkpoint, quick=True))",
        "validate, 2 processes": "assert not check_spark(gather(store.checkpoint, workers=2)).damaged",
        "validate": "assert not check_spark(gather(store.checkpoint)).damaged",
    }
    for name, call in calls.items():
        code = (
            "import time, resource; start = time.perf_counter()\n"
            "from formats.spark.store import SparkStore\nfrom formats.storage import LocalStorage\n"
            "from formats.spark.evidence.gathering import gather\nfrom abscli.stores.spark.verdict import check_spark\n"
            f"store = SparkStore(LocalStorage({str(made)!r}))\n{call}\n"
            "usage = resource.getrusage(resource.RUSAGE_SELF)\n"
            "more = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
            "cpu = usage.ru_utime + usage.ru_stime + more.ru_utime + more.ru_stime\n"
            "print(f'{time.perf_counter() - start:.1f} s, {cpu:.1f} s of CPU, {usage.ru_maxrss >> 10} MiB')"
        )
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        print(f"  {name}: {out.stdout.strip()}")


def decoding(folder: Path) -> None:
    """Rows a second, ours and Spark's."""
    from formats.spark.store import SparkStore
    from formats.storage import LocalStorage

    path = folder / "large/checkpoint"
    times = []
    for _ in range(3):
        start = time.perf_counter()
        got = sum(batch.num_rows for batch in SparkStore(LocalStorage(path)).state(0, "0"))
        times.append(time.perf_counter() - start)
    assert got == ROWS, got
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"abs: {got} rows of state in {min(times):.2f} s, {got / min(times) / 1e6:.2f} M rows/s; {peak} MiB")
    code = (
        "import sys, time; start = time.perf_counter()\n"
        "from tests.bench.spark.bench_spark_format import start_spark\nsession = start_spark()\n"
        "print(f'Spark: starts in {time.perf_counter() - start:.1f} s;', end=' ')\ntimes = []\n"
        "for _ in range(5):\n    start = time.perf_counter()\n"
        "    frame = session.read.format('statestore').load(sys.argv[1])\n"
        "    frame.write.format('noop').mode('overwrite').save()\n    times.append(time.perf_counter() - start)\n"
        "best = min(times)\nprint(f'first read {times[0]:.2f} s, then {best:.2f} s,', end=' ')\n"
        f"print(f'{{{ROWS} / best / 1e6:.2f}} M rows/s')"
    )
    out = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    print(out.stdout.strip(), "on two cores")


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    truth()
    make(folder)
    large_checkpoint(folder)
    decoding(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
