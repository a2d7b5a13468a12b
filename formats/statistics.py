"""Where the bytes of an epoch are: by state, task, key group and key; read whole, or estimated from a sample.

An estimate is told as one (`how`), and what is not known is null. Sizes are bytes, uncompressed, of keys and values as
the layout has them; times are milliseconds since 1970.
"""

from __future__ import annotations

import heapq
import json
import statistics as averages
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from formats.values import plain

LARGEST: Final = 5
"""Keys and values that are named."""
READ_UP_TO: Final = 64 << 20
"""Bytes of state of a format without a sample of its own that are read."""
LIVE: Final = "read"
"""All rows were read."""
SAMPLED: Final = "sampled"
"""Estimated: from a part of the rows, and from what tables say of themselves."""
PARTITIONS: Final = "partitions"
"""Units of a sample that reads whole partitions of a state."""
FILES: Final = "files"
"""By files: a key that was changed may have a row in several."""

BOUNDS: Final = (("within 1 min", 60_000), ("within 1 h", 3_600_000), ("within 1 d", 86_400_000),
                 ("within 7 d", 604_800_000))  # fmt: skip
"""By when timers are due or rows expire, in milliseconds from when the snapshot was taken."""


class Large(msgspec.Struct, frozen=True, order=True):
    """A key or a value. bytes: of a key all that it holds; key: as text, cut; rows: that the key has."""

    bytes: int
    key: str
    group: int | None = None
    rows: int = 1


class GroupSize(msgspec.Struct, frozen=True):
    """A key group."""

    group: int
    subtask: int
    rows: int | None
    bytes: int | None


class SubtaskSize(msgspec.Struct, frozen=True):
    """What one task has of a state."""

    subtask: int
    rows: int | None
    bytes: int | None


class Sample(msgspec.Struct, frozen=True):
    """What of a state was read. units: of what; read, of: how many of how many; bytes: read of it."""

    units: str
    read: int
    of: int
    bytes: int


class Ages(msgspec.Struct, frozen=True):
    """Last accesses of state with a time to live. expired: the share that is older than the one that was named."""

    oldest: int
    median: int
    newest: int
    expired: float | None


class Due(msgspec.Struct, frozen=True):
    """Timers that are due by then."""

    when: str
    timers: int


class Timers(msgspec.Struct, frozen=True):
    """When timers are due. by: how many, by when from the time of the snapshot; None if that time is not known."""

    first: int
    median: int
    last: int
    by: tuple[Due, ...] | None


class Expiring(msgspec.Struct, frozen=True):
    """Rows that expire by then."""

    when: str
    rows: int


class Expiry(msgspec.Struct, frozen=True):
    """When rows expire, where that is stored with them.

    expired: the share that had when the snapshot was taken; None if that time is not known.
    by: how many rows do, by when from that time.
    """

    first: int
    median: int
    last: int
    expired: float | None
    by: tuple[Expiring, ...] | None


class StateStatistics(msgspec.Struct, frozen=True):
    """One state.

    method: `read`, `sampled` or `files`.
    groups: key groups that have rows, where the format has any.
    skew: of key groups, largest to median, by rows; by subtasks likewise. None where the median is none, or not known.
    unknown: what is not known of it and why.
    """

    operator: str
    state: str | None
    kind: str
    method: str
    rows: int | None
    bytes: int | None
    sample: Sample | None
    subtasks: tuple[SubtaskSize, ...]
    groups: tuple[GroupSize, ...] | None
    skew_groups: float | None
    skew_subtasks: float | None
    largest_keys: tuple[Large, ...] | None
    largest_values: tuple[Large, ...] | None
    ttl: Ages | None = None
    timers: Timers | None = None
    expiry: Expiry | None = None
    unknown: str | None = None


