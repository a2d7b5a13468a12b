"""What it costs, while nothing is lost, that a lost worker could restart alone: CPU of all processes with `--recovery
local` and with `subgraph`, schedules sent, frames kept.

    python -m tests.bench.engine.bench_local_cost [--pairs 20] [--workers 4,16] [--engines inline] [--chunks 1024]

A word count of which each word goes by hash to one of as many tasks as there are workers, an epoch every second, as
fast as it runs. The two kinds alternate; of each pair the ratio of their CPU seconds, of all ratios the median with
its 95 % confidence interval. On a machine that has other work the least of each kind says more.
`--chunks`: KiB that a source reads at once, where batches are to be smaller than they are by default: what a frame
costs weighs more then. Inline all workers are threads of this process, and schedules and frames are counted in it, as
is the CPU of the functions that are called with `local` only, which varies less; with `spark` the CPU is that of the
driver, of the JVM and of all Python workers.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from abscli.engine.job import JobOptions, run_job
from abscli.engine.local.hearing import Hearing
from abscli.engine.local.ledger import Ledger
from abscli.engine.local.steps import Steps
from abscli.engine.losses.decisions import Scope
from abscli.engine.sources.files import line_files
from abscli.engine.worker import Worker
from tests.support.intervals import median_interval
from tests.support.jobs.small import last_counts, word_count, write_words

TICKS = os.sysconf("SC_CLK_TCK")


OF_ITS_OWN = (
    (Ledger, ("said", "sent", "sent_barrier", "schema", "complete", "connect")), (Hearing, ("take", "ends")),
    (Steps, ("note",)),
)  # fmt: skip
"""What is called with `local` only; none of them calls another."""


class Cost(NamedTuple):
    """Of one run. cpu, seconds: of all processes, by the clock; within: CPU within what only `local` calls; schedules:
    bytes; kept: bytes of frames, at most."""

    cpu: float
    seconds: float
    within: float
    frames: int
    schedules: int
    kept: int


class Counted:
    """What goes over the wire in this process, and is kept of it; what that takes."""

    def __init__(self) -> None:
        self.within = 0.0
        self.frames = 0
        self.schedules = 0
        self.kept = 0
        self._sizes: dict[int, int] = {}

    @contextmanager
    def counting(self) -> Iterator[None]:
        """While a job runs."""
        with pytest.MonkeyPatch.context() as patch:
            for owner, names in OF_ITS_OWN:
                for name in names:
                    patch.setattr(owner, name, self._timed(getattr(owner, name), name))
            yield

    def _timed(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            if name == "complete":
                self._sizes[id(arguments[0])] = arguments[0].kept_bytes
                self.kept = max(self.kept, sum(self._sizes.values()))
            begun = time.thread_time()
            result = function(*arguments)
            self.within += time.thread_time() - begun
            if name == "said":
                self.frames += 1
                self.schedules += sum(map(len, result))
            return result

        return timed


def cpu_seconds() -> float:
    """Of this process and all that it has started, directly or not, those that have ended included."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended meanwhile
            parents[int(folder.name)] = int(fields[1])
            ticks[int(folder.name)] = sum(map(int, fields[11:15]))
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(ticks[pid] for pid in ours) / TICKS


def one_run(folder: Path, scope: Scope, engine: str, workers: int, context: Any) -> Cost:
    """The job from its beginning to its end; its counts are checked."""
    for name in ("store", "out"):
        shutil.rmtree(folder / name, ignore_errors=True)
    counted = Counted()
    options = JobOptions(
        str(folder), "job.yaml", engine=engine, workers=workers, interval=1.0, recovery=scope, context=context
    )
    begun, before = time.monotonic(), cpu_seconds()
    with counted.counting():
        outcome = run_job(word_count(workers), str(folder / "store"), options)
    assert outcome.finished
    cpu, seconds = cpu_seconds() - before, time.monotonic() - begun
    return Cost(cpu, seconds, counted.within, counted.frames, counted.schedules, counted.kept)


