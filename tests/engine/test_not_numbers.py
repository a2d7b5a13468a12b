"""Floats that JSON has no number for: NaN, infinities and null stay four values, and four keys, wherever they go."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from abscli.cli.main import main
from abscli.engine.errors import JobFailed
from abscli.engine.job import run_job
from abscli.engine.sinks.folder_sinks import FolderSink
from abscli.engine.sources.files import line_files
from formats.job.model import Aggregate, Edge, Kind, Operator, Partition, Topology
from formats.native.sink import staged_path
from formats.query.predicate import BadPredicate, filtered, may_hold, parse_predicate
from tests.support.jobs.small import inline, operator, output_rows

KEYS = ["NaN", "Infinity", "-Infinity", None, 0.0, 1.5]
"""As JSON has them."""

ODD = """
import math
import pyarrow as pa

VALUES = [math.nan, float("-nan"), math.inf, -math.inf, None, 0.0, -0.0, 1.5]

def odd(batch):
    return pa.record_batch([pa.array([VALUES[i % 8] for i in batch["i"].to_pylist()], pa.float64()), batch["i"]],
                           names=["k", "i"])
"""

AGGREGATES = (Aggregate("n", "count", "*"), Aggregate("low", "min", "k"), Aggregate("high", "max", "k"))


def job(keyed: Operator, *, back: str = "in.jsonl") -> Topology:
    source = {"type": "jsonl", "path": back, "schema": {"i": "int"}}
    return Topology(
        "odd",
        (
            operator("rows", Kind.SOURCE, 2, connector=source),
            operator("odd", Kind.MAP, 2, function="odd:odd"),
            keyed,
            operator("out", Kind.SINK, 2, connector={"type": "jsonl", "path": "out"}),
        ),
        (
            Edge("rows", "odd", Partition.FORWARD),
            Edge("odd", keyed.id, Partition.HASH, ("k",)),
            Edge(keyed.id, "out", Partition.FORWARD),
        ),
    )


def reduced(emit: str = "epoch") -> Operator:
    return operator("counts", Kind.REDUCE, key=("k",), aggregates=AGGREGATES, emit=emit)


def ran(folder: Path, keyed: Operator, rows: int = 80) -> list[dict[str, Any]]:
    (folder / "odd.py").write_text(ODD)
    (folder / "in.jsonl").write_text("".join(f'{{"i": {i}}}\n' for i in range(rows)))
    run_job(job(keyed), str(folder / "store"), inline(folder))
    return output_rows(folder)


@pytest.mark.parametrize("emit", ["epoch", "record", "batch"])
@pytest.mark.parametrize("chunk", [32, 1 << 20])
def test_every_key_has_its_own_rows_in_the_output(
    tmp_path: Path, emit: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_files, "CHUNK", chunk)
    last = {row["k"]: row for row in ran(tmp_path, reduced(emit))}
    assert set(last) == set(KEYS)
    assert {key: row["n"] for key, row in last.items()} == dict.fromkeys(KEYS, 10) | {"NaN": 20, 0.0: 20}
    assert all(row["low"] == row["high"] == key for key, row in last.items())
    text = "".join(path.read_text() for path in (tmp_path / "out").glob("part-*"))
    assert '"k":-0.0' not in text  # one key, one way to write it, whichever came first


def test_distinct_lets_each_pass_once(tmp_path: Path) -> None:
    rows = ran(tmp_path, operator("first", Kind.DISTINCT, key=("k",)))
    assert sorted(str(row["k"]) for row in rows if row["k"] != 0.0) == sorted(str(k) for k in KEYS if k != 0.0)
    assert len(rows) == len(KEYS)


def test_state_shows_and_finds_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran(tmp_path, reduced())
    store = str(tmp_path / "store")

    def state(*more: str) -> list[Any]:
        capsys.readouterr()
        assert main(["state", store, "counts", "-o", "json", *more]) == 0
        return [row["k"] for row in json.loads(capsys.readouterr().out)["rows"]]

    assert sorted(map(str, state())) == sorted(map(str, KEYS))
    for text, key in [("NaN", "NaN"), ("nan", "NaN"), ("Infinity", "Infinity"), ("-Infinity", "-Infinity"),
                      ("-0.0", 0.0), ("0", 0.0)]:  # fmt: skip
        assert state(f"--key={text}") == [key]
    assert state("--where", "k is null") == [None]
    assert state("--where", "low = NaN") == ["NaN"]
    assert sorted(map(str, state("--where", "k != NaN"))) == sorted(str(k) for k in KEYS if k not in ("NaN", None))
    assert state("--where", "k > 1.5") == ["Infinity"]
    assert state("--where", "k < NaN") == []
    assert main(["state", store, "counts", "--key", "null"]) == 2
    assert '"k is null"' in capsys.readouterr().err
    assert main(["state", store, "counts"]) == 0
    shown = capsys.readouterr().out
    assert "NaN" in shown
    assert "null" in shown


def test_diff_of_an_epoch_with_itself_finds_no_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran(tmp_path, reduced())
    store = str(tmp_path / "store")
    assert main(["diff", f"{store}@latest", f"{store}@latest", "--exit-code", "-o", "json"]) == 0
    (counts,) = [op for op in json.loads(capsys.readouterr().out)["operators"] if op["id"] == "counts"]
    assert (counts["unchanged"], counts["added"], counts["removed"]) == (len(KEYS), 0, 0)


def test_what_a_sink_writes_a_source_reads_again(tmp_path: Path) -> None:
    first = ran(tmp_path, reduced())
    schema = {"k": "float", "n": "int", "low": "float"}
    again = Topology(
        "again",
        (
            operator("rows", Kind.SOURCE, 1, connector={"type": "jsonl", "path": "out/*.jsonl", "schema": schema}),
            operator("counts", Kind.REDUCE, key=("k",), aggregates=(Aggregate("n", "sum", "n"),), emit="epoch"),
            operator("out", Kind.SINK, 2, connector={"type": "jsonl", "path": "again/out"}),
        ),
        (Edge("rows", "counts", Partition.HASH, ("k",)), Edge("counts", "out", Partition.FORWARD)),
    )
    run_job(again, str(tmp_path / "again-store"), inline(tmp_path))
    sums = {row["k"]: row["n"] for row in output_rows(tmp_path / "again")}
    assert sums == {row["k"]: row["n"] for row in first}


def test_text_that_is_the_name_of_a_number_stays_text(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"t": "NaN", "x": 1.5}\n{"t": "Infinity", "x": "NaN"}\n{"t": null, "x": NaN}\n')
    topology = Topology(
        "text",
        (
            operator("rows", Kind.SOURCE, 1, connector={
                "type": "jsonl", "path": "in.jsonl", "schema": {"t": "string", "x": "float"}}),
            operator("out", Kind.SINK, 1, connector={"type": "jsonl", "path": "out"}),
        ),
        (Edge("rows", "out", Partition.FORWARD),),
    )  # fmt: skip
    run_job(topology, str(tmp_path / "store"), inline(tmp_path))
    assert output_rows(tmp_path) == [
        {"t": "NaN", "x": 1.5}, {"t": "Infinity", "x": "NaN"}, {"t": None, "x": "NaN"},
    ]  # fmt: skip
    (tmp_path / "in.jsonl").write_text('{"t": "a", "x": "NaN"}\n{"t": "b", "x": "many"}\n')
    for part in (tmp_path / "out").glob("part-*"):
        part.unlink()
    with pytest.raises(JobFailed, match=r"record \d+: .*many"):
        run_job(topology, str(tmp_path / "other-store"), inline(tmp_path))


def test_within_lists_and_structs_they_are_named_too(tmp_path: Path) -> None:
    out = operator("out", Kind.SINK, connector={"type": "jsonl", "path": "out"})
    sink = FolderSink(out, 0, str(tmp_path), "a" * 32)
    kind = pa.struct([("x", pa.float32()), ("l", pa.list_(pa.float64()))])
    rows = [{"s": {"x": math.inf, "l": [math.nan, None, 2.0]}, "y": -math.inf}, {"s": None, "y": None}]
    sink.write(pa.record_batch([pa.array([r["s"] for r in rows], kind), pa.array([r["y"] for r in rows])], ["s", "y"]))
    parts = sink.cut(1)()
    lines = (tmp_path / "out" / staged_path("a" * 32, parts[0].name)).read_text().splitlines()
    assert [json.loads(line, parse_constant=pytest.fail) for line in lines] == [
        {"s": {"x": "Infinity", "l": ["NaN", None, 2.0]}, "y": "-Infinity"}, {"s": None, "y": None},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "rows"),
    [("x = nan", [0]), ("x != nan", [2, 3, 4]), ("x <= nan", [0]), ("x >= nan", [0]), ("x < nan", []),
     ("x > nan", []), ("x in (nan, 1)", [0, 3]), ("not x = nan", [2, 3, 4]), ("x > 0", [2, 3])],
)  # fmt: skip
def test_nan_is_equal_to_itself_alone(text: str, rows: list[int]) -> None:
    table = pa.table({"x": [math.nan, None, math.inf, 1.0, -1.0], "i": [0, 1, 2, 3, 4]})
    predicate = parse_predicate(text)
    assert filtered(table, predicate).column("i").to_pylist() == rows
    assert may_hold(predicate, {"x": (-1.0, 1.0)}, table.schema)


def test_null_as_a_value_names_the_condition_for_it() -> None:
    with pytest.raises(BadPredicate) as refused:
        filtered(pa.table({"x": [1.0]}), parse_predicate("x = null"))
    assert refused.value.hint == '--where "x is null"'
