"""Jobs that follow files which come, and lines which are appended, while their processes get SIGKILL: every row counts
once, and nothing is lost."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from abscli.engine.coordinator import Progress
from abscli.engine.job import JobOptions, run_job
from abscli.engine.losses.decisions import Scope
from abscli.stores.native.check import check_all
from formats.errors import FormatError
from formats.job.model import Topology
from formats.native.probe import Prober
from formats.view import Status
from tests.engine.recovering.test_live import on_spark, store
from tests.support.jobs.kills import Kills, after, check_counted, check_rows, pipelines, spread, write_rows
from tests.support.jobs.small import inline
from tests.support.waiting import wait_for

pytestmark = pytest.mark.minutes

FILES, ROUNDS, ROWS = 7, 60, 8

JOB = """
version: 1
job: spread
parallelism: 2
operators:
  rows:
    source: {type: jsonl, path: in/*.jsonl, schema: {key: string, id: int}, follow: true, every: 20ms}
  same:
    from: rows
    map: slow:pass_on
  counts:
    from: {same: {partition: hash, key: [key]}}
    reduce: {key: [key], n: {count: "*"}, emit: record}
  out:
    from: counts
    sink: {type: jsonl, path: out}
"""


def following(topology: Topology) -> Topology:
    rows, *others = topology.operators
    connector = {
        "type": "jsonl", "path": "in/*.jsonl", "schema": {"key": "string", "id": "int"}, "follow": True,
        "every": "20ms",
    }  # fmt: skip
    return msgspec.structs.replace(topology, operators=(msgspec.structs.replace(rows, connector=connector), *others))


class Writer(threading.Thread):
    """Appends rows to files, some of them new, until each row has come: often in the middle of one."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__()
        write_rows(folder, files=0, pause=0.002)
        self.counts: Counter[str] = Counter()
        self._folder = folder / "in"
        self._dice = random.Random(seed)

    def run(self) -> None:
        dice, number = self._dice, 0
        for turn in range(ROUNDS):
            path = self._folder / f"{dice.randrange(FILES) if dice.random() < 0.7 else turn}.jsonl"
            lines = []
            for _ in range(ROWS):
                key = f"k{dice.randrange(23)}"
                lines.append(json.dumps({"key": key, "id": number}) + "\n")
                self.counts[key] += 1
                number += 1
            text = "".join(lines)
            cut = dice.randrange(len(text))
            for piece in (text[:cut], text[cut:]):
                with open(path, "a") as file:
                    file.write(piece)
                time.sleep(0.02)

    @property
    def rows(self) -> int:
        return sum(self.counts.values())


@contextmanager
def written(folder: Path, seed: int = 1) -> Iterator[Writer]:
    writer = Writer(folder, seed)
    writer.start()
    yield writer
    writer.join()


def read_rows(folder: Path) -> int:
    """By the newest complete epoch."""
    newest = newest_epoch(folder)
    parts = store(folder).parts(newest) if newest else ()
    return sum(at.records or 0 for part in parts for at in part.positions or ())


def newest_epoch(folder: Path) -> int:
    if not (folder / "store").exists():
        return 0
    try:
        return max((row.epoch for row in store(folder).epochs() if row.status is Status.COMPLETE), default=0)
    except FormatError:  # it is just being made
        return 0


def check_sound(folder: Path) -> None:
    report = check_all(store(folder), (), Prober(store(folder).storage))
    assert report.findings == ()
    assert [finding for epoch in report.epochs for finding in epoch.findings] == []


def survive(topology: Topology, folder: Path, options: JobOptions, kills: Kills) -> None:
    """Run while rows come, and workers are killed; it is stopped when every row is in an epoch."""
    with written(folder) as writer:

        def progress(now: Progress) -> None:
            kills.progress(now)
            over = not writer.is_alive() and len(kills.recoveries) == kills.due
            if over and read_rows(folder) == writer.rows:
                assert kills.service is not None
                kills.service.request_stop()

        outcome = run_job(topology, str(folder / "store"), options, progress, kills.meet, on_news=kills.news)
    assert not outcome.finished
    assert len(kills.pids) == kills.due
    check_sound(folder)
    if topology.job == "pipelines":
        check_rows(folder, writer.counts)
    else:
        check_counted(folder, writer.counts)


class Followed(Kills):
    """Kills whose job has no end."""

    @property
    def due(self) -> int:
        return self._enough

    @property
    def service(self) -> Any:
        return self._service


@pytest.mark.sample(3)
@pytest.mark.parametrize("recovery", list(Scope))
@pytest.mark.parametrize("name", ["pipelines", "spread"])
def test_every_row_counts_once_while_workers_are_lost(tmp_path: Path, recovery: Scope, name: str) -> None:
    topology = following(pipelines() if name == "pipelines" else spread("spread", 2, 2))
    kills = Followed([(after(2), [0]), (after(5), [1]), (after(9), [0])], tmp_path)
    survive(topology, tmp_path, inline(tmp_path, interval=0.05, recovery=recovery), kills)
    if recovery is Scope.LOCAL:
        assert [one.again is not None for one in kills.recoveries] == [True] * 3, [r.cause for r in kills.recoveries]


@pytest.mark.sample(1)
@pytest.mark.parametrize("recovery", [Scope.SUBGRAPH, Scope.LOCAL])
def test_every_row_counts_once_while_processes_of_workers_get_sigkill(
    tmp_path: Path, spark: Any, recovery: Scope
) -> None:
    kills = Followed([(after(2), [0]), (after(5), [1])], tmp_path)
    survive(following(spread("spread", 2, 2)), tmp_path, on_spark(tmp_path, spark, recovery=recovery), kills)
    assert os.getpid() not in kills.pids


@pytest.mark.parametrize("seed", range(2))
def test_every_row_counts_once_while_the_whole_job_gets_sigkill(tmp_path: Path, seed: int) -> None:
    dice, kills = random.Random(seed), 0
    (tmp_path / "job.yaml").write_text(JOB)
    command = [sys.executable, "-m", "abscli", "run", "job.yaml", "--store", "store", "--engine", "inline",
               "--interval", "50ms"]  # fmt: skip

    def begin() -> subprocess.Popen[bytes]:
        resume = ["--resume"] if newest_epoch(tmp_path) else []
        return subprocess.Popen([*command, *resume], cwd=tmp_path, stderr=subprocess.PIPE)

    with written(tmp_path, seed) as writer:
        while writer.is_alive() or read_rows(tmp_path) < writer.rows:
            epoch, job = newest_epoch(tmp_path), begin()
            wait_for(lambda job=job, epoch=epoch: job.poll() is not None or newest_epoch(tmp_path) > epoch)  # type: ignore[misc]
            time.sleep(dice.random() * 0.2)
            job.kill()
            _, text = job.communicate()
            assert job.returncode == -signal.SIGKILL, text.decode()
            kills += 1
    epoch, job = newest_epoch(tmp_path), begin()
    wait_for(lambda: job.poll() is not None or (newest_epoch(tmp_path) > epoch and read_rows(tmp_path) == writer.rows))
    job.send_signal(signal.SIGTERM)
    _, text = job.communicate(timeout=60)
    assert job.returncode == 128 + signal.SIGTERM, text.decode()
    assert kills >= 1
    check_counted(tmp_path, writer.counts)
