"""The jobs of `repair`, stopped, killed or damaged, and what has to hold once they are repaired."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from abscli.api import Report, Restored, open_store
from abscli.engine.state import part_io
from abscli.stores.native.plan import why_not
from abscli.stores.native.run import resume_from
from formats.native import layout
from formats.native.facts import PartFacts
from formats.storage import Storage
from tests.support.jobs.repair import JOBS, PATIENCE, Pace, last_rows, opened, rows_of, run, write_input, write_job
from tests.support.jobs.small import write_graph

ROOT = Path(__file__).resolve().parents[3]


def make(folder: Path, job: str) -> Path:
    write_input(folder, job)
    write_job(folder, JOBS[job]())
    return folder


def stopped(folder: Path, job: str, policy: str = "aligned", epochs: int = 4) -> Path:
    """The job with some complete epochs behind it."""
    make(folder, job)
    with pytest.MonkeyPatch.context() as patch:
        pace = Pace()
        pace.install(lambda target, name, value: patch.setattr(target, name, value))
        run(folder, job, policy=policy, epochs=epochs, pace=pace)
    return folder


def process(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.support.jobs.repair", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)


def hold_ack(patch: pytest.MonkeyPatch, folder: Path, task: str, epoch: int) -> None:
    """The task does not come to its ack of the epoch before the epoch has been given up."""
    plain = part_io.put_part

    def put(storage: Storage, part: PartFacts) -> None:
        until = time.monotonic() + PATIENCE
        if (str(part.task), part.epoch) == (task, epoch):
            while opened(folder).outcome_kind(epoch) is None and time.monotonic() < until:
                time.sleep(0.01)
        plain(storage, part)

    patch.setattr(part_io, "put_part", put)


def killed(folder: Path, job: str, task: str, *, policy: str = "aligned", epoch: int = 3, missing: int = 1) -> int:
    """The job died by SIGKILL before this task acked an epoch, when fewer than `missing` others had not; its number."""
    make(folder, job)
    done = process(folder, "run", job, policy, task, epoch, missing)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return max(opened(folder).epoch_numbers())


def newest(folder: Path) -> int:
    return max(opened(folder).epoch_numbers())


def part_of(folder: Path, epoch: int, task: str) -> PartFacts:
    return next(part for part in opened(folder).parts(epoch) if str(part.task) == task)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def damage_state(folder: Path, epoch: int, task: str) -> str:
    """A byte of what the task wrote for the epoch is another one; the file."""
    path = part_of(folder, epoch, task).state[-1].path
    assert layout.epoch_of(path) == epoch
    flip(folder / "store" / path)
    return path


def repaired(folder: Path, epoch: int | None = None, *, distrust: tuple[str, ...] = ()) -> dict[str, Any]:
    """The epoch repaired by the public API; what it says of that."""
    plan = open_store(folder / "store").plan(epoch, repair=True, distrust=distrust)
    plan.save(folder / "plan.json")
    done: Restored = plan.prepare(job=folder / "job.json").carry_out()
    return done.to_json()


def repair_later(folder: Path, epoch: int) -> None:
    """And those after it that refer to what was damaged."""
    for later in range(epoch + 1, newest(folder) + 1):
        if why_not(opened(folder), later) is not None:
            repaired(folder, later)


def clean(folder: Path) -> Report:
    report = open_store(folder / "store").validate()
    text = str(report)
    assert text.startswith("OK: "), text
    return report


def assert_goes_on_exactly(folder: Path, epoch: int) -> None:
    """`run --resume` goes on from that epoch, and each word comes out once."""
    assert clean(folder)
    resumed = resume_from(str(folder / "store"))
    assert (resumed.epoch, resumed.warnings) == (epoch, ())
    run(folder, opened(folder).job, from_epoch=epoch)
    assert clean(folder)
    assert_exact(folder)


def assert_shown(folder: Path, epoch: int) -> None:
    """Readers see what the manifest names, without another run."""
    parts = [(part.operator, file.name) for part in opened(folder).parts(epoch) for file in part.sink]
    assert parts
    assert all((folder / operator / name).exists() for operator, name in parts)


def assert_exact(folder: Path) -> None:
    """The job has come to its end, and each word came out once."""
    job = opened(folder).job
    if job == "reach":
        assert_reaches(folder)
        return
    words = [word for file in sorted((folder / "in").iterdir()) for word in file.read_text().split()]
    assert Counter(json.loads(row)["word"] for row in rows_of(folder, "raw")) == Counter(words)
    last = last_rows(folder, "out", "word")
    assert {word: row["n"] for word, row in last.items()} == Counter(words)  # type: ignore[index]


def assert_reaches(folder: Path) -> None:
    other = folder.parent / "answer"
    pairs = write_graph(other, nodes=200)
    shown = [(row["start"], row["node"]) for row in map(json.loads, rows_of(folder, "out"))]
    assert Counter(shown) == Counter(pairs)
