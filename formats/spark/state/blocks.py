"""Decompression of state files: LZ4 blocks as lz4-java frames them, zstd, lzf, and snappy as snappy-java frames it.

The codec is told by the first bytes. An LZ4 block carries an xxHash32 of its content; zstd as Spark writes it has no
checksum, and snappy and lzf have none: a flipped bit there may decode to something else.
"""

from __future__ import annotations

from typing import NamedTuple

from formats.bounds import decoding
from formats.codec import lz4, lzf, snappy
from formats.errors import Damaged

ZSTD = b"\x28\xb5\x2f\xfd"
LARGEST = 1 << 31
"""State files that unpack to more than this are refused."""


class Unpacked(NamedTuple):
    """What a state file holds.

    checked: whether a checksum of the codec vouches for it.
    """

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
    if data[:8] == lz4.MAGIC:
        return Unpacked(lz4.unpack_blocks(data, path, LARGEST, vouched=vouched), "lz4", True)
    if data[:4] == ZSTD:
        return Unpacked(_zstd(data, path), "zstd", bool(data[4:5] and data[4] & 4))
    if data[:8] == snappy.JAVA_BEGIN:
        return Unpacked(snappy.unpack_java(data, path, LARGEST), "snappy", False)
    if not data:
        raise Damaged("is empty", path=path)
    if data[:2] == lzf.MAGIC:
        return Unpacked(lzf.unpack_lzf(data, path, LARGEST), "lzf", False)
    raise Damaged("begins with no magic number of lz4, lzf, snappy or zstd", path=path)


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
