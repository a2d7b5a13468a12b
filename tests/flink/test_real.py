"""A real Flink starts from a copy that `abs restore` wrote, and goes on where the copied checkpoint was."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from abscli.cli.main import main
from tests.support.flink_venv import flink_python
from tests.support.schemas import checked

JOB = Path(__file__).parents[1] / "flink_job" / "sums.py"
NUMBERS, KEYS = 4000, 7
PATIENCE = 600.0
"""Seconds until a job that does not move is given up."""

WANTED = {
    k: (len(range(k, NUMBERS, KEYS)), sum(range(k, NUMBERS, KEYS))) for k in range(KEYS)
}
LINE = re.compile(r"[+-](?:I|U)\[(\d+), (\d+), (\d+)\]")


@pytest.fixture(scope="module")
def python() -> str:
    return str(flink_python())


@contextmanager
def job(python: str, log: Path, checkpoints: Path, backend: str, *snapshot: str) -> Iterator[subprocess.Popen[bytes]]:
    """The job in a process group of its own, gone with its JVM at the end of the block."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    env["PATH"] = f"{Path(python).parent}:{env['PATH']}"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [python, JOB, checkpoints, backend, *snapshot],
            stdout=out, stderr=subprocess.STDOUT, env=env, start_new_session=True,
        )  # fmt: skip
        try:
            yield process
        finally:
            with_group = process.pid
            for sign in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(with_group, sign)
                    process.wait(10)
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    pass


def printed(log: Path) -> dict[int, list[tuple[int, int]]]:
    """What the job printed: by key, its counts and sums in order."""
    found: dict[int, list[tuple[int, int]]] = {}
    for key, count, total in LINE.findall(log.read_text(errors="replace")):
        found.setdefault(int(key), []).append((int(count), int(total)))
    return found


def completed(checkpoints: Path) -> list[Path]:
    return [path.parent for path in checkpoints.glob("*/chk-*/_metadata")]


def abs_json(capsys: pytest.CaptureFixture[str], *args: object) -> dict[str, object]:
    code = main([*map(str, args), "-o", "json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    return checked(out)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_flink_goes_on_from_a_copy(
    python: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], backend: str
) -> None:
    checkpoints, log = tmp_path / "checkpoints", tmp_path / "first.log"
    with job(python, log, checkpoints, backend) as first:
        until = time.monotonic() + PATIENCE
        while not any(int(path.name[4:]) >= 4 for path in completed(checkpoints)) or not printed(log):
            assert first.poll() is None, log.read_text(errors="replace")[-3000:]
            assert time.monotonic() < until, "no checkpoint in time"
            time.sleep(0.1)

    (folder,) = {path.parent for path in completed(checkpoints)}
    plan, copy = tmp_path / "plan.json", tmp_path / "copy"
    chosen = abs_json(capsys, "plan-recovery", folder, "--out", plan)
    done = abs_json(capsys, "restore", plan, "--to", copy)
    assert done["command"] == f"flink run -s file://{copy} JOB.jar"
    shutil.rmtree(checkpoints)  # the copy has to do on its own

    checked_copy = abs_json(capsys, "validate", copy)
    assert checked_copy["findings"] == []
    states = abs_json(capsys, "state", copy)["states"]
    (owner,) = {s["operator"] for s in states if s["name"] == "accState"}  # type: ignore[attr-defined]
    told = abs_json(capsys, "state", copy, owner, "--state", "accState")["rows"]
    held = {row["key.f0"]: _counts(row["value"]) for row in told}  # type: ignore[attr-defined]
    assert 0 < sum(count for count, _ in held.values()) < NUMBERS

    again = tmp_path / "again.log"
    with job(python, again, tmp_path / "later", backend, f"file://{copy}") as second:
        assert second.wait(PATIENCE) == 0, again.read_text(errors="replace")[-3000:]
    found = printed(again)
    assert {key: rows[-1] for key, rows in found.items()} == WANTED, f"from {chosen['epoch']}"
    for key, (count, total) in held.items():
        assert found[key][0] == (count, total), "the first row is the update of what abs read from the copy"


def _counts(value: object) -> tuple[int, int]:
    """Count and sum of the accumulator, a row of two numbers."""
    assert isinstance(value, dict), json.dumps(value)
    numbers = [part for part in value.values() if isinstance(part, int)]
    return numbers[0], numbers[1]
