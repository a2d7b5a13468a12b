"""The protocol machines under a seeded scheduler: every policy, loops, crashes, partial recovery, lost acks."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abscli.protocol.policy import Policy
from abscli.sim.campaign import Failures, mixture
from abscli.sim.model import Model
from abscli.sim.scheduler import Outcome, run
from abscli.sim.world import Limits
from formats.job.model import Topology
from tests.support.sim.jobs import NARROW_CHAIN, REPLAYABLE, SHAPES, TWO_TASK_LOOP, model, whole
from tests.tiers import examples


def limits(seed: int) -> Limits:
    """Another mixture of failures for every seed."""
    return Limits(
        epochs=1 + seed % 4,
        max_concurrent=1 + seed % 3,
        crashes=seed % 3,
        losses=(seed // 2) % 3,
        lost_acks=seed % 2,
        timeouts=(seed // 4) % 2,
        rescales=(seed // 8) % 3,
    )


@pytest.mark.sample(10)
@pytest.mark.parametrize("policy", Policy)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_cut_is_consistent_and_the_end_is_as_promised(shape: str, policy: Policy) -> None:
    for seed in range(40):
        whole(model(SHAPES[shape]), policy, limits(seed), seed)


@settings(max_examples=examples(60))
@given(
    st.sampled_from(sorted(SHAPES)), st.sampled_from(Policy), st.integers(0, 2**64), st.integers(0, 2**32),
    st.integers(1, 6), st.integers(0, 5),
)  # fmt: skip
def test_so_it_is_for_any_seed_batch_and_input(
    shape: str, policy: Policy, seed: int, mixture: int, batch: int, records: int
) -> None:
    whole(model(SHAPES[shape], records), policy, limits(mixture), seed, batch=batch)


def test_the_same_seed_gives_the_same_run() -> None:
    def once() -> Outcome:
        return run(model(TWO_TASK_LOOP), Policy.UNALIGNED, limits(7), 7)

    assert once() == once()
    assert once().steps != run(model(TWO_TASK_LOOP), Policy.UNALIGNED, limits(7), 8).steps


def kinds(topology: Topology, policy: Policy, seeds: int) -> Counter[str]:
    """How often each kind of step was made."""
    found: Counter[str] = Counter()
    for seed in range(seeds):
        found.update(step[0] for step in run(Model.of(topology), policy, limits(seed), seed).steps)
    return found


def test_runs_see_every_kind_of_step() -> None:
    found = kinds(NARROW_CHAIN, Policy.ALIGNED, 100)
    wanted = ("deliver", "read", "persist", "notice", "mail", "manifest", "stored", "tick", "crash", "lose", "lose-ack",
              "time-out", "stale")  # fmt: skip
    assert all(found[kind] >= 10 for kind in wanted), found


def test_a_task_that_is_to_restart_sends_nothing_until_it_has() -> None:
    """A second loss is heard of when the first has restarted tasks that it takes along: they still run."""
    whole(model(NARROW_CHAIN), Policy.UNALIGNED, mixture(173, Failures.ANY), 173)


def test_a_replayable_edge_keeps_the_sender_alive() -> None:
    found = kinds(REPLAYABLE, Policy.ALIGNED, 60)
    assert found["lose"] >= 20
