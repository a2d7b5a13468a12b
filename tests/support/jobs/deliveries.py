"""Rows that tasks have staged for an epoch, without a job."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace

from abscli.engine.sinks.staged.contract import Delivery, StagedPart
from formats.ids import EpochId
from formats.native.facts import SinkFile, digest
from formats.native.transactions import Transaction
from formats.storage import MemoryStorage

ATTEMPT, OTHER = "a" * 32, "b" * 32


def delivered(storage: MemoryStorage, epoch: int, *rows: pa.Table, attempt: str = ATTEMPT) -> Delivery:
    """What a manifest names of the sink `out`, as Parquet, a task's in each table."""
    parts = []
    for task, table in enumerate(rows):
        buffer = pa.BufferOutputStream()
        pq.write_table(table, buffer)
        data = buffer.getvalue().to_pybytes()
        path = f"{attempt}-{epoch}-{task}"
        storage.put(path, data)
        file = SinkFile("out", f"part-{task:05d}-{epoch:010d}.parquet", len(data), table.num_rows, digest(data))
        parts.append(StagedPart(Transaction(attempt, epoch, task, "out"), replace(file, staged=path)))
    return Delivery(EpochId(attempt, epoch), tuple(parts), storage)
