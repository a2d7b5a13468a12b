"""Files of sinks that are under way or closed and not committed, as their recoverable writers keep them."""

from __future__ import annotations

import struct
from typing import Final

from formats.flink.bytes import Reader

_PENDING: Final = 0x2C853C89
_IN_PROGRESS: Final = 0xB3A4073D
_LOCAL: Final = 0x1E744B57


def part_file(version: int, data: bytes) -> tuple[str | None, str | None, int | None]:
    """A file under way or to commit: the name that it gets, where its bytes lie until then, its size.

    Magic, from version 2 on u8 1 and UTF its path, of one to commit i64 its size; then what the file system needs.
    """
    r = Reader(data)
    magic = r.i32("magic number") & 0xFFFFFFFF
    if magic not in (_PENDING, _IN_PROGRESS):
        return None, None, None
    path = r.utf("path") if version >= 2 and r.flag("has a path") else None
    size = r.i64("size") if version >= 2 and magic == _PENDING else None
    r.i32("version")
    target, part = local_file(r.take(r.i32("state"), "state"))
    return path or target, part, size


def local_file(data: bytes) -> tuple[str | None, str | None]:
    """The name that a file gets, and where its bytes lie until then; neither, of other file systems than the local one.

    `LocalRecoverable`, little-endian: magic, i64 offset, i32 lengths of both paths, both.
    """
    if len(data) < 20:
        return None, None
    magic, _, target, part = struct.unpack_from("<Iqii", data)
    if magic != _LOCAL or target < 0 or part < 0 or 20 + target + part != len(data):
        return None, None
    return data[20 : 20 + target].decode(), data[20 + target :].decode()
