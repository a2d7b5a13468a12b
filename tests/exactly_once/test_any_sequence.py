"""Any sequence of runs, kills, steps back, restores, copies and lost locks, on the real command line, is exactly-once
or refused; and the sequences that were not, once, are found when their mends are taken out. Thousands are in
`tests.bench.bench_sequences`."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.exactly_once.children import PLAIN, Children, How, Loss
from tests.exactly_once.faults import FAULTS
from tests.exactly_once.machine import RULES, Sequences
from tests.exactly_once.world import World

pytestmark = pytest.mark.minutes

TASKS = 2
"""Of each operator, and so the workers that have any."""
MOST_COMMANDS = 80
"""Commands within which a directed search has to find a fault."""


@pytest.fixture(scope="module")
def children() -> Iterator[Children]:
    with Children() as children:
        yield children


@pytest.mark.fast(reason="25 random sequences of commands")
def test_any_sequence_is_exactly_once_or_refused(children: Children, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sequences, "children", children, raising=False)
    # The same steps each time: what is new is looked for by the bench. Nothing to shrink or to keep, since kills meet
    # threads elsewhere.
    some = settings(max_examples=25, stateful_step_count=6, phases=[Phase.generate], database=None, derandomize=True)
    run_state_machine_as_test(Sequences, settings=some)  # type: ignore[no-untyped-call]


# -- the searches ---------------------------------------------------------------------------------------------


def a_copy_goes_on_with_the_numbers_of_the_original(world: World) -> None:
    world.run("a", how=How(epochs=8))
    world.plan("a", 7)
    world.restore(0, "b")
    for _ in range(5):
        world.run("b", how=How(epochs=2))


def a_backup_is_put_back(world: World) -> None:
    world.copy("a", "c")
    world.run("a", how=How(epochs=2))
    world.copy("c", "a")
    world.run("a", how=How(epochs=1))


def two_stores_are_started_at_once(world: World) -> None:
    for at in range(60, 160, 10):
        world.contend("a", "b", take_ownership=True, at=at, how=How(epochs=1))


def a_store_is_restored_into_another_while_its_job_runs(world: World) -> None:
    for at in range(60, 160, 10):
        world.contend_restore("a", "b", at=at, how=PLAIN)


def a_job_is_run(world: World) -> None:
    for _ in range(15):  # an epoch may name no part, and then misses none
        world.run("a", how=How(epochs=2))


def a_job_goes_back_and_forth_after_a_kill(world: World) -> None:
    for at in range(80, 240, 7):
        if world.commands > MOST_COMMANDS - 3:
            return
        world.run("a", take_ownership=True, how=How(epochs=3, signal=signal.SIGKILL, at=at))
        newest = world.newest("a")
        world.run("a", back=3, take_ownership=True, how=How(epochs=1))
        complete = world.complete("a")
        world.run("a", back=len(complete) - 1 - complete.index(newest), take_ownership=True, how=How(epochs=1))


def a_job_loses_its_locks(world: World) -> None:
    for at in range(60, 160, 10):
        world.lose_locks("a", at=at, how=How(epochs=1))


def a_part_is_taken_away(world: World) -> None:
    world.hide_part("a", 1)


def epochs_are_given_up(world: World) -> None:
    for at in range(60, 160, 6):
        world.run("a", timeout="1s", how=How(epochs=2, signal=0, at=at))


def workers_are_lost_and_manifests_go(world: World) -> None:
    world.copy("a", "c")
    for number in range(MOST_COMMANDS // 2 - 2):
        world.copy("c", "a")
        how = How(epochs=4, losses=(Loss(1, True, (number % TASKS,)), Loss(2, True, (0, 1))))
        world.run("a", take_ownership=True, recovery="full", policy="unaligned", keep=1, how=how)
        world.run("a", take_ownership=True, keep=1, how=How(epochs=1))


SEARCHES: dict[str, Callable[[World], None]] = {
    "identity": a_copy_goes_on_with_the_numbers_of_the_original,
    "backup": a_backup_is_put_back,
    "two stores": two_stores_are_started_at_once,
    "restore beside": a_store_is_restored_into_another_while_its_job_runs,
    "reveal": a_job_is_run,
    "back and forth": a_job_goes_back_and_forth_after_a_kill,
    "lost lock": a_job_loses_its_locks,
    "missing part": a_part_is_taken_away,
    "given up": epochs_are_given_up,
    "stray": workers_are_lost_and_manifests_go,
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str, children: Children, tmp_path: Path) -> None:
    world = World(tmp_path / "job", children, "acyclic")
    world.run("a", how=How(epochs=2))
    world.fault = name
    with pytest.raises(AssertionError, match=FAULTS[name].noticed):
        SEARCHES[name](world)
    assert world.commands <= MOST_COMMANDS


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", [name for name in FAULTS if name not in ("given up", "back and forth", "stray")])
def test_without_it_nothing_is_found(name: str, children: Children, tmp_path: Path) -> None:
    """The long searches are what the machine does."""
    world = World(tmp_path / "job", children, "cyclic")
    world.run("a", how=How(epochs=2))
    SEARCHES[name](world)
    world.end()


def test_every_rule_has_its_name_in_the_list() -> None:
    rules = {name for name, member in vars(Sequences).items() if hasattr(member, "hypothesis_stateful_rule")}
    assert rules == RULES
