"""Who is not heard of: what is said about it, and which of two workers that do not hear each other is to go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from abscli.engine.channels.messages import Patience

Pair = tuple[int, int]
"""Numbers of two workers, the lower first."""


@dataclass(frozen=True, slots=True)
class Apart:
    """Two workers that reach the coordinator and not each other. lost: the one that is to go; seconds: of silence."""

    lost: int
    other: int
    seconds: float


class Complaints:
    """What workers say of each other. A complaint counts until it has not been repeated for some heartbeats."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._silences: dict[Pair, tuple[float, float]] = {}

    def heard(self, worker: int, peer: int, seconds: float, now: float) -> None:
        """A worker has not heard of a peer for so long."""
        self._silences[min(worker, peer), max(worker, peer)] = seconds, now

    def forget(self, worker: int) -> None:
        """What was said by one, and of it, holds no more."""
        self._silences = {pair: silence for pair, silence in self._silences.items() if worker not in pair}

    def standing(self, now: float, silences: Mapping[int, float]) -> dict[Pair, float]:
        """Seconds by pair. silences: of workers towards the coordinator: where one of two is silent there, too, it is
        the only one that there is something to say of."""
        fresh = now - self._patience.pause
        self._silences = {pair: silence for pair, silence in self._silences.items() if silence[1] >= fresh}
        return {
            pair: seconds
            for pair, (seconds, _) in self._silences.items()
            if not any(silences.get(number, 0.0) > self._patience.stall for number in pair)
        }

    def due(self, now: float, silences: Mapping[int, float]) -> Apart | None:
        """Who has to go now: with whom most others have no connection; else the higher number."""
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
    """What has been said of silences: each once, and once that it is over. A key is a worker's number, or a pair."""

    def __init__(self) -> None:
        self._told: dict[int | Pair, float] = {}

    def begun(self, silences: Mapping[int | Pair, float], stall: float) -> list[int | Pair]:
        """Of what is to be said that it has begun."""
        new = [key for key, seconds in silences.items() if seconds > stall and key not in self._told]
        self._told.update({key: silences[key] for key in silences if key in self._told or key in new})
        return new

    def ended(self, silences: Mapping[int | Pair, float], stall: float) -> dict[int | Pair, float]:
        """Of what is to be said that it is over, and how long it was."""
        over = {key: seconds for key, seconds in self._told.items() if silences.get(key, 0.0) <= stall}
        for key in over:
            del self._told[key]
        return over

    def forget(self, worker: int) -> None:
        """One that is lost is heard of no more, and that is known."""
        self._told = {
            key: seconds
            for key, seconds in self._told.items()
            if worker != key and not (isinstance(key, tuple) and worker in key)
        }
