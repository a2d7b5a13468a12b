"""Text as Flink writes it: `StringValue`."""

from __future__ import annotations

from array import array
from sys import byteorder
from typing import Final

from formats.codec.varint import read_varint

_UTF16: Final = f"utf-16-{byteorder[0]}e"
_INT: Final = 5
"""Bytes of a variable-length int at the most."""


def read_string(buf: bytes, pos: int) -> tuple[str | None, int]:
    """`StringValue`: length + 1 (0: null), then UTF-16 units, each as a varint."""
    n = buf[pos]
    pos += 1
    if n >= 0x80:
        n, pos = read_varint(buf, pos - 1, _INT)
    if n == 0:
        return None, pos
    end = pos + n - 1
    chunk = buf[pos:end]
    if chunk.isascii():
        if len(chunk) != n - 1:
            raise IndexError("a string ends too early")
        return chunk.decode("ascii"), end
    if n - 1 > len(buf) - pos:
        raise IndexError("a string ends too early")
    units = []
    for _ in range(n - 1):
        unit = buf[pos]
        pos += 1
        if unit >= 0x80:  # two or three bytes, of 7 bits each
            more = buf[pos]
            pos += 1
            unit += (more << 7) - 0x80
            if more >= 0x80:
                unit += (buf[pos] << 14) - 0x4000
                pos += 1
        units.append(unit)
    return array("H", units).tobytes().decode(_UTF16, "surrogatepass"), pos


def read_string_value(buf: bytes, pos: int) -> tuple[str, int]:
    """A `StringValue` as itself: like a string, but never null, and the length is its length."""
    n, pos = read_varint(buf, pos, _INT)
    if n > len(buf) - pos:
        raise IndexError("a string ends too early")
    units = []
    for _ in range(n):
        unit, pos = read_varint(buf, pos, _INT)
        units.append(unit)
    return array("H", units).tobytes().decode(_UTF16, "surrogatepass"), pos
