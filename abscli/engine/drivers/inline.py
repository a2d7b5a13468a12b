"""The one-process driver: the same workers as threads, over loopback."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from abscli.engine.channels.messages import JobSpec
from abscli.engine.errors import EngineError, EngineStopped
from abscli.engine.worker import Worker


class InlineWorkers:
    """Launches workers as threads of this process."""

    host = "127.0.0.1"
    bind = "127.0.0.1"
    pulse = False
    in_clear = None

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self._workers: dict[int, Worker] = {}
        self._spec: JobSpec | None = None

    def slots(self, least: int, most: int, waiting: Callable[[int], None]) -> int | None:
        """No bound: threads are made as needed."""
        return None

    def prepare(self, spec: JobSpec) -> None:
        """What every worker gets."""
        self._spec = spec

    def launch(self, number: int, launch: int, failed: Callable[[EngineError], None]) -> None:
        """Start a worker, which finds the coordinator by itself."""
        spec = self._spec
        assert spec is not None

        def run() -> None:
            try:
                worker = Worker(spec, number, launch)
            except EngineStopped as error:
                failed(error)
            except OSError as error:
                failed(EngineStopped(f"worker {number} cannot start: {error.strerror or error}"))
            else:
                self._workers[number] = worker
                worker.run()

        thread = threading.Thread(target=run, name=f"abs-worker-{number}", daemon=True)
        thread.start()
        self._threads.append(thread)

    def has_slot(self, number: int) -> bool:
        """Return True: a thread starts at once."""
        return True

    def kill(self, number: int, pid: int | None) -> None:
        """Drop the worker's thread, queues and state at once."""
        if (worker := self._workers.pop(number, None)) is not None:
            worker.kill()

    def __enter__(self) -> InlineWorkers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for thread in self._threads:
            thread.join(timeout=30)
