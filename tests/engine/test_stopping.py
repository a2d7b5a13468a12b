"""Signals to a job whose main thread is blocked."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from abscli.engine import stopping
from abscli.engine.stopping import Watch, Wishes
from abscli.engine.telemetry.news import AbandonedAtOnce, News, StopDelayed
from abscli.engine.waits import Doing, StepTimer, Wait
from tests.support.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
COMMIT = Wait("out", Doing.PUBLISH, "postgres:lines", 6, 300)
BLOCKED = """
import ctypes
from abscli.engine import stopping
from abscli.engine.waits import Doing, StepTimer, Wait
stopping.ANSWER_SECONDS = stopping.LEAVE_SECONDS = 0.1
steps = StepTimer()
with stopping.signals_handled(lambda news: print(news, flush=True), lambda: steps.waits(over=0.0)):
    with steps.run(Wait("out", Doing.PUBLISH, "postgres:lines", 6, 300)):
        print("blocked", flush=True)
        library, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
        library.pthread_mutex_lock(mutex)
        library.pthread_mutex_lock(mutex)  # never returns; signals do not interrupt it
"""


def test_signals_are_answered_while_the_main_thread_is_in_a_c_library() -> None:
    with subprocess.Popen([sys.executable, "-c", BLOCKED], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "blocked\n"
            process.send_signal(signal.SIGTERM)
            # The handler still runs if the signal comes just before the call of the library.
            answer = next(line for line in process.stdout if not line.startswith("Stopping("))
            assert "StopDelayed(signal=15" in answer
            assert "operator='out'" in answer
            time.sleep(stopping.SAME_WISH_SECONDS)  # or it would be the same wish
            process.send_signal(signal.SIGTERM)
            assert "AbandonedAtOnce(signal=15)" in process.stdout.readline()
            assert process.wait(10) == 143
        finally:
            process.kill()


def test_a_signal_that_comes_again_at_once_is_the_same_wish() -> None:
    wishes = Wishes()
    assert wishes.came(15, 1.0)
    assert not wishes.came(15, 1.4)
    assert wishes.came(2, 1.4)
    assert wishes.came(2, 2.0)
    assert wishes.received == [15, 2, 2]


class Watched(NamedTuple):
    """A watch that runs, the steps of its job, its reports, and the exit codes with which it would end the process."""

    watch: Watch
    steps: StepTimer
    news: list[News]
    left: list[int]


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """A watch with short times."""
    monkeypatch.setattr(stopping, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(stopping, "ANSWER_SECONDS", 0.05)
    monkeypatch.setattr(stopping, "LEAVE_SECONDS", 0.05)
    steps, news, left = StepTimer(), list[News](), list[int]()
    with Watch(news.append, lambda: steps.waits(over=0.0), left.append) as watch:
        yield Watched(watch, steps, news, left)


def test_a_signal_while_nothing_is_waited_for_has_no_second_answer(watched: Watched) -> None:
    watched.watch.writer.send(bytes([signal.SIGCHLD, signal.SIGTERM]))
    time.sleep(0.2)
    assert watched.news == []
    watched.watch.writer.send(bytes([signal.SIGINT]))
    wait_for(lambda: watched.left, seconds=10)
    assert watched.news[0] == AbandonedAtOnce(signal.SIGTERM)
    assert watched.left[0] == 143


def test_a_signal_is_answered_with_all_that_is_waited_for(watched: Watched) -> None:
    with watched.steps.run(COMMIT):
        watched.watch.writer.send(bytes([signal.SIGTERM]))
        wait_for(lambda: any(isinstance(one, StopDelayed) for one in watched.news), seconds=10)
    (answer,) = (one for one in watched.news if isinstance(one, StopDelayed))
    assert [wait.operator for wait in answer.waits] == ["out"]
