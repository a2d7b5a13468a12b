"""Where the records of CSV end: a line's end within quotes is part of a field."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

_QUOTE, _LINE = ord('"'), ord("\n")

Places = npt.NDArray[np.int64]


class CsvRecords:
    """As of `Records`, with the rules of Arrow's reader: a quote begins a quoted field only where a field begins, two
    within it are one quote, and what follows its end belongs to the field."""

    def __init__(self, delimiter: str) -> None:
        self._delimiter = ord(delimiter)
        other = re.escape(delimiter).encode()
        # One field with what ends it. A quoted one that does not end takes everything, and nothing ends it.
        self._field = re.compile(
            rb'(?:"(?:[^"]|"")*+(?:"[^' + other + rb"\n]*+|\Z)|[^" + other + rb"\n]*+)(?:" + other + rb"|(\n)|\Z)"
        )

    def last_end(self, data: bytes) -> int:
        """As of `Records`."""
        if b'"' not in data:
            return data.rfind(b"\n") + 1
        ends = self._ends(data)
        return int(ends[-1]) if len(ends) else 0

    def end_of(self, data: bytes, count: int) -> int:
        """As of `Records`."""
        ends = self._ends(data)
        return int(ends[count - 1]) if len(ends) >= count else len(data)

    def all_ends(self, data: bytes) -> list[int]:
        """Behind each record, the last one, too, where no line's end follows it."""
        ends: list[int] = self._ends(data).tolist()
        return ends if ends and ends[-1] == len(data) else [*ends, len(data)]

    def _ends(self, data: bytes) -> Places:
        """Behind each record that has a line's end."""
        text = np.frombuffer(data, np.uint8)
        lines = np.flatnonzero(text == _LINE)
        quotes = np.flatnonzero(text == _QUOTE)
        if not len(quotes):
            return lines + 1
        if self._alternate(text, quotes):
            outside = np.searchsorted(quotes, lines) % 2 == 0
            ends: Places = lines[outside] + 1
            return ends
        return self._one_by_one(data)

    def _alternate(self, text: npt.NDArray[np.uint8], quotes: Places) -> bool:
        """Whether every other quote begins a field, or is the second of two: then the others end one."""
        opening = quotes[::2]
        before = text[opening[opening > 0] - 1]
        return bool(np.isin(before, (self._delimiter, _LINE, _QUOTE)).all())

    def _one_by_one(self, data: bytes) -> Places:
        """Field by field: some quotes stand within fields that are not quoted."""
        ends = [match.end(1) for match in self._field.finditer(data) if match.group(1)]
        return np.array(ends, np.int64)
