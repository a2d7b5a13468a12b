"""Snappy: single blocks, and the two ways in which they are framed: snappy's own, and snappy-java's.

In snappy's own framing, which Flink puts around compressed state, a chunk is `u8 type | u24 length, low byte first |
body`: 0xFF the stream's beginning (`sNaPpY`), 0 compressed and 1 plain data behind a masked CRC-32C of the plain bytes,
0x80 to 0xFE to be skipped. A stream has no end mark: it ends with its bytes, or where another one begins. Spark's state
is framed as snappy-java does it. Sources: google/snappy, framing_format.txt; snappy-java, `SnappyOutputStream`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NoReturn

from formats.bounds import decoding
from formats.codec.crc32c import crc32c, masked
from formats.codec.varint import read_varint
from formats.errors import ChecksumMismatch, Damaged

BEGIN: Final = b"\xff\x06\x00\x00sNaPpY"
JAVA_BEGIN: Final = b"\x82SNAPPY\0"
_JAVA_HEADER: Final = 16
_MOST: Final = 65536
"""Plain bytes of a chunk."""
_RATIO: Final = 32
"""More than a byte can stand for: a copy of 64 bytes takes 3."""


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
    plain = body[4:] if kind else unpack_block(body[4:], path, f"the snappy chunk at offset {at}", _MOST)
    if len(plain) > _MOST:
        _fail(f"a snappy chunk of {len(plain)} plain bytes", at, path)
    due, crc = int.from_bytes(body[:4], "little"), masked(crc32c(plain))
    if crc != due:
        message = f"snappy checksum {crc:08x}, the chunk says {due:08x} (offset {at})"
        raise ChecksumMismatch(message, path=path)
    return plain


def unpack_java(data: bytes, path: str, most: int) -> bytes:
    """The plain bytes of streams as snappy-java frames them; Damaged where one is cut short, or beyond `most` bytes.

    A stream is 16 bytes of header, then chunks: a size (u32, big-endian) and a block. It has no checksum and no end.
    """
    out = []
    at = total = 0
    while at < len(data):
        if data[at : at + len(JAVA_BEGIN)] == JAVA_BEGIN:  # streams may be laid end to end
            at += _JAVA_HEADER
            continue
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        if end > len(data):
            raise Damaged(f"its snappy chunk at byte {at} is cut short", path=path)
        out.append(unpack_block(data[at + 4 : end], path, f"its snappy chunk at byte {at}", most - total))
        total += len(out[-1])
        at = end
    if at > len(data):
        raise Damaged("ends within a header of snappy", path=path, hint="it was cut short")
    return b"".join(out)


def unpack_block(data: bytes, path: str | None, name: str, most: int) -> bytes:
    """The plain bytes of one block: a varint that says how many they are, then the pieces. Damaged beyond `most` bytes.

    name: what messages call it.
    """
    import pyarrow as pa

    try:
        size, _ = read_varint(data, 0, 5)
    except (IndexError, ValueError):
        raise Damaged(f"{name} does not say how many bytes it unpacks to", path=path) from None
    if size > _RATIO * len(data):
        raise Damaged(f"{name}: {len(data)} bytes cannot stand for {size} plain bytes", path=path)
    if size > most:
        raise Damaged(f"{name} unpacks to more than {most} bytes: {size}", path=path)
    try:
        with decoding(path):
            plain: bytes = pa.Codec("snappy").decompress(data, decompressed_size=size, asbytes=True)
    except (pa.ArrowException, OSError) as error:
        raise Damaged(f"{name} does not unpack: {error}", path=path) from None
    if len(plain) != size:
        raise Damaged(f"{name} unpacks to {len(plain)} bytes, it says {size}", path=path)
    return plain


def _fail(message: str, at: int, path: str | None) -> NoReturn:
    raise Damaged(f"{message} (offset {at})", path=path)
