"""The private folder for what lives as long as the process: nobody writes through it, and nothing of it stays."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from abscli.engine.drivers.spark import _zip_modules
from formats import scratch as module
from formats.scratch import LOCK, PREFIX, clear_dead, scratch
from tests.commands.test_jobs import ROOT

HOLDS = """
import sys
from pathlib import Path
from formats.scratch import scratch
folder = Path(scratch())
assert scratch() == str(folder)
(folder / "big").mkdir()
(folder / "big" / "file").write_text("x")
print(folder, flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files of its own, and no scratch folder yet."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(module, "_mine", None)
    yield tmp_path
    if module._mine is not None:
        module._remove(*module._mine)


def holder() -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )


def folder_of(process: subprocess.Popen[str]) -> Path:
    assert process.stdout
    return Path(process.stdout.readline().strip())


def test_it_is_private_and_gone_with_its_process(temporary: Path) -> None:
    with holder() as process:
        folder = folder_of(process)
        assert folder.parent == temporary
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        clear_dead()
        assert (folder / "big" / "file").exists()
        process.communicate("\n", timeout=60)
    assert not list(temporary.iterdir())


def test_after_sigkill_the_next_process_clears_it(temporary: Path) -> None:
    with holder() as killed, holder() as living:
        left, kept = folder_of(killed), folder_of(living)
        killed.send_signal(signal.SIGKILL)
        killed.wait(60)
        assert left.exists()
        mine = Path(scratch())
        assert {mine, kept} == set(temporary.iterdir())
        living.communicate("\n", timeout=60)


def test_what_is_somebody_else_s_stays(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = temporary / "precious"
    target.mkdir(mode=0o700)
    (target / LOCK).touch()
    (target / "file").touch()
    (temporary / f"{PREFIX}link").symlink_to(target)
    (temporary / f"{PREFIX}file").touch()
    (temporary / f"{PREFIX}open").mkdir()
    (temporary / f"{PREFIX}open").chmod(0o777)  # others could have put a lock there
    (temporary / f"{PREFIX}open" / LOCK).touch()
    for name, make in {
        "linked-lock": lambda path: path.symlink_to(target / LOCK),
        "fifo-lock": os.mkfifo,
        "folder-lock": os.mkdir,
        "lock-missing": lambda path: (path.parent / "file").touch(),
    }.items():
        folder = temporary / f"{PREFIX}{name}"
        folder.mkdir(mode=0o700)
        make(folder / LOCK)
    foreign = temporary / f"{PREFIX}foreign"
    foreign.mkdir(mode=0o700)
    (foreign / LOCK).touch()
    old = time.time() - 2 * module.ABANDONED_SECONDS
    os.utime(temporary / f"{PREFIX}lock-missing", (old, old))
    before = sorted(temporary.rglob("*"))
    with monkeypatch.context() as somebody_else:
        somebody_else.setattr(os, "geteuid", lambda: os.getuid() + 1)
        clear_dead()
    assert sorted(temporary.rglob("*")) == before
    clear_dead()
    assert sorted(temporary.rglob("*")) == [path for path in before if foreign not in (path, path.parent)]


def test_a_folder_whose_owner_was_killed_while_it_made_it_goes_after_an_hour(temporary: Path) -> None:
    fresh, old = temporary / f"{PREFIX}fresh", temporary / f"{PREFIX}old"
    fresh.mkdir(mode=0o700)
    old.mkdir(mode=0o700)
    then = time.time() - 2 * module.ABANDONED_SECONDS
    os.utime(old, (then, then))
    clear_dead()
    assert list(temporary.iterdir()) == [fresh]


def test_a_folder_that_is_cleared_before_it_is_locked_is_made_again(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, times = fcntl.flock, []

    def cleared(lock: int, what: int) -> None:
        if not times:
            times.append(lock)
            clear_dead()  # as another process would, in just this moment
        flock(lock, what)

    monkeypatch.setattr(fcntl, "flock", cleared)
    path = Path(scratch())
    assert [path] == list(temporary.iterdir())
    assert (path / LOCK).exists()


def test_the_modules_of_a_job_are_packed_where_nobody_else_can_write(temporary: Path) -> None:
    job = temporary / "job"
    (job / "package").mkdir(parents=True)
    (job / "steps.py").write_text("one")
    (job / "package" / "inner.py").write_text("two")
    precious = temporary / "precious"
    precious.write_text("mine")
    packed = Path(_zip_modules(str(job)) or "")
    assert packed.parent == Path(scratch())
    with zipfile.ZipFile(packed) as archive:
        assert sorted(archive.namelist()) == ["package/inner.py", "steps.py"]
    assert not list(temporary.glob("abs-job-*"))


SPARK = """
import os, signal
from abscli.engine.drivers.spark import start_context
context = start_context("local[1]")
assert context.parallelize([1, 2], 1).sum() == 3
print("started", flush=True)
if {kill}:
    os.kill(os.getpid(), signal.SIGKILL)
context.stop()
"""


def test_spark_leaves_nothing_also_when_its_driver_is_killed(tmp_path: Path, jvm: None) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}

    def run(kill: bool) -> int:
        code = SPARK.format(kill=kill)
        done = subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, timeout=300)
        assert done.stdout == b"started\n"
        return done.returncode

    assert run(kill=True) == -signal.SIGKILL
    assert [path.name.startswith(PREFIX) for path in tmp_path.iterdir()] == [True]
    assert run(kill=False) == 0
    limit = time.monotonic() + 60
    while left := list(tmp_path.iterdir()):  # a JVM ends a little later than who started it
        assert time.monotonic() < limit, left
        time.sleep(0.1)
