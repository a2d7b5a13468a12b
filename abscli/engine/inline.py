"""The one-process driver: the same workers as threads, over loopback."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from abscli.engine.channels.wire import JobSpec
from abscli.engine.errors import EngineError, EngineStopped
from abscli.engine.worker import Worker


class InlineWorkers:
    """Launches workers as threads of this process."""

    host = "127.0.0.1"

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []

    def slots(self) -> int | None:
        """No bound: threads are made as needed."""
        return None

    def launch(self, spec: JobSpec, abandon: Callable[[EngineError], None]) -> None:
        """Start all workers; they find the coordinator by themselves."""

        def run(number: int) -> None:
            try:
                worker = Worker(spec, number)
            except OSError as error:
                abandon(EngineStopped(f"worker {number} cannot reach the coordinator: {error.strerror or error}"))
            else:
                worker.run()

        for number in range(spec.workers):
            thread = threading.Thread(target=run, args=(number,), name=f"abs-worker-{number}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def __enter__(self) -> InlineWorkers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for thread in self._threads:
            thread.join(timeout=30)
