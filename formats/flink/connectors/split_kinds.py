"""Splits of sources that come with connectors of their own: Kinesis, Pulsar, and change data capture (Flink CDC).

Each is told by its shape and used up to its last byte. Where such a source had read to is no number: it is shown as
the source's own words have it. Source: the serializers of flink-connector-aws-kinesis-streams 5 and 6,
flink-connector-pulsar 4.1, flink-cdc-base and the MySQL connector of Flink CDC 3.2; bytes that Pulsar's and MySQL's
wrote are in the tests.
"""

from __future__ import annotations

import json
from typing import Final

import msgspec

from formats.codec.protobuf import fields
from formats.errors import Damaged
from formats.flink.bytes import Reader


class Split(msgspec.Struct, frozen=True):
    """One split of a source task.

    kind: `number-sequence`, `kafka`, `file`, `kinesis`, `pulsar`, `cdc`, or None for one that is not known.
    id: the source's own; of a file its path, with `:OFFSET` behind it where the split does not begin with the file.
    next: the number or offset that comes next; of a file how many of the split's records were read, where it is a
    number of records alone.
    end: the last number, or the offset where a bounded read stops; None if unbounded.
    bytes: of the split as stored.
    position: where reading goes on, in the source's own words, where that is no number.
    """

    kind: str | None
    id: str | None
    next: int | None
    end: int | None
    bytes: int
    position: str | None = None


def kinesis(version: int, body: bytes) -> Split | None:
    """`KinesisShardSplit`, versions 0 to 2: UTF stream, shard, and sort of position; [u8 1, u8 whether a time, i64 ms,
    u8 whether a text, UTF]; from 1 on i32 n x UTF parent, UTF first and last hash key; from 2 on u8 whether it was read
    to its end."""
    r = Reader(body)
    try:
        stream, shard, sort = r.utf("stream"), r.utf("shard"), r.utf("sort of position")
        if sort not in _SORTS or not 0 <= version <= 2:
            return None
        marker = None
        if r.flag("has a position"):
            if r.flag("is a time"):
                marker = str(r.i64("time"))
            if r.flag("is a sequence number"):
                marker = r.utf("sequence number")
        for _ in range(r.count(2, "parents") if version >= 1 else 0):
            r.utf("parent")
        for _ in range(2 if version >= 1 else 0):
            r.utf("hash key")
        ended = version >= 2 and r.flag("was read to its end")
    except Damaged:
        return None
    if r.left or not shard:
        return None
    position = "its end" if ended else " ".join(part for part in (sort, marker) if part)
    return Split("kinesis", f"{stream.rpartition(':stream/')[2] or stream}:{shard}", None, None, len(body), position)


_SORTS: Final = frozenset(
    {"AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER", "TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"}
)


def pulsar(version: int, body: bytes) -> Split | None:
    """`PulsarPartitionSplit`, versions 0 to 2: UTF topic, i32 partition, ranges of hashes (of version 0 just one), a
    Java object (where it stops), u8 1 and the last message that was read, u8 1 and the transaction that is open."""
    r = Reader(body)
    try:
        topic, partition = r.utf("topic"), r.i32("partition")
        r.i64s(1 if version == 0 else r.count(8, "ranges"), "ranges")  # two i32 each
        if version == 1:
            r.i32("mode")
        if not 0 <= version <= 2 or r.take(r.i32("stop"), "stop")[:4] != _JAVA:
            return None
        message = r.take(r.i32("last message"), "last message") if r.flag("has read") else None
        if r.flag("has a transaction"):
            r.i64s(2, "transaction")
    except Damaged:
        return None
    if r.left or partition < -1 or not topic:
        return None
    position = "its start" if message is None else f"after {_message_id(message)}"
    return Split(
        "pulsar", topic if partition < 0 else f"{topic}-partition-{partition}", None, None, len(body), position
    )


_JAVA: Final = b"\xac\xed\x00\x05"


def _message_id(data: bytes) -> str:
    """`MessageIdData`: ledger, entry, then others."""
    try:
        numbers = {number: value for number, _, value in fields(data) if isinstance(value, int)}
    except Damaged:
        return data.hex()
    return f"{numbers.get(1)}:{numbers.get(2)}"


def cdc(version: int, body: bytes) -> Split | None:
    """A split of Flink CDC: of a table's snapshot, or of the log of changes. MySQL's has its own layout, all others one
    with a flag before each table."""
    for base in (True, False):
        r = Reader(body)
        try:
            split = _cdc(r, version, len(body), base)
        except (Damaged, ValueError):
            continue
        if split is not None and not r.left:
            return split
    return None


def _cdc(r: Reader, version: int, size: int, base: bool) -> Split | None:
    if not 1 <= version <= 5:
        return None
    sort = r.i32("sort of split")
    if sort == 1:
        if base and version >= 4:
            r.flag("catalog before schema")
        r.utf("table")
        name = r.utf("split")
        for title in ("type of key", "first key", "last key"):
            r.utf(title)
        done = _offset(r, version)
        _tables(r, version, base)
        return Split("cdc", name, None, None, size, "not read yet" if done is None else f"read up to {done}")
    if sort == 2:
        name, _ = r.utf("split"), r.utf("type of key")
        start, stop = _offset(r, version), _offset(r, version)
        for _ in range(r.count(9, "splits of the snapshot")):
            for title in ("table", "split", "first key", "last key", *(["kind of offset"] if base else [])):
                r.utf(title)
            _offset(r, version)
            if base and version >= 4:
                r.flag("catalog before schema")
        _tables(r, version, base)
        if version >= 3:
            r.i32("splits of the snapshot")
        if version >= (5 if base else 4) and r.left:
            r.flag("is suspended")
        position = (start or "its start") + (f" to {stop}" if stop and stop != _NEVER else "")
        return Split("cdc", name, None, None, size, position)
    return None


_NEVER: Final = "never"
"""Of a log that is read for ever, where it stops."""


def _offset(r: Reader, version: int) -> str | None:
    """Where in a log: the name and place of a file, a log sequence number or whatever else the database has."""
    if not r.flag("has an offset"):
        return None
    if version == 1:
        return f"{r.utf('file')}:{r.i64('place')}"
    try:
        known = json.loads(r.take(r.i32("offset"), "offset"))
    except RecursionError:
        raise ValueError("an offset that is nested too deeply") from None
    if not isinstance(known, dict):
        raise ValueError("an offset that is not an object")
    if known.get("kind") == "NON_STOPPING" or str(known.get("pos")) == str(-(1 << 63)):
        return _NEVER
    if known.get("kind") == "EARLIEST":
        return None
    if known.get("file"):
        return f"{known['file']}:{known.get('pos')}"
    return ", ".join(f"{key} {value}" for key, value in sorted(known.items()) if value is not None)


def _tables(r: Reader, version: int, base: bool) -> None:
    for _ in range(r.count(3, "tables")):
        if base:
            r.flag("catalog before schema")
        r.utf("table")
        r.utf("schema") if version == 1 else r.take(r.i32("schema"), "schema")
