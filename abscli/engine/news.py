"""What happens in a running job that somebody may want to be told of at once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EpochDone:
    """An epoch is complete.

    at: Unix time.
    seconds: since its trigger.
    records: that sources read since the last complete one.
    bytes: written for it.
    """

    epoch: int
    at: float
    seconds: float
    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class EpochGivenUp:
    """An epoch cannot complete; the job goes on.

    at: Unix time.
    """

    epoch: int
    at: float
    reason: str


@dataclass(frozen=True, slots=True)
class Stopping:
    """A signal came: a last epoch is taken.

    begun: whether all workers are there to take it.
    """

    signal: int
    begun: bool


@dataclass(frozen=True, slots=True)
class Late:
    """Several epochs in a row took longer than they may.

    message: which, and what was slow.
    hint: what to do.
    """

    message: str
    hint: str


News = EpochDone | EpochGivenUp | Stopping | Late
