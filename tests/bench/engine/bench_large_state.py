"""How long epochs take while many keys change: words drawn evenly from so many, counted with an epoch every second.

    python -m tests.bench.engine.bench_large_state [--keys 100000,1000000,4000000] [--words 16000000] [--width 0]
        [--engine inline] [--workers 2] [--state-memory none,500M] [--interval 1]

About 2 GB of state in 500 MB, and with all of it in memory:

    python -m tests.bench.engine.bench_large_state --keys 16000000 --words 24000000 --width 100 --interval 10
        --state-memory none,500M

For each number of keys: words a second, the median and the 99th percentile of the epochs' durations, their longest
phases, CPU seconds of this process and those that it waited for, and the most memory that the processes of the workers
had, together: with `inline` it is this one, with `spark` those of Python, without the JVM. With few keys it says what a
worker needs whatever its state is (`--keys 1000`). Input lines hold eight words, with zeros to `width` digits; the sum
of the counts is checked. --state-memory is for all workers together; the runs under it alternate with those without on
the same input.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from abscli import open_store
from abscli.cli.options import size
from abscli.engine.coordinator import Progress, Service
from abscli.engine.job import JobOptions, run_job
from abscli.engine.telemetry.news import EpochDone, News
from tests.support.jobs.small import word_count

WORDS_A_LINE = 8
FILES = 2


def write_input(folder: Path, keys: int, words: int, width: int = 0) -> None:
    """Lines of words, evenly drawn."""
    random = np.random.default_rng(1)
    (folder / "in").mkdir()
    for number in range(FILES):
        with (folder / "in" / f"{number}.txt").open("w") as file:
            for _ in range(0, words // FILES, 1_000_000):
                drawn = random.integers(0, keys, (1_000_000 // WORDS_A_LINE, WORDS_A_LINE))
                file.write("\n".join(" ".join(f"w{word:0{width}d}" for word in line) for line in drawn.tolist()) + "\n")


def measure(
    folder: Path, engine: str, workers: int, interval: float, memory: int | None, emit: str
) -> dict[str, float]:
    """One run."""
    done: list[EpochDone] = []
    services: list[Service] = []
    most: dict[int, int] = {}

    def on_progress(progress: Progress) -> None:
        most.update({pid: peak for pid in services[0].pids().values() if (peak := peak_of(pid))})

    def on_news(news: News) -> None:
        if isinstance(news, EpochDone):
            done.append(news)

    before = time.process_time()
    options = JobOptions(
        str(folder), "job.yaml", engine=engine, master=f"local[{workers}]", workers=workers, interval=interval,
        state_memory=memory and memory // workers,
    )  # fmt: skip
    outcome = run_job(
        word_count(workers, emit), str(folder / "store"), options, on_progress, services.append, on_news=on_news
    )
    most.update({pid: peak_of(pid) or peak for pid, peak in most.items()})  # what is read to check it comes on top
    counted = open_store(folder / "store").state("counts")["n"]
    assert pc.sum(counted).as_py() == outcome.records * WORDS_A_LINE
    seconds = [one.seconds for one in done[:-1]] or [done[-1].seconds]
    phases = {name: float(np.median([one.phases[name] for one in done])) for name in done[0].phases}
    return {
        "keys": len(counted),
        "lines/s": outcome.records / outcome.elapsed,
        "epochs": len(done),
        "p50": float(np.percentile(seconds, 50)),
        "p99": float(np.percentile(seconds, 99)),
        **phases,
        "cpu": time.process_time() - before + resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime,
        "rss": sum(most.values()),
    }


def peak_of(pid: int) -> int:
    """The most memory that a process had so far, in bytes; 0 if it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    peak = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(peak[1]) * 1024 if peak else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", default="100000,1000000,4000000")
    parser.add_argument("--words", type=int, default=16_000_000)
    parser.add_argument("--engine", default="inline")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--width", type=int, default=0)
    parser.add_argument("--interval", type=float, default=1.0)
    parser.add_argument("--state-memory", default="none")
    parser.add_argument("--emit", default="epoch", help="or record: every count")
    parser.add_argument("--folder", type=Path, help="that has an input; one run, told as JSON")
    arguments = parser.parse_args()
    if arguments.folder:
        memory = None if arguments.state_memory == "none" else size(arguments.state_memory)
        figures = measure(
            arguments.folder, arguments.engine, arguments.workers, arguments.interval, memory, arguments.emit
        )
        print(json.dumps(figures))
        return
    for keys in map(int, arguments.keys.split(",")):
        with tempfile.TemporaryDirectory(prefix="abs-bench-") as root:
            folder = Path(root)
            write_input(folder, keys, arguments.words, arguments.width)
            for memory in arguments.state_memory.split(","):
                figures = one_run(
                    folder, arguments.engine, arguments.workers, arguments.interval, memory, arguments.emit
                )
                show(figures, memory)


def one_run(
    folder: Path, engine: str, workers: int, interval: float, memory: str, emit: str = "epoch"
) -> dict[str, float]:
    """The figures of one run in a process of its own, on the input of a folder."""
    one = [sys.executable, "-m", "tests.bench.engine.bench_large_state", "--folder", str(folder)]
    one += ["--engine", engine, "--workers", str(workers), "--interval", str(interval), "--state-memory", memory]
    one += ["--emit", emit]
    done = subprocess.run(one, stdout=subprocess.PIPE, check=True)
    shutil.rmtree(folder / "store")
    shutil.rmtree(folder / "out")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def show(figures: dict[str, float], memory: str) -> None:
    """A line of figures."""
    print(
        f"{figures['keys']:>10,} keys, state memory {memory}: {figures['lines/s'] * WORDS_A_LINE / 1e6:.2f} M words/s, "
        f"{figures['epochs']} epochs, p50 {figures['p50']:.2f} s, p99 {figures['p99']:.2f} s (align "
        f"{figures['align']:.2f}, copy {figures['copy']:.2f}, write {figures['write']:.2f}), "
        f"CPU {figures['cpu']:.1f} s, {figures['rss'] / 1e9:.2f} GB",
        flush=True,
    )


if __name__ == "__main__":
    main()
