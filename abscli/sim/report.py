"""What `abs simulate` finds out: random runs or every interleaving, and the shortest trace of a violation."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from abscli.protocol.policy import Policy
from abscli.sim.campaign import Failures, campaign, mixture
from abscli.sim.diagram import Diagram
from abscli.sim.explore import Explored, explore
from abscli.sim.local.situations import LocalSituation
from abscli.sim.model import Model
from abscli.sim.recorder import diagram
from abscli.sim.replay import shortest
from abscli.sim.scheduler import run
from abscli.sim.world import Limits, Step
from formats.parallel import process_pool

BATCH = 3


@dataclass(frozen=True, slots=True)
class Row:
    """What was covered under one policy.

    runs, epochs: of random runs.
    worlds, ends, whole: of a search, whether it saw everything.
    failures: how often each happened (random), or which one might happen anywhere (search).
    situations: of random runs on workers, in how many each was come to.
    """

    policy: Policy
    steps: int
    seconds: float
    runs: int | None = None
    epochs: int | None = None
    failures: dict[str, int] = field(default_factory=dict)
    situations: dict[str, int] | None = None
    anywhere: str | None = None
    worlds: int | None = None
    ends: int | None = None
    whole: bool | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """A violation: the shortest trace that was found.

    seed: None of a search.
    records: of each source task.
    found_after: steps of the run that showed it first.
    """

    policy: Policy
    seed: int | None
    rule: str
    message: str
    records: int
    steps: tuple[Step, ...]
    found_after: int
    diagram: Diagram


@dataclass(frozen=True, slots=True)
class Simulated:
    """The whole result. workers: that take their steps again when they are lost; 0: the recovery set restarts."""

    job: str
    tasks: int
    channels: int
    seed: int | None
    rows: tuple[Row, ...]
    finding: Finding | None
    workers: int = 0


def random_runs(
    model: Model,
    policies: Sequence[Policy],
    failures: Failures,
    seeds: range,
    show: Callable[[str], None],
    workers: int = 0,
) -> Simulated:
    """Runs from these seeds under each policy, to the first violation."""
    rows = []
    finding = None
    for policy in policies:
        total = None
        for total in campaign(model, policy, failures, seeds, batch=BATCH, of_workers=workers):
            show(f"{policy}: {total.runs:,} of {len(seeds):,} runs")
        if total is None:
            break
        rows.append(
            Row(policy, total.steps, total.seconds, runs=total.runs, epochs=total.epochs, failures=dict(total.failures),
                situations={each: total.situations[each] for each in LocalSituation} if workers else None)
        )
        if (bad := total.failed) is not None and bad.rule is not None:
            show(f"{policy}: seed {bad.seed} violates {bad.rule!r}; looking for a shorter trace")
            limits = mixture(bad.seed, failures, workers)
            finding = _finding(model, policy, limits, bad.steps, bad.rule, bad.seed)
            break
    return Simulated(model.topology.job, len(model.tasks), len(model.channels), seeds.start, tuple(rows), finding,
                     workers)


def every_interleaving(
    model: Model,
    policies: Sequence[Policy],
    failures: Failures,
    most: int,
    show: Callable[[str], None],
    workers: int = 0,
) -> Simulated:
    """A search under each policy, with one failure of the kind anywhere; two of them for `any`."""
    wanted = [Failures.FULL, Failures.PARTIAL] if failures is Failures.ANY else [failures]
    jobs = [(policy, kind, scope(kind, workers=workers)) for policy in policies for kind in wanted]
    rows, finding = [], None
    with process_pool() as pool:
        searches = [pool.submit(_search, model, policy, limits, most) for policy, _, limits in jobs]
        for number, ((policy, kind, limits), search) in enumerate(zip(jobs, searches, strict=True)):
            show(f"{number} of {len(jobs)} searches done; {policy}, failures: {kind}")
            explored: Explored = search.result()
            rows.append(
                Row(policy, explored.steps, explored.seconds, anywhere=kind, worlds=explored.worlds, ends=explored.ends,
                    whole=explored.whole)
            )  # fmt: skip
            if explored.rule is not None and finding is None:
                finding = _finding(model, policy, limits, explored.trace, explored.rule, None)
                pool.shutdown(cancel_futures=True)
                break
    return Simulated(model.topology.job, len(model.tasks), len(model.channels), None, tuple(rows), finding, workers)


def _search(model: Model, policy: Policy, limits: Limits, most: int) -> Explored:
    """In a process of its own, which ends when nobody waits for it any more."""
    parent = multiprocessing.parent_process()
    return explore(model, policy, limits, most=most, alive=lambda: parent is None or parent.is_alive())


def scope(kind: Failures, epochs: int = 1, max_concurrent: int = 2, workers: int = 0) -> Limits:
    """What a search lets happen: one failure of a kind. epochs: of the clock, before the one that the end takes.
    workers: as of `mixture`."""
    return Limits(
        epochs=epochs,
        max_concurrent=max_concurrent,
        crashes=kind is Failures.FULL,
        losses=kind is Failures.PARTIAL,
        rescales=kind is Failures.RESCALE,
        workers=workers,
    )


def one_run(model: Model, policy: Policy, failures: Failures, seed: int, workers: int = 0) -> Diagram:
    """The run of a seed, as a diagram."""
    limits = mixture(seed, failures, workers)
    outcome = run(model, policy, limits, seed, batch=BATCH)
    return diagram(f"{model.topology.job}, {policy}, seed {seed}", model, policy, limits, outcome.steps)


def _finding(
    model: Model, policy: Policy, limits: Limits, steps: tuple[Step, ...], rule: str, seed: int | None
) -> Finding:
    most = max((len(rows) for splits in model.rows.values() for rows in splits), default=0)
    models = [model, *(Model.of(model.topology, records) for records in range(most - 1, 0, -1))]
    smaller, played = shortest(models, policy, limits, steps, rule)
    title = f"{model.topology.job}, {policy}" + (f", seed {seed}" if seed is not None else "")
    return Finding(
        policy=policy,
        seed=seed,
        rule=rule,
        message=played.message or "",
        records=most - models.index(smaller),
        steps=played.steps,
        found_after=len(steps),
        diagram=diagram(title, smaller, policy, limits, played.steps),
    )
