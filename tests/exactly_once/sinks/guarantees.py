"""The table of outcomes by sequence of events and by sink, in `man/guide/pages/guarantees.md`.

The tests that show a cell carry the mark `cell`. `python -m tests.exactly_once.sinks.guarantees` renews the table;
with a letter and a sink, such as `C delta`, it runs the tests of that cell.
"""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT: Final = Path(__file__).resolve().parents[3]
PAGE: Final = ROOT / "man" / "guide" / "pages" / "guarantees.md"
BEGIN: Final = "<!-- table of sequences: python -m tests.exactly_once.sinks.guarantees -->\n"
END: Final = "<!-- end of the table -->"
TESTS: Final = ("tests/exactly_once",)

SINKS: Final = {
    "jsonl": "files",
    "bucket": "bucket",
    "postgres": "PostgreSQL append",
    "upsert": "PostgreSQL upsert",
    "delta": "Delta Lake",
    "iceberg": "Iceberg",
    "kafka": "Kafka",
    "stdout": "stdout",
}
SEQUENCES: Final = {
    "A": "the job is killed at any step of a delivery, and resumed",
    "B": "it is killed after the manifest and before the delivery; then `gc --keep-last 1` or a rescale",
    "C": "a backup of the target is restored that is older than the kept epochs",
    "D": "the same, while the job runs",
    "E": "the target is rolled back (`RESTORE`, `rollback`), or deleted and created again",
    "F": "the sink gets another target, and later the first one again",
    "G": "the sink gets another id",
    "H": "a plan is executed after the job has completed newer epochs",
    "I": "a backup of the store is restored and takes ownership: rows from before the backup",
    "J": "`--from-epoch` with an epoch before committed rows",
    "K": "`--recovery local` with a function that is not deterministic",
    "L": "the target refuses a row",
    "M": "an object store executes a request, but does not answer or answers with 500",
    "N": "an attempt that was stopped wakes up after another attempt has taken the target",
    "O": "random sequences of runs, kills, backups, roll-backs, rescales and exchanged targets",
}
OUTCOMES: Final = {
    "exact": "each row is in the target once",
    "refused": "the command ends with an error before it changes the target, and names the way out",
    "stops": "the running job ends with an error; resuming is exact or refused",
    "at least once": "no row is lost, rows can be repeated",
}


class Cell(NamedTuple):
    """A cell of the table. sequence: a key of SEQUENCES; sink: a key of SINKS."""

    sequence: str
    sink: str


def cells_of(items: Iterable[pytest.Item]) -> dict[Cell, dict[str, list[str]]]:
    """Return the tests of each cell, by outcome.

    A test whose parameters name sinks shows cells of these only, and of all of them if its mark names none.
    """
    cells: dict[Cell, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for item in items:
        for mark in item.iter_markers("cell"):
            sequence, outcome, *sinks = mark.args
            assert sequence in SEQUENCES, sequence
            assert set(outcome.split(" or ")) <= OUTCOMES.keys(), outcome
            named = SINKS.keys() & set(re.findall(r"[a-z]+", item.name.partition("[")[2]))
            assert named or sinks, f"{item.nodeid} names no sink"
            for sink in sorted(set(sinks or named) & (named or set(sinks))):
                assert sink in SINKS, sink
                cells[Cell(sequence, sink)][outcome].append(item.nodeid)
    return cells


def table(cells: Mapping[Cell, Mapping[str, list[str]]]) -> str:
    """Return the table as Markdown."""
    lines = [f"| | sequence | {' | '.join(SINKS.values())} |", f"|---|---|{'---|' * len(SINKS)}"]
    for letter, text in SEQUENCES.items():
        row = [_text(cells.get(Cell(letter, sink), {})) for sink in SINKS]
        lines.append(f"| {letter} | {text} | {' | '.join(row)} |")
    meanings = "\n".join(f"- *{word}*: {meaning}." for word, meaning in OUTCOMES.items())
    return "\n".join(lines) + f"\n\n{meanings}\n- –: no test, or the sequence cannot happen to this sink.\n"


def _text(outcomes: Mapping[str, list[str]]) -> str:
    words = {word for outcome in outcomes for word in outcome.split(" or ")}
    return " or ".join(word for word in OUTCOMES if word in words) or "–"


def drawn(page: str, cells: Mapping[Cell, Mapping[str, list[str]]]) -> str:
    """Return the page with its table renewed."""
    assert BEGIN in page
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}{table(cells)}{END}{rest.partition(END)[2]}"


class Collector:
    """A plugin of pytest that keeps the tests it has found."""

    def __init__(self) -> None:
        self.items: list[pytest.Item] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep what was collected."""
        self.items += items


def collect() -> dict[Cell, dict[str, list[str]]]:
    """Return the cells of all tests."""
    collector = Collector()
    options = ("--collect-only", "-qqq", "-o", "addopts=--strict-markers", "--tier=all", "-p", "no:cacheprovider")
    with contextlib.redirect_stdout(io.StringIO()) as output:
        code = pytest.main([*options, *(str(ROOT / path) for path in TESTS)], plugins=[collector])
    assert code == 0, output.getvalue()
    return cells_of(collector.items)


def main(words: list[str]) -> int:
    """Renew the table, check it, or run the tests of a cell."""
    cells = collect()
    if len(words) == 2:
        tests = [test for found in cells.get(Cell(*words), {}).values() for test in found]
        if not tests:
            sys.exit(f"no test shows {words[0]} of {words[1]}")
        command = [sys.executable, "-m", "pytest", "-o", "addopts=--strict-markers", "--tier=all", *tests]
        return subprocess.run(command, cwd=ROOT).returncode
    old = PAGE.read_text(encoding="utf-8")
    new = drawn(old, cells)
    if words == ["--check"]:
        return int(old != new)
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
