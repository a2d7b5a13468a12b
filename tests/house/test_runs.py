"""What the workers of one run share lasts as long as the run: they get one server, which ends however the run ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.objects.fixtures import Servers
from tests.support.processes import lives
from tests.support.run import Run

pytestmark = pytest.mark.usefixtures("servers")

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 120
RUN = "from tests.support.run import Run; import sys; print(Run().folder, flush=True); sys.stdin.read()"
WORKER = """
import sys
from pathlib import Path
from tests.support.objects.fixtures import Servers
print(Servers(Path(sys.argv[1])).get("S3 by moto").port)
"""


def listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def test_workers_get_one_server_which_outlives_them_and_ends_with_the_run() -> None:
    run = Run()
    try:
        command = [sys.executable, "-c", WORKER, str(run.folder)]
        workers = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(3)]
        ports = {int(worker.communicate(timeout=SECONDS)[0]) for worker in workers}
        (port,) = ports
        assert listens(port)
    finally:
        run.end()
    assert not listens(port)
    assert not run.folder.exists()


def test_a_server_ends_when_the_run_is_killed_and_the_next_removes_what_is_left() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", RUN], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        port = Servers(folder).get("S3 by moto").port
        (process,) = (int(path.read_text()) for path in folder.glob("*.pid"))
        assert listens(port)
        os.kill(owner.pid, signal.SIGKILL)
    deadline = time.monotonic() + SECONDS
    while lives(process) or listens(port):
        assert time.monotonic() < deadline, "the server goes on"
        time.sleep(0.02)
    os.utime(folder, (0, 0))
    Run().end()
    assert not folder.exists(), "the next run removes what is left of one that was killed"


def test_a_server_that_cannot_be_had_skips_and_one_that_does_not_start_fails_for_every_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Run()
    try:
        monkeypatch.setenv("ABS_AZURITE", "0")
        for _ in range(2):
            with pytest.raises(pytest.skip.Exception, match="no Azurite is wanted"):
                Servers(run.folder).get("Azure by Azurite")
        for _ in range(2):
            with pytest.raises(AssertionError, match="does not start"):
                Servers(run.folder).get("a server that is not there")
    finally:
        run.end()
