"""`abs simulate`: what it covers, what it says of a violation, and that a search sees every interleaving."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from abscli.draw.spacetime_svg import spacetime_svg
from abscli.protocol.policy import Policy
from abscli.sim import report
from abscli.sim import task as sim_task
from abscli.sim import world as sim_world
from abscli.sim.campaign import Failures, Tally, campaign, mixture
from abscli.sim.explore import explore
from abscli.sim.interned import InternedWorld, Table, cloned, frozen
from abscli.sim.recorder import diagram
from abscli.sim.replay import play
from abscli.sim.report import every_interleaving, one_run, random_runs, scope
from abscli.sim.scheduler import run
from abscli.sim.world import Limits, World
from abscli.text.simulate import simulated_json, simulated_text
from formats.ids import TaskId
from formats.job.model import Topology
from tests.sim.test_planted_faults import FAULTS, LogsNothing, NeverHolds, ShowsEarly
from tests.support.schemas import checked
from tests.support.sim.jobs import CHAIN, NARROW_CHAIN, PEERS, SHAPES, SMALL, TWO_INPUTS, TWO_TASK_LOOP, model

EXAMPLE = Path(__file__).parents[2] / "abscli" / "examples" / "imports.yaml"


def quiet(text: str) -> None:
    """Nobody looks at the progress."""


def abs_(*arguments: str) -> subprocess.CompletedProcess[str]:
    start = "import sys\nfrom abscli.cli.main import main\nif __name__ == '__main__': sys.exit(main())"
    command = [sys.executable, "-c", start, "simulate", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


# -- the command ----------------------------------------------------------------------------------------------


def test_the_command_runs_a_job_under_all_policies(tmp_path: Path) -> None:
    done = abs_(str(EXAMPLE), "--runs", "20", "-o", "json")
    assert done.returncode == 0, done.stderr
    result = checked(done.stdout)
    assert [(row["policy"], row["runs"]) for row in result["rows"]] == [(policy.value, 20) for policy in Policy]
    assert result["violation"] is None
    assert all(row["failures"].get("crash") for row in result["rows"])


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    def once(name: str) -> tuple[str, str]:
        svg = tmp_path / name
        arguments = ("--runs", "1", "--seed", "11", "--policy", "unaligned", "--trace", "--out", str(svg))
        text = abs_(str(EXAMPLE), *arguments).stdout
        return "\n".join(line for line in text.splitlines() if "unaligned" not in line), svg.read_text()

    assert once("a.svg") == once("b.svg")


def test_the_single_token_of_the_paper_is_searched_whole() -> None:
    assert "Every snapshot is one of the four states" in abs_("--example", "single-token").stdout
    found = checked(abs_("--example", "single-token", "-o", "json").stdout)
    assert found["violation"] is None
    assert all(sum(counts.values()) for counts in found["recorded"].values())


@pytest.mark.parametrize("arguments", [(), (str(EXAMPLE), "--example", "single-token")])
def test_a_job_or_an_example_is_simulated(arguments: tuple[str, ...]) -> None:
    done = abs_(*arguments)
    assert done.returncode == 2
    assert "--example" in done.stderr


def test_a_job_that_does_not_hold_is_a_usage_error(tmp_path: Path) -> None:
    bad = tmp_path / "job.yaml"
    bad.write_text("version: 1\njob: x\noperators: {a: {from: b, map: words}, b: {from: a, map: words}}\n")
    assert abs_(str(bad)).returncode == 2


# -- random runs ----------------------------------------------------------------------------------------------


def test_no_failure_means_no_failure() -> None:
    for kind, steps in ((Failures.NONE, set()), (Failures.FULL, {"crash", "lose-ack", "time-out"})):
        (*_, total) = campaign(model(TWO_INPUTS), Policy.ALIGNED, kind, range(60), workers=1)
        assert set(total.failures) == steps
        assert total.failed is None


def test_processes_find_what_one_process_finds() -> None:
    def sums(workers: int) -> Tally:
        (*_, total) = campaign(model(CHAIN), Policy.ALIGNED, Failures.ANY, range(250), workers=workers)
        total.seconds = 0.0
        return total

    assert sums(1) == sums(2)


# -- violations -----------------------------------------------------------------------------------------------


def violation(fault: type, place: Any, name: str, job: Topology, monkeypatch: pytest.MonkeyPatch) -> report.Simulated:
    monkeypatch.setattr(place, name, fault)
    return random_runs(model(job), [Policy.ALIGNED], Failures.FULL, range(90), quiet)


def test_a_violation_comes_with_seed_short_trace_and_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    found = violation(NeverHolds, sim_task, "Task", PEERS, monkeypatch)
    assert found.finding is not None
    assert found.finding.rule == "orphan"
    assert len(found.finding.steps) < found.finding.found_after
    text = simulated_text(found, width=100, ascii=False, picture=found.finding.diagram)
    assert f"seed {found.finding.seed}" in text
    assert "VIOLATION" in text
    assert "orphan" in spacetime_svg(found.finding.diagram)
    assert checked(simulated_json(found))["violation"]["rule"] == "orphan"
    monkeypatch.undo()
    again = run(model(PEERS), Policy.ALIGNED, mixture(found.finding.seed or 0, Failures.FULL), found.finding.seed or 0)
    assert again.rule is None


def test_the_short_trace_breaks_the_same_rule_and_no_step_can_be_spared(monkeypatch: pytest.MonkeyPatch) -> None:
    found = violation(ShowsEarly, sim_world, "SimulatedTask", TWO_INPUTS, monkeypatch).finding
    assert found is not None
    limits = mixture(found.seed or 0, Failures.FULL)
    short = model(TWO_INPUTS, found.records)
    assert play(World(short, Policy.ALIGNED, limits), found.steps).rule == "visible"
    for at in range(len(found.steps)):
        fewer = found.steps[:at] + found.steps[at + 1 :]
        assert play(World(short, Policy.ALIGNED, limits), fewer).rule is None


@pytest.mark.sample(5)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_run_can_be_drawn(shape: str) -> None:
    for seed in range(12):
        picture = one_run(model(SHAPES[shape]), list(Policy)[seed % 3], Failures.ANY, seed)
        copies = [moment for moment in picture.moments if moment.kind == "copy"]
        assert copies
        assert any(message.barrier and message.received is not None for message in picture.messages)
        assert spacetime_svg(picture).startswith("<svg")


def test_a_diagram_has_every_record_that_was_delivered() -> None:
    job, limits = model(NARROW_CHAIN), Limits(epochs=2)
    outcome = run(job, Policy.ALIGNED, limits, 3)
    picture = diagram("x", job, Policy.ALIGNED, limits, outcome.steps)
    records = [m for m in picture.messages if not m.barrier]
    count = sum(1 if m.label == "record" else int(m.label.split()[0]) for m in records)
    assert count == 2 * 3 * 2
    assert all(m.received is not None for m in records)


# -- searches -------------------------------------------------------------------------------------------------

WHOLE = [
    ("chain", Policy.ALIGNED, 3),
    ("chain", Policy.AT_LEAST_ONCE, 3),
    ("chain", Policy.UNALIGNED, 1),
    ("diamond", Policy.ALIGNED, 3),
    ("diamond", Policy.AT_LEAST_ONCE, 3),
    ("two inputs", Policy.ALIGNED, 3),
    ("two inputs", Policy.UNALIGNED, 1),
    ("two inputs", Policy.AT_LEAST_ONCE, 1),
    ("self-loop", Policy.ALIGNED, 3),
    ("self-loop", Policy.AT_LEAST_ONCE, 3),
    ("self-loop", Policy.UNALIGNED, 2),
    ("peers in a self-loop", Policy.ALIGNED, 1),
    ("peers in a self-loop", Policy.AT_LEAST_ONCE, 1),
    ("two-task loop", Policy.ALIGNED, 3),
    ("two-task loop", Policy.AT_LEAST_ONCE, 3),
    ("nested loops", Policy.ALIGNED, 1),
    ("nested loops", Policy.AT_LEAST_ONCE, 1),
    ("loop with two entries", Policy.ALIGNED, 1),
]
"""Scopes that are searched whole in about a minute; `tests/bench/bench_simulation.py --max-states N` goes further."""


@pytest.mark.sample(2)
@pytest.mark.parametrize(("shape", "policy", "records"), WHOLE)
def test_every_interleaving_with_a_crash_anywhere_keeps_all_properties(
    shape: str, policy: Policy, records: int
) -> None:
    found = explore(model(SMALL[shape], records, rounds=1), policy, scope(Failures.FULL))
    assert found.message is None
    assert found.whole
    assert found.ends > 50


@pytest.mark.sample(3)
@pytest.mark.parametrize("policy", Policy)
@pytest.mark.parametrize("shape", ["peers in a self-loop", "nested loops", "loop with two entries"])
def test_a_part_of_a_larger_scope_keeps_all_properties(shape: str, policy: Policy) -> None:
    for kind in (Failures.FULL, Failures.PARTIAL):
        found = explore(model(SMALL[shape], 1, rounds=1), policy, scope(kind), most=3_000)
        assert found.message is None


def test_a_search_finds_what_random_runs_find(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sim_task, "Task", LogsNothing)
    found = explore(model(SMALL["self-loop"], 2, rounds=1), Policy.ALIGNED, scope(Failures.NONE))
    assert found.rule == "conservation"
    job = model(SMALL["self-loop"], 2, rounds=1)
    assert play(World(job, Policy.ALIGNED, scope(Failures.NONE)), found.trace).rule == "conservation"
    assert not found.whole


def test_a_search_says_when_it_has_not_seen_everything() -> None:
    found = explore(model(SMALL["diamond"], 1, rounds=1), Policy.UNALIGNED, scope(Failures.FULL), most=500)
    assert not found.whole
    assert found.rule is None
    assert found.worlds == 500


def test_an_interned_world_does_what_a_plain_one_does() -> None:
    job, limits = model(TWO_TASK_LOOP), mixture(29, Failures.ANY)
    for policy in Policy:
        for seed in (3, 4, 5):
            outcome = run(job, policy, limits, seed)
            interned = InternedWorld(job, policy, limits, Table())
            before = interned.copy()
            key = before.key()
            for step in outcome.steps:
                interned.do(step)
            plain = World(job, policy, limits)
            for step in outcome.steps:
                plain.do(step)
            assert interned.finished
            assert interned.disk.visible == plain.disk.visible
            assert frozen(interned.disk) == frozen(plain.disk)
            assert {task: frozen(interned.simulated(task)) for task in interned.model.tasks} == {
                task: frozen(plain.simulated(task)) for task in plain.model.tasks
            }
            assert before.key() == key


def test_a_clone_shares_nothing_that_changes() -> None:
    first = World(model(TWO_TASK_LOOP), Policy.ALIGNED, Limits()).simulated(TaskId("a", 0))
    before, twin = frozen(first), cloned(first)
    twin.seen[3] += 1
    twin.machine.blocked.add("x")
    twin.positions[1] = 2
    assert frozen(first) == before
    assert frozen(twin) != before


def test_the_command_searches(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(
        "version: 1\njob: tiny\noperators:\n  a: {source: {type: text, path: x}}\n  b: {from: a, map: words}\n"
        "  c: {from: b, sink: {type: jsonl, path: y}}\n"
    )
    done = abs_(str(job), "--exhaustive", "--crash", "full", "--records", "1", "-o", "ndjson")
    assert done.returncode == 0, done.stderr
    header, *rows = map(json.loads, done.stdout.splitlines())
    assert header["violation"] is None
    assert [(row["policy"], row["failure_kind"]) for row in rows] == [(policy.value, "full") for policy in Policy]
    assert all(row["complete"] and row["final_states"] for row in rows)


def test_a_violation_of_a_search_is_shortened_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "process_pool", Here)
    monkeypatch.setattr(sim_task, "Task", LogsNothing)
    found = every_interleaving(model(SMALL["self-loop"], 2, rounds=1), [Policy.ALIGNED], Failures.NONE, 10_000, quiet)
    assert found.finding is not None
    assert found.finding.seed is None
    assert found.finding.rule == "conservation"


class Here:
    """A pool without processes, so that a planted fault is in it."""

    def __init__(self, *_: Any) -> None:
        pass

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def submit(self, work: Any, *arguments: Any, **more: Any) -> Any:
        from concurrent.futures import Future

        future: Future[Any] = Future()
        future.set_result(work(*arguments, **more))
        return future

    def shutdown(self, **_: Any) -> None:
        """Nothing to stop."""


def test_every_fault_of_the_list_is_planted() -> None:
    assert len({fault.fault for fault in FAULTS}) >= 19
