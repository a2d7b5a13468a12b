"""Logs of the file source and the file sink, and what the offsets of known sources say."""

from __future__ import annotations

import json
from typing import Any, TypeGuard

import msgspec

from formats.errors import Damaged
from formats.spark.logs import log as logs
from formats.view import Position

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
        SinkFile(_path(entry, path), logs.number(entry, "size", path), str(entry.get("action", "add")))
        for entry in _objects(data, path)
    ]


def _objects(data: bytes, path: str) -> list[dict[str, Any]]:
    _, rest = logs.lines(data, path, NEWEST)
    return [logs.parse(line, path) for line in rest if line.strip()]


def _path(entry: dict[str, Any], path: str) -> str:
    name = entry.get("path")
    if not isinstance(name, str) or not name:
        raise Damaged("an entry names no file", path=path)
    return name


def is_file_source(offset: str | None) -> int | None:
    """The number in the source's log that an offset stands for; None if it is not a file source's."""
    try:
        parsed = json.loads(offset) if offset else None
    except (ValueError, RecursionError):
        return None
    number = parsed.get("logOffset") if isinstance(parsed, dict) else None
    return number if _is_number(number) else None


def _is_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def kind_of(offset: str | None) -> str | None:
    """What wrote an offset, by its shape: `file`, `rate`, `rate-micro-batch`, `kafka`, `delta`, `kinesis` (of
    kinesis-sql); None if that is not known."""
    if offset is None:
        return None
    try:
        parsed = json.loads(offset)
    except (ValueError, RecursionError):
        return None
    if _is_number(parsed):
        return "rate"
    if not isinstance(parsed, dict) or not parsed:
        return None
    if set(parsed) == {"logOffset"} and _is_number(parsed["logOffset"]):
        return "file"
    if set(parsed) == {"offset", "timestamp"} and _is_number(parsed["offset"]):
        return "rate-micro-batch"
    if {"reservoirId", "reservoirVersion", "index"} <= set(parsed) and _is_number(parsed["reservoirVersion"]):
        return "delta"
    if _is_kinesis(parsed):
        return "kinesis"
    if all(isinstance(p, dict) and all(k.isdecimal() and _is_number(n) for k, n in p.items()) for p in parsed.values()):
        return "kafka"
    return None


def _is_kinesis(parsed: dict[str, Any]) -> bool:
    """A shard's iterator each, and beside them the stream's name."""
    shards = [value for name, value in parsed.items() if name != "metadata"]
    metadata = parsed.get("metadata")
    named = isinstance(metadata, dict) and "streamName" in metadata
    return named and all(isinstance(s, dict) and {"iteratorType", "iteratorPosition"} <= set(s) for s in shards)


def positions(offset: str | None) -> tuple[Position, ...] | None:
    """How far an offset is, split by split: entries of a file source's log, seconds (rate), rows, Kafka's offsets, the
    version of a Delta table. The places of Kinesis in its shards are text, which does not say how far they are apart.

    None where the source has no offset yet, or is of a kind that is not known.
    """
    kind = kind_of(offset)
    if kind is None or offset is None:
        return None
    parsed = json.loads(offset)
    if kind == "rate":
        return (Position("seconds", parsed, None),)
    if kind == "file":
        return (Position("log", parsed["logOffset"], None),)
    if kind == "rate-micro-batch":
        return (Position("rows", parsed["offset"], parsed["offset"]),)
    if kind == "delta":
        return (Position("version", parsed["reservoirVersion"], None),)
    if kind == "kinesis":
        return tuple(
            Position(shard, None, None, f"{at['iteratorType']} {at['iteratorPosition']}".strip())
            for shard, at in sorted(parsed.items())
            if shard != "metadata"
        )
    return tuple(Position(f"{topic}-{partition}", at, at) for (topic, partition), at in kafka_offsets(offset).items())


def kafka_offsets(offset: str | None) -> dict[tuple[str, int], int]:
    """Where a source of Kafka goes on, by topic and partition, in their order; none of another source."""
    if offset is None or kind_of(offset) != "kafka":
        return {}
    return {
        (topic, int(partition)): at
        for topic, partitions in sorted(json.loads(offset).items())
        for partition, at in sorted(partitions.items(), key=lambda item: int(item[0]))
    }


def with_position(offset: str | None, split: str, to: int) -> str | None:
    """A Kafka offset with another place in one partition, which is named as in `positions`; None if there is none such,
    or the offset is not Kafka's: no other source's place is a number that can be chosen."""
    if offset is None or kind_of(offset) != "kafka":
        return None
    parsed = json.loads(offset)
    for topic, partitions in parsed.items():
        for partition in partitions:
            if f"{topic}-{partition}" == split:
                partitions[partition] = to
                return json.dumps(parsed, separators=(",", ":"), ensure_ascii=False)
    return None
