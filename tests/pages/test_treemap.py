"""Treemaps: areas are as the sizes, nothing overlaps, nothing leaves the whole."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from abscli.draw.treemap import Rect, treemap
from tests.tiers import examples

WHOLE = Rect(3.0, 5.0, 400.0, 300.0)


@settings(max_examples=examples(100))
@given(st.lists(st.floats(0.01, 1e6), min_size=1, max_size=40))
@example([344708.0, 689442.0, 0.03125])
@example([689447.0625, 0.010000000000000002])
def test_areas_are_as_the_sizes_and_fill_the_whole(sizes: list[float]) -> None:
    places = treemap(sizes, WHOLE)
    area = WHOLE.width * WHOLE.height
    for size, place in zip(sizes, places, strict=True):
        assert place.width * place.height == pytest.approx(area * size / sum(sizes), rel=1e-6, abs=1e-6)
        assert place.x >= WHOLE.x - 1e-6
        assert place.y >= WHOLE.y - 1e-6
        assert place.x + place.width <= WHOLE.x + WHOLE.width + 1e-6
        assert place.y + place.height <= WHOLE.y + WHOLE.height + 1e-6
    for i, one in enumerate(places):
        for other in places[:i]:
            apart_x = one.x + one.width <= other.x + 1e-6 or other.x + other.width <= one.x + 1e-6
            apart_y = one.y + one.height <= other.y + 1e-6 or other.y + other.height <= one.y + 1e-6
            assert apart_x or apart_y


def test_equal_sizes_are_nearly_square() -> None:
    places = treemap([1.0] * 12, WHOLE)
    assert max(max(p.width / p.height, p.height / p.width) for p in places) < 1.5


def test_what_has_no_size_gets_no_area() -> None:
    assert [place.width * place.height for place in treemap([0.0, 2.0, -1.0], WHOLE)] == [0.0, 120_000.0, 0.0]
    assert treemap([], WHOLE) == []
    assert treemap([1.0], Rect(0, 0, 0, 10)) == [Rect(0, 0, 0.0, 0.0)]
