"""Operators that work on each row for itself."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from abscli.engine.errors import JobFailed
from abscli.engine.functions import Function, call
from abscli.engine.state.keyed_state import State
from formats.ids import TaskId
from formats.job.model import Kind, Operator


class RowWise:
    """map, filter, flat_map, union."""

    state: State | None = None

    def __init__(self, operator: Operator, task: TaskId, function: Function | None) -> None:
        self._operator = operator
        self._task = task
        self._function = function

    def process(self, batch: pa.RecordBatch, first: int, sender: str = "") -> pa.RecordBatch | None:
        if self._function is None:
            return batch
        kind = self._operator.kind
        expected = pa.BooleanArray if kind is Kind.FILTER else pa.RecordBatch
        result = call(self._function, batch, expected, operator=self._operator.id, task=self._task, first=first)
        if kind is not Kind.FLAT_MAP and len(result) != batch.num_rows:
            raise JobFailed(
                f"operator {self._operator.id}, task {self._task}: the function returned {len(result)} rows "
                f"for {batch.num_rows}; a {kind} returns one a row"
            )
        return batch.filter(result) if kind is Kind.FILTER else result

    def flush(self, watermark: int | None) -> Iterator[pa.RecordBatch]:
        yield from ()

    def close(self) -> None:
        pass
