"""What the simulator covers: random runs a second of CPU, and in so many minutes on all cores; the largest searches.

    python tests/bench/bench_simulation.py [--minutes 1] [--worlds 300000 [--rows 3 2 1] [--policies unaligned ...]]

Random runs go over all shapes of `tests.support.sim_jobs` and all policies, a hundred seeds each, new ones in every
round.
Searches are of the scopes below with one crash anywhere, the largest first that is seen whole within `--worlds`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from abscli.protocol.policy import Policy
from abscli.sim.campaign import Failures, Tally, campaign
from abscli.sim.explore import Explored, explore
from abscli.sim.model import Model
from abscli.sim.report import scope
from tests.support.sim_jobs import SHAPES, SMALL

SEEDS = 100


def runs(shape: str, policy: Policy, round: int) -> Tally:
    """A hundred runs of one shape under one policy."""
    seeds = range(round * SEEDS, (round + 1) * SEEDS)
    (*_, total) = campaign(Model.of(SHAPES[shape]), policy, Failures.ANY, seeds, workers=1)
    return total


def search(shape: str, policy: Policy, records: int, most: int) -> Explored:
    """Every interleaving of one small shape."""
    return explore(Model.of(SMALL[shape], records, 1), policy, scope(Failures.FULL), most=most)


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--minutes", type=float, default=1.0)
    arguments.add_argument("--worlds", type=int, default=0)
    arguments.add_argument("--rows", type=int, nargs="+", default=[3, 2, 1])
    arguments.add_argument("--policies", type=Policy, nargs="+", default=list(Policy))
    given = arguments.parse_args()
    cores = os.cpu_count() or 1
    if given.worlds:
        with ProcessPoolExecutor(cores) as pool:
            asked = {
                pool.submit(search, shape, policy, records, given.worlds): (shape, policy, records)
                for records in given.rows for shape in SMALL for policy in given.policies
            }  # fmt: skip
            for future in as_completed(asked):
                shape, policy, records = asked[future]
                found = future.result()
                seen = "whole" if found.whole else "a part"
                print(f"{shape:24} {policy:14} {records} rows: {found.worlds:9,} states {found.steps:10,} steps "
                      f"{found.ends:8,} ends {found.seconds:7.1f} s {seen} {found.message or ''}", flush=True)
        return
    end = time.monotonic() + given.minutes * 60
    total, number, began = Tally(), 0, time.monotonic()
    with ProcessPoolExecutor(cores) as pool:
        while time.monotonic() < end:
            asked = [pool.submit(runs, shape, policy, number) for shape in SHAPES for policy in Policy]
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
