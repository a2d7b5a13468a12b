"""Sources of files of every kind: each row once, in its order, wherever a source is stopped and another goes on."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abscli.engine.errors import JobFailed, UsageError
from abscli.engine.sources.files import line_files, row_files
from abscli.engine.sources.files.csv import CsvForm
from abscli.engine.sources.files.csv_records import CsvRecords
from abscli.engine.sources.making import columns_of, make_source
from formats.errors import Damaged
from formats.job.model import Kind
from formats.view import Position
from tests.support.jobs.small import operator

SCHEMA = pa.schema([pa.field("n", pa.int64()), pa.field("name", pa.string())])
NAMES = ["plain", 'with "quotes"', "two\nlines", "a, b", "", " ", "ü", '"', "\r\n", ",", '","', "'"]


def rows_of(file: int, count: int) -> list[dict[str, Any]]:
    return [{"n": file * 1000 + i, "name": NAMES[(file + i) % len(NAMES)]} for i in range(count)]


def as_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, ["name", "n"] if path.stem == "1" else ["n", "name"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path.write_bytes(text.getvalue().encode())


def as_jsonl(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def as_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), path, row_group_size=3)


def as_arrow(path: Path, rows: list[dict[str, Any]]) -> None:
    """One file in the file format, one in the stream format."""
    new = ipc.new_stream if path.stem == "1" else ipc.new_file
    options = ipc.IpcWriteOptions(compression="lz4" if path.stem == "2" else None)
    with new(path, SCHEMA, options=options) as writer:
        writer.write_table(pa.Table.from_pylist(rows, SCHEMA), max_chunksize=3)


WRITE: dict[str, Callable[[Path, list[dict[str, Any]]], None]] = {
    "csv": as_csv, "jsonl": as_jsonl, "parquet": as_parquet, "arrow": as_arrow,
}  # fmt: skip
TYPED = {"csv": {"schema": {"n": "int64", "name": "string"}}, "jsonl": {"schema": {"n": "int64", "name": "string"}}}
COUNTS = (7, 12, 0, 4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    for kind, write in WRITE.items():
        for file, count in enumerate(COUNTS):
            write(folder / f"{file}.{kind}", rows_of(file, count))
    return folder


def of_kind(kind: str, tasks: int = 1, **options: object) -> Any:
    connector = {"type": kind, "path": f"*.{kind}", **TYPED.get(kind, {}), **options}
    return operator("rows", Kind.SOURCE, tasks, connector=connector)


def everything(source: Any, lines: int | None = None) -> Iterator[pa.RecordBatch]:
    while not source.finished:
        source.stop_at(lines=lines)
        batch = source.read()
        if batch is not None:
            assert lines is None or batch.num_rows <= lines
            yield batch


def rows(batches: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("kind", WRITE)
@given(chunk=st.integers(1, 60), lines=st.lists(st.integers(1, 5), min_size=1, max_size=6), tasks=st.integers(1, 3))
def test_each_row_comes_once_wherever_another_goes_on_whatever_the_batches(
    folder: Path, kind: str, chunk: int, lines: list[int], tasks: int
) -> None:
    """After each read the source is dropped, as by a kill, and another goes on from the positions alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_files, "CHUNK", chunk)
        patch.setattr(row_files, "ROWS", chunk)
        got: list[dict[str, Any]] = []
        for task in range(tasks):
            op, turn = of_kind(kind, tasks), 0
            source = make_source(op, task, str(folder), None, None)
            while not source.finished:
                source.stop_at(lines=lines[turn % len(lines)])
                turn += 1
                batch = source.read()
                got += batch.to_pylist() if batch is not None else []
                positions, kept = source.cut(), source.connector
                source = make_source(op, task, str(folder), positions, kept)
                if batch is None:
                    break
    wanted = [row for file, count in enumerate(COUNTS) for row in rows_of(file, count)]
    assert sorted(got, key=lambda row: row["n"]) == wanted


@pytest.mark.parametrize("kind", WRITE)
def test_tasks_of_another_number_go_on_from_positions_that_were_dealt_out_anew(folder: Path, kind: str) -> None:
    got, positions = [], []
    for task in range(2):
        source = make_source(of_kind(kind, 2), task, str(folder), None, None)
        source.stop_at(lines=3)
        first = source.read()
        assert first is not None
        got += first.to_pylist()
        positions += source.cut()
        kept = source.connector
    positions.sort(key=lambda at: at.split)
    for task in range(3):
        op = of_kind(kind, 3)
        got += rows(everything(make_source(op, task, str(folder), positions[task::3], kept)))
    assert sorted(row["n"] for row in got) == [row["n"] for f, c in enumerate(COUNTS) for row in rows_of(f, c)]


