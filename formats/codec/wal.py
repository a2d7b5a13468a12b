"""Logs of RocksDB: the pieces that were written to one, and whether a write-ahead log has any row.

A log is blocks of 32 KiB of records: u32 masked CRC32C of what follows the length, u16 length, u8 kind (a whole batch,
or its first, a middle or the last piece; from 5 on with the number of the log, u32), the piece; all little-endian. A
block's end that has no place for a record is zeros. A batch begins with u64 sequence number and u32 count of its rows.
Source: RocksDB's wiki, "Write Ahead Log File Format"; held against files that Spark 3.4 wrote.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from formats.codec.crc32c import crc32c, masked
from formats.errors import Damaged

BLOCK: Final = 32768
_HEADER: Final = struct.Struct("<IHB")
_BATCH: Final = struct.Struct("<QI")
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_NUMBERED: Final = 4
"""What is added to the kind of a record that has the log's number."""


def is_without_rows(data: bytes) -> bool:
    """Whether a log has batches without rows alone. False also where that cannot be told: of damage, of other kinds."""
    try:
        return all(len(batch) == _BATCH.size and _BATCH.unpack(batch)[1] == 0 for batch in batches(data, None))
    except Damaged:
        return False


def batches(data: bytes, path: str | None) -> Iterator[bytes]:
    """What was written to a log, one piece after the other, each put together from its records; Damaged."""
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
            raise Damaged(f"ends in a record at {at}", path=path)
        checksum, length, kind = _HEADER.unpack_from(data, at)
        kind -= _NUMBERED if kind > _NUMBERED else 0
        end = at + header + length
        if end > len(data) or masked(crc32c(data[at + 6 : end])) != checksum:
            raise Damaged(f"the record at {at} does not have its checksum", path=path)
        if kind not in (_WHOLE, _FIRST, _MIDDLE, _LAST) or begun == (kind in (_WHOLE, _FIRST)):
            raise Damaged(f"the record at {at} is of kind {kind}, which does not follow the one before", path=path)
        batch += data[at + header : end]
        begun = kind in (_FIRST, _MIDDLE)
        if not begun:
            yield batch
            batch = b""
        at = end
    if begun:
        raise Damaged("ends between the records of a piece", path=path)
