"""The one-process driver: the same workers as threads, over loopback."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from abscli.engine.errors import EngineError
from abscli.engine.wire import JobSpec
from abscli.engine.worker import Worker


class InlineWorkers:
    """Launches workers as threads of this process."""

    host = "127.0.0.1"

    def __init__(self) -> None:
        self.abandon: Callable[[EngineError], None] = lambda error: None
        self._threads: list[threading.Thread] = []

    def slots(self) -> int | None:
        """No bound: threads are made as needed."""
        return None

    def launch(self, spec: JobSpec) -> None:
        """Start all workers; they find the coordinator by themselves."""
        for number in range(spec.workers):
            thread = threading.Thread(target=lambda n=number: Worker(spec, n).run(), name=f"abs-worker-{number}")
            thread.daemon = True
            thread.start()
            self._threads.append(thread)

    def __enter__(self) -> InlineWorkers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for thread in self._threads:
            thread.join(timeout=30)
