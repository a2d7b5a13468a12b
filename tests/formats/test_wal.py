"""Write-ahead logs of RocksDB: only one that is whole, and of batches without rows, is told to hold none."""

from __future__ import annotations

import struct

from hypothesis import example, given
from hypothesis import strategies as st

from formats.codec.crc32c import crc32c, masked
from formats.codec.wal import BLOCK, is_without_rows


def log(*counts: int, numbered: bool = False) -> bytes:
    """Batches of so many rows each, in pieces where a block ends; the rows themselves are left out."""
    out = bytearray()
    header = 11 if numbered else 7
    for i, count in enumerate(counts):
        rest, first = struct.pack("<QI", i, count), True
        while first or rest:
            if (room := BLOCK - len(out) % BLOCK) < header:
                out += bytes(room)
                continue
            piece, rest = rest[: room - header], rest[room - header :]
            kind = (2 if rest else 1) if first else (3 if rest else 4)
            body = bytes([kind + 4 * numbered]) + (b"\1\0\0\0" if numbered else b"") + piece
            out += struct.pack("<IH", masked(crc32c(body)), len(piece)) + body
            first = False
    return bytes(out)


@given(st.integers(0, 2000), st.booleans())
@example(1800, False)
@example(1800, True)
def test_batches_without_rows_are_told_apart_from_rows(number: int, numbered: bool) -> None:
    assert is_without_rows(log(*[0] * number, numbered=numbered))
    assert not is_without_rows(log(*[0] * number, 1, numbered=numbered))


@given(st.integers(1, 5), st.data())
def test_a_log_that_is_torn_or_flipped_is_not_said_to_have_no_rows(number: int, data: st.DataObject) -> None:
    whole = log(*[0] * number)
    at = data.draw(st.integers(0, len(whole) - 1))
    flipped = bytearray(whole)
    flipped[at] ^= 1 << data.draw(st.integers(0, 7))
    assert not is_without_rows(bytes(flipped))
    if at % 19:
        assert not is_without_rows(whole[:at])
