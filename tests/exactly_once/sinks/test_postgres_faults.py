"""A PostgreSQL sink whose server or network fails while the job runs: the job waits, resumes exactly, or stops in time.

Deadlines are shortened; `test_postgres_deadlines` measures the documented ones.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from abscli.engine import patience
from abscli.engine.errors import EngineStopped, JobFailed
from abscli.engine.postgres import database, sessions, watched
from abscli.engine.postgres.sqlstates import trouble_of
from abscli.engine.sinks.postgres import sink, upsert
from tests.support.faulty_proxy import Fate, FaultyProxy, faulty_proxy
from tests.support.jobs.lines import Gate, Lines, make_table, write_lines
from tests.support.postgres import Postgres, execute, rows

TABLE = "shown"
EPOCHS = 4
SECONDS = 2.5
"""For which an unreachable database is waited for here."""
MODES = pytest.mark.parametrize("lines", ["postgres", "upsert"], indirect=True)


@pytest.fixture(autouse=True)
def _short_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "SECONDS", SECONDS)
    monkeypatch.setattr(watched, "SILENCE", 0.3)
    monkeypatch.setattr(watched, "ON_ITS_WAY", 0.1)
    monkeypatch.setattr(watched, "LONGEST_PAUSE", 0.5)
    monkeypatch.setattr(database, "CONNECT_SECONDS", 2)
    monkeypatch.setattr(database, "LOOK_SECONDS", 2)
    monkeypatch.setattr(sink, "LOCK_TIMEOUT", "1s")
    monkeypatch.setattr(upsert, "LOCK_TIMEOUT", "1s")
    monkeypatch.setattr(upsert, "TRIAL_SECONDS", 0.3)


@pytest.fixture
def proxy(postgres_server: Postgres) -> Iterator[FaultyProxy]:
    with faulty_proxy(str(postgres_server.folder / ".s.PGSQL.5432")) as proxy:
        yield proxy


@pytest.fixture
def lines(
    tmp_path: Path, gate: Gate, postgres_server: Postgres, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Iterator[Lines]:  # fmt: skip
    """The job with its sink in a table behind the proxy, in each mode."""
    make_table(postgres_server.url, TABLE, request.param)
    monkeypatch.setenv("LINES_DATABASE", f"postgresql://abs@{proxy.address}/postgres")
    write_lines(tmp_path, EPOCHS)
    yield Lines(tmp_path, gate, TABLE, request.param)
    execute(postgres_server.url, "alter system reset all", "select pg_reload_conf()")
    make_table(postgres_server.url, TABLE, request.param)


def prepared(url: str) -> list[str]:
    return [gid for (gid,) in rows(url, "select gid from pg_prepared_xacts")]


STATEMENTS = {
    "postgres": (b"prepare transaction", b"commit prepared", b"copy ", b"into \"abs_epochs\""),
    "upsert": (b"COMMIT", b"copy ", b"on conflict", b"for update"),
}


@pytest.mark.parametrize("fate", [Fate.SILENCE, Fate.RESET, Fate.HOLD])
@pytest.mark.parametrize(
    ("lines", "statement"), [(mode, one) for mode, some in STATEMENTS.items() for one in some], indirect=["lines"]
)
@pytest.mark.sample(8)
def test_a_lost_reply_is_noticed_and_the_job_resumes_exactly(
    lines: Lines, proxy: FaultyProxy, postgres_server: Postgres, statement: bytes, fate: Fate
) -> None:
    began = time.monotonic()
    lines.run(at=lambda epochs: proxy.lose(statement, fate, times=2) if epochs == 1 else None)
    assert proxy.struck == [statement] * 2
    assert lines.wrong() == {}
    assert prepared(postgres_server.url) == []
    assert time.monotonic() - began < 20


@MODES
def test_a_network_that_stalls_for_a_while_loses_nothing(lines: Lines, proxy: FaultyProxy) -> None:
    def stall(epochs: int) -> None:
        if epochs == 2:
            proxy.stall()
            threading.Timer(SECONDS / 2, proxy.resume).start()

    lines.run(at=stall)
    assert lines.wrong() == {}


@MODES
@pytest.mark.sample(1)
def test_a_network_that_stalls_stops_the_job_in_time(lines: Lines, proxy: FaultyProxy) -> None:
    began: list[float] = []

    def stall(epochs: int) -> None:
        if epochs == 2:
            began.append(time.monotonic())
            proxy.stall()

    with pytest.raises(EngineStopped, match=f"sink out: the database of {TABLE} does not answer: .*time") as stopped:
        lines.run(at=stall)
    assert SECONDS - 1 < time.monotonic() - began[0] < SECONDS + 6
    assert "(the staged rows are kept), then `abs run job.yaml --store " in (stopped.value.hint or "")
    proxy.resume()
    lines.resume()
    assert lines.wrong() == {}


def processes(server: Postgres) -> list[int]:
    """Return the processes of a server, its sessions included."""
    assert server._server is not None
    parent = server._server.pid
    found = [parent]
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):
                if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                    found.append(int(folder.name))
    return found


@contextlib.contextmanager
def suspended(server: Postgres) -> Iterator[None]:
    """While no process of the server runs."""
    numbers = processes(server)
    for number in numbers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGSTOP)
    try:
        yield
    finally:
        for number in {*numbers, *processes(server)}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGCONT)


@MODES
@pytest.mark.sample(1)
def test_a_suspended_server_stops_the_job_in_time(lines: Lines, postgres_server: Postgres) -> None:
    with contextlib.ExitStack() as stack:
        began: list[float] = []

        def suspend(epochs: int) -> None:
            if epochs == 2:
                began.append(time.monotonic())
                stack.enter_context(suspended(postgres_server))

        with pytest.raises(EngineStopped, match="does not answer"):
            lines.run(at=suspend)
        assert SECONDS - 1 < time.monotonic() - began[0] < SECONDS + 6
    lines.resume()
    assert lines.wrong() == {}
    assert prepared(postgres_server.url) == []


def on_insert(url: str, times: int, action: str) -> None:
    """Let the next inserts of rows into the table do something first.

    times: how often. The count survives a rollback. No lock is needed to end it, which transactions of the job hold.
    """
    execute(
        url, "drop sequence if exists strikes cascade", "create sequence strikes",
        f"create or replace function strike() returns trigger as $$ begin if nextval('strikes') <= {times} then "
        f"{action}; end if; return new; end $$ language plpgsql",
        f"create or replace trigger strike before insert on {TABLE} for each row execute function strike()",
    )  # fmt: skip


def failing(url: str, sqlstate: str, times: int) -> None:
    """Let the next inserts fail."""
    on_insert(url, times, f"raise exception 'planted' using errcode = '{sqlstate}'")


PASSING = ("08006", "25006", "40001", "40P01", "53100", "53200", "55P03", "57014")
ROWS = ("22003", "23514", "42501")


@MODES
@pytest.mark.parametrize("sqlstate", PASSING)
@pytest.mark.sample(3)
def test_an_error_that_passes_is_waited_for(lines: Lines, postgres_server: Postgres, sqlstate: str) -> None:
    lines.run(at=lambda epochs: failing(postgres_server.url, sqlstate, 5) if epochs == 1 else None)
    assert rows(postgres_server.url, "select last_value > 5 from strikes") == [(True,)]
    assert lines.wrong() == {}


@MODES
@pytest.mark.parametrize("sqlstate", PASSING)
@pytest.mark.sample(3)
def test_an_error_that_does_not_pass_in_time_stops_the_job(
    lines: Lines, postgres_server: Postgres, sqlstate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "SECONDS", 0.5)
    with pytest.raises(EngineStopped, match=r"sink out: the database of shown .*: planted") as stopped:
        lines.run(at=lambda epochs: failing(postgres_server.url, sqlstate, 10**9) if epochs == 1 else None)
    trouble = trouble_of(sqlstate)
    assert trouble is not None
    assert trouble.problem in stopped.value.message
    assert (stopped.value.hint or "").startswith(trouble.hint)
    execute(postgres_server.url, f"drop trigger strike on {TABLE}")
    lines.resume()
    assert lines.wrong() == {}


@MODES
@pytest.mark.parametrize("sqlstate", ROWS)
@pytest.mark.sample(2)
def test_an_error_of_the_rows_or_the_schema_fails_the_job(
    lines: Lines, postgres_server: Postgres, sqlstate: str
) -> None:
    with pytest.raises(JobFailed, match=r"rejected the rows.*planted"):
        lines.run(at=lambda epochs: failing(postgres_server.url, sqlstate, 10**9) if epochs == 1 else None)


@MODES
def test_a_server_that_is_read_only_for_a_moment_is_waited_for(lines: Lines, postgres_server: Postgres) -> None:
    def set_read_only(value: str) -> None:
        execute(
            postgres_server.url,
            "set default_transaction_read_only to off",
            f"alter system set default_transaction_read_only to {value}",
            "select pg_reload_conf()",
        )

    def demote(epochs: int) -> None:
        if epochs == 1:
            set_read_only("on")
            threading.Timer(1.0, set_read_only, ["off"]).start()

    lines.run(at=demote)
    assert lines.wrong() == {}


@MODES
def test_cancelled_statements_are_repeated(lines: Lines, postgres_server: Postgres) -> None:
    over = threading.Event()

    def cancel() -> None:
        with psycopg.connect(postgres_server.url, autocommit=True, application_name="canceller") as other:
            while not over.wait(0.02):
                other.execute(
                    "select pg_cancel_backend(pid) from pg_stat_activity where application_name = 'abs' "
                    "and state = 'active'"
                )

    canceller = threading.Thread(target=cancel)
    try:
        lines.run(at=lambda epochs: canceller.start() if epochs == 1 else over.set() if epochs == 3 else None)
    finally:
        over.set()
        canceller.join()
    assert lines.wrong() == {}


@MODES
@pytest.mark.sample(1)
def test_the_holder_of_a_lock_is_named(lines: Lines, postgres_server: Postgres) -> None:
    with psycopg.connect(postgres_server.url, application_name="migration") as other:
        pid = other.info.backend_pid

        def lock(epochs: int) -> None:
            if epochs == 2:
                other.execute(f"lock table {TABLE} in access exclusive mode".encode())

        with pytest.raises(EngineStopped) as stopped:
            lines.run(at=lock)
    holder = f"pid {pid} (application migration, state idle in transaction, transaction open since 20"
    assert f"sink out: table {TABLE} is locked by the session with {holder}" in stopped.value.message
    assert f"select pg_terminate_backend({pid})" in (stopped.value.hint or "")
    lines.resume()
    assert lines.wrong() == {}


@MODES
@pytest.mark.sample(1)
def test_a_prepared_transaction_that_holds_a_lock_is_named(lines: Lines, postgres_server: Postgres) -> None:
    def lock(epochs: int) -> None:
        if epochs == 2:
            with psycopg.connect(postgres_server.url, autocommit=True) as other:
                for statement in ("begin", f"lock table {TABLE} in exclusive mode", "prepare transaction 'forgotten'"):
                    other.execute(statement.encode())

    with pytest.raises(EngineStopped, match="is locked by the prepared transaction forgotten") as stopped:
        lines.run(at=lock)
    assert "rollback prepared 'forgotten'" in (stopped.value.hint or "")
    execute(postgres_server.url, "rollback prepared 'forgotten'")
    lines.resume()
    assert lines.wrong() == {}


@MODES
@pytest.mark.sample(1)
def test_a_slow_statement_is_waited_for(
    lines: Lines, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer than the silence after which a second connection asks, and than an unreachable database is waited for."""
    monkeypatch.setattr(patience, "SECONDS", 0.5)

    lines.run(at=lambda epochs: on_insert(postgres_server.url, 3, "perform pg_sleep(1)") if epochs == 1 else None)
    assert rows(postgres_server.url, "select last_value > 3 from strikes") == [(True,)]
    assert lines.wrong() == {}


def test_a_session_that_ended_or_waits_for_its_client_does_not_work() -> None:
    def is_working(state: str | None, event: str | None) -> bool:
        return sessions.Session(state, event, None).is_working

    assert is_working("active", None)
    assert is_working("active", "Lock/relation")
    assert is_working("disabled", None)
    assert not is_working("active", "Client/ClientRead")
    assert not is_working("idle", None)
    assert not is_working("idle in transaction", "Client/ClientRead")
