"""A real Flink starts from a copy that `abs restore` wrote, and goes on where the copied checkpoint was."""

from __future__ import annotations

import contextlib
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
from typing import Any

import pytest

from abscli.cli.main import main
from formats.flink.metadata.file import parse
from formats.flink.metadata.handles import FileHandle, changelogs, streams
from tests.support.flink.java import PATIENCE
from tests.support.flink.starts import as_told
from tests.support.flink.venv import flink_python
from tests.support.java import QUICK
from tests.support.schemas import checked

pytestmark = [pytest.mark.minutes, pytest.mark.usefixtures("jvm")]

JOB = Path(__file__).parents[2] / "flink_job" / "sums.py"
NUMBERS, KEYS = 4000, 7
SLOWER, PACE, FASTER = 50, 200, 500
"""Rows a second: so slow that it is stopped halfway, or twice on its way, and so fast that the rest takes seconds."""

CLAIM = "execution.state-recovery.claim-mode=CLAIM"
"""The changelog backend starts in no other mode: "does not support enforcing a full snapshot"."""

WANTED = {k: (len(range(k, NUMBERS, KEYS)), sum(range(k, NUMBERS, KEYS))) for k in range(KEYS)}
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
    env["JVM_ARGS"] = " ".join(QUICK)
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


@pytest.mark.soak
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
            printed(log) and any(int(path.name[4:]) >= 4 and has_parts(path, wanted) for path in completed(checkpoints))
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


def test_flink_starts_from_the_path_that_is_printed_and_after_orphans_have_gone(
    python: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """While the job runs, nothing goes, not even what nothing needs; once it was killed it has left what does."""
    checkpoints, log = tmp_path / "checkpoints", tmp_path / "first.log"
    with job(python, log, checkpoints, "rocksdb", PACE) as first:
        until = time.monotonic() + PATIENCE
        while not any(int(path.name[4:]) >= 4 for path in completed(checkpoints)):
            assert first.poll() is None, log.read_text(errors="replace")[-3000:]
            assert time.monotonic() < until, "no checkpoint in time"
            time.sleep(0.1)
        (folder,) = {path.parent for path in completed(checkpoints)}
        orphan = folder / "shared" / "0f0f0f0f-0000-0000-0000-000000000000"
        orphan.write_bytes(b"left by a checkpoint that failed")
        os.utime(orphan, (0, 0))
        assert main(["gc", str(checkpoints), "--yes"]) == 11
        assert "may be alive" in capsys.readouterr().err
        assert orphan.exists()
    listed = abs_json(capsys, "inspect", checkpoints)["jobs"]
    newest = max(completed(checkpoints), key=lambda path: int(path.name[4:]))
    assert [row["latest_restorable"]["path"] for row in listed] == [str(newest)]  # type: ignore[attr-defined]
    gone = abs_json(capsys, "gc", checkpoints, "--stopped", folder.name, "--min-age", "0s", "--yes")
    assert gone["removed"]
    assert not orphan.exists()
    assert main(["inspect", str(checkpoints), "--latest-restorable", "-q"]) == 0
    assert capsys.readouterr().out == f"{newest}\n"
    again = tmp_path / "again.log"
    start = f"execution.state-recovery.path={newest}"
    with job(python, again, tmp_path / "later", "rocksdb", FASTER, start) as second:
        second.wait(PATIENCE)
        assert second.returncode == 0, again.read_text(errors="replace")[-3000:]
    assert {key: rows[-1] for key, rows in printed(again).items()} == WANTED


@pytest.mark.soak
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_flink_goes_on_from_a_changed_copy(
    python: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], backend: str
) -> None:
    """One key has gone, one has another value, one is new, and all belong to other key groups: the results say so."""
    checkpoints, log = tmp_path / "checkpoints", tmp_path / "first.log"
    with job(python, log, checkpoints, backend, PACE) as first:
        until = time.monotonic() + PATIENCE
        while not any(int(path.name[4:]) >= 4 and has_parts(path, set()) for path in completed(checkpoints)):
            assert first.poll() is None, log.read_text(errors="replace")[-3000:]
            assert time.monotonic() < until, "no checkpoint in time"
            time.sleep(0.1)
    checkpoint = max(completed(checkpoints), key=lambda path: int(path.name[4:]))
    operators = parse((checkpoint / "_metadata").read_bytes()).operators
    states = abs_json(capsys, "state", checkpoint)["states"]
    (owner,) = {s["operator"] for s in states if s["name"] == "accState"}  # type: ignore[attr-defined]
    counts = {
        _key(row): _counts(row["value"])
        for row in abs_json(capsys, "state", checkpoint, owner, "--state", "accState")["rows"]  # type: ignore[attr-defined]
    }
    assert set(counts) == set(range(KEYS))
    changes, copy = tmp_path / "changes.yaml", tmp_path / "copy"
    numbers = "\n".join(f"- {{operator: {operator.id}, max_parallelism: 200}}" for operator in operators)
    changes.write_text(
        f"version: 1\nset:\n{numbers}\n"
        f"- {{operator: {owner}, state: accState, key: {{f0: 5}}, value: [1000, -7]}}\n"
        f"removed:\n- {{operator: {owner}, state: accState, key: {{f0: 3}}}}\n- {{operator: {owner}, key: {{f0: 4}}}}\n"
    )
    abs_json(capsys, "rewrite", checkpoint, "--changes", changes, "--to", tmp_path / "between")
    changes.write_text(f"version: 1\nset: [{{operator: {owner}, state: accState, key: {{f0: 4}}, value: [500, 11]}}]")
    done = abs_json(capsys, "rewrite", tmp_path / "between", "--changes", changes, "--to", copy)
    shutil.rmtree(checkpoints)  # the copy has to do on its own
    shutil.rmtree(tmp_path / "between")
    assert abs_json(capsys, "validate", copy)["findings"] == []

    again, later = tmp_path / "again.log", tmp_path / "later"
    options = ["pipeline.max-parallelism=200", *as_told(str(done["command"]))]
    with job(python, again, later, backend, FASTER, *options) as second:
        assert second.wait(PATIENCE) == 0, again.read_text(errors="replace")[-3000:]
    wanted = dict(WANTED)
    for key, (count, total) in {3: (0, 0), 4: (500, 11), 5: (1000, -7)}.items():
        wanted[key] = (WANTED[key][0] - counts[key][0] + count, WANTED[key][1] - counts[key][1] + total)
    rows = printed(again)
    assert {key: values[-1] for key, values in rows.items()} == wanted
    assert rows[3][0][0] == 1, "the key begins anew"


