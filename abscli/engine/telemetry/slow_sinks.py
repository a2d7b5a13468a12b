"""Name the sink that makes epochs take longer than the interval between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from abscli.engine.telemetry.news import EpochDone, SlowSink

IN_A_ROW: Final = 3
"""Slow epochs before a sink is named."""
AT_LEAST_SECONDS: Final = 1.0
"""Seconds that an epoch takes before it counts as slow."""
QUICK_IN_A_ROW: Final = 10
"""Epochs in time after which a sink is named again as if it had never been."""


class SlowSinks:
    """Find slow sinks of one attempt. interval: seconds from one epoch to the next; None: no periodic epochs."""

    def __init__(self, interval: float | None) -> None:
        self._interval = interval
        self._slow: list[str] = []
        self._quick = 0
        self._told = 0.0

    def note(self, done: EpochDone) -> Iterator[SlowSink]:
        """Take a complete epoch, and yield what is to be reported: again if epochs take twice as long."""
        if self._interval is None or not done.by_sink:
            return
        total = done.seconds + done.phases.get("publish", 0.0)
        sink, seconds = max(done.by_sink.items(), key=lambda one: one[1])
        if total <= max(2 * self._interval, AT_LEAST_SECONDS) or seconds <= total / 2:
            self._slow.clear()
            self._quick += 1
            if self._quick >= QUICK_IN_A_ROW:
                self._told = 0.0
            return
        self._quick = 0
        self._slow = [*self._slow, sink] if self._slow[-1:] in ([], [sink]) else [sink]
        if len(self._slow) >= IN_A_ROW and total >= 2 * self._told:
            self._told = total
            yield SlowSink(sink, done.epoch, total, self._interval, seconds)
