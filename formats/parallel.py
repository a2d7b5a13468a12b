"""Work in threads, with results in order and little of it ahead of its turn; and pools of processes."""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

WORKERS = max(2, os.cpu_count() or 1)


def in_order(jobs: Iterable[Callable[[], T]], workers: int = WORKERS) -> Iterator[T]:
    """The results of the jobs, in their order; at most `workers` + 1 are begun and not yet taken."""
    waiting: deque[Future[T]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for job in jobs:
                waiting.append(pool.submit(job))
                if len(waiting) > workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


@contextmanager
def process_pool(workers: int | None = None, **options: Any) -> Iterator[ProcessPoolExecutor]:
    """Start a pool of new Python processes, which import nothing from the current directory.

    They are spawned, not forked: numpy and pyarrow have threads. A spawned process is started with `-c`, for which
    Python looks for modules in the current directory first, and that may be anybody's. options: of ProcessPoolExecutor.
    """
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), **options) as pool:
            yield pool
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before
