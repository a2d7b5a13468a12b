"""A row that a target refuses stops the job before an epoch that has the row is complete: no resume is blocked."""

from __future__ import annotations

import io
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog

from abscli.engine.errors import EngineStopped, JobFailed
from abscli.engine.postgres.database import Table
from abscli.engine.sinks.iceberg.table import IcebergTable
from abscli.engine.sinks.postgres.upsert import UpsertedTable
from abscli.engine.sinks.staged.delta import DeltaSink
from abscli.engine.sinks.staged.trial import PAUSE, Trial
from abscli.report.findings import SinkVerdict
from formats.job.model import Kind, Operator
from tests.support.jobs.lines import Gate, Lines, make_table, write_lines
from tests.support.kafka import Broker
from tests.support.postgres import Postgres, execute, rows

LONG = 2000
"""Characters of the line that is refused; the targets take shorter lines alone."""


def write_long_line(folder: Path) -> None:
    """Input of a dozen epochs, with the long line in the middle of one of its two files."""
    write_lines(folder, 12)
    path = folder / "in" / "1.txt"
    lines = path.read_text().splitlines()
    lines[len(lines) // 2] = "z" * LONG
    path.write_text("\n".join(lines) + "\n")


def check_refused_and_resumed(lines: Lines, repair: Callable[[], None]) -> None:
    with pytest.raises(JobFailed, match="rejected the rows: "):
        lines.run()
    complete = lines.complete()
    with pytest.raises(JobFailed, match="rejected the rows: "):
        lines.go_on()
    assert lines.complete() >= complete
    assert [sink.verdict for sink in lines.validated().sinks] == [SinkVerdict.EXACT]
    repair()
    lines.go_on()
    assert lines.wrong() == {}


@pytest.mark.cell("L", "refused", "delta")
def test_a_delta_table_with_a_constraint(tmp_path: Path, gate: Gate) -> None:
    write_long_line(tmp_path)
    path = str(tmp_path / "out")
    deltalake.write_deltalake(path, pa.table({"line": pa.array([], pa.string())}))
    deltalake.DeltaTable(path).alter.add_constraint({"short": "line < 'z'"})
    lines = Lines(tmp_path, gate, "out", "delta")
    check_refused_and_resumed(lines, lambda: deltalake.DeltaTable(path).alter.drop_constraint("short"))


@pytest.mark.cell("L", "refused", "upsert")
@pytest.mark.integration
@pytest.mark.parametrize("rule", ["check", "trigger", "column"])
def test_a_postgres_table_with_a_rule(
    tmp_path: Path, gate: Gate, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch, rule: str
) -> None:
    write_long_line(tmp_path)
    table, url = f"refused_{uuid.uuid4().hex[:8]}", postgres_server.url
    monkeypatch.setenv("LINES_DATABASE", url)
    make_table(url, table, "upsert")
    add, drop = {
        "check": (f"add constraint short check (length(line) < {LONG})", "drop constraint short"),
        "trigger": (f"add constraint short check (length(line) < {LONG})", "drop constraint short"),
        "column": (f"alter column line type varchar({LONG - 1})", "alter column line type text"),
    }[rule]
    if rule != "trigger":  # the table counts its rows with a trigger; then the rows are inserted, else only copied
        execute(url, f"drop trigger note on {table}")
    execute(url, f"alter table {table} {add}")
    lines = Lines(tmp_path, gate, table, "upsert")
    with pytest.raises(JobFailed, match=f"{table} rejected the rows: "):
        lines.run()
    with pytest.raises(JobFailed, match=f"{table} rejected the rows: "):
        lines.go_on()
    assert [sink.verdict for sink in lines.validated().sinks] == [SinkVerdict.EXACT]
    execute(url, f"alter table {table} {drop}")
    lines.go_on()
    if rule == "trigger":
        assert lines.wrong() == {}
    ((count,),) = rows(url, f"select count(*) from {table}")
    assert count == sum(len(path.read_text().splitlines()) for path in (tmp_path / "in").iterdir())


@pytest.mark.cell("L", "refused", "kafka")
@pytest.mark.integration
def test_a_kafka_topic_with_a_limit(
    tmp_path: Path, gate: Gate, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_long_line(tmp_path)
    topic = f"t-{uuid.uuid4().hex[:8]}"
    broker.make(topic)
    broker.configure(topic, {"max.message.bytes": str(LONG)})
    monkeypatch.setenv("LINES_BROKER", broker.address)
    lines = Lines(tmp_path, gate, topic, "kafka")
    check_refused_and_resumed(lines, lambda: broker.configure(topic, {"max.message.bytes": str(3 * LONG)}))


@pytest.mark.integration
def test_a_delivery_that_postgres_rolled_back_in_a_deadlock_is_made_again(
    tmp_path: Path, gate: Gate, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two transactions take the same two rows in opposite order; one of them is the delivery."""
    write_lines(tmp_path, 4)
    table, url = f"refused_{uuid.uuid4().hex[:8]}", postgres_server.url
    monkeypatch.setenv("LINES_DATABASE", url)
    make_table(url, table, "upsert")
    execute(url, f"insert into {table} values ('line 0 0'), ('zzz')", f"truncate {table}_written")
    deadlocks: list[int] = []
    plain = UpsertedTable._merge

    def merge(self: UpsertedTable, connection: Any, file: Any) -> None:
        if deadlocks or not self._attempt_id:
            plain(self, connection, file)
            return
        other = psycopg.connect(url)
        other.execute("set deadlock_timeout = '10s'")  # so that the delivery is the one that is rolled back
        other.execute(f"select from {table} where line = 'zzz' for update")
        connection.execute(f"select from {table} where line = 'line 0 0' for update")
        waiting = threading.Thread(
            target=other.execute, args=(f"select from {table} where line = 'line 0 0' for update",)
        )
        waiting.start()
        try:
            connection.execute(f"select from {table} where line = 'zzz' for update")
        except psycopg.errors.DeadlockDetected:
            deadlocks.append(1)
            raise
        finally:
            waiting.join(20)
            other.close()

    monkeypatch.setattr(UpsertedTable, "_merge", merge)
    lines = Lines(tmp_path, gate, table, "upsert")
    lines.run()
    assert deadlocks == [1]
    assert lines.wrong() == {}


# -- single targets ---------------------------------------------------------------------------------------------


def parquet(**columns: Any) -> io.BytesIO:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file


@pytest.mark.parametrize(
    ("field", "taken", "refused"),
    [
        (pa.field("n", pa.int64(), nullable=False), [1], [None]),
        (pa.field("n", pa.int32()), [1], [2**40]),
        (pa.field("n", pa.int64()), [2**40], ["two"]),
    ],
)
def test_a_delta_table_refuses_values_that_a_column_cannot_hold(
    tmp_path: Path, field: pa.Field, taken: list[Any], refused: list[Any]
) -> None:
    deltalake.DeltaTable.create(str(tmp_path), pa.schema([field]))
    sink = DeltaSink("out", str(tmp_path), "job")
    sink.try_rows(parquet(n=pa.array(taken, pa.int64())))
    with pytest.raises(JobFailed, match="rejected the rows"):
        sink.try_rows(parquet(n=pa.array(refused, pa.string() if refused == ["two"] else pa.int64())))
    assert deltalake.DeltaTable(str(tmp_path)).version() == 0


@pytest.mark.cell("L", "refused", "iceberg")
def test_an_iceberg_table_refuses_nulls_in_a_required_column_and_other_types(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    catalog = load_catalog("default", type="sql", uri=f"sqlite:///{lake}/catalog.db", warehouse=str(lake))
    catalog.create_namespace("shop")
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False), ("text", pa.string())])
    catalog.create_table("shop.out", schema)
    connector = {"type": "iceberg", "table": "shop.out", "warehouse": "lake"}
    sink = IcebergTable(Operator("out", Kind.SINK, 1, 8, connector=connector), str(tmp_path), "job")
    sink.try_rows(parquet(n=[1], text=["a"]))
    sink.try_rows(parquet(n=[1], text=[None]))
    with pytest.raises(JobFailed, match="column n contains nulls"):
        sink.try_rows(parquet(n=[1, None], text=["a", "b"]))
    with pytest.raises(JobFailed, match="column n is string in the rows"):
        sink.try_rows(parquet(n=["one"], text=["a"]))


@pytest.mark.integration
@pytest.mark.parametrize(
    "statement",
    ["alter table {} add foreign key (s) references {}_other (s)", "create unique index on {} (s)"],
)
def test_a_postgres_table_refuses_rows_by_its_other_tables_and_indexes(
    postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    monkeypatch.setenv("LINES_DATABASE", postgres_server.url)
    table = f"refused_{uuid.uuid4().hex[:8]}"
    execute(
        postgres_server.url, f"create table {table}_other (s text primary key)",
        f"insert into {table}_other values ('a')", f"create table {table} (id int primary key, s text)",
        f"insert into {table} values (1, 'a')", statement.replace("{}", table),
    )  # fmt: skip
    connector = {"type": "postgres", "table": table, "url_env": "LINES_DATABASE", "mode": "upsert", "key": ["id"]}
    sink = UpsertedTable(Table.of(Operator("out", Kind.SINK, 1, 8, connector=connector)), ["id"], "job")
    sink.try_rows(io.BytesIO(b"id,s\n1,a\n"))
    refused = b"id,s\n2,b\n" if "foreign" in statement else b"id,s\n2,a\n"
    with pytest.raises(JobFailed, match="rejected the rows"):
        sink.try_rows(io.BytesIO(refused))
    for text in (b'id,s\n2,"\x00"\n', b"id,s\nx,a\n", b"id,s\n99999999999,a\n"):
        with pytest.raises(JobFailed, match="rejected the rows"):
            sink.try_rows(io.BytesIO(text))
    assert rows(postgres_server.url, f"select * from {table}") == [(1, "a")]


def test_rows_pass_untried_while_the_target_cannot_be_reached_and_are_tried_again_after_a_pause() -> None:
    times: list[float] = []
    now = 0.0

    class Target:
        def try_rows(self, rows: Any) -> None:
            raise JobFailed("rejected the rows")

    def opened() -> Any:
        times.append(now)
        if now < PAUSE:
            raise EngineStopped("no route to host")
        return Target()

    trial = Trial(opened, clock=lambda: now)
    trial(io.BytesIO())
    now = PAUSE - 1
    trial(io.BytesIO())
    assert times == [0.0]
    now = PAUSE
    with pytest.raises(JobFailed):
        trial(io.BytesIO())
    assert times == [0.0, PAUSE]
