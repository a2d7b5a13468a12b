"""Rows are tried on their target by the worker that staged them, before a manifest names them."""

from __future__ import annotations

from collections.abc import Callable
from typing import IO

from abscli.engine.errors import EngineStopped, UsageError
from abscli.engine.sinks.staged.contract import Target


class Trial:
    """See `Target.try_rows`. A worker that cannot reach the target, or lacks its client, tries nothing: then the driver
    learns at the delivery which rows are refused.

    open: makes the target; called for the first rows.
    """

    def __init__(self, open: Callable[[], Target]) -> None:
        self._open = open
        self._target: Target | None = None
        self._is_possible = True

    def __call__(self, rows: IO[bytes]) -> None:
        """Raise JobFailed for rows that the target refuses."""
        if not self._is_possible:
            return
        try:
            self._target = self._target or self._open()
            self._target.try_rows(rows)
        except (EngineStopped, UsageError):
            self._is_possible = False
