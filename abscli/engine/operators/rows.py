"""Columns, keys and numbers of the rows that an operator gets, and the order of those that it puts out."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from abscli.engine.errors import JobFailed
from abscli.engine.state.keyed_state import Rows
from formats.ids import TaskId


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


def in_words(schema: pa.Schema) -> str:
    """Columns with their types."""
    return ", ".join(f"{field.name}: {field.type}" for field in schema)


def other_columns(task: TaskId, before: pa.Schema, now: pa.Schema) -> JobFailed:
    """The error of a task whose output has other columns than it had."""
    return JobFailed(
        f"task {task}: the columns of its output changed from {in_words(before)} to {in_words(now)}",
        hint="cast the columns: a function must return the same columns and types for every batch",
    )


def cannot_work(task: TaskId, error: Exception, schema: pa.Schema) -> JobFailed:
    """The error of a task whose input does not allow what it does. schema: of that."""
    reason = (str(error).splitlines() or [""])[0]
    return JobFailed(
        f"task {task} cannot process the columns {in_words(schema)}: {type(error).__name__}: {reason}",
        hint="cast the columns to plain types in a map before this operator",
    )


def without_dictionaries(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Plain values in place of dictionary-encoded ones: a dictionary belongs to its batch, channels carry a schema."""
    if not any(pa.types.is_dictionary(kind) for kind in rows.schema.types):
        return rows
    columns = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in rows.columns]
    return pa.record_batch(columns, names=rows.schema.names)


def joined(outputs: list[Rows]) -> pa.RecordBatch | None:
    """What was put out for parts of a batch, in the order of the records that it was put out for."""
    if len(outputs) < 2:
        return outputs[0].batch if outputs else None
    order = np.argsort(np.concatenate([output.numbers for output in outputs]), kind="stable")
    return pa.concat_batches([output.batch for output in outputs]).take(pa.array(order))
