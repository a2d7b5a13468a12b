"""What the simulator covers: random runs a second of CPU, and in so many minutes on all cores; the largest searches.

    python -m tests.bench.bench_simulation [--minutes 1] [--max-states 300000 [--rows 3 2 1] [--policies unaligned ...]]
    python -m tests.bench.bench_simulation --local 1000000 [--policies aligned ...] | --local-minutes 10

Random runs go over all shapes of `tests.support.sim.jobs` and all policies, a hundred seeds each, new ones in every
round.
Searches are of the scopes below with one crash anywhere, the largest first that is seen whole within `--max-states`.
`--local`: searches with two losses of workers anywhere, which take their steps again, up to so many states each;
`--local-minutes`: random runs of the same, with everything else that goes wrong.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed

from abscli.protocol.policy import Policy
from abscli.sim.campaign import FAILURES, Failures, Tally, campaign
from abscli.sim.explore import Explored, explore
from abscli.sim.model import Model
from abscli.sim.report import scope
from abscli.sim.scheduler import run
from abscli.sim.world import Limits
from tests.support.sim.jobs import SHAPES, SMALL, graph

SEEDS = 100


def runs(shape: str, policy: Policy, round: int) -> Tally:
    """A hundred runs of one shape under one policy."""
    seeds = range(round * SEEDS, (round + 1) * SEEDS)
    (*_, total) = campaign(Model.of(SHAPES[shape]), policy, Failures.ANY, seeds, workers=1)
    return total


def search(shape: str, policy: Policy, records: int, most: int) -> Explored:
    """Every interleaving of one small shape."""
    return explore(Model.of(SMALL[shape], records, 1), policy, scope(Failures.FULL), most=most)


LOCAL = {
    "a pair": graph("s>a"), "two inputs": graph("s>c t>c"), "self-loop": graph("s>a a>a"), "chain": graph("s>a a>b"),
    "behind two inputs": graph("s>c t>c c>d"), "shuffle": graph("s>a", s=2, a=2),
}  # fmt: skip


def search_local(shape: str, policy: Policy, epochs: int, most: int) -> Explored:
    """Every interleaving of one small shape with two losses anywhere."""
    limits = Limits(epochs=epochs, max_concurrent=1, losses=2, workers=3)
    return explore(Model.of(LOCAL[shape], 1, 1), policy, limits, most=most)


def runs_local(shape: str, policy: Policy, round: int) -> Tally:
    """A hundred runs of one shape on workers that are lost."""
    total = Tally()
    began = time.process_time()
    for seed in range(round * SEEDS, (round + 1) * SEEDS):
        limits = Limits(
            epochs=1 + seed % 4, max_concurrent=1 + seed % 3, losses=1 + seed % 4, crashes=(seed // 7) % 2,
            rescales=(seed // 11) % 2, lost_acks=seed % 2, timeouts=(seed // 4) % 2, workers=2 + seed % 3,
            capacity=(0, 2, 3)[seed % 3], kept=None if seed % 5 else 4,
        )  # fmt: skip
        outcome = run(Model.of(SHAPES[shape]), policy, limits, seed)
        failures = Counter(step[0] for step in outcome.steps if step[0] in FAILURES)
        total.add(Tally(1, len(outcome.steps), outcome.epochs, 0.0, failures, outcome if outcome.rule else None))
    total.seconds = time.process_time() - began
    return total


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--local", type=int, default=0)
    arguments.add_argument("--local-minutes", type=float, default=0.0)
    arguments.add_argument("--minutes", type=float, default=1.0)
    arguments.add_argument("--max-states", type=int, default=0)
    arguments.add_argument("--rows", type=int, nargs="+", default=[3, 2, 1])
    arguments.add_argument("--policies", type=Policy, nargs="+", default=list(Policy))
    given = arguments.parse_args()
    cores = os.cpu_count() or 1
    if given.local:
        with ProcessPoolExecutor(cores) as pool:
            searches = {
                pool.submit(search_local, shape, policy, epochs, given.local): (shape, policy, epochs)
                for epochs in (0, 1) for shape in LOCAL for policy in given.policies
            }  # fmt: skip
            for search_done in as_completed(searches):
                shape, policy, epochs = searches[search_done]
                found = search_done.result()
                seen = "whole" if found.whole else "a part"
                print(f"{shape:24} {policy:14} {epochs} epochs: {found.worlds:9,} states {found.steps:10,} steps "
                      f"{found.ends:8,} ends {found.seconds:7.1f} s {seen} {found.message or ''}", flush=True)
        return
    if given.max_states:
        with ProcessPoolExecutor(cores) as pool:
            asked = {
                pool.submit(search, shape, policy, records, given.max_states): (shape, policy, records)
                for records in given.rows for shape in SMALL for policy in given.policies
            }  # fmt: skip
            for future in as_completed(asked):
                shape, policy, records = asked[future]
                found = future.result()
                seen = "whole" if found.whole else "a part"
                print(f"{shape:24} {policy:14} {records} rows: {found.worlds:9,} states {found.steps:10,} steps "
                      f"{found.ends:8,} ends {found.seconds:7.1f} s {seen} {found.message or ''}", flush=True)
        return
    end = time.monotonic() + (given.local_minutes or given.minutes) * 60
    one = runs_local if given.local_minutes else runs
    total, number, began = Tally(), 0, time.monotonic()
    with ProcessPoolExecutor(cores) as pool:
        while time.monotonic() < end:
            asked = [pool.submit(one, shape, policy, number) for shape in SHAPES for policy in Policy]
            for job in asked:
                total.add(job.result())
            number += 1
            print(f"{time.monotonic() - began:6.0f} s, {total.seconds:.0f} of CPU: {total.runs:,} runs, "
                  f"{total.steps:,} steps, {total.epochs:,} epochs, {dict(total.failures)}, "
                  f"{total.runs / total.seconds:.0f} runs a second of CPU, "
                  f"violation: {total.failed and total.failed.message}", flush=True)
            if total.failed:
                break


if __name__ == "__main__":
    main()
