"""A source that reads a table by a growing key: each row once, whoever commits when; a real server."""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from abscli.engine.errors import JobFailed, UsageError
from abscli.engine.sources.contract import Source
from abscli.engine.sources.making import make_source
from abscli.engine.sources.postgres import reading, source
from abscli.engine.sources.postgres.horizon import Writer, remaining
from abscli.engine.sources.postgres.reading import TableReader
from formats.errors import Damaged
from formats.job.model import Kind
from formats.view import Position
from formats.watermark import IDLE
from tests.support.jobs.small import operator
from tests.support.postgres import Postgres, execute

SECONDS = 60.0
looks: list[int] = []
"""One each time that a source has looked for rows."""
opened: list[Source] = []
"""By the test that runs."""
TABLE = "read_by_key"
COLUMNS = "id bigint generated always as identity primary key, name text"


@pytest.fixture
def url(postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("ROWS_DATABASE", postgres_server.url)
    monkeypatch.setattr(source, "SOON", 0.005)
    plain = TableReader.next

    def look(self: TableReader, *arguments: Any) -> Any:
        looks.append(1)
        return plain(self, *arguments)

    monkeypatch.setattr(TableReader, "next", look)
    drop = f"drop table if exists {TABLE} cascade"
    execute(postgres_server.url, drop, f"create table {TABLE} ({COLUMNS})")
    yield postgres_server.url
    while opened:
        opened.pop().close()
    execute(postgres_server.url, drop)


def read(
    positions: tuple[Position, ...] | None = None,
    connector: dict[str, str] | None = None,
    task: int = 0,
    **options: object,
) -> Source:
    connect = {"type": "postgres", "table": TABLE, "key": ["id"], "url_env": "ROWS_DATABASE", **options}
    marks = {"deterministic": False} if connect.get("deterministic") is False else {}
    op = operator("rows", Kind.SOURCE, 2, connector=connect, **marks)
    opened.append(make_source(op, task, "/", positions, connector))
    return opened[-1]


def follow(*restored: Any, **options: object) -> Source:
    return read(*restored, follow=True, every="5ms", **options)


def take(reader: Source, enough: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
    """Rows until there are enough of them, or the input ends."""
    rows: list[dict[str, Any]] = []
    deadline = time.monotonic() + SECONDS
    while not enough(rows) and time.monotonic() < deadline:
        batch = reader.read()
        if batch is None:
            return rows
        rows += batch.to_pylist()
    assert enough(rows), f"after {SECONDS} s: {rows}"
    return rows


def all_of(reader: Source) -> list[dict[str, Any]]:
    """To its end, which has to come."""
    rows = take(reader, lambda rows: reader.finished)
    assert reader.read() is None
    return rows


def some(reader: Source, count: int) -> list[dict[str, Any]]:
    rows = take(reader, lambda rows: len(rows) >= count)
    assert len(rows) == count
    return rows


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return [row["id"] for row in rows]


def nothing_more(reader: Source) -> None:
    """It has looked again, from beginning to end, and there was nothing."""
    before, deadline = len(looks), time.monotonic() + SECONDS
    while len(looks) < before + 3:
        batch = reader.read()
        assert batch is not None
        assert batch.num_rows == 0
        assert time.monotonic() < deadline


def test_who_is_held_up_is_not_idle(url: str) -> None:
    """Rows are there, and of what time is not known before those that come first are committed, or not."""
    reader = follow()
    with open_transaction(url, f"insert into {TABLE} (name) values ('has 1')"):
        execute(url, f"insert into {TABLE} (name) values ('has 2')")
        nothing_more(reader)
        assert reader.waiting == ()


def insert(url: str, count: int) -> None:
    execute(url, f"insert into {TABLE} (name) select 'row ' || n from generate_series(1, {count}) n")


@contextlib.contextmanager
def open_transaction(url: str, *statements: str) -> Iterator[Any]:
    """A transaction that has run these, and is still open."""
    import psycopg

    with psycopg.connect(url) as connection:
        for statement in statements:
            connection.execute(statement.encode())
        yield connection


# -- exact positions ------------------------------------------------------------------------------------------


def test_every_row_comes_once_in_order_and_then_the_input_ends(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "ROWS", 7)
    monkeypatch.setattr(source, "ROWS", 7)
    insert(url, 50)
    reader = read()
    assert ids(all_of(reader)) == list(range(1, 51))
    position = reader.positions[0]
    assert (position.split, position.offset, position.records, position.text) == (TABLE, 50, 50, '["50"]')


def test_an_empty_table_ends_at_once(url: str) -> None:
    assert all_of(read()) == []


def test_rows_that_come_later_are_not_read_unless_they_are_followed(url: str) -> None:
    insert(url, 3)
    reader = read()
    assert ids(some(reader, 3)) == [1, 2, 3]
    insert(url, 3)
    assert all_of(reader) == []
    again = read(reader.positions, reader.connector)
    assert all_of(again) == []


def test_rows_that_come_are_read_as_they_come(url: str) -> None:
    insert(url, 3)
    reader = follow()
    assert ids(some(reader, 3)) == [1, 2, 3]
    nothing_more(reader)
    insert(url, 2)
    assert ids(some(reader, 2)) == [4, 5]
    assert not reader.finished


@pytest.mark.parametrize("follows", [True, False])
def test_wherever_it_is_stopped_another_goes_on(url: str, follows: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "ROWS", 4)
    insert(url, 40)
    rng = random.Random(5)
    make = follow if follows else read
    rows: list[int] = []
    positions, connector = None, None
    while len(rows) < 40:
        reader = make(positions, connector)
        reader.stop_at(lines=rng.randrange(1, 6))
        rows += ids(take(reader, bool))
        positions, connector = reader.cut(), reader.connector
    assert rows == list(range(1, 41))
    assert positions is not None
    assert positions[0].offset == 40


def test_an_older_position_gives_the_same_rows_again(url: str) -> None:
    insert(url, 20)
    reader = follow()
    reader.stop_at(lines=5)
    first = take(reader, bool)
    older, connector = reader.positions, reader.connector
    reader.stop_at(lines=9)
    second = take(reader, bool)
    insert(url, 20)
    again = follow(older, connector)
    again.stop_at(lines=len(second))
    assert take(again, bool) == second
    # As a lost worker's task takes its steps again, and as a repair does.
    repeated = follow(older, connector)
    batch = repeated.read_again(0, len(second))
    assert batch is not None
    assert batch.to_pylist() == second
    stopped = read(older, connector)
    stopped.stop_at({TABLE: len(first) + len(second)})
    assert take(stopped, lambda rows: len(rows) == len(second)) == second
    assert stopped.read() is None


def test_only_the_first_task_reads(url: str) -> None:
    insert(url, 3)
    other = follow(task=1)
    assert other.finished
    assert other.read() is None
    assert other.positions == ()


def test_a_key_of_several_columns(url: str) -> None:
    execute(url, f"alter table {TABLE} add column day date not null default '2026-01-02'")
    insert(url, 4)
    execute(url, f"update {TABLE} set day = '2026-01-01' where id in (2, 4)")
    reader = read(key=["day", "id"])
    reader.stop_at(lines=3)
    assert ids(take(reader, lambda rows: len(rows) == 3)) == [2, 4, 1]
    rest = read(reader.positions, reader.connector, key=["day", "id"])
    assert ids(all_of(rest)) == [3]


def test_a_table_in_a_schema_and_in_partitions(url: str) -> None:
    execute(
        url, "drop schema if exists elsewhere cascade", "create schema elsewhere",
        "create table elsewhere.parts (id bigserial primary key, name text) partition by range (id)",
        "create table elsewhere.low partition of elsewhere.parts for values from (0) to (3)",
        "create table elsewhere.high partition of elsewhere.parts for values from (3) to (100)",
        "insert into elsewhere.parts (name) select 'x' from generate_series(1, 5)",
    )  # fmt: skip
    try:
        reader = follow(table="elsewhere.parts")
        assert ids(some(reader, 5)) == [1, 2, 3, 4, 5]
        with open_transaction(url, "insert into elsewhere.high values (6, 'straight into its partition')"):
            execute(url, "insert into elsewhere.parts values (7, 'seen first')")
            nothing_more(reader)
        assert ids(some(reader, 2)) == [6, 7]
    finally:
        execute(url, "drop schema elsewhere cascade")


# -- columns --------------------------------------------------------------------------------------------------


def test_columns_have_the_types_of_the_table(url: str) -> None:
    execute(
        url, "drop domain if exists amount", "create domain amount as int",
        f"alter table {TABLE} add b bool, add i2 int2, add i4 int4, add f float8, add r float4, add n numeric(9, 2), "
        "add d date, add ts timestamp, add tz timestamptz, add u uuid, add j jsonb, add am amount, add by bytea, "
        "add ar int[]",
        f"insert into {TABLE} (name, b, i2, i4, f, r, n, d, ts, tz, u, j, am, by, ar) values "
        "('it''s \"one\",\nüé', true, -1, 2, 0.1, 'NaN', 1.25, '1969-12-31', '1969-12-31 23:59:59.999999', "
        "'2026-03-29 02:30:00+02', '00000000-0000-0000-0000-000000000001', '{\"a\": [1, null]}', 9, "
        "'\\xff00', '{1,2}'), "
        "('', false, null, null, 'infinity', null, null, null, '2262-01-01', null, null, null, null, null, null)",
    )  # fmt: skip
    reader = read()
    rows = all_of(reader)
    assert reader.connector is not None
    one, two = rows
    assert one["name"] == 'it\'s "one",\nüé'
    assert (one["b"], one["i2"], one["f"], one["n"], one["am"]) == (True, -1, 0.1, 1.25, 9)
    assert str(one["r"]) == "nan"
    assert one["d"].isoformat() == "1969-12-31"
    assert one["ts"].isoformat() == "1969-12-31T23:59:59.999999"
    assert one["tz"].isoformat() == "2026-03-29T00:30:00"
    assert (one["u"][-1], json.loads(one["j"]), one["by"], one["ar"]) == ("1", {"a": [1, None]}, "\\xff00", "{1,2}")
    assert (two["name"], two["b"], two["i2"], two["f"], two["tz"]) == ("", False, None, float("inf"), None)
    execute(url, "drop domain amount cascade")


def test_a_schema_chooses_columns_and_their_types(url: str) -> None:
    execute(url, f"alter table {TABLE} add n numeric", f"insert into {TABLE} (n) values (12345678901234567890.123)")
    assert all_of(read(schema={"n": "string"})) == [{"n": "12345678901234567890.123"}]
    assert all_of(read(columns=["name", "id"])) == [{"name": None, "id": 1}]
    with pytest.raises(JobFailed, match="does not match the type of its column in the source"):
        all_of(read(schema={"n": "int"}))
    with pytest.raises(UsageError, match="has no column 'm'"):
        read(schema={"m": "int"})


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamptz"])
def test_a_row_whose_time_is_infinite_is_named_and_can_be_read_as_text(url: str, kind: str) -> None:
    execute(url, f"alter table {TABLE} add at {kind}")
    execute(url, f"insert into {TABLE} (name, at) values ('a', '2026-11-29'), ('b', '-infinity'), ('c', 'infinity')")
    with pytest.raises(JobFailed, match=f"column 'at' of the row with id=2 in {TABLE} is -infinity, which a") as caught:
        all_of(read())
    assert "{at: string}" in (caught.value.hint or "")
    rows = all_of(read(schema={"id": "int64", "at": "string"}))
    assert [row["at"] for row in rows[1:]] == ["-infinity", "infinity"]


def test_a_column_that_is_null_in_every_row(url: str) -> None:
    execute(url, f"insert into {TABLE} (name) values (null), (null)")
    assert all_of(read(columns=["name"])) == [{"name": None}, {"name": None}]


# -- who commits when -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("follows", [True, False])
def test_a_row_with_a_smaller_key_that_is_committed_later_is_waited_for(url: str, follows: bool) -> None:
    insert(url, 1)
    with open_transaction(url, f"insert into {TABLE} (name) values ('has 2')") as first:
        execute(url, f"insert into {TABLE} (name) values ('has 3')")
        reader = follow() if follows else read()
        if follows:  # and here is nothing else to read
            nothing_more(reader)
        else:
            assert reader.read().num_rows == 0  # type: ignore[union-attr]
        first.commit()
        assert ids(some(reader, 3)) == [1, 2, 3]


def test_one_that_is_rolled_back_leaves_a_gap(url: str) -> None:
    reader = follow()
    with open_transaction(url, f"insert into {TABLE} (name) values ('has 1')") as first:
        execute(url, f"insert into {TABLE} (name) values ('has 2')")
        nothing_more(reader)
        first.rollback()
    assert ids(some(reader, 1)) == [2]


def test_a_transaction_that_is_prepared_while_it_is_waited_for(url: str) -> None:
    reader = follow()
    with open_transaction(url, f"insert into {TABLE} (name) values ('has 1')") as first:
        execute(url, f"insert into {TABLE} (name) values ('has 2')")
        nothing_more(reader)
        first.execute("prepare transaction 'by somebody'")
    nothing_more(reader)
    execute(url, "commit prepared 'by somebody'")
    assert ids(some(reader, 2)) == [1, 2]


def test_a_prepared_transaction_is_known_by_its_number_where_it_has_another_name() -> None:
    """As servers before 14 call it."""
    mine, unnumbered = Writer("3/17", 5, "734"), Writer("3/18", 6, None)
    prepared, other = Writer("-1/734", None, "734"), Writer("-1/735", None, "735")
    assert remaining([mine], [prepared, other, Writer("3/19", 5, "736")]) == [prepared]
    assert remaining([unnumbered], [other]) == [other]  # it may be the one
    assert remaining([mine], [mine, other]) == [mine]
    assert remaining([], [mine, other]) == []


def test_nobody_is_waited_for_who_comes_later_or_only_reads(url: str) -> None:
    insert(url, 2)
    with open_transaction(url, f"select * from {TABLE}", f"lock table {TABLE} in share update exclusive mode"):
        reader = follow()
        assert ids(some(reader, 2)) == [1, 2]


def test_long_after_a_key_is_given_its_row_is_still_read(url: str) -> None:
    """The key is given before the transaction has a number of its own: a trigger takes its time in between."""
    import psycopg

    insert(url, 1)  # a sequence writes down each 32nd number only, and a transaction that does has a number
    reader = follow()
    assert ids(some(reader, 1)) == [1]
    execute(
        url, "create or replace function be_slow() returns trigger as $$ begin "
        "perform pg_advisory_xact_lock_shared(77); return new; end $$ language plpgsql",
        f"create trigger slow before insert on {TABLE} for each row when (new.name = 'slow') "
        "execute function be_slow()",
    )  # fmt: skip
    with psycopg.connect(url, autocommit=True) as gate, psycopg.connect(url, autocommit=True) as slow:
        gate.execute("select pg_advisory_lock(77)")
        slow.pgconn.send_query(f"insert into {TABLE} (name) values ('slow')".encode())
        deadline = time.monotonic() + SECONDS
        while not gate.execute("select 1 from pg_locks where locktype = 'advisory' and not granted").fetchone():
            assert time.monotonic() < deadline
        query = "select backend_xid from pg_stat_activity where pid = %s"
        assert gate.execute(query, (slow.info.backend_pid,)).fetchone() == (None,)
        insert(url, 1)
        nothing_more(reader)
        gate.execute("select pg_advisory_unlock(77)")
        assert ids(some(reader, 2)) == [2, 3]
        while slow.pgconn.get_result():
            pass


def test_rows_of_many_writers_come_once_each(url: str) -> None:
    """Each transaction takes keys, waits a little, and commits or not."""
    import threading

    import psycopg

    committed: list[int] = []

    def write(seed: int) -> None:
        rng = random.Random(seed)
        with psycopg.connect(url) as connection:
            for _ in range(40):
                mine = []
                for _ in range(rng.randrange(1, 4)):
                    query = f"insert into {TABLE} (name) values ('w') returning id"
                    mine += [row[0] for row in connection.execute(query.encode()).fetchall()]
                    time.sleep(rng.random() / 300)
                if rng.random() < 0.2:
                    connection.rollback()
                else:
                    connection.commit()
                    committed.extend(mine)

    threads = [threading.Thread(target=write, args=(seed,)) for seed in range(6)]
    reader = follow()
    for thread in threads:
        thread.start()
    rows = take(reader, lambda rows: not any(thread.is_alive() for thread in threads))
    rows += take(reader, lambda more: len(rows) + len(more) >= len(committed))
    assert ids(rows) == sorted(committed)


def waits_for(reader: Source) -> str | None:
    return None if reader.held_up is None else reader.held_up[1]


def test_whom_it_waits_for_is_said(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "SAY_AFTER", 0.0)
    with open_transaction(url, f"insert into {TABLE} (name) values ('has 1')") as first:
        insert(url, 1)
        reader = follow()
        nothing_more(reader)
        process = first.info.backend_pid
        assert waits_for(reader) == (
            f"the transaction of process {process} may commit rows to {TABLE} before those that are there"
        )
    assert len(take(reader, bool)) > 0
    assert waits_for(reader) is None


def test_a_server_that_is_away_is_waited_for(
    url: str, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "SAY_AFTER", 0.0)
    insert(url, 3)
    reader = follow()
    assert ids(some(reader, 3)) == [1, 2, 3]
    postgres_server.kill()
    try:
        deadline = time.monotonic() + SECONDS
        # A session may first report how it was ended; the attempts after that find nobody.
        while f"the database of {TABLE} does not answer" not in (waits_for(reader) or ""):
            batch = reader.read()
            assert batch is not None
            assert time.monotonic() < deadline
    finally:
        postgres_server.start()
    insert(url, 2)
    rows = take(reader, lambda rows: len(rows) == 2)
    assert [row["name"] for row in rows] == ["row 1", "row 2"]
    assert waits_for(reader) is None


# -- another table --------------------------------------------------------------------------------------------


def read_three(url: str) -> tuple[tuple[Position, ...], dict[str, str] | None]:
    insert(url, 3)
    reader = follow()
    some(reader, 3)
    return reader.positions, reader.connector


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        ((f"drop table {TABLE}", f"create table {TABLE} ({COLUMNS})"), "is another table than was read: its oid is"),
        ((f"truncate {TABLE} restart identity",), r"its sequence stands at 0, and rows up to id = 3 were read"),
        (
            (f"truncate {TABLE} restart identity", f"insert into {TABLE} (name) values ('new')"),
            "its sequence stands at 1",
        ),
        ((f"alter table {TABLE} alter column name type varchar(9)",), r"'name' .* is character varying, but was text"),
        ((f"alter table {TABLE} drop column name",), "'name' .* is missing, but was text"),
    ],
)
def test_another_table_is_told(url: str, statements: tuple[str, ...], message: str) -> None:
    restored = read_three(url)
    execute(url, *statements)
    reader = follow(*restored)
    with pytest.raises(JobFailed, match=message):
        take(reader, bool)


