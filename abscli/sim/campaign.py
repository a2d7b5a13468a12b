"""Many runs from consecutive seeds, on all cores, with another mixture of failures for every seed."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from abscli.protocol.policy import Policy
from abscli.sim.model import Model
from abscli.sim.scheduler import Outcome, run
from abscli.sim.world import Limits
from formats.parallel import process_pool

CHUNK = 100
"""Runs that a process makes before it reports; fewer than this are made without another process."""

FAILURES = ("crash", "lose", "rescale", "lose-ack", "time-out")
"""Steps that are failures."""


class Failures(StrEnum):
    """Which failures may happen."""

    ANY = "any"
    FULL = "full"
    PARTIAL = "partial"
    RESCALE = "rescale"
    NONE = "none"


def mixture(seed: int, failures: Failures, workers: int = 0) -> Limits:
    """How much of each may happen in the run of a seed. workers: with so many of them, which are lost as a whole and
    take their steps again; how much channels hold and workers keep depends on the seed, too."""
    wanted = set(Failures) if failures is Failures.ANY else {failures}
    slips = failures is not Failures.NONE
    return Limits(
        epochs=1 + seed % 4,
        max_concurrent=1 + seed % 3,
        crashes=(1 + seed % 3 if failures is Failures.FULL else seed % 3) if Failures.FULL in wanted else 0,
        losses=(1 + seed % 3 if failures is Failures.PARTIAL else (seed // 2) % 3) if Failures.PARTIAL in wanted else 0,
        rescales=(1 + seed % 2 if failures is Failures.RESCALE else (seed // 8) % 3)
        if Failures.RESCALE in wanted
        else 0,
        lost_acks=seed % 2 if slips else 0,
        timeouts=(seed // 4) % 2 if slips else 0,
        workers=workers,
        capacity=(0, 2, 3)[seed % 3] if workers else 0,
        kept=None if seed % 5 or not workers else 4,
    )


@dataclass(slots=True)
class Tally:
    """What a number of runs came to.

    seconds: of CPU.
    situations: in how many runs each was come to, with workers.
    failed: the outcome with the lowest seed that broke a rule.
    """

    runs: int = 0
    steps: int = 0
    epochs: int = 0
    seconds: float = 0.0
    failures: Counter[str] = field(default_factory=Counter)
    situations: Counter[str] = field(default_factory=Counter)
    failed: Outcome | None = None

    def add(self, other: Tally) -> None:
        """Take over another's sums; the first failure stays."""
        self.runs += other.runs
        self.steps += other.steps
        self.epochs += other.epochs
        self.seconds += other.seconds
        self.failures.update(other.failures)
        self.situations.update(other.situations)
        self.failed = self.failed or other.failed


def campaign(
    model: Model,
    policy: Policy,
    failures: Failures,
    seeds: range,
    *,
    batch: int = 3,
    workers: int | None = None,
    of_workers: int = 0,
) -> Iterator[Tally]:
    """The sums so far, again and again, in the order of the seeds; ends with the last seed or the first violation.

    workers: processes that run simulations; of_workers: the simulated ones, as of `mixture`.
    """
    total = Tally()
    chunks = [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]
    workers = min(workers or os.cpu_count() or 1, len(chunks))
    if workers < 2:
        for chunk in chunks:
            total.add(_some(model, policy, failures, chunk, batch, of_workers))
            yield total
            if total.failed is not None:
                return
        return
    with process_pool(workers) as pool:
        futures = [pool.submit(_some, model, policy, failures, chunk, batch, of_workers) for chunk in chunks]
        for future in futures:
            total.add(future.result())
            yield total
            if total.failed is not None:
                pool.shutdown(cancel_futures=True)
                return


def _some(model: Model, policy: Policy, failures: Failures, seeds: range, batch: int, of_workers: int) -> Tally:
    tally = Tally()
    started = time.process_time()
    for seed in seeds:
        outcome = run(model, policy, mixture(seed, failures, of_workers), seed, batch=batch)
        tally.runs += 1
        tally.steps += len(outcome.steps)
        tally.epochs += outcome.epochs
        tally.situations.update(outcome.situations)
        tally.failures.update(step[0] for step in outcome.steps if step[0] in FAILURES)
        if outcome.rule is not None:
            tally.failed = outcome
            break
    tally.seconds = time.process_time() - started
    return tally
