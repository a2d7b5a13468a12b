"""A sink that is a table of Iceberg: one commit an epoch, every row once, whatever is killed, and whatever others do to
the table meanwhile."""

from __future__ import annotations

import contextlib
import datetime
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from threading import Barrier
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from abscli.engine import patience
from abscli.engine.errors import EngineStopped, JobFailed, UsageError
from abscli.engine.sinks.iceberg.table import IcebergTable
from abscli.report.findings import Code
from formats.ids import EpochId
from formats.job.model import Kind, Operator
from formats.storage import MemoryStorage
from tests.support.imports import ROOT
from tests.support.jobs.deliveries import ATTEMPT, OTHER, delivered
from tests.support.jobs.lines import Gate, Lines, iceberg_table, killed, restore_to, write_lines

pytestmark = pytest.mark.integration

pytest.importorskip("pyiceberg", reason="pyiceberg is not installed: pip install '.[iceberg]'")
RUNS = 40


@pytest.fixture
def lines(tmp_path: Path, gate: Gate) -> Lines:
    write_lines(tmp_path, 5)
    return Lines(tmp_path, gate, "out", "iceberg")


def commits(folder: Path) -> list[tuple[str, int]]:
    """The attempt and the epoch of each snapshot with rows, oldest first, as the table has them."""
    summaries = [snapshot.summary.additional_properties for snapshot in iceberg_table(folder).snapshots()]
    return [(each["abs.attempt"], int(each["abs.epoch"])) for each in summaries if "abs.epoch" in each]


def expire(table: Any) -> None:
    """All snapshots but the current one, as maintenance does it."""
    table.maintenance.expire_snapshots().older_than(datetime.datetime.now() + datetime.timedelta(days=1)).commit()


@pytest.mark.cell("A", "exact", "iceberg")
@pytest.mark.sample(3)
@pytest.mark.fast(reason="one killed run for each type of sink")
@pytest.mark.parametrize("where", ["staged", "manifest", "reveal", "writing", "pointing", "committed"])
def test_killed_at_any_step_it_goes_on(lines: Lines, where: str) -> None:
    killed(lines, where, 3)
    if lines.complete():
        lines.resume()
    else:
        lines.run(from_epoch=0)
    assert lines.wrong() == {}
    epochs = commits(lines.folder)
    assert len(set(epochs)) == len(epochs)


@pytest.mark.parametrize("where", ["pointing", "committed"])
def test_killed_it_goes_on_where_snapshots_have_expired(lines: Lines, where: str) -> None:
    killed(lines, where, 4)
    table = iceberg_table(lines.folder)
    table.append(pa.table({"line": ["of somebody else"]}))
    expire(table)
    lines.resume()
    assert lines.wrong() == {"of somebody else": 1}


def test_rows_that_two_manifests_name_are_committed_once(tmp_path: Path, gate: Gate) -> None:
    """With several epochs in flight a task stages the next before it has heard that the one before is complete: in most
    runs, and here until it has been so."""
    for number in range(RUNS):
        write_lines(tmp_path / str(number), 5)
        lines = Lines(tmp_path / str(number), gate, "out", "iceberg")
        lines.run(max_concurrent=4)
        assert lines.wrong() == {}
        if any(len(part.sink) > 1 for n in lines.complete() for part in lines.store().parts(n)):
            return
    pytest.fail(f"in none of {RUNS} runs did two manifests name the same rows")


def test_a_commit_is_an_epoch_and_says_which(lines: Lines) -> None:
    lines.run()
    store = lines.store()
    named = [(store.manifest(n).attempt_id, n) for n in lines.complete() if any(part.sink for part in store.parts(n))]
    assert commits(lines.folder) == named


def test_nothing_is_committed_before_the_manifest(lines: Lines) -> None:
    killed(lines, "reveal", 1)
    assert iceberg_table(lines.folder) is None
    report = lines.validated()
    assert Code.SINK_PART_PENDING in {finding.code for finding in report.findings}
    lines.resume()
    assert lines.wrong() == {}
    assert lines.validated().all_findings == ()


