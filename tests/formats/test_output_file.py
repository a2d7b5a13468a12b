"""Files that people ask for: outside of what is read, and whole or as they were."""

from __future__ import annotations

import os
import resource
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from formats.errors import FormatError
from formats.output_file import OutputFile, WouldOverwrite, beginning_with, check_outside, temporary_name, write_whole
from formats.query.export import BadExport, rows_file, write_rows

NOTES = beginning_with("notes", b"notes:")


def notes(path: Path, *, force: bool = False) -> OutputFile:
    return OutputFile(str(path), NOTES, force)


@pytest.mark.parametrize("path", ["store/x", "store", "store/../store/x", "link/x", "file"])
def test_a_place_in_what_is_read_is_refused_however_it_is_spelt(path: str, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "link").symlink_to("store")
    (tmp_path / "file").symlink_to("store/x")
    for store in (str(tmp_path / "store"), f"file://{tmp_path}/store", str(tmp_path / "link")):
        with pytest.raises(FormatError, match="which the command reads"):
            check_outside(tmp_path / path, store)


def test_a_place_beside_it_is_none(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    for path in ("store2/x", "store.json", "store/../x"):
        check_outside(tmp_path / path, str(tmp_path / "store"))
    check_outside(tmp_path / "x", "s3://bucket/store")


def test_what_was_there_stays_where_the_new_one_does_not_fit(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_whole(notes(file), b"notes: old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(OSError, match="1,000 bytes were to be written") as error:
            write_whole(notes(file), bytes(1000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert error.value.filename == str(file)
    assert (file.read_bytes(), os.listdir(tmp_path)) == (b"notes: old", ["file"])


def test_a_link_stays_one_and_a_pipe_gets_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    write_whole(notes(tmp_path / "link"), b"new")
    assert ((tmp_path / "link").is_symlink(), (tmp_path / "file").read_bytes()) == (True, b"new")
    os.mkfifo(tmp_path / "pipe")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    write_whole(notes(tmp_path / "pipe"), b"new")
    reader.join(60)
    assert read == [b"new"]


@pytest.mark.parametrize("ending", [".parquet", ".arrow", ".csv"])
def test_rows_of_another_type_are_told_and_leave_no_file(ending: str, tmp_path: Path) -> None:
    """As those of one subtask are, whose serializer is damaged."""
    file = tmp_path / f"rows{ending}"
    batches = [pa.record_batch({"key": [1], "value": [text]}) for text in ("a", b"a")]
    with pytest.raises(BadExport, match="has rows with value of type binary, and others with value of type string"):
        write_rows(str(file), batches[0].schema, batches)
    assert os.listdir(tmp_path) == []
    assert write_rows(str(tmp_path / "rows.jsonl"), batches[0].schema, batches) == 2


def test_intervals_go_into_parquet_as_their_numbers(tmp_path: Path) -> None:
    """Parquet has no type for months, days and nanoseconds side by side: they go into a struct."""
    span = pa.month_day_nano_interval()
    inner = pa.struct([("s", pa.list_(span)), ("n", pa.int8())])
    schema = pa.schema([("k", pa.int32()), ("at", span), ("in", inner)])
    rows = [
        {"k": 1, "at": (1, -2, 3), "in": {"s": [(4, 5, -6), None], "n": 7}},
        {"k": 2, "at": None, "in": None},
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema)
    assert write_rows(str(tmp_path / "x.parquet"), schema, [batch, batch.slice(0, 0), batch.slice(1)]) == 3
    back = pq.read_table(tmp_path / "x.parquet")
    parts = pa.struct([("months", pa.int32()), ("days", pa.int32()), ("nanoseconds", pa.int64())])
    assert back.schema.field("at").type == parts
    assert back.to_pylist()[:2] == [
        {
            "k": 1,
            "at": {"months": 1, "days": -2, "nanoseconds": 3},
            "in": {"s": [{"months": 4, "days": 5, "nanoseconds": -6}, None], "n": 7},
        },
        {"k": 2, "at": None, "in": None},
    ]
    assert back.num_rows == 3


@pytest.mark.parametrize("kind", [pa.month_day_nano_interval(), pa.struct([("a", pa.int32())])])
def test_what_a_format_cannot_hold_is_refused_with_the_formats_that_can(kind: pa.DataType, tmp_path: Path) -> None:
    schema = pa.schema([("x", kind)])
    with pytest.raises(BadExport, match="cannot be written as csv") as error:
        write_rows(str(tmp_path / "x.csv"), schema, [pa.RecordBatch.from_pylist([{"x": None}], schema)])
    assert ".jsonl" in (error.value.hint or "")
    assert os.listdir(tmp_path) == []


def test_a_foreign_file_is_refused_and_unchanged_and_forced_to_be_replaced(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"mine")
    (tmp_path / "link").symlink_to("file")
    for path in (file, tmp_path / "link"):
        with pytest.raises(WouldOverwrite, match="it is no notes that abs wrote"):
            write_whole(notes(path), b"notes: new")
    assert (file.read_bytes(), sorted(os.listdir(tmp_path))) == (b"mine", ["file", "link"])
    write_whole(notes(file, force=True), b"notes: new")
    assert file.read_bytes() == b"notes: new"


def test_an_empty_file_and_an_earlier_output_are_replaced(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for text in (b"notes: 1", b"notes: 2"):
        write_whole(notes(file), text)
        assert file.read_bytes() == text


@pytest.mark.parametrize("links", [True, False])
def test_a_foreign_file_that_appears_while_the_output_is_written_stays(
    links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the check, which found nothing, and the rename; also where the file system has no hard links."""
    file = notes(tmp_path / "file")
    temporary = Path(temporary_name(file.path))
    temporary.write_bytes(b"notes: new")
    link = os.link

    def appears(source: str, target: str) -> None:
        Path(target).write_bytes(b"mine")
        if not links:
            raise PermissionError(1, "no hard links", target)
        link(source, target)

    monkeypatch.setattr(os, "link", appears)
    with pytest.raises(WouldOverwrite):
        file.publish(str(temporary))
    assert (tmp_path / "file").read_bytes() == b"mine"


def test_a_file_system_without_hard_links_gets_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(source: str, target: str) -> None:
        raise PermissionError(1, "no hard links", target)

    monkeypatch.setattr(os, "link", link)
    write_whole(notes(tmp_path / "file"), b"notes: new")
    assert ((tmp_path / "file").read_bytes(), os.listdir(tmp_path)) == (b"notes: new", ["file"])


@pytest.mark.parametrize(
    ("ending", "marked"), [(".parquet", True), (".arrow", True), (".csv", False), (".jsonl", False)]
)
def test_rows_replace_earlier_rows_where_the_format_shows_who_wrote_them(
    ending: str, marked: bool, tmp_path: Path
) -> None:
    path = str(tmp_path / f"rows{ending}")
    batch = pa.record_batch({"key": [1]})
    assert write_rows(path, batch.schema, [batch]) == 1
    if marked:
        assert write_rows(path, batch.schema, [batch, batch]) == 2
    else:
        with pytest.raises(WouldOverwrite, match=f"a file of {ending} rows does not show whether abs wrote it"):
            write_rows(path, batch.schema, [batch, batch])
        assert write_rows(rows_file(path, force=True), batch.schema, [batch, batch]) == 2


def test_rows_do_not_replace_foreign_parquet_and_damaged_files(tmp_path: Path) -> None:
    batch = pa.record_batch({"key": [1]})
    pq.write_table(pa.Table.from_batches([batch]), tmp_path / "foreign.parquet")
    with pa.ipc.new_file(str(tmp_path / "foreign.arrow"), batch.schema) as file:
        file.write_batch(batch)
    for name in ("damaged.parquet", "damaged.arrow"):
        (tmp_path / name).write_bytes(b"PAR1 no rows PAR1")
    for path in sorted(tmp_path.iterdir()):
        before = path.read_bytes()
        with pytest.raises(WouldOverwrite):
            write_rows(str(path), batch.schema, [batch])
        assert path.read_bytes() == before


def test_rows_do_not_take_the_place_of_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rows.csv")
    with pytest.raises(BadExport, match="is not a regular file"):
        write_rows(str(tmp_path / "rows.csv"), pa.schema([]), [])
    assert (tmp_path / "rows.csv").is_fifo()
