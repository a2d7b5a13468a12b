"""State of sources and sinks as rows: Flink keeps it as bytes, and their names say what is in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from formats.errors import Damaged
from formats.flink.bytes import Reader
from formats.flink.connectors import committables, old_kafka, splits, writers
from formats.flink.types.values import Codec, Read, Shape, frame

_SPLIT: Final[Shape] = ("struct", (
    ("kind", "string"), ("split", "string"), ("next", "int64"), ("end", "int64"), ("position", "string"),
    ("stored", "binary"),
))  # fmt: skip
_COMMITTABLE: Final[Shape] = ("struct", (
    ("kind", "string"), ("checkpoint", "int64"), ("subtask", "int32"), ("name", "string"), ("detail", "string"),
    ("state", "string"), ("retries", "int32"), ("size", "int64"),
))  # fmt: skip


_PENDING: Final[Shape] = ("struct", (("checkpoint", "int64"), ("name", "string"), ("detail", "string")))
_WRITER: Final[Shape] = ("struct", (
    ("kind", "string"), ("name", "string"), ("open", "string"), ("pending", ("list", _PENDING)), ("stored", "binary"),
))  # fmt: skip


def _split(data: bytes) -> tuple[Any, ...]:
    split = splits.read_framed(data)
    return split.kind, split.id, split.next, split.end, split.position, data


def _position(stored: Codec) -> Codec:
    def read(buf: bytes, pos: int) -> tuple[Any, int]:
        at = old_kafka.read_position(buf[pos:])
        return (at.kind, at.id, at.next, at.end, at.position, buf[pos:]), len(buf)

    return _with(stored, read, _SPLIT)


def _committables(data: bytes) -> list[tuple[Any, ...]]:
    return [
        (one.kind, one.checkpoint, one.subtask, one.name, one.detail, one.state, one.retries, one.size)
        for one in committables.collector(Reader(data))
    ]


def _writer(data: bytes) -> tuple[Any, ...]:
    one = writers.read_writer(data)
    pending = [(file.checkpoint, file.name, file.detail) for file in one.pending]
    return one.kind, one.name, one.open, pending, data


def _of(read_data: Callable[[bytes], Any], shape: Shape) -> Callable[[Codec], Codec]:
    """What reads bytes of a state; what is stored otherwise stays as it is."""

    def read(buf: bytes, pos: int) -> tuple[Any, int]:
        data, pos = frame(buf, pos)
        try:
            return read_data(data), pos
        except Damaged as error:
            raise ValueError(error.message) from None

    return lambda stored: _with(stored, read, shape) if stored.kind == "bytes" else stored


def _with(stored: Codec, read: Read, shape: Shape) -> Codec:
    return Codec("connector", read, shape, least=4, snapshot=stored.snapshot)


TYPES: Final[dict[str, Callable[[Codec], Codec]]] = {
    splits.STATE: _of(_split, _SPLIT),
    old_kafka.STATE: _position,
    writers.STATE: _of(_writer, _WRITER),
    writers.BUCKETS: _of(_writer, _WRITER),
    committables.STATE: _of(_committables, ("list", _COMMITTABLE)),
}
"""By the name of a state: what puts rows in the place of its bytes."""
