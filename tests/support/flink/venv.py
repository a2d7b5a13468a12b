"""A Python with apache-flink, whose old pyarrow and numpy need a virtual environment of their own, made on demand."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
import venv
from functools import cache
from pathlib import Path

import pytest

VERSION = "2.3.0"
PLACE = Path(__file__).resolve().parents[3] / ".venv-flink"
PATIENCE = 900
"""Seconds that the installation may take; with a fast network it takes one or two minutes."""
AGAIN = 3600
"""Seconds after which an installation that failed is tried again."""


def flink_python() -> Path:
    """The interpreter, in `.venv-flink` or in ABS_FLINK_VENV; skips with the reason where it cannot be had.

    The first call takes 850 MB and a minute or two. ABS_FLINK=0 says that no Flink is wanted.
    """
    if os.environ.get("ABS_FLINK") == "0":
        pytest.skip("ABS_FLINK=0: no Flink is wanted")
    if shutil.which("java") is None:
        pytest.skip("Flink needs Java, and there is none on PATH")
    if not (3, 10) <= sys.version_info[:2] <= (3, 12):
        pytest.skip(f"apache-flink {VERSION} has no packages for Python {sys.version_info[0]}.{sys.version_info[1]}")
    folder = Path(os.environ.get("ABS_FLINK_VENV", PLACE)).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other workers of this test run wait for the first
        python = folder / "bin" / "python"
        if not python.exists() or subprocess.run([python, "-c", "import pyflink"], capture_output=True).returncode:
            venv.create(folder, with_pip=False)  # some systems' Python cannot give it one: ours serves
            _install(python, folder / ".failed")
    return python


def _install(python: Path, failed: Path) -> None:
    """Install Flink; skip the test if that fails or takes too long.

    failed: a file with the reason, so that the other tests of this run do not try again.
    """
    if failed.exists() and time.time() - failed.stat().st_mtime < AGAIN:
        pytest.skip(failed.read_text(encoding="utf-8"))
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", f"apache-flink=={VERSION}"]
    try:
        done = subprocess.run(pip, capture_output=True, text=True, timeout=PATIENCE)
        reason = f"cannot be installed: {done.stderr.strip().splitlines()[-1:]}" if done.returncode else None
    except subprocess.TimeoutExpired:
        reason = f"was not installed within {PATIENCE // 60} minutes: the package index is slow"
    if reason is not None:
        failed.write_text(f"apache-flink {VERSION} {reason}", encoding="utf-8")
        pytest.skip(failed.read_text(encoding="utf-8"))


@cache
def flink_jars() -> tuple[Path, ...]:
    """The jars of that Flink."""
    python = flink_python()
    command = [python, "-c", "import pyflink; print(pyflink.__path__[0])"]
    package = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return tuple(sorted((Path(package) / "lib").glob("*.jar")))
