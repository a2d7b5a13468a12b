"""Where the records of CSV end: a line feed within quotes is part of a field (RFC 4180)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

_QUOTE, _LINE, _RETURN = b'"\n\r'

Positions = npt.NDArray[np.int64]


class _End(Enum):
    """The state at the end of a line."""

    CLOSED = 0
    OPEN = 1
    """Within a quoted field."""
    MALFORMED = 2
    """After text that follows the closing quote of a field."""


class _Record(NamedTuple):
    """A record. end: after its line feed. malformed: whether a quote in it is not closed, or is followed by text."""

    start: int
    end: int
    malformed: bool


class CsvRecords:
    """Records as Arrow's reader finds them; see `Records`.

    A quote opens a field only at the beginning of the field; two quotes within it are one. A field that is opened must
    be closed, and a delimiter or the end of the line must follow. Where this is not so, the first line of the record
    is a malformed record of its own, and the next record begins on the next line. So one stray quote costs one line,
    and which line follows from the file alone.
    """

    def __init__(self, delimiter: str) -> None:
        self._delimiter = ord(delimiter)
        d = re.escape(delimiter).encode()
        rest = rb'(?:[^"]|"")*+'
        field = rb'(?:"' + rest + rb'"|(?!")[^' + d + rb"]*+)"
        fields = rb"(?:" + field + d + rb")*+"
        closed = fields + field + rb"\r?"
        opened = fields + rb'"' + rest
        self._closed = re.compile(closed)
        self._open = re.compile(opened)
        self._closed_within = re.compile(rest + rb'"(?:\r?|' + d + closed + rb")")
        self._open_within = re.compile(rest + rb'(?:"' + d + opened + rb")?")

    def last_end(self, data: bytes) -> int:
        """Return the end of the last record that is complete, whatever bytes follow; 0 if none is."""
        if b'"' not in data:
            return data.rfind(b"\n") + 1
        text = np.frombuffer(data, np.uint8)
        quotes = np.flatnonzero(text == _QUOTE)
        if self._is_well_formed(text, quotes):
            ends = _ends(text, quotes)
            return int(ends[-1]) if len(ends) else 0
        last = 0
        for record in self._records(data, is_all=False):
            last = record.end
        return last

    def end_of(self, data: bytes, count: int) -> int:
        """Return the end of the first `count` records; of all if there are fewer."""
        ends = self.all_ends(data)
        return ends[count - 1] if len(ends) >= count else len(data)

    def all_ends(self, data: bytes) -> list[int]:
        """Return the end of each record; the last one need not have a line feed."""
        text = np.frombuffer(data, np.uint8)
        quotes = np.flatnonzero(text == _QUOTE)
        if len(quotes) % 2 or not self._is_well_formed(text, quotes):
            return [record.end for record in self._records(data, is_all=True)]
        ends: list[int] = _ends(text, quotes).tolist()
        return ends if ends and ends[-1] == len(data) else [*ends, len(data)]

    def has_malformed(self, data: bytes) -> bool:
        """Tell whether a quoted field of these records is not closed, or is followed by text."""
        if b'"' not in data:
            return False
        text = np.frombuffer(data, np.uint8)
        quotes = np.flatnonzero(text == _QUOTE)
        if not len(quotes) % 2 and self._is_well_formed(text, quotes):
            return False
        return any(record.malformed for record in self._records(data, is_all=True))

    def _is_well_formed(self, text: npt.NDArray[np.uint8], quotes: Positions) -> bool:
        """Tell whether quotes open and close fields in turn, or are the two of a doubled one.

        Then a line feed ends a record if the number of quotes before it is even.
        """
        opening, closing = quotes[::2], quotes[1::2]
        before = text[opening[opening > 0] - 1]
        after = text[closing[closing < len(text) - 1] + 1]
        outside = (self._delimiter, _LINE, _QUOTE)
        return bool(np.isin(before, outside).all() and np.isin(after, (*outside, _RETURN)).all())

    def _records(self, data: bytes, *, is_all: bool) -> Iterator[_Record]:
        """Yield records one by one. is_all: whether nothing follows; else a record that may continue is left out.

        What becomes of a field that is open at the end of a line is found once per line, from the last line to the
        first. So the time is linear, however many quotes are not closed.
        """
        ends = [match.end() for match in re.finditer(rb"\n|(?<=[^\n])\Z", data)]
        if not is_all and ends and not data.endswith(b"\n"):
            ends.pop()
        starts = [0, *ends][: len(ends)]
        lines = [data[start:end].removesuffix(b"\n") for start, end in zip(starts, ends, strict=True)]
        # By line: the line that closes a field which is open at its beginning; -1: no line does, None: not known.
        closing: list[int | None] = [None] * (len(lines) + 1)
        closing[-1] = -1 if is_all else None
        for at in reversed(range(len(lines))):
            match self._end(lines[at], within=True):
                case _End.CLOSED:
                    closing[at] = at
                case _End.MALFORMED:
                    closing[at] = -1
                case _End.OPEN:
                    closing[at] = closing[at + 1]
        at = 0
        while at < len(lines):
            end = self._end(lines[at], within=False)
            last = at if end is _End.CLOSED else -1 if end is _End.MALFORMED else closing[at + 1]
            if last is None:
                return
            yield _Record(starts[at], ends[max(at, last)], last < 0)
            at = max(at, last) + 1

    def _end(self, line: bytes, *, within: bool) -> _End:
        """Return the state after a line. within: whether it begins within a quoted field."""
        if b'"' not in line:
            return _End.OPEN if within else _End.CLOSED
        closed = self._closed_within.fullmatch if within else self._closed.fullmatch
        still_open = self._open_within.fullmatch if within else self._open.fullmatch
        return _End.CLOSED if closed(line) else _End.OPEN if still_open(line) else _End.MALFORMED


def _ends(text: npt.NDArray[np.uint8], quotes: Positions) -> Positions:
    """Return the ends of records that have a line feed, if all quotes are well formed."""
    lines = np.flatnonzero(text == _LINE)
    ends: Positions = lines[np.searchsorted(quotes, lines) % 2 == 0] + 1
    return ends
