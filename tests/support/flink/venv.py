"""A Python with apache-flink, whose old pyarrow and numpy need a virtual environment of their own, made on demand."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import venv
from functools import cache
from pathlib import Path

import pytest

VERSION = "2.3.0"
PLACE = Path(__file__).resolve().parents[3] / ".venv-flink"


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
            pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", f"apache-flink=={VERSION}"]
            done = subprocess.run(pip, capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"apache-flink {VERSION} cannot be installed: {done.stderr.strip().splitlines()[-1:]}")
    return python


@cache
def flink_jars() -> tuple[Path, ...]:
    """The jars of that Flink."""
    python = flink_python()
    command = [python, "-c", "import pyflink; print(pyflink.__path__[0])"]
    package = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return tuple(sorted((Path(package) / "lib").glob("*.jar")))