@pytest.mark.parametrize("kind", WRITE)
def test_a_source_stops_at_given_places_of_its_files(folder: Path, kind: str) -> None:
    first = make_source(of_kind(kind), 0, str(folder), None, None)
    stood = []
    for _ in range(4):
        first.stop_at(lines=5)
        first.read()
        stood.append(({at.split: at.offset or 0 for at in first.positions}, sum(at.records or 0 for at in first.cut())))
    again = make_source(of_kind(kind), 0, str(folder), None, None)
    count = 0
    for offsets, records in stood:
        again.stop_at(offsets)
        while (batch := again.read()) is not None:
            count += batch.num_rows
        assert count == records
        assert {at.split: at.offset for at in again.positions} == offsets


@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow"])
def test_columns_are_chosen_and_one_that_is_not_there_is_told_with_those_that_are(folder: Path, kind: str) -> None:
    options = {"columns": ["name"], "schema": None}
    op = of_kind(kind, **options)
    source = make_source(op, 0, str(folder), None, None)
    assert [row["name"] for row in rows(everything(source))] == [
        row["name"] for file, count in enumerate(COUNTS) for row in rows_of(file, count)
    ]
    with pytest.raises(UsageError, match="has no column 'nam'") as refused:
        columns_of(of_kind(kind, columns=["nam"], schema=None), str(folder / f"0.{kind}"))
    assert refused.value.hint == "available columns: n, name"


@given(
    st.lists(st.lists(st.text('"",\n;ab', max_size=4), min_size=2, max_size=2), max_size=8),
    st.sampled_from(",;"),
    st.integers(0, 40),
)
def test_records_of_csv_end_where_arrow_ends_them(table: list[list[str]], delimiter: str, cut: int) -> None:
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter, lineterminator="\n").writerows(table)
    data, records = text.getvalue().encode(), CsvRecords(delimiter)
    ends = [records.end_of(data, count) for count in range(1, len(table) + 1)]
    for end, row in zip(ends, table, strict=True):
        start = ends[ends.index(end) - 1] if ends.index(end) else 0
        parsed = next(csv.reader(io.StringIO(data[start:end].decode(), newline=""), delimiter=delimiter))
        assert parsed == row
    # What a piece ends with is whole: no end is seen before its record is there.
    assert records.last_end(data[:cut]) == max([end for end in ends if end <= cut], default=0)


def test_a_quote_within_a_field_of_csv_that_is_not_quoted_is_a_character() -> None:
    data = b'5" pipe,1\n"6"" pipe\nlong",2\na"b"c,"3"\n'
    records = CsvRecords(",")
    assert [records.end_of(data, count) for count in (1, 2, 3)] == [10, 28, 38]
    assert records.last_end(data[:22]) == 10


def test_what_cannot_be_read_is_told_with_file_record_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('n,name\n1,"x\ny"\n2,z\nthree,w\n')
    op = operator("rows", Kind.SOURCE, 1, connector={"type": "csv", "path": "a.csv", **TYPED["csv"]})
    source = make_source(op, 0, str(tmp_path), None, None)
    with pytest.raises(JobFailed, match=r"rows/0: a\.csv, record 3: 'three,w': .*conversion error to int64") as failed:
        source.read()
    assert "fix that record, or skip such records with on_error: skip" in (failed.value.hint or "")
    (tmp_path / "a.jsonl").write_text('{"n": 1}\n{"n": 2\n')
    op = operator("rows", Kind.SOURCE, 1, connector={"type": "jsonl", "path": "a.jsonl", "schema": {"n": "int64"}})
    with pytest.raises(JobFailed, match=r"rows/0: a\.jsonl, record 2: '\{\"n\": 2': it is not one JSON") as failed:
        make_source(op, 0, str(tmp_path), None, None).read()
    assert "or skip such lines with `on_error: skip`" in (failed.value.hint or "")
    for kind in ("parquet", "arrow"):
        (tmp_path / f"b.{kind}").write_bytes(b"half")
        with pytest.raises(UsageError, match=rf"b\.{kind} cannot be read as {kind}"):
            make_source(of_kind(kind), 0, str(tmp_path), None, None)


@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow"])
def test_a_file_with_other_columns_is_told(tmp_path: Path, kind: str) -> None:
    WRITE[kind](tmp_path / f"0.{kind}", rows_of(0, 2))
    other = {
        "csv": lambda path: path.write_text("n,nom\n1,a\n"),
        "parquet": lambda path: pq.write_table(pa.table({"n": [1], "nom": ["a"]}), path),
        "arrow": lambda path: _write_arrow(path, pa.table({"n": [1], "nom": ["a"]})),
    }
    other[kind](tmp_path / f"1.{kind}")
    with pytest.raises(JobFailed, match=rf"1\.{kind} has no column 'name'; .*n, nom"):
        list(everything(make_source(of_kind(kind), 0, str(tmp_path), None, None)))


