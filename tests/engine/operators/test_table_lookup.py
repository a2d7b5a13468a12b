"""A table beside the stream: every row with what matches it, whatever the batches, and another table is noticed."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abscli.engine.errors import JobFailed, UsageError
from abscli.engine.job import run_job
from abscli.engine.operators.table_lookup import Table, TableLookup, own_key_groups, read_table
from abscli.engine.runnable import all_faults
from abscli.engine.sources.files import line_files
from formats.ids import TaskId
from formats.job.model import Edge, Kind, Lookup, LookupHow, Operator, Partition
from formats.native.hashing import key_groups
from tests.support.jobs.inline import STORE, stop_after
from tests.support.jobs.joins import rows_of, with_table, write_orders
from tests.support.jobs.small import inline, output_rows
from tests.tiers import examples

KEYS = st.sampled_from([1, 2, 3, None])
FLOATS = st.sampled_from([0.0, -0.0, 1.5, math.nan, None])
STREAM = st.lists(st.tuples(KEYS, FLOATS, st.integers(0, 99)), max_size=20)
TABLE = st.lists(st.tuples(KEYS, FLOATS, st.text(max_size=2)), max_size=10)


def operator_of(how: LookupHow, parallelism: int = 1) -> Operator:
    return Operator("t", Kind.LOOKUP, parallelism, 16, lookup=Lookup("t.parquet", ("k", "f"), how))


def batch_of(rows: list[Any]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [[], [], []]
    kinds = (pa.int32(), pa.float64(), pa.int64())
    return pa.record_batch([pa.array(c, k) for c, k in zip(columns, kinds, strict=True)], names=["k", "f", "n"])


def table_of(rows: list[Any]) -> Table:
    columns = list(zip(*rows, strict=True)) or [[], [], []]
    kinds = (pa.int64(), pa.float64(), pa.string())
    arrays = [pa.array(c, k) for c, k in zip(columns, kinds, strict=True)]
    return Table(pa.table(arrays, names=["k", "f", "n"]), "digest")


def key_of(row: tuple[Any, ...]) -> tuple[Any, ...] | None:
    k, f, _ = row
    return None if k is None or f is None else (k, "nan" if math.isnan(f) else f + 0.0)


@settings(max_examples=examples(80))
@given(STREAM, TABLE, st.sampled_from(LookupHow), st.integers(0, 20))
def test_it_is_every_row_that_matches(stream: list[Any], table: list[Any], how: LookupHow, cut: int) -> None:
    lookup = TableLookup(operator_of(how), TaskId("t", 0), table_of(table))
    out: list[tuple[Any, Any]] = []
    for piece in (stream[:cut], stream[cut:]):
        rows = lookup.process(batch_of(piece), 1)
        assert rows is not None
        assert rows.schema.names == ["k", "f", "n", "n_right"]
        out += [(row["n"], row["n_right"]) for row in rows.to_pylist()]
    expected: list[tuple[Any, Any]] = []
    for row in stream:
        matches = [(row[2], other[2]) for other in table if key_of(row) is not None and key_of(row) == key_of(other)]
        expected += matches or ([(row[2], None)] if how is LookupHow.LEFT else [])
    assert out == expected


def test_a_task_has_the_rows_of_its_own_keys_where_the_stream_is_spread_by_them() -> None:
    rows = [(i, 1.0, f"r{i}") for i in range(50)]
    operator = operator_of(LookupHow.INNER, 3)
    hashed = [Edge("s", "t", Partition.HASH, ("k", "f"))]
    assert own_key_groups(operator, 0, [Edge("s", "t", Partition.REBALANCE)]) is None
    assert own_key_groups(operator, 0, [Edge("s", "t", Partition.HASH, ("k",))]) is None
    batch = batch_of([(i, 1.0, i) for i in range(50)])
    groups = key_groups([batch.column("k"), batch.column("f")], 16)
    sizes = []
    for subtask in range(3):
        own = own_key_groups(operator, subtask, hashed)
        assert own is not None
        lookup = TableLookup(operator, TaskId("t", subtask), table_of(rows), own)
        mine = batch.filter(pa.array([group in own for group in groups.tolist()]))
        out = lookup.process(mine, 1)
        assert out is not None
        assert out.column("n_right").to_pylist() == [f"r{i}" for i in mine.column("k").to_pylist()]
        everything = lookup.process(batch, 1)
        assert everything is not None
        sizes.append(everything.num_rows)
    assert sum(sizes) == 50
    assert all(size < 50 for size in sizes)


def test_what_is_wrong_with_a_table_is_said(tmp_path: Path) -> None:
    operator = operator_of(LookupHow.INNER)
    with pytest.raises(JobFailed, match=r"operator t: cannot read its table .*t.parquet: No such file"):
        read_table(operator, str(tmp_path))
    (tmp_path / "t.parquet").write_text("no")
    with pytest.raises(JobFailed, match=r"operator t: cannot read its table .*t.parquet: Could not open"):
        read_table(operator, str(tmp_path))
    pq.write_table(pa.table({"k": [1], "n": [2]}), tmp_path / "t.parquet")
    with pytest.raises(JobFailed, match=r"t\.parquet has no column 'f'") as raised:
        read_table(operator, str(tmp_path))
    assert raised.value.hint == "the table has the columns k, n"
    lookup = TableLookup(operator, TaskId("t", 0), Table(pa.table({"k": ["x"], "f": [1.0], "n": [2]}), "digest"))
    with pytest.raises(JobFailed, match=r"task t/0: key column 'k' is int32 in the stream, and string in its table"):
        lookup.process(batch_of([(1, 1.0, 1)]), 1)


# -- whole jobs -------------------------------------------------------------------------------------------------


def write_users(path: Path, marks: str = "") -> None:
    text = "order,name\n" + "".join(f"o{i},name {i}{marks}\n" for i in range(0, 40, 2))
    if path.suffix == ".csv":
        path.write_text(text)
    else:
        table = {"order": [f"o{i}" for i in range(0, 40, 2)], "name": [f"name {i}{marks}" for i in range(0, 40, 2)]}
        pq.write_table(pa.table(table), path)


@pytest.mark.parametrize("path", ["users.parquet", "users.csv"])
@pytest.mark.parametrize("how", list(LookupHow))
@pytest.mark.parametrize("partition", [Partition.FORWARD, Partition.HASH])
def test_rows_have_the_columns_of_the_table(tmp_path: Path, path: str, how: LookupHow, partition: Partition) -> None:
    write_orders(tmp_path, rows=60)
    write_users(tmp_path / path)
    key = ("order",) if partition is Partition.HASH else ()
    topology = with_table(path, how, partition=partition, key=key)
    assert [fault.message for fault in all_faults(topology, str(tmp_path), from_start=True)] == []
    run_job(topology, str(tmp_path / STORE), inline(tmp_path))
    expected = {
        row["number"]: f"name {row['order'][1:]}" if int(row["order"][1:]) % 2 == 0 else None
        for row in rows_of(tmp_path, "orders")
    }
    if how is LookupHow.INNER:
        expected = {number: name for number, name in expected.items() if name is not None}
    assert Counter((row["number"], row["name"]) for row in output_rows(tmp_path)) == Counter(expected.items())


def test_another_table_is_refused_unless_the_job_says_that_it_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_files, "CHUNK", 1024)
    write_orders(tmp_path)
    write_users(tmp_path / "users.parquet")
    callbacks, _ = stop_after(1)
    options = inline(tmp_path, interval=0.02, pace=20)
    stopped = run_job(with_table(), str(tmp_path / STORE), options, **callbacks)  # type: ignore[arg-type]
    assert not stopped.finished
    write_users(tmp_path / "users.parquet", " later")
    again = inline(tmp_path, from_epoch=stopped.epoch)
    with pytest.raises(JobFailed, match=r"its table .*users.parquet differs from the table of the epoch"):
        run_job(with_table(), str(tmp_path / STORE), again)
    outcome = run_job(with_table(deterministic=False), str(tmp_path / STORE), again)
    assert outcome.finished
    names = {str(row["name"]).endswith("later") for row in output_rows(tmp_path) if row["name"]}
    assert names == {True, False}


def test_a_missing_table_is_told_before_a_run(tmp_path: Path) -> None:
    write_orders(tmp_path)
    (fault,) = all_faults(with_table("users.csv"), str(tmp_path), from_start=True)
    assert fault.keys == ("lookup", "path")
    assert "cannot read its table" in fault.message
    with pytest.raises((JobFailed, UsageError), match="cannot read its table"):
        run_job(with_table("users.csv"), str(tmp_path / STORE), inline(tmp_path))
