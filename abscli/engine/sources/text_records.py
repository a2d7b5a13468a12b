"""Checks of text records that every source makes before Arrow parses them.

Arrow's readers accept more than one record per line and records that span lines, and do not check that text is UTF-8.
Then the rows would depend on where batches end. Its JSON reader also crashes on a line `null`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""May begin a UTF-8 file; it is not part of the first record."""

_BLANK = b" \t\r\n"
_LINE_FEED, _RETURN, _OPEN, _CLOSE = b"\n\r{}"


def check_utf8(data: bytes) -> None:
    """Raise ArrowInvalid, naming the first wrong byte, unless the bytes are UTF-8."""
    if data.isascii():
        return
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise pa.ArrowInvalid(f"byte 0x{data[error.start]:02x} at position {error.start} is not UTF-8") from None


class Spans(NamedTuple):
    """Records within bytes, each from one of `starts` to one of `ends`."""

    data: bytes
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]

    @classmethod
    def of_lines(cls, data: bytes) -> Spans:
        """Return the lines that are not blank, without the bytes that end them."""
        if not data:
            return cls(data, np.empty(0, np.int64), np.empty(0, np.int64))
        text = np.frombuffer(data, np.uint8)
        ends = np.flatnonzero(text == _LINE_FEED)
        if not data.endswith(b"\n"):
            ends = np.append(ends, len(data))
        starts = np.concatenate(([0], ends[:-1] + 1)).astype(np.int64)
        # Most lines begin with their object: only the others can be blank.
        doubtful = np.flatnonzero(text[starts] != _OPEN)
        blank = [at for at in doubtful.tolist() if not data[starts[at] : ends[at]].strip(_BLANK)]
        starts, ends = np.delete(starts, blank), np.delete(ends, blank)
        ends -= text[ends - 1] == _RETURN
        return cls(data, starts, ends)

    @classmethod
    def of_values(cls, values: Sequence[bytes]) -> Spans:
        """Return the values as records of their own."""
        ends = np.cumsum([len(value) + 1 for value in values], dtype=np.int64) - 1
        starts = np.concatenate(([0], ends[:-1] + 1)).astype(np.int64)
        return cls(b"\n".join(values), starts, ends)

    def records(self) -> list[bytes]:
        """Return the bytes of each record."""
        return [self.data[start:end] for start, end in zip(self.starts.tolist(), self.ends.tolist(), strict=True)]


def check_objects(records: Spans) -> None:
    """Raise ArrowInvalid unless every record is UTF-8, and begins and ends as a JSON object.

    An object cannot continue in the next record then: no JSON has `}` and `{` one after the other within an object, and
    a string has no line feed. Two objects in one record are left for a comparison of the number of rows.
    """
    check_utf8(records.data)
    if not len(records.starts):
        return
    text = np.frombuffer(records.data, np.uint8)
    if (records.ends <= records.starts).any():
        raise pa.ArrowInvalid("an empty record is not a JSON object")
    last = text[records.ends - 1]
    doubtful = np.flatnonzero((text[records.starts] != _OPEN) | (last != _CLOSE))
    if not len(doubtful):
        return
    for at in doubtful.tolist():
        record = records.data[records.starts[at] : records.ends[at]].strip(_BLANK)
        if record[:1] != b"{" or record[-1:] != b"}":
            raise pa.ArrowInvalid("it is not one JSON object on one line")
