"""Sets of subtask indices as sorted half-open spans: a million subtasks are one pair of numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from formats.errors import FormatError

_SPAN = re.compile(r"(0|[1-9][0-9]{0,17})(?:-(0|[1-9][0-9]{0,17}))?")


class BadRange(FormatError):
    """A text that is not a set of subtasks such as `0-3,7`."""


@dataclass(frozen=True, slots=True)
class Ranges:
    """An immutable set of non-negative integers.

    spans: half-open `(start, stop)`, ascending, none empty, none touching the next; so equal sets compare equal.
    Raises ValueError for spans that are anything else. Operations are linear in the number of spans.
    """

    spans: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        end = -1
        for start, stop in self.spans:
            if start <= end or stop <= start:
                raise ValueError(f"spans must ascend and not touch: ({start}, {stop}) follows a span that ends at "
                    f"{end}")
            end = stop

    @classmethod
    def span(cls, start: int, stop: int) -> Ranges:
        """The integers from `start` up to but not including `stop`."""
        return cls(((start, stop),)) if start < stop else EMPTY

    @classmethod
    def of(cls, indices: Iterable[int]) -> Ranges:
        """The set of these indices, in any order, repeated or not."""
        return cls(_merged(sorted((i, i + 1) for i in indices)))

    @classmethod
    def parse(cls, text: str) -> Ranges:
        """The set that `text` writes as `0-3,7`; the empty text is the empty set.

        Raises BadRange for anything that is not ascending, disjoint and made of plain decimal numbers.
        """
        if not text:
            return EMPTY
        spans: list[tuple[int, int]] = []
        for part in text.split(","):
            match = _SPAN.fullmatch(part)
            if match is None:
                raise BadRange(f"{part!r} in {_short(text)} is not a subtask or a range of subtasks",
                               hint="write ranges like 0-3,7")
            first = int(match[1])
            last = int(match[2]) if match[2] else first
            if last < first:
                raise BadRange(f"the range {part} in {_short(text)} ends at {last}, before its start {first}")
            # `0-3,4` may touch, and is joined below; overlaps are refused.
            if spans and first < spans[-1][1]:
                raise BadRange(f"{part} in {_short(text)} comes after {spans[-1][1] - 1}: ranges must ascend")
            spans.append((first, last + 1))
        return cls(_merged(spans))

    def __str__(self) -> str:
        return ",".join(_text(span) for span in self.spans)

    def brief(self, limit: int = 4) -> str:
        """The text of the first `limit` spans, and how many subtasks are left out."""
        if len(self.spans) <= limit:
            return str(self)
        shown = Ranges(self.spans[:limit])
        return f"{shown} and {self.count - shown.count} more"

    @property
    def count(self) -> int:
        """How many integers it holds (`len` is limited to 63 bits, and a set of spans has no such limit)."""
        return sum(stop - start for start, stop in self.spans)

    def __bool__(self) -> bool:
        return bool(self.spans)

    def __iter__(self) -> Iterator[int]:
        for start, stop in self.spans:
            yield from range(start, stop)

    def __contains__(self, index: object) -> bool:
        if not isinstance(index, int):
            return False
        # The first span that ends behind the index has it, or none has.
        low, high = 0, len(self.spans)
        while low < high:
            middle = (low + high) // 2
            if self.spans[middle][1] <= index:
                low = middle + 1
            else:
                high = middle
        return low < len(self.spans) and self.spans[low][0] <= index

    def __or__(self, other: Ranges) -> Ranges:
        if not other.spans:
            return self
        if not self.spans:
            return other
        return Ranges(_merged(sorted(self.spans + other.spans)))

    def __and__(self, other: Ranges) -> Ranges:
        if self.spans == other.spans:
            return self
        common: list[tuple[int, int]] = []
        i = j = 0
        a, b = self.spans, other.spans
        while i < len(a) and j < len(b):
            start, stop = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
            if start < stop:
                common.append((start, stop))
            # Of the two, the span that ends first can meet nothing further on the other side.
            if a[i][1] <= b[j][1]:
                i += 1
            else:
                j += 1
        return Ranges(tuple(common))

    def __sub__(self, other: Ranges) -> Ranges:
        if not other.spans:
            return self
        if self.spans == other.spans:
            return EMPTY
        left: list[tuple[int, int]] = []
        j = 0
        b = other.spans
        for start, stop in self.spans:
            # What ends before this span begins is done with. What reaches into it may reach into the next as well:
            # that is walked through with an index of its own.
            while j < len(b) and b[j][1] <= start:
                j += 1
            k = j
            while k < len(b) and b[k][0] < stop:
                if start < b[k][0]:
                    left.append((start, b[k][0]))
                start = b[k][1]
                k += 1
            if start < stop:
                left.append((start, stop))
        return Ranges(tuple(left))


EMPTY = Ranges()


def _merged(spans: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Spans sorted by start -> the same set with overlapping and touching ones joined."""
    out: list[tuple[int, int]] = []
    for start, stop in spans:
        if out and start <= out[-1][1]:
            if stop > out[-1][1]:
                out[-1] = (out[-1][0], stop)
        else:
            out.append((start, stop))
    return tuple(out)


def _text(span: tuple[int, int]) -> str:
    start, stop = span
    return str(start) if stop - start == 1 else f"{start}-{stop - 1}"


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "...")
