"""Looks at a topic every second, from a thread of its own: a broker that is away may take long to say nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from typing import NamedTuple

from abscli.engine.brokers import ONCE
from formats.brokers import Brokers, Described
from formats.errors import Unreachable
from formats.kafka import Bounds

EVERY = 1.0
"""Seconds from one look to the next."""
SLOW = 2.0
"""Seconds without an answer after which it is not known any more whether there are records."""


class Seen(NamedTuple):
    """topic: None where it is not there. bounds: by partition, as they were when the newest of them came."""

    topic: Described | None
    bounds: dict[int, Bounds]


class Lookout:
    """Looks at one topic. reads: returns the partitions that the task reads."""

    def __init__(self, brokers: Brokers, topic: str, reads: Callable[[], Collection[int]]) -> None:
        self._brokers = brokers
        self._topic = topic
        self._reads = reads
        self._seen: Seen | None = None
        self._bounds: dict[int, Bounds] = {}
        self._answered = time.monotonic()
        self._reason: str | None = None
        self._leave = threading.Event()
        self._thread = threading.Thread(target=self._run, name="abs-kafka-lookout", daemon=True)
        self._thread.start()

    @property
    def silence(self) -> tuple[float, str] | None:
        """Return when a needed broker last answered (`time.monotonic`), and its error; None if all answer."""
        quiet = time.monotonic() - self._answered > EVERY + SLOW
        if not quiet:
            return None
        return self._answered, self._reason or self._brokers.newest_error or "no answer yet"

    def take(self) -> Seen | None:
        """What was seen since it was asked last; None for nothing."""
        seen, self._seen = self._seen, None
        return seen

    def look(self, *, anew: bool = True) -> Seen:
        """Ask the brokers now. Raises Unreachable.

        anew: also ask for the offsets again, if no partition was added or removed.
        """
        topic = self._brokers.describe(self._topic, seconds=ONCE)
        if topic is not None and (anew or topic.partitions != self._bounds.keys()):
            self._bounds = dict(self._brokers.topics([self._topic], seconds=ONCE).get(self._topic, {}))
        elif topic is not None:
            # Any broker describes the topic. Whether a partition has more rows only its leader knows.
            self._brokers.ends(self._topic, topic.partitions & {*self._reads()}, seconds=ONCE)
        return Seen(topic, self._bounds)

    def _run(self) -> None:
        while not self._leave.wait(EVERY):
            began = time.monotonic()
            try:
                self._seen = self.look(anew=False)
            except Unreachable as error:
                self._reason = error.message
            else:
                self._answered, self._reason = began, None

    def close(self) -> None:
        """It looks no more; a look that is under way ends by itself."""
        self._leave.set()
