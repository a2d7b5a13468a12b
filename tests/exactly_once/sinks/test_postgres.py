"""A sink in PostgreSQL, two-phase: every row is committed once, whatever is killed; a real server."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from abscli.engine import patience
from abscli.engine.errors import EngineStopped, JobFailed, UsageError
from abscli.engine.postgres.database import Table
from abscli.engine.sinks.postgres.epochs import Epochs, end
from abscli.engine.sinks.postgres.sink import PostgresSink
from abscli.engine.sinks.postgres.tables import Tables
from abscli.report.findings import Code, SinkVerdict
from abscli.stores.native.removing.garbage import carry_out, plan_removal
from formats.errors import Damaged, StoreInUse
from formats.native.remove import newest_attempt
from formats.native.transactions import Transaction
from formats.storage import LocalStorage
from tests.support.jobs.lines import Gate, Lines, copy_while_it_changes, killed, write_lines
from tests.support.postgres import Postgres, execute, rows

TABLE = "shown"
IN_PROGRESS = {Code.MISSING_ACK, Code.UNREFERENCED_FILE}
"""What is said of epochs that a kill has left."""


@pytest.fixture
def lines(
    tmp_path: Path, gate: Gate, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lines]:
    """The job with its sink in a table of its own."""
    monkeypatch.setenv("LINES_DATABASE", postgres_server.url)
    drop_all(postgres_server.url)
    execute(postgres_server.url, f"create table {TABLE} (line text)")
    write_lines(tmp_path, 7)
    yield Lines(tmp_path, gate, TABLE, "postgres")
    drop_all(postgres_server.url)  # what is prepared keeps tables locked, which tests of other sinks make anew


def drop_all(url: str) -> None:
    for gid in waiting(url):
        execute(url, f"rollback prepared '{gid}'")
    execute(url, f"drop table if exists {TABLE}, abs_epochs, abs_writers")


def waiting(url: str) -> list[str]:
    return [gid for (gid,) in rows(url, "select gid from pg_prepared_xacts order by gid")]


@pytest.mark.cell("A", "exact", "postgres")
@pytest.mark.parametrize("where", ["filled", "prepare", "manifest", "reveal", "commit"])
def test_killed_at_any_step_it_goes_on(lines: Lines, where: str, postgres_server: Postgres) -> None:
    killed(lines, where, 5)
    if where in ("filled", "prepare") and not lines.complete():
        lines.run(from_epoch=0)
    else:
        lines.resume()
    assert lines.wrong() == {}
    assert waiting(postgres_server.url) == []


def test_nothing_shows_before_the_manifest_and_all_of_it_after_a_restart(
    lines: Lines, postgres_server: Postgres
) -> None:
    killed(lines, "reveal", 2)
    store = lines.store()
    named = {file.prepared for part in store.parts(lines.complete()[-1]) for file in part.sink}
    assert named <= set(waiting(postgres_server.url))
    shown = lines.shown().total()
    lines.resume(epochs=1)
    assert lines.shown().total() > shown
    lines.resume()
    assert lines.wrong() == {}
    secrets = [path for path in lines.folder.rglob("*.json") if b"host=" in path.read_bytes()]
    assert secrets == []


def test_the_server_is_killed_while_the_job_runs(lines: Lines, postgres_server: Postgres) -> None:
    with postgres_server.restarting(2, 4) as kill:
        lines.run(at=kill)
    assert lines.wrong() == {}
    assert waiting(postgres_server.url) == []


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


@pytest.mark.cell("E", "refused", "postgres")
def test_a_table_that_was_dropped_and_created_again_is_refused_and_then_a_choice(
    lines: Lines, postgres_server: Postgres
) -> None:
    lines.run(epochs=3)
    lost = lines.shown()
    execute(postgres_server.url, f"drop table {TABLE}", f"create table {TABLE} (line text)")
    with pytest.raises(UsageError, match=f"{TABLE} was dropped and created again"):
        lines.resume()
    (sink,) = lines.validated().sinks
    assert sink.verdict is SinkVerdict.INCOMPLETE
    lines.resume(epochs=1, take_ownership=True)
    lines.resume()
    assert set(lines.wrong()) == set(lost)
    assert not lines.shown().keys() & lost.keys()


@pytest.mark.cell("D", "stops", "postgres")
def test_a_table_that_is_dropped_and_created_again_while_the_job_runs_ends_it(
    lines: Lines, postgres_server: Postgres
) -> None:
    def create_again(epochs: int) -> None:
        if epochs == 3:
            execute(postgres_server.url, f"alter table {TABLE} rename to old", f"create table {TABLE} (line text)")

    with pytest.raises(EngineStopped, match="but lost them while the job ran"):
        lines.run(at=create_again)
    execute(postgres_server.url, "drop table if exists old")


@pytest.mark.cell("J", "refused", "postgres")
def test_going_back_behind_what_shows_is_refused_and_then_a_choice(lines: Lines, postgres_server: Postgres) -> None:
    lines.run(epochs=4)
    third = lines.complete()[2]
    with pytest.raises(UsageError, match="cannot be rolled back") as refused:
        lines.run(from_epoch=third)
    assert "--take-ownership" in str(refused.value.hint)
    shown = lines.shown().total()
    lines.run(from_epoch=third, epochs=1, take_ownership=True)
    assert lines.shown().total() > shown
    lines.resume()  # what was accepted once is not asked again
    assert set(lines.wrong().values()) == {1}  # rows of the epoch that was gone back behind


def test_a_backup_that_is_put_back_is_refused(lines: Lines) -> None:
    lines.run(epochs=2)
    shutil.copytree(lines.folder / "a", lines.folder / "backup")
    lines.resume(epochs=2)
    with pytest.raises(UsageError, match="cannot be rolled back"):
        lines.resume("backup")


def test_what_somebody_rolled_back_is_missed(lines: Lines, postgres_server: Postgres) -> None:
    killed(lines, "reveal", 3)
    for gid in waiting(postgres_server.url):
        execute(postgres_server.url, f"rollback prepared '{gid}'")
    with pytest.raises(Damaged, match="neither prepared nor committed"):
        lines.resume()
    lines.resume(accept_missing=True)
    assert set(lines.wrong().values()) == {-1}


def test_one_job_of_a_name_writes_a_table_at_a_time(lines: Lines, postgres_server: Postgres) -> None:
    import psycopg

    with psycopg.connect(postgres_server.url) as other:
        other.execute("select pg_advisory_lock(hashtextextended('abs:copied:shown', 0))")
        with pytest.raises(StoreInUse, match="sink out is in use"):
            lines.run()


def test_a_driver_that_has_lost_its_table_commits_nothing(lines: Lines, postgres_server: Postgres) -> None:
    """Its connection has ended, and another job of the same name has locked the table since."""
    url, before = postgres_server.url, list[int]()
    with psycopg.connect(url) as other:

        def lose_table(epochs: int) -> None:
            if epochs == 2:
                execute(url, "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory'")
                other.execute("select pg_advisory_lock(hashtextextended('abs:copied:shown', 0))")
                before.append(lines.shown().total())

        with pytest.raises(EngineStopped, match="was taken over by another job"):
            lines.run(at=lose_table)
    assert [lines.shown().total()] == before
    lines.resume()
    assert lines.wrong() == {}


def test_rows_that_an_epoch_of_another_branch_names_stay_prepared(lines: Lines, postgres_server: Postgres) -> None:
    killed(lines, "reveal", 3)
    *_, parent, newest = lines.complete()
    named = {file.prepared for part in lines.store().parts(newest) for file in part.sink}
    pending = named & set(waiting(postgres_server.url))
    assert pending
    lines.run(from_epoch=parent, epochs=1)
    assert pending <= set(waiting(postgres_server.url))
    lines.run(from_epoch=newest, take_ownership=True)
    assert set(lines.wrong().values()) == {1}  # both branches have committed some rows


def test_rows_that_a_store_prepared_after_it_was_copied_stay_prepared(
    lines: Lines, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy does not know which later epochs of the original store are complete."""
    plain, reveals = Tables.reveal, list[Any]()

    def reveal(tables: Tables, parts: Any) -> None:
        if any(part.sink for part in parts):
            reveals.append(parts)
        if len(reveals) == 2:
            copy_while_it_changes(lines.folder / "a", lines.folder / "b")
        if len(reveals) == 5:
            raise EngineStopped("the driver was killed")
        plain(tables, parts)

    with monkeypatch.context() as patch:
        patch.setattr(Tables, "reveal", reveal)
        with pytest.raises(EngineStopped, match="the driver was killed"):
            lines.run()
    pending = set(waiting(postgres_server.url))
    assert pending >= {file.prepared for part in reveals[-1] for file in part.sink}
    lines.resume("b", epochs=1, take_ownership=True)
    assert pending <= set(waiting(postgres_server.url))
    lines.resume("a", take_ownership=True)
    assert set(lines.wrong().values()) == {1}  # the copy and the original have committed some rows


