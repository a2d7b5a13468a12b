"""The protocol machines under a seeded scheduler, over random parallel graphs with loops and crashes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abscli.protocol.events import BarrierArrived, Block, Log, TaskAction, TaskEvent, Unblock
from abscli.protocol.task import Task
from abscli.sim.simulation import Graph, Record, Simulation, Violation, expected, totals

CHAIN = (("s", "a"), ("a", "b")), ()
DIAMOND = (("s", "a"), ("s", "b"), ("a", "c"), ("b", "c")), ()
TWO_INPUTS = (("s", "c"), ("t", "c")), ()
SELF_LOOP = (("s", "a"), ("a", "a"), ("a", "b")), (("a", "a"),)
TWO_TASK_LOOP = (("s", "a"), ("a", "b"), ("b", "a"), ("b", "c")), (("b", "a"),)
NESTED_LOOPS = (("s", "a"), ("a", "b"), ("b", "b"), ("b", "a"), ("b", "c")), (("b", "b"), ("b", "a"))
TWO_ENTRIES = (("s", "a"), ("t", "b"), ("a", "b"), ("b", "a"), ("b", "c")), (("b", "a"),)
SHAPES = [CHAIN, DIAMOND, TWO_INPUTS, SELF_LOOP, TWO_TASK_LOOP, NESTED_LOOPS, TWO_ENTRIES]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    edges, back = draw(st.sampled_from(SHAPES))
    names = list(dict.fromkeys(name for edge in edges for name in edge))
    parallelism = {name: draw(st.integers(1, 3)) for name in names}
    fed = {target for _, target in edges}
    rows = {
        f"{name}/{i}": tuple(
            Record(draw(st.integers(0, 20)), draw(st.integers(0, 2))) for _ in range(draw(st.integers(0, 5)))
        )
        for name in names
        if name not in fed
        for i in range(parallelism[name])
    }
    return Graph(parallelism, edges, frozenset(back), rows)


@settings(deadline=None, max_examples=150)
@given(graphs(), st.integers(0, 2**32), st.integers(0, 3), st.integers(1, 3), st.integers(1, 4))
def test_every_cut_is_consistent_and_the_end_is_exactly_once(
    graph: Graph, seed: int, crashes: int, concurrent: int, batch: int
) -> None:
    run = Simulation(graph, seed, crashes=crashes, max_concurrent=concurrent, batch=batch)
    run.run()
    assert totals(run) == expected(graph)


def loops() -> Graph:
    edges, back = TWO_TASK_LOOP
    rows = {f"s/{i}": tuple(Record(10 * i + k, 2) for k in range(6)) for i in range(2)}
    return Graph({"s": 2, "a": 2, "b": 2, "c": 1}, edges, frozenset(back), rows)


def self_loop() -> Graph:
    """The one shape in which a back edge's barrier can come before the copy: peers of one operator."""
    edges, back = SELF_LOOP
    rows = {f"s/{i}": tuple(Record(10 * i + k, 2) for k in range(6)) for i in range(2)}
    return Graph({"s": 2, "a": 2, "b": 1}, edges, frozenset(back), rows)


def test_the_same_seed_gives_the_same_run() -> None:
    runs = [Simulation(loops(), 7, crashes=2) for _ in range(2)]
    for run in runs:
        run.run()
    assert runs[0].history == runs[1].history
    assert runs[0].complete == runs[1].complete


def test_runs_see_crashes_logs_and_several_epochs_in_flight() -> None:
    crashes = logs = in_flight = 0
    for seed in range(60):
        run = Simulation(loops(), seed, crashes=2, max_concurrent=3)
        run.run()
        crashes += run.attempt - 1
        logs += sum(len(log) for parts in run.complete.values() for p in parts.values() for log in p.logs.values())
        in_flight += any(b - a == 1 for a, b in zip(sorted(run.complete), sorted(run.complete)[1:], strict=False))
    assert crashes > 20
    assert logs > 100
    assert in_flight > 10


class Unchecked(Task):
    def _check_deliverable(self, channel: str) -> None:
        """Faulty drivers deliver from blocked channels; what follows from it is what the checks must see."""

    def filtered(self, event: TaskEvent, drop: Callable[[TaskAction], bool]) -> list[TaskAction]:
        return [action for action in super().on(event) if not drop(action)]


class NeverHolds(Unchecked):
    """R4: a back edge whose barrier comes before the copy is not held."""

    def on(self, event: TaskEvent) -> list[TaskAction]:
        return self.filtered(event, lambda a: isinstance(a, Block | Unblock) and a.channel in self.back)


class NeverBlocks(Unchecked):
    """R1: a regular input goes on being read after its barrier."""

    def on(self, event: TaskEvent) -> list[TaskAction]:
        return self.filtered(event, lambda a: isinstance(a, Block | Unblock) and a.channel in self.regular)


class LogsNothing(Unchecked):
    """R5: nothing is logged."""

    def on(self, event: TaskEvent) -> list[TaskAction]:
        return self.filtered(event, lambda a: isinstance(a, Log))


class LogsOneEpoch(Unchecked):
    """R5: with two epochs open, a record goes into the log of the newest only."""

    def on(self, event: TaskEvent) -> list[TaskAction]:
        actions = super().on(event)
        return [replace(a, epochs=a.epochs[-1:]) if isinstance(a, Log) else a for a in actions]


class ForwardsFirst(Unchecked):
    """R3: the copy is made before the records of the epoch have all come: on the first barrier."""

    def on(self, event: TaskEvent) -> list[TaskAction]:
        if isinstance(event, BarrierArrived) and event.channel in self.regular and event.epoch > self.copied:
            regular, self.regular = self.regular, frozenset({event.channel})
            actions = super().on(event)
            self.regular = regular
            return actions
        return [] if isinstance(event, BarrierArrived) and event.channel in self.regular else super().on(event)


class ForgetsCounters(Unchecked):
    """Restored counters start from nothing."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **{**more, "received": {}})


FAULTS = [NeverHolds, NeverBlocks, LogsNothing, LogsOneEpoch, ForwardsFirst, ForgetsCounters]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_planted_fault_is_caught(fault: type[Task], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("abscli.sim.simulation.Task", fault)
    assert any(shows(seed) for seed in range(400))


def test_without_a_planted_fault_nothing_is_caught() -> None:
    assert not any(shows(seed) for seed in range(100))


def shows(seed: int) -> bool:
    """Whether a run breaks a property: an inconsistent cut, no end, or another end than exactly once."""
    run = Simulation(loops() if seed % 2 else self_loop(), seed, crashes=1, max_concurrent=2)
    try:
        run.run(5_000)
    except Violation:
        return True
    return totals(run) != expected(run.graph)
