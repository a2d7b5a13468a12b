"""Which sources get nothing since whoever has their input does not answer: told when it begins and when it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from abscli.engine.channels.messages import Status
from abscli.engine.telemetry.news import InputBack, InputSilent


class Inputs:
    """Of one attempt. clock: in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._silent: dict[int, set[str]] = {}
        self._since: dict[str, float] = {}

    def note(self, status: Status) -> Iterator[InputSilent | InputBack]:
        """What a worker says of its sources, and what is to be told of it."""
        now = self._clock()
        self._silent[status.worker] = {task.operator for task, _, _ in status.silent}
        for task, seconds, reason in status.silent:
            if task.operator not in self._since:
                self._since[task.operator] = now - seconds
                yield InputSilent(task.operator, seconds, reason)
        silent = set().union(*self._silent.values())
        for source in [source for source in self._since if source not in silent]:
            yield InputBack(source, now - self._since.pop(source))
