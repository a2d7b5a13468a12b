"""Decompression of state files: LZ4 blocks as lz4-java frames them, zstd, lzf, and snappy as snappy-java frames it.

The codec is told by the first bytes. An LZ4 block carries an xxHash32 of its content; zstd as Spark writes it has no
checksum, and snappy and lzf have none: a flipped bit there may decode to something else.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

from formats.bounds import decoding
from formats.codec import lzf
from formats.errors import Damaged
from formats.spark.checksums import ChecksumMismatch

LZ4 = b"LZ4Block"
ZSTD = b"\x28\xb5\x2f\xfd"
SNAPPY = b"\x82SNAPPY\0"
_HEAD = struct.Struct("<8sBIII")
_LEAST_BLOCK = 1 << 10
"""Bytes of the smallest LZ4 block that lz4-java writes; how often it is doubled stands in each block's token."""
LARGEST = 1 << 31
"""State files that unpack to more than this are refused."""


class Unpacked(NamedTuple):
    """What a state file holds. checked: whether a checksum of the codec vouches for it."""

    data: bytes
    codec: str
    checked: bool


def unpack(data: bytes, path: str, *, vouched: bool = False) -> Unpacked:
    """The content of a compressed state file; Damaged, also for a codec that Spark does not have.

    vouched: a checksum holds for all of the bytes, so that those of lz4's blocks need not be made again.
    """
    with decoding(path):
        return _unpack(data, path, vouched)


def _unpack(data: bytes, path: str, vouched: bool) -> Unpacked:
    if data[:8] == LZ4:
        return Unpacked(_lz4(data, path, vouched), "lz4", True)
    if data[:4] == ZSTD:
        return Unpacked(_zstd(data, path), "zstd", bool(data[4:5] and data[4] & 4))
    if data[:8] == SNAPPY:
        return Unpacked(_snappy(data, path), "snappy", False)
    if not data:
        raise Damaged("is empty", path=path)
    if data[:2] == lzf.MAGIC:
        return Unpacked(lzf.unpack_lzf(data, path, LARGEST), "lzf", False)
    raise Damaged("begins with no magic number of lz4, lzf, snappy or zstd", path=path)


def _lz4(data: bytes, path: str, vouched: bool) -> bytes:
    """lz4-java's `LZ4BlockOutputStream`: magic, token, sizes packed and raw, sum, bytes; a block of 0 bytes ends it."""
    import pyarrow as pa

    codec: Any = None
    out: list[bytes] = []
    sums: list[int] = []
    at = total = 0
    end = len(data)
    while at + _HEAD.size <= end:
        magic, token, packed, raw, check = _HEAD.unpack_from(data, at)
        if magic != LZ4:
            break
        block, at = at, at + _HEAD.size + packed
        if raw == 0:
            if packed or check or at != end:
                raise Damaged(f"bytes after its LZ4 end mark at byte {block}", path=path)
            for i, got in enumerate([] if vouched else xxhash32s(out, 0x9747B28C)):
                if got & 0x0FFFFFFF != sums[i]:
                    said = f"its LZ4 block {i} of {len(out)} does not have the checksum that was written"
                    raise ChecksumMismatch(said, path=path, hint="bits of it have changed")
            return out[0] if len(out) == 1 else b"".join(out)
        method = token & 0xF0
        most = min(_LEAST_BLOCK << (token & 0x0F), packed if method == 0x10 else 255 * packed)
        if method not in (0x10, 0x20) or raw > most or at > end or (method == 0x10 and raw != packed):
            raise Damaged(f"its LZ4 block at byte {block} is cut short or has impossible sizes", path=path)
        if (total := total + raw) > LARGEST:
            raise Damaged(f"unpacks to more than {LARGEST} bytes", path=path)
        body = data[block + _HEAD.size : at]
        if method == 0x20:
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


def _zstd(data: bytes, path: str) -> bytes:
    import pyarrow as pa

    out = []
    total = 0
    try:
        with pa.input_stream(pa.py_buffer(data), compression="zstd") as stream:
            while chunk := stream.read(1 << 20):
                out.append(chunk)
                if (total := total + len(chunk)) > LARGEST:
                    raise Damaged(f"unpacks to more than {LARGEST} bytes", path=path)
    except OSError:
        raise Damaged("is cut short or damaged: zstd does not unpack it", path=path) from None
    return b"".join(out)