@pytest.mark.cell("J", "refused", "iceberg")
@pytest.mark.parametrize("are_expired", [False, True])
def test_going_back_behind_what_is_committed_is_refused_and_then_a_choice(lines: Lines, are_expired: bool) -> None:
    """Rows of epochs that are of both lines do not come again, also where only the property knows them."""
    lines.run(epochs=4)
    second = lines.complete()[1]
    before = Counter(row for row, n in lines.shown().items())
    if are_expired:
        expire(iceberg_table(lines.folder))
    with pytest.raises(UsageError, match="cannot be rolled back"):
        lines.run(from_epoch=second)
    lines.run(from_epoch=second, epochs=1, take_ownership=True)
    lines.resume()  # what was accepted once is not asked again
    again = lines.wrong()
    assert set(again.values()) == {1}
    assert 0 < len(again) < before.total()


def test_a_restore_into_another_store_commits_what_waits(lines: Lines) -> None:
    killed(lines, "reveal", 3)
    restore_to(lines, lines.complete()[-1], "b")
    lines.resume("b")
    assert lines.wrong() == {}


@pytest.mark.cell("E", "refused", "iceberg")
def test_a_table_that_is_gone_or_another_one_is_refused_and_then_a_choice(lines: Lines) -> None:
    lines.run(epochs=3)
    table = iceberg_table(lines.folder)
    table.catalog.drop_table("shop.out")
    with pytest.raises(UsageError, match=r"iceberg:shop\.out is missing: the sink has written to"):
        lines.resume()
    table.catalog.create_table("shop.out", table.schema())
    with pytest.raises(UsageError, match=f"was replaced: the sink has written to .* {table.metadata.table_uuid}"):
        lines.resume()
    lines.resume(take_ownership=True)  # all epochs are in the store still, and it has none of them
    lines.resume()
    assert lines.wrong() == {}


@pytest.mark.cell("E", "refused", "iceberg")
@pytest.mark.parametrize("is_expired", [False, True])
def test_a_table_that_was_set_back_is_refused_and_then_a_choice(lines: Lines, is_expired: bool) -> None:
    lines.run(epochs=4)
    table = iceberg_table(lines.folder)
    second = table.snapshots()[1]
    table.manage_snapshots().rollback_to_snapshot(second.snapshot_id).commit()
    table.append(pa.table({"line": ["of somebody else"]}))
    if is_expired:
        lost = [snapshot.snapshot_id for snapshot in table.snapshots()[2:-1]]
        table.maintenance.expire_snapshots().by_ids(lost).commit()
    with pytest.raises(UsageError, match=r"was set back to snapshot \d+, and has lost snapshot \d+, with rows up to"):
        lines.resume()
    lines.resume(take_ownership=True)
    lines.resume()
    assert lines.wrong() == {"of somebody else": 1}


# -- the target alone ----------------------------------------------------------------------------------------


def sink_in(folder: Path, job: str = "job") -> IcebergTable:
    options = {"type": "iceberg", "table": "shop.out", "warehouse": "lake"}
    return IcebergTable(Operator("out", Kind.SINK, 2, 8, connector=options), str(folder), job)


def taken(folder: Path, attempt: str = ATTEMPT, job: str = "job") -> IcebergTable:
    sink = sink_in(folder, job)
    sink.take(attempt, [], 0)
    return sink


def numbers(folder: Path) -> list[int]:
    return sorted(iceberg_table(folder).scan().to_arrow()["n"].to_pylist())


def test_a_delivery_is_written_once_by_whomever(tmp_path: Path) -> None:
    storage = MemoryStorage()
    first = delivered(storage, 3, pa.table({"n": [1, 2]}), pa.table({"n": [3]}))
    for _ in range(2):
        sink = taken(tmp_path)
        sink.publish(first)
        expire(iceberg_table(tmp_path))
        sink.publish(first)
    assert numbers(tmp_path) == [1, 2, 3]
    assert sink.markers() == [EpochId(ATTEMPT, 3)]
    assert sink_in(tmp_path, "another").markers() == []


