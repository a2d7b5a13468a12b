"""What encryption between workers costs: throughput and CPU of the same job with TLS and without.

    python -m tests.bench.engine.bench_tls [--pairs 9] [--workers 2] [--megabytes 120] [--jobs handshakes,words,wide]

`handshakes`: what it takes to open a connection, of both ends together in one process.
`words`: a word count of which each word goes by hash to one of as many tasks as there are workers. `wide`: rows of a
kilobyte go by hash to tasks that count them by key. Workers are Python processes under Spark on this machine, connected
over loopback, where TLS is off by default: here it is switched on for one run of each pair. Runs with and without
alternate, also within a pair; the first pair is a warm-up. CPU is that of the driver, of the JVM and of all workers.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import resource
import shutil
import socket
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from abscli.engine import job
from abscli.engine.channels.line import Lines, new_key_pair
from abscli.engine.drivers.spark import start_context
from abscli.engine.job import JobOptions, run_job
from formats.job.model import Topology
from tests.bench.engine.bench_local_cost import cpu_seconds
from tests.support.intervals import median_interval
from tests.support.jobs.kills import spread
from tests.support.jobs.small import word_count, write_words

KEYS = 1000
WIDE = 1000
"""Bytes of a row's text."""


class Cost(NamedTuple):
    """Of one run: seconds by the clock, and of CPU."""

    seconds: float
    cpu: float


def write_wide(folder: Path, workers: int, megabytes: int) -> None:
    """Rows for `wide`, in as many files as there are workers."""
    dice = random.Random(1)
    (folder / "in").mkdir()
    (folder / "slow.py").write_text("def pass_on(batch):\n    return batch\n")
    texts = [f"{dice.getrandbits(4 * WIDE):0{WIDE}x}" for _ in range(500)]
    for number in range(workers):
        with (folder / "in" / f"{number}.jsonl").open("w") as file:
            for _ in range(megabytes * 1_000_000 // (WIDE + 30) // workers):
                file.write(json.dumps({"key": f"k{dice.randrange(KEYS)}", "text": dice.choice(texts)}) + "\n")


def one_run(folder: Path, topology: Topology, workers: int, context: Any, *, secure: bool) -> Cost:
    """The job from its beginning to its end."""
    for name in ("store", "out"):
        shutil.rmtree(folder / name, ignore_errors=True)
    options = JobOptions(str(folder), "job.yaml", workers=workers, interval=1.0, context=context)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "_is_secure", lambda launcher, options: secure)
        begun, before = time.monotonic(), cpu_seconds()
        assert run_job(topology, str(folder / "store"), options).finished
        return Cost(time.monotonic() - begun, cpu_seconds() - before)


def compare(name: str, pairs: int, workers: int, megabytes: int, context: Any) -> str:
    """One line about so many pairs of runs."""
    costs: dict[bool, list[Cost]] = {True: [], False: []}
    with tempfile.TemporaryDirectory(prefix="abs-bench-") as root:
        folder = Path(root)
        if name == "words":
            write_words(folder, files=workers, lines=megabytes * 27_000 // workers)
            topology = word_count(workers)
        else:
            write_wide(folder, workers, megabytes)
            topology = spread("wide", workers, workers, emit="epoch")
        size = sum(path.stat().st_size for path in (folder / "in").iterdir()) / 1e6
        for turn in range(pairs + 1):
            for secure in (True, False) if turn % 2 else (False, True):
                cost = one_run(folder, topology, workers, context, secure=secure)
                if turn:
                    costs[secure].append(cost)
    plain, secure_ = ([size / cost.seconds for cost in costs[kind]] for kind in (False, True))
    cpu = {kind: statistics.median(cost.cpu for cost in costs[kind]) for kind in (False, True)}
    return (
        f"{name}, {workers} workers, {size:.0f} MB, {pairs} pairs: {statistics.median(plain):.1f} MB/s without, "
        f"{statistics.median(secure_):.1f} MB/s with TLS ({ratio(secure_, plain)}); CPU {cpu[False]:.2f} s without, "
        f"{cpu[True]:.2f} s with ({ratio([c.cpu for c in costs[True]], [c.cpu for c in costs[False]])})"
    )


def handshakes(count: int = 300) -> str:
    """One line about so many connections that are open at the same time."""
    lines, buffer = Lines(new_key_pair()), memoryview(bytearray(1))
    opened, begun, before = [], time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(count):
        near, far = socket.socketpair()
        ends = lines.dialled(near), lines.accepted(far)
        for line in ends:
            line.sock.setblocking(False)
        while not all(line.is_open for line in ends):
            for line in ends:
                with contextlib.suppress(BlockingIOError):
                    line.flush()
                with contextlib.suppress(BlockingIOError):
                    line.receive(buffer)
        opened.append(ends)
    cpu, after = time.process_time() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for ends in opened:
        for line in ends:
            line.sock.close()
    kib = (after - before) / count
    return f"{count} connections: {cpu / count * 1e3:.2f} ms of CPU and {kib:.0f} KiB each, both ends together"


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """The median of the pairs' ratios, with its interval where there are enough pairs."""
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    interval = median_interval(ratios)
    between = "" if interval is None else f", 95 %: {interval[0]:.2f} to {interval[1]:.2f}"
    return f"x {statistics.median(ratios):.2f}{between}"


def main() -> None:
    """Print a line for each job."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--megabytes", type=int, default=120, help="of input, together")
    parser.add_argument("--jobs", default="handshakes,words,wide")
    arguments = parser.parse_args()
    jobs = arguments.jobs.split(",")
    if "handshakes" in jobs:
        print(handshakes(), flush=True)
    if not (jobs := [name for name in jobs if name != "handshakes"]):
        return
    context = start_context(f"local[{arguments.workers}]")
    for name in jobs:
        print(compare(name, arguments.pairs, arguments.workers, arguments.megabytes, context), flush=True)
    context.stop()


if __name__ == "__main__":
    main()
