"""A worker or a whole job ends in the middle of a state file, or of what an epoch puts out: the results are exact."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from abscli.engine.channels.peers import Peers
from abscli.engine.coordinator import Progress, Service
from abscli.engine.errors import EngineStopped
from abscli.engine.job import run_job
from abscli.engine.losses.decisions import Scope
from abscli.engine.operators import reduce
from abscli.engine.state import keyed_state
from abscli.engine.task import Owed, RunningTask
from abscli.engine.telemetry.news import Late, News
from formats.ids import TaskId
from formats.native.store import NativeStore
from formats.storage import LocalStorage, pieces
from tests.engine.recovering.test_live import STORE, on_spark, survive
from tests.support.imports import ROOT
from tests.support.jobs.kills import Kills, fan, write_rows
from tests.support.jobs.small import inline, open_gate, output_rows

pytestmark = pytest.mark.minutes

LITTLE = 10_000
"""Bytes: less than the state of the job, of which some is always on disk."""

HELD = """
from tests.engine.recovering.test_streamed_state import hold_state_files
from slow import pass_on as plain

hold_state_files({folder!r})

def pass_on(batch):
    return plain(batch)
"""


def hold_state_files(folder: str) -> None:
    """Every state file of this process stops in its middle once `armed` is there, until `open` is."""
    pieces.WHOLE = 0
    put_pieces = LocalStorage.put_pieces

    def held(parts: Iterable[bytes]) -> Iterator[bytes]:
        for number, part in enumerate(parts):
            if number == 1 and Path(folder, "armed").exists():
                Path(folder, f"middle-{os.getpid()}").touch()
                while not Path(folder, "open").exists():
                    time.sleep(0.01)
            yield part

    LocalStorage.put_pieces = lambda self, path, parts: put_pieces(self, path, held(parts))  # type: ignore[method-assign]


def counted(folder: Path) -> dict[str, int]:
    """The last count of each key; each that came, came once."""
    rows = [(str(row["key"]), int(str(row["n"]))) for row in output_rows(folder)]
    assert len(rows) == len(set(rows))
    return {key: max(n for k, n in rows if k == key) for key, _ in rows}


def resume(folder: Path) -> None:
    """From the newest complete epoch, to the end."""
    epoch = NativeStore(LocalStorage(folder / STORE)).latest()
    assert epoch is not None
    assert run_job(fan("epoch"), str(folder / STORE), inline(folder, from_epoch=epoch, state_memory=LITTLE)).finished


# -- in the middle of a state file ----------------------------------------------------------------------------


@pytest.mark.sample(1)
@pytest.mark.parametrize("scope", Scope)
def test_a_python_worker_gets_sigkill_in_the_middle_of_a_state_file(tmp_path: Path, spark: Any, scope: Scope) -> None:
    counts = write_rows(tmp_path)
    (tmp_path / "slow.py").rename(tmp_path / "plain_slow.py")
    held = HELD.replace("from slow", "from plain_slow")
    (tmp_path / "slow.py").write_text(held.format(folder=str(tmp_path)))
    kills: list[Kills] = []
    victims: list[int] = []

    def due(progress: Progress) -> bool:
        if progress.epochs >= 2:
            (tmp_path / "armed").touch()
        victims[:] = [n for n in (1, 0) if (tmp_path / f"middle-{kills[0].pid(n)}").exists()][:1]
        return bool(victims)

    meet = Kills.meet

    def met(self: Kills, service: Service) -> None:
        kills.append(self)
        meet(self, service)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kills, "meet", met)
        options = on_spark(tmp_path, spark, recovery=scope, state_memory=LITTLE)
        survive(fan("epoch"), tmp_path, options, [(due, victims)])
    assert counted(tmp_path) == counts


def die_in_the_middle(folder: str) -> None:
    """The job, which kills itself while it is in the middle of a state file."""
    hold_state_files(folder)

    def progress(p: Progress) -> None:
        if p.epochs >= 2:
            Path(folder, "armed").touch()
        if list(Path(folder).glob("middle-*")):
            os.kill(os.getpid(), signal.SIGKILL)

    run_job(fan("epoch"), str(Path(folder, STORE)), inline(Path(folder), state_memory=LITTLE), on_progress=progress)


def test_a_job_gets_sigkill_in_the_middle_of_a_state_file(tmp_path: Path) -> None:
    counts = write_rows(tmp_path)
    code = f"from tests.engine.recovering import test_streamed_state as t; t.die_in_the_middle({str(tmp_path)!r})"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == -signal.SIGKILL, done.stderr
    unfinished = [file.path for file in LocalStorage(tmp_path / STORE).inventory() if "/.tmp-" in file.path]
    assert unfinished
    open_gate(tmp_path)
    resume(tmp_path)
    assert counted(tmp_path) == counts


def test_the_disk_is_full_in_the_middle_of_a_state_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = write_rows(tmp_path)
    monkeypatch.setattr(pieces, "WHOLE", 0)
    put_pieces, armed = LocalStorage.put_pieces, threading.Event()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    most = 4 << 20  # more than any other file of this process has

    def full(parts: Iterable[bytes]) -> Iterator[bytes]:
        for number, part in enumerate(parts):
            if number == 1 and armed.is_set():
                yield bytes(most)
            yield part

    monkeypatch.setattr(LocalStorage, "put_pieces", lambda self, path, parts: put_pieces(self, path, full(parts)))

    def progress(p: Progress) -> None:
        if p.epochs >= 2:
            armed.set()

    options = inline(tmp_path, state_memory=LITTLE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        with pytest.raises(EngineStopped, match=r"\.parquet: File too large.* bytes are free") as caught:
            run_job(fan("epoch"), str(tmp_path / STORE), options, on_progress=progress)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.exit_code == 6
    assert not [file for file in LocalStorage(tmp_path / STORE).inventory() if "/.tmp-" in file.path]
    monkeypatch.setattr(LocalStorage, "put_pieces", put_pieces)
    open_gate(tmp_path)
    resume(tmp_path)
    assert counted(tmp_path) == counts


# -- in the middle of what an epoch puts out ------------------------------------------------------------------


class Standing:
    """Once it is armed, a task stands in the middle of what it puts out for an epoch until it is released."""

    def __init__(self, patch: pytest.MonkeyPatch, task: TaskId) -> None:
        self.armed, self.now, self.released = threading.Event(), threading.Event(), threading.Event()
        self.drained = 0
        owing: set[TaskId] = set()
        put_out, has_room, forget = RunningTask._put_out, Peers.has_room, RunningTask.forget_senders
        patch.setattr(keyed_state, "PIECE_ROWS", 1)
        patch.setattr(reduce, "EMITTED_ROWS", 1)

        def watched(running: RunningTask, owed: Owed) -> None:
            put_out(running, owed)
            (owing.add if running._owed is not None else owing.discard)(running.machine.name)

        def room(peers: Peers, name: TaskId) -> bool:
            if name == task and name in owing and self.armed.is_set() and not self.released.is_set():
                self.now.set()
                return False
            return has_room(peers, name)

        def forgets(running: RunningTask, *arguments: Any) -> None:
            self.drained += running._owed is not None
            forget(running, *arguments)

        patch.setattr(RunningTask, "_put_out", watched)
        patch.setattr(RunningTask, "forget_senders", forgets)
        patch.setattr(Peers, "has_room", room)

    def due(self, progress: Progress) -> bool:
        """When it stands there, after two epochs."""
        if progress.epochs >= 2:
            self.armed.set()
        return self.now.is_set()


@pytest.mark.sample(2)
@pytest.mark.parametrize("memory", [None, LITTLE])
@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("scope", Scope)
def test_a_worker_is_lost_while_a_task_puts_out_what_changed(
    tmp_path: Path, scope: Scope, lost: int, memory: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = write_rows(tmp_path)
    standing = Standing(monkeypatch, TaskId("counts", 1))

    def due(progress: Progress) -> bool:
        if standing.due(progress):
            standing.released.set()
            return True
        return False

    options = inline(tmp_path, recovery=scope, state_memory=memory)
    survive(fan("epoch"), tmp_path, options, [(due, [lost])])
    assert counted(tmp_path) == counts


def test_the_senders_of_a_task_restart_while_it_puts_out_what_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says all of it at once, and then that it has stopped."""
    counts = write_rows(tmp_path)
    standing = Standing(monkeypatch, TaskId("counts", 1))
    stop = RunningTask.forget_senders

    def stops(running: RunningTask, *arguments: Any) -> None:
        stop(running, *arguments)
        standing.released.set()

    monkeypatch.setattr(RunningTask, "forget_senders", stops)
    survive(fan("epoch"), tmp_path, inline(tmp_path, state_memory=LITTLE), [(standing.due, [0])])
    assert standing.drained == 1
    assert counted(tmp_path) == counts


