"""A source that reads a step for each epoch: a cut begins the next, and nothing else does."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from abscli.engine.sources.making import make_source
from abscli.engine.sources.pacing import PacedSource
from formats.job.model import Kind
from tests.support.jobs.small import operator


def test_who_looks_at_positions_does_not_begin_the_next_step(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1\n2\n3\n")
    lines = operator("lines", Kind.SOURCE, 1, connector={"type": "text", "path": "a.txt"})
    source = PacedSource(make_source(lines, 0, str(tmp_path), None, None), 2)

    def rows() -> list[str]:
        batch = source.read()
        assert isinstance(batch, pa.RecordBatch)
        column: list[str] = batch.column("line").to_pylist()
        return column

    assert rows() == ["1", "2"]
    assert [position.records for position in source.positions] == [2]
    assert rows() == []
    assert source.cut() == source.positions
    assert rows() == ["3"]
