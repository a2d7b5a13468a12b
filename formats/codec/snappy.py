"""Snappy's framing format, which Flink puts around compressed state: chunks with a checksum each.

A chunk is `u8 type | u24 length, low byte first | body`: 0xFF the stream's beginning (`sNaPpY`), 0 compressed and 1
plain data behind a masked CRC-32C of the plain bytes, 0x80 to 0xFE to be skipped. A stream has no end mark: it ends
with its bytes, or where another one begins. Source: google/snappy, framing_format.txt.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from formats.bounds import decoding
from formats.errors import Damaged

if TYPE_CHECKING:
    import numpy as np

BEGIN: Final = b"\xff\x06\x00\x00sNaPpY"
_MOST: Final = 65536
_LANE: Final = 256


def streams(data: bytes, path: str | None, at: int = 0) -> Iterator[tuple[int, bytes]]:
    """The plain bytes of each stream in `data`, with the offset where it begins. Damaged if a checksum does not hold.

    at: what offset in the file the first byte has, for messages.
    """
    pos = 0
    begin = 0
    parts: list[bytes] | None = None
    while pos < len(data):
        if pos + 4 > len(data):
            _fail("a snappy chunk ends too early", at + pos, path)
        kind = data[pos]
        end = pos + 4 + int.from_bytes(data[pos + 1 : pos + 4], "little")
        if end > len(data):
            _fail(f"a snappy chunk of {end - pos - 4} bytes, {len(data) - pos - 4} are left", at + pos, path)
        if kind == 0xFF:
            if data[pos:end] != BEGIN:
                _fail("no beginning of a snappy stream", at + pos, path)
            if parts is not None:
                yield begin, b"".join(parts)
            begin, parts = pos, []
        elif parts is None:
            _fail("no beginning of a snappy stream", at + pos, path)
        elif kind <= 1:
            parts.append(_chunk(kind, data[pos + 4 : end], at + pos, path))
        elif kind < 0x80:
            _fail(f"a snappy chunk of type 0x{kind:02x}", at + pos, path)
        pos = end
    if parts is not None:
        yield begin, b"".join(parts)


def pieces(data: bytes, path: str | None, at: int = 0) -> bytes:
    """The plain bytes of whole chunks, with or without a stream's beginning before them."""
    begun = data if data.startswith(BEGIN) else BEGIN + data
    return b"".join(plain for _, plain in streams(begun, path, at - len(begun) + len(data)))


def _chunk(kind: int, body: bytes, at: int, path: str | None) -> bytes:
    if len(body) < 4:
        _fail("a snappy chunk without a checksum", at, path)
    plain = body[4:] if kind else _block(body[4:], at, path)
    if len(plain) > _MOST:
        _fail(f"a snappy chunk of {len(plain)} plain bytes", at, path)
    due = int.from_bytes(body[:4], "little")
    crc = crc32c(plain)
    found = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    if found != due:
        _fail(f"snappy checksum {found:08x}, the chunk says {due:08x}", at, path)
    return plain


def uncompressed(data: bytes, path: str | None) -> bytes:
    """One compressed block on its own, of any size that snappy can make of its bytes."""
    return _block(data, 0, path, 64 * len(data))


def _block(data: bytes, at: int, path: str | None, most: int = _MOST) -> bytes:
    """One compressed block: its plain length as a varint, then the pieces."""
    import pyarrow as pa

    size, shift = 0, 0
    for byte in data[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > most:
        _fail(f"a snappy block of {size} plain bytes", at, path)
    try:
        with decoding(path):
            plain: bytes = pa.Codec("snappy").decompress(data, decompressed_size=size, asbytes=True)
    except (pa.ArrowException, OSError) as error:
        _fail(f"a snappy block that cannot be unpacked: {error}", at, path)
    if len(plain) != size:
        _fail(f"a snappy block of {len(plain)} bytes, it says {size}", at, path)
    return plain


def _fail(said: str, at: int, path: str | None) -> Any:
    raise Damaged(f"{said} (offset {at})", path=path)


# -- CRC-32C ----------------------------------------------------------------------------------------------


def crc32c(data: bytes) -> int:
    """The Castagnoli checksum. Long data are split into lanes of 256 bytes that numpy works on together."""
    n = len(data) // _LANE
    crc = 0xFFFFFFFF
    if n >= 4:
        import numpy as np

        table = _numpy_table()
        lanes = np.frombuffer(data, np.uint8, n * _LANE).reshape(n, _LANE)
        state = np.zeros(n, np.uint32)
        for i in range(_LANE):
            state = table[(state ^ lanes[:, i]) & 0xFF] ^ (state >> 8)
        shift = _shift()
        for lane in state.tolist():
            a, b, c, d = shift
            crc = a[crc & 255] ^ b[crc >> 8 & 255] ^ c[crc >> 16 & 255] ^ d[crc >> 24] ^ lane
        data = data[n * _LANE :]
    small = _table()
    for byte in data:
        crc = small[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


@functools.cache
def _table() -> list[int]:
    found = []
    for i in range(256):
        crc = i
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        found.append(crc)
    return found


@functools.cache
def _numpy_table() -> np.ndarray[Any, np.dtype[np.uint32]]:
    import numpy as np

    return np.array(_table(), np.uint32)


@functools.cache
def _shift() -> tuple[list[int], ...]:
    """What a lane of zeros makes of each byte of a checksum: a checksum is linear in its bits."""
    table = _table()
    bits = []
    for bit in range(32):
        crc = 1 << bit
        for _ in range(_LANE):
            crc = table[crc & 0xFF] ^ (crc >> 8)
        bits.append(crc)
    found = []
    for byte in range(4):
        row = []
        for value in range(256):
            crc = 0
            for bit in range(8):
                if value >> bit & 1:
                    crc ^= bits[8 * byte + bit]
            row.append(crc)
        found.append(row)
    return tuple(found)
