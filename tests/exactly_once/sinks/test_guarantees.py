"""The table of sequences and sinks in the guide is what the tests show."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tests.exactly_once.sinks.guarantees import BEGIN, END, ROOT, Cell, cells_of, drawn, table


def test_the_table_in_the_guide_is_that_of_the_tests() -> None:
    """In a process of its own, which collects all tests of exactly-once delivery."""
    command = [sys.executable, "-m", "tests.exactly_once.sinks.guarantees"]
    done = subprocess.run([*command, "--check"], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"renew it with {' '.join(command)}\n{done.stdout}{done.stderr}"


class Item:
    """A test with one mark."""

    def __init__(self, name: str, *mark: str) -> None:
        self.nodeid = self.name = name
        self._mark = pytest.mark.cell(*mark).mark

    def iter_markers(self, name: str) -> list[Any]:
        return [self._mark]


def test_a_cell_names_each_outcome_once() -> None:
    both = Item("test_b", "A", "refused or exact", "delta", "kafka")
    items: list[Any] = [Item("test_a[delta-1]", "A", "exact"), both]
    cells = cells_of(items)
    assert cells[Cell("A", "delta")] == {"exact": ["test_a[delta-1]"], "refused or exact": ["test_b"]}
    row = next(line for line in table(cells).splitlines() if line.startswith("| A |"))
    assert row.endswith("| – | – | – | – | exact or refused | – | exact or refused | – |")


def test_the_rest_of_the_page_stays_as_it_is() -> None:
    page = f"before\n{BEGIN}old\n{END}\nafter\n"
    new = drawn(page, {})
    assert new.startswith(f"before\n{BEGIN}|")
    assert new.endswith(f"{END}\nafter\n")
    assert drawn(new, {}) == new


@pytest.mark.parametrize("mark", [("Z", "exact", "delta"), ("A", "fine", "delta"), ("A", "exact")])
def test_a_mark_with_an_unknown_sequence_outcome_or_sink_fails(mark: tuple[str, ...]) -> None:
    item: Any = Item("test_a", *mark)
    with pytest.raises(AssertionError):
        cells_of([item])