def compare(engine: str, workers: int, kib: int, pairs: int, megabytes: int, context: Any) -> str:
    """One line about so many pairs of runs."""
    costs: dict[Scope, list[Cost]] = {Scope.SUBGRAPH: [], Scope.LOCAL: []}
    with tempfile.TemporaryDirectory(prefix="abs-bench-") as root, pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_files, "CHUNK", kib << 10)
        folder = Path(root)
        # Files of equal length, as many as tasks, so that all sources end together.
        counts = write_words(folder, files=workers, lines=megabytes * 27_000 // workers)
        for turn in range(pairs + 1):
            # In turn also within a pair: what one leaves behind is in the other's way as often.
            for scope in (Scope.SUBGRAPH, Scope.LOCAL) if turn % 2 else (Scope.LOCAL, Scope.SUBGRAPH):
                cost = one_run(folder, scope, engine, workers, context)
                if turn:  # the first pair is a warm-up
                    costs[scope].append(cost)
            assert last_counts(folder) == counts
    ratios = [local.cpu / other.cpu for local, other in zip(costs[Scope.LOCAL], costs[Scope.SUBGRAPH], strict=True)]
    interval = median_interval(ratios)
    between = "" if interval is None else f" (95 %: {interval[0] - 1:+.1%} to {interval[1] - 1:+.1%})"
    middle = {scope: statistics.median(cost.cpu for cost in those) for scope, those in costs.items()}
    least = {scope: min(cost.cpu for cost in those) for scope, those in costs.items()}
    line = (
        f"{engine}, {workers} workers, {kib} KiB read at once, {pairs} pairs: CPU {statistics.median(ratios) - 1:+.1%}"
        f"{between}; {middle[Scope.SUBGRAPH]:.2f} s with subgraph (least {least[Scope.SUBGRAPH]:.2f}), "
        f"{middle[Scope.LOCAL]:.2f} s with local (least {least[Scope.LOCAL]:.2f})"
    )
    if engine == "inline":
        those = costs[Scope.LOCAL]
        line += (
            f"; {statistics.median(cost.within / cost.cpu for cost in those):.1%} within what only local calls"
            f"; {statistics.median(cost.schedules / cost.seconds for cost in those):,.0f} bytes/s of schedules, "
            f"{statistics.median(cost.schedules / max(1, cost.frames) for cost in those):,.0f} a frame; "
            f"at most {statistics.median(cost.kept for cost in those) / 2**20:.1f} MiB of frames kept"
        )
    return line


def profile(workers: int, kib: int, megabytes: int) -> None:
    """Where the CPU of the processing threads goes with `local`, most expensive first."""
    together: list[cProfile.Profile] = []
    lock, run = threading.Lock(), Worker.run

    def profiled(worker: Worker) -> None:
        each = cProfile.Profile(time.thread_time)
        each.runcall(run, worker)
        with lock:
            together.append(each)

    with tempfile.TemporaryDirectory(prefix="abs-bench-") as root, pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_files, "CHUNK", kib << 10)
        patch.setattr(Worker, "run", profiled)
        write_words(Path(root), files=workers, lines=megabytes * 27_000 // workers)
        one_run(Path(root), Scope.LOCAL, "inline", workers, None)
    stats = pstats.Stats(*together)
    stats.sort_stats("tottime").print_stats(45)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--workers", default="4,16")
    parser.add_argument("--engines", default="inline")
    parser.add_argument("--chunks", default="1024")
    parser.add_argument("--megabytes", type=int, default=40, help="of input, together")
    parser.add_argument("--profile", action="store_true", help="of one run instead, of the first of each")
    arguments = parser.parse_args()
    workers = [int(text) for text in arguments.workers.split(",")]
    chunks = [int(text) for text in arguments.chunks.split(",")]
    if arguments.profile:
        profile(workers[0], chunks[0], arguments.megabytes)
        return
    for engine in arguments.engines.split(","):
        context = None
        if engine == "spark":
            from abscli.engine.drivers.spark import start_context

            context = start_context(f"local[{max(workers)}]")
        for count in workers:
            for kib in chunks:
                print(compare(engine, count, kib, arguments.pairs, arguments.megabytes, context), flush=True)
        if context is not None:
            context.stop()


if __name__ == "__main__":
    main()
