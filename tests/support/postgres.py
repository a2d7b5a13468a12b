"""A real server of PostgreSQL in a folder of its own, on a unix socket; one that cannot be had skips the test."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

SECONDS = 120
"""How long a busy machine may take until the server answers."""
SETTINGS = {
    "listen_addresses": "",
    "max_prepared_transactions": "64",
    "wal_level": "logical",
    "max_connections": "60",
}


class Postgres:
    """A server. url: of its database, for a superuser without a password; folder: of its socket and data."""

    def __init__(self, programs: Path, folder: Path, settings: Mapping[str, str]) -> None:
        self.folder = folder
        self.url = f"postgresql://abs@/postgres?host={folder}"
        self._programs = programs
        self._settings = settings
        self._data = folder / "data"
        # The server refuses to run as root.
        self._user = _other_user() if os.geteuid() == 0 else None
        if self._user is not None:
            os.chown(folder, pwd.getpwnam(self._user).pw_uid, -1)
        self._run("initdb", "-D", self._data, "-U", "abs", "-A", "trust", "-E", "UTF8", "--no-sync")
        self._server: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Until it answers."""
        settings = [word for name, value in self._settings.items() for word in ("-c", f"{name}={value}")]
        deadline = time.monotonic() + SECONDS
        while True:
            with (self.folder / "log").open("ab") as log:
                command = [self._programs / "postgres", "-D", self._data, "-k", self.folder, *settings]
                self._server = subprocess.Popen(command, stdout=log, stderr=log, user=self._user, cwd=self.folder)
            while self._server.poll() is None:
                if self._ready():
                    return
                assert time.monotonic() < deadline, (self.folder / "log").read_text()[-2000:]
                time.sleep(0.05)
            # Children of a server that was killed may hold its memory for a moment.
            assert time.monotonic() < deadline, (self.folder / "log").read_text()[-2000:]
            time.sleep(0.1)

    def kill(self) -> None:
        """As when its machine's memory is short: SIGKILL, and nothing is told to anybody."""
        self._end(signal.SIGKILL)

    @contextlib.contextmanager
    def restarting(self, *epochs: int) -> Iterator[Callable[[int], None]]:
        """What is to be told the epochs of a job: at each of these the server is killed, and starts again meanwhile."""
        restarts: list[threading.Thread] = []

        def at(epoch: int) -> None:
            if epoch in epochs:
                self.kill()
                restarts.append(threading.Thread(target=self.start))
                restarts[-1].start()

        try:
            yield at
        finally:
            for restart in restarts:
                restart.join()
        assert len(restarts) == len(epochs), f"killed {len(restarts)} times"

    def stop(self) -> None:
        """End it at once, in order."""
        self._end(signal.SIGINT)

    def _end(self, number: int) -> None:
        if self._server is not None:
            self._server.send_signal(number)
            self._server.wait(SECONDS)
            self._server = None

    def _ready(self) -> bool:
        command = [self._programs / "pg_isready", "-q", "-h", self.folder, "-U", "abs", "-d", "postgres"]
        return subprocess.run(command, cwd=self.folder).returncode == 0

    def _run(self, program: str, *words: object) -> None:
        command = [str(self._programs / program), *map(str, words)]
        done = subprocess.run(command, user=self._user, cwd=self.folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def _other_user() -> str:
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    pytest.skip("PostgreSQL does not run as root, and there is no other user")


def _programs() -> Path:
    """The folder of Debian's newest, or of what is on the path."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name))
    if folders:
        return folders[-1]
    if there := shutil.which("postgres"):
        return Path(there).parent
    pytest.skip("PostgreSQL is not installed: apt-get install postgresql")


@contextlib.contextmanager
def postgres(*, fsync: bool = False) -> Iterator[Postgres]:
    """A server that runs, and whose folder goes with it. fsync: as in production; it is processes that tests kill, not
    machines."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install '.[postgres]'")
    programs = _programs()
    # A socket's path is short: not in the folder of a test.
    folder = Path(tempfile.mkdtemp(prefix="abs-pg-", dir="/tmp"))
    try:
        server = Postgres(programs, folder, {**SETTINGS, "fsync": "on" if fsync else "off"})
        server.start()
        try:
            yield server
        finally:
            server.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def rows(url: str, statement: str) -> list[tuple[Any, ...]]:
    """What a query answers, on a connection of its own."""
    import psycopg

    with psycopg.connect(url) as connection:
        return connection.execute(statement.encode()).fetchall()


def execute(url: str, *statements: str) -> None:
    """Statements one after the other, each in a transaction of its own."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def prepared_in(url: str) -> list[str]:
    """Return the ids of all prepared transactions of a server."""
    return [gid for (gid,) in rows(url, "select gid from pg_prepared_xacts order by gid")]
