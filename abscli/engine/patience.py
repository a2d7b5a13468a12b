"""Servers that may be away for a while, since they start again: they are asked until they answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from abscli.engine.errors import EngineStopped
from abscli.engine.waits import note_reason
from formats.errors import Unreachable

SECONDS = 60.0
"""For which a server is asked again and again."""
BETWEEN = 0.1
"""Seconds from one question to the next."""

Answer = TypeVar("Answer")


class Interrupted(Unreachable):
    """A server has worked on a question, and does not any more. silent: seconds since it did."""

    def __init__(self, message: str, *, hint: str | None, silent: float) -> None:
        super().__init__(message, hint=hint)
        self.silent = silent


def until_answered(
    ask: Callable[[], Answer], given_up: Callable[[Unreachable], EngineStopped], *, seconds: float | None = None
) -> Answer:
    """Return the answer to a question that may be asked again if it raises Unreachable.

    given_up: makes the error that is raised when that has lasted too long.
    seconds: how long that is, if not `SECONDS`.

    The reason is noted for the step that is running (`abscli.engine.waits`).
    """
    longest, away_since = SECONDS if seconds is None else seconds, None
    while True:
        began = time.monotonic()
        try:
            answer = ask()
            note_reason("")
            return answer
        except Unreachable as error:
            now = time.monotonic()
            note_reason(error.message)
            if away_since is None:
                # Work that took minutes before it was interrupted is not counted.
                away_since = now - error.silent if isinstance(error, Interrupted) else began
            if now - away_since > longest:
                raise given_up(error) from None
            time.sleep(BETWEEN)


class Deadline:
    """The end of a wait for a server that gives no sign of life, `SECONDS` after the last one."""

    def __init__(self) -> None:
        self._since: float | None = None

    def begin(self) -> None:
        """Start to wait, unless an earlier wait has not ended."""
        self._since = self._since or time.monotonic()

    def renew(self) -> None:
        """Note a sign of life."""
        self._since = time.monotonic()

    def end(self) -> None:
        """Note that the wait is over."""
        self._since = None
        note_reason("")

    def is_over(self, reason: str) -> bool:
        """Tell whether it has passed. reason: why the server is waited for."""
        note_reason(reason)
        return self._since is not None and time.monotonic() - self._since > SECONDS
