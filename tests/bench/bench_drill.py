"""How long `abs drill` takes to prove that an epoch can be restored, by the size of its state.

    python -m tests.bench.bench_drill [--rows 10000,1000000,8000000] [--width 120] [--tasks 2] [--engine inline]
        [--state-memory 500M] [--times 3]

A store of a word count that never ran, its keys random text of so many characters; the command is run as a user runs
it, --times times each in turn. Seconds are what the page says, by phase (medians); CPU and memory are of the command,
its start included.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tests.support.stores.large import KEY_GROUPS, Synthetic

JOB = f"""\
version: 1
job: synthetic
max_parallelism: {KEY_GROUPS}
parallelism: 1
operators:
  lines:
    source: {{type: text, path: in/*}}
  counts:
    from: {{lines: {{partition: hash, key: [word]}}}}
    reduce: {{key: [word], n: {{count: "*"}}}}
    parallelism: TASKS
  printed:
    from: {{counts: {{partition: rebalance}}}}
    sink: {{type: jsonl, path: out}}
"""
DIGITS = np.frombuffer(b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_", np.uint8)


def keys(rows: int, width: int) -> pa.Array:
    """Random text; with 20 characters or more no two are alike."""
    text = DIGITS[np.random.default_rng(1).integers(0, len(DIGITS), rows * width, np.uint8)]
    ends = np.arange(0, (rows + 1) * width, width, dtype=np.int64)
    long = pa.LargeStringArray.from_buffers(rows, pa.py_buffer(ends), pa.py_buffer(text))
    return pa.chunked_array([long]).cast(pa.string()).combine_chunks()


def make(folder: Path, rows: int, width: int, tasks: int) -> int:
    """A store of one epoch with so many rows of state beside its job; its bytes."""
    (folder / "in").mkdir(parents=True)
    (folder / "in" / "a").write_text((49 * "x" + "\n") * 1000 * tasks)  # as the epoch's position has it
    (folder / "job.yaml").write_text(JOB.replace("TASKS", str(tasks)))
    store = Synthetic(str(folder / "store"), tasks)
    table = pa.table({"word": keys(rows, width), "n": pa.array(np.arange(rows))})
    files = [(store.write(1, task, part),) for task, part in enumerate(store.slices(table))]
    store.epoch(1, 0, files)
    return sum(file.bytes or 0 for own in files for file in own)


def drill(folder: Path, engine: str, state_memory: str | None) -> tuple[dict[str, Any], float, float]:
    """What the command says, its CPU seconds, and the most memory in MiB that it, or a process that it waited for, has
    had."""
    command = [sys.executable, "-m", "abscli", "drill", "store", "--job", "job.yaml", "--engine", engine, "-o", "json"]
    command += ["--state-memory", state_memory] if state_memory else []
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, said
    return json.loads(said), usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="10000,1000000,8000000")
    parser.add_argument("--width", type=int, default=120)
    parser.add_argument("--tasks", type=int, default=2)
    parser.add_argument("--engine", default="inline", choices=("inline", "spark"))
    parser.add_argument("--state-memory")
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="abs-bench-") as root:
        sizes = {}
        for rows in map(int, options.rows.split(",")):
            # A process of its own: what it has had in memory counts for what this one starts.
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                made = pool.submit(make, Path(root, str(rows)), rows, options.width, options.tasks)
                sizes[rows] = made.result()
        pages: dict[int, list[tuple[dict[str, Any], float, float]]] = {rows: [] for rows in sizes}
        for _ in range(options.times):
            for rows in sizes:
                pages[rows].append(drill(Path(root, str(rows)), options.engine, options.state_memory))
    for rows, several in pages.items():
        assert all(page["proved"] and page["rows"] == rows for page, _, _ in several), several
        names = several[0][0]["seconds"]
        phases = {name: statistics.median(page["seconds"][name] for page, _, _ in several) for name in names}
        print(
            f"{rows:>12,} rows {sizes[rows] / 1e6:>8.1f} MB: "
            f"{statistics.median(page['elapsed'] for page, _, _ in several):6.1f} s "
            f"({', '.join(f'{name} {seconds:.1f}' for name, seconds in phases.items())}), "
            f"{statistics.median(cpu for _, cpu, _ in several):6.1f} s CPU, "
            f"{max(memory for _, _, memory in several):,.0f} MiB"
        )


if __name__ == "__main__":
    main()