def _snappy(data: bytes, path: str) -> bytes:
    """snappy-java's `SnappyOutputStream`: 16 bytes of header, then chunks of a big-endian size and raw snappy."""
    import pyarrow as pa

    codec = pa.Codec("snappy")
    out = []
    at, total = 16, 0
    while at < len(data):
        if data[at : at + 8] == SNAPPY:  # streams may be laid end to end
            at += 16
            continue
        size = int.from_bytes(data[at : at + 4], "big")
        body = data[at + 4 : at + 4 + size]
        raw, shift = 0, 0
        for byte in body[:5]:
            raw |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                break
        total += raw
        if len(body) < size or not body or raw > 32 * len(body) + 64 or total > LARGEST:
            raise Damaged(f"its snappy chunk at byte {at} is cut short or has impossible sizes", path=path)
        try:
            out.append(codec.decompress(body, raw, asbytes=True))
        except (OSError, ValueError):
            raise Damaged(f"its snappy chunk at byte {at} does not unpack", path=path) from None
        at += 4 + size
    return b"".join(out)


_P1, _P2, _P3, _P4, _P5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
_M = 0xFFFFFFFF


def xxhash32(data: bytes, seed: int) -> int:
    """xxHash32 of the bytes."""
    return xxhash32s([data], seed)[0]


def xxhash32s(blocks: list[bytes], seed: int) -> list[int]:
    """xxHash32 of each block; blocks of one length are hashed side by side."""
    out = [0] * len(blocks)
    by_length: dict[int, list[int]] = {}
    for i, block in enumerate(blocks):
        by_length.setdefault(len(block), []).append(i)
    for length, group in by_length.items():
        if length < 16:
            heads = [(seed + _P5) & _M] * len(group)
        elif len(group) < 4:
            heads = [_stripes(blocks[i], seed) for i in group]
        else:
            heads = _stripes_of_many([blocks[i] for i in group], seed)
        for i, head in zip(group, heads, strict=True):
            out[i] = _rest(blocks[i], length - length % 16 if length >= 16 else 0, head)
    return out


def _start(seed: int) -> tuple[int, int, int, int]:
    return (seed + _P1 + _P2) & _M, (seed + _P2) & _M, seed, (seed - _P1) & _M


def _join(lanes: Iterable[int]) -> int:
    return sum((lane << r | lane >> (32 - r)) & _M for lane, r in zip(lanes, (1, 7, 12, 18), strict=True)) & _M


def _stripes(data: bytes, seed: int) -> int:
    a, b, c, d = _start(seed)
    words = memoryview(data)[: len(data) - len(data) % 16].cast("I")  # little-endian, as all machines of Arrow's are
    for i in range(0, len(words), 4):
        a = (a + words[i] * _P2) & _M
        a = ((a << 13 | a >> 19) * _P1) & _M
        b = (b + words[i + 1] * _P2) & _M
        b = ((b << 13 | b >> 19) * _P1) & _M
        c = (c + words[i + 2] * _P2) & _M
        c = ((c << 13 | c >> 19) * _P1) & _M
        d = (d + words[i + 3] * _P2) & _M
        d = ((d << 13 | d >> 19) * _P1) & _M
    return _join((a, b, c, d))


def _stripes_of_many(blocks: list[bytes], seed: int) -> list[int]:
    import numpy as np

    stripes = len(blocks[0]) // 16
    words = np.stack([np.frombuffer(block, "<u4", stripes * 4).reshape(stripes, 4) for block in blocks], axis=1)
    lanes = np.tile(np.array(_start(seed), np.uint32), (len(blocks), 1))
    p1, left, right = np.uint32(_P1), np.uint32(13), np.uint32(19)
    for added in words * np.uint32(_P2):
        lanes += added
        lanes = (lanes << left | lanes >> right) * p1
    return [_join(row) for row in lanes.tolist()]


def _rest(data: bytes, at: int, h: int) -> int:
    length = len(data)
    h = (h + length) & _M
    while at + 4 <= length:
        h = (h + int.from_bytes(data[at : at + 4], "little") * _P3) & _M
        h = ((h << 17 | h >> 15) * _P4) & _M
        at += 4
    for byte in data[at:]:
        h = (h + byte * _P5) & _M
        h = ((h << 11 | h >> 21) * _P1) & _M
    h = (h ^ h >> 15) * _P2 & _M
    h = (h ^ h >> 13) * _P3 & _M
    return h ^ h >> 16
