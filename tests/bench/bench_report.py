"""What reports cost: bytes of the page and CPU seconds, of 1 to 1,000 epochs and of 3 to 100,000 tasks.

    python -m tests.bench.bench_report [--epochs 1,10,100,1000] [--tasks 3,100,10000,100000] [--stores]

Of facts alone: making the values, and the page of them. With --stores also `abs report` of real stores of 100 tasks,
as a command of its own: reading, checking, writing, start of the program included.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa

from abscli.pages.html import html_of
from abscli.pages.store_report import Gathered, store_report
from tests.support.pages import gathered
from tests.support.stores.large import Synthetic, words

T = TypeVar("T")
BASE_TASKS, FEW_EPOCHS = 100, 1
SHARE_EVERY = 10
"""So many epochs refer to the same files."""


def spent(call: Callable[[], T]) -> tuple[T, float]:
    """What a call gives, and its CPU seconds."""
    begun = time.process_time()
    result = call()
    return result, time.process_time() - begun


def row(epochs: int, tasks: int, facts: Gathered) -> None:
    report, values = spent(lambda: store_report(facts))
    page, rendering = spent(lambda: html_of(report))
    print(f"  {epochs:>6,} epochs {tasks:>8,} tasks {len(page) / 1000:>9.1f} kB {values:>7.2f} s values "
          f"{rendering:>7.2f} s page")  # fmt: skip


def of_store(folder: str, epochs: int) -> None:
    """`abs report` of a store of that many epochs."""
    import numpy as np

    path = os.path.join(folder, f"store-{epochs}")
    store = Synthetic(path, BASE_TASKS - 2)
    files = None
    for epoch in range(1, epochs + 1):
        if files is None or epoch % SHARE_EVERY == 1:
            table = pa.table({"word": words(np.arange(5_000)), "n": pa.array(np.arange(5_000))})
            files = [(store.write(epoch, i, part),) for i, part in enumerate(store.slices(table))]
        store.epoch(epoch, epoch - 1, files)
    out = os.path.join(folder, "page.html")
    before = os.times()
    subprocess.run([sys.executable, "-m", "abscli", "report", path, "--out", out, "-q"], check=True,
                   stdout=subprocess.DEVNULL)  # fmt: skip
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    size = os.path.getsize(out) / 1000
    print(f"  {epochs:>6,} epochs {BASE_TASKS:>8,} tasks {size:>9.1f} kB {cpu:>7.2f} s CPU in all")


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=numbers, default=[1, 10, 100, 1000])
    parser.add_argument("--tasks", type=numbers, default=[3, 100, 10_000, 100_000])
    parser.add_argument("--stores", action="store_true")
    options = parser.parse_args()
    html_of(store_report(gathered(1)))  # templates are compiled once
    print("by epochs, of facts alone")
    row(0, 0, gathered(0))
    for epochs in options.epochs:
        row(epochs, BASE_TASKS, gathered(epochs, BASE_TASKS))
    print("by tasks, of facts alone")
    for tasks in options.tasks:
        row(FEW_EPOCHS, tasks, gathered(FEW_EPOCHS, tasks))
    if options.stores:
        print("abs report, of stores")
        with tempfile.TemporaryDirectory() as folder:
            for epochs in options.epochs:
                of_store(folder, epochs)


if __name__ == "__main__":
    main()
