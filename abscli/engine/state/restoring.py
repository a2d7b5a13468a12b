"""From an epoch in the store back to running tasks: counters, positions, state and the heads of channels."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pyarrow as pa

from abscli.engine.channels.inbox import Batch
from formats.errors import Damaged
from formats.ids import ChannelId, TaskId
from formats.job.expand import channels_in, channels_out
from formats.job.model import Topology
from formats.native.facts import PartFacts, digest
from formats.native.state.row_groups import proved_rows
from formats.native.state.tables import decode_log
from formats.storage import Storage
from formats.storage.ranges import read
from formats.view import FileFacts


class Restored:
    """The parts of one epoch, as the tasks of a new attempt ask for them. Empty for epoch 0."""

    def __init__(self, storage: Storage, topology: Topology, parts: tuple[PartFacts, ...]) -> None:
        self._parts = {part.task: part for part in parts}
        self._storage = storage
        self._topology = topology
        width = {op.id: op.parallelism for op in topology.operators}
        self._logs = {log.channel: log for part in parts for log in part.logs if log.records}
        self._sent: dict[ChannelId, int] = {}
        for edge in topology.edges:
            for i in range(width[edge.source]):
                part = self.part(TaskId(edge.source, i))
                counts = part.sent.get(edge.target, ()) if part else ()
                channels = channels_out(edge, i, width[edge.target])
                self._sent.update(zip(channels, counts, strict=bool(part)))

    def part(self, task: TaskId) -> PartFacts | None:
        """A task's part; None where there is none."""
        return self._parts.get(task)

    def sent(self, channel: ChannelId) -> int:
        """Records that the sender had put on the channel."""
        return self._sent.get(channel, 0)

    def received(self, channel: ChannelId) -> int:
        """Records that the receiver has taken: the sender's count less the log, which comes (again) first."""
        log = self._logs.get(channel)
        return self.sent(channel) - (log.records if log else 0)

    def taken(self, channel: ChannelId) -> int:
        """Records that the receiver had taken at its copy. Under at-least-once they may be more than the sender had
        sent at its own, and only who takes its steps again is not sent them again."""
        part = self.part(channel.receiver)
        if part is None:
            return 0
        edge = next(edge for edge in self._topology.edges if (edge.source, edge.target) == channel.edge)
        senders = channels_in(edge, channel.receiver.subtask, self._topology.operator(edge.source).parallelism)
        return part.received[edge.source][senders.index(channel)]

    def log(self, channel: ChannelId) -> Iterator[Batch]:
        """The records at the head of the channel, numbered; Damaged if the file is not what was written."""
        log = self._logs.get(channel)
        if log is None or log.file is None:
            return
        first = self.received(channel) + 1
        for rows in decode_log(self._read(log.file), log.file.path):
            if rows.num_rows:
                yield Batch(first, rows)
                first += rows.num_rows

    def state(self, task: TaskId) -> Iterator[pa.Table]:
        """The tables of the task's state files, oldest first; Damaged if a file is not what was written."""
        part = self.part(task)
        for file in part.state if part else ():
            yield from proved_rows(self._storage, file)

    def _read(self, file: FileFacts) -> bytes:
        data = read(self._storage, file.path)
        if digest(data) != file.sha256:
            store = shlex.quote(self._storage.root)
            raise Damaged(
                f"expected SHA-256 {(file.sha256 or '')[:12]}…, got {digest(data)[:12]}…",
                path=f"{self._storage.root}/{file.path}",
                hint=f"`abs validate {store}` lists the damaged files; `abs plan-recovery {store} --out plan.json` "
                "plans a rollback to the newest intact epoch",
            )
        return data
