"""What the writers of sinks hold beside what they have handed to a committer: the file that is under way in a bucket,
and transactions of Kafka. Writers of the old kind (`StreamingFileSink`, SQL's file sink) have files to commit here.

The states `writer_raw_states` and `bucket-states` have byte arrays, each with i32 version and i32 length before what it
is. Classes are not named: those of the file sinks and of Kafka's are told by their shape. Source:
`FileWriterBucketStateSerializer` and `BucketStateSerializer` of Flink 2.3.0, `KafkaWriterStateSerializer` of
flink-connector-kafka 5.0; held against real jobs, but for version 1 of buckets.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

import msgspec

from formats.errors import Damaged
from formats.flink.bytes import Reader
from formats.flink.connectors.files import part_file, recoverable

STATE: Final = "writer_raw_states"
BUCKETS: Final = "bucket-states"
STATES: Final = (STATE, BUCKETS)
_BUCKET: Final = 0x1E764B79


class Pending(msgspec.Struct, frozen=True):
    """Something that a writer has closed, and nobody has committed.

    checkpoint: with which it was closed.
    name: the file that is to appear, or the transaction.
    detail: where its bytes lie until then.
    """

    checkpoint: int
    name: str | None
    detail: str | None = None


class Writer(msgspec.Struct, frozen=True):
    """What one element of a writer's state says.

    kind: `file`, `kafka`, or None for one that is not known.
    name: the bucket, or what transactions are called by.
    open: the file that is under way, of which what was written after the checkpoint is cut off.
    pending: of files what is to be committed, of Kafka the transactions that the committer has.
    """

    kind: str | None
    name: str | None = None
    open: str | None = None
    pending: tuple[Pending, ...] = ()


def read_writer(data: bytes) -> Writer:
    """A state of a writer, with its version and length before it. Damaged."""
    r = Reader(data)
    version = r.i32("version of the writer")
    body = r.take(r.i32("writer"), "writer")
    if r.left:
        raise r.error(f"{r.left} bytes after a state of a writer", "writer")
    return _tried(_bucket, version, body) or _tried(_kafka, version, body) or Writer(None)


def _tried(read: Callable[[int, Reader], Writer | None], version: int, body: bytes) -> Writer | None:
    r = Reader(body)
    try:
        writer = read(version, r)
    except (Damaged, struct.error, UnicodeDecodeError):
        return None
    return writer if not r.left else None


def _bucket(version: int, r: Reader) -> Writer | None:
    """`FileWriterBucketState`: magic, the bucket's id, UTF path, i64 time, u8 1 and the file that is under way; up to
    version 2, i32 version of what is to be committed, i32 n, n x (i64 checkpoint, i32 m, m x (i32 length, file))."""
    if not 1 <= version <= 3 or r.i32("magic number") != _BUCKET:
        return None
    r.i32("version of the bucket's id")
    r.take(r.i32("bucket"), "bucket")
    path, _ = r.utf("path"), r.i64("time")
    under_way = None
    if r.flag("has a file under way"):
        own, file = r.i32("version"), r.take(r.i32("file"), "file")
        _, under_way = recoverable(file) if version == 1 else part_file(own, file)[:2]
    pending = []
    if version < 3:
        own = r.i32("version")
        for _ in range(r.count(12, "checkpoints")):
            checkpoint = r.i64("checkpoint")
            for _ in range(r.count(4, "files")):
                file = r.take(r.i32("file"), "file")
                name, detail = recoverable(file) if version == 1 else part_file(own, file)[:2]
                pending.append(Pending(checkpoint, name, detail))
    return Writer("file", path, under_way, tuple(pending))


def _kafka(version: int, r: Reader) -> Writer | None:
    """`KafkaWriterState`, version 2: UTF prefix, i32 subtask, of how many, and who owns transactions, i32 n, n x (UTF
    transaction, i64 checkpoint). Version 1 is a text alone, which could be anybody's."""
    if version != 2:
        return None
    prefix = r.utf("prefix")
    for field in ("subtask", "subtasks", "ownership"):
        r.i32(field)
    pending = []
    for _ in range(r.count(10, "transactions")):
        name = r.utf("transaction")
        pending.append(Pending(r.i64("checkpoint"), name))
    return Writer("kafka", prefix, None, tuple(pending)) if prefix else None