@pytest.mark.cell("L", "refused", "postgres")
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


def findings(lines: Lines) -> list[tuple[str, str | None]]:
    report = lines.validated()
    every = [*report.findings, *(finding for row in report.epochs for finding in row.findings)]
    return [(str(f.code), f.path) for f in every if f.code not in IN_PROGRESS]


def collected(lines: Lines) -> list[str]:
    store = lines.store()
    removal = plan_removal(store, 100, min_age=0, targets=lines.targets())
    assert isinstance(store.storage, LocalStorage)
    carry_out(store.storage, removal, newest_attempt(store.storage), lines.targets())
    return [orphan.path for orphan in removal.orphans if orphan.removable and orphan.path.startswith("postgres:")]


def test_what_nobody_will_finish_is_named_and_given_up(lines: Lines, postgres_server: Postgres) -> None:
    killed(lines, "manifest", 3)
    named = {file.prepared for epoch in lines.complete() for part in lines.store().parts(epoch) for file in part.sink}
    left = {f"postgres:{TABLE}/{gid}" for gid in waiting(postgres_server.url) if gid not in named}
    assert left
    assert set(findings(lines)) == {("abandoned-transaction", uri) for uri in left}
    assert set(collected(lines)) == left
    assert findings(lines) == []
    lines.resume()
    assert lines.wrong() == {}


