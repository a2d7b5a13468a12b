"""Chandy and Lamport's own setting, by the real task machine: their two examples, their theorem, and faults in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abscli.draw.spacetime_svg import spacetime_svg
from abscli.protocol.events import Discard, Forward, Log, Persist, TaskAction, TaskEvent
from abscli.protocol.task import Task
from abscli.sim.chandy_lamport import markers, participant
from abscli.sim.chandy_lamport.diagram import drawn
from abscli.sim.chandy_lamport.markers import Scope, Step, World
from abscli.sim.chandy_lamport.participant import Marker, Note, Participant, Whole
from abscli.sim.chandy_lamport.processes import CannotOccur, Event, Global, Move, Pipe, Rule, System
from abscli.sim.chandy_lamport.recorded import Done, Part, check_reachable, permuted
from abscli.sim.chandy_lamport.runs import explore, run
from abscli.sim.chandy_lamport.systems import CROSSING, PIPES, PLACES, TOKEN, single_token, token_on_its_way
from abscli.sim.properties import Violation
from abscli.text.spacetime import spacetime_text
from tests.tiers import examples

DATA = Path(__file__).parents[1] / "data" / "spacetime"


def passing(graph: dict[str, str]) -> System:
    """A token that whoever has it may pass to any neighbour."""
    pipes = [Pipe(f"{a}{b}", a, b) for a, others in graph.items() for b in others]
    rules = [Rule(p.sender, 1, f"passes to {p.receiver}", 0, sends=((p.name, "token"),)) for p in pipes]
    rules += [Rule(p.receiver, 0, "takes", 1, takes=(p.name, "token")) for p in pipes]
    return System.of_rules({name: int(name == min(graph)) for name in graph}, pipes, rules)


RING = passing({"a": "b", "b": "c", "c": "a"})
TRIANGLE = passing({"a": "bc", "b": "ac", "c": "ab"})


def world_after(system: System, scope: Scope, *steps: Step) -> World:
    world = World(system, scope)
    for step in steps:
        assert step in world.enabled()
        world.do(step)
    return world


# -- systems without snapshots ----------------------------------------------------------------------------------


def test_the_token_system_has_four_global_states() -> None:
    assert TOKEN.reachable(TOKEN.first) == set(PLACES.values())


def test_an_event_happens_only_where_it_can() -> None:
    with pytest.raises(CannotOccur, match="c' is empty"):
        TOKEN.after(TOKEN.first, Event("p", "c'", "takes the token"))
    with pytest.raises(CannotOccur, match="q in state 's0'"):
        TOKEN.after(TOKEN.first, Event("q", None, "sends the token"))
    with pytest.raises(ValueError, match="more than 3"):
        TOKEN.reachable(TOKEN.first, most=3)


def test_a_system_that_does_not_hold_together_is_refused() -> None:
    with pytest.raises(ValueError, match="does not exist"):
        System.of_rules({"p": 0}, [Pipe("c", "p", "q")], [])
    with pytest.raises(ValueError, match="the same name"):
        System.of_rules({"p": 0}, [Pipe("c", "p", "p"), Pipe("c", "p", "p")], [])
    strange = System.of_rules({"p": "s1", "q": "s0"}, PIPES, [Rule("p", "s1", "errs", "s0", sends=(("c'", "token"),))])
    with pytest.raises(ValueError, match="not one of its output channels"):
        strange.after(strange.first, Event("p", None, "errs"))


# -- the single-token system ------------------------------------------------------------------------------------


def test_every_snapshot_of_the_token_is_one_of_the_four_states_and_all_four_are_recorded() -> None:
    found = explore(TOKEN, Scope())
    assert (found.rule, found.whole, found.endless) == (None, True, 0)
    assert {snapshot.state for snapshot in found.recorded} == set(PLACES.values())
    assert {"".join(sorted(snapshot.initiators)) for snapshot in found.recorded} == {"p", "q", "pq"}


def test_so_it_is_with_two_snapshots_under_way() -> None:
    found = explore(TOKEN, Scope(snapshots=2))
    assert (found.rule, found.whole, found.endless) == (None, True, 0)
    for epoch in (1, 2):
        assert {made.state for made in found.recorded if made.epoch == epoch} == set(PLACES.values())


def test_what_ships_as_the_example_says_so_too() -> None:
    found = single_token()
    assert found.holds
    assert found.runs > 500
    assert sum(sum(counts.values()) for counts in found.recorded.values()) == found.runs
    assert found.recorded["p"]["token in c"] == found.recorded["q"]["token in c'"] == 0  # the marker comes first there
    assert all(found.recorded["p and q"].values())


def test_the_example_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(participant, "Task", LogsNothing)
    found = single_token()
    assert not found.holds
    assert (found.rule, bool(found.trace)) == ("conservation", True)


def test_a_fifth_state_is_told_even_if_nothing_else_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    def unchecked(system: System, epoch: int, parts: Mapping[str, Part], history: object) -> Global:
        logs = [dict(parts[pipe.receiver].logs).get(system.ids[pipe.name], ()) for pipe in system.pipes]
        contents = tuple(tuple(message.content for message in log) for log in logs)
        return Global(tuple(parts[process].state for process in system.processes), contents)

    monkeypatch.setattr(markers, "check_channels", unchecked)
    monkeypatch.setattr(markers, "check_reachable", lambda *args: True)
    assert single_token().holds
    monkeypatch.setattr(participant, "Task", LogsNothing)
    found = single_token()
    assert (found.holds, found.rule) == (False, None)
    assert found.elsewhere == (Global(("s0", "s0"), ((), ())),)


def test_all_runs_of_any_number_of_moves_cannot_be_asked_for() -> None:
    with pytest.raises(ValueError, match="runs would otherwise never end"):
        explore(TOKEN, Scope(), every_run=True)


def test_every_snapshot_ends_in_every_run() -> None:
    for system, snapshots in ((TOKEN, 2), (RING, 1)):
        found = explore(system, Scope(snapshots, at_once=2, moves=2))
        assert (found.rule, found.whole, found.stuck) == (None, True, 0)
        assert found.ends > 0


# -- the theorem ------------------------------------------------------------------------------------------------

PAPER = [
    ("start", "p", 1),
    ("move", "p", "sends M"),
    ("move", "q", "sends M'"),
    ("take", "c'", "takes M'"),
    ("mark", "c"),
    ("mark", "c'"),
]  # fmt: skip
"""The run of example 2.2: p has copied A before all, q copies D."""


def test_a_snapshot_may_record_a_state_that_never_was() -> None:
    (made,) = world_after(CROSSING, Scope(), *PAPER).recorded
    assert made.state == Global(("A", "D"), ((), ("M'",)))
    assert made.began == CROSSING.first
    assert made.ended == Global(("A", "D"), (("M",), ()))
    assert not made.occurred


def test_it_is_on_the_way_of_the_permuted_run() -> None:
    world = world_after(CROSSING, Scope(), *PAPER[:-1])
    before, behind = permuted(1, world.events)
    assert before == [Event("q", None, "sends M'")]
    assert behind == [Event("p", None, "sends M"), Event("p", "c'", "takes M'")]
    passed = CROSSING.replay(CROSSING.first, [*before, *behind])
    assert passed[len(before)] == Global(("A", "D"), ((), ("M'",)))
    assert passed[-1] == world.now()
    assert passed[len(before)] not in CROSSING.replay(CROSSING.first, [done.event for done in world.events])


@pytest.mark.parametrize("system", [TOKEN, CROSSING])
def test_the_theorem_holds_in_every_single_run(system: System) -> None:
    found = explore(system, Scope(moves=3), every_run=True)
    assert (found.rule, found.whole) == (None, True)
    assert found.ends > 100


def test_some_runs_record_what_was_and_some_what_never_was() -> None:
    found = explore(CROSSING, Scope(moves=3), every_run=True)
    by = Counter[bool]()
    for made, count in found.recorded.items():
        by[made.occurred] += count
    assert min(by[True], by[False]) > 20


@pytest.mark.parametrize("system", [TOKEN, CROSSING, RING])
def test_the_recorded_state_lies_between_the_first_and_the_last(system: System) -> None:
    """Without the permuted run: in the graph of global states, for all pairs of them."""
    found = explore(system, Scope())
    assert (found.rule, found.whole, found.endless) == (None, True, 0)
    reachable = {state: system.reachable(state) for state in system.reachable(system.first)}
    for made in found.recorded:
        assert made.state in reachable[made.began]
        assert made.ended in reachable[made.state]


# -- any system -------------------------------------------------------------------------------------------------


@st.composite
def systems(draw: st.DrawFn) -> System:
    """Automata of three states on a ring with chords, so that every process reaches every other."""
    names = "abcd"[: draw(st.integers(2, 4))]
    ends = {(a, b) for a, b in zip(names, names[1:] + names[0], strict=True)}
    ends |= draw(st.sets(st.tuples(st.sampled_from(names), st.sampled_from(names)), max_size=4))
    pipes = [Pipe(f"{a}{b}", a, b) for a, b in sorted(ends)]
    states, contents = st.integers(0, 2), st.sampled_from("xy")
    rules = []
    for name in names:
        outputs = st.tuples(st.sampled_from([pipe.name for pipe in pipes if pipe.sender == name]), contents)
        for at in range(draw(st.integers(1, 3))):
            sends = tuple(draw(st.lists(outputs, max_size=2)))
            rules.append(Rule(name, draw(states), f"move {at}", draw(states), sends=sends))
        for channel in (pipe.name for pipe in pipes if pipe.receiver == name):
            for state in range(3):
                for content in "xy":
                    sends = tuple(draw(st.lists(outputs, max_size=1)))
                    rules.append(Rule(name, state, f"takes {content}", draw(states), (channel, content), sends))
    return System.of_rules(dict.fromkeys(names, 0), pipes, rules)


@settings(max_examples=examples(60))
@given(systems(), st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 3))
def test_snapshots_of_any_system_are_consistent_and_end(system: System, seed: int, epochs: int, at_once: int) -> None:
    ran = run(system, Scope(epochs, at_once), seed)
    assert ran.rule is None, ran.message
    assert ran.whole
    started = {step[2] for step in ran.steps if step[0] == "start"}
    assert len(ran.recorded) + ran.given_up == len(started)
    assert not started or max(made.epoch for made in ran.recorded) == max(started)


@settings(max_examples=10)
@given(systems())
def test_so_it_is_in_all_that_a_small_system_can_do(system: System) -> None:
    found = explore(system, Scope(moves=1), most=1_000)
    assert found.rule is None, found.message


def test_the_same_seed_gives_the_same_run() -> None:
    assert run(TRIANGLE, Scope(3), 7) == run(TRIANGLE, Scope(3), 7)
    assert run(TRIANGLE, Scope(3), 7) != run(TRIANGLE, Scope(3), 8)


def test_of_two_snapshots_that_meet_the_younger_ends() -> None:
    """R7: p starts 1, q starts 2; q never copies 1."""
    steps = [("start", "p", 1), ("start", "q", 2), ("mark", "c"), ("mark", "c'"), ("mark", "c")]
    world = world_after(TOKEN, Scope(snapshots=2), *steps)
    assert [made.epoch for made in world.recorded] == [2]
    assert world.given_up == {1}
    assert world.check_end()


def test_markers_that_do_not_get_everywhere_leave_a_snapshot_open_and_that_is_no_violation() -> None:
    assert not world_after(CHAIN, Scope(), ("start", "q", 1)).recorded
    found = explore(CHAIN, Scope())
    assert (found.rule, found.whole, found.ends) == (None, True, 1)
    assert {frozenset(made.initiators) for made in found.recorded} == {frozenset("p"), frozenset("pq")}


def test_a_marker_behind_a_message_that_is_never_taken_is_told_apart() -> None:
    deaf = System.of_rules({"p": 1, "q": 0}, PIPES, [Rule("p", 1, "sends", 0, sends=(("c", "x"),))])
    found = explore(deaf, Scope())
    assert (found.rule, found.ends > found.stuck > 0, (found.endless or 0) > 0) == (None, True, True)


# -- faults -----------------------------------------------------------------------------------------------------


class LogsNothing(Task):
    """What is on a channel at the cut is forgotten."""

    def on(self, event: TaskEvent) -> list[TaskAction]:
        return [action for action in super().on(event) if not isinstance(action, Log)]


class LogsOneEpoch(Task):
    """With two snapshots open, a message goes into the log of the younger only."""

    def on(self, event: TaskEvent) -> list[TaskAction]:
        return [replace(a, epochs=a.epochs[-1:]) if isinstance(a, Log) else a for a in super().on(event)]


class ClosesLogsEarly(Task):
    """The marker of one channel closes the logs of all."""

    def _close_log(self, channel: str, epoch: int) -> list[TaskAction]:
        self._logging.get(epoch, set()).clear()
        return self._persist_if_whole(epoch) if epoch in self._logging else []


class KeepsMarkers(Task):
    """Only who starts a snapshot sends markers."""

    def _barrier(self, channel: str, epoch: int, watermark: int | None) -> list[TaskAction]:
        return [action for action in super()._barrier(channel, epoch, watermark) if not isinstance(action, Forward)]


class IgnoresMarkers(Task):
    """A marker starts no copy."""

    def _barrier(self, channel: str, epoch: int, watermark: int | None) -> list[TaskAction]:
        return super()._barrier(channel, epoch, watermark) if epoch <= self.copied else []


class DropsParts(Task):
    """A part that is whole is dropped, though no younger snapshot has come by."""

    def on(self, event: TaskEvent) -> list[TaskAction]:
        return [Discard(action.epoch) if isinstance(action, Persist) else action for action in super().on(event)]


class MarkerBeforeCopy(Participant):
    """The marker leaves at once, the copy is made after the next event."""

    def __init__(self, system: System, process: str) -> None:
        super().__init__(system, process)
        self.late: set[int] = set()

    def handle(self, event: TaskEvent) -> list[Note]:
        waiting, known = self.late & self.drafts.keys(), set(self.drafts)
        notes = super().handle(event)
        self._copy(waiting)
        self.late |= self.drafts.keys() - known
        return notes

    def move(self, move: Move) -> list[Note]:
        notes = super().move(move)
        self._copy(self.late & self.drafts.keys())
        return notes

    def _copy(self, epochs: set[int]) -> None:
        for epoch in epochs & self.drafts.keys():
            self.drafts[epoch].part = self.part(epoch)
        self.late -= epochs


class CopyByReference(Participant):
    """The state that is written is the one at the end of the snapshot, not at the copy."""

    def handle(self, event: TaskEvent) -> list[Note]:
        return [Whole(replace(n.part, state=self.state)) if isinstance(n, Whole) else n for n in super().handle(event)]


class CountsTwice(Participant):
    """What was received is counted at the end of the snapshot: logged messages are in that number."""

    def handle(self, event: TaskEvent) -> list[Note]:
        return [self.late(note) if isinstance(note, Whole) else note for note in super().handle(event)]

    def late(self, whole: Whole) -> Whole:
        return Whole(replace(whole.part, received=self.part(whole.part.epoch).received))


def marker_first(self: World, channel: str) -> int:
    """A marker overtakes messages."""
    return next((at for at, item in enumerate(self.channels[channel]) if isinstance(item, Marker)), 0)


def marker_last(self: World, channel: str) -> int:
    """Messages overtake a marker."""
    return next((at for at, item in enumerate(self.channels[channel]) if not isinstance(item, Marker)), 0)


def newest_first(self: World, channel: str) -> int:
    """Last in, first out."""
    return len(self.channels[channel]) - 1


CHAIN = System.of_rules({"p": 0, "q": 0}, PIPES[:1], [])
TWO_MESSAGES = System.of_rules(
    {"p": 2, "q": 0},
    PIPES,
    [Rule("p", n, "sends", n - 1, sends=(("c", n),)) for n in (1, 2)]
    + [Rule("q", before, "takes", before + n, takes=("c", n)) for n in (1, 2) for before in (0, 1, 2)],
)

FAULTS: dict[str, tuple[Any, str, System, Scope, str]] = {
    "no log": (LogsNothing, "Task", TOKEN, Scope(), "conservation"),
    "log of one epoch": (LogsOneEpoch, "Task", TOKEN, Scope(snapshots=2), "conservation"),
    "log closed early": (ClosesLogsEarly, "Task", TRIANGLE, Scope(moves=1), "conservation"),
    "marker not sent on": (KeepsMarkers, "Task", TOKEN, Scope(moves=1), "end"),
    "marker ignored": (IgnoresMarkers, "Task", CHAIN, Scope(), "end"),
    "part dropped": (DropsParts, "Task", TOKEN, Scope(moves=1), "end"),
    "marker sent before the copy": (MarkerBeforeCopy, "Participant", TOKEN, Scope(), "conservation"),
    "copy by reference": (CopyByReference, "Participant", TOKEN, Scope(), "reachable"),
    "logged messages counted in": (CountsTwice, "Participant", TOKEN, Scope(), "twice"),
    "a marker overtakes": (marker_first, "next_on", TOKEN, Scope(), "conservation"),
    "a marker is overtaken": (marker_last, "next_on", TOKEN, Scope(), "orphan"),
    "last in, first out": (newest_first, "next_on", TWO_MESSAGES, Scope(), "protocol"),
}


def planted(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[System, Scope, str]:
    fault, where, system, scope, rule = FAULTS[name]
    monkeypatch.setattr({"Task": participant, "Participant": markers, "next_on": World}[where], where, fault)
    return system, scope, rule


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_by_the_search(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, system, scope, _ = FAULTS[name]
    assert explore(system, scope, most=2_000).rule is None
    system, scope, rule = planted(name, monkeypatch)
    found = explore(system, scope)
    assert found.rule == rule, found
    assert drawn(system, scope, found.trace, name).violation == found.message


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_by_random_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    system, scope, rule = planted(name, monkeypatch)
    rules = Counter(run(system, scope, seed).rule for seed in range(60))
    assert rules[rule] >= 1, rules


def test_a_violation_of_the_theorem_is_seen() -> None:
    sends = Event("p", None, "sends the token")
    done = [Done(sends, 1)]
    in_c, in_p = PLACES["token in c"], PLACES["token in p"]
    assert check_reachable(TOKEN, 1, in_p, in_p, in_c, done)
    for wrong in [(in_p, in_c, in_c, done), (in_p, in_p, in_p, done), (in_c, in_c, in_c, done)]:
        with pytest.raises(Violation, match="reachable"):
            check_reachable(TOKEN, 1, *wrong)


# -- pictures ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("form", ["80.txt", "svg"])
def test_the_snapshot_that_finds_the_token_on_its_way_is_drawn(form: str, request: pytest.FixtureRequest) -> None:
    diagram = token_on_its_way()
    text = spacetime_svg(diagram) if form == "svg" else spacetime_text(diagram, width=80)
    golden = DATA / f"single-token.{form}"
    if request.config.getoption("--rewrite"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


@settings(max_examples=examples(30))
@given(systems(), st.integers(0, 2**32))
def test_any_run_can_be_drawn(system: System, seed: int) -> None:
    scope = Scope(snapshots=3)
    ran = run(system, scope, seed, steps=30)
    diagram = drawn(system, scope, ran.steps, "any")
    assert diagram.violation is None
    copies = sum(1 for moment in diagram.moments if moment.kind == "copy")
    assert copies >= len(ran.recorded) * len(system.processes)
    assert sum(m.kind == "complete" for m in diagram.moments) == len(ran.recorded)
    assert not [m for m in diagram.messages if m.barrier and m.received is None] or not ran.whole


