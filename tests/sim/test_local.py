"""Local recovery in the simulator: lost workers take their steps again, and nobody else goes back."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abscli.cli.main import main
from abscli.protocol.policy import Policy
from abscli.protocol.schedule import StepKind
from abscli.sim.campaign import Failures
from abscli.sim.explore import explore
from abscli.sim.interned import InternedLocalWorld, Table, frozen
from abscli.sim.local.situations import LocalSituation
from abscli.sim.local.world import LocalWorld
from abscli.sim.properties import Violation
from abscli.sim.replay import play
from abscli.sim.report import one_run, random_runs
from abscli.sim.scheduler import Scheduler, run
from abscli.sim.world import Limits
from abscli.text.simulate import simulated_text
from formats.ids import TaskId
from formats.job.model import Topology
from tests.sim.test_local_faults import FULL, MANY, MIXED, SHUFFLE, SOME, left_out
from tests.support.schemas import checked
from tests.support.sim.jobs import CHAIN, PEERS, SHAPES, TWO_TASK_LOOP, graph, model, whole
from tests.tiers import examples

EXAMPLE = Path(__file__).parents[2] / "abscli" / "examples" / "imports.yaml"
JOBS = {**SHAPES, "shuffle": SHUFFLE, "one that is not deterministic": MIXED}


def limits(seed: int) -> Limits:
    """Another mixture of losses and of what else goes wrong for every seed."""
    return Limits(
        epochs=1 + seed % 4,
        max_concurrent=1 + seed % 3,
        losses=1 + seed % 4,
        crashes=(seed // 7) % 2,
        rescales=(seed // 11) % 2,
        lost_acks=seed % 2,
        timeouts=(seed // 4) % 2,
        workers=2 + seed % 3,
        capacity=(0, 2, 3)[seed % 3],
        kept=None if seed % 5 else 4,
    )


@pytest.mark.sample(10)
@pytest.mark.parametrize("policy", Policy)
@pytest.mark.parametrize("job", JOBS)
def test_lost_workers_alone_go_back_and_the_end_is_as_promised(job: str, policy: Policy) -> None:
    for seed in range(20):
        whole(model(JOBS[job]), policy, limits(seed), seed)


@settings(max_examples=examples(60))
@given(
    st.sampled_from(sorted(JOBS)), st.sampled_from(Policy), st.integers(0, 2**64), st.integers(0, 2**32),
    st.integers(1, 6), st.integers(0, 5),
)  # fmt: skip
def test_so_it_is_for_any_seed_batch_and_input(
    job: str, policy: Policy, seed: int, mixture: int, batch: int, records: int
) -> None:
    whole(model(JOBS[job], records), policy, limits(mixture), seed, batch=batch)


def situations(job: Topology, policy: Policy, limits: Limits, seed: int) -> frozenset[LocalSituation]:
    world = LocalWorld(model(job), policy, limits)
    scheduler = Scheduler(seed, 3)
    while not world.finished and (step := scheduler.choose(world)) is not None:
        world.do(step)
    return world.situations


def test_runs_come_to_every_situation() -> None:
    seen: set[LocalSituation] = set()
    for seed in range(150):
        for job, policy, most in (
            (SHUFFLE, Policy.ALIGNED, limits(seed)), (MIXED, Policy.ALIGNED, MANY), (PEERS, Policy.UNALIGNED, FULL),
            (PEERS, Policy.AT_LEAST_ONCE, SOME), (TWO_TASK_LOOP, Policy.AT_LEAST_ONCE, limits(seed)),
        ):  # fmt: skip
            seen |= situations(job, policy, most, seed)
        if seen == set(LocalSituation):
            return
    pytest.fail(f"never: {sorted(set(LocalSituation) - seen)}")


def test_who_was_not_lost_does_not_go_back() -> None:
    world = LocalWorld(model(SHUFFLE), Policy.ALIGNED, MANY)
    with pytest.raises(Violation, match="b/1 starts again, and was not lost"):
        world.start(TaskId("b", 1), 2, 1)


# -- every interleaving ---------------------------------------------------------------------------------------

PAIR, JOIN, LOOP = graph("s>a"), graph("s>c t>c"), graph("s>a a>a")
TWICE = Limits(epochs=0, max_concurrent=1, losses=2, workers=2)
ONCE = Limits(epochs=0, max_concurrent=1, losses=1, workers=3)
SCOPES = [
    *(("a pair, two losses", PAIR, TWICE, policy) for policy in Policy),
    ("two inputs, one loss", JOIN, ONCE, Policy.ALIGNED),
    ("a loop, one loss", LOOP, ONCE, Policy.ALIGNED),
    ("a loop, one loss", LOOP, ONCE, Policy.AT_LEAST_ONCE),
]
"""Larger ones: `python -m tests.bench.bench_simulation --local 1000000`."""


@pytest.mark.sample(1)
@pytest.mark.parametrize(("job", "scope", "policy"), [scope[1:] for scope in SCOPES], ids=[
    f"{name}, {policy}" for name, _, _, policy in SCOPES
])  # fmt: skip
def test_every_interleaving_with_losses_anywhere_holds(job: Topology, scope: Limits, policy: Policy) -> None:
    explored = explore(model(job, 1, 1), policy, scope)
    assert explored.message is None
    assert explored.whole
    assert explored.ends


def test_a_search_finds_what_a_fault_does(monkeypatch: pytest.MonkeyPatch) -> None:
    class Searched(InternedLocalWorld, left_out(StepKind.RECORDS)):  # type: ignore[misc]
        pass

    monkeypatch.setattr("abscli.sim.explore.InternedLocalWorld", Searched)
    assert explore(model(PAIR, 1, 1), Policy.ALIGNED, TWICE).rule is not None


@pytest.mark.parametrize("job", ["two inputs", "peers in a self-loop", "once an epoch"])
def test_interned_and_plain_worlds_are_the_same(job: str) -> None:
    for seed in range(6):
        outcome = run(model(SHAPES[job]), Policy.ALIGNED, limits(seed), seed)
        plain = LocalWorld(model(SHAPES[job]), Policy.ALIGNED, limits(seed))
        interned = InternedLocalWorld(model(SHAPES[job]), Policy.ALIGNED, limits(seed), Table())
        play(plain, outcome.steps)
        for step in outcome.steps:
            before, interned = interned, interned.copy()
            key = before.key()
            interned.do(step)
            assert before.key() == key
        assert frozen(interned.disk) == frozen(plain.disk)
        assert interned.channels == plain.channels
        assert interned.carried == plain.carried
        for worker in range(limits(seed).workers):
            assert interned.known(worker).key == plain.known(worker).key
            assert frozen(interned.frames(worker)) == frozen(plain.frames(worker))


def test_without_losses_workers_change_nothing() -> None:
    for seed in range(10):
        of_workers = run(model(CHAIN), Policy.ALIGNED, Limits(workers=2), seed)
        assert of_workers.steps == run(model(CHAIN), Policy.ALIGNED, Limits(), seed).steps


# -- the command and its pictures -----------------------------------------------------------------------------


def test_the_command_counts_what_runs_on_workers_came_to(capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["simulate", str(EXAMPLE), "--recovery", "local", "--workers", "2", "--runs", "20"]
    arguments += ["--crash", "partial"]
    assert main([*arguments, "-o", "json"]) == 0
    result = checked(capfd.readouterr().out)
    assert result["workers"] == 2
    assert all(set(row["situations"]) == set(LocalSituation) for row in result["rows"])
    assert all(row["situations"][LocalSituation.AGAIN] for row in result["rows"])
    assert main(arguments) == 0
    assert "runs on 2 workers in which" in capfd.readouterr().out


@pytest.mark.sample(5)
@pytest.mark.parametrize("job", JOBS)
def test_every_run_can_be_drawn(job: str) -> None:
    for seed in range(6):
        picture = one_run(model(JOBS[job]), list(Policy)[seed % 3], Failures.PARTIAL, seed, 3)
        assert picture.violation is None


def test_a_violation_comes_with_a_short_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalWorld, "_news", lambda self, channel: ())
    found = random_runs(model(SHUFFLE), [Policy.ALIGNED], Failures.PARTIAL, range(90), lambda text: None, workers=3)
    assert found.finding is not None
    assert len(found.finding.steps) < found.finding.found_after
    assert "VIOLATION" in simulated_text(found, width=100, ascii=False, picture=found.finding.diagram)
