"""Columns, keys and numbers of the rows that an operator gets, and the order of those that it puts out."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from abscli.engine.errors import JobFailed
from abscli.engine.state.keyed_state import Rows


def columns(batch: pa.RecordBatch, names: tuple[str, ...], operator: str) -> list[pa.Array]:
    """These columns of an operator's input; JobFailed if it has them not."""
    missing = [name for name in names if name not in batch.schema.names]
    if missing:
        raise JobFailed(
            f"operator {operator}: no column {missing[0]!r} in its input, which has {', '.join(batch.schema.names)}"
        )
    return [batch.column(name) for name in names]


def key_columns(batch: pa.RecordBatch, names: tuple[str, ...], operator: str) -> list[pa.Array]:
    """Key columns, with 0.0 for -0.0: they are one key, and which of them came first depends on the inputs' order."""
    return [
        pc.add(column, pa.scalar(0.0, column.type)) if pa.types.is_floating(column.type) else column
        for column in columns(batch, names, operator)
    ]


def numbered(batch: pa.RecordBatch, first: int) -> Rows:
    """All rows of a batch. first: the number of its first record."""
    return Rows(batch, np.arange(first, first + batch.num_rows))


def joined(outputs: list[Rows]) -> pa.RecordBatch | None:
    """What was put out for parts of a batch, in the order of the records that it was put out for."""
    if len(outputs) < 2:
        return outputs[0].batch if outputs else None
    order = np.argsort(np.concatenate([output.numbers for output in outputs]), kind="stable")
    return pa.concat_batches([output.batch for output in outputs]).take(pa.array(order))
