"""What a table in PostgreSQL lacks is reported all at once before a job starts, with the statement that helps."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from abscli.engine.postgres.database import Table
from abscli.engine.sinks.postgres.preconditions import column_type, create_table, unmet
from tests.exactly_once.sinks.test_postgres_values import TYPES
from tests.support.commands import run_command
from tests.support.postgres import Postgres, execute, rows

URL = "LINES_DATABASE"
ROWS = pa.schema([("id", pa.int64()), ("text", pa.string())])
JOB = """
version: 1
job: checked
operators:
  rows: {source: {type: csv, path: in.csv, schema: {id: int64, text: string}}}
  out: {from: rows, sink: {type: postgres, table: t, schema: SCHEMA, url_env: LINES_DATABASE, mode: upsert, key: [id]}}
"""


@pytest.fixture
def schema(postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A schema of its own, in which the user `limited`, who connects, may do nothing."""
    url, name = postgres_server.url, f"checked_{uuid.uuid4().hex[:8]}"
    execute(url, "drop role if exists limited", "create role limited login", f"create schema {name}")
    execute(url, f"grant usage on schema {name} to limited")
    monkeypatch.setenv(URL, url.replace("abs@", "limited@"))
    yield name
    execute(url, f"drop schema {name} cascade", "drop role limited")


def table_in(schema: str, name: str = "t") -> Table:
    return Table("out", name, schema, URL, None)


def lacking(schema: str, *key: str, columns: pa.Schema | None = ROWS) -> list[tuple[str, str]]:
    """The messages and hints, without the name of the schema."""
    found = unmet(table_in(schema), key, columns)
    return [(one.message.replace(f"{schema}.", ""), one.hint.replace(schema, "S")) for one in found]


def test_a_missing_table_is_created_by_the_statement_of_the_hint(schema: str, postgres_server: Postgres) -> None:
    url = postgres_server.url
    execute(url, f"grant create on schema {schema} to limited")
    ((message, hint),) = [(one.message, one.hint) for one in unmet(table_in(schema), ["id"], ROWS)]
    assert message == f"there is no table {schema}.t"
    statement = hint.removeprefix("run in the database: ")
    assert statement == f'create table "{schema}"."t" ("id" bigint, "text" text, primary key ("id"))'
    execute(url, statement, f"alter table {schema}.t owner to limited")
    assert unmet(table_in(schema), ["id"], ROWS) == []


def test_a_table_whose_columns_are_not_known_yet_is_described_without_a_statement(schema: str) -> None:
    message, hint = lacking(schema, "id", columns=None)[0]
    assert (message, hint) == (
        "there is no table t", "create the table with a primary key and the same column names as the rows"
    )  # fmt: skip


def test_everything_that_is_missing_is_reported_at_once(schema: str, postgres_server: Postgres) -> None:
    execute(postgres_server.url, f"create table {schema}.t (id int, note text not null, kept text not null default '')")
    assert lacking(schema, "id") == [
        (f'the user limited may not create the tables "{schema}"."abs_epochs" and "{schema}"."abs_writers" for commit '
         "markers", "run in the database: grant create on schema S to limited"),
        ("the user limited lacks the right to select and insert and update on t",
         'run in the database: grant select, insert, update on "S"."t" to limited'),
        ("t has no column 'text' (string)", "give the table the same column names as the rows, with compatible types"),
        ("column 'note' of t is NOT NULL without a default, and the rows have no such column",
         "give the column a default; or add it to the rows in the job"),
    ]  # fmt: skip


def test_a_key_without_a_unique_index_is_reported_once_its_rights_are_there(
    schema: str, postgres_server: Postgres
) -> None:
    execute(
        postgres_server.url, f"create table {schema}.t (id int, text text)", f"alter table {schema}.t owner to limited",
        f"grant create on schema {schema} to limited",
    )  # fmt: skip
    assert lacking(schema, "id") == [
        ("t has no primary key or unique index on id", "run in the database: create unique index on S.t (id)")
    ]
    assert lacking(schema, "other") == [
        ("t does not have all columns of the key: other",
         'set `key` to columns of the table: column "other" of relation "t" does not exist')
    ]  # fmt: skip


def test_marker_tables_of_another_user_are_reported(schema: str, postgres_server: Postgres) -> None:
    url = postgres_server.url
    execute(url, f"create table {schema}.t (id int, text text)", f"alter table {schema}.t owner to limited")
    execute(url, f"create table {schema}.abs_epochs (a int)", f"create table {schema}.abs_writers (a int)")
    execute(url, f"grant select, insert, update, delete on {schema}.abs_epochs to limited")
    ((message, hint),) = lacking(schema)
    lacks = "the user limited lacks the right to select and insert and update and delete"
    assert message == f'{lacks} on "{schema}"."abs_writers"'
    assert hint == 'run in the database: grant select, insert, update, delete on "S"."abs_writers" to limited'


def test_a_table_made_for_rows_of_any_type_keeps_their_values(schema: str, postgres_server: Postgres) -> None:
    types = [type for type in TYPES if column_type(type) is not None]
    columns = pa.schema([(f"c{i}", type) for i, type in enumerate(types)])
    statement = create_table(f"{schema}.t", (), columns)
    assert statement is not None
    execute(
        postgres_server.url, statement, f"alter table {schema}.t owner to limited",
        f"grant create on schema {schema} to limited",
    )  # fmt: skip
    assert unmet(table_in(schema), (), columns) == []


def test_a_type_that_no_column_keeps_has_no_statement() -> None:
    assert create_table("t", (), pa.schema([("a", pa.list_(pa.int64()))])) is None


def test_a_dry_run_reports_them_all(
    schema: str, postgres_server: Postgres, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.csv").write_text("id,text\n1,one\n")
    (tmp_path / "job.yaml").write_text(JOB.replace("SCHEMA", schema))
    code, _, err = run_command("run", capsys, tmp_path / "job.yaml", "--store", tmp_path / "store", "--dry-run")
    assert code == 2
    assert f'create table "{schema}"."t" ("id" bigint, "text" text, primary key ("id"))' in " ".join(err.split())
    assert f"grant create on schema {schema} to limited" in " ".join(err.split())
    assert not (tmp_path / "store").exists()
    assert rows(postgres_server.url, f"select count(*) from pg_tables where schemaname = '{schema}'") == [(0,)]
