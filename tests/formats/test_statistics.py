"""What is told of the sizes of state, whatever system it is of."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from formats.statistics import shown


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("a b", "a b"),
        (7, "7"),
        (b"\x00\xff", "0x00ff"),
        (("user-1", datetime(2026, 1, 1, 1, 20)), "user-1, 2026-01-01T01:20:00"),
        ((8, datetime(2026, 1, 9, 3, 4, 5, 678901, UTC)), "8, 2026-01-09T03:04:05.678901+00:00"),
        ((None, True, 1.5), "null, true, 1.5"),
        ((("a", 1), {"b": [2]}), '["a", 1], {"b": [2]}'),
        ("x" * 81, "x" * 79 + "…"),
    ],
)
def test_a_key_is_told_as_it_stands_in_a_line(key: object, text: str) -> None:
    assert shown(key) == text
