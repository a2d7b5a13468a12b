"""Work in threads, results in order, little of it ahead of its turn."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

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
