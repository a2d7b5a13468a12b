"""Sinks of CSV and of Parquet keep what those of JSON lines keep: every row once, through kills, going back, damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.jobs.lines import Lines, killed, restore_to

TYPES = ["csv", "parquet"]


@pytest.fixture(params=TYPES)
def typed(lines: Lines, request: pytest.FixtureRequest) -> Lines:
    lines.type = request.param
    return lines


@pytest.mark.cell("A", "exact", "jsonl")
@pytest.mark.parametrize("where", ["manifest", "reveal"])
def test_killed_around_a_manifest_it_goes_on(typed: Lines, where: str) -> None:
    killed(typed, where, 3)
    typed.resume()
    assert typed.wrong() == {}
    assert {Path(name).suffix for name in typed.sink.visible()} == {f".{typed.type}"}


@pytest.mark.cell("J", "exact", "jsonl")
def test_going_back_sets_aside_and_forth_brings_in(typed: Lines) -> None:
    typed.run()
    complete = typed.complete()
    typed.run(from_epoch=complete[2])
    assert typed.wrong() == {}
    typed.run(from_epoch=complete[-1])
    assert typed.wrong() == {}
    restore_to(typed, complete[3], "b")
    typed.resume("b")
    assert typed.wrong() == {}


def test_a_damaged_part_is_named(typed: Lines) -> None:
    typed.run()
    name = min(typed.sink.visible())
    path = typed.folder / "out" / name
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    report = typed.validated()
    assert [(f.code, f.path) for row in report.epochs for f in row.findings] == [("sink-part-missing", str(path))]