@pytest.mark.cell("N", "stops", "iceberg")
@pytest.mark.parametrize("has_written", [False, True])
@pytest.mark.parametrize("epochs", [0, 1])
def test_who_has_lost_the_table_commits_nothing(
    tmp_path: Path, epochs: int, has_written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not before its commit, and not in the middle of it: it is stopped there, and another one takes the table, whether
    that has written anything by then or not."""
    storage, before = MemoryStorage(), taken(tmp_path)
    for n in range(epochs):
        before.publish(delivered(storage, n + 1, pa.table({"n": [n]})))
    from pyiceberg.table import Transaction

    plain = Transaction.commit_transaction

    def stopped(transaction: Transaction) -> Any:
        monkeypatch.setattr(Transaction, "commit_transaction", plain)
        now = taken(tmp_path, OTHER)
        if has_written:
            now.publish(delivered(storage, 7, pa.table({"n": [70]}), attempt=OTHER))
        return plain(transaction)

    monkeypatch.setattr(Transaction, "commit_transaction", stopped)
    with pytest.raises(EngineStopped, match="was taken over by another attempt"):
        before.publish(delivered(storage, 8, pa.table({"n": [80]})))
    assert numbers(tmp_path) == [*range(epochs), *([70] if has_written else [])]


def test_two_jobs_and_others_write_a_table_at_once(tmp_path: Path) -> None:
    """Each commit that somebody else was before is tried again, and none twice."""
    taken(tmp_path).publish(delivered(MemoryStorage(), 1, pa.table({"n": [0]})))

    def write(number: int) -> None:
        storage, sink = MemoryStorage(), taken(tmp_path, OTHER, f"job {number}")
        for n in range(8):
            sink.publish(delivered(storage, n + 1, pa.table({"n": [100 * number + n]}), attempt=OTHER))

    def append() -> None:
        for n in range(8):
            iceberg_table(tmp_path).append(pa.table({"n": [1000 + n]}))

    with ThreadPoolExecutor(3) as threads:
        for done in [threads.submit(write, 1), threads.submit(write, 2), threads.submit(append)]:
            done.result()
    assert numbers(tmp_path) == [0, *range(100, 108), *range(200, 208), *range(1000, 1008)]
    expire(iceberg_table(tmp_path))
    assert sink_in(tmp_path, "job 1").markers() == [EpochId(OTHER, n + 1) for n in range(8)]


def test_jobs_that_begin_at_once_make_one_catalog(tmp_path: Path) -> None:
    """And each table of its namespace, which is there once."""
    begun = Barrier(4)

    def write(number: int) -> None:
        options = {"type": "iceberg", "table": f"shop.t{number % 2}", "warehouse": "lake"}
        sink = IcebergTable(Operator("out", Kind.SINK, 2, 8, connector=options), str(tmp_path), f"job {number}")
        sink.take(ATTEMPT, [], 0)
        rows = delivered(MemoryStorage(), 1, pa.table({"n": [number]}))
        begun.wait()
        sink.publish(rows)

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(write, number) for number in range(4)]:
            done.result()
    for name, rows in (("t0", [0, 2]), ("t1", [1, 3])):
        assert sorted(iceberg_table(tmp_path, name).scan().to_arrow()["n"].to_pylist()) == rows
    assert sorted(path.name for path in (tmp_path / "lake").iterdir()) == ["catalog.db", "shop"]


def test_a_catalog_is_not_there_before_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    plain, making = SqlCatalog.create_tables, []

    def create(catalog: SqlCatalog) -> None:
        making.append((tmp_path / "lake" / "catalog.db").exists())
        plain(catalog)

    monkeypatch.setattr(SqlCatalog, "create_tables", create)
    taken(tmp_path).publish(delivered(MemoryStorage(), 1, pa.table({"n": [1]})))
    assert making == [False]


def test_a_catalog_that_answers_again_gets_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    storage, sink = MemoryStorage(), taken(tmp_path)
    sink.publish(delivered(storage, 1, pa.table({"n": [1]})))
    plain, away = SqlCatalog.load_table, [None] * 3

    def load(catalog: SqlCatalog, name: Any) -> Any:
        if away:
            away.pop()
            raise ConnectionError("away")
        return plain(catalog, name)

    monkeypatch.setattr(SqlCatalog, "load_table", load)
    sink.publish(delivered(storage, 2, pa.table({"n": [2]})))
    assert numbers(tmp_path) == [1, 2]


def test_a_catalog_that_does_not_answer_stops_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    storage, sink = MemoryStorage(), taken(tmp_path)
    sink.publish(delivered(storage, 1, pa.table({"n": [1]})))

    def commit(catalog: SqlCatalog, *arguments: Any) -> Any:
        raise ConnectionError("away")

    monkeypatch.setattr(SqlCatalog, "commit_table", commit)
    monkeypatch.setattr(patience, "SECONDS", 0.01)
    with pytest.raises(EngineStopped, match=r"iceberg:shop.out cannot be written: away"):
        sink.publish(delivered(storage, 2, pa.table({"n": [2]})))
    assert numbers(tmp_path) == [1]


@pytest.mark.parametrize("lands", ["before", "never", "late"])
def test_what_became_of_a_commit_that_broke_off_is_looked_up(
    tmp_path: Path, lands: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """late: after it was looked for, when the next one is on its way."""
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.exceptions import CommitStateUnknownException

    storage, sink = MemoryStorage(), taken(tmp_path)
    sink.publish(delivered(storage, 1, pa.table({"n": [1]})))
    plain, broken = SqlCatalog.commit_table, []

    def commit(catalog: SqlCatalog, *arguments: Any) -> Any:
        if not broken:
            broken.append(arguments)
            if lands == "before":
                plain(catalog, *arguments)
            raise CommitStateUnknownException("504 Gateway Timeout")
        if lands == "late" and len(broken) == 1:
            broken.append(())
            plain(catalog, *broken[0])
        return plain(catalog, *arguments)

    monkeypatch.setattr(SqlCatalog, "commit_table", commit)
    sink.publish(delivered(storage, 2, pa.table({"n": [2]})))
    assert broken
    assert numbers(tmp_path) == [1, 2]


def test_what_was_left_behind_is_not_shown_again(tmp_path: Path) -> None:
    storage, sink = MemoryStorage(), taken(tmp_path)
    sink.publish(delivered(storage, 1, pa.table({"n": [1]})))
    sink.publish(delivered(storage, 2, pa.table({"n": [2]})))
    sink.take(OTHER, [EpochId(ATTEMPT, 2)], 0)
    assert sink.markers() == [EpochId(ATTEMPT, 1)]


def test_what_was_left_behind_is_not_shown_again_when_its_epochs_are_pruned(tmp_path: Path) -> None:
    """The snapshots still name the epochs whose markers the table's property no longer has."""
    storage, sink = MemoryStorage(), taken(tmp_path)
    epochs = [EpochId(ATTEMPT, number) for number in (1, 2, 3)]
    for epoch in epochs:
        sink.publish(delivered(storage, epoch.number, pa.table({"n": [epoch.number]})))
    sink.take(OTHER, epochs, 0)
    sink.take(OTHER, [], 9)
    assert sink.markers() == []
    assert sink.has(epochs[0])


def test_a_property_that_was_unset_is_made_again_from_what_snapshots_say(tmp_path: Path) -> None:
    storage, sink = MemoryStorage(), taken(tmp_path)
    sink.publish(delivered(storage, 1, pa.table({"n": [1]})))
    with iceberg_table(tmp_path).transaction() as transaction:
        transaction.remove_properties("abs.sink.job/out")
    taken(tmp_path).publish(delivered(MemoryStorage(), 1, pa.table({"n": [1]})))
    assert numbers(tmp_path) == [1]


def test_a_property_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    taken(tmp_path).publish(delivered(MemoryStorage(), 1, pa.table({"n": [1]})))
    with iceberg_table(tmp_path).transaction() as transaction:
        transaction.set_properties({"abs.sink.job/out": '{"epochs": 3}'})
    with pytest.raises(EngineStopped, match=r"the property abs.sink.job/out of iceberg:shop.out cannot be read"):
        sink_in(tmp_path).markers()


@pytest.mark.parametrize("what", ["dropped", "set back"])
def test_what_is_done_to_the_table_while_the_job_runs_stops_it(tmp_path: Path, what: str) -> None:
    storage, sink = MemoryStorage(), taken(tmp_path)
    for n in (1, 2):
        sink.publish(delivered(storage, n, pa.table({"n": [n]})))
    table = iceberg_table(tmp_path)
    if what == "dropped":
        table.catalog.drop_table("shop.out")
    else:
        table.manage_snapshots().rollback_to_snapshot(table.snapshots()[0].snapshot_id).commit()
    with pytest.raises(EngineStopped, match=r"is missing: the sink|was set back"):
        sink.publish(delivered(storage, 3, pa.table({"n": [3]})))


def test_a_catalog_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    taken(tmp_path).publish(delivered(MemoryStorage(), 1, pa.table({"n": [1]})))
    for metadata in (tmp_path / "lake" / "shop" / "out" / "metadata").glob("*.json"):
        metadata.unlink()
    with pytest.raises(EngineStopped, match=r"the table iceberg:shop.out cannot be read"):
        sink_in(tmp_path).unmet(None)
    (tmp_path / "lake" / "catalog.db").write_bytes(b"no database" * 100)
    with pytest.raises(EngineStopped, match=r"catalog of iceberg:shop.out cannot be reached"):
        sink_in(tmp_path).unmet(None)


@pytest.mark.parametrize("place", ["warehouse", "uri"])
def test_asking_makes_nothing(tmp_path: Path, place: str) -> None:
    where = {"warehouse": str(tmp_path / "lake"), "uri": f"sqlite:///{tmp_path}/catalog.db"}
    options = {"type": "iceberg", "table": "shop.out", place: where[place]}
    sink = IcebergTable(Operator("out", Kind.SINK, 2, 8, connector=options), str(tmp_path), "job")
    assert sink.unmet(None) == []
    assert sink.unmet(pa.schema([("n", pa.int64())])) == []
    assert sink.markers() == []
    assert sink.undone(None) is None
    assert list(tmp_path.iterdir()) == []


# -- columns -------------------------------------------------------------------------------------------------

NOON = datetime.datetime(2026, 1, 2, 12, 0, 0, 123456)
EVERY = pa.table(
    {
        "whole": pa.array([1, -(2**62)], pa.int64()),
        "short": pa.array([1, -3], pa.int16()),
        "natural": pa.array([0, 2**64 - 1], pa.uint64()),
        "text": ["a", None],
        "sorted": pa.array(["x", "y"]).dictionary_encode(),
        "is_so": [True, False],
        "real": [0.5, float("inf")],
        "half": pa.array([0.5, 1.5], pa.float32()),
        "at": pa.array([NOON, None], pa.timestamp("us")),
        "second": pa.array([1, 2], pa.timestamp("s")),
        "in_berlin": pa.array([NOON, NOON], pa.timestamp("us", "Europe/Berlin")),
        "day": pa.array([datetime.date(2026, 1, 2), None]),
        "bytes": [b"\0\xff", b""],
        "price": pa.array([Decimal("1.25"), None], pa.decimal128(10, 2)),
        "items": [[1, None], []],
        "pair": [{"a": 1, "b": "x"}, None],
        "words": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
    }
)


def test_every_type_of_a_column_comes_back(tmp_path: Path) -> None:
    taken(tmp_path).publish(delivered(MemoryStorage(), 1, EVERY))
    table = iceberg_table(tmp_path)
    assert table.scan().to_arrow().select(EVERY.column_names).to_pylist() == EVERY.to_pylist()
    files = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
    rows = duckdb.sql(f'select whole, text, price, "at" from read_parquet({files!r})').fetchall()
    assert rows == [(1, "a", Decimal("1.25"), NOON), (-(2**62), None, None, None)]


def test_columns_that_iceberg_cannot_have_are_named(tmp_path: Path) -> None:
    rows = pa.table({"n": [1], "took": pa.array([1], pa.duration("us")), "nothing": pa.nulls(1)})
    with pytest.raises(JobFailed, match=r"Iceberg has no type for took \(duration\[us\]\), nothing \(null\)"):
        taken(tmp_path).publish(delivered(MemoryStorage(), 1, rows))


def test_a_task_whose_column_is_all_null_takes_the_type_of_the_others(tmp_path: Path) -> None:
    rows = pa.table({"n": [1], "text": pa.nulls(1)}), pa.table({"n": [2], "text": ["a"]})
    taken(tmp_path).publish(delivered(MemoryStorage(), 1, *rows))
    assert iceberg_table(tmp_path).scan().to_arrow().to_pylist() == [{"n": 1, "text": None}, {"n": 2, "text": "a"}]


def made(folder: Path, schema: pa.Schema, **more: Any) -> Any:
    """A table of others."""
    os.makedirs(folder / "lake")
    from pyiceberg.catalog import load_catalog

    lake = folder / "lake"
    catalog = load_catalog("default", type="sql", uri=f"sqlite:///{lake}/catalog.db", warehouse=str(lake))
    catalog.create_namespace("shop")
    return catalog.create_table("shop.out", schema, **more)


def test_a_table_that_is_there_may_have_another_order_wider_types_and_optional_columns(tmp_path: Path) -> None:
    made(tmp_path, pa.schema([("of_others", pa.string()), ("text", pa.string()), ("n", pa.int64())]))
    taken(tmp_path).publish(delivered(MemoryStorage(), 1, pa.table({"n": pa.array([1], pa.int32()), "text": ["a"]})))
    assert iceberg_table(tmp_path).scan().to_arrow().to_pylist() == [{"of_others": None, "text": "a", "n": 1}]


def test_a_table_that_requires_a_column_takes_rows_without_nulls_in_it(tmp_path: Path) -> None:
    made(tmp_path, pa.schema([pa.field("n", pa.int64(), nullable=False)]))
    storage, sink = MemoryStorage(), taken(tmp_path)
    sink.publish(delivered(storage, 1, pa.table({"n": [1]})))
    with pytest.raises(JobFailed, match="column n contains nulls, which the table does not allow"):
        sink.publish(delivered(storage, 2, pa.table({"n": [2, None]})))
    assert numbers(tmp_path) == [1]


def test_columns_that_disagree_are_named_with_both_types_and_rows_wait(tmp_path: Path) -> None:
    table = made(tmp_path, pa.schema([("n", pa.string()), pa.field("id", pa.int64(), nullable=False)]))
    storage, sink = MemoryStorage(), taken(tmp_path)
    rows = delivered(storage, 1, pa.table({"n": [1], "more": ["a"]}))
    with pytest.raises(JobFailed) as refused:
        sink.publish(rows)
    assert "column n is int64 in the rows, string in the table" in refused.value.message
    assert "rows have a column more (string), which the table does not have" in refused.value.message
    assert "the table requires a column id (int64), which rows do not have" in refused.value.message
    with table.update_schema(allow_incompatible_changes=True) as schema:
        schema.delete_column("n").delete_column("id")
    with iceberg_table(tmp_path).update_schema() as schema:
        from pyiceberg.types import LongType, StringType

        schema.add_column("n", LongType()).add_column("more", StringType())
    sink.publish(rows)
    assert iceberg_table(tmp_path).scan().to_arrow().to_pylist() == [{"n": 1, "more": "a"}]


def test_a_table_of_partitions_gets_a_commit_an_epoch(tmp_path: Path) -> None:
    from pyiceberg.transforms import IdentityTransform

    table = made(tmp_path, pa.schema([("n", pa.int64()), ("day", pa.string())]))
    with table.update_spec() as spec:
        spec.add_field("day", IdentityTransform())
    storage, sink = MemoryStorage(), taken(tmp_path)
    rows = pa.table({"n": [1, 2, 3], "day": ["a", "b", "a"]})
    sink.publish(delivered(storage, 1, rows))
    table = iceberg_table(tmp_path)
    assert len(list(table.scan().plan_files())) == 2
    assert len(commits(tmp_path)) == 1
    assert numbers(tmp_path) == [1, 2, 3]


# -- catalogs that others keep -------------------------------------------------------------------------------

JOB = """version: 1
job: shopping
operators:
  rows: {{source: {{type: generate, rows: 20, columns: {{id: row}}}}}}
  out: {{from: rows, sink: {{type: iceberg, table: shop.out, {where}}}}}
"""


def ran(folder: Path, where: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`abs run` of a job with such a sink, as a user with such settings starts it."""
    (folder / "job.yaml").write_text(JOB.format(where=where))
    command = [sys.executable, "-m", "abscli.cli.main", "run", "job.yaml", "--store", "store", "--engine", "inline"]
    command += options
    return subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT), **environment}, text=True,
        capture_output=True, timeout=300,
    )  # fmt: skip


def test_a_catalog_by_name_is_that_of_the_users_settings_and_none_of_them_is_kept(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    settings = {
        "PYICEBERG_CATALOG__PROD__URI": f"sqlite:///{tmp_path}/lake/catalog.db",
        "PYICEBERG_CATALOG__PROD__WAREHOUSE": str(tmp_path / "lake"),
        "PYICEBERG_CATALOG__PROD__S3__SECRET_ACCESS_KEY": "secretword",
    }
    done = ran(tmp_path, "catalog: prod", **settings)
    assert done.returncode == 0, done.stderr
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("prod", uri=settings["PYICEBERG_CATALOG__PROD__URI"])
    assert sorted(catalog.load_table("shop.out").scan().to_arrow()["id"].to_pylist()) == list(range(20))
    catalog.close()
    kept = b"".join(path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file())
    assert b"secretword" not in kept
    assert b"catalog.db" not in kept


def test_a_catalog_that_no_settings_know_is_refused_with_what_to_set(tmp_path: Path) -> None:
    done = ran(tmp_path, "catalog: prod")
    assert done.returncode == 2
    assert "sink out: catalog 'prod' cannot be used" in done.stderr
    assert "PYICEBERG_CATALOG__PROD__URI in the environment" in done.stderr


def test_a_password_of_the_users_settings_is_not_shown(tmp_path: Path) -> None:
    done = ran(tmp_path, "catalog: prod", PYICEBERG_CATALOG__PROD__URI="nothing://abs:secretword@db/lake")
    assert done.returncode == 2
    assert "nothing://…@db/lake" in done.stderr
    assert "secretword" not in done.stdout + done.stderr


def test_a_catalog_that_cannot_be_reached_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "SECONDS", 0.1)
    options = {"type": "iceberg", "table": "shop.out", "uri": "http://127.0.0.1:9"}
    sink = IcebergTable(Operator("out", Kind.SINK, 1, 8, connector=options), str(tmp_path), "job")
    for hold in (contextlib.nullcontext, sink.hold):
        with hold(), pytest.raises(EngineStopped, match=r"the catalog of iceberg:shop.out cannot be reached"):
            sink.unmet(None)


def test_a_warehouse_in_the_store_is_refused(tmp_path: Path) -> None:
    done = ran(tmp_path, "warehouse: store/lake")
    assert done.returncode == 2
    assert "is inside the store" in done.stderr


def test_a_dry_run_says_which_columns_a_table_does_not_take(tmp_path: Path) -> None:
    made(tmp_path, pa.schema([("id", pa.string()), pa.field("at", pa.int64(), nullable=False)]))
    done = ran(tmp_path, "warehouse: lake", "--dry-run")
    assert done.returncode == 2
    words = " ".join((done.stdout + done.stderr).split())
    assert "job.yaml:5:" in words
    assert "column id is int64 in the rows, string in the table" in words
    assert "the table requires a column at (int64), which rows do not have" in words
    assert not (tmp_path / "store").exists()
