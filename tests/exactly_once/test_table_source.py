"""Rows of a table in PostgreSQL into files: each once, whichever process gets SIGKILL; real processes."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from formats.native.store import NativeStore
from formats.storage import open_writable
from tests.support.postgres import Postgres, execute, postgres
from tests.support.waiting import wait_for

SECONDS = 120.0
runs: list[Run] = []
"""That a test has started."""
TABLE = "orders"
JOB = """
version: 1
job: orders
parallelism: 2
operators:
  orders:
    source: {type: postgres, table: orders, key: [id], url_env: ORDERS, follow: true, every: 20ms}
  sums:
    from: orders
    reduce: {key: [customer], n: {count: "*"}, last: {max: id}, emit: record}
  out:
    from: orders
    sink: {type: jsonl, path: out}
  summed:
    from: sums
    sink: {type: jsonl, path: summed}
"""


@pytest.fixture
def server(own_postgres: None) -> Iterator[Postgres]:
    """One of its own: it is killed."""
    with postgres() as server:
        execute(
            server.url,
            f"create table {TABLE} (id bigint generated always as identity primary key, customer int, at timestamptz)",
        )
        yield server
        for run in runs:
            run.kill()
        runs.clear()


class Run:
    """`abs run` in a process of its own."""

    def __init__(self, folder: Path, url: str, *more: str) -> None:
        (folder / "job.yaml").write_text(JOB)
        self.folder = folder
        command = [sys.executable, "-m", "abscli", "run", "job.yaml", "--store", "store", "--engine", "inline",
                   "--interval", "50ms", "--keep", "1000", *more]  # fmt: skip
        self.errors = (folder / "errors").open("ab")
        self.process = subprocess.Popen(command, cwd=folder, env={**os.environ, "ORDERS": url}, stderr=self.errors)
        runs.append(self)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(SECONDS)
        self.errors.close()

    def stop(self) -> None:
        """With a last epoch."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(SECONDS) == 143, self.text()
        self.errors.close()

    def text(self) -> str:
        return (self.folder / "errors").read_text()

    def until(self, condition: Callable[[], bool]) -> None:
        wait_for(condition, self.process, self.text, seconds=SECONDS)


class Writers:
    """Transactions that take keys, wait a little, and commit or do not. committed: the keys of those that have."""

    def __init__(self, url: str, count: int) -> None:
        self._url = url
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(seed,)) for seed in range(count)]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _write(self, seed: int) -> None:
        import psycopg

        rng = random.Random(seed)
        while not self._over.is_set():
            with contextlib.suppress(psycopg.OperationalError), psycopg.connect(self._url) as connection:
                while not self._over.is_set():
                    for _ in range(rng.randrange(1, 4)):
                        connection.execute(
                            f"insert into {TABLE} (customer, at) values ({rng.randrange(7)}, now())".encode()
                        )
                        time.sleep(rng.random() / 100)
                    connection.rollback() if rng.random() < 0.2 else connection.commit()


