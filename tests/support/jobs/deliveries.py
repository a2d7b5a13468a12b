"""Rows that tasks have staged for an epoch, without a job."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace

from abscli.engine.sinks.staged.contract import Delivery, StagedPart
from formats.ids import EpochId
from formats.native.facts import SinkFile, digest
from formats.native.transactions import Transaction
from formats.storage import MemoryStorage

ATTEMPT, OTHER = "a" * 32, "b" * 32


def as_parquet(table: pa.Table) -> bytes:
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer)
    return bytes(buffer.getvalue().to_pybytes())


def delivered(storage: MemoryStorage, epoch: int, *rows: pa.Table | bytes, attempt: str = ATTEMPT) -> Delivery:
    """Return the delivery that a manifest names for the sink `out`, with one part per table or Parquet file."""
    parts = []
    for task, table in enumerate(rows):
        data = table if isinstance(table, bytes) else as_parquet(table)
        path = f"{attempt}-{epoch}-{task}"
        storage.put(path, data)
        count = pq.read_metadata(io.BytesIO(data)).num_rows
        file = SinkFile("out", f"part-{task:05d}-{epoch:010d}.parquet", len(data), count, digest(data))
        parts.append(StagedPart(Transaction(attempt, epoch, task, "out"), replace(file, staged=path)))
    return Delivery(EpochId(attempt, epoch), tuple(parts), storage)
