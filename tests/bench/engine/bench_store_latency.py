"""What snapshots cost where the store is slow: words a second of the word count, in one process with two workers.

    python -m tests.bench.engine.bench_store_latency [--latencies 0,0.05,0.6] [--rounds 5] [--copies 5] [--interval 1]
        [--files 8]

Every file that is put into the store takes the latency longer, as a request to an object store does. Three ways
alternate: an epoch every second; the same with sources held from the trigger to the manifest (stop the world); only the
last epoch. Rates count from the first record that was read to the last, since a stream has no end: the last epoch, for
which the job waits however slow the store is, is in none. Medians, and ratios pair by pair to the last way, are
printed. --files: in so many the text lies; 0: as many as modules times copies, each of which has a position in every
epoch.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from abscli.engine.channels.messages import EpochAborted, EpochCompleted, EpochTriggered, decode_to_worker
from abscli.engine.coordinator import Progress
from abscli.engine.job import JobOptions, run_job
from abscli.engine.worker import Worker
from abscli.examples import inputs
from formats.job.file import parse_topology
from formats.storage import LocalStorage

WAYS = ("an epoch every second", "stop the world", "only the last epoch")


@contextmanager
def slow_store(latency: float) -> Iterator[None]:
    """Every put waits first, as for a request's way there and back."""
    put = LocalStorage.put

    def late(self: LocalStorage, *arguments: Any, **options: Any) -> None:
        time.sleep(latency)
        put(self, *arguments, **options)

    with patch.object(LocalStorage, "put", late):
        yield


@contextmanager
def sources_held() -> Iterator[None]:
    """Sources read nothing from the trigger of an epoch on until its manifest is there, or it is given up."""
    on_control = Worker._on_control

    def holding(self: Worker, kind: Any, number: int, payload: memoryview) -> None:
        on_control(self, kind, number, payload)
        match decode_to_worker(payload):
            case EpochTriggered():
                self._throttled = True
            case EpochCompleted() | EpochAborted():
                self._throttled = False

    with patch.object(Worker, "_on_control", holding):
        yield


class Reading:
    """How long the sources read: as progress, of which it takes note."""

    def __init__(self) -> None:
        self.records = 0
        self.began = self.ended = 0.0

    def __call__(self, now: Progress) -> None:
        if now.records != self.records:
            self.ended = time.monotonic()
            self.began = self.began or self.ended
            self.records = now.records

    @property
    def seconds(self) -> float:
        """Between the first news of records and the last that says more of them."""
        return self.ended - self.began


def lay_out(corpus: Path, copies: int, files: int) -> None:
    """The text so many times, in so many files; 0: each module in files of its own."""
    modules = sorted(corpus.iterdir())
    if not files:
        for path in modules:
            for copy in range(1, copies):
                os.link(path, path.with_name(f"{path.stem}.copy{copy}.py"))
        return
    for number in range(files):
        text = b"".join(path.read_bytes() for path in modules[number::files])
        (corpus / f"text-{number}.py").write_bytes(text * copies)
    for path in modules:
        path.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--latencies", default="0,0.05,0.6", help="seconds a put")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--copies", type=int, default=5, help="of the demo's text, 20 M words each")
    parser.add_argument("--interval", type=float, default=1.0)
    parser.add_argument("--files", type=int, default=8)
    asked = parser.parse_args()
    latencies = [float(one) for one in asked.latencies.split(",")]
    with tempfile.TemporaryDirectory(prefix="abs-bench-") as root:
        folder = Path(root) / "job"
        topology = parse_topology(inputs.write_job("wordcount", folder))
        words = sum(inputs.count_words(folder).values()) * asked.copies
        lay_out(folder / "corpus", asked.copies, asked.files)
        rates: dict[tuple[float, str], list[float]] = defaultdict(list)
        epochs: dict[tuple[float, str], list[int]] = defaultdict(list)
        for turn in range(asked.rounds + 1):
            for latency in latencies:
                for way in WAYS:
                    for name in ("store", "out"):
                        shutil.rmtree(folder / name, ignore_errors=True)
                    interval = None if way == WAYS[-1] else asked.interval
                    options = JobOptions(
                        str(folder), "wordcount.yaml", engine="inline", workers=2, interval=interval,
                    )  # fmt: skip
                    with slow_store(latency), sources_held() if way == WAYS[1] else slow_store(0):
                        outcome = run_job(topology, str(folder / "store"), options, reading := Reading())
                    if turn:  # the first is a warm-up
                        rates[latency, way].append(words / reading.seconds)
                        epochs[latency, way].append(outcome.epochs)
    print(f"{words:,} words, {os.cpu_count()} cores, {asked.rounds} rounds")
    for (latency, way), measured in rates.items():
        ratios = [a / b for a, b in zip(measured, rates[latency, WAYS[-1]], strict=True)]
        print(
            f"{latency * 1000:4.0f} ms a put  {way:22} {statistics.median(measured) / 1e6:5.2f} M words/s, "
            f"{statistics.median(epochs[latency, way]):g} epochs; pair by pair, to only the last: "
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        )


if __name__ == "__main__":
    main()
