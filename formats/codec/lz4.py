"""LZ4 as lz4-java frames it: blocks with a checksum each, and an empty one that ends the stream.

A block is `LZ4Block`, a token (u8: 0x10 plain or 0x20 packed, and how often 1 KiB is doubled to give the most bytes a
block may have), its packed size, its plain size and the xxHash32 of the plain bytes without its upper 4 bits (u32,
little-endian), then its bytes. Source: `LZ4BlockOutputStream`.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from formats.errors import ChecksumMismatch, Damaged

MAGIC: Final = b"LZ4Block"
_HEAD: Final = struct.Struct("<8sBIII")
_PLAIN, _PACKED = 0x10, 0x20
_LEAST_BLOCK: Final = 1 << 10
_RATIO: Final = 255
"""A packed byte stands for at most so many."""
_SEED: Final = 0x9747B28C
_SUMMED: Final = 0x0FFFFFFF


def unpack_blocks(data: bytes, path: str, most: int, *, vouched: bool = False) -> bytes:
    """The plain bytes of a stream of blocks; Damaged where one is cut short, or beyond `most` bytes.

    vouched: a checksum holds for all of the stream, so that those of its blocks need not be made again.
    """
    import pyarrow as pa
    import xxhash

    codec: Any = None
    out: list[bytes] = []
    sums: list[int] = []
    at = total = 0
    end = len(data)
    while at + _HEAD.size <= end:
        magic, token, packed, raw, check = _HEAD.unpack_from(data, at)
        if magic != MAGIC:
            break
        block, at = at, at + _HEAD.size + packed
        if raw == 0:
            if packed or check or at != end:
                raise Damaged(f"bytes after its LZ4 end mark at byte {block}", path=path)
            for i, plain in enumerate([] if vouched else out):
                if xxhash.xxh32_intdigest(plain, _SEED) & _SUMMED != sums[i]:
                    message = f"its LZ4 block {i} of {len(out)} does not have the checksum that was written"
                    raise ChecksumMismatch(message, path=path, hint="bits of it have changed")
            return out[0] if len(out) == 1 else b"".join(out)
        method = token & 0xF0
        largest = min(_LEAST_BLOCK << (token & 0x0F), packed if method == _PLAIN else _RATIO * packed)
        if method not in (_PLAIN, _PACKED) or raw > largest or at > end or (method == _PLAIN and raw != packed):
            raise Damaged(f"its LZ4 block at byte {block} is cut short or has impossible sizes", path=path)
        if (total := total + raw) > most:
            raise Damaged(f"unpacks to more than {most} bytes", path=path)
        body = data[block + _HEAD.size : at]
        if method == _PACKED:
            codec = codec or pa.Codec("lz4_raw")
            try:
                body = codec.decompress(body, raw, asbytes=True)
            except (OSError, ValueError):
                raise Damaged(f"its LZ4 block at byte {block} does not unpack", path=path) from None
        out.append(body)
        sums.append(check)
    if at < end:
        raise Damaged(f"no LZ4 block at byte {at}", path=path)
    raise Damaged("ends without the LZ4 end mark", path=path, hint="it was cut short")