def shown(folder: Path, name: str = "out") -> list[dict[str, Any]]:
    files = sorted((folder / name).glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def in_table(url: str) -> list[tuple[int, int]]:
    import psycopg

    with psycopg.connect(url) as connection:
        rows: Any = connection.execute(f"select id, customer from {TABLE} order by id".encode()).fetchall()
    return list(rows)


def complete(folder: Path) -> list[int]:
    if not (folder / "store" / "abs-store.json").exists():
        return []
    store = NativeStore(open_writable(str(folder / "store")))
    return [epoch for epoch in store.epoch_numbers() if store.has_manifest(epoch)]


def read_all(run: Run, url: str) -> None:
    """Until all that is in the table is shown: then stop it."""
    count, newest = len(in_table(url)), max(complete(run.folder), default=0)
    # Not before it has an epoch of its own: until then what is shown may be an older run's.
    run.until(lambda: max(complete(run.folder), default=0) > newest and len(shown(run.folder)) >= count)
    run.stop()


def check(folder: Path, url: str) -> None:
    rows = in_table(url)
    assert Counter(row["id"] for row in shown(folder)) == Counter(id for id, _ in rows)
    last = {row["customer"]: row["n"] for row in sorted(shown(folder, "summed"), key=lambda row: row["n"])}
    assert last == Counter(customer for _, customer in rows)


def test_driver_and_server_are_killed_and_each_row_comes_once(tmp_path: Path, server: Postgres) -> None:
    rng = random.Random(11)
    writers = Writers(server.url, 3)
    try:
        for life in range(8):
            run = Run(tmp_path, server.url, *(("--resume",) if complete(tmp_path) else ("--from-epoch", "0")))
            before = len(complete(tmp_path))
            run.until(lambda before=before: len(complete(tmp_path)) > before + 1)  # type: ignore[misc]
            if life % 2:
                server.kill()
                time.sleep(rng.random() / 5)
                server.start()
            time.sleep(rng.random() / 5)
            run.kill()
    finally:
        writers.end()
    read_all(Run(tmp_path, server.url, "--resume"), server.url)
    assert len(in_table(server.url)) > 50
    check(tmp_path, server.url)


def test_the_server_away_for_a_while_is_said_and_epochs_go_on(tmp_path: Path, server: Postgres) -> None:
    execute(server.url, f"insert into {TABLE} (customer) select n % 7 from generate_series(1, 100) n")
    run = Run(tmp_path, server.url)
    run.until(lambda: len(shown(tmp_path)) == 100)
    server.kill()
    waits = re.compile(r"source orders has waited \d+ s: the database of orders does not answer")
    run.until(lambda: waits.search(run.text()) is not None)
    there = len(complete(tmp_path))
    run.until(lambda: len(complete(tmp_path)) > there)
    server.start()
    execute(server.url, f"insert into {TABLE} (customer) values (1), (2)")
    read_all(run, server.url)
    assert "source orders continues, after" in run.text()
    check(tmp_path, server.url)


def test_an_older_epoch_reads_the_same_rows_again(tmp_path: Path, server: Postgres) -> None:
    execute(server.url, f"insert into {TABLE} (customer) select n % 7 from generate_series(1, 100) n")
    run = Run(tmp_path, server.url)
    run.until(lambda: len(shown(tmp_path)) == 100)
    older = complete(tmp_path)[-1]
    execute(server.url, f"insert into {TABLE} (customer) select n % 7 from generate_series(1, 100) n")
    read_all(run, server.url)
    first = sorted(shown(tmp_path), key=lambda row: row["id"])
    read_all(Run(tmp_path, server.url, "--from-epoch", str(older)), server.url)
    assert sorted(shown(tmp_path), key=lambda row: row["id"]) == first
    check(tmp_path, server.url)


def test_another_table_stops_a_run_that_goes_on(tmp_path: Path, server: Postgres) -> None:
    execute(server.url, f"insert into {TABLE} (customer) values (1), (2)")
    run = Run(tmp_path, server.url)
    read_all(run, server.url)
    execute(server.url, f"truncate {TABLE} restart identity")
    again = Run(tmp_path, server.url, "--resume")
    assert again.process.wait(SECONDS) == 7
    again.errors.close()
    assert "orders is not what was read: its sequence stands at 0, and rows up to id = 2 were read" in again.text()


def test_tasks_are_more_and_fewer_and_one_reads(tmp_path: Path, server: Postgres) -> None:
    for width in (2, 3, 1):
        execute(server.url, f"insert into {TABLE} (customer) select n % 7 from generate_series(1, 50) n")
        more = ("--resume", "--parallelism", f"orders={width}", "--parallelism", f"out={width}")
        read_all(Run(tmp_path, server.url, *(more if complete(tmp_path) else ())), server.url)
    check(tmp_path, server.url)
