"""Parts of each type: readable alone, the same bytes wherever batches end, and a word where rows do not fit."""

from __future__ import annotations

import gc
import hashlib
import io
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from abscli.engine.errors import JobFailed
from abscli.engine.sinks import part_files
from abscli.engine.sinks.folder_sinks import FolderSink
from abscli.engine.sinks.part_files import PART_FILES, PartFile
from formats.job.model import Kind
from formats.native.sink import ENDINGS, SinkFolder
from tests.support.jobs.small import operator

ROWS = pa.record_batch(
    {
        "n": pa.array([1, None, 3, 4, 5, 6, 7], pa.int64()),
        "word": pa.array(["a", "", None, 'say "so"', "two\nlines", "é,😀", "NULL"]),
        "x": pa.array([0.5, float("nan"), float("inf"), None, -0.0, 1e300, 0.1]),
    }
)


def written(type: str, *batches: pa.RecordBatch) -> tuple[bytes, PartFile]:
    file = io.BytesIO()
    part = PART_FILES[type](file, "(memory)", "out")
    for batch in batches:
        part.write(batch)
    part.finish()
    return file.getvalue(), part


def cut_up(batch: pa.RecordBatch, size: int) -> list[pa.RecordBatch]:
    return [batch.slice(start, size) for start in range(0, batch.num_rows, size)]


def test_every_ending_has_a_type() -> None:
    assert set(ENDINGS) == set(PART_FILES)


@pytest.mark.parametrize("type", ENDINGS)
def test_facts_are_those_of_the_bytes_wherever_batches_end(type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_files, "ROWS", 3)
    whole, _ = written(type, ROWS)
    for size in range(1, ROWS.num_rows):
        data, part = written(type, *cut_up(ROWS, size))
        assert data == whole
        assert (part.rows, part.bytes, part.sha256) == (7, len(data), hashlib.sha256(data).hexdigest())


def test_parquet_comes_back_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_files, "ROWS", 3)
    data, _ = written("parquet", *cut_up(ROWS, 2))
    table = parquet.read_table(io.BytesIO(data))
    assert table.schema == ROWS.schema
    assert repr(table.to_pylist()) == repr(ROWS.to_pylist())
    assert [parquet.ParquetFile(io.BytesIO(data)).metadata.row_group(n).num_rows for n in range(3)] == [3, 3, 1]


def test_csv_tells_null_from_empty_text() -> None:
    data, _ = written("csv", *cut_up(ROWS, 2))
    options = csv.ConvertOptions(
        column_types=ROWS.schema, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    parsing = csv.ParseOptions(newlines_in_values=True)
    table = csv.read_csv(io.BytesIO(data), convert_options=options, parse_options=parsing)
    assert repr(table.to_pylist()) == repr(ROWS.to_pylist())


@pytest.mark.parametrize("type", ["csv", "parquet"])
def test_rows_with_other_columns_are_refused_with_both(type: str) -> None:
    with pytest.raises(JobFailed) as refused:
        written(type, ROWS, pa.record_batch({"n": pa.array(["1"])}))
    assert "columns n (string) after rows with n (int64), word (string), x (double)" in refused.value.message
    assert "sink out" in refused.value.message
    with pytest.raises(JobFailed, match="two columns are called 'n'"):
        written(type, pa.record_batch([pa.array([1]), pa.array([2])], names=["n", "n"]))


def test_what_a_type_cannot_hold_is_refused_by_name() -> None:
    with pytest.raises(JobFailed, match="column parts is nested, which CSV cannot hold"):
        written("csv", pa.record_batch({"parts": pa.array([[1]])}))
    with pytest.raises(JobFailed, match="a Parquet file cannot hold columns gap"):
        written("parquet", pa.record_batch({"gap": pa.array([None], pa.month_day_nano_interval())}))


@pytest.mark.parametrize("type", ENDINGS)
def test_a_sink_that_is_closed_leaves_nothing(type: str, tmp_path: Path) -> None:
    out = operator("out", Kind.SINK, 1, connector={"type": type, "path": "out"})
    sink = FolderSink(out, 0, str(tmp_path), "0" * 32)
    sink.write(ROWS)
    sink.cut(1)
    sink.write(ROWS)
    sink.close()
    del sink
    gc.collect()  # a writer that is collected must not write behind the file's end
    assert SinkFolder(str(tmp_path / "out")).unfinished() == []
    assert list((tmp_path / "out" / ".staged" / ("0" * 32)).iterdir()) == []
