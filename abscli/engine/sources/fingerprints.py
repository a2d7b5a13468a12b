"""What was read of a file, in a few bytes, so that it is noticed when that is no longer there.

Of files that are read from the beginning on (text, JSON lines, CSV) it is the CRC-32 of all that was read: one that has
grown since is the same. Of files that are written once (Parquet, Arrow) it is that of their size and of pieces all
over them, the first and the last among them, where such a file says what it holds.

When and how large the file was is noted, too: where both are the same still, nothing is read to compare.
"""

from __future__ import annotations

import os
import re
import time
import zlib
from typing import IO, NamedTuple

SETTLED_NS = 2_000_000_000
"""A file that was changed less than this before it was read may change again within one tick of its clock."""

PIECE = 64 << 10
"""Bytes of the first and the last piece of a file that is written once."""

PIECES = 64
SMALL_PIECE = 4 << 10

_BLOCK = 1 << 20
_TEXT = re.compile(r"(prefix|pieces) ([0-9a-f]{8})(?: ([0-9]{1,19}) at ([0-9]{1,19}))?")


class Fingerprint(NamedTuple):
    """Of what was read of a file.

    whole: whether it is of pieces of the whole file, not of what lies before a position.
    size, modified: of the file, in bytes and nanoseconds, when it was read last; None where that proves nothing.
    """

    whole: bool
    crc: int
    size: int | None = None
    modified: int | None = None

    def __str__(self) -> str:
        stood = "" if self.size is None else f" {self.size} at {self.modified}"
        return f"{'pieces' if self.whole else 'prefix'} {self.crc:08x}{stood}"

    @classmethod
    def parse(cls, text: str) -> Fingerprint | None:
        """What `str` has written; None for anything else, as a newer version may write."""
        match = _TEXT.fullmatch(text)
        if match is None:
            return None
        form, crc, size, modified = match.groups()
        return cls(form == "pieces", int(crc, 16), *((int(size), int(modified)) if size else ()))

    def stands(self, status: os.stat_result) -> bool:
        """Whether nobody has written the file since."""
        return self.size == status.st_size and self.modified == status.st_mtime_ns


def beginning(data: bytes, before: Fingerprint | None, status: os.stat_result) -> Fingerprint:
    """Of a file that is read on. before: of what was read of it until then; status: of the file now."""
    crc = zlib.crc32(data, before.crc if before is not None else 0)
    if before is not None and not before.stands(status):
        return Fingerprint(False, crc)  # it was written meanwhile: its time says nothing of what came before
    return Fingerprint(False, crc, *_stood(status))


def settled(status: os.stat_result) -> bool:
    """Whether a file was left alone long enough for its time to say that nothing has changed."""
    return time.time_ns() - status.st_mtime_ns > SETTLED_NS


def _stood(status: os.stat_result) -> tuple[int | None, int | None]:
    return (status.st_size, status.st_mtime_ns) if settled(status) else (None, None)


def of_pieces(file: IO[bytes]) -> Fingerprint:
    """Of a file that is written once; OSError."""
    status = os.fstat(file.fileno())
    size = status.st_size
    crc = zlib.crc32(str(size).encode())
    step = max(SMALL_PIECE, (size - 2 * PIECE) // PIECES)
    places = [(0, PIECE), *((at, SMALL_PIECE) for at in range(PIECE, size - PIECE, step))]
    for at, length in [*places, (max(0, size - PIECE), PIECE)]:
        file.seek(at)
        crc = zlib.crc32(file.read(length), crc)
    return Fingerprint(True, crc, *_stood(status))


def is_same(path: str, fingerprint: Fingerprint, offset: int) -> bool:
    """Whether a file is what was read; OSError. offset: bytes read of it, where it is read from the beginning on."""
    with open(path, "rb") as file:
        if fingerprint.stands(os.fstat(file.fileno())):
            return True
        if fingerprint.whole:
            return of_pieces(file).crc == fingerprint.crc
        crc, left = 0, offset
        while left and (data := file.read(min(left, _BLOCK))):
            crc, left = zlib.crc32(data, crc), left - len(data)
        return not left and crc == fingerprint.crc
