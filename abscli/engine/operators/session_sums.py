"""Which records no session can take, since a sum of it would leave 64 bits.

Records are looked at as if they came one by one: each would make one session of those that it touches, and is left out
where that has too large a sum. So it depends on their order alone, and not on where batches and epochs end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from abscli.engine.state.aggregates import INT64

Sums = tuple[int, ...]


class Stretch(NamedTuple):
    """A session, or a part of one. start, end: in microseconds, the end with the gap behind its last record. sums: of
    each output that is a sum."""

    start: int
    end: int
    sums: Sums


class Record(NamedTuple):
    """values: what comes to each of the sums, 0 for null."""

    key: int
    time: int
    values: Sums


def too_much(parts: dict[int, list[Stretch]], records: Sequence[Record], gap: int) -> list[int]:
    """The numbers of records that fail, ascending. parts: of sessions by key, as they are kept: their sums may have
    wrapped around, those of sessions have not. records: in the order in which they came."""
    sessions: dict[int, list[Stretch]] = {}
    failing = []
    for number, (key, time, values) in enumerate(records):
        if key not in sessions:
            sessions[key] = _joined(parts.get(key, []))
        start, end = time, time + gap
        touched = [one for one in sessions[key] if one.start <= end and start <= one.end]
        sums = _total([values, *(one.sums for one in touched)])
        if not all(-INT64 <= value < INT64 for value in sums):
            failing.append(number)
            continue
        whole = Stretch(
            min([start, *(one.start for one in touched)]), max([end, *(one.end for one in touched)]), sums
        )  # fmt: skip
        sessions[key] = [one for one in sessions[key] if one not in touched] + [whole]
    return failing


def _joined(parts: Iterable[Stretch]) -> list[Stretch]:
    """Sessions of their parts."""
    sessions: list[Stretch] = []
    for part in sorted(parts):
        if sessions and part.start <= sessions[-1].end:
            before = sessions.pop()
            part = Stretch(before.start, max(before.end, part.end), _wrapped(_total([before.sums, part.sums])))
        sessions.append(part)
    return sessions


def _total(several: Sequence[Sums]) -> Sums:
    return tuple(map(sum, zip(*several, strict=True)))


def _wrapped(sums: Sums) -> Sums:
    return tuple((value + INT64) % (2 * INT64) - INT64 for value in sums)
