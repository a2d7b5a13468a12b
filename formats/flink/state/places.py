"""Columns that say where a row of state lies: its key group, null of state without one, and its subtask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

PLACES: Final = ("__key_group", "__subtask")


def placed(batch: pa.RecordBatch, groups: Sequence[int | None], subtask: int) -> pa.RecordBatch:
    """A batch with these columns behind the others. groups: of each row; subtask: of all."""
    import pyarrow as pa

    arrays = [*batch.columns, pa.array(groups, pa.int32()), pa.array([subtask] * batch.num_rows, pa.int32())]
    return pa.RecordBatch.from_arrays(arrays, [*batch.schema.names, *PLACES])
