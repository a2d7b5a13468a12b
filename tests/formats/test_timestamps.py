"""Moments in files that anybody may have written."""

from __future__ import annotations

import pytest

from abscli.text.statistics import Point, _per_day
from formats.timestamps import rfc3339, unix_time


@pytest.mark.parametrize("moment", [None, "", "\x1b[31m", "yesterday", "2026-13-01T00:00:00Z"])
def test_what_is_no_moment_has_no_unix_time(moment: str | None) -> None:
    assert unix_time(moment) is None


def test_a_moment_is_read_as_it_was_written() -> None:
    assert unix_time(rfc3339(1_700_000_000.125)) == 1_700_000_000.125


def test_growth_counts_points_with_a_moment_alone() -> None:
    points = [
        Point(epoch=number, written=written, bytes=size, rows=None)
        for number, written, size in [
            (1, "\x1b[31m", 1), (2, "2026-11-01T00:00:00Z", 100), (3, None, 5), (4, "2026-11-03T00:00:00Z", 300),
        ]
    ]  # fmt: skip
    assert _per_day(points) == 100.0
