"""The states of an epoch by name, and their rows: what the store's view asks for.

The states of an operator and their rows are the work of `formats.flink.state_rows`; this module finds the operator.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from formats.flink.state_rows import StateSummary, Types, batches, summaries
from formats.view import StateFacts

if TYPE_CHECKING:
    import pyarrow as pa

    from formats.flink.store import FlinkStore


def list_states(
    store: FlinkStore,
    epoch: int,
    *,
    count: bool = False,
    types: Types | None = None,
    only: str | None = None,
    whole: bool = False,
) -> list[StateFacts]:
    """Every state, by operator. count: read all rows, to know how many there are and how much of them is hidden; only:
    of this operator; whole: its key with all that tells rows apart, as windows and the keys of maps do."""
    metadata = store.metadata(epoch)
    names = store.names(metadata)
    streams = store.streams(epoch)
    return [
        _facts(names[operator.id], row, row.identity if whole else row.key)
        for operator in metadata.operators
        if only in (None, names[operator.id])
        for row in summaries(operator, streams, count=count, types=types)
    ]


def _facts(operator: str, row: StateSummary, key: tuple[str, ...]) -> StateFacts:
    opaque = row.opaque
    if row.problem is not None:
        opaque = f"{opaque}; {row.problem}" if opaque else str(row.problem)
    return StateFacts(operator, row.name, row.kind, key, row.rows, row.bytes, opaque)


def read_state(
    store: FlinkStore, epoch: int, operator: str, name: str | None, *, types: Types | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of one state; NotFound if there is none of that name."""
    found = store.find_operator(epoch, operator)
    return batches(found, store.streams(epoch), name, types=types, path=store.path)