def test_a_table_that_is_emptied_while_it_is_followed_is_told(url: str) -> None:
    insert(url, 3)
    reader = follow()
    some(reader, 3)
    execute(url, f"truncate {TABLE} restart identity")
    insert(url, 1)
    with pytest.raises(JobFailed, match="its sequence stands at"):
        take(reader, bool)


def test_another_table_is_gone_on_with_where_the_job_says_so(url: str) -> None:
    restored = read_three(url)
    execute(url, f"drop table {TABLE}", f"create table {TABLE} ({COLUMNS})")
    insert(url, 5)
    reader = follow(*restored, deterministic=False)
    assert ids(some(reader, 2)) == [4, 5]


@pytest.mark.parametrize(
    "statement", ["delete from {} where id = 3", "delete from {}", "truncate {}", "vacuum full {}",
                  "update {} set name = 'changed'"],
)  # fmt: skip
def test_rows_that_were_read_may_go_or_change(url: str, statement: str) -> None:
    restored = read_three(url)
    execute(url, statement.format(TABLE))
    insert(url, 1)
    reader = follow(*restored)
    assert ids(some(reader, 1)) == [4]


def test_a_position_of_another_table_or_key_is_refused(url: str) -> None:
    positions, connector = read_three(url)
    with pytest.raises(UsageError, match=f"has a position in table {TABLE}, but the job file specifies other"):
        follow(positions, connector, table="other")
    reader = follow(positions, connector, key=["name", "id"])
    with pytest.raises(Damaged, match="for the key read last, which is 2 texts"):
        take(reader, bool)


