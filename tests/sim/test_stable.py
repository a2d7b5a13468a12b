"""Stable properties found from snapshots: termination and deadlock; and why a property has to be stable."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abscli.sim.chandy_lamport.markers import Scope
from abscli.sim.chandy_lamport.processes import Global, System
from abscli.sim.chandy_lamport.recorded import Recorded
from abscli.sim.chandy_lamport.runs import explore, run
from abscli.sim.chandy_lamport.stable import (
    Lender,
    Property,
    Worker,
    deadlocked,
    diffusing,
    lending,
    snapshots_until,
    terminated,
    wait_cycle,
)
from abscli.sim.chandy_lamport.systems import CROSSING, PLACES, TOKEN
from tests.tiers import examples

PAIR = {"a": "b", "b": "a"}
RING = {"a": "b", "b": "c", "c": "a"}


def is_safe(system: System, holds: Property, made: Recorded) -> tuple[bool, bool, bool]:
    """Whether it held when the snapshot began, in the snapshot, and when it ended; each follows from the one before."""
    began, recorded, ended = (holds(system, state) for state in (made.began, made.state, made.ended))
    assert recorded or not began
    assert ended or not recorded
    return began, recorded, ended


def stays(system: System, holds: Property) -> bool:
    """Whether no event undoes the property: it is stable by definition."""
    states = [state for state in system.reachable(system.first) if holds(system, state)]
    return all(holds(system, system.after(state, event)) for state in states for event in system.events(state))


CASES: dict[str, tuple[System, Property, Scope]] = {
    "termination of two": (diffusing(PAIR, "a", {"a": 2, "b": 1}), terminated, Scope()),
    "termination of two, two snapshots": (diffusing(PAIR, "a", {"a": 1, "b": 0}), terminated, Scope(snapshots=2)),
    "termination of three": (
        diffusing(RING, "a", {"a": 1, "b": 1, "c": 0}), terminated, Scope(initiators=frozenset("b")),
    ),
    "deadlock of two": (lending(PAIR, rounds=2), deadlocked, Scope()),
}  # fmt: skip


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", CASES)
def test_in_all_that_can_happen_a_snapshot_tells_the_truth_about_a_stable_property(name: str) -> None:
    system, holds, scope = CASES[name]
    assert stays(system, holds)
    found = explore(system, scope)
    assert (found.rule, found.whole, found.stuck, found.endless) == (None, True, 0, 0)
    seen = Counter(is_safe(system, holds, made) for made in found.recorded)
    assert set(seen) == {(False, False, False), (False, False, True), (False, True, True), (True, True, True)}


# -- termination ------------------------------------------------------------------------------------------------


@st.composite
def computations(draw: st.DrawFn) -> System:
    """Any diffusing computation on a ring with chords."""
    names = "abcde"[: draw(st.integers(2, 5))]
    graph = {a: {b} for a, b in zip(names, names[1:] + names[0], strict=True)}
    for a, b in draw(st.sets(st.tuples(st.sampled_from(names), st.sampled_from(names)), max_size=6)):
        graph[a].add(b)
    sends = {name: draw(st.integers(0, 4)) for name in names}
    return diffusing({name: sorted(others) for name, others in graph.items()}, draw(st.sampled_from(names)), sends)


@settings(max_examples=examples(60))
@given(computations(), st.integers(0, 2**32), st.integers(1, 3))
def test_termination_is_found_when_it_is_there_and_only_then(system: System, seed: int, at_once: int) -> None:
    ran = run(system, Scope(snapshots=6, at_once=at_once), seed)
    assert ran.rule is None, ran.message
    for made in ran.recorded:
        is_safe(system, terminated, made)


@settings(max_examples=examples(40))
@given(computations(), st.integers(0, 2**32))
def test_snapshots_taken_one_after_the_other_find_the_termination(system: System, seed: int) -> None:
    """Every diffusing computation ends: its messages are counted."""
    found = snapshots_until(system, terminated, seed, snapshots=1_000, steps=1_500)
    assert found.ran.rule is None
    assert found.epoch == found.ran.recorded[-1].epoch
    assert terminated(system, found.ran.recorded[-1].ended)


def test_a_computation_that_goes_on_is_not_said_to_have_ended() -> None:
    restless = diffusing(PAIR, "a", {"a": 10_000, "b": 10_000})
    ran = run(restless, Scope(snapshots=5, at_once=1), 3)
    assert len(ran.recorded) == 5
    active = [made for made in ran.recorded if any(worker.active for worker in made.ended.states)]
    assert active
    assert not any(terminated(restless, made.state) for made in active)


def test_that_all_rest_is_not_enough() -> None:
    """Channels belong to the property: with work on its way, `all rest` holds in a snapshot and is undone."""

    def all_rest(system: System, state: Global) -> bool:
        return not any(worker.active for worker in state.states)

    system = diffusing(PAIR, "a", {"a": 1, "b": 0})
    assert not stays(system, all_rest)
    found = explore(system, Scope())
    assert any(all_rest(system, made.state) and not all_rest(system, made.ended) for made in found.recorded)
    work_flying = Global((Worker(False, 0), Worker(False, 0)), (("work",), ()))
    assert all_rest(system, work_flying)
    assert not terminated(system, work_flying)


# -- deadlock ---------------------------------------------------------------------------------------------------


def test_who_waits_for_each_other_is_named() -> None:
    system = lending({"a": "b", "b": "c", "c": "b"})

    def waiting(**of: str) -> Global:
        states = [Lender("waits" if name in of else "idle", of.get(name, ""), "", (), 0) for name in "abc"]
        return Global(tuple(states), ((),) * len(system.pipes))

    assert wait_cycle(system, waiting(a="b", b="c", c="b")) == ("b", "c")
    assert wait_cycle(system, waiting(a="b", b="c")) == ()
    assert wait_cycle(system, system.first) == ()


@st.composite
def lenders(draw: st.DrawFn) -> System:
    """Two to five processes, each of which may ask some of the others."""
    names = "abcde"[: draw(st.integers(2, 5))]
    wants = {
        name: sorted(draw(st.sets(st.sampled_from([other for other in names if other != name]), min_size=1)))
        for name in names
    }
    linked = {name: {*others, *(other for other in names if name in wants[other])} for name, others in wants.items()}
    reached, todo = {names[0]}, [names[0]]
    while todo:
        further = linked[todo.pop()] - reached
        reached |= further
        todo += further
    for name in sorted(set(names) - reached):  # so that markers get everywhere
        wants[name] = sorted({*wants[name], names[0]})
    return lending(wants, draw(st.integers(1, 3)))


@settings(max_examples=examples(60))
@given(lenders(), st.integers(0, 2**32), st.integers(1, 3))
def test_deadlock_is_found_when_it_is_there_and_only_then(system: System, seed: int, at_once: int) -> None:
    ran = run(system, Scope(snapshots=6, at_once=at_once), seed)
    assert ran.rule is None, ran.message
    assert ran.whole
    for made in ran.recorded:
        is_safe(system, deadlocked, made)
        cycle = wait_cycle(system, made.state)
        assert not cycle or wait_cycle(system, made.ended)


def test_runs_meet_deadlocks_and_get_round_them() -> None:
    system = lending(RING, rounds=3)
    founds = [snapshots_until(system, deadlocked, seed, snapshots=100, steps=400) for seed in range(20)]
    deadlocks = [found for found in founds if found.epoch is not None]
    assert len(founds) > len(deadlocks) > 0
    for found in founds:
        end = found.ran.recorded[-1].ended
        assert deadlocked(system, end) == (found.epoch is not None)
        if found.epoch is None:  # all have worked as often as they wanted
            assert {(state.phase, state.rounds) for state in end.states} == {("idle", 0)}


def test_looking_at_one_process_after_the_other_finds_deadlocks_that_are_not_there() -> None:
    """What a snapshot is for: a looks while it waits for b, b while it waits for a, and both have worked in the end."""
    system = lending(PAIR)
    seen = [system.first]
    looked = {}
    script = ["asks b", "takes request", "takes grant", "gives back", "takes release",
              "asks a", "takes request", "takes grant", "gives back", "takes release"]  # fmt: skip
    for what in script:
        (event,) = [event for event in system.events(seen[-1]) if event.move == what]
        seen.append(system.after(seen[-1], event))
        for process, state in zip(system.processes, seen[-1].states, strict=True):
            if state.phase == "waits":
                looked[process] = state
    phantom = Global(tuple(looked[name] for name in system.processes), ((), ()))
    assert deadlocked(system, phantom)
    assert not any(deadlocked(system, state) for state in seen)
    assert not system.events(seen[-1])


# -- what is not stable -----------------------------------------------------------------------------------------


def test_a_property_that_is_not_stable_may_be_wrong_when_the_snapshot_is_read() -> None:
    def with_p(system: System, state: Global) -> bool:
        return state == PLACES["token in p"]

    assert not stays(TOKEN, with_p)
    found = explore(TOKEN, Scope())
    assert any(with_p(TOKEN, made.state) and not with_p(TOKEN, made.ended) for made in found.recorded)
    assert any(with_p(TOKEN, made.began) and not with_p(TOKEN, made.state) for made in found.recorded)


def test_it_may_even_never_have_been_true() -> None:
    def only_m_prime_flies(system: System, state: Global) -> bool:
        return state == Global(("A", "D"), ((), ("M'",)))

    found = explore(CROSSING, Scope(moves=2), every_run=True)
    assert any(only_m_prime_flies(CROSSING, made.state) and not made.occurred for made in found.recorded)
