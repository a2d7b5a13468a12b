"""Ranges of subtasks behave as Python's sets do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abscli.planner.ranges import BadRange, Ranges

indices = st.sets(st.integers(0, 40))


@given(indices, indices)
def test_ranges_behave_like_sets_of_integers(a: set[int], b: set[int]) -> None:
    x, y = Ranges.of(a), Ranges.of(b)
    assert set(x | y) == a | b
    assert set(x & y) == a & b
    assert set(x - y) == a - b
    assert x.count == len(a)
    assert bool(x) == bool(a)
    assert {i for i in range(-1, 42) if i in x} == a
    assert list(x) == sorted(a)


@given(indices, indices)
def test_equal_sets_are_equal_however_they_were_made(a: set[int], b: set[int]) -> None:
    whole = Ranges.of(a | b)
    assert Ranges.of(a) | Ranges.of(b) == whole
    assert (whole - Ranges.of(b)) | (whole & Ranges.of(b)) == whole
    assert hash(Ranges.of(a) | Ranges.of(b)) == hash(whole)


@given(indices)
def test_the_text_of_a_set_is_read_back_as_the_same_set(a: set[int]) -> None:
    assert Ranges.parse(str(Ranges.of(a))) == Ranges.of(a)


@given(st.text("0123456789-, ", max_size=8))
def test_a_text_is_either_refused_or_names_what_it_says(text: str) -> None:
    try:
        ranges = Ranges.parse(text)
    except BadRange:
        return
    named: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        named |= set(range(int(first), int(last or first) + 1)) if int(last or first) < 10_000 else set()
    assert not named or set(ranges) >= named


def test_ranges_are_written_as_people_write_them() -> None:
    assert str(Ranges.of([7, 0, 1, 2, 3, 3])) == "0-3,7"
    assert str(Ranges.span(5, 6)) == "5"
    assert str(Ranges()) == ""
    assert str(Ranges.span(3, 3)) == ""


def test_touching_ranges_are_one() -> None:
    assert Ranges.parse("0-1,2-3") == Ranges.span(0, 4)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x", "'x'"),
        ("1,", "''"),
        ("-1", "'-1'"),
        ("1-", "'1-'"),
        ("01", "'01'"),
        ("1-2-3", "'1-2-3'"),
        (" 1", "' 1'"),
        ("1,\n", "'\\\\n'"),
        ("٣", "'٣'"),
        ("3-1", "ends at 1, before its start 3"),
        ("5,2", "2 in '5,2' comes after 5"),
        ("0-4,4", "4 in '0-4,4' comes after 4"),
        ("9" * 5000, "is not a subtask"),
    ],
)
def test_garbage_is_refused_and_named(text: str, said: str) -> None:
    with pytest.raises(BadRange, match=said):
        Ranges.parse(text)


@pytest.mark.parametrize("spans", [((2, 2),), ((3, 1),), ((0, 2), (2, 3)), ((4, 5), (0, 1)), ((-2, 1),)])
def test_spans_that_are_no_set_cannot_be_made(spans: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(ValueError, match="ascend"):
        Ranges(spans)


def test_a_long_set_can_be_said_briefly() -> None:
    assert Ranges.of(range(0, 20, 2)).brief() == "0,2,4,6 and 6 more"
    assert Ranges.of([1, 3]).brief() == "1,3"
