"""Until when a worker may act: whoever waits for it to be gone has waited longer."""

from __future__ import annotations

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
    def expired(self) -> bool:
        """Whether the worker has to leave."""
        return self._revoked or (self._seconds is not None and now() - self._sent_at > self._seconds)

    def check(self) -> None:
        """To be called just before a step that others can see: LeaseExpired."""
        if self.expired:
            raise LeaseExpired


def now() -> float:
    """Seconds by the clock of leases."""
    return time.clock_gettime(CLOCK)
