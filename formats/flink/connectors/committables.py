"""What sinks have written and not yet committed: the state of the committer that stands behind the writer of a Sink V2.

The list state `streaming_committer_raw_states` has byte arrays, each with i32 version and i32 length before what it
is: for each checkpoint that is not committed yet the requests of each subtask, each a committable of the sink's own,
whose class is not named: those of the file sink and of Kafka's are told by their shape. They were written before the
checkpoint, and a job that starts from it commits them again. Source: `CommittableCollectorSerializer` of Flink 2.3.0,
the serializers of its file sink, of flink-connector-kafka 5.0 and of Iceberg 1.10; compared with real jobs.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeVar

import msgspec

from formats.errors import Damaged, NotFound
from formats.flink.bytes import Reader
from formats.flink.connectors import iceberg
from formats.flink.connectors.files import part_file
from formats.flink.connectors.writers import BUCKETS, read_writer
from formats.flink.files.streams import Streams
from formats.flink.metadata.handles import OperatorStateHandle, Subtask
from formats.flink.state.operator import raw_elements

STATE: Final = "streaming_committer_raw_states"
_MOST: Final = 64 << 20
_COLLECTOR: Final = 0xB91F252C
_FILE: Final = 0x1E765C80
REMOVED: Final = " is to be removed"
_STATES: Final = ("received", "to retry", "failed", "committed")
PENDING: Final = _STATES[:2]
"""States of requests that Flink commits when a job starts from the checkpoint."""

T = TypeVar("T")


class Committable(msgspec.Struct, frozen=True):
    """Something that a sink has still to commit.

    kind: `file`, `iceberg`, `kafka`, or None for one that is not known.
    checkpoint: that it was written for; None where the layout does not say it, as of Flink 1.13 and 1.14.
    subtask: of the writer; None where the layout does not say it.
    name: the file that is to appear, the manifest, or the transaction.
    detail: where its bytes lie until then, which job and operator commit it, or which producer has it.
    state: `received`, `to retry`, ...
    retries: how often it was tried.
    size: bytes, of a file.
    bytes: as stored.
    """

    kind: str | None
    checkpoint: int | None
    subtask: int | None
    name: str | None
    detail: str | None
    state: str
    retries: int
    size: int | None
    bytes: int


def committables(subtask: Subtask, streams: Streams) -> tuple[Committable, ...] | None:
    """What a committer, or a writer of the old kind, is to commit; None if the task is neither. Damaged, NotFound
    if it cannot be read."""
    handle = subtask.managed_operator
    if handle is None or handle.stream is None or handle.stream.size > _MOST:
        return None
    names = {part.name for part in handle.states}
    if STATE in names:
        return tuple(one for element in elements_of(STATE, handle, streams) for one in collector(element))
    if BUCKETS in names:
        return tuple(
            one for element in elements_of(BUCKETS, handle, streams) for one in _closed(element, subtask.index)
        )
    return None


def readable(subtask: Subtask, streams: Streams) -> tuple[Committable, ...] | None:
    """The same, None where they cannot be read."""
    try:
        return committables(subtask, streams)
    except (Damaged, NotFound):
        return None


def elements_of(state: str, handle: OperatorStateHandle, streams: Streams) -> Iterator[Reader]:
    """Yield the byte arrays of a list state. Damaged, NotFound."""
    path = streams.name(handle.stream) if handle.stream is not None else state
    for element in raw_elements(handle, streams)[state]:
        r = Reader(element, path)
        yield Reader(r.take(r.i32(state), state), path)


def _closed(r: Reader, subtask: int) -> Iterator[Committable]:
    """Files of a bucket that a writer of the old kind has closed."""
    writer = read_writer(r.data)
    for one in writer.pending:
        yield Committable(writer.kind, one.checkpoint, subtask, one.name, one.detail, _STATES[0], 0, None, len(r.data))


class Request(NamedTuple):
    """A committable as it is stored.

    version, body: of the sink's own serializer, -1 of a collector that is not known.
    """

    checkpoint: int | None
    subtask: int | None
    state: str
    retries: int
    version: int
    body: bytes


def collector(r: Reader) -> Iterator[Committable]:
    """What one element of the state holds. Damaged."""
    for one in requests(r):
        kind, name, detail, size = _known(one.version, one.body)
        yield Committable(kind, one.checkpoint, one.subtask, name, detail, one.state, one.retries, size, len(one.body))


def requests(r: Reader) -> Iterator[Request]:
    """Yield the committables of one element of the state. Damaged."""
    version, state = _versioned(r)
    r = Reader(state, r.path)
    if version not in (1, 2) or _magic(r) != _COLLECTOR:
        yield Request(None, None, _STATES[0], 0, -1, state)
        return
    for own, item in _list(r):
        if version == 1:
            yield Request(None, None, _STATES[0], 0, own, item)
        else:
            yield from _checkpoint(Reader(item, r.path), own)


def _checkpoint(r: Reader, version: int) -> Iterator[Request]:
    checkpoint = r.i64("checkpoint")
    if version > 0:
        r.i32("subtasks")
    for own, manager in _list(r):
        inner = Reader(manager, r.path)
        subtask = inner.i32("subtask") if own > 0 else None
        for _, request in _list(inner):
            yield _request(Reader(request, r.path), checkpoint, subtask)


def _request(r: Reader, checkpoint: int, subtask: int | None) -> Request:
    version, body = _versioned(r)
    retries, number = r.i32("retries"), r.i32("state")
    state = _STATES[number] if 0 <= number < len(_STATES) else str(number)
    return Request(checkpoint, subtask, state, retries, version, body)


_Known = tuple[str, str | None, str | None, int | None]


def _known(version: int, body: bytes) -> _Known | tuple[None, None, None, None]:
    """What a committable is, by its shape."""
    for read in (_file, _iceberg, _kafka):
        if (known := _tried(read, version, body)) is not None:
            return known
    return None, None, None, None


def _tried(read: Callable[[int, Reader], T | None], version: int, body: bytes) -> T | None:
    r = Reader(body)
    try:
        known = read(version, r)
    except (Damaged, struct.error, UnicodeDecodeError):
        return None
    return known if not r.left else None


def _iceberg(version: int, r: Reader) -> _Known | None:
    commit = iceberg.known_commit(version, r.data)
    if commit is None:
        return None
    r.pos = r.end
    first = commit.manifests[0] if commit.manifests else None
    detail = f"job {commit.job}, operator {commit.operator}"
    return "iceberg", first and first.path, detail, first and first.size


def _kafka(version: int, r: Reader) -> _Known | None:
    """`KafkaCommittable`, version 1: i16 epoch, i64 producer, UTF transaction."""
    if version != 1:
        return None
    epoch, producer, name = r.u16("epoch"), r.i64("producer"), r.utf("transaction")
    return ("kafka", name, f"producer {producer}, epoch {epoch}", None) if name else None


def _file(version: int, r: Reader) -> _Known | None:
    """`FileSinkCommittable`: magic; from version 2 on UTF bucket; u8 1 and a file to commit; u8 1 and one under way to
    remove; from version 2 on u8 1 and UTF one that was compacted to remove."""
    if _magic(r) != _FILE or version not in (1, 2):
        return None
    bucket = r.utf("bucket") if version == 2 else ""
    name, detail, size = None, None, None
    if r.flag("has a file to commit"):
        name, detail, size = part_file(*_versioned(r))
    if r.flag("has a file to remove"):
        path, _, _ = part_file(*_versioned(r))
        detail = f"{path}{REMOVED}"
    if version == 2 and r.flag("has a compacted file to remove"):
        detail = f"{r.utf('path')}{REMOVED}"
    return "file", name or bucket, detail, size


def _magic(r: Reader) -> int:
    return r.i32("magic number") & 0xFFFFFFFF


def _versioned(r: Reader) -> tuple[int, bytes]:
    """i32 version, i32 length, bytes."""
    return r.i32("version"), r.take(r.i32("state"), "state")


def _list(r: Reader) -> Iterator[tuple[int, bytes]]:
    """i32 version, i32 number, each behind its length."""
    version = r.i32("version")
    for _ in range(r.count(4, "items")):
        yield version, r.take(r.i32("item"), "item")
