"""A real Flink starts from a copy that `abs restore` wrote, and goes on where the copied checkpoint was."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from abscli.cli.main import main
from formats.flink.metadata.file import parse
from formats.flink.metadata.handles import FileHandle, changelogs, streams
from tests.support.flink_venv import flink_python
from tests.support.schemas import checked

JOB = Path(__file__).parents[1] / "flink_job" / "sums.py"
NUMBERS, KEYS = 4000, 7
PACE, FASTER = 200, 500
"""Rows a second: so slow that it is stopped halfway, and so fast that the rest takes seconds."""
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
def job(
    python: str, log: Path, checkpoints: Path, backend: str, pace: int, *options: str
) -> Iterator[subprocess.Popen[bytes]]:
    """The job in a process group of its own, gone with its JVM at the end of the block."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    env["PATH"] = f"{Path(python).parent}:{env['PATH']}"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [python, JOB, checkpoints, backend, str(pace), *options],
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


def settings(changes: Path, materialized: bool) -> list[str]:
    """Options that keep keyed state in files of changes. materialized: as the state itself, too, from time to time.

    Right after the state was materialized, or while no row comes, there are no changes: so many checkpoints are kept
    that one of them has both.
    """
    return [
        "execution.checkpointing.num-retained=20",
        "state.changelog.enabled=true",
        "state.changelog.storage=filesystem",
        f"dstl.dfs.base-path=file://{changes}",
        f"state.changelog.periodic-materialize.interval={'500ms' if materialized else '10min'}",
    ]


def parts(metadata: Path) -> set[str]:
    """What a checkpoint has of the changelog backend: `materialized`, `changes`."""
    handles = list(changelogs(parse(metadata.read_bytes())))
    return {name for name in ("materialized", "changes") if handles and all(getattr(h, name) for h in handles)}


def has_parts(checkpoint: Path, wanted: set[str]) -> bool:
    """Whether a checkpoint has just these parts, and is still there: a job drops its oldest."""
    try:
        return parts(checkpoint / "_metadata") == wanted
    except FileNotFoundError:
        return False


def as_told(command: str) -> list[str]:
    """Options of a job that starts as `flink run` would with this command."""
    words = shlex.split(command)
    assert words[:2] == ["flink", "run"]
    options = [f"execution.state-recovery.path={words[words.index('-s') + 1]}"]
    if "-claimMode" in words:
        options.append(f"execution.state-recovery.claim-mode={words[words.index('-claimMode') + 1]}")
    return options


@pytest.mark.parametrize(
    ("backend", "wanted"),
    [
        ("hashmap", set()),
        ("rocksdb", set()),
        ("hashmap", {"changes"}),
        ("rocksdb", {"changes", "materialized"}),
    ],
    ids=["hashmap", "rocksdb", "hashmap-changes", "rocksdb-changes-materialized"],
)
def test_flink_goes_on_from_a_copy(
    python: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], backend: str, wanted: set[str]
) -> None:
    checkpoints, log, changes = tmp_path / "checkpoints", tmp_path / "first.log", tmp_path / "changes"
    changes.mkdir()
    options = settings(changes, "materialized" in wanted) if wanted else []
    with job(python, log, checkpoints, backend, PACE, *options) as first:
        until = time.monotonic() + PATIENCE
        while not (
            printed(log)
            and any(int(path.name[4:]) >= 4 and has_parts(path, wanted) for path in completed(checkpoints))
        ):
            assert first.poll() is None, log.read_text(errors="replace")[-3000:]
            assert time.monotonic() < until, "no checkpoint in time"
            time.sleep(0.1)

    (folder,) = {path.parent for path in completed(checkpoints)}
    number = max(int(path.name[4:]) for path in completed(checkpoints) if has_parts(path, wanted))
    plan, copy = tmp_path / "plan.json", tmp_path / "copy"
    abs_json(capsys, "plan-recovery", f"{folder}@{number}", "--search", changes, "--out", plan)
    done = abs_json(capsys, "restore", plan, "--to", copy)
    shutil.rmtree(checkpoints)  # the copy has to do on its own
    shutil.rmtree(changes)

    checked_copy = abs_json(capsys, "validate", copy)
    assert checked_copy["findings"] == []
    states = abs_json(capsys, "state", copy)["states"]
    (owner,) = {s["operator"] for s in states if s["name"] == "accState"}  # type: ignore[attr-defined]
    told = abs_json(capsys, "state", copy, owner, "--state", "accState")["rows"]
    held = {_key(row): _counts(row["value"]) for row in told}  # type: ignore[attr-defined]
    assert 0 < sum(count for count, _ in held.values()) < NUMBERS

    again, later = tmp_path / "again.log", tmp_path / "later"
    options = settings(tmp_path / "more", "materialized" in wanted) if wanted else []
    since: dict[str, bytes] = {}
    with job(python, again, later, backend, FASTER, *options, *as_told(str(done["command"]))) as second:
        until = time.monotonic() + PATIENCE
        while second.poll() is None and time.monotonic() < until:
            for path in completed(later):
                with contextlib.suppress(FileNotFoundError):  # Flink keeps three
                    since.setdefault(path.name, (path / "_metadata").read_bytes())
            time.sleep(0.1)
        assert second.poll() == 0, again.read_text(errors="replace")[-3000:]
    found = printed(again)
    assert {key: rows[-1] for key, rows in found.items()} == WANTED, f"from {number}"
    for key, (count, total) in held.items():
        assert found[key][0] == (count, total), "the first row is the update of what abs read from the copy"
    assert since, "the job goes on taking checkpoints"
    for metadata in map(parse, since.values()):
        names = {type(stream) for handle in changelogs(metadata) for stream in streams(handle)}
        assert names <= {FileHandle}, "a relative path would mean a file beside that checkpoint"


def _key(row: dict[str, Any]) -> int:
    """The key; where nothing has been materialised its serializer is not stored, and abs gives the bytes of the row."""
    if "key.f0" in row:
        return int(row["key.f0"])
    return int.from_bytes(bytes.fromhex(row["key"].removeprefix("0x"))[8:], "little")  # behind header and null bits


def _counts(value: object) -> tuple[int, int]:
    """Count and sum of the accumulator, a row of two numbers."""
    assert isinstance(value, dict), json.dumps(value)
    numbers = [part for part in value.values() if isinstance(part, int)]
    return numbers[0], numbers[1]
