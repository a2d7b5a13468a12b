"""What a worker keeps so that any other can be lost and replaced alone: what it knows of the schedules of all tasks,
the frames that its tasks have sent, and digests of those that came."""

from __future__ import annotations

import secrets
import struct
from collections.abc import Iterable, Sequence

import pyarrow as pa

from abscli.engine.channels.inbox import Inbox
from abscli.engine.local.arrivals import Arrivals
from abscli.engine.local.room import Placed, Room
from abscli.engine.local.steps import Place, Steps
from abscli.planner.placement import worker_of
from abscli.protocol.causal import Knowledge, decode, encode, longest
from abscli.protocol.events import ProtocolError
from abscli.protocol.gossip import Gossip
from abscli.protocol.kept import KeptBarrier, KeptFrames
from formats.ids import ChannelId, TaskId
from formats.job.expand import task_ids
from formats.job.model import Topology

_LENGTH = struct.Struct("<I")


class Pieces:
    """Schedules as bytes, in a job of these tasks."""

    def __init__(self, topology: Topology) -> None:
        self._tasks: Sequence[TaskId] = task_ids(topology)
        self._numbers = {task: number for number, task in enumerate(self._tasks)}

    def check(self, report: bytes) -> None:
        """Check that a report can be parsed; ProtocolError."""
        decode(report, self._tasks)

    def longest(self, reports: Iterable[bytes]) -> bytes:
        """Of each task, the longest schedule that is reported."""
        return encode(longest(decode(report, self._tasks) for report in reports), self._numbers)

    def steps_behind(self, schedules: bytes, places: dict[TaskId, Place]) -> int:
        """How many steps these tasks have to take again."""
        ends = {delta.task: delta.end for delta in decode(schedules, self._tasks)}
        return sum(max(0, ends.get(task, place.position) - place.position) for task, place in places.items())

    def report(self, knowledge: Knowledge) -> bytes:
        """All that is known."""
        return encode(knowledge.report(), self._numbers)

    def merge(self, knowledge: Knowledge, schedules: bytes) -> None:
        """Learn these."""
        knowledge.merge(decode(schedules, self._tasks))


class Ledger:
    """Of worker `number` of so many, since all tasks last started together.

    memory: bytes of frames; what is more goes to disk, and past that none are kept.
    """

    def __init__(self, topology: Topology, workers: int, number: int, memory: int) -> None:
        self._workers = workers
        self._pieces = Pieces(topology)
        self._knowledge = Gossip(task_ids(topology), number, secrets.randbits(32))
        self._kept = KeptFrames()
        self._room = Room(memory)
        self._schemas: dict[ChannelId, memoryview] = {}
        self._arrivals: dict[ChannelId, Arrivals] = {}

    # -- schedules ----------------------------------------------------------------------------------------

    def begin(self, task: TaskId, line: int) -> Steps:
        """A task of this worker starts with nothing to take again."""
        self._knowledge.begin(task, line)
        return Steps(self._knowledge, task)

    def resume(self, task: TaskId, place: Place) -> Steps:
        """A task starts from its copy of the newest complete epoch, which stands at a place of its schedule."""
        return Steps(self._knowledge, task, self._knowledge.resume(task, place.line, place.position))

    def connect(self, channel: ChannelId) -> None:
        """A connection has been dialled: nothing has been said on it."""
        self._knowledge.meet(channel, worker_of(channel.receiver.subtask, self._workers))

    def disconnect(self, channel: ChannelId) -> None:
        """It has ended."""
        self._knowledge.part(channel)

    def said(self, channel: ChannelId) -> tuple[bytes, bytes]:
        """What the next frame on a connection ends with: all of schedules that has not been said on it, and how long
        that is."""
        sayings = self._knowledge.say(channel)
        return sayings, _LENGTH.pack(len(sayings))

    def hear(self, frame: memoryview, channel: ChannelId) -> memoryview:
        """Learn what a frame ends with; the rest of it."""
        before = len(frame) - _LENGTH.size
        length = _LENGTH.unpack_from(frame, before)[0] if before >= 0 else 0
        end = before - length
        if end < 0:
            raise ProtocolError(
                f"{channel}: the frame has {len(frame)} bytes, but announces {length} bytes of determinant log"
            )
        if length:
            self._knowledge.hear(frame[end : -_LENGTH.size], worker_of(channel.sender.subtask, self._workers))
        return frame[:end]

    def merge(self, schedules: bytes) -> None:
        """Learn what survivors know."""
        self._pieces.merge(self._knowledge, schedules)

    def report(self) -> bytes:
        """All that is known here of schedules."""
        return self._pieces.report(self._knowledge)

    # -- frames that go -----------------------------------------------------------------------------------

    @property
    def kept_bytes(self) -> int:
        """Of the frames that are kept."""
        return self._kept.size

    def sends_from(self, channel: ChannelId, epoch: int) -> None:
        """The sender of a channel starts from an epoch."""
        self._kept.begin(channel, epoch)
        self._settle()

    def schema(self, channel: ChannelId, schema: memoryview) -> None:
        """What the frames of a channel are read with."""
        self._schemas[channel] = schema

    def sent(self, channel: ChannelId, first: int, count: int, frame: memoryview) -> bool:
        """Keep it; False if that was too much, and all were let go."""
        if not self._kept.keeps(channel):
            return True
        placed = self._room.put(frame)
        if placed is None:
            self._kept.let_go()
            self._settle()
            return False
        return self._kept.records(channel, first, count, len(frame), placed)

    def sent_barrier(self, channel: ChannelId, epoch: int, watermark: int | None = None) -> None:
        """Keep it in its place."""
        self._kept.barrier(channel, epoch, watermark)

    def holes(self, epoch: int, channels: Iterable[ChannelId]) -> list[ChannelId]:
        """Those whose receivers cannot have again all that was sent behind the barrier of the epoch."""
        return self._kept.holes(epoch, channels)

    def behind(
        self, channel: ChannelId, epoch: int
    ) -> tuple[memoryview | None, list[tuple[int, memoryview] | KeptBarrier]]:
        """Schema, and behind the barrier of the epoch: frames with the number of their first record, and barriers."""
        kept = self._kept.behind(channel, epoch)
        return self._schemas.get(channel), [
            each if isinstance(each, KeptBarrier) else (each.first, _placed(each.batch).frame) for each in kept
        ]

    def _settle(self) -> None:
        self._room.settle(map(_placed, self._kept.batches))

    # -- frames that come ---------------------------------------------------------------------------------

    def receives_from(self, inbox: Inbox, epoch: int) -> None:
        """The receiver of a channel starts from an epoch."""
        self._arrivals[inbox.channel] = Arrivals(inbox.channel, epoch, inbox.next_record)

    def arrivals(self, channel: ChannelId) -> Arrivals:
        """What has come on a channel from another worker."""
        return self._arrivals[channel]

    def complete(self, epoch: int) -> None:
        """What lies before the epoch is not needed any more."""
        self._knowledge.complete(epoch)
        self._kept.complete(epoch)
        self._settle()
        for arrivals in self._arrivals.values():
            arrivals.complete(epoch)


def _placed(batch: object) -> Placed:
    assert isinstance(batch, Placed)
    return batch


KEPT_FRAMES = pa.system_memory_pool()
"""Where frames that may be kept are made. All of an epoch are let go together, which Arrow's own pool gives back to the
system at once: each frame of the next epoch would be made on pages that have to be cleared first."""
