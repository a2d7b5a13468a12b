"""Records on which an operator fails are left out, counted, and written once each; all others count as ever."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abscli import Job, col, dead_letter, try_job
from abscli.engine.errors import JobFailed, UsageError
from abscli.engine.failures import Failures
from abscli.engine.generations.rescaling import Rescale, publish
from abscli.engine.job import Outcome, run_job
from abscli.engine.operators.making import make_operator
from abscli.engine.operators.row_wise import RowWise
from abscli.engine.runnable import check_runnable, graph_faults
from abscli.engine.sources.files import line_files
from abscli.planner.rescale import with_parallelism
from formats.ids import TaskId
from formats.job.file import BadFile, parse_topology, parse_topology_bytes
from formats.job.model import Aggregate, Aggregation, DeadLetter, Emit, Kind, Operator, Topology
from formats.storage import LocalStorage
from tests.support.commands import result_of, run_command
from tests.support.jobs.inline import STORE, stop_after, store
from tests.support.jobs.small import inline

FUNCTIONS = """
import pyarrow as pa

def halve(batch):
    values = batch.column("v").to_pylist()
    return pa.record_batch([batch.column("id"), pa.array([100 // v for v in values], pa.int64())], names=["id", "q"])
"""
JOB = """version: 1
job: poison
operators:
  rows: {source: {type: jsonl, path: in/*.jsonl, schema: {id: int64, v: int64}}, on_error: {dead_letter: unread}}
  halve: {from: rows, map: "halving:halve", on_error: ON_ERROR}
  out: {from: halve, sink: {type: jsonl, path: out}}
"""
IS_ZERO, IS_TEXT = 7, 11
"""Of these ids one in so many has a zero, or is no row of these columns."""


def write(folder: Path, rows: int = 300, on_error: str = "{dead_letter: dead}") -> Topology:
    (folder / "halving.py").write_text(FUNCTIONS)
    (folder / "in").mkdir()
    lines = [
        f'{{"id": "no number {id}"}}' if not id % IS_TEXT else json.dumps({"id": id, "v": 0 if not id % IS_ZERO else 3})
        for id in range(1, rows + 1)
    ]
    (folder / "in" / "a.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "job.yaml").write_text(JOB.replace("ON_ERROR", on_error))
    return parse_topology(folder / "job.yaml")


def shown(folder: Path) -> list[dict[str, Any]]:
    lines = [line for part in sorted(folder.glob("part-*.jsonl")) for line in part.read_text().splitlines()]
    return [json.loads(line) for line in lines]


def check(folder: Path, rows: int = 300) -> None:
    """Every row is where it belongs, once."""
    ids = range(1, rows + 1)
    unread = [id for id in ids if not id % IS_TEXT]
    zero = [id for id in ids if id % IS_TEXT and not id % IS_ZERO]
    good = [id for id in ids if id % IS_TEXT and id % IS_ZERO]
    assert sorted(row["id"] for row in shown(folder / "out")) == good
    letters = shown(folder / "dead")
    assert sorted(json.loads(row["record"])["id"] for row in letters) == zero
    assert {(row["operator"], row["task"], row["error"]) for row in letters} == {
        ("halve", "halve/0", "ZeroDivisionError")
    }
    assert all("halving.py, line 6" in row["message"] for row in letters)
    data = (folder / "in" / "a.jsonl").read_bytes()
    for row, id in zip(sorted(shown(folder / "unread"), key=lambda row: int(row["offset"])), unread, strict=True):
        assert json.loads(row["record"]) == {"id": f"no number {id}"}
        assert data[row["offset"] :].startswith(row["record"].encode())
        assert (row["origin"], row["task"]) == ("in/a.jsonl", "rows/0")


# -- by halves ---------------------------------------------------------------------------------------------------


class Kept:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.to_pylist()


def refuse_odd(batch: pa.RecordBatch) -> pa.RecordBatch:
    for value in batch.column("v").to_pylist():
        if value % 2:
            raise ValueError(f"{value} is odd \udc80")
    return batch


@given(st.lists(st.integers(0, 5), min_size=1, max_size=60), st.lists(st.integers(1, 20), max_size=20))
def test_the_records_that_fail_are_the_same_however_they_come(values: list[int], sizes: list[int]) -> None:
    kept = Kept()
    failures = Failures(TaskId("odd", 0), kept, count=4)
    operator = RowWise(Operator("odd", Kind.MAP, 1, 8), TaskId("odd", 0), refuse_odd, failures)
    batch, outputs, first = pa.record_batch({"v": pa.array(values, pa.int64())}), list[int](), 0
    for size in [*sizes, len(values)]:
        with failures.during(3, "rows/0->odd/0"):
            piece = operator.process(batch.slice(first, size), first + 1)
        outputs += piece.column("v").to_pylist() if piece is not None else []
        first += min(size, len(values) - first)
    assert outputs == [value for value in values if not value % 2]
    odd = [number for number, value in enumerate(values, 1) if value % 2]
    assert [row["number"] for row in kept.rows] == odd
    assert failures.count == 4 + len(odd)
    assert {(row["origin"], row["epoch"]) for row in kept.rows} <= {("rows/0->odd/0", 3)}


def test_what_is_no_fault_of_a_record_ends_the_run(tmp_path: Path) -> None:
    """A function that returns something else, and one that leaves the process."""
    functions = "import sys\ndef short(batch): return batch.slice(1)\ndef leave(batch): sys.exit()\n"
    (tmp_path / "other.py").write_text(functions)
    write(tmp_path)
    for name, message in [("short", "returns one a row"), ("leave", "SystemExit")]:
        text = (tmp_path / "job.yaml").read_text().replace("halving:halve", f"other:{name}")
        (tmp_path / "other.yaml").write_text(text)
        with pytest.raises(JobFailed, match=message):
            run_job(parse_topology(tmp_path / "other.yaml"), str(tmp_path / name), inline(tmp_path))


# -- whole jobs --------------------------------------------------------------------------------------------------


def run(topology: Topology, folder: Path, callbacks: dict[str, Any] | None = None, **more: object) -> Outcome:
    return run_job(topology, str(folder / STORE), inline(folder, **more), **(callbacks or {}))


@pytest.mark.parametrize("chunk", [64, 1 << 20])
def test_each_row_is_shown_or_is_a_dead_letter(tmp_path: Path, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_files, "CHUNK", chunk)
    outcome = run(write(tmp_path), tmp_path)
    check(tmp_path)
    assert outcome.skipped == {"rows": 27, "halve": 39}
    assert outcome.records == 300 - 27


def test_skipped_records_are_counted_over_a_stop_and_by_the_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(line_files, "CHUNK", 64)
    topology = write(tmp_path, on_error="skip")
    callbacks, _ = stop_after(2)
    first = run(topology, tmp_path, callbacks, interval=0.005, pace=20)
    assert not first.finished
    second = run(topology, tmp_path, from_epoch=first.epoch, keep=None)
    assert Counter(first.skipped) + Counter(second.skipped) == {"rows": 27, "halve": 39}
    report = result_of("validate", capsys, str(tmp_path / STORE))
    assert len(report["epochs"]) >= 3
    assert {(epoch["verdict"], len(epoch["findings"])) for epoch in report["epochs"]} == {("complete", 0)}
    assert not (tmp_path / "dead").exists()
    inspected = result_of("inspect", capsys, f"{tmp_path / STORE}@{second.epoch}")
    skipped = {op["id"]: sum(task["skipped"] for task in op["tasks"]) for op in inspected["operators"]}
    assert skipped == {"rows": 27, "halve": 39, "out": 0}
    _, text, _ = run_command("inspect", capsys, f"{tmp_path / STORE}@{second.epoch}")
    assert "Records skipped since the job began: rows 27, halve 39" in text


def test_the_run_says_how_many_were_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path)
    options = ("--store", tmp_path / STORE, "--engine", "inline")
    code, out, err = run_command("run", capsys, tmp_path / "job.yaml", *options)
    assert (code, "; 27 records skipped by rows, 39 by halve" in out) == (0, True), out + err
    check(tmp_path)
    assert run_command("validate", capsys, tmp_path / STORE)[0] == 0


def test_csv_that_does_not_fit_its_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_files, "CHUNK", 64)
    rows = [f'{id},"a\n{id}"' if id % 5 else f'{id}x,"b\n"' for id in range(1, 101)]
    (tmp_path / "rows.csv").write_text("id,text\n" + "\n".join(rows) + "\n")
    job = Job("csv")
    source = job.csv("rows.csv", schema={"id": "int64", "text": "string"}, on_error=dead_letter("dead"), id="rows")
    source.to_jsonl("out")
    run(job.topology, tmp_path)
    assert [row["id"] for row in shown(tmp_path / "out")] == [id for id in range(1, 101) if id % 5]
    data = (tmp_path / "rows.csv").read_bytes()
    letters = shown(tmp_path / "dead")
    assert [row["record"] for row in letters] == [f'{id}x,"b\n"' for id in range(5, 101, 5)]
    assert all(data[row["offset"] :].startswith(row["record"].encode()) for row in letters)


def test_a_job_that_is_killed_writes_each_dead_letter_once(tmp_path: Path) -> None:
    """SIGKILL after every epoch, and other batches: `try_job` compares dead letters as it does sinks."""
    write(tmp_path)
    rows = [{"id": id, "v": 0 if id % 7 == 0 else 3} if id % 11 else {"id": "text", "v": id} for id in range(1, 61)]
    trial = try_job(tmp_path / "job.yaml", {"rows": rows}, kills=3)
    assert sorted(json.loads(row["record"])["id"] for row in trial["halve"]) == [7, 14, 21, 28, 35, 42, 49, 56]
    assert [json.loads(row["record"])["v"] for row in trial["rows"]] == [11, 22, 33, 44, 55]
    assert len(trial["out"]) == 60 - 8 - 5


def test_a_rescaled_job_goes_on_counting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_files, "CHUNK", 64)
    topology = write(tmp_path)
    callbacks, _ = stop_after(2)
    first = run(topology, tmp_path, callbacks, interval=0.005, pace=40)
    wide = with_parallelism(topology, {"rows": 2, "halve": 2, "out": 2})
    epoch = publish(LocalStorage(tmp_path / STORE), Rescale(first.epoch, wide, str(tmp_path)))
    second = run(wide, tmp_path, from_epoch=epoch)
    assert Counter(first.skipped) + Counter(second.skipped) == {"rows": 27, "halve": 39}
    total = Counter[str]()
    for part in store(tmp_path).parts(second.epoch):
        total[part.operator] += part.skipped
    assert +total == {"rows": 27, "halve": 39}
    assert len(shown(tmp_path / "dead")) == 39


# -- sums that overflow -----------------------------------------------------------------------------------------

BIG = 2**62


def summed(
    rows: list[tuple[str, int, int]], emit: str, sizes: list[int]
) -> tuple[dict[str, tuple[int, ...]], list[int]]:
    """By key the sums of both columns and the count, and the numbers of rows that failed."""
    sums = [Aggregate(name, Aggregation.SUM, name) for name in ("v", "w")]
    aggregates = (*sums, Aggregate("n", Aggregation.COUNT, "*"))
    operator = Operator("sums", Kind.REDUCE, 1, 8, key=("k",), aggregates=aggregates, emit=Emit(emit), on_error="skip")
    kept = Kept()
    failures = Failures(TaskId("sums", 0), kept)
    reduce = make_operator(operator, TaskId("sums", 0), ".", failures=failures)
    schema = pa.schema([("k", pa.string()), ("v", pa.int64()), ("w", pa.int64())])
    batch = pa.RecordBatch.from_pylist([dict(zip("kvw", row, strict=True)) for row in rows], schema)
    first, last = 0, dict[str, tuple[int, ...]]()
    for size in [*sizes, len(rows)]:
        with failures.during(1):
            outputs = [reduce.process(batch.slice(first, size), first + 1)] if first < len(rows) else []
        first += min(size, len(rows) - first)
        for output in [*outputs, *reduce.flush(None)]:
            last |= {row["k"]: (row["v"], row["w"], row["n"]) for row in (output.to_pylist() if output else [])}
    return last, [int(row["number"]) for row in kept.rows]


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from([BIG, -BIG, 1]), st.sampled_from([BIG, 3])),
        min_size=1, max_size=30,
    ),
    st.sampled_from(["epoch", "record", "batch"]),
    st.lists(st.integers(1, 9), max_size=9),
)  # fmt: skip
def test_rows_with_which_a_sum_would_overflow_are_in_none_of_the_sums(
    rows: list[tuple[str, int, int]], emit: str, sizes: list[int]
) -> None:
    sums: dict[str, tuple[int, ...]] = {}
    failing = []
    for number, (key, v, w) in enumerate(rows, 1):
        a, b, n = sums.get(key, (0, 0, 0))
        if all(-(2**63) <= total < 2**63 for total in (a + v, b + w)):
            sums[key] = a + v, b + w, n + 1
        else:
            failing.append(number)
    assert summed(rows, emit, sizes) == (sums, failing)


def test_a_sum_that_overflows_in_a_job(tmp_path: Path) -> None:
    rows = [{"k": "a", "v": BIG, "note": f"row {i}"} for i in range(1, 5)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    job = Job("sums")
    sums = job.jsonl("rows.jsonl").group_by("k").agg(v=col("v").sum(), on_error=dead_letter("dead"), id="sums")
    sums.to_jsonl("out", id="out")
    assert run(job.topology, tmp_path).skipped == {"sums": 3}
    assert shown(tmp_path / "out") == [{"k": "a", "v": BIG}]
    letters = shown(tmp_path / "dead")
    assert [json.loads(row["record"])["note"] for row in letters] == ["row 2", "row 3", "row 4"]
    assert {row["error"] for row in letters} == {"Overflow"}


# -- what a job file says ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{from: s, map: identity, on_error: stop}", "on_error must be one of fail, skip"),
        ("{from: s, map: identity, on_error: {dead_letter: 3}}", "dead_letter must be a string"),
        ("{from: s, map: identity, on_error: {}}", "on_error has no dead_letter"),
        ("{from: s, distinct: [line], on_error: skip}", "not for a distinct"),
        ("{from: s, union: {}, on_error: skip}", "not for a union"),
        ("{from: s, sink: {type: jsonl, path: o}, on_error: skip}", "not for a sink"),
        ("{source: {type: parquet, path: x}, on_error: skip}", "not for a source of type parquet"),
    ],
)
def test_entries_that_do_not_hold(entry: str, message: str) -> None:
    text = f"version: 1\njob: t\noperators:\n  s: {{source: {{type: text, path: x}}}}\n  a: {entry}\n"
    with pytest.raises(BadFile, match=message):
        parse_topology_bytes(text.encode(), "t.yaml")


def test_python_says_what_the_yaml_says() -> None:
    job = Job("both")
    lines = job.jsonl("x", on_error="skip", id="lines")
    lines.map("identity", on_error=dead_letter("dead"), id="same").to_jsonl("out", id="out")
    text = """version: 1
job: both
operators:
  lines: {source: {type: jsonl, path: x}, on_error: skip}
  same: {from: lines, map: identity, on_error: {dead_letter: dead}}
  out: {from: same, sink: {type: jsonl, path: out}, on_error: fail}
"""
    topology = parse_topology_bytes(text.encode(), "t.yaml")
    assert job.topology == topology
    assert [op.on_error for op in topology.operators[:2]] == ["skip", DeadLetter("dead")]
    assert parse_topology_bytes(job.yaml().encode(), "t.yaml") == topology


def test_a_folder_takes_the_rows_of_one_operator(tmp_path: Path) -> None:
    write(tmp_path, on_error="{dead_letter: ./unread}")
    with pytest.raises(UsageError, match="operators rows and halve both write to 'unread'"):
        check_runnable(parse_topology(tmp_path / "job.yaml"))
    (tmp_path / "job.yaml").write_text(JOB.replace("ON_ERROR", "{dead_letter: out}"))
    faults = list(graph_faults(parse_topology(tmp_path / "job.yaml")))
    assert [fault.message for fault in faults] == ["operators halve and out both write to 'out'"]
