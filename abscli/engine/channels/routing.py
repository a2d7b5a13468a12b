"""How the rows of an output edge spread over the receiver's tasks, by the edge's partitioning."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from abscli.engine.errors import JobFailed
from formats.ids import ChannelId
from formats.job.expand import channels_out
from formats.job.model import Edge, Partition
from formats.native.hashing import key_groups


class Route:
    """One output edge of one task. turn: the number of the next row of a rebalance edge, part of the state; back:
    whether it closes a cycle."""

    def __init__(
        self, edge: Edge, index: int, parallelism: int, max_parallelism: int, *, turn: int = 0, back: bool = False
    ) -> None:
        self.edge = edge
        self.back = back
        self.turn = turn
        self.channels = channels_out(edge, index, parallelism)
        self._owners = (np.arange(max_parallelism, dtype=np.int64) * parallelism) // max_parallelism

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[ChannelId, pa.RecordBatch]]:
        """(channel, rows) for every channel that gets any, each channel's rows in the batch's order."""
        if not batch.num_rows:
            return
        width = len(self.channels)
        match self.edge.partition:
            case Partition.BROADCAST:
                for channel in self.channels:
                    yield channel, batch
            case Partition.REBALANCE:
                start, self.turn = self.turn, self.turn + batch.num_rows
                for j, channel in enumerate(self.channels):
                    rows = np.arange((j - start) % width, batch.num_rows, width)
                    if len(rows):
                        yield channel, batch if width == 1 else batch.take(pa.array(rows))
            case Partition.HASH:
                yield from self._by_key(batch)
            case Partition.FORWARD:
                yield self.channels[0], batch

    def _by_key(self, batch: pa.RecordBatch) -> Iterator[tuple[ChannelId, pa.RecordBatch]]:
        missing = [name for name in self.edge.key if name not in batch.schema.names]
        if missing:
            raise JobFailed(
                f"edge {self.edge.name}: no key column {missing[0]!r} among "
                f"{', '.join(batch.schema.names)}"
            )
        if len(self.channels) == 1:
            yield self.channels[0], batch
            return
        owners = self._owners[key_groups([batch.column(name) for name in self.edge.key], len(self._owners))]
        order = np.argsort(owners, kind="stable")
        counts = np.bincount(owners, minlength=len(self.channels))
        ordered = batch.take(pa.array(order))
        start = 0
        for channel, count in zip(self.channels, counts.tolist(), strict=True):
            if count:
                yield channel, ordered.slice(start, count)
                start += count
