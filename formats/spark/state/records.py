"""Deltas, snapshots and changelogs: the puts, merges and deletes of one version of one partition, up to the end mark.

A delta, a snapshot and a changelog of versions 1 and 3: key size (4 bytes, big-endian), key, value size, value; a value
size of -1 deletes, a key size of -1 is the end mark. Changelogs of versions 2 and 4 put a byte in front of each (1 put,
0x10 delete, 0x11 merge) and end with a byte 0. Versions 2 to 4 begin with their version as a text, 3 and 4 go on with
the lineage: which unique id each version since the last snapshot had. Spark: `StateStoreChangelog`.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from formats.errors import Damaged
from formats.spark.logs import log as logs

PUT, MERGE, DELETE = 1, 0x11, 0x10


class Records(NamedTuple):
    """What a file holds, in order.

    values: None for a delete.
    merges: where a value is to be appended to what is there.
    version: of the changelog's format.
    lineage: (version, unique id), None where the format has none.
    """

    keys: list[bytes]
    values: list[bytes | None]
    merges: frozenset[int]
    version: int
    lineage: tuple[tuple[int, str], ...] | None


def parse_records(data: bytes, path: str, *, changelog: bool, snapshot: bool = False) -> Records:
    """The content of a state file, already unpacked; Damaged if it does not parse to its end mark and no further."""
    version, at = _version(data) if changelog else (1, 0)
    lineage = None
    if version >= 3:
        text, at = _text(data, at, path)
        lineage = _lineage(text, path)
    if version in (2, 4):
        return _typed(data, at, path, version, lineage)
    keys, values, end = _untyped(data, at, path)
    if snapshot and None in values:
        raise Damaged("a snapshot with a deletion in it", path=path)
    _at_end(data, end, path)
    return Records(keys, values, frozenset(), version, lineage)


def _untyped(data: bytes, at: int, path: str) -> tuple[list[bytes], list[bytes | None], int]:
    keys: list[bytes] = []
    values: list[bytes | None] = []
    size_at = struct.Struct(">i").unpack_from
    end = len(data)
    try:
        while True:
            (size,) = size_at(data, at)
            at += 4
            if size < 0:
                if size != -1:
                    raise Damaged(f"a key of {size} bytes at byte {at - 4}", path=path)
                return keys, values, at
            keys.append(data[at : at + size])
            at += size
            (size,) = size_at(data, at)
            at += 4
            if size < 0:
                if size != -1:
                    raise Damaged(f"a value of {size} bytes at byte {at - 4}", path=path)
                values.append(None)
            else:
                values.append(data[at : at + size])
                at += size
                if at > end:
                    break
    except struct.error:
        pass
    raise _cut(len(keys), path)


def _typed(data: bytes, at: int, path: str, version: int, lineage: tuple[tuple[int, str], ...] | None) -> Records:
    keys: list[bytes] = []
    values: list[bytes | None] = []
    merges: list[int] = []
    size_at = struct.Struct(">i").unpack_from
    try:
        while True:
            kind = data[at]
            at += 1
            if kind == 0:
                _at_end(data, at, path)
                return Records(keys, values, frozenset(merges), version, lineage)
            if kind not in (PUT, DELETE, MERGE):
                raise Damaged(f"a record of type {kind:#x} at byte {at - 1}", path=path)
            (size,) = size_at(data, at)
            key = data[at + 4 : at + 4 + size]
            at += 4 + size
            (value_size,) = size_at(data, at)
            at += 4
            if size < 0 or (value_size < 0) != (kind == DELETE) or value_size < -1:
                raise Damaged(f"a record of impossible size before byte {at}", path=path)
            keys.append(key)
            if kind == DELETE:
                values.append(None)
                continue
            if kind == MERGE:
                merges.append(len(keys) - 1)
            values.append(data[at : at + value_size])
            at += value_size
    except (struct.error, IndexError):
        raise _cut(len(keys), path) from None


def _cut(records: int, path: str) -> Damaged:
    return Damaged(f"ends without an end mark, after {records} records", path=path, hint="it was cut short")


def _at_end(data: bytes, at: int, path: str) -> None:
    if at != len(data):
        raise Damaged(f"has {len(data) - at} bytes behind its end mark", path=path)


def _version(data: bytes) -> tuple[int, int]:
    """A changelog's version, and where it goes on. One without a version is of version 1."""
    for version in (2, 3, 4):
        head = b"\0\2v%d" % version
        if data.startswith(head):
            return version, len(head)
    return 1, 0


def _text(data: bytes, at: int, path: str) -> tuple[str, int]:
    size = int.from_bytes(data[at : at + 2], "big")
    text = data[at + 2 : at + 2 + size]
    if at + 2 > len(data) or len(text) < size:
        raise Damaged("ends within its lineage", path=path, hint="it was cut short")
    try:
        return text.decode("utf-8"), at + 2 + size
    except UnicodeDecodeError:
        raise Damaged("its lineage is not UTF-8", path=path) from None


def _lineage(text: str, path: str) -> tuple[tuple[int, str], ...]:
    lineage = logs.parse('{"lineage":' + text + "}", path)["lineage"]
    if not isinstance(lineage, list):
        raise Damaged("its lineage is not a list", path=path)
    out = []
    for item in lineage:
        if not isinstance(item, dict) or not isinstance(item.get("checkpointUniqueId"), str):
            raise Damaged("its lineage has an entry without an id", path=path)
        out.append((logs.number(item, "version", path) or 0, item["checkpointUniqueId"]))
    return tuple(out)
