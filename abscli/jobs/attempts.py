"""Attempts of a job, each in a process of its own, which may be killed by SIGKILL: what its functions keep is gone.

Two processes that have loaded the engine and nothing of the job wait for orders, and fork for each: loading takes
longer than an attempt at a few rows. They take turns, so that no two attempts in a row share a hash seed.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from types import TracebackType
from typing import Self

import msgspec

from abscli.engine.errors import EngineStopped
from formats.decoding import decode
from formats.job.model import Topology


class Order(msgspec.Struct, frozen=True):
    """One attempt.

    directory: where functions are looked for; store, sinks: folders that it writes to.
    from_epoch: that it goes on from, 0 for the start.
    pace: lines that each source task reads for an epoch; None: all of them for one.
    kill_after: the process is killed when so many of its epochs are complete; None: it runs to its end.
    """

    topology: Topology
    directory: str
    store: str
    sinks: str
    from_epoch: int
    pace: int | None
    kill_after: int | None


class Answer(msgspec.Struct, frozen=True):
    """How it ended. epoch: the newest complete one.

    killed: by SIGKILL, as it was ordered.
    failure, hint: why it failed, where it did, and what to do; exit_code: of that.
    """

    epoch: int
    killed: bool = False
    failure: str | None = None
    hint: str | None = None
    exit_code: int = 0


PACED_SECONDS = 0.001
"""From one epoch to the next, where what they hold is said by the pace."""


ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""A process that forks must have one thread alone: these have numpy and Arrow start none."""


HASH_SEEDS = ("1", "2")
"""Hash seeds of the two processes: `hash` of a string differs between attempts, as after a real restart."""


class Attempts:
    """Runs attempts one after the other. Leaving it ends all of its processes."""

    def __enter__(self) -> Self:
        paths = [os.path.abspath(path) for path in sys.path]
        self._processes = deque(
            subprocess.Popen(
                [sys.executable, "-P", "-u", "-c", f"from {__name__} import serve; serve()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": seed},
                start_new_session=True,
            )
            for seed in HASH_SEEDS
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def run(self, order: Order, seconds: float) -> Answer:
        """Run one attempt in the next process. TimeoutError if it does not end within so many seconds."""
        process = self._processes[0]
        self._processes.rotate()
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(msgspec.json.encode(order) + b"\n")
            process.stdin.flush()
        until = time.monotonic() + seconds
        line = b""
        # `select.select` fails for descriptors above 1023, which a process with many open files has.
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, until - time.monotonic())):
                    raise TimeoutError
                more = os.read(process.stdout.fileno(), 1 << 16)
                if not more:
                    status = process.wait()
                    raise EngineStopped(f"the process that runs the attempts of a test has ended with status {status}")
                line += more
        return decode(line, Answer)


def serve() -> None:
    """Takes orders from stdin, a line each, and puts an answer to each on stdout; what functions print goes to
    stderr."""
    import abscli.engine.job  # noqa: F401 - what takes long to load, and is the same for every attempt

    answers = os.dup(1)
    os.dup2(2, 1)
    with open(os.dup(0), "rb", buffering=0) as orders:
        while line := orders.readline():
            order = decode(line, Order)
            os.write(answers, msgspec.json.encode(_forked(order)) + b"\n")


def _forked(order: Order) -> Answer:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        try:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            answer = _attempt(order)
        except BaseException as error:  # nothing of the parent's may run in the child, whatever happens
            answer = Answer(0, failure=f"unexpected {type(error).__name__}: {error}", exit_code=1)
        try:
            os.write(writing, msgspec.json.encode(answer))
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as written:
        data = written.read()
    _, status = os.waitpid(child, 0)
    if data:
        return decode(data, Answer)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    failure = None if killed else f"its process ended with status {os.waitstatus_to_exitcode(status)}"
    return Answer(_newest(order.store), killed, failure, None, 1)


def _newest(store: str) -> int:
    from formats.errors import NotFound
    from formats.native.store import NativeStore
    from formats.storage import LocalStorage

    with contextlib.suppress(NotFound):
        return NativeStore(LocalStorage(store)).latest() or 0
    return 0


def _attempt(order: Order) -> Answer:
    from abscli.engine.coordinator import Progress
    from abscli.engine.errors import EngineError
    from abscli.engine.job import JobOptions, run_job
    from abscli.engine.journal import records_read
    from formats.errors import FormatError
    from formats.native.store import NativeStore
    from formats.storage import LocalStorage

    before = records_read(NativeStore(LocalStorage(order.store)).parts(order.from_epoch)) if order.from_epoch else 0
    passed = 0

    def kill_in_time(progress: Progress) -> None:
        """An epoch counts when it has brought the job on: one without a row would kill it in the same place again."""
        nonlocal passed
        if order.kill_after is None or progress.epochs < order.kill_after or progress.epoch == passed:
            return
        passed = progress.epoch
        store = NativeStore(LocalStorage(order.store))
        if records_read(store.parts(passed)) > before or not store.manifest(passed).idle:
            os.kill(os.getpid(), signal.SIGKILL)

    options = JobOptions(
        order.directory, "JOB", engine="inline", interval=None if order.pace is None else PACED_SECONDS, keep=2,
        from_epoch=order.from_epoch, restarts=0, sinks_in=order.sinks, pace=order.pace,
    )  # fmt: skip
    try:
        outcome = run_job(order.topology, order.store, options, kill_in_time)
    except (EngineError, FormatError) as error:
        return Answer(0, failure=error.message, hint=error.hint, exit_code=getattr(error, "exit_code", 2))
    return Answer(outcome.epoch)
