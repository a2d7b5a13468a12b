"""The word count of `bench_large_state` on abs and on Flink 2.3, beside each other: words a second, and how long epochs
and checkpoints take, one every second.

    python -m tests.bench.flink.bench_flink_words [--keys 100000,1000000,4000000] [--words 16000000] [--rounds 1]
        [--ours spark,spark:500M] [--emit epoch,record] [--flinks hashmap,rocksdb] [--interval 1] [--heap 3g]
        [--workers 2]

All alternate on the same input. --ours: an engine, and behind a colon what it has as --state-memory.

Flink: one JVM with both tasks (MiniCluster), its default JIT and collector, whole checkpoints with `hashmap`,
incremental ones with `rocksdb`, to a local folder; durations are those that its JobManager logs. Where epochs take
longer than the interval both begin the next one when one is complete.
What differs: `emit: epoch` of ours puts out each word that has changed once an epoch, as JSON lines into files that
show with it, `emit: record` every count, likewise; Flink puts out every count, to a sink that discards it. Flink is not
asked to be exact about its output, so that its figure is the better for it.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from tests.bench.engine.bench_large_state import one_run, show, write_input
from tests.support.flink.cluster import OPENED
from tests.support.flink.java import compiled
from tests.support.flink.venv import VERSION

COMPLETED = re.compile(rb"Completed checkpoint (\d+) for job \w+ \((\d+) bytes, checkpointDuration=(\d+) ms")
COUNTED = re.compile(rb"counted (\d+) words in (\d+) ms")


def run_flink(class_path: str, folder: Path, backend: str, workers: int, interval: float, heap: str) -> str:
    """One run, as a line of figures."""
    options = {
        "execution.checkpointing.interval": f"{round(interval * 1000)}ms",
        "execution.checkpointing.storage": "filesystem",
        "execution.checkpointing.dir": (folder / "checkpoints").as_uri(),
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.num-retained": "2",
        "state.backend.type": backend,
        "taskmanager.memory.managed.size": "512m",
        "io.tmp.dirs": str(folder / "tmp"),
    }
    (folder / "tmp").mkdir(exist_ok=True)
    opened = [f"--add-opens={package}=ALL-UNNAMED" for package in OPENED]
    command = ["java", f"-Xmx{heap}", *opened, "-Dorg.apache.logging.log4j.level=INFO", "-cp", class_path, "WordsJob"]
    command += [str(folder / "in"), str(workers), *(f"{key}={value}" for key, value in options.items())]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    counted = COUNTED.search(done.stdout)
    if counted is None:
        raise RuntimeError(f"the job on Flink has failed: {done.stdout[-3000:].decode(errors='replace')}")
    words, milliseconds = map(int, counted.groups())
    checkpoints = [tuple(map(int, groups)) for groups in COMPLETED.findall(done.stdout)]
    for name in ("checkpoints", "tmp"):
        shutil.rmtree(folder / name, ignore_errors=True)
    line = f"  Flink {VERSION}, {backend}: {words / milliseconds / 1e3:.2f} M words/s, {len(checkpoints)} checkpoints"
    if not checkpoints:
        return f"{line}: none was complete before the job was"
    seconds = np.array([duration for _, _, duration in checkpoints]) / 1000
    size = max(size for _, size, _ in checkpoints)
    return (
        f"{line}, p50 {np.percentile(seconds, 50):.2f} s, p99 {np.percentile(seconds, 99):.2f} s, {size / 1e6:.0f} MB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", default="100000,1000000,4000000")
    parser.add_argument("--words", type=int, default=16_000_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--ours", default="spark,spark:500M")
    parser.add_argument("--emit", default="epoch", help="of ours: epoch, record, or both")
    parser.add_argument("--flinks", default="hashmap,rocksdb")
    parser.add_argument("--interval", type=float, default=1.0)
    parser.add_argument("--heap", default="3g")
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="abs-bench-") as classes:
        try:
            class_path = compiled(Path(classes) / "classes", "WordsJob.java")
        except pytest.skip.Exception as reason:
            sys.exit(f"no Flink: {reason}")
        for keys in map(int, asked.keys.split(",")):
            with tempfile.TemporaryDirectory(prefix="abs-bench-") as root:
                write_input(Path(root), keys, asked.words)
                for _ in range(asked.rounds):
                    for ours in asked.ours.split(","):
                        engine, _, memory = ours.partition(":")
                        for emit in asked.emit.split(","):
                            figures = one_run(Path(root), engine, asked.workers, asked.interval, memory or "none", emit)
                            show(figures, f"{memory or 'none'}, {engine}, emit {emit}")
                    for backend in asked.flinks.split(","):
                        line = run_flink(class_path, Path(root), backend, asked.workers, asked.interval, asked.heap)
                        print(line, flush=True)


if __name__ == "__main__":
    main()
