"""What was read of a file, in a few bytes, so that it is noticed when that is no longer there.

Of files that are read from the beginning on (text, JSON lines, CSV) it is the CRC-32 of all that was read: one that has
grown since is the same. Of files that are written once (Parquet, Arrow) it is that of their size and of pieces all
over them, the first and the last among them, where such a file says what it holds.

When and how large the file was is noted, too, of one that a server has its version: where that is the same still,
nothing is read to compare.
"""

from __future__ import annotations

import re
import time
import zlib
from typing import NamedTuple

from abscli.engine.sources.files.input_files import InputFile, Status, open_file, open_text, status_of_open

SETTLED_NS = 2_000_000_000
"""A file that was changed less than this before it was read may change again within one tick of its clock."""

PIECE = 64 << 10
"""Bytes of the first and the last piece of a file that is written once."""

PIECES = 64
SMALL_PIECE = 4 << 10

_BLOCK = 1 << 20
_TEXT = re.compile(r"(prefix|pieces|unpacked) ([0-9a-f]{8})(?: ([0-9]{1,19}) (?:at ([0-9]{1,19})|tag (\S{1,1024})))?")


class Fingerprint(NamedTuple):
    """Of what was read of a file.

    whole: whether it is of pieces of the whole file, not of the bytes before a position.
    size, modified, tag: of the file, in bytes and nanoseconds, or its version, when it was read last; None where that
    proves nothing.
    is_unpacked: whether the file is compressed; the position is one of its text then, and `size` that of the file.
    """

    whole: bool
    crc: int
    size: int | None = None
    modified: int | None = None
    tag: str | None = None
    is_unpacked: bool = False

    def __str__(self) -> str:
        stood = "" if self.size is None else f" {self.size} "
        if stood:
            stood += f"at {self.modified}" if self.tag is None else f"tag {self.tag}"
        form = "pieces" if self.whole else "unpacked" if self.is_unpacked else "prefix"
        return f"{form} {self.crc:08x}{stood}"

    @classmethod
    def parse(cls, text: str) -> Fingerprint | None:
        """What `str` has written; None for anything else, as a newer version may write."""
        match = _TEXT.fullmatch(text)
        if match is None:
            return None
        form, crc, size, modified, tag = match.groups()
        at = int(modified) if modified else None
        return cls(form == "pieces", int(crc, 16), int(size) if size else None, at, tag, form == "unpacked")

    def stands(self, status: Status) -> bool:
        """Whether nobody has written the file since."""
        return (self.size, self.modified, self.tag) == (status.size, status.modified, status.tag)


def beginning(
    data: bytes, before: Fingerprint | None, status: Status, *, is_unpacked: bool = False
) -> Fingerprint:
    """Of a file that is read on. before: of what was read of it until then; status: of the file now."""
    crc = zlib.crc32(data, before.crc if before is not None else 0)
    if before is not None and not before.stands(status):
        # It was written meanwhile: its time says nothing of what came before.
        return Fingerprint(False, crc, is_unpacked=is_unpacked)
    return Fingerprint(False, crc, *_stood(status), is_unpacked=is_unpacked)


def settled(status: Status) -> bool:
    """Whether a file was left alone long enough for its time to say that nothing has changed; its version does at
    once."""
    return status.modified is None or time.time_ns() - status.modified > SETTLED_NS


def _stood(status: Status) -> tuple[int | None, int | None, str | None]:
    return (status.size, status.modified, status.tag) if settled(status) else (None, None, None)


def of_pieces(file: InputFile) -> Fingerprint:
    """Of a file that is written once; OSError."""
    status = status_of_open(file)
    size = status.size
    crc = zlib.crc32(str(size).encode())
    step = max(SMALL_PIECE, (size - 2 * PIECE) // PIECES)
    places = [(0, PIECE), *((at, SMALL_PIECE) for at in range(PIECE, size - PIECE, step))]
    for at, length in [*places, (max(0, size - PIECE), PIECE)]:
        file.seek(at)
        crc = zlib.crc32(file.read(length), crc)
    return Fingerprint(True, crc, *_stood(status))


def is_same(path: str, fingerprint: Fingerprint, offset: int) -> bool:
    """Whether a file is what was read; OSError. offset: bytes read of it, where it is read from the beginning on."""
    opened = open_file(path, PIECE) if fingerprint.whole else open_text(path)
    with opened as file:
        return is_what_was_read(file, fingerprint, offset)


def is_what_was_read(file: InputFile, fingerprint: Fingerprint, offset: int) -> bool:
    """The same of a file that is open."""
    if fingerprint.stands(status_of_open(file)):
        return True
    if fingerprint.whole:
        return of_pieces(file).crc == fingerprint.crc
    file.seek(0)
    crc, left = 0, offset
    while left and (data := file.read(min(left, _BLOCK))):
        crc, left = zlib.crc32(data, crc), left - len(data)
    return not left and crc == fingerprint.crc
