"""Operators that work on each row for itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from abscli.engine.errors import JobFailed
from abscli.engine.failures import Failures, is_of_record, place_of_error
from abscli.engine.functions import Function, call, checked
from abscli.engine.operators.rows import other_columns
from abscli.engine.state.contract import State
from formats.ids import TaskId
from formats.job.model import Kind, Operator


class RowWise:
    """map, filter, flat_map, union. failures: takes the records on which the function raises; None: that ends the
    run."""

    state: State | None = None

    def __init__(
        self, operator: Operator, task: TaskId, function: Function | None, failures: Failures | None = None
    ) -> None:
        self._operator = operator
        self._task = task
        self._function = function
        self._failures = failures
        self._expected = pa.BooleanArray if operator.kind is Kind.FILTER else pa.RecordBatch

    def process(self, batch: pa.RecordBatch, first: int, origin: str = "") -> pa.RecordBatch | None:
        if self._function is None:
            return batch
        if self._failures is not None:
            return _one(list(self._passing(self._function, self._failures, batch, first)), self._task)
        result = call(
            self._function, batch, self._expected, operator=self._operator.id, task=self._task, first=first
        )
        return self._output(batch, result)

    def _passing(
        self, function: Function, failures: Failures, batch: pa.RecordBatch, first: int
    ) -> Iterator[pa.RecordBatch]:
        """What comes of the records on which the function does not raise: the others are looked for by halves."""
        if not batch.num_rows:
            return
        try:
            result = function(batch)
        except BaseException as error:
            if not is_of_record(error):
                reason = f"{type(error).__name__}: {error}{place_of_error(error)}"
                raise JobFailed(
                    f"operator {self._operator.id}, task {self._task}, the batch that starts at record {first}: "
                    f"{reason}",
                    hint="fix the cause of the error; on_error does not apply, because no single record caused it",
                ) from error
            if batch.num_rows == 1:
                failures.add(batch, first, error)
                return
            failed = True
        else:
            failed = False
        if failed:  # outside of the clause, so that errors of halves do not hang on this one
            middle = batch.num_rows // 2
            yield from self._passing(function, failures, batch.slice(0, middle), first)
            yield from self._passing(function, failures, batch.slice(middle), first + middle)
        else:
            yield self._output(batch, checked(result, self._expected, operator=self._operator.id, task=self._task))

    def _output(self, batch: pa.RecordBatch, result: Any) -> pa.RecordBatch:
        kind = self._operator.kind
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


def _one(batches: list[pa.RecordBatch], task: TaskId) -> pa.RecordBatch | None:
    if len(batches) < 2:
        return batches[0] if batches else None
    for batch in batches:
        if not batch.schema.equals(batches[0].schema):
            raise other_columns(task, batches[0].schema, batch.schema)
    return pa.concat_batches(batches)
