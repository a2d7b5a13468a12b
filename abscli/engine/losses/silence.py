"""Unresponsive workers: reports about them, and which of two that do not reach each other has to leave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from abscli.engine.channels.messages import Patience

Pair = tuple[int, int]
"""Numbers of two workers, the lower first."""


@dataclass(frozen=True, slots=True)
class Apart:
    """Two workers that reach the coordinator and not each other. lost: has to leave; seconds: of silence."""

    lost: int
    other: int
    seconds: float


class Complaints:
    """Complaints of workers about each other. One counts until it has not been repeated for some heartbeats."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._silences: dict[Pair, tuple[float, float]] = {}

    def heard(self, worker: int, peer: int, seconds: float, now: float) -> None:
        """Note that a worker has not heard of a peer for some seconds."""
        self._silences[min(worker, peer), max(worker, peer)] = seconds, now

    def forget(self, worker: int) -> None:
        """Drop the complaints by a worker, and about it."""
        self._silences = {pair: silence for pair, silence in self._silences.items() if worker not in pair}

    def standing(self, now: float, silences: Mapping[int, float]) -> dict[Pair, float]:
        """Return the seconds of silence of each pair.

        silences: of workers towards the coordinator. A pair with such a worker is left out: that silence is reported.
        """
        fresh = now - self._patience.pause
        self._silences = {pair: silence for pair, silence in self._silences.items() if silence[1] >= fresh}
        return {
            pair: seconds
            for pair, (seconds, _) in self._silences.items()
            if not any(silences.get(number, 0.0) > self._patience.stall for number in pair)
        }

    def due(self, now: float, silences: Mapping[int, float]) -> Apart | None:
        """Return the worker that has to leave now: the one that most others do not reach; else the higher number."""
        standing = self.standing(now, silences)
        # A beat later, so that whoever has the same to say has said it.
        long = [pair for pair, seconds in standing.items() if seconds > self._patience.lost + self._patience.beat]
        if not long:
            return None
        complaints = Counter(number for pair in standing for number in pair)
        lost = max((number for pair in long for number in pair), key=lambda number: (complaints[number], number))
        pair = next(pair for pair in long if lost in pair)
        return Apart(lost, pair[0] if lost == pair[1] else pair[1], standing[pair])


def unresponsive(silences: Mapping[int | Pair, float], seconds: float) -> frozenset[int]:
    """Return the workers that have been silent for longer than this, towards the coordinator or towards a peer."""
    keys = [key for key, silent in silences.items() if silent > seconds]
    return frozenset(number for key in keys for number in ((key,) if isinstance(key, int) else key))


class Stalls:
    """Silences that were reported: each once, and once that it is over. A key is a worker's number, or a pair."""

    def __init__(self) -> None:
        self._told: dict[int | Pair, float] = {}

    def begun(self, silences: Mapping[int | Pair, float], stall: float) -> list[int | Pair]:
        """Return the silences to report as begun."""
        new = [key for key, seconds in silences.items() if seconds > stall and key not in self._told]
        self._told.update({key: silences[key] for key in silences if key in self._told or key in new})
        return new

    def ended(self, silences: Mapping[int | Pair, float], stall: float) -> dict[int | Pair, float]:
        """Return the silences to report as over, with their seconds."""
        over = {key: seconds for key, seconds in self._told.items() if silences.get(key, 0.0) <= stall}
        for key in over:
            del self._told[key]
        return over

    def forget(self, worker: int) -> None:
        """Drop the silences of a lost worker, which is known to be silent."""
        self._told = {
            key: seconds
            for key, seconds in self._told.items()
            if worker != key and not (isinstance(key, tuple) and worker in key)
        }
