"""Big-endian bytes as Java's DataInput and DataOutput have them, read within bounds.

Every length is held against what is left before anything is made of it, so that a damaged or hostile file costs no
more memory than it has bytes. Errors say the offset and the field; a caller adds where it is by `Reader.place`.
"""

from __future__ import annotations

import struct
from typing import NoReturn

from formats.errors import Damaged

_U16 = struct.Struct(">H")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")


class Reader:
    """A cursor over bytes.

    path: what messages call the file.
    place: where in it we are, in words.
    kryo: major version of the Kryo that wrote the values which the bytes describe; nothing in them says it.
    """

    __slots__ = ("data", "end", "kryo", "path", "place", "pos")

    def __init__(self, data: bytes, path: str | None = None, pos: int = 0, end: int | None = None) -> None:
        self.data = data
        self.pos = pos
        self.end = len(data) if end is None else min(end, len(data))
        self.path = path
        self.place: list[str] = []
        self.kryo = 5

    @property
    def left(self) -> int:
        """Bytes not yet read."""
        return self.end - self.pos

    def error(self, message: str, field: str, at: int | None = None) -> Damaged:
        """The error to raise, with the offset (default: here), the place and the field."""
        where = ", ".join([f"offset {self.pos if at is None else at}", *self.place, field])
        return Damaged(f"{message} ({where})", path=self.path)

    def fail(self, message: str, field: str, at: int | None = None) -> NoReturn:
        """Raise it."""
        raise self.error(message, field, at)

    def short(self, need: int, field: str) -> Damaged:
        """The error of a file that ends before `need` more bytes."""
        return self.error(f"ends too early: {need} bytes are needed, {max(self.left, 0)} are left", field)

    def u8(self, field: str) -> int:
        pos = self.pos
        if pos >= self.end:
            raise self.short(1, field)
        self.pos = pos + 1
        return self.data[pos]

    def u16(self, field: str) -> int:
        pos = self.pos
        if pos + 2 > self.end:
            raise self.short(2, field)
        self.pos = pos + 2
        value: int = _U16.unpack_from(self.data, pos)[0]
        return value

    def i32(self, field: str) -> int:
        pos = self.pos
        if pos + 4 > self.end:
            raise self.short(4, field)
        self.pos = pos + 4
        value: int = _I32.unpack_from(self.data, pos)[0]
        return value

    def i64(self, field: str) -> int:
        pos = self.pos
        if pos + 8 > self.end:
            raise self.short(8, field)
        self.pos = pos + 8
        value: int = _I64.unpack_from(self.data, pos)[0]
        return value

    def take(self, length: int, field: str) -> bytes:
        """The next `length` bytes."""
        pos = self.pos
        if length < 0:
            raise self.error(f"a length of {length} bytes", field)
        if length > self.end - pos:
            raise self.short(length, field)
        self.pos = pos + length
        return self.data[pos : pos + length]

    def size(self, field: str) -> int:
        """An i64 that counts bytes."""
        value = self.i64(field)
        if value < 0:
            raise self.error(f"a size of {value} bytes", field, self.pos - 8)
        return value

    def count(self, least: int, field: str) -> int:
        """An i32 that counts items of at least `least` bytes each; they must fit into what is left."""
        n = self.i32(field)
        if n < 0:
            raise self.error(f"a count of {n}", field, self.pos - 4)
        if n * least > self.end - self.pos:
            message = f"a count of {n}, each of at least {least} bytes, in {self.end - self.pos} bytes"
            raise self.error(message, field, self.pos - 4)
        return n

    def i64s(self, n: int, field: str) -> tuple[int, ...]:
        """`n` numbers of 8 bytes."""
        if n < 0:
            raise self.error(f"a count of {n}", field)
        pos = self.pos
        if 8 * n > self.end - pos:
            raise self.short(8 * n, field)
        self.pos = pos + 8 * n
        return struct.unpack_from(f">{n}q", self.data, pos)

    def flag(self, field: str) -> bool:
        """A byte that is 0 or 1."""
        value = self.u8(field)
        if value > 1:
            raise self.error(f"{value} where 0 or 1 is due", field, self.pos - 1)
        return value == 1

    def utf(self, field: str) -> str:
        """A string as Java's `writeUTF` puts it: u16 length in bytes, modified UTF-8."""
        length = self.u16(field)
        return self.text(length, field)

    def text(self, length: int, field: str) -> str:
        """`length` bytes of modified UTF-8."""
        at = self.pos
        data = self.take(length, field)
        try:
            return decode_utf(data)
        except UnicodeError:
            raise self.error("bytes that are not text", field, at) from None


def decode_utf(data: bytes) -> str:
    """Modified UTF-8 to text; UnicodeError if it is not what Java writes, or holds half a surrogate pair."""
    if data.isascii() and 0 not in data:
        return data.decode("ascii")
    text = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    text = text.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
    if encode_utf(text) != data:
        raise UnicodeError("not modified UTF-8")
    return text


def encode_utf(text: str) -> bytes:
    """Text to modified UTF-8: NUL in two bytes, characters beyond the first plane as two surrogates of three each."""
    if text.isascii() and "\0" not in text:
        return text.encode("ascii")
    units = text.encode("utf-16-be")
    parts = []
    for i in range(0, len(units), 2):
        unit = chr(units[i] << 8 | units[i + 1])
        parts.append(b"\xc0\x80" if unit == "\0" else unit.encode("utf-8", "surrogatepass"))
    return b"".join(parts)


class Writer:
    """Bytes put together, the counterpart of Reader."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data = bytearray()

    def u8(self, value: int) -> None:
        self.data.append(value)

    def u16(self, value: int) -> None:
        self.data += _U16.pack(value)

    def i32(self, value: int) -> None:
        self.data += _I32.pack(value)

    def i64(self, value: int) -> None:
        self.data += _I64.pack(value)

    def raw(self, data: bytes) -> None:
        self.data += data

    def i64s(self, values: tuple[int, ...]) -> None:
        self.data += struct.pack(f">{len(values)}q", *values)

    def utf(self, text: str) -> None:
        """ValueError if it takes more than 65535 bytes."""
        data = encode_utf(text)
        if len(data) > 0xFFFF:
            raise ValueError(f"a text of {len(data)} bytes, Java's writeUTF takes 65535: {text[:60]!r}...")
        self.data += _U16.pack(len(data))
        self.data += data
