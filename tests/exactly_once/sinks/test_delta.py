"""A sink that is a table of Delta Lake: one commit an epoch, every row once, whatever is killed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from abscli.engine.errors import EngineStopped, JobFailed, UsageError
from abscli.engine.sinks.outputs import Outputs
from abscli.engine.sinks.staged.delta import DeltaSink
from abscli.report.findings import Code
from formats.ids import EpochId
from formats.storage import MemoryStorage
from tests.support.jobs.deliveries import ATTEMPT, OTHER, delivered
from tests.support.jobs.lines import Gate, Lines, killed, restore_to, write_lines

deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed: pip install '.[delta]'")
RUNS = 40


@pytest.fixture
def lines(tmp_path: Path, gate: Gate) -> Lines:
    write_lines(tmp_path, 5)
    return Lines(tmp_path, gate, "out", "delta")


def commits(path: Path) -> list[tuple[str, int]]:
    """The attempt and the epoch of each commit with rows, oldest first, as the log has them."""
    history = deltalake.DeltaTable(str(path)).history()[::-1]
    return [(entry["abs.attempt"], int(entry["abs.epoch"])) for entry in history if "abs.epoch" in entry]


@pytest.mark.cell("A", "exact", "delta")
@pytest.mark.sample(3)
@pytest.mark.parametrize("where", ["staged", "manifest", "reveal", "writing", "committed"])
def test_killed_at_any_step_it_goes_on(lines: Lines, where: str) -> None:
    killed(lines, where, 3)
    lines.go_on()
    assert lines.wrong() == {}
    epochs = commits(lines.folder / "out")
    assert len(set(epochs)) == len(epochs)


def test_rows_that_two_manifests_name_are_committed_once(tmp_path: Path, gate: Gate) -> None:
    """With several epochs in flight a task stages the next before it has heard that the one before is complete: in most
    runs, and here until it has been so."""
    for number in range(RUNS):
        write_lines(tmp_path / str(number), 5)
        lines = Lines(tmp_path / str(number), gate, "out", "delta")
        lines.run(max_concurrent=4)
        assert lines.wrong() == {}
        if lines.twice_named:
            return
    pytest.fail(f"in none of {RUNS} runs did two manifests name the same rows")


def test_a_commit_is_an_epoch_and_says_which(lines: Lines) -> None:
    lines.run()
    store = lines.store()
    named = [(store.manifest(n).attempt_id, n) for n in lines.complete() if any(part.sink for part in store.parts(n))]
    assert commits(lines.folder / "out") == named
    attempt, newest = named[-1]
    table = deltalake.DeltaTable(str(lines.folder / "out"))
    assert table.transaction_version(f"abs-{attempt}-out") == newest
    files = [pq.read_table(lines.folder / "out" / path.rpartition("/")[2]) for path in table.file_uris()]
    assert sum(file.num_rows for file in files) == lines.shown().total()


def test_nothing_is_committed_before_the_manifest(lines: Lines) -> None:
    killed(lines, "reveal", 1)
    assert not (lines.folder / "out").exists()
    report = lines.validated()
    assert Code.SINK_PART_PENDING in {finding.code for finding in report.findings}
    lines.resume()
    assert lines.wrong() == {}


@pytest.mark.cell("J", "refused", "delta")
def test_going_back_behind_what_is_committed_is_refused_and_then_a_choice(lines: Lines) -> None:
    lines.run(epochs=3)
    first = lines.complete()[0]
    with pytest.raises(UsageError, match="cannot be rolled back"):
        lines.run(from_epoch=first)
    lines.run(from_epoch=first, epochs=1, take_ownership=True)
    lines.resume()  # what was accepted once is not asked again
    assert set(lines.wrong().values()) == {1}


@pytest.mark.parametrize("take_ownership", [False, True])
def test_a_commit_that_comes_between_the_check_of_a_table_and_its_claim_is_a_foreign_commit(
    lines: Lines, monkeypatch: pytest.MonkeyPatch, take_ownership: bool
) -> None:
    """The job on the original store writes until the job on a copy of the store claims the table."""
    lines.run(epochs=1)
    shutil.copytree(lines.folder / "a", lines.folder / "b")
    plain, path = Outputs.take, lines.folder / "out"

    def take(*arguments: Any) -> None:
        monkeypatch.setattr(Outputs, "take", plain)
        before = commits(path)
        lines.resume("a", epochs=2)
        assert len(commits(path)) > len(before)
        plain(*arguments)

    monkeypatch.setattr(Outputs, "take", take)
    if not take_ownership:
        with pytest.raises(UsageError, match="not part of the history being resumed"):
            lines.resume("b")
        return
    lines.resume("b", epochs=1, take_ownership=True)
    lines.resume("b")  # what was accepted once is not asked again
    assert set(lines.wrong().values()) == {1}


def test_a_restore_into_another_store_commits_what_waits(lines: Lines) -> None:
    killed(lines, "reveal", 3)
    restore_to(lines, lines.complete()[-1], "b")
    lines.resume("b")
    assert lines.wrong() == {}


def numbers(path: Path) -> list[int]:
    return sorted(deltalake.DeltaTable(str(path)).to_pyarrow_table()["n"].to_pylist())


def test_a_delivery_is_written_once_by_whomever(tmp_path: Path) -> None:
    storage, path = MemoryStorage(), tmp_path / "t"
    first = delivered(storage, 3, pa.table({"n": [1, 2]}), pa.table({"n": [3]}))
    for _ in range(2):
        sink = DeltaSink("out", str(path), "job")
        sink.take(ATTEMPT, [], 0)
        sink.publish(first)
        sink.publish(first)
    assert numbers(path) == [1, 2, 3]
    assert sink.markers() == [EpochId(ATTEMPT, 3)]
    assert DeltaSink("out", str(path), "another").markers() == []


@pytest.mark.cell("N", "stops", "delta")
@pytest.mark.parametrize("epochs", [0, 1])
def test_who_has_lost_the_table_commits_nothing(tmp_path: Path, epochs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not before its commit, and not in the middle of it: it is stopped there, and another one takes the table."""
    storage, path = MemoryStorage(), tmp_path / "t"
    before, now = DeltaSink("out", str(path), "job"), DeltaSink("out", str(path), "job")
    before.take(ATTEMPT, [], 0)
    for n in range(epochs):
        before.publish(delivered(storage, n + 1, pa.table({"n": [n]})))
    plain = DeltaSink._write

    def stopped(sink: DeltaSink, *arguments: object) -> None:
        monkeypatch.setattr(DeltaSink, "_write", plain)
        now.take(OTHER, [], 0)
        now.publish(delivered(storage, 7, pa.table({"n": [70]}), attempt=OTHER))
        plain(sink, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(DeltaSink, "_write", stopped)
    with pytest.raises(EngineStopped, match="was taken over by another attempt"):
        before.publish(delivered(storage, 8, pa.table({"n": [80]})))
    assert numbers(path) == [*range(epochs), 70]


def test_others_may_write_the_table_meanwhile(tmp_path: Path) -> None:
    storage, path = MemoryStorage(), tmp_path / "t"
    sink = DeltaSink("out", str(path), "job")
    sink.take(ATTEMPT, [], 0)
    sink.publish(delivered(storage, 1, pa.table({"n": [1]})))
    deltalake.write_deltalake(str(path), pa.table({"n": [100]}), mode="append")
    deltalake.DeltaTable(str(path)).optimize.compact()
    sink.publish(delivered(storage, 2, pa.table({"n": [2]})))
    assert numbers(path) == [1, 2, 100]
    assert sink.markers() == [EpochId(ATTEMPT, 1), EpochId(ATTEMPT, 2)]


def test_what_was_left_behind_is_not_shown_again(tmp_path: Path) -> None:
    storage, path = MemoryStorage(), tmp_path / "t"
    sink = DeltaSink("out", str(path), "job")
    sink.take(ATTEMPT, [], 0)
    sink.publish(delivered(storage, 1, pa.table({"n": [1]})))
    sink.publish(delivered(storage, 2, pa.table({"n": [2]})))
    sink.take(OTHER, [EpochId(ATTEMPT, 2)], 0)
    assert sink.markers() == [EpochId(ATTEMPT, 1)]


def test_rows_of_other_columns_wait_until_the_table_has_them(tmp_path: Path) -> None:
    storage, path = MemoryStorage(), tmp_path / "t"
    sink = DeltaSink("out", str(path), "job")
    sink.take(ATTEMPT, [], 0)
    sink.publish(delivered(storage, 1, pa.table({"n": [1]})))
    with pytest.raises(JobFailed, match="rejected the rows"):
        sink.publish(delivered(storage, 2, pa.table({"n": ["two"]})))
    assert numbers(path) == [1]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"n": pa.int64()}, None), ({"n": pa.int32()}, None), (None, None),
        ({"m": pa.int64()}, "rows have a column m (int64), which the table does not have"),
        ({"n": pa.int64(), "m": pa.string()}, "rows have a column m (string), which the table does not have"),
        ({"n": pa.string()}, "column n is string in the rows, int64 in the table"),
    ],
)  # fmt: skip
def test_a_table_that_does_not_take_the_columns_is_reported_before_the_run(
    tmp_path: Path, columns: dict[str, pa.DataType] | None, reason: str | None
) -> None:
    sink = DeltaSink("out", str(tmp_path / "t"), "job")
    rows = pa.schema(columns) if columns is not None else None
    assert sink.unmet(rows) == []  # the table is created for the rows
    sink.take(ATTEMPT, [], 0)
    sink.publish(delivered(MemoryStorage(), 1, pa.table({"n": [1]})))
    lacking = sink.unmet(rows)
    reasons = [one.message.partition("does not take the rows: ")[2] for one in lacking]
    assert reasons == ([] if reason is None else [reason])
    assert numbers(tmp_path / "t") == [1]


def test_a_place_that_is_no_table_any_more_is_said(tmp_path: Path) -> None:
    storage, path = MemoryStorage(), tmp_path / "t"
    sink = DeltaSink("out", str(path), "job")
    sink.take(ATTEMPT, [], 0)
    sink.publish(delivered(storage, 1, pa.table({"n": [1]})))
    for log in (path / "_delta_log").glob("*.json"):
        log.write_text(json.dumps({"no": "log"}))
    with pytest.raises(EngineStopped, match="cannot be read"):
        sink.unmet(None)


@pytest.mark.cell("E", "refused", "delta")
def test_a_table_that_is_gone_or_another_one_is_refused_and_then_a_choice(lines: Lines) -> None:
    lines.run(epochs=3)
    shutil.rmtree(lines.folder / "out")
    with pytest.raises(UsageError, match="is missing: the sink has written to the table with the id"):
        lines.resume()
    deltalake.write_deltalake(str(lines.folder / "out"), pa.table({"line": pa.array([], pa.string())}))
    with pytest.raises(UsageError, match="was replaced: the sink has written to the table with the id"):
        lines.resume()
    lines.resume(take_ownership=True)  # all epochs are in the store still, and it has none of them
    lines.resume()
    assert lines.wrong() == {}
