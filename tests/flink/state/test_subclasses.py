"""A state whose subtasks describe different classes: a subtask describes a subclass of a POJO once it has met it.

Checkpoints 2 and 3 of a RocksDB job of Flink 2.3.0, two subtasks, operator `k-dbl`: map state `pojos` of a POJO
`K$Inner` with a subclass `K$Sub`, which only the second subtask has met.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from abscli.api import open_store
from formats.flink.state.one_schema import alike, united
from tests.support.archives import unpacked
from tests.support.commands import answer_of, run_command
from tests.support.flink.truth import DATA

VALUE = pa.struct({"a": pa.int32(), "s": pa.string(), "@class": pa.string(), "Sub.extra": pa.float64()})


@pytest.fixture
def snapshots() -> Path:
    pytest.importorskip("rocksdict", reason="needs the package rocksdict")
    return unpacked(DATA / "subclass-in-one-task.tar.xz")


def test_two_checkpoints_are_compared(snapshots: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = answer_of("diff", capsys, snapshots / "small2", snapshots / "small3")
    (operator,) = answer["operators"]
    assert (answer["identical"], operator["unchanged"], len(operator["states"])) == (True, 669, 19)


def test_all_rows_have_one_schema(snapshots: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = open_store(snapshots / "small3").rows("k-dbl", "pojos")
    assert rows.schema.field("value").type == VALUE
    table = rows.table()
    assert (table.num_rows, table.schema) == (120, rows.schema)
    assert rows.reader().read_all() == table
    values = [value for value in table["value"].to_pylist() if value is not None]
    assert {value["@class"] for value in values} == {None, "K$Inner", "K$Sub"}
    for name in ("rows.parquet", "rows.arrow"):
        code, _, err = run_command(
            "state", capsys, snapshots / "small3", "k-dbl", "--state", "pojos", "--out", tmp_path / name
        )
        assert code == 0, err
    assert pq.read_table(tmp_path / "rows.parquet")["value"].type == VALUE
    code, out, err = run_command("state", capsys, snapshots / "small3", "--all", "--out", tmp_path / "all")
    assert (code, "has rows with" in out + err) == (0, False)


@pytest.mark.parametrize("keys", [["1.0"], ["1.0", "0.5", "-0.0"]])
def test_keys_of_several_subtasks_are_looked_up(
    snapshots: Path, keys: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert open_store(snapshots / "small3").rows("k-dbl", "pojos", key=keys).table().num_rows == 20 * len(keys)
    options = [word for key in keys for word in ("--key", key)]
    found = answer_of("state", capsys, snapshots / "small3", "k-dbl", "--state", "pojos", *options, "--history")
    assert len(found["rows"]) == 20 * len(keys)


ONE = pa.schema([("value", pa.struct([("a", pa.int32())]))])
OTHER = pa.schema([("value", pa.struct([("a", pa.int32()), ("b", pa.string())])), ("value.opaque", pa.binary())])


def test_structs_are_united_at_any_depth() -> None:
    assert united([ONE, OTHER]) == OTHER
    for nest in (pa.list_, lambda kind: pa.map_(pa.string(), kind), lambda kind: pa.struct([("in", kind)])):
        one, other = (pa.schema([("value", nest(schema.field("value").type))]) for schema in (ONE, OTHER))
        assert united([one, other]) == other
    assert united([ONE, pa.schema([("value", pa.int64())])]) == ONE, "types that have nothing in common"


def test_rows_get_the_columns_that_they_lack() -> None:
    batches = [pa.record_batch([[{"a": 1}, None]], schema=ONE), pa.record_batch([[{"b": "x"}], [b"y"]], schema=OTHER)]
    rows = pa.Table.from_batches(alike(batches, lambda: united([ONE, OTHER]))).to_pylist()
    assert rows == [
        {"value": {"a": 1, "b": None}, "value.opaque": None},
        {"value": None, "value.opaque": None},
        {"value": {"a": None, "b": "x"}, "value.opaque": b"y"},
    ]
