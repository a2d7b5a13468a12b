"""What the enumerator of a source holds in the coordinator's state: the splits that no task has yet.

i32 version, i32 version of the enumerator's serializer, i32 length, then the state, whose class is not named: those of
number sequences, files, Kafka, Kinesis and Pulsar are told by their shape. Source: `SourceCoordinator` of Flink 2.3.0,
the serializers of its file source and of flink-connector-kafka 5.0, held against real jobs; of flink-connector-pulsar
4.1, held against what it writes; of flink-connector-aws-kinesis-streams 5 and 6.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from formats.errors import Damaged
from formats.flink.bytes import Reader
from formats.flink.connectors.split_kinds import Split
from formats.flink.connectors.splits import read_split
from formats.flink.metadata.handles import InlineHandle, OperatorState

_PENDING_FILES: Final = 0xDEADBEEF
_ASSIGNED: Final = 0


class Enumerator(msgspec.Struct, frozen=True):
    """What an enumerator holds.

    kind: as of splits; None where it has none of them, and could be of any.
    splits: that it has still to hand out.
    assigned: how many it knows to be with tasks; None where it does not keep them.
    processed: files that it does not look at again.
    """

    kind: str | None
    splits: tuple[Split, ...]
    assigned: int | None = None
    processed: int = 0


def enumerator(operator: OperatorState) -> Enumerator | None:
    """The enumerator of a source; None of an operator that has none, or of a kind that is not known."""
    handle = operator.coordinator
    if not isinstance(handle, InlineHandle):
        return None
    r = Reader(handle.data)
    try:
        if r.i32("version") not in (0, 1):
            return None
        version = r.i32("version of the enumerator")
        state = r.take(r.i32("enumerator"), "enumerator")
        if r.left:
            return None
    except Damaged:
        return None
    for read in (_files, _numbers, _kafka, _kinesis, _pulsar):
        try:
            known = read(version, state)
        except Damaged:
            continue
        if known is not None:
            return known
    return None


def _files(version: int, state: bytes) -> Enumerator | None:
    """`PendingSplitsCheckpoint`, little-endian: magic, version of the splits, their number, that of paths, then each
    behind its length."""
    if version != 1 or len(state) < 16:
        return None
    magic, own, count, paths = struct.unpack_from("<IiII", state)
    if magic != _PENDING_FILES:
        return None
    items, pos = _framed(state, 16, count + paths)
    if pos != len(state):
        return None
    return Enumerator("file", tuple(read_split(own, item) for item in items[:count]), None, paths)


def _numbers(version: int, state: bytes) -> Enumerator | None:
    """Of number sequences: i32 n, n x (UTF id, i64 next number, i64 last number)."""
    if version != 1:
        return None
    r = Reader(state)
    splits = []
    for _ in range(r.count(18, "splits")):
        name, (following, last) = r.utf("id"), r.i64s(2, "numbers")
        splits.append(Split("number-sequence", name, following, last, 18 + len(name)))
    if r.left:
        return None
    # nothing left to hand out: of what kind that would be is not known
    return Enumerator("number-sequence" if splits else None, tuple(splits))


def _framed(data: bytes, pos: int, count: int) -> tuple[list[bytes], int]:
    """So many pieces, each behind its length."""
    if count * 4 > len(data) - pos:
        raise Damaged(f"{count} pieces in {len(data) - pos} bytes")
    pieces = []
    for _ in range(count):
        if len(data) - pos < 4:
            raise Damaged("a length ends too early")
        (length,) = struct.unpack_from("<I", data, pos)
        pos += 4
        if length > len(data) - pos:
            raise Damaged(f"a piece of {length} bytes, {len(data) - pos} are left")
        pieces.append(data[pos : pos + length])
        pos += length
    return pieces, pos


def _kafka(version: int, state: bytes) -> Enumerator | None:
    """`KafkaSourceEnumState`: version 3: i32 n, i32 version of the splits, n x (i32 length, split, i32 status), u8;
    2: i32 n, n x (UTF topic, i32 partition, i32 status), u8; 1: i32 n, n x (UTF topic, i32 partition), all assigned.
    Status 0: with a task, others: not yet."""
    r = Reader(state)
    count = r.count(6, "partitions")
    splits: list[Split] = []
    assigned = 0
    if version not in (1, 2, 3):
        return None
    own = r.i32("version of the splits") if version == 3 else 0
    for _ in range(count):
        if version == 3:
            split = read_split(own, r.take(r.i32("split"), "split"))
            if split.kind != "kafka":
                return None
        else:
            split = Split("kafka", f"{r.utf('topic')}-{r.i32('partition')}", None, None, 0)
        if version == 1 or r.i32("status") == _ASSIGNED:
            assigned += 1
        else:
            splits.append(split)
    if version > 1:
        r.flag("whether all were found once")
    return None if r.left else Enumerator("kafka", tuple(splits), assigned)


def _kinesis(version: int, state: bytes) -> Enumerator | None:
    """`KinesisStreamsSourceEnumeratorState`: u8 1 and UTF the last shard that was seen, i32 n, i32 version of splits,
    n x (i32 length, split, from version 1 on i32 status, 0: with a task)."""
    if version not in (0, 1):
        return None
    r = Reader(state)
    if r.flag("has seen a shard"):
        r.utf("last shard")
    splits: list[Split] = []
    count = r.i32("shards")
    own = r.i32("version of the splits")
    if not 0 <= count <= r.left:
        return None
    for _ in range(count):
        split = read_split(own, r.take(r.i32("split"), "split"))
        if split.kind != "kinesis":
            return None
        if version == 0 or r.i32("status") != _ASSIGNED:
            splits.append(split)
    # without a shard it could be of any source
    return None if r.left or not count else Enumerator("kinesis", tuple(splits), count - len(splits))


def _pulsar(version: int, state: bytes) -> Enumerator | None:
    """`PulsarSourceEnumState`, versions 1 to 3: i32 n, n x (UTF topic, i32 partition, ranges of hashes: of version 1
    just one, of others i32 m and m, of version 2 then i32 mode): the partitions that it has met, all with tasks."""
    if version not in (1, 2, 3):
        return None
    r = Reader(state)
    count = r.count(14, "partitions")
    for _ in range(count):
        topic, partition = r.utf("topic"), r.i32("partition")
        r.i64s(1 if version == 1 else r.count(8, "ranges"), "ranges")
        if version == 2:
            r.i32("mode")
        if not topic or partition < -1:
            return None
    return None if r.left or not count else Enumerator("pulsar", (), count)
