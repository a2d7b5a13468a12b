"""What takes a while without anything to show for it, told to whoever shows such things.

Nothing here is decided by it, so it is one listener for the process, and no parameter of all that may have to wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Wait(NamedTuple):
    """Somebody is waited for. store: that he holds; holder: who; seconds: at most, from now."""

    store: str
    holder: str
    seconds: float


class NoAnswer(NamedTuple):
    """A server does not answer, and is asked again. seconds: after which it is given up, from its first failure."""

    place: str
    reason: str
    seconds: float


class SlowAnswers(NamedTuple):
    """A server answers, and takes long. requests: of late; seconds: that each took on average."""

    place: str
    requests: int
    seconds: float


def _nobody(wait: Wait | NoAnswer | SlowAnswers) -> None:
    """Nobody listens."""


_listener: list[Callable[[Wait | NoAnswer | SlowAnswers], None]] = [_nobody]


def is_heard() -> bool:
    """Return whether anybody listens."""
    return _listener[0] is not _nobody


def listen(listener: Callable[[Wait | NoAnswer | SlowAnswers], None]) -> None:
    """Have it told from now on, in place of who was told before."""
    _listener[0] = listener


def waits(wait: Wait | NoAnswer | SlowAnswers) -> None:
    """Tell the listener."""
    _listener[0](wait)
