"""Seconds to the first new epoch and bytes written: a rescale, against a resume with the parallelism of the epoch.

    python -m tests.bench.engine.bench_rescale [--gigabytes 1] [--before 4] [--after 7] [--rounds 3] [--folder DIR]

A word count with random words of 100 letters, whose state files are so large together; each round resumes a copy of
its store (of links: files are never changed) in a process of its own, in turn with the same parallelism and another.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from abscli.api import run_job
from abscli.engine.telemetry.news import EpochDone, News, Rescaled
from formats.native.store import NativeStore
from formats.native.writer import put_topology
from formats.storage import LocalStorage
from tests.support.stores.large import KEY_GROUPS, Synthetic

LETTERS = 100
READ = 100_000
"""Bytes of the input that the epoch has read."""

JOB = """version: 1
job: synthetic
max_parallelism: {groups}
operators:
  lines:
    source: {{type: jsonl, path: in/*, schema: {{word: string}}}}
  counts:
    parallelism: {tasks}
    from: {{lines: {{partition: hash, key: [word]}}}}
    reduce: {{key: [word], n: {{count: "*"}}, emit: epoch}}
  printed:
    from: {{counts: {{partition: rebalance}}}}
    sink: {{type: jsonl, path: out}}
"""


def write(folder: Path, tasks: int, gigabytes: float) -> int:
    """The job, a little input, and the store; bytes of its state files."""
    (folder / "job.yaml").write_text(JOB.format(groups=KEY_GROUPS, tasks=tasks))
    (folder / "in").mkdir(parents=True)
    line = json.dumps({"word": "old"}) + "\n"
    with (folder / "in" / "a").open("w") as file:
        file.write(line * (READ // len(line) - 1))
        file.write(" " * (READ - file.tell() - len(line)) + line)
        file.write("".join(json.dumps({"word": f"new {i}"}) + "\n" for i in range(10_000)))
    made = Synthetic(str(folder / "store"), tasks, KEY_GROUPS)
    source, *others = made.topology.operators
    connector = {"type": "jsonl", "path": "in/*", "schema": {"word": "string"}}
    made.topology = msgspec.structs.replace(
        made.topology, operators=(msgspec.structs.replace(source, connector=connector), *others)
    )
    made.sha256 = put_topology(made.storage, made.topology)
    rows = int(gigabytes * 2**30 / (LETTERS * 0.79))  # random letters of 64: 6 bits each, and what a row costs besides
    letters = np.frombuffer(b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-", np.uint8)
    random = np.random.default_rng(1)
    tables: list[list[pa.Table]] = [[] for _ in range(tasks)]
    for start in range(0, rows, 1_000_000):
        count = min(1_000_000, rows - start)
        data = letters[random.integers(0, 64, count * LETTERS, dtype=np.uint8)]
        offsets = np.arange(0, (count + 1) * LETTERS, LETTERS, dtype=np.int32)
        words = pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(data))
        table = pa.table({"word": words, "n": np.ones(count, np.int64)})
        for mine, part in zip(tables, made.slices(table), strict=True):
            mine.append(part)
    state = []
    for task, mine in enumerate(tables):
        state.append((made.write(1, task, pa.concat_tables(mine)),))
        mine.clear()
    made.epoch(1, 0, state)
    return sum(file.bytes or 0 for files in state for file in files)


def resume(folder: Path, before: int, after: int) -> dict[str, Any]:
    """One resume; seconds from its start, and bytes that its epochs wrote."""
    moments: dict[str, Any] = {}
    started = time.monotonic()

    def news(news: News) -> None:
        if isinstance(news, Rescaled):
            moments["published"] = time.monotonic() - started
            moments["published_epoch"] = news.epoch
        elif isinstance(news, EpochDone):
            moments.setdefault("complete", time.monotonic() - started)
            moments.setdefault("complete_epoch", news.epoch)

    parallelism = {"counts": after} if after != before else None
    cpu = time.process_time()
    run_job(folder / "job.yaml", folder / "store", engine="inline", interval=None, keep=None, resume=True,
            parallelism=parallelism, accept_missing=True, on_news=news)  # fmt: skip
    moments["cpu"] = time.process_time() - cpu
    store = NativeStore(LocalStorage(folder / "store"))
    for name in ("published", "complete"):
        if f"{name}_epoch" in moments:
            moments[f"{name}_bytes"] = store.manifest(moments[f"{name}_epoch"]).bytes
    moments["rss"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return moments


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--before", type=int, default=4)
    parser.add_argument("--after", type=int, default=7)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(resume(Path(given.one[0]), given.before, int(given.one[1]))))
        return
    with tempfile.TemporaryDirectory(prefix="abs-bench-", dir=given.folder) as root:
        original = Path(root) / "original"
        original.mkdir()
        started = time.monotonic()
        size = write(original, given.before, given.gigabytes)
        print(f"{size / 2**30:.2f} GiB of state, written in {time.monotonic() - started:.0f} s", flush=True)
        results: dict[int, list[dict[str, Any]]] = {given.before: [], given.after: []}
        for turn in range(given.rounds):
            for after, found in results.items():
                copy = Path(root) / f"{turn}-{after}"
                shutil.copytree(original, copy, copy_function=os.link)
                shutil.copy(copy / "store" / "abs-store.json", copy / "own")  # the one file that may be replaced
                os.replace(copy / "own", copy / "store" / "abs-store.json")
                command = [sys.executable, "-m", "tests.bench.engine.bench_rescale"]
                command += ["--before", str(given.before), "--one", str(copy), str(after)]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                assert done.returncode == 0, done.stderr
                found.append(json.loads(done.stdout))
                print(f"{given.before} to {after}: {found[-1]}", flush=True)
                shutil.rmtree(copy)
    for after, found in results.items():
        print(f"{given.before} to {after}, medians of {given.rounds}:")
        for name in ("published", "complete", "cpu"):
            if name in found[0]:
                print(f"  {name:10} {statistics.median(row[name] for row in found):8.2f} s")
        for name in ("published_bytes", "complete_bytes", "rss"):
            if name in found[0]:
                print(f"  {name:15} {statistics.median(row[name] for row in found):14,.0f}")


if __name__ == "__main__":
    main()
