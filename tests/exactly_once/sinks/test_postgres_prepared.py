"""A PostgreSQL sink that appends rows: they wait in prepared transactions; a real server."""


from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from abscli.engine.errors import EngineStopped
from abscli.engine.postgres.database import Table
from abscli.engine.sinks.outputs import Outputs
from abscli.engine.sinks.postgres.epochs import Epochs, end
from abscli.engine.sinks.postgres.sink import PostgresSink
from abscli.report.findings import Code
from abscli.stores.native.removing.garbage import carry_out, plan_removal
from formats.errors import Damaged
from formats.native.remove import newest_attempt
from formats.native.transactions import Transaction
from formats.storage import LocalStorage
from tests.support.jobs.lines import (
    Gate,
    Lines,
    copy_while_it_changes,
    killed,
    make_table,
    write_lines,
)
from tests.support.postgres import Postgres, execute, prepared_in, rows

TABLE = "shown"


@pytest.fixture
def lines(
    tmp_path: Path, gate: Gate, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> Lines:
    """The job with its sink in a table of its own."""
    monkeypatch.setenv("LINES_DATABASE", postgres_server.url)
    make_table(postgres_server.url, TABLE, "postgres")
    write_lines(tmp_path, 6)
    return Lines(tmp_path, gate, TABLE, "postgres")


def every_finding(lines: Lines) -> list[tuple[str, str | None]]:
    report = lines.validated()
    every = [*report.findings, *(finding for row in report.epochs for finding in row.findings)]
    return [(str(f.code), f.path) for f in every if f.code not in (Code.MISSING_ACK, Code.UNREFERENCED_FILE)]


def collected(lines: Lines) -> list[str]:
    store = lines.store()
    removal = plan_removal(store, 100, min_age=0, targets=lines.targets())
    assert isinstance(store.storage, LocalStorage)
    carry_out(store.storage, removal, newest_attempt(store.storage), lines.targets())
    return [orphan.path for orphan in removal.orphans if orphan.removable and orphan.path.startswith("postgres:")]


def test_nothing_shows_before_the_manifest_and_all_of_it_after_a_restart(
    lines: Lines, postgres_server: Postgres
) -> None:
    killed(lines, "reveal", 2)
    store = lines.store()
    named = {file.prepared for part in store.parts(lines.complete()[-1]) for file in part.sink}
    assert named <= set(prepared_in(postgres_server.url))
    shown = lines.shown().total()
    lines.resume(epochs=1)
    assert lines.shown().total() > shown
    lines.resume()
    assert lines.wrong() == {}
    secrets = [path for path in lines.folder.rglob("*.json") if b"host=" in path.read_bytes()]
    assert secrets == []


@pytest.mark.cell("D", "stops", "postgres")
def test_a_server_that_is_replaced_by_a_copy_with_half_of_an_epoch_ends_the_job(
    lines: Lines, postgres_server: Postgres
) -> None:
    """A replica that lagged behind has replayed one of two commits: the other transaction is still prepared there."""
    url, halved = postgres_server.url, list[int]()

    def fail_over(epochs: int) -> None:
        if epochs < 4 or halved:
            return
        part = next(part for part in lines.store().parts(lines.complete()[-1]) if str(part.task) == "out/1")
        for file in part.sink:
            key = f"attempt_id = '{part.attempt_id}' and epoch = {part.epoch}"
            begin = f"begin; insert into {TABLE} select * from gone; insert into abs_epochs select * from mark"
            execute(
                url, "drop table if exists gone, mark",
                f"create table mark as select * from abs_epochs where {key} and task = 1",
                f"create table gone as select line from {TABLE} where line like 'line 1 %' order by "
                f"substr(line, 8)::int desc limit {file.rows}",
                f"delete from {TABLE} where line in (select line from gone)",
                f"delete from abs_epochs where {key} and task <> 0",
                f"{begin}; prepare transaction '{file.prepared}'",
            )  # fmt: skip
            halved.append(file.rows)

    with pytest.raises(EngineStopped, match="but lost them while the job ran"):
        lines.run(at=fail_over)
    assert halved
    lines.resume()
    execute(url, "drop table gone, mark")
    assert lines.wrong() == {}


def test_what_somebody_rolled_back_is_missed(lines: Lines, postgres_server: Postgres) -> None:
    killed(lines, "reveal", 3)
    for gid in prepared_in(postgres_server.url):
        execute(postgres_server.url, f"rollback prepared '{gid}'")
    with pytest.raises(Damaged, match="neither prepared nor committed"):
        lines.resume()
    lines.resume(accept_missing=True)
    assert set(lines.wrong().values()) == {-1}


def test_rows_that_an_epoch_of_another_branch_names_stay_prepared(lines: Lines, postgres_server: Postgres) -> None:
    killed(lines, "reveal", 3)
    *_, parent, newest = lines.complete()
    named = {file.prepared for part in lines.store().parts(newest) for file in part.sink}
    pending = named & set(prepared_in(postgres_server.url))
    assert pending
    lines.run(from_epoch=parent, epochs=1)
    assert pending <= set(prepared_in(postgres_server.url))
    lines.run(from_epoch=newest, take_ownership=True)
    assert set(lines.wrong().values()) == {1}  # both branches have committed some rows


def test_rows_that_a_store_prepared_after_it_was_copied_stay_prepared(
    lines: Lines, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy does not know which later epochs of the original store are complete."""
    plain, reveals = Outputs.publish, list[Any]()

    def publish(outputs: Outputs, parts: Any) -> Mapping[str, float]:
        if any(part.sink for part in parts):
            reveals.append(parts)
        if len(reveals) == 2:
            copy_while_it_changes(lines.folder / "a", lines.folder / "b")
        if len(reveals) == 5:
            raise EngineStopped("the driver was killed")
        return plain(outputs, parts)

    with monkeypatch.context() as patch:
        patch.setattr(Outputs, "publish", publish)
        with pytest.raises(EngineStopped, match="the driver was killed"):
            lines.run()
    pending = set(prepared_in(postgres_server.url))
    assert pending >= {file.prepared for part in reveals[-1] for file in part.sink}
    lines.resume("b", epochs=1, take_ownership=True)
    assert pending <= set(prepared_in(postgres_server.url))
    lines.resume("a", take_ownership=True)
    assert set(lines.wrong().values()) == {1}  # the copy and the original have committed some rows


def test_what_nobody_will_finish_is_named_and_given_up(lines: Lines, postgres_server: Postgres) -> None:
    killed(lines, "manifest", 3)
    named = {file.prepared for epoch in lines.complete() for part in lines.store().parts(epoch) for file in part.sink}
    left = {f"postgres:{TABLE}/{gid}" for gid in prepared_in(postgres_server.url) if gid not in named}
    assert left
    assert set(every_finding(lines)) == {("abandoned-transaction", uri) for uri in left}
    assert set(collected(lines)) == left
    assert every_finding(lines) == []
    lines.resume()
    assert lines.wrong() == {}


def test_what_an_epoch_names_or_another_store_has_prepared_is_not_given_up(
    lines: Lines, postgres_server: Postgres
) -> None:
    killed(lines, "reveal", 3)
    before = prepared_in(postgres_server.url)
    assert before
    stranger = Transaction("f" * 32, 1, 0, "out").gid("0" * 8)
    execute(postgres_server.url, f"begin; insert into {TABLE} values ('x'); prepare transaction '{stranger}'")
    assert set(every_finding(lines)) == {("sink-part-pending", f"postgres:{TABLE}/{gid}") for gid in before}
    assert collected(lines) == []
    assert prepared_in(postgres_server.url) == sorted([*before, stranger])
    execute(postgres_server.url, f"rollback prepared '{stranger}'")


def test_while_a_copy_of_the_store_runs_nothing_is_given_up(lines: Lines, postgres_server: Postgres) -> None:
    killed(lines, "manifest", 3)
    before = prepared_in(postgres_server.url)
    with psycopg.connect(postgres_server.url) as other:
        other.execute("select pg_advisory_lock(hashtextextended('abs:copied:shown', 0))")
        assert collected(lines) == []
    assert prepared_in(postgres_server.url) == before


def test_rows_that_are_neither_prepared_nor_committed_are_missing(lines: Lines, postgres_server: Postgres) -> None:
    killed(lines, "reveal", 3)
    gids = prepared_in(postgres_server.url)
    for gid in gids:
        execute(postgres_server.url, f"rollback prepared '{gid}'")
    assert set(every_finding(lines)) == {("sink-part-missing", f"postgres:{TABLE}/{gid}") for gid in gids}


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
    assert prepared_in(postgres_server.url) == [again.prepared] != [lost.prepared]
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
    assert prepared_in(postgres_server.url) == [part.prepared]
