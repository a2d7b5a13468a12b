"""Steps that depend on a server or a disk, of sources, sinks and the store: which are running, and for how long.

A driver and each worker have one `StepTimer`. The thread that does a step may be blocked in it for minutes, so other
threads ask `StepTimer.waits`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from enum import StrEnum
from typing import ParamSpec, TypeVar

import msgspec

P = ParamSpec("P")
T = TypeVar("T")


class Doing(StrEnum):
    """The kinds of steps.

    FIND: the driver asks a source's server where to begin. READ: a task waits for the input of a source.
    ASK: the driver asks or takes the target of a sink. STAGE: a task stages rows. PUBLISH: the driver publishes rows.
    STORE: a worker writes to the store.
    """

    FIND = "find"
    READ = "read"
    ASK = "ask"
    STAGE = "stage"
    PUBLISH = "publish"
    STORE = "store"


class Wait(msgspec.Struct, frozen=True):
    """A step that is running.

    operator: a source, a sink, or a worker with its host.
    target: what messages call the server, table, folder or store; empty if that is not known.
    epoch, rows: that are written; 0 for other steps.
    seconds: since the step began.
    reason: why it has to wait; empty if that is not known.
    has_failed: the step has ended with an error.
    """

    operator: str
    doing: Doing
    target: str = ""
    epoch: int = 0
    rows: int = 0
    seconds: float = 0.0
    reason: str = ""
    has_failed: bool = False

    @property
    def is_source(self) -> bool:
        """Tell whether the operator is a source."""
        return self.doing in (Doing.FIND, Doing.READ)


class _Running:
    """A step, with what changes while it runs."""

    __slots__ = ("began", "contains_step", "reason", "wait")

    def __init__(self, wait: Wait, began: float) -> None:
        self.wait = wait
        self.began = began
        self.contains_step = False
        self.reason = ""


_current: ContextVar[_Running | None] = ContextVar("abs_step", default=None)


class StepTimer:
    """Times the steps that are running, in any thread. clock: seconds, monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._running: dict[_Running, None] = {}
        self._failed: list[Wait] = []

    @contextlib.contextmanager
    def run(self, step: Wait) -> Iterator[None]:
        """Have a step running while the block runs. step: as it begins.

        While a step contains another one, only the inner step counts, and the outer one begins again afterwards.
        """
        running, outer = _Running(step, self._clock()), _current.get()
        if outer is not None:
            outer.contains_step = True
        token = _current.set(running)
        self._running[running] = None
        try:
            yield
        except BaseException:
            self._failed.append(self._now(running, has_failed=True))
            raise
        finally:
            del self._running[running]
            _current.reset(token)
            if outer is not None:
                outer.contains_step, outer.began = False, self._clock()

    def waits(self, *, over: float) -> tuple[Wait, ...]:
        """Return the steps that have been running for longer than `over` seconds.

        Those that failed after such a time are returned once more.
        """
        failed, self._failed = self._failed, []
        # Other threads add and remove steps.
        each = [self._now(one) for one in list(self._running) if not one.contains_step]
        return tuple(wait for wait in (*each, *failed) if wait.seconds > over)

    def _now(self, one: _Running, *, has_failed: bool = False) -> Wait:
        seconds = self._clock() - one.began
        return msgspec.structs.replace(one.wait, seconds=seconds, reason=one.reason, has_failed=has_failed)


class TimedPool(ThreadPoolExecutor):
    """Threads that write to the store. Each call is a step of a timer while it runs.

    step: as each of them begins.
    """

    def __init__(self, threads: int, steps: StepTimer, step: Wait, *, name: str = "abs-store") -> None:
        super().__init__(threads, thread_name_prefix=name)
        self._steps = steps
        self._step = step

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """See `ThreadPoolExecutor.submit`."""

        def timed() -> T:
            with self._steps.run(self._step):
                return fn(*args, **kwargs)

        return super().submit(timed)


def note_reason(reason: str) -> None:
    """Note why the step of this thread has to wait; empty if it does not any more. Without a step, do nothing."""
    running = _current.get()
    if running is not None:
        running.reason = reason
