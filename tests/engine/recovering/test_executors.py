"""An executor of a real cluster is killed, JVM and Python workers with it, and the job goes on."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from formats.native.store import NativeStore
from formats.storage import LocalStorage
from tests.support.java import QUICK
from tests.support.jobs.kills import check_counted, write_rows
from tests.support.processes import children, descendants
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.minutes, pytest.mark.usefixtures("jvm")]

PATIENCE = 180.0
JOB = """version: 1
job: fan
operators:
  rows: {source: {type: jsonl, path: in/*.jsonl}}
  same: {from: rows, map: "slow:pass_on"}
  counts:
    from: {same: {partition: hash, key: [key]}}
    reduce: {key: [key], n: {count: "*"}, emit: record}
    parallelism: 2
  out: {from: counts, sink: {type: jsonl, path: out}, parallelism: 2}
"""


def command(process: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    return ""



def busy_executors(process: int) -> list[int]:
    """Executors below a process with a Python worker that runs: a daemon's child."""
    executors = [pid for pid in descendants(process) if "CoarseGrainedExecutorBackend" in command(pid)]
    return [pid for pid in executors if any(children(daemon) for daemon in children(pid))]


@pytest.mark.soak
def test_an_executor_gets_sigkill(tmp_path: Path) -> None:
    if not Path(f"/proc/{os.getpid()}/task").is_dir() or not Path(f"/proc/self/task/{os.getpid()}/children").exists():
        pytest.skip("needs /proc with lists of children, to find the executors of a job")
    counts = write_rows(tmp_path, files=1500)
    (tmp_path / "job.yaml").write_text(JOB)
    errors = tmp_path / "errors"
    store = tmp_path / "store"
    words = ["run", "job.yaml", "--store", "store", "--workers", "2", "--interval", "500ms"]
    cluster = ["--master", "local-cluster[3,1,1024]"]
    with errors.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "abscli", *words, *cluster], cwd=tmp_path, stderr=file, stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "JDK_JAVA_OPTIONS": " ".join(QUICK)},
        )  # fmt: skip
    try:
        wait_for(lambda: (store / "abs-store.json").exists(), process, errors.read_text, seconds=PATIENCE)
        seen = NativeStore(LocalStorage(store))
        wait_for(lambda: (seen.latest() or 0) >= 2, process, errors.read_text, seconds=PATIENCE)
        victims = busy_executors(process.pid)
        assert len(victims) == 2
        os.kill(victims[0], signal.SIGKILL)
        wait_for(lambda: seen.recoveries(), process, errors.read_text, seconds=PATIENCE)
        (tmp_path / "open").touch()
        assert process.wait(PATIENCE) == 0, errors.read_text()
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
    (recovery,) = seen.recoveries()
    assert "was lost" in recovery.cause
    assert recovery.untouched == 2
    check_counted(tmp_path, counts)
