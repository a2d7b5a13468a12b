"""A real streaming word count over text files whose counts are known, and how it is killed.

`python -m tests.support.spark.words INPUT CHECKPOINT CONF WHEN BATCH` runs it in a process of its own that kills
itself and its JVM with SIGKILL around batch BATCH: `before` its state is written, when `partial`ly, or `after`, before
its commit.
"""

from __future__ import annotations

import glob
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.support.spark import cases

WORDS = [f"word{i:02d}" for i in range(23)]
CONFS: dict[str, dict[str, str]] = {
    "hdfs": {},
    "rocks": {cases.PROVIDER: cases.ROCKS},
    "changelog": {cases.PROVIDER: cases.ROCKS, cases.CHANGELOG: "true"},
    "ids": {cases.PROVIDER: cases.ROCKS, cases.CHANGELOG: "true", cases.IDS: "2"},
}


def add_files(source: Path, numbers: range) -> None:
    """Input files, each with every word at least once, so that each batch shows the whole state."""
    source.mkdir(exist_ok=True)
    for number in numbers:
        words = WORDS + random.Random(number).choices(WORDS, k=100)
        path = source / f"part {number:03d}.txt"
        path.write_text("\n".join(" ".join(words[i : i + 7]) for i in range(0, len(words), 7)))
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))  # Spark takes them by age


def counts(source: Path) -> Counter[str]:
    """What the query has to come to."""
    return Counter(word for path in source.glob("*.txt") for word in path.read_text().split())


def stream(session: Any, source: Path) -> Any:
    from pyspark.sql.functions import col, explode, split

    lines = session.readStream.option("maxFilesPerTrigger", 1).text(str(source))
    return lines.select(explode(split(col("value"), r"\s+")).alias("word")).groupBy("word").count()


def go_on(session: Any, source: Path, checkpoint: Path | str) -> dict[str, int]:
    """Run the query until its input is read, from where its checkpoint stands; the last count of each word that its
    sink was given."""
    seen: dict[str, int] = {}

    def sink(frame: Any, batch: int) -> None:
        seen.update({row["word"]: row["count"] for row in frame.collect()})

    writer = stream(session, source).writeStream.foreachBatch(sink).outputMode("update")
    writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()
    return seen


def killed(source: Path, checkpoint: Path, conf: dict[str, str], when: str, batch: int) -> None:
    """Run the query in a process of its own until it is killed in a batch."""
    command = [sys.executable, "-m", "tests.support.spark.words", str(source), str(checkpoint), json.dumps(conf), when]
    done = subprocess.run([*command, str(batch)], cwd=Path(__file__).parents[3], capture_output=True, timeout=600)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-2000:]


def _main(source: str, checkpoint: str, conf: str, when: str, batch: str) -> None:
    from pyspark.sql import SparkSession

    from abscli.engine.drivers.spark import start_context

    context = start_context("local[1]")
    session = SparkSession(context)
    cases.set_conf(session, json.loads(conf))
    jvm = context._gateway.proc.pid

    def kill() -> None:
        os.kill(jvm, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def watch() -> None:
        """One task at a time: when one partition's file is there, the others' are not."""
        while not glob.glob(f"{checkpoint}/state/0/*/{int(batch) + 1}[._]*"):
            time.sleep(0.0002)
        kill()

    def sink(frame: Any, number: int) -> None:
        if number == int(batch) and when == "before":
            kill()
        if number == int(batch) and when == "partial":
            threading.Thread(target=watch, daemon=True).start()
        frame.collect()
        if number == int(batch):
            kill()

    writer = stream(session, Path(source)).writeStream.foreachBatch(sink).outputMode("update")
    writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    _main(*sys.argv[1:])