def test_what_an_epoch_names_or_another_store_has_prepared_is_not_given_up(
    lines: Lines, postgres_server: Postgres
) -> None:
    killed(lines, "reveal", 3)
    before = waiting(postgres_server.url)
    assert before
    stranger = Transaction("f" * 32, 1, 0, "out").gid("0" * 8)
    execute(postgres_server.url, f"begin; insert into {TABLE} values ('x'); prepare transaction '{stranger}'")
    assert findings(lines) == []
    assert collected(lines) == []
    assert waiting(postgres_server.url) == sorted([*before, stranger])
    execute(postgres_server.url, f"rollback prepared '{stranger}'")


def test_while_a_copy_of_the_store_runs_nothing_is_given_up(lines: Lines, postgres_server: Postgres) -> None:
    import psycopg

    killed(lines, "manifest", 3)
    before = waiting(postgres_server.url)
    with psycopg.connect(postgres_server.url) as other:
        other.execute("select pg_advisory_lock(hashtextextended('abs:copied:shown', 0))")
        assert collected(lines) == []
    assert waiting(postgres_server.url) == before


def test_rows_that_are_neither_prepared_nor_committed_are_missing(lines: Lines, postgres_server: Postgres) -> None:
    killed(lines, "reveal", 3)
    gids = waiting(postgres_server.url)
    for gid in gids:
        execute(postgres_server.url, f"rollback prepared '{gid}'")
    assert set(findings(lines)) == {("sink-part-missing", f"postgres:{TABLE}/{gid}") for gid in gids}


def test_a_database_out_of_reach_is_said_to_be_unchecked(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    lines.run(epochs=2)
    monkeypatch.delenv("LINES_DATABASE")
    report = lines.validated()
    assert [list(row.unchecked) for row in report.epochs if row.verdict == "complete"][-1] == ["sink-part-missing"]
    assert plan_removal(lines.store(), 100, min_age=0, targets=lines.targets()).sinks_unknown == (
        "sink out: the environment variable LINES_DATABASE is not set"
    )


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


@pytest.mark.cell("K", "exact", "postgres")
def test_a_task_that_does_its_steps_again_stages_its_own_rows_and_not_those_of_the_lost_process(
    lines: Lines, postgres_server: Postgres
) -> None:
    """A function that is not deterministic: the rows of the second process are others."""
    operator = lines.graph.operator("out")
    table, attempt_id = Table.of(operator), "a" * 32
    table.ask(Epochs(table, "copied").create)
    staged = []
    for line in ("of the lost one", "of its successor"):
        sink = PostgresSink(operator, 0, attempt_id, job="copied")
        sink.write(pa.RecordBatch.from_pylist([{"line": line}]))
        staged += sink.cut(1)()
    lost, again = staged
    assert waiting(postgres_server.url) == [again.prepared] != [lost.prepared]
    table.ask(lambda connection: end(connection, "commit", again.prepared or ""))
    assert lines.shown() == {"of its successor": 1}
    assert rows(postgres_server.url, "select sha256 from abs_epochs") == [(again.sha256,)]


def test_a_transaction_that_is_prepared_already_is_not_prepared_again(
    lines: Lines, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer was lost with the connection, after the server had done it."""
    operator = lines.graph.operator("out")
    Table.of(operator).ask(Epochs(Table.of(operator), "copied").create)
    sink = PostgresSink(operator, 0, "a" * 32, job="copied")
    plain, when = PostgresSink._prepare, "select gid, prepared from pg_prepared_xacts"
    tries: list[list[tuple[Any, ...]]] = []

    def prepare(self: PostgresSink, *arguments: Any) -> None:
        plain(self, *arguments)
        tries.append(rows(postgres_server.url, when))
        if len(tries) == 1:
            raise psycopg.OperationalError("the connection is lost")

    monkeypatch.setattr(PostgresSink, "_prepare", prepare)
    sink.write(pa.RecordBatch.from_pylist([{"line": "one"}]))
    (part,) = sink.cut(1)()
    first, second = tries
    assert first == second  # also the time at which it was prepared
    assert waiting(postgres_server.url) == [part.prepared]


def test_markers_of_kept_epochs_and_the_newest_older_marker_of_each_task_stay(
    lines: Lines, postgres_server: Postgres
) -> None:
    table = Table.of(lines.graph.operator("out"))
    epochs = Epochs(table, "copied")
    table.ask(epochs.create)
    for task, epoch in [(0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (1, 1), (1, 2)]:
        part = Transaction("a" * 32, epoch, task, "out")
        table.ask(lambda connection, part=part: epochs.note(connection, part, 1, "0" * 64))  # type: ignore[misc]
    table.ask(lambda connection: epochs.forget_below(connection, 4))
    left = {(part.task, part.epoch) for part in table.ask(epochs.shown)}
    assert left == {(0, 3), (0, 4), (0, 5), (1, 2)}
