"""Text records that are not readable: the same rows and failures in every source, wherever its batches end."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abscli.engine.errors import JobFailed, UsageError
from abscli.engine.failures import Failures
from abscli.engine.sources.contract import Source
from abscli.engine.sources.files import line_files
from abscli.engine.sources.files.csv_records import CsvRecords
from abscli.engine.sources.files.fingerprints import Fingerprint, is_same
from abscli.engine.sources.kafka.records import Record, Rows
from abscli.engine.sources.making import columns_of, make_source
from formats.ids import TaskId
from formats.job.model import Kind
from tests.support.jobs.small import operator

TASK = TaskId("rows", 0)
OPTIONS: dict[str, dict[str, Any]] = {
    "text": {}, "jsonl": {"schema": {"a": "string"}}, "csv": {"schema": {"a": "string", "b": "string"}},
}  # fmt: skip
COLUMN = {"text": "line", "jsonl": "a", "csv": "a"}
GOOD: dict[str, dict[bytes, str | None]] = {
    "text": {b"one": "one", "zwölf".encode(): "zwölf", b'"': '"', b"null": "null", b"": "", b"\xef\xbb\xbf": "\ufeff"},
    "jsonl": {
        b'{"a": "x"}': "x", b' {"a": "y"} \r': "y", b"{}": None, b'{"b": {"c": [1, {}]}, "a": "z"}': "z",
        '{"a": "ü\\n}"}'.encode(): "ü\n}",
    },
    "csv": {
        b"1,2": "1", b'"two\nlines",3': "two\nlines", b'5" pipe,"x ""y"""': '5" pipe', '"ü",4\r'.encode(): "ü",
        b'x","z"': 'x"',
    },
}  # fmt: skip
"""Records by kind, each with the value of its first column."""
BAD: dict[str, list[bytes]] = {
    "text": [b"\xff\xfe", b"caf\xe9", b"x\x8b\x08", b"\xed\xa0\x80", b"a\xc3"],
    "jsonl": [
        b"null", b"1", b'"text"', b"[]", b"{", b"}", b'{"a": "x"}{"a": "y"}', b'{"a": "x"} {"a": "y"}', b'{"a": ',
        b'{"a": "\xff"}', b'{"\xff": 1}', b'{"a": "\\ud800"}', b'{"a": 1}', b'{"a": "x"}}', b"{}]", b'{"a": {}',
        b'{"a": "x", "a": "y"}', b'{"a": "x"}\x00', b'{"a": "}',
    ],
    "csv": [b"1", b"1,2,3", b'1,"2" 3', b"1,\xff"],
}  # fmt: skip


def read(kind: str, folder: Path, chunk: int) -> tuple[list[str | None], list[tuple[str, int]]]:
    """Return the first column of all rows, and the failures: each record with its offset."""
    letters = Letters()
    failures = Failures(TASK, letters)
    op = operator("rows", Kind.SOURCE, 1, connector={"type": kind, "path": f"in.{kind}", **OPTIONS[kind]})
    with pytest.MonkeyPatch.context() as patch, failures.during(1):
        patch.setattr(line_files, "CHUNK", chunk)
        source = make_source(op, 0, str(folder), None, None, failures=failures)
        rows: list[str | None] = []
        while not source.finished:
            batch = source.read()
            rows += batch.column(COLUMN[kind]).to_pylist() if batch is not None else []
    return rows, letters.records


def read_all(source: Source) -> None:
    while not source.finished:
        source.read()


class Letters:
    def __init__(self) -> None:
        self.records: list[tuple[str, int]] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self.records += [(row["record"], row["offset"]) for row in batch.to_pylist()]


@pytest.mark.parametrize("kind", OPTIONS)
@given(data=st.data(), chunk=st.sampled_from([1, 5, 30, 1 << 20]))
def test_rows_and_failures_are_the_same_whatever_the_batches(
    tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject, chunk: int
) -> None:
    folder = tmp_path_factory.mktemp("in")
    records = data.draw(st.lists(st.sampled_from([*GOOD[kind], *BAD[kind]]), max_size=12))
    head, offset = b"a,b\n" if kind == "csv" else b"", 0
    (folder / f"in.{kind}").write_bytes(head + b"".join(record + b"\n" for record in records))
    rows, failures, offset = [], [], len(head)
    for record in records:
        if record in GOOD[kind]:
            value = GOOD[kind][record]
            is_first = offset == 0 and value is not None
            rows.append(value.removeprefix("\ufeff") if is_first and value is not None else value)
        else:
            failures.append((record.decode("utf-8", "replace").rstrip("\r\n"), offset))
        offset += len(record) + 1
    assert read(kind, folder, chunk) == (rows, failures)


