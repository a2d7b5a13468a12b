"""The receiving end of a channel: batches and barriers in order, coalesced when small, spilled when a loop outgrows
its memory."""

from __future__ import annotations

import os
import tempfile
from collections import deque
from typing import IO, NamedTuple

import pyarrow as pa

from abscli.protocol.events import ProtocolError
from formats.ids import ChannelId

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
    """A barrier in its place. watermark: of its sender, as of `abscli.protocol.events.Forward`."""

    epoch: int
    watermark: int | None = None


class _Spilled(NamedTuple):
    first: int
    records: int
    offset: int
    length: int
    size: int


class Inbox:
    """One input channel's queue.

    next_record: the number that the next record put in must have.
    bytes: in memory.
    queued: bytes, spilled ones included.
    unbounded: its sender never waits: what is beyond the bound is spilled.
    """

    def __init__(self, channel: ChannelId, *, back: bool, next_record: int = 1, spill_bytes: int = SPILL_BYTES) -> None:
        self.channel = channel
        self.back = back
        self.unbounded = back
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
            raise ProtocolError(f"{self.channel}: expected record {self.next_record}, got record {item.first}")
        self.next_record += item.rows.num_rows
        size = item.rows.nbytes
        self.queued += size
        # A sender that waits bounds every other channel; on a loop it would wait for itself.
        if self.unbounded and self.bytes + size > self._spill_bytes:
            self._queue.append(self._spill(item))
        else:
            self.bytes += size
            self._queue.append(item)

    def put_rest(self, batch: Batch) -> None:
        """Append what of a batch that comes again has not been put in before."""
        skip = min(max(0, self.next_record - batch.first), batch.rows.num_rows)
        if skip < batch.rows.num_rows:
            self.put(batch.without(skip))

    def rewind(self, sent: int) -> None:
        """The sender starts again behind record `sent`: of what waits here only records up to that one stay, which it
        does not send again; they are the rest of a restored log."""
        batches = [item for item in self._queue if not isinstance(item, Barrier)]
        ends = [*(item.first for item in batches), self.next_record][1:]
        self._queue.clear()
        self.next_record = sent + 1
        for item, end in zip(batches, ends, strict=True):
            if end <= sent + 1:
                self._queue.append(item)  # where it is, in memory or on disk
                continue
            rows = self._load(item).rows
            if item.first <= sent:
                kept = Batch(item.first, rows.slice(0, sent + 1 - item.first))
                self.bytes += kept.rows.nbytes
                self.queued += kept.rows.nbytes
                self._queue.append(kept)

    def take(self) -> Batch | Barrier:
        """The next item; small batches that follow each other come as one."""
        head = self._queue.popleft()
        if isinstance(head, Barrier):
            return head
        item = self._load(head)
        rows, taken = item.rows.num_rows, [item.rows]
        size = item.rows.nbytes
        while rows < TARGET_ROWS and size < TARGET_BYTES and self._queue and not isinstance(self._queue[0], Barrier):
            behind = self._queue.popleft()
            assert not isinstance(behind, Barrier)  # or the loop had ended
            following = self._load(behind)
            rows += following.rows.num_rows
            size += following.rows.nbytes
            taken.append(following.rows)
        return item if len(taken) == 1 else Batch(item.first, pa.concat_batches(taken))

    def take_rows(self, count: int) -> Batch | None:
        """The next `count` rows as one batch; None while they have not all come. Barriers before them are dropped;
        ProtocolError if one stands among them."""
        waiting = 0
        while self._queue and isinstance(self._queue[0], Barrier):
            self._queue.popleft()
        for item in self._queue:
            if isinstance(item, Barrier):
                raise ProtocolError(
                    f"{self.channel}: expected {count} records in the queue, got barrier {item.epoch}"
                )
            waiting += item.records if isinstance(item, _Spilled) else item.rows.num_rows
            if waiting >= count:
                break
        else:
            return None
        first, rows, taken = 0, 0, list[pa.RecordBatch]()
        while rows < count:
            head = self._queue.popleft()
            assert not isinstance(head, Barrier)
            batch = self._load(head)
            first = first or batch.first
            if rows + batch.rows.num_rows > count:
                rest = batch.without(count - rows)
                self.bytes += rest.rows.nbytes
                self.queued += rest.rows.nbytes
                self._queue.appendleft(rest)
                batch = Batch(batch.first, batch.rows.slice(0, count - rows))
            rows += batch.rows.num_rows
            taken.append(batch.rows)
        return Batch(first, taken[0] if len(taken) == 1 else pa.concat_batches(taken))

    def take_barrier(self, epoch: int) -> Barrier | None:
        """This barrier; None while it has not come. Others before it are dropped; ProtocolError if records are next."""
        while self._queue:
            head = self._queue[0]
            if not isinstance(head, Barrier):
                raise ProtocolError(f"{self.channel}: expected barrier {epoch} in the queue, got record {head.first}")
            self._queue.popleft()
            if head.epoch == epoch:
                return head
        return None

    def _spill(self, item: Batch) -> _Spilled:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="abs-spill-")  # noqa: SIM115 - `_load` and `close` close it
        self._schema = item.rows.schema
        data = item.rows.serialize()
        offset = self._file.seek(0, os.SEEK_END)
        self._file.write(data)
        self._spilled += 1
        return _Spilled(item.first, item.rows.num_rows, offset, data.size, item.rows.nbytes)

    def _load(self, item: Batch | _Spilled) -> Batch:
        if isinstance(item, Batch):
            self.bytes -= item.rows.nbytes
            self.queued -= item.rows.nbytes
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