def test_epochs_are_given_up_while_a_task_puts_out_what_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = write_rows(tmp_path)
    standing = Standing(monkeypatch, TaskId("counts", 0))
    late: list[str] = []

    def news(one: News) -> None:
        # Others are late where the machine has much to do.
        if isinstance(one, Late) and "was emitting the changes of its" in one.message:
            late.append(one.message)
            standing.released.set()
            open_gate(tmp_path)

    options = inline(tmp_path, state_memory=LITTLE, epoch_timeout=3.0)
    progress = lambda p: standing.due(p) and None  # noqa: E731
    assert run_job(fan("epoch"), str(tmp_path / STORE), options, on_progress=progress, on_news=news).finished
    assert "counts/0 was emitting" in late[0]
    assert counted(tmp_path) == counts


def test_a_job_is_stopped_while_a_task_puts_out_what_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = write_rows(tmp_path)
    standing = Standing(monkeypatch, TaskId("counts", 0))
    services: list[Service] = []

    def progress(p: Progress) -> None:
        if standing.due(p) and services:
            services.pop().request_stop()
            standing.released.set()

    options = inline(tmp_path, state_memory=LITTLE)
    stopped = run_job(
        fan("epoch"), str(tmp_path / STORE), options, on_progress=progress, on_service=services.append
    )
    assert not stopped.finished
    open_gate(tmp_path)
    resume(tmp_path)
    assert counted(tmp_path) == counts