def skew(sizes: Sequence[float | None]) -> float | None:
    """The largest to the median; None where one is not known, the median is nothing, or there is but one."""
    numbers = [size for size in sizes if size is not None]
    if len(numbers) != len(sizes) or len(numbers) < 2 or not (middle := averages.median(numbers)):
        return None
    return round(max(numbers) / middle, 3)


def ages(times: Sequence[int], at: int | None, ttl: int | None) -> Ages | None:
    """Of last accesses. at: when the snapshot was taken; ttl: milliseconds that state lives."""
    if not times:
        return None
    ordered = sorted(times)
    expired = None
    if ttl is not None and at is not None:
        expired = round(sum(one + ttl <= at for one in ordered) / len(ordered), 4)
    return Ages(ordered[0], ordered[len(ordered) // 2], ordered[-1], expired)


def timers(times: Sequence[int], count: int, at: int | None) -> Timers | None:
    """Of the times of timers, or of a sample of them. count: how many timers there are."""
    if not times:
        return None
    ordered = sorted(times)
    by = None if at is None else tuple(Due(*one) for one in _within(ordered, count, at, "overdue"))
    return Timers(ordered[0], ordered[len(ordered) // 2], ordered[-1], by)


def expiry(times: Sequence[int], count: int, at: int | None) -> Expiry | None:
    """Of the times at which rows expire, or of a sample of them. count: how many rows there are."""
    if not times:
        return None
    ordered = sorted(times)
    by = share = None
    if at is not None:
        by = tuple(Expiring(*one) for one in _within(ordered, count, at, "expired"))
        share = round(bisect_right(ordered, at) / len(ordered), 4)
    return Expiry(ordered[0], ordered[len(ordered) // 2], ordered[-1], share, by)


def _within(ordered: Sequence[int], count: int, at: int, past: str) -> Iterator[tuple[str, int]]:
    """How many of `count` times lie within each bound after `at`. past: what those before it are called."""
    begin = 0
    for name, bound in ((past, 0), *BOUNDS, ("later", None)):
        end = len(ordered) if bound is None else bisect_right(ordered, at + bound)
        yield name, round((end - begin) * count / len(ordered))
        begin = end


class Tally:
    """What is counted of one state while its rows come, key by key: rows of one key come one after the other."""

    KEPT: Final = 100_000
    """Times that are kept of it; beyond, every so many."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, int], float] = {}
        self.bytes: dict[tuple[int, int], float] = {}
        self.measured = True
        self.last_access: list[int] = []
        self.due: list[int] = []
        self.expiring: list[int] = []
        self._keys: list[Large] = []
        self._values: list[Large] = []
        self._at: tuple[object, int, int, int] | None = None  # the key in hand: itself, group, bytes, rows

    def count(self, subtask: int, group: int, rows: float, size: float) -> None:
        """So many rows and bytes in a key group (-1: of none) of a subtask."""
        at = (subtask, group)
        self.rows[at] = self.rows.get(at, 0.0) + rows
        self.bytes[at] = self.bytes.get(at, 0.0) + size

    def row(self, key: object, group: int, key_bytes: int, value_bytes: int) -> None:
        """A row, to be remembered if it is large."""
        if self._at is not None and self._at[0] == key and self._at[1] == group:
            self._at = (key, group, self._at[2] + key_bytes + value_bytes, self._at[3] + 1)
        else:
            self.end()
            self._at = (key, group, key_bytes + value_bytes, 1)
        if value_bytes and (len(self._values) < LARGEST or value_bytes > self._values[0].bytes):
            keep(self._values, Large(value_bytes, shown(key), group))

    def end(self) -> None:
        """No more rows of the key in hand."""
        if self._at is not None:
            key, group, size, rows = self._at
            if len(self._keys) < LARGEST or size > self._keys[0].bytes:
                keep(self._keys, Large(size, shown(key), group, rows))
        self._at = None

    def key(self, large: Large) -> None:
        """A key whose size is known otherwise."""
        keep(self._keys, large)

    def value(self, large: Large) -> None:
        """A value whose size is known otherwise."""
        keep(self._values, large)

    def accessed(self, time: int) -> None:
        """A time of a last access."""
        _thin(self.last_access, time, self.KEPT)

    def timer(self, time: int) -> None:
        """A time at which a timer is due."""
        _thin(self.due, time, self.KEPT)

    def expires(self, time: int) -> None:
        """A time at which a row expires."""
        _thin(self.expiring, time, self.KEPT)

    @property
    def largest_keys(self) -> tuple[Large, ...]:
        """The largest first."""
        self.end()
        return tuple(sorted(self._keys, reverse=True))

    @property
    def largest_values(self) -> tuple[Large, ...]:
        """The largest first."""
        return tuple(sorted(self._values, reverse=True))


def _thin(times: list[int], time: int, most: int) -> None:
    times.append(time)
    if len(times) > 2 * most:
        times[:] = sorted(times)[::2]


def keep(heap: list[Large], one: Large) -> None:
    """Puts it among the largest, each key once."""
    same = next((other for other in heap if (other.key, other.group) == (one.key, one.group)), None)
    if same is not None:
        if one.bytes <= same.bytes:
            return
        heap.remove(same)
        heapq.heapify(heap)
    heapq.heappush(heap, one)
    if len(heap) > LARGEST:
        heapq.heappop(heap)


def shown(key: object, most: int = 80) -> str:
    """A key as text, cut; its columns one behind the other."""
    text = ", ".join(map(_word, key)) if isinstance(key, tuple) else _word(key)
    return text if len(text) <= most else text[: most - 1] + "…"


def _word(value: object) -> str:
    """A value, or a column of a key, as it stands in a line."""
    value = plain(value)
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def of_state(
    operator: str, state: str | None, kind: str, tally: Tally, how: str, *, subtasks: Iterable[int], groups: int,
    at: int | None, ttl: int | None, sample: Sample | None = None, unknown: str | None = None, whole: bool = True,
) -> StateStatistics:  # fmt: skip
    """What a tally amounts to. subtasks: all that could have some; groups: how many key groups there are, 0 for none;
    whole: no rows are missing, so that their sum is known."""
    by_subtask: dict[int, list[float]] = {subtask: [0.0, 0.0] for subtask in subtasks}
    for (subtask, _), rows in tally.rows.items():
        by_subtask.setdefault(subtask, [0.0, 0.0])[0] += rows
    for (subtask, _), size in tally.bytes.items():
        by_subtask.setdefault(subtask, [0.0, 0.0])[1] += size
    sizes = [
        GroupSize(group, subtask, round(rows), round(tally.bytes.get((subtask, group), 0)))
        for (subtask, group), rows in sorted(tally.rows.items(), key=lambda item: (item[0][1], item[0][0]))
        if group >= 0 and round(rows) > 0
    ]
    rows_of = {one.group: float(one.rows or 0) for one in sizes}
    every = [rows_of.get(group, 0.0) for group in range(groups)]
    total_rows = round(sum(tally.rows.values()))
    return StateStatistics(
        operator=operator,
        state=state,
        kind=kind,
        method=how,
        rows=total_rows if whole else None,
        bytes=round(sum(tally.bytes.values())) if whole else None,
        sample=sample,
        subtasks=tuple(SubtaskSize(n, round(one[0]), round(one[1])) for n, one in sorted(by_subtask.items())),
        groups=tuple(sizes) if groups else None,
        skew_groups=skew(every) if groups else None,
        skew_subtasks=skew([one[0] for one in by_subtask.values()]),
        largest_keys=tally.largest_keys if tally.measured else None,
        largest_values=tally.largest_values if tally.measured else None,
        ttl=ages(tally.last_access, at, ttl),
        timers=timers(tally.due, total_rows, at),
        expiry=expiry(tally.expiring, total_rows, at),
        unknown=unknown,
    )
