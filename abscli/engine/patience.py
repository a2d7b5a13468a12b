"""Servers that may be away for a while, since they start again: they are asked until they answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from abscli.engine.errors import EngineStopped
from formats.errors import Unreachable

SECONDS = 60.0
"""For which a server is asked again and again."""
BETWEEN = 0.1
"""Seconds from one question to the next."""

Answer = TypeVar("Answer")


def until_answered(
    ask: Callable[[], Answer], given_up: Callable[[Unreachable], EngineStopped], *, seconds: float | None = None,
    waits: Callable[[str], None] = lambda reason: None,
) -> Answer:  # fmt: skip
    """The answer to a question that may be asked again where it raises Unreachable.

    given_up: what is raised when that has lasted too long. seconds: how long that is, if not `SECONDS`.
    waits: told, once, that nobody answers, and why.
    """
    deadline, is_told = time.monotonic() + (SECONDS if seconds is None else seconds), False
    while True:
        try:
            return ask()
        except Unreachable as error:
            if not is_told:
                is_told = True
                waits(error.message)
            if time.monotonic() > deadline:
                raise given_up(error) from None
            time.sleep(BETWEEN)
