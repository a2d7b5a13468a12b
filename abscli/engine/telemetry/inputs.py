"""Which sources wait for what is outside of the job: told when it begins and when it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from abscli.engine.channels.messages import Status
from abscli.engine.telemetry.news import SourceGoesOn, SourceHeldUp


class Inputs:
    """Of one attempt. clock: in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._held_up: dict[int, set[str]] = {}
        self._since: dict[str, float] = {}

    def note(self, status: Status) -> Iterator[SourceHeldUp | SourceGoesOn]:
        """What a worker says of its sources, and what is to be told of it."""
        now = self._clock()
        self._held_up[status.worker] = {task.operator for task, _, _ in status.held_up}
        for task, seconds, reason in status.held_up:
            if task.operator not in self._since:
                self._since[task.operator] = now - seconds
                yield SourceHeldUp(task.operator, seconds, reason)
        held_up = set().union(*self._held_up.values())
        for source in [source for source in self._since if source not in held_up]:
            yield SourceGoesOn(source, now - self._since.pop(source))
