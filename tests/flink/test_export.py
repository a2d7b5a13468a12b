"""All states at once: a Parquet file each, with the places of its rows."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from abscli.api import exporting, open_store
from abscli.cli.main import main
from formats.flink.store import FlinkStore
from tests.support.flink.cases import CANONICAL, HASHMAP, largest
from tests.support.schemas import checked


def test_every_state_has_a_file_with_its_rows_and_where_they_lie(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["state", str(CANONICAL), "--all", "--out", str(tmp_path / "tables"), "-o", "json"]) == 0
    head = checked(capsys.readouterr().out)
    store = FlinkStore(str(CANONICAL))
    epoch = store.resolve(None)
    states = {(state.operator, state.name) for state in store.states(epoch)}
    assert {(one["operator"], one["state"]) for one in head["written"]} == states
    assert len({one["file"] for one in head["written"]}) == len(states)
    for one in head["written"]:
        table = pq.read_table(one["file"])
        rows = [row for batch in store.state(epoch, one["operator"], one["state"]) for row in batch.to_pylist()]
        places = {name for name in table.column_names if name.startswith("__")}
        assert "__subtask" in places
        assert table.drop_columns(sorted(places)).to_pylist() == rows
        assert one["rows"] == len(rows)
    sums = next(one for one in head["written"] if one["state"] == "sum")
    groups = set(pq.read_table(sums["file"]).column("__key_group").to_pylist())
    assert groups <= set(range(store.find_operator(epoch, "totals").max_parallelism))
    assert head["count"] == sum(one["rows"] for one in head["written"])


def test_processes_side_by_side_write_the_same(tmp_path: Path) -> None:
    store = open_store(str(CANONICAL))
    alone = sorted(store.export(tmp_path / "alone", "totals", workers=1))
    together = sorted(store.export(tmp_path / "together", "totals", workers=2))
    assert [one[:3] for one in together] == [one[:3] for one in alone]
    for one, other in zip(alone, together, strict=True):
        assert one.file is not None
        assert other.file is not None
        assert pq.read_table(one.file).equals(pq.read_table(other.file))


def test_a_small_checkpoint_with_states_of_unknown_size_is_exported_by_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes took three times the CPU time of one: each starts, reads the metadata and opens what it reads."""
    store = open_store(str(HASHMAP))
    assert any(state.bytes is None for state in store.states())
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(exporting, "process_pool", lambda workers: pytest.fail(f"{workers} processes"))
    assert sum(one.rows for one in store.export(tmp_path / "tables")) > 0
    monkeypatch.setattr(exporting, "SMALL", 1 << 10)
    with pytest.raises(pytest.fail.Exception, match="2 processes"):
        list(store.export(tmp_path / "more"))


def test_a_state_that_cannot_be_read_is_named_and_the_others_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = Path(shutil.copytree(HASHMAP, tmp_path / "job"))
    (chk,) = broken.glob("chk-*")
    largest(chk).unlink()
    assert main(["state", str(broken), "--all", "--out", str(tmp_path / "tables"), "-o", "json"]) == 3
    written = checked(capsys.readouterr().out)["written"]
    lost = [one for one in written if one["file"] is None]
    assert lost
    assert all("is not there" in one["problem"] for one in lost)
    assert any(one["rows"] for one in written)
    assert len(list((tmp_path / "tables").iterdir())) == len(written) - len(lost), "nothing unfinished is left"


def test_what_does_not_go_together_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in (
        (["--all"], "specify a new directory"),
        (["--all", "--out", str(tmp_path / "x"), "--key", "a"], "remove --key"),
    ):
        assert main(["state", str(CANONICAL), *words]) == 2
        assert message in capsys.readouterr().err
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    assert main(["state", str(CANONICAL), "--all", "--out", str(tmp_path / "full")]) == 2
    assert "is not empty" in capsys.readouterr().err


def test_rows_that_only_a_class_of_the_job_can_read_are_missed_aloud(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the heap their values have no length: no row of them is in the file."""
    one = tmp_path / "opaque.parquet"
    assert main(["state", str(HASHMAP), "totals", "--state", "opaque", "--out", str(one)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("0 rows")
    assert "Orders$Opaque" in " ".join(err.split())
    assert main(["state", str(HASHMAP), "totals", "--all", "--out", str(tmp_path / "tables"), "-o", "json"]) == 0
    written = {row["state"]: row for row in checked(capsys.readouterr().out)["written"]}
    assert "Orders$Opaque" in written["opaque"]["problem"]
    assert written["count"]["problem"] is None
