"""Sources that stop where they are told: at offsets of their splits, or after so many lines."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abscli.engine.sources.contract import Source
from abscli.engine.sources.files import line_files
from abscli.engine.sources.making import make_source
from formats.job.model import Kind
from tests.support.jobs.small import operator

LINES = {"a.txt": ["1", "22", "", "4444"], "b.txt": ["five", "6"]}


def offsets(split: str) -> list[int]:
    """Where its lines begin, and where the last ends."""
    return [0, *itertools.accumulate(len(line) + 1 for line in LINES[split])]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stops")
    for name, lines in LINES.items():
        (folder / name).write_text("".join(line + "\n" for line in lines))
    return folder


def text(folder: Path) -> Source:
    return make_source(operator("lines", Kind.SOURCE, 1, connector={"type": "text", "path": "*.txt"}), 0, str(folder),
                       None, None)  # fmt: skip


def read(source: Source) -> list[str]:
    lines: list[str] = []
    while (rows := source.read()) is not None:
        lines += rows.column("line").to_pylist()
    return lines


def test_a_source_goes_on_behind_where_it_was_stopped(folder: Path) -> None:
    source = text(folder)
    source.stop_at({"a.txt": offsets("a.txt")[1], "b.txt": offsets("b.txt")[1]})
    assert read(source) == ["1", "five"]
    source.stop_at({"a.txt": offsets("a.txt")[3], "b.txt": offsets("b.txt")[1]})
    assert read(source) == ["22", ""]
    source.stop_at()
    assert read(source) == ["4444", "6"]
    assert source.finished


def test_a_split_that_is_not_named_is_not_read(folder: Path) -> None:
    source = text(folder)
    source.stop_at({"b.txt": offsets("b.txt")[2]})
    assert read(source) == LINES["b.txt"]
    assert {position.split: position.records for position in source.positions} == {"a.txt": 0, "b.txt": 2}


@given(
    stops=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), max_size=4),
    chunk=st.integers(1, 12),
    lines=st.integers(1, 3),
)
def test_every_line_comes_once_wherever_a_source_is_stopped(
    folder: Path, stops: list[tuple[int, int]], chunk: int, lines: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_files, "CHUNK", chunk)
        source = text(folder)
        rows: list[str] = []
        for a, b in itertools.accumulate(stops, lambda one, two: (max(one[0], two[0]), max(one[1], two[1]))):
            source.stop_at({"a.txt": offsets("a.txt")[a], "b.txt": offsets("b.txt")[b]})
            rows += read(source)
            assert len(rows) == a + b
        while not source.finished:
            source.stop_at(lines=lines)
            more = read(source)
            assert len(more) <= lines
            rows += more
        assert sorted(rows) == sorted(LINES["a.txt"] + LINES["b.txt"])


def test_rows_of_json_stop_there_too(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"n":1}\n{"n":2}\n{"n":3}\n')
    connector = {"type": "jsonl", "path": "rows.jsonl", "schema": {"n": "int64"}}
    source = make_source(operator("rows", Kind.SOURCE, 1, connector=connector), 0, str(tmp_path), None, None)
    source.stop_at(lines=2)
    batch = source.read()
    assert isinstance(batch, pa.RecordBatch)
    assert batch.to_pydict() == {"n": [1, 2]}
    source.stop_at({"rows.jsonl": 24})
    batch = source.read()
    assert batch is not None
    assert batch.to_pydict() == {"n": [3]}