@given(records=st.lists(st.sampled_from([*GOOD["jsonl"], *BAD["jsonl"]]), max_size=12))
def test_values_of_kafka_are_accepted_as_lines_are(records: list[bytes]) -> None:
    letters = Letters()
    failures = Failures(TASK, letters)
    op = operator("rows", Kind.SOURCE, 1, connector={"type": "kafka", "topic": "t", "schema": {"a": "string"}})
    with failures.during(1):
        values = [Record(at, None, record, None) for at, record in enumerate(records)]
        rows = Rows(op, None, TASK, failures).of("t-0", values)
    assert rows.column("a").to_pylist() == [GOOD["jsonl"][one] for one in records if one in GOOD["jsonl"]]
    assert [at for _, at in letters.records] == [at for at, one in enumerate(records) if one in BAD["jsonl"]]


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("jsonl", b'{"a": "x"}\nnull\n', r"in\.jsonl, record 2: 'null': it is not one JSON object on one line"),
        ("jsonl", b'{"a": "x"}\n{"a": "y"}{}\n', r"record 2: .*: it is more than one JSON object"),
        ("jsonl", b'{"a":\n"x"}\n', r"record 1: '\{\"a\":': it is not one JSON object on one line"),
        ("jsonl", b'{"a": "\xff"}\n', r"record 1: .*: byte 0xff at position 7 is not UTF-8"),
        ("text", b"one\ncaf\xe9\n", r"in\.text, record 2: 'caf\ufffd': byte 0xe9 at position 3 is not UTF-8"),
        ("csv", b'a,b\n1,"x\n2,y\n', r"in\.csv, record 1: '1,\"x': a quoted field is not closed"),
        ("csv", b'a,b\n1,x\n2,"y"z\n', r"record 2: '2,\"y\"z': .* text follows its closing quote"),
        ("csv", b'a,"b\n1,x\n', r"in\.csv: its first line cannot be read: a quoted name is not closed"),
        ("csv", b"a,b,a\n1,2,3\n", r"in\.csv has 2 columns named 'a'"),
    ],
)
def test_the_first_such_record_ends_the_run(tmp_path: Path, kind: str, text: bytes, message: str) -> None:
    (tmp_path / f"in.{kind}").write_bytes(text)
    op = operator("rows", Kind.SOURCE, 1, connector={"type": kind, "path": f"in.{kind}", **OPTIONS[kind]})
    with pytest.raises(JobFailed, match=message):
        read_all(make_source(op, 0, str(tmp_path), None, None))


@pytest.mark.parametrize("kind", OPTIONS)
def test_a_byte_order_mark_is_no_part_of_the_first_record(tmp_path: Path, kind: str) -> None:
    text = {"text": b"one\ntwo\n", "jsonl": b'{"a": "one"}\n{"a": "two"}\n', "csv": b"a,b\none,1\ntwo,2\n"}[kind]
    (tmp_path / f"in.{kind}").write_bytes(b"\xef\xbb\xbf" + text)
    op = operator("rows", Kind.SOURCE, 1, connector={"type": kind, "path": f"in.{kind}", **OPTIONS[kind]})
    source = make_source(op, 0, str(tmp_path), None, None)
    source.stop_at(lines=1)
    first = source.read()
    later = make_source(op, 0, str(tmp_path), source.cut(), source.connector)
    second = later.read()
    assert first is not None
    assert second is not None
    assert [one.column(COLUMN[kind]).to_pylist() for one in (first, second)] == [["one"], ["two"]]
    assert later.positions[0].offset == 3 + len(text)


def test_a_quote_that_is_never_closed_costs_one_line(tmp_path: Path) -> None:
    lines = [f"{n},x" for n in range(1000)]
    (tmp_path / "in.csv").write_text("\n".join(["a,b", *lines[:500], '"stray,x', *lines[500:]]) + "\n")
    offset = 4 + sum(map(len, lines[:500])) + 500
    assert read("csv", tmp_path, 100) == ([str(n) for n in range(1000)], [('"stray,x', offset)])


def test_each_line_is_looked_at_twice_however_many_quotes_are_not_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    plain = CsvRecords._end

    def end(self: CsvRecords, line: bytes, *, within: bool) -> Any:
        nonlocal looks
        looks += 1
        return plain(self, line, within=within)

    monkeypatch.setattr(CsvRecords, "_end", end)
    data = b'x","z\n' * 1000
    assert len(CsvRecords(",").all_ends(data)) == 1000
    assert looks == 2000


