"""Numbered files of which the highest counts, where lists lag."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from formats.native.numbers import KEPT, highest, is_highest, obsolete


@given(st.integers(0, 60), st.data())
def test_the_highest_is_found_from_an_older_list(newest: int, data: st.DataObject) -> None:
    there, history = set[int](), [frozenset[int]()]
    for number in range(1, newest + 1):
        there.add(number)
        there -= set(obsolete(there, number))
        history.append(frozenset(there))
    lag = data.draw(st.integers(0, KEPT))
    listed = history[max(0, newest - lag)]
    assert highest(listed, there.__contains__) == newest
    # A holder of any number knows from names alone whether it was followed, also where its own has been deleted.
    for number in range(1, newest + 2):
        assert is_highest(number, there.__contains__) == (number == newest)


def test_old_numbers_go_in_ascending_order() -> None:
    assert obsolete([5, 1, 3, 20], 20) == [1, 3, 5]
    assert obsolete(range(1, 12), 11) == []
