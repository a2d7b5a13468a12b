"""The checksums beside Spark's files: Hadoop's hidden `.name.crc` and Spark's `name.crc`."""

from __future__ import annotations

import struct
import zlib

import msgspec

from formats.codec.crc32c import crc32c
from formats.decoding import decode
from formats.errors import ChecksumMismatch, Damaged

HADOOP = b"crc\0"


def check_hadoop_crc(data: bytes, crc: bytes, path: str) -> None:
    """Damaged unless the data's chunks have the CRC32s that its `.crc` file lists (Hadoop: `ChecksumFileSystem`)."""
    if crc[:4] != HADOOP or len(crc) < 8 or (chunk := int.from_bytes(crc[4:8], "big")) < 1:
        raise Damaged("its Hadoop checksum file is damaged", path=path)
    chunks = -(-len(data) // chunk)
    if len(crc) != 8 + 4 * chunks:
        sums = len(crc) // 4 - 2
        message = f"has {len(data)} bytes, {chunks} chunks of {chunk}; its Hadoop checksum file has {sums} sums"
        raise Damaged(message, path=path, hint="it was cut short, or changed after it was written")
    view = memoryview(data)
    for i, due in enumerate(struct.unpack(f">{chunks}I", crc[8:])):
        if zlib.crc32(view[i * chunk : (i + 1) * chunk]) != due:
            end = min((i + 1) * chunk, len(data)) - 1
            message = f"bytes {i * chunk} to {end} do not have the CRC32 that its Hadoop checksum file says"
            raise ChecksumMismatch(message, path=path, hint="it was changed after it was written")


class SparkChecksum(msgspec.Struct, frozen=True):
    """What Spark's own checksum file says (Spark 4.1 on).

    value: signed, of 32 bits.
    main_file_size: bytes.
    """

    algorithm: str
    value: int
    main_file_size: int = msgspec.field(name="mainFileSize")


def check_spark_crc(data: bytes, crc: bytes, path: str) -> bool:
    """Damaged unless the data has the size and CRC32C of Spark's checksum file; False if that has another algorithm."""
    try:
        written = decode(crc, SparkChecksum)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise Damaged("Spark's checksum file of it is damaged", path=path) from None
    if written.main_file_size != len(data):
        raise Damaged(f"has {len(data)} bytes, {written.main_file_size} were written", path=path)
    if written.algorithm != "CRC32C":
        return False
    own, due = crc32c(data), written.value & 0xFFFFFFFF
    if own != due:
        raise ChecksumMismatch(f"has CRC32C {own:08x}, {due:08x} was written", path=path)
    return True
