"""A PostgreSQL source, and the table of a lookup, whose server or network fails; deadlines are shortened."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import psycopg
import pyarrow as pa
import pytest

from abscli.engine import patience
from abscli.engine.errors import EngineStopped, ServerUnavailable
from abscli.engine.operators.database_table import read_database_table
from abscli.engine.postgres import database, watched
from abscli.engine.runnable import all_faults
from abscli.engine.sources.contract import Source
from abscli.engine.sources.making import make_source
from abscli.engine.sources.postgres import source
from formats.job.model import Edge, Kind, Lookup, Partition, Topology
from tests.support.faulty_proxy import Fate, FaultyProxy, faulty_proxy
from tests.support.jobs.small import operator
from tests.support.postgres import Postgres, execute

TABLE = "read_with_faults"
ROWS = 20
SECONDS = 2.0
"""For which an unreachable database is waited for here."""


@pytest.fixture
def proxy(postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyProxy]:
    monkeypatch.setattr(patience, "SECONDS", SECONDS)
    monkeypatch.setattr(watched, "SILENCE", 0.3)
    monkeypatch.setattr(watched, "ON_ITS_WAY", 0.1)
    monkeypatch.setattr(database, "CONNECT_SECONDS", 2)
    monkeypatch.setattr(database, "LOOK_SECONDS", 2)
    monkeypatch.setattr(source, "SAY_AFTER", 0.1)
    execute(
        postgres_server.url, f"drop table if exists {TABLE}", f"create table {TABLE} (id bigint primary key)",
        f"insert into {TABLE} select generate_series(1, {ROWS})",
    )  # fmt: skip
    with faulty_proxy(str(postgres_server.folder / ".s.PGSQL.5432")) as proxy:
        monkeypatch.setenv("ROWS_DATABASE", f"postgresql://abs@{proxy.address}/postgres")
        yield proxy
    execute(postgres_server.url, f"drop table {TABLE}")


def opened() -> Source:
    connector = {"type": "postgres", "table": TABLE, "key": ["id"], "url_env": "ROWS_DATABASE", "follow": True}
    return make_source(operator("rows", Kind.SOURCE, 1, connector={**connector, "every": "5ms"}), 0, "/", None, None)


def read(source: Source, count: int) -> list[int]:
    """Read until there are so many rows, and for a moment longer."""
    ids: list[int] = []
    until = time.monotonic() + 20
    while time.monotonic() < until:
        batch = source.read()
        assert batch is not None
        if batch.num_rows:
            ids += batch["id"].to_pylist()
            until = min(until, time.monotonic() + 0.2) if len(ids) >= count else until
    return ids


def until_held_up(source: Source, words: str) -> None:
    """Wait until the source reports that it waits, with these words in the reason."""
    deadline = time.monotonic() + 20
    while source.held_up is None or words not in source.held_up[1]:
        source.read()
        assert time.monotonic() < deadline, source.held_up


@pytest.mark.parametrize("statement", [b"copy (", b"pg_locks", b"desc limit 1", b"extra_float_digits"])
@pytest.mark.parametrize("fate", [Fate.SILENCE, Fate.RESET, Fate.HOLD])
@pytest.mark.sample(4)
def test_a_source_whose_reply_is_lost_reads_every_row_once(
    proxy: FaultyProxy, statement: bytes, fate: Fate
) -> None:
    source = opened()
    proxy.lose(statement, fate, times=2)
    assert read(source, ROWS) == list(range(1, ROWS + 1))
    assert proxy.struck == [statement] * 2
    source.close()


def test_a_source_whose_network_stalls_says_so_and_resumes(proxy: FaultyProxy, postgres_server: Postgres) -> None:
    source = opened()
    assert read(source, ROWS) == list(range(1, ROWS + 1))
    proxy.stall()
    until_held_up(source, "the database of read_with_faults does not answer")
    execute(postgres_server.url, f"insert into {TABLE} select generate_series({ROWS + 1}, {2 * ROWS})")
    proxy.resume()
    assert read(source, ROWS) == list(range(ROWS + 1, 2 * ROWS + 1))
    assert source.held_up is None
    source.close()


def test_a_source_that_waits_for_a_lock_names_the_holder(proxy: FaultyProxy, postgres_server: Postgres) -> None:
    source = opened()
    with psycopg.connect(postgres_server.url, application_name="migration") as other:
        other.execute(f"lock table {TABLE} in access exclusive mode".encode())
        pid = other.info.backend_pid
        until_held_up(source, f"table {TABLE} is locked by the session with pid {pid} (application migration")
    assert read(source, ROWS) == list(range(1, ROWS + 1))
    source.close()


def test_a_source_that_cannot_reach_its_database_at_the_start_stops_the_job(proxy: FaultyProxy) -> None:
    proxy.stall()
    began = time.monotonic()
    with pytest.raises(EngineStopped, match="source rows: the database of read_with_faults does not answer") as stopped:
        opened()
    assert SECONDS - 1 < time.monotonic() - began < SECONDS + 6
    assert stopped.value.hint == "check that the server runs and that the network reaches it"


def test_a_database_that_does_not_answer_is_no_mistake_in_the_job_file(proxy: FaultyProxy) -> None:
    connector = {"type": "postgres", "table": TABLE, "key": ["id"], "url_env": "ROWS_DATABASE"}
    sink = operator("out", Kind.SINK, 1, connector={"type": "jsonl", "path": "out"})
    edges = (Edge("rows", "out", Partition.FORWARD),)
    topology = Topology("reads", (operator("rows", Kind.SOURCE, 1, connector=connector), sink), edges)
    assert list(all_faults(topology, "/", from_start=True)) == []
    proxy.stall()
    with pytest.raises(ServerUnavailable, match="the database of read_with_faults does not answer"):
        list(all_faults(topology, "/", from_start=True))


def looked_up() -> pa.Table:
    spec = Lookup("", ("id",), columns=("id",), table=TABLE, url_env="ROWS_DATABASE")
    return read_database_table(operator("prices", Kind.LOOKUP, 1, lookup=spec), list)[0]


def test_the_table_of_a_lookup_is_read_again_if_a_reply_is_lost(proxy: FaultyProxy) -> None:
    proxy.lose(b"copy (", times=2)
    assert looked_up().num_rows == ROWS
    assert proxy.struck == [b"copy ("] * 2


def test_the_table_of_a_lookup_that_is_locked_for_a_moment_is_waited_for(
    proxy: FaultyProxy, postgres_server: Postgres
) -> None:
    with psycopg.connect(postgres_server.url) as other:
        other.execute(f"lock table {TABLE} in access exclusive mode".encode())
        threading.Timer(1.0, other.rollback).start()
        assert looked_up().num_rows == ROWS


def test_a_lookup_whose_database_does_not_answer_stops_the_job(proxy: FaultyProxy) -> None:
    proxy.stall()
    with pytest.raises(EngineStopped, match="operator prices: the database of read_with_faults does not answer"):
        looked_up()
