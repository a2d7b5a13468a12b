"""Bytes as Kryo's `Output` writes them: variable-length numbers, text, and fixed-width numbers of either version.

Flink 1.x has Kryo 2.24, Flink 2.x Kryo 5.6: fixed-width numbers have the high byte first in the older one, the low byte
first in the newer one. Numbers of variable length have 7 bits a byte, the lowest first; a long of nine bytes has all 8
bits in the last. A signed one is turned so that its sign is the lowest bit (zigzag).

Source: `com.esotericsoftware.kryo.io.Output` of 2.24.0 and 5.6.2.
"""

from __future__ import annotations

import struct
from array import array
from sys import byteorder
from typing import Any, Final

from formats.codec.varint import read_varint, zigzag

OLD: Final = 2
NEW: Final = 5
"""The major versions of Kryo, in Flink 1.x and 2.x."""

_UTF16: Final = f"utf-16-{byteorder[0]}e"
_INT: Final = 5
"""Bytes of a variable-length int at the most."""
_FORMS: Final = {
    version: {form: struct.Struct(order + form) for form in "hHiqfd"} for version, order in ((OLD, ">"), (NEW, "<"))
}


class KryoInput:
    """A cursor over one value. Raises struct.error, IndexError or ValueError where its bytes are none."""

    __slots__ = ("_forms", "data", "pos", "version")

    def __init__(self, data: bytes, pos: int, version: int) -> None:
        self.data = data
        self.pos = pos
        self.version = version
        self._forms = _FORMS[version]

    def byte(self) -> int:
        pos = self.pos
        self.pos = pos + 1
        return self.data[pos]

    def signed_byte(self) -> int:
        value = self.byte()
        return value - 256 if value > 127 else value

    def boolean(self) -> bool:
        value = self.byte()
        if value > 1:
            raise ValueError(f"{value} where 0 or 1 is due")
        return value == 1

    def take(self, length: int) -> bytes:
        if not 0 <= length <= len(self.data) - self.pos:
            raise IndexError(f"{length} bytes are due, {len(self.data) - self.pos} are left")
        self.pos += length
        return self.data[self.pos - length : self.pos]

    def fixed(self, form: str) -> Any:
        """A number of fixed width, by its `struct` letter."""
        layout = self._forms[form]
        self.pos += layout.size
        return layout.unpack_from(self.data, self.pos - layout.size)[0]

    def unsigned(self) -> int:
        """A varint of at most 32 bits as it stands there: lengths, marks, numbers of classes."""
        value, self.pos = read_varint(self.data, self.pos, _INT)
        if value >> 32:
            raise ValueError("a number of more than 32 bits")
        return value

    def positive(self) -> int:
        """An int that is mostly positive: a negative one takes five bytes."""
        value = self.unsigned()
        return value - (1 << 32) if value >> 31 else value

    def integer(self) -> int:
        """An int, zigzag."""
        return zigzag(self.unsigned())

    def _unsigned_long(self) -> int:
        value = 0
        for shift in range(0, 56, 7):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        # the ninth byte has no bit that says whether more follow
        return value | self.byte() << 56

    def positive_long(self) -> int:
        """A long that is mostly positive: a negative one takes nine bytes."""
        value = self._unsigned_long()
        return value - (1 << 64) if value >> 63 else value

    def long(self) -> int:
        """A long, zigzag."""
        return zigzag(self._unsigned_long())

    def count(self, least: int = 1) -> int:
        """A number of things of which each takes `least` bytes or more, which are there."""
        value = self.unsigned()
        self.check(value, least)
        return value

    def check(self, number: int, least: int = 1) -> None:
        """ValueError if so many things of at least so many bytes cannot follow."""
        if number * least > len(self.data) - self.pos:
            raise ValueError(f"{number} values in {len(self.data) - self.pos} bytes")

    def flagged(self) -> tuple[bool, int]:
        """A flag in the highest bit of a varint, and the number (Kryo 5)."""
        byte = self.byte()
        # the flag takes one bit of the first byte, so 6 are left, and bit 6 says whether more follow
        value = byte & 0x3F
        if byte & 0x40:
            value |= self.unsigned() << 6
        if value >> 32:
            raise ValueError("a number of more than 32 bits")
        return byte >= 0x80, value

    def text(self) -> str | None:
        """ASCII whose last byte has its highest bit set; or a length + 1 (0: null) and UTF-16 units in UTF-8."""
        # short ASCII has no length: a set bit ends it. All else begins with a byte whose highest bit is set
        if self.data[self.pos] < 0x80:
            return self._ascii()
        _, length = self.flagged()
        if length == 0:
            return None
        self.check(length - 1)
        pos = self.pos
        chunk = self.data[pos : pos + length - 1]
        # the length counts UTF-16 units: only where all are ASCII are bytes and units as many
        if chunk.isascii():
            self.pos = pos + length - 1
            return chunk.decode("ascii")
        units = array("H")
        data = self.data
        for _ in range(length - 1):
            byte = data[pos]
            pos += 1
            kind = byte >> 4
            if kind < 8:
                units.append(byte)
            elif kind in (12, 13):
                units.append((byte & 0x1F) << 6 | _more(data[pos]))
                pos += 1
            elif kind == 14:
                units.append((byte & 0x0F) << 12 | _more(data[pos]) << 6 | _more(data[pos + 1]))
                pos += 2
            else:
                raise ValueError(f"0x{byte:02x} begins no character")
        self.pos = pos
        # two surrogates, written one by one, become one character; half a pair, which Java allows, stays
        return units.tobytes().decode(_UTF16, "surrogatepass")

    def words(self) -> str:
        """Text that is not null."""
        text = self.text()
        if text is None:
            raise ValueError("no text where one is due")
        return text

    def _ascii(self) -> str:
        end = self.pos
        data = self.data
        while data[end] < 0x80:
            end += 1
        raw = data[self.pos : end] + bytes([data[end] & 0x7F])
        self.pos = end + 1
        return raw.decode("ascii")


def _more(byte: int) -> int:
    if byte >> 6 != 2:
        raise ValueError(f"0x{byte:02x} continues no character")
    return byte & 0x3F
