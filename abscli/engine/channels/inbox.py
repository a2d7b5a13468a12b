"""The receiving end of a channel: batches and barriers in order, coalesced when small, spilled when a loop outgrows
its memory."""

from __future__ import annotations

import os
import tempfile
from collections import deque
from typing import IO, NamedTuple

import pyarrow as pa

from abscli.protocol.events import ProtocolError

TARGET_ROWS = 1 << 16
TARGET_BYTES = 1 << 20
SPILL_BYTES = 64 << 20


class Batch(NamedTuple):
    """Rows of a channel.

    first: the number of the first one, from 1 since the generation began.
    """

    first: int
    rows: pa.RecordBatch

    def without(self, skip: int) -> Batch:
        """The batch less its first `skip` rows."""
        return Batch(self.first + skip, self.rows.slice(skip)) if skip else self


class Barrier(NamedTuple):
    """A barrier in its place."""

    epoch: int


class _Spilled(NamedTuple):
    first: int
    offset: int
    length: int
    size: int


class Inbox:
    """One input channel's queue.

    next_record: the number that the next record put in must have.
    bytes: in memory.
    queued: bytes, spilled ones included.
    """

    def __init__(self, channel: str, *, back: bool, next_record: int = 1, spill_bytes: int = SPILL_BYTES) -> None:
        self.channel = channel
        self.back = back
        self.blocked = False
        self.bytes = 0
        self.queued = 0
        self.next_record = next_record
        self._queue: deque[Batch | Barrier | _Spilled] = deque()
        self._spill_bytes = spill_bytes
        self._file: IO[bytes] | None = None
        self._schema: pa.Schema | None = None
        self._spilled = 0

    def __bool__(self) -> bool:
        """Whether something can be taken now."""
        return bool(self._queue) and not self.blocked

    def put(self, item: Batch | Barrier) -> None:
        """Append; ProtocolError if records are missing or come twice."""
        if isinstance(item, Barrier):
            self._queue.append(item)
            return
        if item.first != self.next_record:
            raise ProtocolError(f"{self.channel}: record {item.first} came, {self.next_record} was next")
        self.next_record += item.rows.num_rows
        size = item.rows.nbytes
        self.queued += size
        # A sender that waits bounds every other channel; on a loop it would wait for itself.
        if self.back and self.bytes + size > self._spill_bytes:
            self._queue.append(self._spill(item))
        else:
            self.bytes += size
            self._queue.append(item)

    def take(self) -> Batch | Barrier:
        """The next item; small batches that follow each other come as one."""
        item = self._load(self._queue.popleft())
        if isinstance(item, Barrier):
            return item
        rows, taken = item.rows.num_rows, [item.rows]
        size = item.rows.nbytes
        while rows < TARGET_ROWS and size < TARGET_BYTES and self._queue and not isinstance(self._queue[0], Barrier):
            following = self._load(self._queue.popleft())
            assert isinstance(following, Batch)
            rows += following.rows.num_rows
            size += following.rows.nbytes
            taken.append(following.rows)
        return item if len(taken) == 1 else Batch(item.first, pa.concat_batches(taken))

    def _spill(self, item: Batch) -> _Spilled:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="abs-spill-")  # noqa: SIM115 - `_load` and `close` close it
        self._schema = item.rows.schema
        data = item.rows.serialize()
        offset = self._file.seek(0, os.SEEK_END)
        self._file.write(data)
        self._spilled += 1
        return _Spilled(item.first, offset, data.size, item.rows.nbytes)

    def _load(self, item: Batch | Barrier | _Spilled) -> Batch | Barrier:
        if isinstance(item, Batch):
            self.bytes -= item.rows.nbytes
            self.queued -= item.rows.nbytes
            return item
        if isinstance(item, Barrier):
            return item
        assert self._file is not None
        self._file.seek(item.offset)
        data = pa.py_buffer(self._file.read(item.length))
        self._spilled -= 1
        if not self._spilled:
            self._file.close()
            self._file = None
        rows = pa.ipc.read_record_batch(data, self._schema)
        self.queued -= item.size
        return Batch(item.first, rows)

    def close(self) -> None:
        """Drop everything."""
        self._queue.clear()
        if self._file is not None:
            self._file.close()
            self._file = None
