"""The checksums beside Spark's files: Hadoop's hidden `.name.crc`, Spark's `name.crc`, and CRC32C itself."""

from __future__ import annotations

import zlib

import msgspec

from formats.errors import Damaged

HADOOP = b"crc\0"


class ChecksumMismatch(Damaged):
    """Bytes that do not have the checksum that was written with them."""


def check_hadoop_crc(data: bytes, crc: bytes, path: str) -> None:
    """Damaged unless the data's chunks have the CRC32s that its `.crc` file lists (Hadoop: `ChecksumFileSystem`)."""
    if crc[:4] != HADOOP or len(crc) < 8 or (chunk := int.from_bytes(crc[4:8], "big")) < 1:
        raise Damaged("its Hadoop checksum file is damaged", path=path)
    chunks = -(-len(data) // chunk)
    if len(crc) != 8 + 4 * chunks:
        said = (
            f"has {len(data)} bytes, {chunks} chunks of {chunk}; its Hadoop checksum file has {len(crc) // 4 - 2} sums"
        )
        raise Damaged(said, path=path, hint="it was cut short, or changed after it was written")
    for i in range(chunks):
        if zlib.crc32(data[i * chunk : (i + 1) * chunk]) != int.from_bytes(crc[8 + 4 * i : 12 + 4 * i], "big"):
            end = min((i + 1) * chunk, len(data)) - 1
            said = f"bytes {i * chunk} to {end} do not have the CRC32 that its Hadoop checksum file says"
            raise ChecksumMismatch(said, path=path, hint="it was changed after it was written")


class SparkChecksum(msgspec.Struct, frozen=True):
    """What Spark's own checksum file says (Spark 4.1 on). value: signed, of 32 bits; main_file_size: bytes."""

    algorithm: str
    value: int
    main_file_size: int = msgspec.field(name="mainFileSize")


def check_spark_crc(data: bytes, crc: bytes, path: str) -> bool:
    """Damaged unless the data has the size and CRC32C of Spark's checksum file; False if that has another algorithm."""
    try:
        said = msgspec.json.decode(crc, type=SparkChecksum)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise Damaged("Spark's checksum file of it is damaged", path=path) from None
    if said.main_file_size != len(data):
        raise Damaged(f"has {len(data)} bytes, {said.main_file_size} were written", path=path)
    if said.algorithm != "CRC32C":
        return False
    if crc32c(data) != said.value & 0xFFFFFFFF:
        raise ChecksumMismatch(f"has CRC32C {crc32c(data):08x}, {said.value & 0xFFFFFFFF:08x} was written", path=path)
    return True


def _table() -> list[int]:
    table = []
    for n in range(256):
        for _ in range(8):
            n = (n >> 1) ^ (0x82F63B78 if n & 1 else 0)
        table.append(n)
    return table


_TABLE = _table()
_LANE = 2048
"""Bytes that one lane of `crc32c` covers."""


def crc32c(data: bytes, start: int = 0) -> int:
    """CRC32C (Castagnoli) of the bytes, going on from `start`.

    Long data is cut in lanes that numpy runs side by side; a lane's sum is carried over the next by 32x32 bit matrices.
    """
    crc = start ^ 0xFFFFFFFF
    lanes = len(data) // _LANE
    if lanes >= 8:
        import numpy as np

        table = np.array(_TABLE, np.uint32)
        block = np.frombuffer(data, np.uint8, lanes * _LANE).reshape(lanes, _LANE)
        sums = np.zeros(lanes, np.uint32)
        for column in block.T:
            sums = table[(sums ^ column) & np.uint32(0xFF)] ^ (sums >> np.uint32(8))
        shift = _shift_by_lane()
        for lane in sums.tolist():
            crc = _apply(shift, crc) ^ lane
        data = data[lanes * _LANE :]
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def crc32cs(rows: list[bytes]) -> list[int]:
    """CRC32C of each row; rows of one length go side by side."""
    import numpy as np

    out = [0] * len(rows)
    by_length: dict[int, list[int]] = {}
    for i, row in enumerate(rows):
        by_length.setdefault(len(row), []).append(i)
    table = np.array(_TABLE, np.uint32)
    for length, group in by_length.items():
        if len(group) < 16:
            for i in group:
                out[i] = crc32c(rows[i])
            continue
        block = np.frombuffer(b"".join(rows[i] for i in group), np.uint8).reshape(len(group), length)
        sums = np.full(len(group), 0xFFFFFFFF, np.uint32)
        for column in block.T:
            sums = table[(sums ^ column) & np.uint32(0xFF)] ^ (sums >> np.uint32(8))
        for i, got in zip(group, (sums ^ np.uint32(0xFFFFFFFF)).tolist(), strict=True):
            out[i] = got
    return out


_shift: list[int] = []


def _shift_by_lane() -> list[int]:
    """What a lane of zero bytes does to each of the 32 bits."""
    if not _shift:
        for bit in range(32):
            crc = 1 << bit
            for _ in range(_LANE):
                crc = _TABLE[crc & 0xFF] ^ (crc >> 8)
            _shift.append(crc)
    return _shift


def _apply(matrix: list[int], vector: int) -> int:
    out = 0
    for bit in range(32):
        if vector >> bit & 1:
            out ^= matrix[bit]
    return out