def _write_arrow(path: Path, table: pa.Table) -> None:
    with ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)


def test_a_file_with_wider_types_is_cast_where_it_fits(tmp_path: Path) -> None:
    for number, (kind, value) in enumerate([(pa.int32(), 1), (pa.int64(), 2), (pa.int64(), 2**40)]):
        pq.write_table(pa.table({"n": pa.array([value], kind)}), tmp_path / f"{number}.parquet")
    source = make_source(of_kind("parquet"), 0, str(tmp_path), None, None)
    batches = [source.read(), source.read()]
    assert [batch and batch.to_pylist() for batch in batches] == [[{"n": 1}], [{"n": 2}]]
    with pytest.raises(JobFailed, match=r"'n' of .*2\.parquet is of type int64, but of type int32 in the first file"):
        source.read()


@pytest.mark.parametrize("new", [ipc.new_file, ipc.new_stream])
def test_views_of_arrow_become_plain_texts_also_within_other_values(tmp_path: Path, new: Any) -> None:
    view, text = pa.string_view(), pa.string()
    wide = pa.schema([("s", view), ("b", pa.binary_view()), ("l", pa.list_(view)), ("t", pa.struct([("v", view)]))])
    plain = pa.schema([("s", text), ("b", pa.binary()), ("l", pa.list_(text)), ("t", pa.struct([("v", text)]))])
    values = [{"s": word, "b": b"x", "l": [word], "t": {"v": word}} for word in ("short", "longer than twelve bytes")]
    with new(tmp_path / "0.arrow", wide) as writer:
        writer.write_table(pa.Table.from_pylist(values, wide))
    (batch,) = everything(make_source(of_kind("arrow"), 0, str(tmp_path), None, None))
    assert (batch.schema, batch.to_pylist()) == (plain, values)


def test_columns_that_a_store_has_kept_and_that_are_none_are_damage(folder: Path) -> None:
    positions = [Position("0.parquet", 1, 1)]
    for kept in ({"arrow-schema": "!"}, {"arrow-schema": "AAAA"}, {"n": "int64"}):
        with pytest.raises(Damaged, match="operator rows: the columns that the epoch has kept cannot be read"):
            make_source(of_kind("parquet"), 0, str(folder), positions, kept)


def test_a_position_behind_the_end_of_a_file_is_told(folder: Path) -> None:
    source = make_source(of_kind("parquet"), 0, str(folder), [Position("0.parquet", 8, 8)], None)
    with pytest.raises(JobFailed, match=r"0\.parquet has 7 rows, but 8 rows were already read"):
        source.read()


def test_a_csv_whose_lines_end_in_a_carriage_return_alone_is_refused_and_not_taken_for_a_header(tmp_path: Path) -> None:
    (tmp_path / "0.csv").write_bytes(b"n,name\r1,a\r2,b\r")
    source = make_source(of_kind("csv"), 0, str(tmp_path), None, None)
    with pytest.raises(JobFailed, match=r"0\.csv: its lines end with a carriage return without a line feed"):
        rows(everything(source))


def test_a_bad_record_behind_many_is_looked_for_by_halves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "0.csv").write_text("n,name\n" + "".join(f"{n},a\n" for n in range(5000)) + "oops,b\n" + "6,c\n" * 99)
    reads = 0
    plain = CsvForm.read

    def read(*arguments: Any) -> pa.Table:
        nonlocal reads
        reads += 1
        return plain(*arguments)

    monkeypatch.setattr(CsvForm, "read", read)
    source = make_source(of_kind("csv"), 0, str(tmp_path), None, None)
    with pytest.raises(JobFailed, match=r"record 5001: 'oops,b'"):
        rows(everything(source))
    assert reads < 50


def test_an_epoch_keeps_the_types_of_columns_and_the_hint_at_a_bad_record_says_so(tmp_path: Path) -> None:
    (tmp_path / "0.csv").write_text("n,name\n1,a\noops,b\n")
    operator = of_kind("csv", schema={"n": "int", "name": "string"})
    with pytest.raises(JobFailed) as failed:
        rows(everything(make_source(operator, 0, str(tmp_path), None, None)))
    assert failed.value.hint is not None
    assert failed.value.hint.startswith("fix that record, ")  # what to type then is put behind it
    assert "run the job with a new store" in failed.value.hint
    other = of_kind("csv", schema={"n": "string", "name": "string"})
    source = make_source(other, 0, str(tmp_path), None, {"n": "int64", "name": "string"})
    with pytest.raises(JobFailed, match=r"record 2: 'oops,b'"):
        rows(everything(source))
