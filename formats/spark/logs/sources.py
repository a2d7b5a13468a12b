"""Logs of the file source and the file sink."""

from __future__ import annotations

from typing import Any

import msgspec

from formats.errors import Damaged
from formats.spark.logs import log as logs

NEWEST = 1


class SourceFile(msgspec.Struct, frozen=True):
    """One input file in a file source's log.

    path: an absolute URI.
    batch: of the source's own numbering.
    """

    path: str
    timestamp: int | None
    batch: int | None


class SinkFile(msgspec.Struct, frozen=True):
    """One output file in a file sink's log (`_spark_metadata`).

    action: `add` or `delete`.
    """

    path: str
    size: int | None
    action: str


def parse_source(data: bytes, path: str) -> list[SourceFile]:
    """The bytes of `sources/I/N` of a file source; EmptyLog, Damaged, UnsupportedVersion."""
    return [
        SourceFile(_path(entry, path), logs.number(entry, "timestamp", path), logs.number(entry, "batchId", path))
        for entry in _objects(data, path)
    ]


def parse_sink(data: bytes, path: str) -> list[SinkFile]:
    """The bytes of `_spark_metadata/N`; EmptyLog, Damaged, UnsupportedVersion."""
    return [
        SinkFile(_path(entry, path), _size(entry, path), str(entry.get("action", "add")))
        for entry in _objects(data, path)
    ]


def _objects(data: bytes, path: str) -> list[dict[str, Any]]:
    _, rest = logs.lines(data, path, NEWEST)
    return [logs.parse(line, path) for line in rest if line.strip()]


def _size(entry: dict[str, Any], path: str) -> int | None:
    size = logs.number(entry, "size", path)
    if size is not None and size < 0:
        raise Damaged(f"an entry has a file of {size} bytes", path=path)
    return size


def _path(entry: dict[str, Any], path: str) -> str:
    name = entry.get("path")
    if not isinstance(name, str) or not name:
        raise Damaged("an entry names no file", path=path)
    return name