@pytest.mark.parametrize("text", ["[]", "7", '["x"]', '["1; drop table x"]', '["1", "2"]', "[1]"])
def test_a_key_that_no_source_has_written_reads_nothing(url: str, text: str) -> None:
    insert(url, 1)
    reader = follow()
    some(reader, 1)
    broken = follow((Position(TABLE, 1, 1, text=text),), reader.connector)
    with pytest.raises((Damaged, JobFailed)):
        take(broken, bool)


# -- what cannot be read --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statements", "options", "message"),
    [
        ((), {"table": "missing"}, "there is no table missing"),
        ((), {"key": ["nr"]}, "has no column 'nr'"),
        ((), {"key": ["name"]}, "'name' of .* may be null"),
        ((f"alter table {TABLE} add t float8 not null",), {"key": ["t"]}, "cannot be an increasing key"),
        ((f"alter table {TABLE} add t int not null",), {"key": ["t"]}, "no unique index on t"),
        ((f"create view {TABLE}_view as select * from {TABLE}",), {"table": f"{TABLE}_view"}, "is a view"),
        ((f"create table {TABLE}_child () inherits ({TABLE})",), {}, "is a table that others inherit from"),
        ((f"alter table {TABLE} alter id set cache 20",), {}, "20 numbers at a time"),
        ((f"alter table {TABLE} alter id set increment -1 set maxvalue 99 set minvalue -99",), {}, "counts down"),
    ],
)
def test_what_cannot_be_read_by_its_key_is_refused(
    url: str, statements: tuple[str, ...], options: dict[str, object], message: str
) -> None:
    execute(url, *statements)
    with pytest.raises(UsageError, match=message):
        read(**options)


def test_who_may_not_read_is_told_what_to_grant(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    execute(url, "drop role if exists stranger", "create role stranger login")
    monkeypatch.setenv("ROWS_DATABASE", url.replace("//abs@", "//stranger@"))
    with pytest.raises(UsageError, match=r"no permission to read .*: permission denied") as refused:
        read()
    assert "grant select" in str(refused.value.hint)
    execute(url, "drop role stranger")


def test_event_time_waits_for_rows_and_then_not(url: str) -> None:
    execute(url, f"alter table {TABLE} add at timestamp", f"insert into {TABLE} (at) values ('2026-01-01')")
    reader = follow(event_time={"column": "at", "delay": 1, "idle": "1ms"})
    some(reader, 1)
    assert reader.watermark == 1_767_225_600_000_000 - 1_000_000
    assert reader.positions[0].event_time == 1_767_225_600_000_000
    deadline = time.monotonic() + SECONDS
    while reader.watermark != IDLE:
        reader.read()
        assert time.monotonic() < deadline
