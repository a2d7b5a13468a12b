"""Statistics of a large snapshot: seconds and memory of `abs inspect --stats`.

    python -m tests.bench.flink.bench_flink_statistics --gigabytes 10 --folder /tmp/statistics

RocksDB writes a tenth of it, each table of which is there ten times by hard links; nothing of a sample depends on
tables being different.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support.flink.rocks import Row, entry, key, long, text, write_checkpoint

COPIES = 10
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


def rows(groups: range, gigabytes: float) -> Iterator[Row]:
    """Half of it texts, the rest counts and maps; key group 5 has ten times the counts; one key has a large map."""
    pick = random.Random(groups.start)
    block = "".join(pick.choices(LETTERS, k=1 << 20))
    texts = round(gigabytes * 1e9 / COPIES / 128 / 1600)
    for group in groups:
        for i in range(texts * 5 * (10 if group == 5 else 1)):
            yield "count", key(group, f"user-{i:09}"), long(i)
        for i in range(texts):
            for j in range(5):
                yield "items", key(group, f"user-{i:09}", f"item-{j}"), entry(j)
        if group == 9:
            for j in range(texts * 50):
                yield "items", key(group, "hot", f"item-{j:09}"), entry(j)
        for i in range(texts):
            at = pick.randrange(len(block) - 2000)
            yield "text", key(group, f"user-{i:09}"), text(block[at : at + 1600])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--keep", action="store_true")
    asked = parser.parse_args()
    job = asked.folder / ("d" * 32)
    if not job.exists():
        began = time.perf_counter()
        halves = [rows(range(64), asked.gigabytes), rows(range(64, 128), asked.gigabytes)]
        write_checkpoint(job, halves, copies=COPIES)
        print(f"written in {time.perf_counter() - began:.0f} s")
    sizes = [path.stat().st_size for path in (job / "shared").iterdir()]
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "abscli", "inspect", str(job), "--stats", "-o", "json"], capture_output=True, check=True
    )
    seconds = time.perf_counter() - began
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{sum(sizes) / 1e9:.1f} GB in {len(sizes)} tables: {seconds:.1f} s, {usage.ru_maxrss / 1024:.0f} MiB")
    for state in json.loads(done.stdout)["states"]:
        largest = (state["largest_keys"] or [None])[0]
        print(f"  {state['state']}: {state['how']}, {state['rows']:,} rows, {state['bytes']:,} bytes,"
              f" skew {state['skew_groups']}, {state['sample']}, largest key {largest}, not known: {state['unknown']}")
    if not asked.keep:
        shutil.rmtree(job)


if __name__ == "__main__":
    os.nice(19)
    main()
