"""Positions of sources from one epoch to the next."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from abscli.report.findings import Code
from abscli.stores.native.checks.positions import check_positions, cut_of
from abscli.stores.native.verdict import check_epoch, cut_in
from formats.ids import TaskId
from formats.native.evidence import EpochEvidence
from formats.native.facts import PartFacts
from formats.storage import MemoryStorage
from formats.view import Position
from tests.support.stores.evidence import codes, evidence
from tests.support.stores.small import Build, make_store


def source(*positions: Position) -> tuple[PartFacts, ...]:
    part = make_store(MemoryStorage(), parallelism=1, more=False).parts(1)[0]
    return (replace(part, positions=positions),)


@pytest.mark.parametrize(("before", "after", "regressed"), [
    (Position("a", 5, 1), Position("a", 5, 1), False),
    (Position("a", 5, 1), Position("a", 6, 2), False),
    (Position("a", 5, 1), Position("a", 4, 2), True),
    (Position("a", 5, 2), Position("a", 6, 1), True),
    (Position("a", 5, 1), Position("b", 9, 9), True),
    (Position("a", None, None), Position("a", 1, 1), False),
    (Position("a", 5, 1), Position("a", None, None), False),
])
def test_a_split_neither_goes_back_nor_vanishes(before: Position, after: Position, regressed: bool) -> None:
    found = list(check_positions(cut_of(1, 1, "aligned", source(before)), source(after)))
    assert [f.code for f in found] == ([Code.POSITION_REGRESSED] if regressed else [])


def test_a_new_split_is_no_step_back() -> None:
    assert list(check_positions(cut_of(1, 1, "aligned", source()), source(Position("new", 0, 0)))) == []


def test_positions_are_compared_with_those_of_the_parent_alone(build: Build, whole: EpochEvidence) -> None:
    parent = cut_in(evidence(build, 2))
    assert parent is not None
    for other in (None, parent._replace(epoch=1)):
        assert Code.POSITION_REGRESSED in check_epoch(whole, other).unchecked
    assert Code.POSITION_REGRESSED not in check_epoch(whole, parent).unchecked
    assert Code.POSITION_REGRESSED not in check_epoch(evidence(build, 1)).unchecked


def test_over_a_rescale_a_split_may_be_another_tasks_and_still_neither_goes_back_nor_vanishes(
    build: Build, whole: EpochEvidence
) -> None:
    parent = cut_in(evidence(build, 2))
    assert parent is not None
    one, other = parent.positions.values()
    moved = parent._replace(generation=2, positions={TaskId("lines", 7): one, TaskId("lines", 9): other})
    assert check_epoch(whole, moved).findings == ()
    (split,) = other
    further = {**other, split: replace(other[split], offset=10**6)}
    for wrong in (further, {**one, "in/gone.txt": other[split]}):
        positions = {TaskId("lines", 9): other, TaskId("lines", 7): wrong}
        report = check_epoch(whole, moved._replace(positions=positions))
        assert [f.code for f in report.findings] == [Code.POSITION_REGRESSED]


def test_a_parent_that_is_not_before_its_child_is_a_finding(whole: EpochEvidence) -> None:
    assert whole.manifest is not None
    assert codes(replace(whole, manifest=replace(whole.manifest, parent=4))) == [("position-regressed", None)]
