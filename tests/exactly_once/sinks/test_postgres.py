"""A sink in PostgreSQL that appends rows or replaces them by key: each row is written once; a real server."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import psycopg
import pytest
from msgspec.structs import replace

from abscli.engine import patience
from abscli.engine.errors import EngineStopped, JobFailed, UsageError
from abscli.engine.postgres.database import Table
from abscli.engine.sinks.postgres.epochs import Epochs
from abscli.engine.sinks.postgres.upsert import UpsertedTable
from abscli.engine.sinks.staged.contract import Delivery, StagedPart
from abscli.engine.telemetry.news import News, StaysWritten
from abscli.planner.target import undelivered
from abscli.report.findings import Code, SinkVerdict
from abscli.stores.native.removing.garbage import carry_out, plan_removal
from formats.errors import Damaged, StoreInUse
from formats.ids import EpochId
from formats.native.facts import SinkFile, digest
from formats.native.remove import newest_attempt
from formats.native.sink import Stretch
from formats.native.transactions import Transaction
from formats.storage import LocalStorage, MemoryStorage
from tests.support.jobs.lines import (
    LINES_AN_EPOCH,
    Gate,
    Lines,
    killed,
    make_table,
    restore_to,
    write_lines,
)
from tests.support.postgres import Postgres, execute, prepared_in, rows

TABLE = "shown"
EPOCHS = 6
ATTEMPT = "a" * 32


@pytest.fixture(params=["postgres", "upsert"])
def lines(
    tmp_path: Path, gate: Gate, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Lines:  # fmt: skip
    """The job with its sink in a table of its own, in each mode: `shown` counts how often each line was written."""
    url = postgres_server.url
    monkeypatch.setenv("LINES_DATABASE", url)
    make_table(url, TABLE, request.param)
    write_lines(tmp_path, EPOCHS)
    return Lines(tmp_path, gate, TABLE, request.param)


by_key = pytest.mark.parametrize("lines", ["upsert"], indirect=True)
appended = pytest.mark.parametrize("lines", ["postgres"], indirect=True)


def recreate(lines: Lines, *, keep_written: bool = False) -> None:
    """Drop the table and create it again in one transaction, so that a job that runs never finds no table.

    keep_written: keep the table that counts the rows written by key.
    """
    url, columns = os.environ["LINES_DATABASE"], "line text primary key" if lines.type == "upsert" else "line text"
    statements = [f"drop table {TABLE}", f"create table {TABLE} ({columns})"]
    if lines.type == "upsert":
        statements += [] if keep_written else [f"truncate {TABLE}_written"]
        statements += [f"create trigger note before insert on {TABLE} for each row execute function {TABLE}_note()"]
    execute(url, "; ".join(statements))


def staged(lines: Lines, epoch: int) -> list[SinkFile]:
    """What an epoch names."""
    return [file for part in lines.store().parts(epoch) for file in part.sink]


def findings(lines: Lines, *codes: Code) -> list[str]:
    """Of the store, or of an epoch: the files that these are about."""
    report = lines.validated()
    every = [*report.findings, *(finding for row in report.epochs for finding in row.findings)]
    return [finding.path or "" for finding in every if finding.code in codes]


@pytest.mark.cell("A", "exact")
@pytest.mark.parametrize(
    ("lines", "where"),
    [
        *(("postgres", where) for where in ("filled", "prepare", "manifest", "reveal", "commit")),
        *(("upsert", where) for where in ("staged", "manifest", "reveal", "merging", "shown")),
    ],
    indirect=["lines"],
)
def test_killed_at_any_step_it_goes_on(lines: Lines, where: str, postgres_server: Postgres) -> None:
    killed(lines, where, 5 if lines.type == "postgres" else 4)
    lines.go_on()
    assert lines.wrong() == {}
    assert lines.shown().total() == rows(postgres_server.url, f"select count(*) from {TABLE}")[0][0]
    assert prepared_in(postgres_server.url) == []


@by_key
def test_rows_show_after_the_manifest_only_and_at_once_after_a_restart(lines: Lines) -> None:
    killed(lines, "reveal", 2)
    newest = lines.complete()[-1]
    waiting = staged(lines, newest)
    assert all(file.staged is not None and lines.store().storage.size(file.staged) == file.bytes for file in waiting)
    shown = lines.shown().total()
    lines.run(from_epoch=newest, epochs=1)
    assert lines.shown().total() >= shown + sum(file.rows for file in waiting)
    lines.resume()
    assert lines.wrong() == {}
    assert [path for path in lines.folder.rglob("*.json") if b"host=" in path.read_bytes()] == []


@by_key
def test_what_waits_is_named_until_it_is_written_and_gc_lets_it_be(lines: Lines) -> None:
    killed(lines, "reveal", 3)
    newest = lines.complete()[-1]
    waiting = [file.staged for file in staged(lines, newest)]
    assert findings(lines, Code.SINK_PART_PENDING) == waiting
    store = lines.store()
    removal = plan_removal(store, 1, min_age=0)
    assert isinstance(store.storage, LocalStorage)
    carry_out(store.storage, removal, newest_attempt(store.storage))
    assert removal.epochs
    assert all(file and lines.store().storage.size(file) is not None for file in waiting)
    lines.resume()
    assert lines.wrong() == {}
    assert findings(lines, Code.SINK_PART_PENDING, Code.MISSING_FILE, Code.UNREFERENCED_FILE) == []


@by_key
def test_rows_that_are_gone_before_they_are_written_are_missed(lines: Lines) -> None:
    killed(lines, "reveal", 3)
    newest = lines.complete()[-1]
    file = next(file.staged for file in staged(lines, newest) if file.staged)
    (lines.folder / "a" / file).unlink()
    with pytest.raises(Damaged, match="rows are missing"):
        lines.run(from_epoch=newest)
    lines.run(from_epoch=newest, accept_missing=True)
    assert set(lines.wrong().values()) == {-1}


@by_key
def test_rows_that_were_changed_are_not_written(lines: Lines) -> None:
    killed(lines, "reveal", 3)
    newest = lines.complete()[-1]
    file = next(file for file in staged(lines, newest) if file.staged)
    path = lines.folder / "a" / str(file.staged)
    path.write_bytes(path.read_bytes().replace(b"line", b"lime"))
    with pytest.raises(Damaged, match=r"staged rows: expected SHA-256"):
        lines.run(from_epoch=newest)
    assert not any(line.startswith("lime") for line in lines.shown())


@pytest.mark.cell("J", "refused")
def test_going_back_behind_what_shows_is_refused_and_then_a_choice(lines: Lines, postgres_server: Postgres) -> None:
    lines.run(epochs=4)
    second = lines.complete()[1]
    with pytest.raises(UsageError, match="cannot be rolled back") as refused:
        lines.run(from_epoch=second)
    assert "--take-ownership" in str(refused.value.hint)
    lines.run(from_epoch=second, epochs=1, take_ownership=True)
    lines.resume()  # what was accepted once is not asked again
    assert set(lines.wrong().values()) == {1}  # written again: what came after the second epoch
    written = rows(postgres_server.url, f"select count(*), count(distinct line) from {TABLE}")
    assert lines.type == "postgres" or written == [(2 * EPOCHS * LINES_AN_EPOCH,) * 2]


@pytest.mark.cell("E", "refused")
def test_a_table_that_was_dropped_and_created_again_is_refused_and_then_a_choice(
    lines: Lines, postgres_server: Postgres
) -> None:
    lines.run(epochs=3)
    before = lines.shown()
    recreate(lines)
    with pytest.raises(UsageError, match=f"{TABLE} was dropped and created again"):
        lines.resume()
    assert not lines.shown()
    (sink,) = lines.validated().sinks
    assert sink.verdict is SinkVerdict.INCOMPLETE
    lines.resume(epochs=1, take_ownership=True)
    lines.resume()
    # The store still has the rows that were staged there, which are written again.
    assert set(lines.wrong()) == (set(before) if lines.type == "postgres" else set())


@pytest.mark.cell("D", "stops")
def test_a_table_that_is_dropped_and_created_again_while_the_job_runs_ends_it(
    lines: Lines, postgres_server: Postgres
) -> None:
    """In a thread: it waits for locks of transactions that the job has prepared, and will commit. If it comes between
    the transactions of two tasks, the second one waits for it, until its time is over."""
    dropping = threading.Thread(target=recreate, args=(lines,))
    with pytest.raises(EngineStopped, match=r"but lost them while the job ran|lock timeout"):
        lines.run(at=lambda epochs: dropping.start() if epochs == 3 else None)
    for gid in prepared_in(postgres_server.url):
        execute(postgres_server.url, f"rollback prepared '{gid}'")
    dropping.join()


def test_a_new_store_may_write_to_a_table_that_was_dropped_and_created_again(
    lines: Lines, postgres_server: Postgres
) -> None:
    lines.run()
    recreate(lines)
    lines.run("b")
    assert lines.wrong() == {}


def test_a_database_that_was_restored_from_a_dump_is_gone_on_with(lines: Lines, postgres_server: Postgres) -> None:
    """All its tables have other object ids then."""
    lines.run(epochs=3)
    by_key = lines.type == "upsert"
    for name in ("abs_writers", "abs_epochs", *([f"{TABLE}_written"] if by_key else [])):
        execute(
            postgres_server.url, f"alter table {name} rename to old", f"create table {name} (like old including all)",
            f"insert into {name} select * from old", "drop table old",
        )  # fmt: skip
    kept = rows(postgres_server.url, f"select line from {TABLE}")
    recreate(lines, keep_written=True)
    execute(
        postgres_server.url, f"alter table {TABLE} disable trigger all",
        *(f"insert into {TABLE} values ('{line}')" for (line,) in kept), f"alter table {TABLE} enable trigger all",
    )  # fmt: skip
    lines.resume()
    assert lines.wrong() == {}


def test_a_restore_of_an_older_epoch_says_what_cannot_be_taken_back(lines: Lines) -> None:
    lines.run(epochs=4)
    newest, second = lines.complete()[-1], lines.complete()[1]
    news: list[News] = []
    restore_to(lines, second, "b", on_news=news.append)
    (stays,) = [one for one in news if isinstance(one, StaysWritten)]
    assert (stays.operator, stays.target, stays.epochs[-1]) == ("out", TABLE, newest)
    assert stays.epochs[0] > second


def test_a_restore_into_another_store_writes_what_waits(lines: Lines) -> None:
    killed(lines, "reveal", 3)
    restore_to(lines, lines.complete()[-1], "b")
    lines.resume("b")
    assert lines.wrong() == {}


def test_a_backup_that_is_put_back_is_refused(lines: Lines) -> None:
    lines.run(epochs=2)
    shutil.copytree(lines.folder / "a", lines.folder / "backup")
    lines.resume(epochs=2)
    with pytest.raises(UsageError, match="cannot be rolled back"):
        lines.resume("backup")


@pytest.mark.cell("N", "stops")
def test_a_driver_that_comes_back_when_others_have_gone_further_writes_nothing(
    lines: Lines, postgres_server: Postgres
) -> None:
    """The server ends while it stands still, so that its connection does not hold the table any more."""

    def others(epoch: int) -> None:
        if epoch == 2:
            execute(postgres_server.url, "update abs_writers set attempt_id = 'other'")

    with pytest.raises(EngineStopped, match="was taken over by another attempt"):
        lines.run(at=others)
    shown = lines.shown().total()
    lines.resume()
    assert lines.shown().total() > shown
    assert lines.wrong() == {}


def test_the_server_is_killed_while_the_job_runs(lines: Lines, postgres_server: Postgres) -> None:
    with postgres_server.restarting(2, 4) as kill:
        lines.run(at=kill)
    assert lines.wrong() == {}
    assert sorted(lines.shown()) == sorted(row for (row,) in rows(postgres_server.url, f"select line from {TABLE}"))


def test_a_server_that_stays_away_stops_the_job_and_loses_nothing(
    lines: Lines, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "SECONDS", 0.5)
    try:
        with pytest.raises(EngineStopped, match="does not answer"):
            lines.run(at=lambda epoch: postgres_server.kill() if epoch == 2 else None)
    finally:
        postgres_server.start()
    lines.resume()
    assert lines.wrong() == {}


def test_one_job_of_a_name_writes_a_table_at_a_time(lines: Lines, postgres_server: Postgres) -> None:
    with psycopg.connect(postgres_server.url) as other:
        other.execute(f"select pg_advisory_lock(hashtextextended('abs:copied:{TABLE}', 0))".encode())
        with pytest.raises(StoreInUse, match="sink out is in use"):
            lines.run()


def test_a_driver_that_has_lost_its_table_commits_nothing(lines: Lines, postgres_server: Postgres) -> None:
    """Its connection has ended, and another job of the same name has locked the table since."""
    url, before = postgres_server.url, list[int]()
    with psycopg.connect(url) as other:

        def lose_table(epochs: int) -> None:
            if epochs == 2:
                execute(url, "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory'")
                other.execute(f"select pg_advisory_lock(hashtextextended('abs:copied:{TABLE}', 0))".encode())
                before.append(lines.shown().total())

        with pytest.raises(EngineStopped, match="was taken over by another job"):
            lines.run(at=lose_table)
    assert [lines.shown().total()] == before
    lines.resume()
    assert lines.wrong() == {}


@appended
@pytest.mark.cell("L", "refused")
def test_rows_that_a_table_does_not_take_fail_the_job_with_the_reason(
    lines: Lines, postgres_server: Postgres
) -> None:
    execute(postgres_server.url, f"drop table {TABLE}")
    with pytest.raises(UsageError, match="there is no table shown"):
        lines.run()
    execute(postgres_server.url, f"create table {TABLE} (other text)")
    with pytest.raises(JobFailed, match=r"shown has no column 'line' .string."):
        lines.run()


def test_a_password_is_in_no_message(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES_DATABASE", "secretword secretword")
    with pytest.raises(UsageError) as refused:
        lines.run()
    assert "secret" not in f"{refused.value} {refused.value.hint} {refused.value.__cause__}"
    monkeypatch.delenv("LINES_DATABASE")
    with pytest.raises(UsageError, match="LINES_DATABASE is not set"):
        lines.run()


def test_a_database_out_of_reach_makes_the_verdict_unknown(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    lines.run(epochs=2)
    monkeypatch.delenv("LINES_DATABASE")
    (sink,) = lines.validated().sinks
    assert (sink.verdict, sink.reason) == (
        SinkVerdict.UNKNOWN, "sink out: the environment variable LINES_DATABASE is not set"
    )  # fmt: skip
    unknown = plan_removal(lines.store(), 100, min_age=0, targets=lines.targets()).sinks_unknown
    assert unknown == (sink.reason if lines.type == "postgres" else None)


@appended
def test_no_identifier_is_taken_for_sql(lines: Lines, postgres_server: Postgres) -> None:
    name = 'odd "; drop table shown; --'
    quoted = name.replace('"', '""')
    execute(postgres_server.url, f'create table "{quoted}" (line text)')
    try:
        lines.out = name
        lines.run(epochs=2)
        assert rows(postgres_server.url, f'select count(*) from "{quoted}"') > [(0,)]
        assert rows(postgres_server.url, f"select count(*) from {TABLE}") == [(0,)]
    finally:
        execute(postgres_server.url, f'drop table "{quoted}"')


@appended
def test_markers_of_kept_epochs_and_the_newest_older_marker_of_each_task_stay(lines: Lines) -> None:
    table = Table.of(lines.graph.operator("out"))
    epochs = Epochs(table, "copied")
    table.ask(epochs.create)
    for task, epoch in [(0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (1, 1), (1, 2)]:
        part = Transaction("a" * 32, epoch, task, "out")
        table.ask(lambda connection, part=part: epochs.note(connection, part, 1, "0" * 64))  # type: ignore[misc]
    table.ask(lambda connection: epochs.forget_below(connection, 4))
    left = {(part.task, part.epoch) for part in table.ask(epochs.shown)}
    assert left == {(0, 3), (0, 4), (0, 5), (1, 2)}


@by_key
def test_a_table_without_the_key_is_refused_before_the_run(lines: Lines, postgres_server: Postgres) -> None:
    execute(postgres_server.url, f"alter table {TABLE} drop constraint {TABLE}_pkey")
    with pytest.raises(UsageError, match="has no primary key or unique index on line"):
        lines.run()
    execute(postgres_server.url, f"alter table {TABLE} rename column line to other")
    with pytest.raises(UsageError, match="does not have all columns of the key: line"):
        lines.run()
    execute(postgres_server.url, f"drop table {TABLE}")
    with pytest.raises(UsageError, match=f"there is no table {TABLE}"):
        lines.run()


def test_rows_that_a_table_does_not_take_wait_until_it_does(lines: Lines, postgres_server: Postgres) -> None:
    execute(postgres_server.url, f"alter table {TABLE} add constraint short check (length(line) < 9)")
    with pytest.raises(JobFailed, match=f'{TABLE} rejected the rows: .* constraint "short"'):
        lines.run()
    execute(postgres_server.url, f"alter table {TABLE} drop constraint short")
    lines.go_on()
    assert lines.wrong() == {}


def delivered(storage: MemoryStorage, epoch: int, *parts: str, first: int = 0) -> Delivery:
    """CSV that tasks have staged for an epoch. first: task."""
    staged = []
    for task, text in enumerate(parts, first):
        data = text.encode()
        path = f"{epoch}-{task}"
        storage.put(path, data)
        file = SinkFile("t", f"part-{task:05d}-{epoch:010d}.csv", len(data), text.count("\n") - 1, digest(data))
        staged.append(StagedPart(Transaction(ATTEMPT, epoch, task, "out"), replace(file, staged=path)))
    return Delivery(EpochId(ATTEMPT, epoch), tuple(staged), storage)


@by_key
def test_the_last_row_of_a_key_stays_and_a_delivery_is_written_once(lines: Lines, postgres_server: Postgres) -> None:
    url, storage = postgres_server.url, MemoryStorage()
    execute(url, f"drop table {TABLE}", f'create table {TABLE} (k text primary key, "the n" int, kept int default 7)')
    target = UpsertedTable(Table("out", TABLE, None, "LINES_DATABASE", None), ["k"], "copied")
    first = delivered(storage, 3, '"k","the n"\n"a",1\n"b",2\n"a",3\n', '"the n","k"\n4,"c"\n,"d"\n')
    second = delivered(storage, 4, '"k","the n"\n"a",9\n', '"k"\n"b"\n')
    with target.hold():
        target.take(ATTEMPT, [], 0)
        target.publish(first)
        assert shown(url) == [("a", 3, 7), ("b", 2, 7), ("c", 4, 7), ("d", None, 7)]
        target.publish(second)
        target.publish(first)
        assert shown(url) == [("a", 9, 7), ("b", 2, 7), ("c", 4, 7), ("d", None, 7)]
    assert target.markers() == [EpochId(ATTEMPT, 3), EpochId(ATTEMPT, 4)]


@by_key
def test_who_has_lost_the_table_writes_nothing(lines: Lines, postgres_server: Postgres) -> None:
    """Its connection, and with it the table, is gone; and another attempt, which has gone on since, has ended."""
    url, delivery = postgres_server.url, delivered(MemoryStorage(), 5, "line\nx\n")
    target, other = target_of(), target_of()
    with target.hold():
        target.take(ATTEMPT, [], 0)
        execute(url, "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory'")
        with other.hold():
            other.take("f" * 32, [], 0)
            with pytest.raises(EngineStopped, match="was taken over by another job"):
                target.publish(delivery)
        with pytest.raises(EngineStopped, match="was taken over by another attempt"):
            target.publish(delivery)
    assert rows(url, f"select line from {TABLE}") == []


def target_of() -> UpsertedTable:
    return UpsertedTable(Table("out", TABLE, None, "LINES_DATABASE", None), ["line"], "copied")


def shown(url: str) -> list[tuple[object, ...]]:
    return rows(url, f'select k, "the n", kept from {TABLE} order by k')


def test_what_is_older_than_what_shows_is_not_written_again() -> None:
    storage, line = MemoryStorage(), [Stretch(ATTEMPT, 3, 9), Stretch("b" * 32, 1, 2)]
    named = [delivered(storage, epoch, "line\nx\n") for epoch in (3, 5, 7)]
    assert undelivered(named, [], line) == named
    assert undelivered(named, [EpochId("b" * 32, 2), EpochId("c" * 32, 9)], line) == named
    assert undelivered(named, [EpochId(ATTEMPT, 5)], line) == named[2:]
    assert undelivered(named, [EpochId(ATTEMPT, 7)], line) == []
