"""Numbers in groups of 7 bits, the lowest first; a byte with its highest bit set is not the last (LEB128)."""

from __future__ import annotations


def read_varint(data: bytes, at: int, most: int = 10) -> tuple[int, int]:
    """The number at `at`, and where it ends; IndexError if the data ends first, ValueError beyond `most` bytes."""
    byte = data[at]
    at += 1
    if byte < 0x80:
        return byte, at
    number, shift = byte & 0x7F, 7
    while shift < 7 * most:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
    raise ValueError(f"a number of more than {7 * most} bits")


def zigzag(number: int) -> int:
    """The signed number that was turned so that its sign is the lowest bit."""
    return number >> 1 ^ -(number & 1)
