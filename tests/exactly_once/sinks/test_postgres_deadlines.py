"""`abs run` in a process of its own when PostgreSQL does not answer: messages, exit codes and the documented deadlines.

The network is a proxy; the deadlines are those of the product. Tests that wait for a minute are in the tier `soak`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from tests.exactly_once.sinks.test_postgres_faults import suspended
from tests.support.faulty_proxy import Fate, FaultyProxy, faulty_proxy
from tests.support.postgres import Postgres, execute, postgres, rows
from tests.support.waiting import wait_for

ROOT = Path(__file__).resolve().parents[3]
ROWS = 600
RATE = 150
JOB = f"""
version: 1
job: timed
operators:
  numbers:
    source: {{type: generate, rows: {ROWS}, rate: {RATE}, columns: {{id: row}}}}
  out:
    from: numbers
    sink: {{type: postgres, table: timed, url_env: TIMED_DATABASE%s}}
"""
MODES = {"append": "", "upsert": ", mode: upsert, key: [id]"}
PATIENCE = 60.0
"""Seconds for which a database that does not answer is waited for, as the guide says."""
SLACK = 25.0
"""Seconds more, for the last connection that is tried, rows that are tried on the table, and a busy machine."""


@pytest.fixture
def server(own_postgres: None) -> Iterator[Postgres]:
    with postgres() as server:
        yield server


@pytest.fixture
def proxy(server: Postgres) -> Iterator[FaultyProxy]:
    with faulty_proxy(str(server.folder / ".s.PGSQL.5432")) as proxy:
        yield proxy


class Run:
    """`abs run` in a process of its own, and each line that it writes to stderr with the time when it came."""

    def __init__(self, folder: Path, proxy: FaultyProxy, *more: str) -> None:
        command = [sys.executable, "-m", "abscli", "run", "job.yaml", "--store", "store", "--engine", "inline",
                   "--interval", "300ms", *more]  # fmt: skip
        environment = {**os.environ, "TIMED_DATABASE": f"postgresql://abs@{proxy.address}/postgres",
                       "PYTHONPATH": str(ROOT)}  # fmt: skip
        self.process = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)
        self.lines: list[tuple[float, str]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append((time.monotonic(), line.rstrip()))

    def text(self) -> str:
        """Return what it has written to stderr."""
        return "\n".join(line for _, line in self.lines)

    def until(self, fact: Callable[[], object], seconds: float = 60.0) -> None:
        """Wait for a fact while the process runs."""
        wait_for(fact, self.process, self.text, seconds=seconds)

    def until_epochs(self, count: int) -> None:
        """Wait until so many epochs are complete."""
        self.until(lambda: sum(" complete in " in line for _, line in self.lines) >= count)

    def until_line(self, words: str, seconds: float) -> float:
        """Wait for a line that contains these words; return when it came."""
        self.until(lambda: any(words in line for _, line in self.lines), seconds)
        return next(at for at, line in self.lines if words in line)

    def end(self, seconds: float = 120.0) -> int:
        """Wait for its end; return its exit code."""
        code = self.process.wait(seconds)
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code


@pytest.fixture(params=list(MODES))
def start(
    tmp_path: Path, server: Postgres, proxy: FaultyProxy, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Run]]:
    """Return what starts the job, in each mode; nothing that it started runs on."""
    key = " primary key" if request.param == "upsert" else ""
    execute(
        server.url, f"create table timed (id bigint{key})", "create table written (id bigint)",
        "create function note() returns trigger as $$ begin insert into written values (new.id); return new; end $$ "
        "language plpgsql", "create trigger note before insert on timed for each row execute function note()",
    )  # fmt: skip
    (tmp_path / "job.yaml").write_text(JOB % MODES[request.param])
    started: list[Run] = []

    def start(*more: str) -> Run:
        started.append(Run(tmp_path, proxy, *more))
        return started[-1]

    yield start
    for run in started:
        run.process.kill()
        run.end()


def show(title: str, run: Run, since: float) -> None:
    """Write what a run has written to stderr since a time, for the report of the test: `pytest -rP`."""
    lines = (f"{at - since:6.1f} s  {line}" for at, line in run.lines if at >= since)
    sys.stdout.write("\n".join([title, *lines, ""]))


def is_exact(server: Postgres) -> bool:
    """Tell whether each row was written once, and nothing is left prepared."""
    written = rows(server.url, "select count(*), count(distinct id) from written")
    return written == [(ROWS, ROWS)] and rows(server.url, "select count(*) from pg_prepared_xacts") == [(0,)]


@pytest.mark.sample(1)
def test_signals_are_answered_while_the_database_does_not_answer(
    start: Callable[..., Run], proxy: FaultyProxy, server: Postgres
) -> None:
    run = start()
    run.until_epochs(2)
    proxy.stall()
    time.sleep(1.5)  # until the job is in a statement
    signalled = time.monotonic()
    run.process.send_signal(signal.SIGTERM)
    answered = run.until_line("A second signal ends it at once", 30)
    assert answered - signalled < 5
    assert "SIGTERM: the job cannot stop yet: " in run.text()
    signalled = time.monotonic()
    run.process.send_signal(signal.SIGTERM)
    assert run.end() == 143
    assert time.monotonic() - signalled < 5
    assert "stopped by a second signal, without a last epoch" in run.text()
    proxy.resume()
    show("stopped by a second signal", run, signalled - 10)
    again = start("--resume")
    assert again.end() == 0, again.text()
    assert is_exact(server)


@pytest.mark.soak
def test_a_sink_that_waits_is_reported_after_five_seconds(
    start: Callable[..., Run], proxy: FaultyProxy, server: Postgres
) -> None:
    run = start()
    run.until_epochs(2)
    proxy.stall()
    stalled = time.monotonic()
    reported = run.until_line("has waited", 30)
    assert reported - stalled < 8
    proxy.resume()
    assert run.end() == 0, run.text()
    assert "sink out continues, after" in run.text()
    assert is_exact(server)


FAULTS = ("stall", "suspend", "lock", "away")


@contextlib.contextmanager
def fault(name: str, proxy: FaultyProxy, server: Postgres) -> Iterator[None]:
    """While a fault lasts, which ends when the block does."""
    with contextlib.ExitStack() as stack:
        if name == "stall":
            proxy.stall()
            stack.callback(proxy.resume)
        elif name == "suspend":
            stack.enter_context(suspended(server))
        elif name == "lock":
            other = stack.enter_context(psycopg.connect(server.url, application_name="migration"))
            other.execute("lock table timed in access exclusive mode")
            stack.callback(other.rollback)
        else:
            server.kill()
            stack.callback(server.start)
        yield


SAID = {
    "stall": "sink out: the database of timed does not answer: ",
    "suspend": "sink out: the database of timed does not answer: ",
    "lock": "sink out: table timed is locked by the session with pid ",
    "away": "sink out: the database of timed does not answer: ",
}


@pytest.mark.soak
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_waited_for_as_documented(
    start: Callable[..., Run], proxy: FaultyProxy, server: Postgres, name: str
) -> None:
    run = start()
    run.until_epochs(2)
    with fault(name, proxy, server):
        began = time.monotonic()
        code = run.end(PATIENCE + 2 * SLACK)
        took = time.monotonic() - began
    show(f"{name}: exit code {code} after {took:.1f} s", run, began)
    assert code == 6, run.text()
    assert PATIENCE - 5 < took < PATIENCE + SLACK
    assert f"abs: error: {SAID[name]}" in run.text()
    again = start("--resume")
    assert again.end() == 0, again.text()
    assert is_exact(server)


REPLIES = {"append": (b"prepare transaction", b"commit prepared"), "upsert": (b"COMMIT", b"on conflict")}


@pytest.mark.soak
@pytest.mark.parametrize("fate", [Fate.SILENCE, Fate.RESET, Fate.HOLD])
@pytest.mark.parametrize("number", [0, 1])
def test_a_lost_reply_is_noticed_within_seconds(
    start: Callable[..., Run], proxy: FaultyProxy, server: Postgres, number: int, fate: Fate,
    request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    mode = request.node.callspec.params["start"]
    run = start()
    run.until_epochs(2)
    proxy.lose(REPLIES[mode][number], fate, times=2)
    began = time.monotonic()
    assert run.end() == 0, run.text()
    took = time.monotonic() - began
    show(f"{REPLIES[mode][number]!r} {fate.name}: exit code 0 after {took:.1f} s", run, began)
    assert len(proxy.struck) == 2
    assert is_exact(server)
    assert took < 40