def test_columns_are_inferred_from_objects_alone(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(b'null\n[]\n{"a": 1}\n\xff\n{"a": 2, "b": "x"}\n')
    op = operator("rows", Kind.SOURCE, 1, connector={"type": "jsonl", "path": "in.jsonl"})
    assert columns_of(op, str(tmp_path / "in.jsonl")) == pa.schema([("a", pa.int64()), ("b", pa.string())])
    (tmp_path / "in.jsonl").write_bytes(b'{\n"a": 1\n}\n')
    with pytest.raises(UsageError, match=r"cannot infer the columns: line 1 is not one JSON object: '\{'"):
        columns_of(op, str(tmp_path / "in.jsonl"))


def test_two_columns_of_one_name_are_refused_unless_others_are_read(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("a,b,a\n1,2,3\n")
    op = operator("rows", Kind.SOURCE, 1, connector={"type": "csv", "path": "in.csv"})
    with pytest.raises(UsageError, match=r"has 2 columns named 'a'") as refused:
        columns_of(op, str(tmp_path / "in.csv"))
    assert refused.value.hint == "rename one of them in the first line, or read other columns with columns: [...]"
    op = operator("rows", Kind.SOURCE, 1, connector={"type": "csv", "path": "in.csv", "columns": ["b"]})
    batch = make_source(op, 0, str(tmp_path), None, None).read()
    assert batch is not None
    assert batch.to_pylist() == [{"b": 2}]


def zstd(data: bytes) -> bytes:
    packed: bytes = pa.Codec("zstd").compress(data, asbytes=True)
    return packed


PACK: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": zstd}


@pytest.mark.parametrize("pack", PACK)
@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.parametrize("chunk", [10, 1 << 20])
def test_a_compressed_file_is_read_on_wherever_a_source_stops(
    tmp_path: Path, kind: str, pack: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_files, "CHUNK", chunk)
    lines = {"text": b"%d\n", "jsonl": b'{"a": "%d"}\n', "csv": b"%d,x\n"}[kind]
    text = (b"a,b\n" if kind == "csv" else b"") + b"".join(lines % n for n in range(50))
    (tmp_path / "in.packed").write_bytes(PACK[pack](text[:100]) + PACK[pack](text[100:]))
    op = operator("rows", Kind.SOURCE, 1, connector={"type": kind, "path": "in.packed", **OPTIONS[kind]})
    source, rows = make_source(op, 0, str(tmp_path), None, None), []
    while not source.finished:
        source.stop_at(lines=7)
        batch = source.read()
        rows += batch.column(COLUMN[kind]).to_pylist() if batch is not None else []
        source = make_source(op, 0, str(tmp_path), source.cut(), source.connector)
        if batch is None:
            break
    assert rows == [str(n) for n in range(50)]
    assert source.positions[0].offset == len(text)


@pytest.mark.parametrize("pack", PACK)
def test_a_compressed_file_that_ends_early_is_refused(tmp_path: Path, pack: str) -> None:
    text = b"".join(b"%d\n" % n for n in range(100_000))
    (tmp_path / "in.packed").write_bytes(PACK[pack](text)[:-9])
    op = operator("rows", Kind.SOURCE, 1, connector={"type": "text", "path": "in.packed"})
    with pytest.raises(JobFailed, match=r"cannot read .*in\.packed: Truncated compressed stream"):
        read_all(make_source(op, 0, str(tmp_path), None, None))


def test_a_compressed_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "in.packed").write_bytes(gzip.compress(b"one\n"))
    op = operator("rows", Kind.SOURCE, 1, connector={"type": "text", "path": "in.packed", "follow": True})
    with pytest.raises(JobFailed, match=r"in\.packed is compressed"):
        make_source(op, 0, str(tmp_path), None, None).read()


def test_a_compressed_file_that_was_replaced_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "in.packed"
    path.write_bytes(gzip.compress(b"one\ntwo\n" * 100))
    op = operator("rows", Kind.SOURCE, 1, connector={"type": "text", "path": "in.packed"})
    source = make_source(op, 0, str(tmp_path), None, None)
    source.stop_at(lines=3)
    source.read()
    (position,) = source.cut()
    fingerprint = Fingerprint.parse(position.fingerprint or "")
    assert fingerprint is not None
    assert fingerprint.is_unpacked
    assert is_same(str(path), fingerprint, position.offset or 0)
    path.write_bytes(gzip.compress(b"one\nTWO\n" * 100))
    assert not is_same(str(path), fingerprint, position.offset or 0)