def halfway(python: str, log: Path, checkpoints: Path, backend: str, *options: str, wanted: set[str]) -> Path:
    """A checkpoint of a job that was killed before its end: the newest with these parts of the changelog backend."""

    def usable() -> list[Path]:
        return [path for path in completed(checkpoints) if int(path.name[4:]) >= 4 and has_parts(path, wanted)]

    with job(python, log, checkpoints, backend, SLOWER, *options) as process:
        until = time.monotonic() + PATIENCE
        while not (printed(log) and usable()):
            assert process.poll() is None, log.read_text(errors="replace")[-3000:]
            assert time.monotonic() < until, "no checkpoint in time"
            time.sleep(0.1)
    return max(usable(), key=lambda path: int(path.name[4:]))


@pytest.mark.soak
def test_flink_goes_on_with_another_state_backend_from_a_canonical_copy(
    python: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the heap to RocksDB, from there with files of changes to the heap: each is killed, and its cluster gone."""
    changes = tmp_path / "changes"
    changes.mkdir()
    start: list[str] = []
    for number, (backend, logged) in enumerate((("hashmap", False), ("rocksdb", True))):
        checkpoints = tmp_path / f"checkpoints-{number}"
        options = [*start, *([CLAIM, *settings(changes, materialized=True)] if logged else [])]
        wanted = {"changes", "materialized"} if logged else set()
        checkpoint = halfway(python, tmp_path / f"{number}.log", checkpoints, backend, *options, wanted=wanted)
        copy = tmp_path / f"copy-{number}"
        # until its state is materialized, a checkpoint names what it began from as if it lay beside it (FLINK-39964)
        search = [word for folder in (changes, tmp_path / "copy-0") if folder.exists() for word in ("--search", folder)]
        done = abs_json(capsys, "rewrite", checkpoint, "--layout", "canonical", "--to", copy, *search)
        assert "accState" in {state["state"] for state in done["written"]}  # type: ignore[attr-defined]
        shutil.rmtree(checkpoints)  # the copy has to do on its own
        shutil.rmtree(changes)
        assert abs_json(capsys, "validate", copy)["findings"] == []
        start = as_told(str(done["command"]))
    last = tmp_path / "last.log"
    with job(python, last, tmp_path / "later", "hashmap", FASTER, *start) as process:
        assert process.wait(PATIENCE) == 0, last.read_text(errors="replace")[-3000:]
    rows = printed(last)
    assert {key: values[-1] for key, values in rows.items()} == WANTED
    assert all(values[0][0] > 1 for values in rows.values()), "it goes on, and does not begin anew"


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
