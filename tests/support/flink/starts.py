"""A real Flink 2.3 that starts from a copy of a snapshot of the matrix, goes on, and takes a savepoint: what the copy
is good for, row by row."""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from pathlib import Path

from abscli.api import open_store
from formats.flink.store import FlinkStore
from tests.support.flink.cases import content
from tests.support.flink.java import PATIENCE, java_job
from tests.support.flink.matrix import Case
from tests.support.waiting import wait_for

GONE = "prices"
"""The state that a changed copy is without."""


def other_backend(case: Case) -> str:
    """Not the one that the snapshot is of."""
    return "hashmap" if "rocksdb" in case.name else "rocksdb"


def rewritten(source: Path, search: Path, target: Path, how: str) -> str:
    """Makes a copy, `canonical` or `changed` (without the state GONE); the options that Flink starts from it with."""
    store = open_store(source, search=str(search))
    changes = target.parent / f"{target.name}.yaml"
    changes.write_text(f"version: 1\nremoved: [{{operator: keep, state: {GONE}}}]\n")
    done = store.rewrite(
        changes if how == "changed" else None, layout="canonical" if how == "canonical" else None, to=target
    ).to_json()
    claim = " -claimMode CLAIM" in str(done["command"])
    return "execution.state-recovery.claim-mode=CLAIM" if claim else "execution.state-recovery.claim-mode=NO_CLAIM"


def as_told(command: str) -> list[str]:
    """Return the options of a job that starts as `flink run` would with this command."""
    words = shlex.split(command)
    assert words[:2] == ["flink", "run"]
    options = [f"execution.state-recovery.path={words[words.index('-s') + 1]}"]
    if "-claimMode" in words:
        options.append(f"execution.state-recovery.claim-mode={words[words.index('-claimMode') + 1]}")
    return options + [word.removeprefix("-D") for word in words if word.startswith("-D")]


def held_checkpoint(class_path: str, folder: Path, main: str, *arguments: object) -> Path:
    """Return the directory of a checkpoint that a job of Touch.java took after it had touched all state; it is killed.

    arguments: of the job, after its folder for savepoints.
    """
    checkpoints, log = folder / "checkpoints", folder / "held.log"
    options = [
        f"execution.checkpointing.dir=file://{checkpoints}", "execution.checkpointing.interval=200ms",
        "execution.checkpointing.data-inline-threshold=0b", "touch.end=hold",
    ]  # fmt: skip

    def text() -> str:
        return log.read_text(errors="replace")

    def newest() -> int:
        return max((int(path.parent.name[4:]) for path in checkpoints.glob("*/chk-*/_metadata")), default=0)

    with java_job(class_path, log, main, folder / "savepoints", *arguments, *options) as process:
        wait_for(lambda: "HELD" in text(), process, text)
        held = newest()
        wait_for(lambda: newest() > held + 1, process, text)  # one that was triggered after all keys were touched
    (job,) = checkpoints.iterdir()
    return job / f"chk-{newest()}"


def starts(class_path: str, folder: Path, copy: Path | str, backend: str, *options: str) -> tuple[Path | None, str]:
    """The savepoint that a job took which started from the copy, and its log; None: it did not come to that."""
    folder.mkdir()
    place = copy if isinstance(copy, str) else f"file://{copy}"
    words = [
        f"execution.state-recovery.path={place}", "restart-strategy.type=none", f"state.backend.type={backend}",
        *options,
    ]  # fmt: skip
    log = folder / "log"
    until = time.monotonic() + PATIENCE
    with java_job(class_path, log, "MatrixJob", folder, "CANONICAL", *words) as process:
        while process.poll() is None and time.monotonic() < until:
            try:
                process.wait(0.5)
            except subprocess.TimeoutExpired:
                if "switched from state FAILING to FAILED" in log.read_text(errors="replace"):
                    break
    text = log.read_text(errors="replace")
    taken = re.findall(r"SAVEPOINT file:(\S+)", text)
    return (Path(taken[-1]) if taken else None), text


def difference(before: FlinkStore, savepoint: Path, how: str) -> str | None:
    """The first keyed state whose rows are not as the snapshot, or the change, has them; None if there is none."""
    mine, theirs = content(before), content(FlinkStore(str(savepoint)))
    for (operator, state), rows in mine.items():
        if state == "SourceReaderState":  # which has read on
            continue
        wanted = [] if how == "changed" and state == GONE else rows
        if theirs.get((operator, state), []) != wanted:
            return f"{state}: {len(rows)} rows, {len(theirs.get((operator, state), []))} then"
    return None
