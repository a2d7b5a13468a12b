"""Write-ahead logs of RocksDB: whether any row stands in one.

A log is blocks of 32 KiB of records: u32 masked CRC32C of what follows the length, u16 length, u8 kind (a whole batch,
or its first, a middle or the last piece; from 5 on with the number of the log, u32), the piece; all little-endian. A
block's end that has no place for a record is zeros. A batch begins with u64 sequence number and u32 count of its rows.
Source: RocksDB's wiki, "Write Ahead Log File Format"; held against files that Spark 3.4 wrote.
"""

from __future__ import annotations

import struct
from typing import Final

from formats.codec.crc32c import crc32c, masked

BLOCK: Final = 32768
_HEADER: Final = struct.Struct("<IHB")
_BATCH: Final = struct.Struct("<QI")
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_NUMBERED: Final = 4
"""What is added to the kind of a record that has the log's number."""


def is_without_rows(data: bytes) -> bool:
    """Whether a log has batches without rows alone. False also where that cannot be told: of damage, of other kinds."""
    batch = b""
    begun = False
    at = 0
    while at < len(data):
        header = _HEADER.size + (4 if at + 6 < len(data) and data[at + 6] > _NUMBERED else 0)
        room = BLOCK - at % BLOCK
        if room < header and not any(data[at : at + room]):
            at += room
            continue
        if at + header > len(data):
            return False
        checksum, length, kind = _HEADER.unpack_from(data, at)
        kind -= _NUMBERED if kind > _NUMBERED else 0
        end = at + header + length
        if end > len(data) or masked(crc32c(data[at + 6 : end])) != checksum:
            return False
        if kind not in (_WHOLE, _FIRST, _MIDDLE, _LAST) or begun == (kind in (_WHOLE, _FIRST)):
            return False
        batch += data[at + header : end]
        begun = kind in (_FIRST, _MIDDLE)
        if not begun:
            if len(batch) != _BATCH.size or _BATCH.unpack(batch)[1] != 0:
                return False
            batch = b""
        at = end
    return not begun
