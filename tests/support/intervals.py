"""How sure a median is: an interval from the measurements themselves, whatever their distribution."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb


def median_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """The narrowest pair of order statistics, alike from both ends, that hold the true median with at least that
    confidence; None where there are too few values (fewer than 6 at 95 %).

    How many of n values are below the median is binomial with a half (the interval of the sign test).
    """
    ordered = sorted(values)
    count = len(ordered)
    outside = 0.0
    rank = 0
    while rank < count // 2 and outside + 2 * comb(count, rank) / 2**count <= 1 - confidence:
        outside += 2 * comb(count, rank) / 2**count
        rank += 1
    return (ordered[rank - 1], ordered[count - rank]) if rank else None
