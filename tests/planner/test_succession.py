"""What becomes of the operators of an epoch in a job that has changed: over any two job graphs."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abscli.planner.succession import Fate, Succession, owns, succession, written
from formats.job.changes import Changes, Move
from formats.job.model import Edge, Kind, Operator, Partition, Topology
from tests.tiers import examples

HASH, FORWARD = Partition.HASH, Partition.FORWARD


def op(id: str, kind: Kind, key: tuple[str, ...] = ()) -> Operator:
    return Operator(id, kind, 2, 8, key=key)


def chain(*operators: Operator) -> Topology:
    edges = [Edge(a.id, b.id, HASH if b.key else FORWARD, b.key) for a, b in itertools.pairwise(operators)]
    return Topology("j", operators, tuple(edges))


SOURCE, PLAIN, SEEN, SINK = op("s", Kind.SOURCE), op("m", Kind.MAP), op("d", Kind.DISTINCT, ("k",)), op("o", Kind.SINK)
BEFORE = chain(SOURCE, PLAIN, SEEN, SINK)


def named(operator: Operator, id: str) -> Operator:
    return msgspec.structs.replace(operator, id=id)


def fates(change: Succession) -> dict[str, Fate]:
    return {row.operator: row.outcome for row in change.operators}


def test_a_job_that_has_not_changed_keeps_everything() -> None:
    change = succession(BEFORE, BEFORE, Changes(), {("m", "d"): 3})
    assert set(fates(change).values()) == {Fate.KEPT}
    assert not change.generation
    assert not change.refused
    assert not change.stranded
    assert change.suggestion() is None


def test_the_lines_to_add_name_the_new_operator_that_fits_best_and_stand_with_those_that_are_there() -> None:
    new = chain(SOURCE, PLAIN, named(SEEN, "done"), named(SEEN, "dd"), SINK)
    change = succession(BEFORE, new, Changes((Move("x", "o"),), ("y",)), {})
    assert fates(change)["d"] is Fate.ORPHANED
    assert change.lines == Changes((Move("x", "o"), Move("d", "dd")), ("y",))
    assert written(change.lines) == ["`moved: [{from: x, to: o}, {from: d, to: dd}]`", "`removed: [y]`"]
    assert change.suggestion() == (
        "add `moved: [{from: x, to: o}, {from: d, to: dd}]` at the top level of the job file; or name d in removed, to "
        "drop what was there"
    )


def test_what_no_new_operator_can_have_is_to_be_removed() -> None:
    change = succession(BEFORE, chain(SOURCE, PLAIN, op("e", Kind.DISTINCT, ("other",)), SINK), Changes(), {})
    assert change.suggestion() == "add `removed: [d]` at the top level of the job file"


@pytest.mark.parametrize("back", [None, frozenset[tuple[str, str]]()])
def test_a_log_stays_with_its_edge_where_that_may_have_one(back: frozenset[tuple[str, str]] | None) -> None:
    new = chain(SOURCE, PLAIN, named(SEEN, "e"), SINK)
    change = succession(BEFORE, new, Changes((Move("d", "e"),)), {("m", "d"): 3}, back)
    (edge,) = [edge for edge in change.edges if edge.logged]
    assert edge.now == new.edges[1]
    assert bool(change.stranded) == (back is not None)


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (chain(SOURCE, PLAIN, op("n", Kind.MAP), SEEN, SINK), "edge m->d is no longer there, and 3 records"),
        (
            msgspec.structs.replace(
                BEFORE, edges=(BEFORE.edges[0], Edge("m", "d", Partition.BROADCAST), BEFORE.edges[2])
            ),
            "edge m->d was hash [k] and is broadcast, and 3 records",
        ),
    ],
)
def test_a_log_whose_edge_has_changed_stands_against_it(new: Topology, message: str) -> None:
    (edge,) = succession(BEFORE, new, Changes(), {("m", "d"): 3}).stranded
    assert (edge.why or "").startswith(message)
    assert not succession(BEFORE, new, Changes(), {}).stranded


IDS = "abcdef"
operators = st.builds(
    lambda kind, key: (kind, key if kind is Kind.DISTINCT else ()),
    st.sampled_from([Kind.SOURCE, Kind.MAP, Kind.FILTER, Kind.DISTINCT, Kind.SINK]),
    st.sampled_from([("k",), ("l",)]),
)
graphs = st.dictionaries(st.sampled_from(IDS), operators, min_size=1).map(
    lambda drawn: chain(*(op(id, kind, key) for id, (kind, key) in drawn.items()))
)


@st.composite
def lines(draw: st.DrawFn, new: Topology) -> Changes:
    """Lines as a file can have them: of ids that are no operators of it, each once; moves lead down the alphabet."""
    moved, removed = [], []
    for id in (id for id in IDS if id not in {op.id for op in new.operators}):
        ends = [*(op.id for op in new.operators), *(gone for gone in removed), *(move.before for move in moved)]
        match draw(st.sampled_from(["", "moved", "removed"])):
            case "moved":
                moved.append(Move(id, draw(st.sampled_from(ends))))
            case "removed":
                removed.append(id)
            case _:
                pass
    return Changes(tuple(moved), tuple(removed))


@settings(max_examples=examples(300))
@given(st.data(), graphs, graphs)
def test_nothing_that_is_owned_is_lost_without_a_word(data: st.DataObject, old: Topology, new: Topology) -> None:
    changes = data.draw(lines(new))
    change = succession(old, new, changes, {})
    assert [row.operator for row in change.operators[: len(old.operators)]] == [op.id for op in old.operators]
    after = {op.id: op for op in new.operators}
    for before, row in zip(old.operators, change.operators, strict=False):
        if row.outcome in (Fate.KEPT, Fate.MOVED):
            assert row.successor is not None
            heir = after[row.successor]
            assert owns(before) is None or (heir.kind, heir.key) == (before.kind, before.key)
        elif row.outcome is Fate.REMOVED:
            assert changes.heir(before.id) is None
        elif row.outcome is Fate.DROPPED:
            assert owns(before) is None
        else:
            assert row.reason is not None
    if not change.refused:
        heirs = list(change.heirs.values())
        assert len(set(heirs)) == len(heirs)  # no operator has what two had
        added = {row.operator for row in change.operators if row.outcome is Fate.ADDED}
        assert added | set(heirs) == set(after)


@settings(max_examples=examples(300))
@given(st.data(), graphs, graphs)
def test_the_lines_to_add_explain_all_that_was_not_explained(data: st.DataObject, old: Topology, new: Topology) -> None:
    before = succession(old, new, data.draw(lines(new)), {})
    after = succession(old, new, before.lines, {})
    assert Fate.ORPHANED not in fates(after).values()
    assert [row for row in before.refused if row.outcome is not Fate.ORPHANED] == list(after.refused)
    assert after.lines == before.lines  # and none is asked for twice


@given(st.data(), graphs, graphs)
def test_a_change_that_was_made_is_spent(data: st.DataObject, old: Topology, new: Topology) -> None:
    change = succession(old, new, data.draw(lines(new)), {})
    if not change.refused:
        again = succession(new, new, change.lines, {})
        assert not again.generation
        assert set(fates(again).values()) == {Fate.KEPT}
