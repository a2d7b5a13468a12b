"""Rows are tried on their target by the worker that staged them, before a manifest names them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import IO, Final

from abscli.engine.errors import EngineStopped, UsageError
from abscli.engine.sinks.staged.contract import Target

PAUSE: Final = 60.0
"""Seconds without trials after the target could not be reached: each of them would wait for its deadline."""


class Trial:
    """See `Target.try_rows`. A worker that cannot reach the target, or lacks its client, passes the rows untried: then
    the driver learns at the delivery which rows are refused. After `PAUSE` the worker tries again.

    open: makes the target; called for the first rows, and again if it fails.
    clock: seconds, monotonic.
    """

    def __init__(self, open: Callable[[], Target], clock: Callable[[], float] = time.monotonic) -> None:
        self._open = open
        self._clock = clock
        self._target: Target | None = None
        self._resumes = -float("inf")

    def __call__(self, rows: IO[bytes]) -> None:
        """Raise JobFailed for rows that the target refuses."""
        if self._clock() < self._resumes:
            return
        try:
            self._target = self._target or self._open()
            self._target.try_rows(rows)
        except (EngineStopped, UsageError):
            self._resumes = self._clock() + PAUSE
