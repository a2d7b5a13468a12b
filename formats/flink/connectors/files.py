"""Files of sinks that are under way or closed and not committed, as their recoverable writers keep them."""

from __future__ import annotations

import struct
from typing import Final

from formats.flink.bytes import Reader

_PENDING: Final = 0x2C853C89
_IN_PROGRESS: Final = 0xB3A4073D
_TWO_FILES: Final = {0x1E744B57, 0xD7436C5E}
"""`LocalRecoverable`, and `HadoopFsRecoverable` of HDFS and of Azure, which have the same layout."""
_S3: Final = 0x98761432

UPLOAD: Final = "multipart upload "
"""Begins where the bytes of a file are that S3 has as parts: nothing lists them but S3's list of uploads."""


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
    target, part = recoverable(r.take(r.i32("state"), "state"))
    return path or target, part, size


def recoverable(data: bytes) -> tuple[str | None, str | None]:
    """Return the name that a file gets, and where its bytes are until then; neither, of an unknown file system."""
    magic = struct.unpack_from("<I", data)[0] if len(data) >= 4 else None
    if magic in _TWO_FILES:
        return _two_files(data)
    return _upload(data) if magic == _S3 else (None, None)


def _two_files(data: bytes) -> tuple[str | None, str | None]:
    """Little-endian: magic, i64 offset, i32 lengths of both paths, both."""
    if len(data) < 20:
        return None, None
    _, _, target, part = struct.unpack_from("<Iqii", data)
    if target < 0 or part < 0 or 20 + target + part != len(data):
        return None, None
    return data[20 : 20 + target].decode(), data[20 + target :].decode()


def _upload(data: bytes) -> tuple[str | None, str | None]:
    """Read `S3Recoverable`, little-endian: magic, i32 length and key, i32 length and id of the upload, parts, ...

    The key is without its bucket, which the path of the file names.
    """
    at = 4
    texts = []
    for _ in range(2):
        if at + 4 > len(data):
            return None, None
        length = struct.unpack_from("<i", data, at)[0]
        at += 4
        if not 0 <= length <= len(data) - at:
            return None, None
        texts.append(data[at : at + length].decode())
        at += length
    return texts[0], f"{UPLOAD}{texts[1]}"
