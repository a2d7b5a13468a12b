"""A table beside a stream that PostgreSQL has: a table of it, or the answer to a query; a real server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from abscli.engine.errors import JobFailed, UsageError
from abscli.engine.job import run_job
from abscli.engine.operators.table_lookup import read_table
from abscli.engine.runnable import all_faults
from abscli.engine.sources.files import line_files
from formats.job.model import Kind, Lookup, LookupHow, Operator, Topology
from tests.support.jobs.inline import STORE, stop_after
from tests.support.jobs.joins import rows_of, with_table, write_orders
from tests.support.jobs.small import inline, output_rows
from tests.support.postgres import Postgres, execute

USERS = "select 'o' || n as \"order\", 'name ' || n as name, n from generate_series(0, 38, 2) n"


@pytest.fixture
def url(postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("USERS_DATABASE", postgres_server.url)
    drop = "drop schema if exists people cascade"
    execute(postgres_server.url, drop, "create schema people", f"create table people.users as {USERS}")
    yield postgres_server.url
    execute(postgres_server.url, drop)


def lookup_of(**more: Any) -> Lookup:
    given = {"key": ("order",), "how": LookupHow.LEFT, "columns": ("name",), "url_env": "USERS_DATABASE", **more}
    return Lookup(path="", **given)


def job(deterministic: bool = True, **more: Any) -> Topology:
    """The job on files, with its table from the database."""
    topology = with_table(deterministic=deterministic)
    return msgspec.structs.replace(
        topology,
        operators=tuple(
            msgspec.structs.replace(op, lookup=lookup_of(**more)) if op.kind is Kind.LOOKUP else op
            for op in topology.operators
        ),
    )


def table_of(**more: Any) -> tuple[list[dict[str, Any]], str]:
    table = read_table(Operator("users", Kind.LOOKUP, 1, 8, lookup=lookup_of(**more)), "/")
    return table.rows.to_pylist(), table.digest


@pytest.mark.parametrize(
    "source", [{"table": "people.users"}, {"query": 'select * from people.users where "order" like \'o%\''}]
)
def test_rows_have_the_columns_that_the_database_has(tmp_path: Path, url: str, source: dict[str, str]) -> None:
    write_orders(tmp_path, rows=60)
    topology = job(**source)
    assert [fault.message for fault in all_faults(topology, str(tmp_path), from_start=True)] == []
    run_job(topology, str(tmp_path / STORE), inline(tmp_path))
    expected = {
        row["number"]: f"name {row['order'][1:]}" if int(row["order"][1:]) % 2 == 0 else None
        for row in rows_of(tmp_path, "orders")
    }
    assert Counter((row["number"], row["name"]) for row in output_rows(tmp_path)) == Counter(expected.items())


def test_another_table_is_refused_when_the_job_goes_on(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_files, "CHUNK", 1024)
    write_orders(tmp_path)
    callbacks, _ = stop_after(1)
    stopped = run_job(
        job(table="people.users"), str(tmp_path / STORE), inline(tmp_path, interval=0.02, pace=20), **callbacks  # type: ignore[arg-type]
    )
    again = inline(tmp_path, from_epoch=stopped.epoch)
    execute(url, "update people.users set name = name || ' later' where n = 4")
    with pytest.raises(JobFailed, match=r"operator users: its table people\.users differs from the table of the epoch"):
        run_job(job(table="people.users"), str(tmp_path / STORE), again)
    assert run_job(job(False, table="people.users"), str(tmp_path / STORE), again).finished


def test_the_digest_is_of_the_rows_and_not_of_where_they_lie(url: str) -> None:
    before = table_of(table="people.users")
    execute(url, "update people.users set n = n where n < 10", "vacuum full people.users")
    assert table_of(table="people.users") == before
    assert table_of(query="select * from people.users order by n desc") == before
    execute(url, "update people.users set n = 1000 where n = 4")
    assert table_of(table="people.users") == before  # of the columns that the job uses
    assert table_of(table="people.users", columns=())[1] != before[1]
    execute(url, "insert into people.users values ('o4', 'twice', 5)")
    assert table_of(table="people.users")[1] != before[1]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"table": "nobody"}, 'cannot read its table nobody: relation "nobody" does not exist'),
        ({"query": "select from where"}, r"cannot read its table \(the answer to its query\): syntax error"),
        ({"query": "delete from people.users returning *"}, "cannot read its table"),
        ({"query": "with gone as (delete from people.users returning *) select * from gone"}, "cannot read its table"),
        ({"table": "people.users", "columns": ("email",)}, "its table people.users has no column 'email'"),
        ({"query": 'select "order", name, name from people.users'}, "has two columns 'name'"),
    ],
)
def test_what_cannot_be_read_is_told_before_a_run(
    tmp_path: Path, url: str, source: dict[str, Any], message: str
) -> None:
    write_orders(tmp_path, rows=5)
    with pytest.raises(JobFailed, match=message):
        table_of(**source)
    (fault,) = all_faults(job(**source), str(tmp_path), from_start=True)
    assert fault.keys == ("lookup", "table" if "table" in source else "query")
    assert len(table_of(table="people.users")[0]) == 20


def test_a_variable_that_is_not_set_is_named(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("USERS_DATABASE")
    with pytest.raises(UsageError, match="operator users: the environment variable USERS_DATABASE is not set"):
        table_of(table="people.users")
