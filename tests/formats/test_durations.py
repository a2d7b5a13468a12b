"""Durations as people type them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.durations import duration_short, seconds_of


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1, "1s"), (3600.0, "1h"), (5400, "1h30m"), (86400, "1d"), (90061, "1d1h1m1s"), (36.5, "36.5s"), (0, "0s")],
)
def test_a_duration_is_told_in_the_largest_units_that_it_has(seconds: float, text: str) -> None:
    assert duration_short(seconds) == text


@given(st.integers(0, 10**9))
def test_what_is_told_can_be_typed(seconds: int) -> None:
    assert seconds_of(duration_short(seconds)) == seconds
