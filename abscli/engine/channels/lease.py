"""Until when a worker may act: whoever waits for it to be gone has waited longer."""

from __future__ import annotations

import math
import time

CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Goes on while the machine sleeps, where there is such a clock."""


class LeaseExpired(Exception):
    """A worker has heard nothing of its coordinator for so long that another may be there in its place."""


class Lease:
    """seconds: from a beat that the coordinator has answered; None: for ever.

    It counts from when the beat was sent, by the worker's own clock: the coordinator heard it later than that, and what
    comes out of a queue after a pause is as old as it is.
    """

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._sent_at = now()
        self._revoked = False

    def renew(self, sent_at: float) -> None:
        """A beat of this time was answered."""
        self._sent_at = max(self._sent_at, sent_at)

    def revoke(self) -> None:
        """The coordinator counts on this worker no more."""
        self._revoked = True

    @property
    def unanswered(self) -> float:
        """Seconds since the newest answered heartbeat was sent; 0 without a lease."""
        return 0.0 if self._seconds is None else now() - self._sent_at

    @property
    def remaining(self) -> float:
        """Seconds until it expires; not above 0 when it has."""
        if self._revoked:
            return 0.0
        return math.inf if self._seconds is None else self._seconds - self.unanswered

    @property
    def expired(self) -> bool:
        """Whether the worker has to leave."""
        return self.remaining <= 0

    def check(self) -> None:
        """To be called just before a step that others can see: LeaseExpired."""
        if self.expired:
            raise LeaseExpired


def now() -> float:
    """Seconds by the clock of leases."""
    return time.clock_gettime(CLOCK)
