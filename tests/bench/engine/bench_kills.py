"""Workers killed at random moments while jobs run: nothing is lost, and nothing comes twice.

    python -m tests.bench.engine.bench_kills [--kills 500] [--engine inline|spark] [--seed 1] [--recovery local]
    python -m tests.bench.engine.bench_kills --recovery local --kills 200 --at-once 2
    python -m tests.bench.engine.bench_kills --recovery local --kills 100 --during
    python -m tests.bench.engine.bench_kills --kills 500 --trace

Acyclic and cyclic jobs, all with exactly-once; one or two workers at a time, also while others recover and before the
first epoch; recovery `subgraph` and `full`, or `local` alone. With `--at-once` always so many workers of more; with
`--during` always another one as soon as a recovery has begun. Only kills of that kind count then. Each run's output is
held against an answer that is computed without the engine; with `--trace` what its machines did, too, against the
machines of the simulator.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from abscli.engine.coordinator import Progress
from abscli.engine.job import JobOptions, run_job
from abscli.engine.losses.decisions import Recovery, Scope
from abscli.sim.traces import check_traces
from formats.job.model import Topology
from tests.support.jobs.kills import Due, Kills, after, check_counted, check_rows, fan, pipelines, write_rows
from tests.support.jobs.small import (
    countdown,
    last_counts,
    output_pairs,
    reach,
    word_count,
    write_countdown,
    write_graph,
    write_words,
)


class Job(NamedTuple):
    """A job with its input. prepare(folder) writes that and returns what checks the output."""

    topology: Callable[[int], Topology]
    prepare: Callable[[Path], Callable[[], None]]


def _words(folder: Path) -> Callable[[], None]:
    counts = write_words(folder, files=6, lines=20_000)

    def check() -> None:
        assert last_counts(folder) == counts

    return check


def _graph(folder: Path) -> Callable[[], None]:
    pairs = write_graph(folder, nodes=200, degree=3, turning=True)

    def check() -> None:
        rows = output_pairs(folder)
        assert len(rows) == len(set(rows)), f"{len(rows) - len(set(rows))} pairs came twice"
        assert set(rows) == pairs, f"{len(pairs - set(rows))} pairs are lost"

    return check


def _countdown(folder: Path) -> Callable[[], None]:
    counts = write_countdown(folder, files=10, turning=True)

    def check() -> None:
        assert last_counts(folder, "id") == counts

    return check


def _counted(folder: Path) -> Callable[[], None]:
    counts = write_rows(folder)
    return lambda: check_counted(folder, counts)


def _rows(folder: Path) -> Callable[[], None]:
    counts = write_rows(folder)
    return lambda: check_rows(folder, counts)


JOBS = {
    "words": Job(lambda p: word_count(p), _words),
    "fan": Job(lambda p: fan(), _counted),
    "pipelines": Job(pipelines, _rows),
    "reach": Job(reach, _graph),
    "countdown": Job(countdown, _countdown),
}


def at(seconds: float) -> Due:
    """So long after the job was first looked at."""
    begun: list[float] = []

    def due(progress: Progress) -> bool:
        begun.append(time.monotonic())
        return begun[-1] - begun[0] >= seconds

    return due


class Plan(NamedTuple):
    """What runs have in common. at_once: workers that are killed together, None: one or two; during: whether another
    one is while these recover."""

    engine: str
    context: Any
    scopes: list[Scope]
    at_once: int | None
    during: bool
    trace: bool


def one_run(name: str, rng: random.Random, folder: Path, plan: Plan) -> Kills:
    """What was killed, and the recoveries; AssertionError if the output is not what it should be."""
    least = 2 if plan.at_once is None else plan.at_once + 1
    width = rng.choice([n for n in ([2, 3, 4] if plan.engine == "inline" else [2, 3]) if n >= least] or [least])
    job = JOBS[name]
    check = job.prepare(folder)
    workers = width if name != "fan" else 2
    moments: list[tuple[Due, list[int]]] = []
    for _ in range(rng.randrange(1, 4)):
        count = plan.at_once or rng.choice([1, 1, 2])
        victims = rng.sample(range(workers), min(workers, count))
        soon = at(rng.choice([rng.uniform(0, 0.3), rng.uniform(0, 2.0)]))
        # Before the first epoch nothing can restart alone: where that is asked for, seldom.
        later = after(rng.randrange(1, 4), open_epoch=rng.random() < 0.5)
        moments.append((rng.choice([soon, later, later]) if plan.scopes == [Scope.LOCAL] else soon, victims))
        if plan.during:
            moments.append((lambda progress: kills.recovering, [rng.randrange(workers)]))
    kills = Kills(moments, folder, enough=0, still=Scope.LOCAL in plan.scopes)
    options = JobOptions(
        str(folder), "job.yaml", engine=plan.engine, workers=workers, interval=0.1, restarts=20, context=plan.context,
        recovery=rng.choice(plan.scopes), policy=rng.choice(["aligned", "unaligned"]),
        max_concurrent=rng.choice([1, 1, 3]), trace=str(folder / "trace.jsonl") if plan.trace else None,
    )  # fmt: skip
    store = str(folder / "store")
    outcome = run_job(job.topology(width), store, options, kills.progress, kills.meet, on_news=kills.news)
    assert outcome.finished, "the job was stopped"
    check()
    if options.trace is not None:
        disagreement = check_traces([options.trace]).first
        assert disagreement is None, disagreement
    return kills


def counted(kills: Kills, plan: Plan) -> int:
    """Those of the kind that was asked for."""
    if plan.during:
        return kills.during
    if plan.at_once is not None:
        return sum(count for count in kills.at_once if count == plan.at_once)
    return len(kills.pids)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--engine", choices=("inline", "spark"), default="inline")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--recovery", choices=("mixed", "local"), default="mixed")
    parser.add_argument("--at-once", type=int)
    parser.add_argument("--during", action="store_true")
    parser.add_argument("--trace", action="store_true")
    options = parser.parse_args()
    context = None
    if options.engine == "spark":
        from abscli.engine.drivers.spark import start_context

        context = start_context("local[4]")
    kills: Counter[str] = Counter()
    wrong: list[int] = []
    recoveries: list[Recovery] = []
    scopes = [Scope.LOCAL] if options.recovery == "local" else [Scope.SUBGRAPH, Scope.SUBGRAPH, Scope.FULL]
    plan = Plan(options.engine, context, scopes, options.at_once, options.during, options.trace)
    # A job of two workers cannot lose two of more.
    names = [name for name in JOBS if name != "fan" or options.at_once is None]
    seed, runs = options.seed, 0
    while kills.total() < options.kills:
        rng = random.Random(seed)
        name = names[seed % len(names)]
        folder = Path(tempfile.mkdtemp(prefix="abs-kills-"))
        try:
            run = one_run(name, rng, folder, plan)
            kills[name] += counted(run, plan)
            recoveries += run.recoveries
        except Exception as error:
            wrong.append(seed)
            print(f"seed {seed}, {name}: {type(error).__name__}: {error}", file=sys.stderr)
            if len(wrong) > 20:
                break
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        seed, runs = seed + 1, runs + 1
        if runs % 20 == 0:
            print(f"{runs} runs, {kills.total()} kills, {len(wrong)} wrong", file=sys.stderr, flush=True)
    by_job = ", ".join(f"{name} {count}" for name, count in sorted(kills.items()))
    kind = "kills during a recovery" if plan.during else f"kills, {plan.at_once} at once" if plan.at_once else "kills"
    print(f"{options.engine}: {runs} runs, {kills.total()} {kind} ({by_job}), {len(recoveries)} recoveries")
    seconds = [recovery.seconds for recovery in recoveries]
    if seconds:
        print(f"from the loss until all had caught up: median {median(seconds):.2f} s, most {max(seconds):.2f} s")
    if options.recovery == "local":
        alone = [recovery for recovery in recoveries if recovery.again is not None]
        reasons = Counter(recovery.cause.partition("since ")[2][:40] for recovery in recoveries if not recovery.again)
        print(f"alone: {len(alone)}; everything instead: {dict(reasons)}")
    print(f"runs with a wrong result: {len(wrong)} {wrong if wrong else ''}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
