"""A command whose memory ends: a named error with the bound and exit code 6, though nothing is left to report it."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys

import pytest

from abscli.cli.main import _report_in_memory
from tests.support.imports import ROOT

FILL = """
import sys
from abscli.cli import main, output
from formats import bounds

def fill():
    kept, size = [], 16 << 20
    while size:
        try:
            kept.append(bytearray(size))
        except MemoryError:
            size //= 2
    kept.append(bytearray(64 << 20))

bounds.own_process()
bounds.bound_memory()
try:
    fill()
except MemoryError as error:
    sys.exit(main._report_in_memory(error, sys.argv[1:]))
"""


def filled(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Fill the memory of a command to the last byte, and let it report that."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ABS_")}
    return subprocess.run(
        [sys.executable, "-c", FILL, *arguments], capture_output=True, text=True, timeout=600, check=False,
        env={**environment, "PYTHONPATH": str(ROOT), "ABS_MEMORY": "80M"},
    )  # fmt: skip


def test_an_error_is_reported_where_memory_has_ended() -> None:
    done = filled("validate", "store")
    assert done.returncode == 6
    assert done.stderr.startswith("abs: error: takes more than 80 MiB of memory")
    assert "hint: " in done.stderr
    assert "Traceback" not in done.stderr


def test_the_error_is_json_where_that_was_asked_for() -> None:
    done = filled("validate", "store", "-o", "json")
    assert done.returncode == 6
    error = json.loads(done.stderr)
    assert (error["code"], error["name"]) == (6, "memory")
    assert error["message"].startswith("takes more than 80 MiB")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        ImportError("libarrow.so: failed to map segment from shared object: Cannot allocate memory"),
        RuntimeError("can't start new thread"),
    ],
)
def test_every_way_in_which_the_system_says_so_has_exit_code_6(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _report_in_memory(error, ["validate", "store"]) == 6
    assert "takes more memory than there is" in capsys.readouterr().err
