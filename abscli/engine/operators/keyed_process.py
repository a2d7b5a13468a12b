"""The operator that calls a function with the rows of keys, their state and their timers.

The function gets all keys of a batch at once, or those of them whose state is in memory together. Timers fire before
barriers, those that are due by the watermark that comes with one; a timer that is set then and is due by it, too, fires
with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from abscli.engine.errors import JobFailed, RaisedAt
from abscli.engine.failures import place_of_error
from abscli.engine.keyed_functions import MOMENT, BadResult, KeyedBatch, KeyedResult
from abscli.engine.operators.expiry import Expiry
from abscli.engine.operators.rows import key_columns, numbered
from abscli.engine.operators.runnable import EMITTED_ROWS
from abscli.engine.operators.windows import event_times
from abscli.engine.sources.columns import schema_of
from abscli.engine.sources.event_times import as_event_times
from abscli.engine.state.key_table import Slots
from abscli.engine.state.keyed_state import REMOVED, UNDUE, KeyedState, Rows, State
from formats.ids import TaskId
from formats.job.model import Operator
from formats.native.state.ordering import key_order
from formats.timestamps import event_moment
from formats.watermark import END

AT_THE_END = 10_000
"""So many timers of a key fire one after the other when event time ends: one that is set again for ever would not."""

Mask = npt.NDArray[np.bool_]


class KeyedProcess:
    """watermark: what the last barriers brought."""

    def __init__(
        self, operator: Operator, task: TaskId, state: State, function: Callable[[KeyedBatch], Any]
    ) -> None:
        self._operator = operator
        self._task = task
        self._function = function
        self._columns = schema_of(dict(operator.kept.columns), f"operator {operator.id}: state")
        self._time = operator.kept.time
        self._expiry = Expiry(operator)
        self._output: pa.Schema | None = None
        self.state: State | None = state
        self.watermark: int | None = None

    def process(self, batch: pa.RecordBatch, first: int, origin: str = "") -> pa.RecordBatch | None:
        assert self.state is not None
        rows, keys = numbered(batch, first), key_columns(batch, self.state.key, self._operator.id)
        outputs = [self._take(state, some) for state, some in self.state.divided(rows, keys)]
        shown = [output for output in outputs if output is not None and output.num_rows]
        return pa.concat_batches(shown) if shown else None

    def _take(self, state: KeyedState, rows: Rows) -> pa.RecordBatch | None:
        times = None
        if self._time is not None:
            times = pa.array(event_times(rows.batch, self._time, rows.numbers, self._operator.id)).cast(MOMENT)
        located = state.locate(key_columns(rows.batch, state.key, self._operator.id), rows.hashes)
        if self._expiry.columns:
            state.touch(located.slots)  # when they are due is part of the state
            self._expiry.put_off(state, rows, located)
        by_key = np.argsort(located.groups, kind="stable")
        order = pa.array(by_key)
        batch = self._batch(
            state, located.slots, located.new, rows.batch.take(order), located.groups[by_key],
            None if times is None else times.take(order),
        )  # fmt: skip
        return self._called(state, located.slots, batch)

    def _batch(
        self, state: KeyedState, slots: Slots, new: Mask, rows: pa.RecordBatch | None, groups: Slots,
        times: pa.TimestampArray | None,
    ) -> KeyedBatch:  # fmt: skip
        columns = [state.column(field.name, field.type).take(slots) for field in self._columns]
        due = state.due_at(slots)
        unset = np.full(len(slots), self._time is None) | (due == UNDUE)
        watermark = None if self.watermark is None else pa.scalar(self.watermark, MOMENT)
        return KeyedBatch(
            keys=pa.record_batch(state.index.keys(slots), names=list(state.key)),
            state=pa.record_batch(columns, schema=self._columns),
            new=pa.array(new),
            timers=pa.array(due, mask=unset).cast(MOMENT),
            rows=rows,
            groups=pa.array(groups),
            times=times,
            watermark=watermark,
        )

    # -- timers ------------------------------------------------------------------------------------------------

    def flush(self, watermark: int | None) -> Iterator[pa.RecordBatch]:
        assert self.state is not None
        self.watermark = watermark
        self._expiry.expire(self.state, watermark)
        if self._time is None or watermark is None:
            return
        for outputs in self.state.due(watermark, partial(self._due, watermark)):
            yield from outputs

    def _due(self, watermark: int, state: KeyedState, slots: Slots) -> list[pa.RecordBatch]:
        slots = self._in_order(state, slots)
        pieces = (slots[start : start + EMITTED_ROWS] for start in range(0, len(slots), EMITTED_ROWS))
        return [output for piece in pieces for output in self._fire(state, piece, watermark)]

    def _in_order(self, state: KeyedState, slots: Slots) -> Slots:
        """Of time, then of key."""
        slots = slots[key_order(state.index.keys(slots))]
        return slots[np.argsort(state.due_at(slots), kind="stable")]

    def _fire(self, state: KeyedState, slots: Slots, watermark: int) -> Iterator[pa.RecordBatch]:
        """Timers of these keys, until none is due."""
        times = 0
        while len(slots):
            times += 1
            none, fired = np.zeros(len(slots), dtype=bool), state.due_at(slots)
            batch = self._batch(state, slots, none, None, np.empty(0, dtype=np.int64), None)
            if watermark == END and times > AT_THE_END:
                raise self._failed(
                    batch, 0, f"its timer has fired {AT_THE_END:,} times at the end of input, and is set again",
                    hint="at the end all timers fire, however late they are: let the function leave off setting them",
                )  # fmt: skip
            state.touch(slots)
            state.set_due(slots, UNDUE)
            output = self._called(state, slots, batch)
            if output is not None:
                yield from (output.slice(at, EMITTED_ROWS) for at in range(0, output.num_rows, EMITTED_ROWS))
            due = state.due_at(slots)
            is_set = (due != REMOVED) & (due != UNDUE)
            if (is_set & (due <= fired)).any():
                key = int(np.flatnonzero(is_set & (due <= fired))[0])
                before, after = (event_moment(int(one[key])) for one in (fired, due))
                message = f"its timer of {before} fired, and the next is set to {after}, which is no later"
                raise self._failed(batch, key, message)
            slots = self._in_order(state, slots[is_set & (due <= watermark)])

    # -- the function, and what it returns ---------------------------------------------------------------------

    def _called(self, state: KeyedState, slots: Slots, batch: KeyedBatch) -> pa.RecordBatch | None:
        """What the function puts out; what it returns for keys is theirs then."""
        try:
            result = self._function(batch)
        except BaseException as error:  # sys.exit() in a function is a failure of the job as well
            key = self._failing_key(batch)
            reason = str(error)
            if not isinstance(error, BadResult):
                reason = f"{type(error).__name__}: {error}{place_of_error(error)}"
            raise self._failed(batch, key, reason, raised=True) from error
        if not isinstance(result, KeyedResult):
            raise self._failed(batch, 0, f"the function returned {type(result).__name__}, expected KeyedResult")
        columns = None if result.state is None else self._state_columns(batch, result.state)
        timers = None if result.timers is None else self._timers(batch, result.timers)
        remove = None if result.remove is None else self._removed(batch, result.remove)
        output = self._rows(batch, result.rows)
        if columns is not None or timers is not None:
            state.touch(slots)
        for name, column in (columns or {}).items():
            state.column(name, column.type).put(slots, column)
        if timers is not None:
            state.set_due(slots, timers)
        if remove is not None and remove.any():
            state.remove(slots[remove])
        return output

    def _state_columns(self, batch: KeyedBatch, returned: Any) -> dict[str, pa.Array]:
        if not isinstance(returned, pa.RecordBatch):
            raise self._failed(batch, 0, f"its state is {type(returned).__name__}, expected RecordBatch")
        names = self._columns.names
        for name in returned.schema.names:
            if name not in names or returned.schema.names.count(name) > 1:
                message = f"its state has column {name!r}, and the job names {', '.join(names) or 'none'}"
                raise self._failed(batch, 0, message, hint="name each column and its type under state")
        for field in self._columns:
            if field.name not in returned.schema.names:
                raise self._failed(batch, 0, f"its state has no column {field.name!r}, which the job names")
        if names:
            self._check_length(batch, "its state", returned.num_rows)
        columns = {}
        for field in self._columns:
            column = returned.column(field.name)
            if column.type != field.type and not pa.types.is_null(column.type):
                raise self._failed(
                    batch, 0, f"column {field.name!r} of its state is {column.type}, and {field.type} in the job",
                    hint=f"cast it in the function: .cast({str(field.type)!r})",
                )  # fmt: skip
            columns[field.name] = column.cast(field.type)
        return columns

    def _timers(self, batch: KeyedBatch, returned: Any) -> Slots | None:
        """When keys are due; None for an operator that knows no timers."""
        if not isinstance(returned, pa.Array):
            raise self._failed(batch, 0, f"its timers are {type(returned).__name__}, expected TimestampArray")
        self._check_length(batch, "its timers", len(returned))
        if self._time is None:
            if returned.null_count < len(returned):
                key = int(np.flatnonzero(returned.is_valid().to_numpy(zero_copy_only=False))[0])
                hint = "name the column with event time under process, such as time: at"
                raise self._failed(batch, key, "a timer is set, and the operator has no event time", hint=hint)
            return None
        try:
            times = as_event_times(returned if not pa.types.is_null(returned.type) else returned.cast(MOMENT))
        except (TypeError, pa.ArrowInvalid) as error:
            raise self._failed(batch, 0, f"its timers cannot be: {error}") from None
        due: Slots = times.fill_null(UNDUE).to_numpy()
        return np.maximum(due, REMOVED + 1)

    def _removed(self, batch: KeyedBatch, returned: Any) -> Mask:
        if not isinstance(returned, pa.BooleanArray):
            raise self._failed(batch, 0, f"remove is {type(returned).__name__}, expected BooleanArray")
        self._check_length(batch, "remove", len(returned))
        mask: Mask = returned.fill_null(False).to_numpy(zero_copy_only=False)
        return mask

    def _rows(self, batch: KeyedBatch, rows: Any) -> pa.RecordBatch | None:
        if rows is None:
            return None
        if not isinstance(rows, pa.RecordBatch):
            raise self._failed(batch, 0, f"its rows are {type(rows).__name__}, expected RecordBatch")
        if self._output is None:
            self._output = rows.schema
        elif not rows.schema.equals(self._output):
            before, now = (
                ", ".join(f"{field.name} {field.type}" for field in schema) for schema in (self._output, rows.schema)
            )
            raise self._failed(
                batch, 0, f"the rows that it puts out changed from columns {before} to {now}",
                hint="a function must return the same columns and types for every batch: cast them",
            )  # fmt: skip
        return rows

    def _check_length(self, batch: KeyedBatch, name: str, rows: int) -> None:
        if rows != batch.keys.num_rows:
            raise self._failed(batch, 0, f"{name}: {rows} rows for {batch.keys.num_rows} keys; one a key is expected")

    def _failing_key(self, batch: KeyedBatch) -> int:
        """The first key with which it raises, by bisection: functions work key by key."""
        low, high = 0, batch.keys.num_rows
        while high - low > 1:
            middle = (low + high) // 2
            try:
                self._function(batch.of_keys(low, middle))
            except BaseException:
                high = middle
            else:
                low = middle
        return low

    def _failed(
        self, batch: KeyedBatch, key: int, reason: str, *, hint: str | None = None, raised: bool = False
    ) -> JobFailed:
        value = str(batch.keys.slice(key, 1).to_pylist()[0])[:200]
        return JobFailed(
            f"operator {self._operator.id}, task {self._task}, key {value}: {reason}", hint=hint,
            raised_at=RaisedAt(self._task, value) if raised else None,
        )  # fmt: skip

    def close(self) -> None:
        if self.state is not None:
            self.state.close()
