"""The operator that calls a function with the rows of keys, their state and their timers.

The function gets all keys of a batch at once, or those of them whose state is in memory together. Timers fire before
barriers, those that are due by the watermark that comes with one; a timer that is set then and is due by it, too, fires
with it.

Where failures are taken, a batch on which the function raises is halved until a record is alone, or a timer: that is
left out, and what is kept of its key is as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from abscli.engine.errors import JobFailed, RaisedAt
from abscli.engine.failures import Failures, is_of_record, place_of_error
from abscli.engine.keyed_functions import MOMENT, BadResult, BadValue, KeyedBatch, KeyedResult, TimerFailed
from abscli.engine.operators.expiry import Expiry
from abscli.engine.operators.rows import key_columns
from abscli.engine.operators.runnable import EMITTED_ROWS
from abscli.engine.operators.windows import event_times, with_times
from abscli.engine.sources.columns import schema_of
from abscli.engine.sources.event_times import as_event_times
from abscli.engine.state.contract import State
from abscli.engine.state.key_table import Slots
from abscli.engine.state.keyed_state import REMOVED, UNDUE, KeyedState, Rows
from formats.ids import TaskId
from formats.job.model import Operator
from formats.native.state.ordering import key_order
from formats.native.state.tables import DUE
from formats.timestamps import event_moment
from formats.watermark import END

AT_THE_END = 10_000
"""So many timers of a key fire one after the other when event time ends: one that is set again for ever would not."""

Mask = npt.NDArray[np.bool_]


class KeyedProcess:
    """watermark: what the last barriers brought.

    failures: takes the records and timers on which the function raises, and records without a time; None: these end the
    run.
    """

    def __init__(
        self, operator: Operator, task: TaskId, state: State, function: Callable[[KeyedBatch], Any],
        failures: Failures | None = None,
    ) -> None:  # fmt: skip
        self._operator = operator
        self._task = task
        self._function = function
        self._failures = failures
        self._columns = schema_of(dict(operator.kept.columns), f"operator {operator.id}: state")
        self._time = operator.kept.time
        self._expiry = Expiry(operator)
        self._output: pa.Schema | None = None
        self.state: State | None = state
        self.watermark: int | None = None

    def process(self, batch: pa.RecordBatch, first: int, origin: str = "") -> pa.RecordBatch | None:
        assert self.state is not None
        if self._time is not None and self._failures is not None:
            rows, _ = with_times(batch, first, self._time, self._operator.id, self._failures)
        else:
            rows = self._expiry.taken(batch, first, self._failures)
        keys = key_columns(rows.batch, self.state.key, self._operator.id)
        work = self.state.divided(rows, keys)
        shown = [output for state, some in work for output in self._take(state, some) if output.num_rows]
        return pa.concat_batches(shown) if shown else None

    def _take(self, state: KeyedState, rows: Rows) -> Iterator[pa.RecordBatch]:
        if not rows.batch.num_rows:
            return
        keys = key_columns(rows.batch, state.key, self._operator.id)
        located = state.locate(keys, rows.hashes)
        over = self._expiry.over(state, rows, located)
        later = np.setdiff1d(over, located.first)
        if len(later):
            # Its key is forgotten in between: rows before it are taken first.
            state.remove(located.slots[located.new])
            end = np.full(len(located.slots), len(rows.numbers))
            np.minimum.at(end, located.groups[later], later)
            is_before = np.arange(len(rows.numbers)) < end[located.groups]
            yield from self._take(state, _taken(rows, np.flatnonzero(is_before)))
            yield from self._take(state, _taken(rows, np.flatnonzero(~is_before)))
            return
        forgotten = np.zeros(len(located.slots), dtype=bool)
        forgotten[located.groups[over]] = True
        by_key = np.argsort(located.groups, kind="stable")
        batch = self._batch(
            state, located.slots, located.new | forgotten, rows.batch.take(pa.array(by_key)), located.groups[by_key],
            self._times(rows, by_key),
        )  # fmt: skip
        called = self._called(batch)
        if isinstance(called, KeyedResult):
            if forgotten.any():
                state.remove(located.slots[forgotten])
                state.locate(keys, rows.hashes)
            if self._expiry.columns:
                state.touch(located.slots)  # when they are due is part of the state
                self._expiry.put_off(state, rows, located)
            yield from self._applied(state, located.slots, batch, called)
            return
        # Keys are as they were, and those that only these rows had begun are none.
        state.remove(located.slots[located.new])
        yield from self._without_failing(state, _taken(rows, by_key), called)

    def _without_failing(self, state: KeyedState, rows: Rows, error: Exception) -> Iterator[pa.RecordBatch]:
        """What comes of rows on which the function raised. rows: in order of key."""
        assert self._failures is not None
        count = len(rows.numbers)
        if count > 1:
            yield from self._take(state, _taken(rows, np.arange(count // 2)))
            yield from self._take(state, _taken(rows, np.arange(count // 2, count)))
        elif isinstance(error, TimerFailed):
            # The timer is what failed, and would fail again with each row to come: it is left out before the row.
            slots = state.locate(key_columns(rows.batch, state.key, self._operator.id), rows.hashes).slots
            yield from self._fired(state, slots)
            yield from self._take(state, rows)
        else:
            self._failures.add(rows.batch, int(rows.numbers[0]), error)

    def _times(self, rows: Rows, order: Slots) -> pa.TimestampArray | None:
        if self._time is None:
            return None
        times = event_times(rows.batch, self._time, rows.numbers, self._operator.id)
        return pa.array(times[order]).cast(MOMENT)

    def _batch(
        self, state: KeyedState, slots: Slots, new: Mask, rows: pa.RecordBatch | None, groups: Slots,
        times: pa.TimestampArray | None,
    ) -> KeyedBatch:  # fmt: skip
        mask = pa.array(~new)
        columns = [
            pc.if_else(mask, state.column(field.name, field.type).take(slots), None) for field in self._columns
        ]  # fmt: skip
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
            fired = state.due_at(slots)
            if watermark == END and times > AT_THE_END:
                message = f"its timer has fired {AT_THE_END:,} times at the end of input, and is set again"
                raise self._failed(
                    self._of_timers(state, slots), 0, message,
                    hint="stop setting new timers at the end of input: all pending timers fire then, even those far "
                    "in the future",
                )  # fmt: skip
            for output in self._fired(state, slots):
                yield from (output.slice(at, EMITTED_ROWS) for at in range(0, output.num_rows, EMITTED_ROWS))
            due = state.due_at(slots)
            is_set = (due != REMOVED) & (due != UNDUE)
            if (is_set & (due <= fired)).any():
                key = int(np.flatnonzero(is_set & (due <= fired))[0])
                before, after = (event_moment(int(one[key])) for one in (fired, due))
                message = f"its timer of {before} fired, and the next is set to {after}, which is no later"
                raise self._failed(self._of_timers(state, slots), key, message)
            slots = self._in_order(state, slots[is_set & (due <= watermark)])

    def _fired(self, state: KeyedState, slots: Slots) -> Iterator[pa.RecordBatch]:
        """What the timers of these keys put out, each fired once."""
        batch = self._of_timers(state, slots)
        called = self._called(batch)
        if isinstance(called, KeyedResult) or len(slots) == 1:
            state.touch(slots)
            state.set_due(slots, UNDUE)
        if isinstance(called, KeyedResult):
            yield from self._applied(state, slots, batch, called)
        elif len(slots) > 1:
            yield from self._fired(state, slots[: len(slots) // 2])
            yield from self._fired(state, slots[len(slots) // 2 :])
        else:
            assert self._failures is not None
            self._failures.add(batch.keys.append_column(DUE, batch.timers), None, called)

    def _of_timers(self, state: KeyedState, slots: Slots) -> KeyedBatch:
        none = np.zeros(len(slots), dtype=bool)
        return self._batch(state, slots, none, None, np.empty(0, dtype=np.int64), None)

    # -- the function, and what it returns ---------------------------------------------------------------------

    def _called(self, batch: KeyedBatch) -> KeyedResult | Exception:
        """What the function returns, or raises where failures take it."""
        try:
            result = self._function(batch)
        except BaseException as error:  # sys.exit() in a function is a failure of the job as well
            breaks_contract = isinstance(error, BadResult) and not isinstance(error, BadValue)
            if self._failures is not None and is_of_record(error) and not breaks_contract:
                return error
            raised = _cause(error)
            key = self._failing_key(batch)
            reason = str(raised)
            if not isinstance(raised, BadResult):
                reason = f"{type(raised).__name__}: {raised}{place_of_error(raised)}"
            raise self._failed(batch, key, reason, raised=True) from raised
        if not isinstance(result, KeyedResult):
            raise self._failed(batch, 0, f"the function returned {type(result).__name__}, expected KeyedResult")
        return result

    def _applied(
        self, state: KeyedState, slots: Slots, batch: KeyedBatch, result: KeyedResult
    ) -> Iterator[pa.RecordBatch]:
        """What it puts out; what it returns for keys is theirs then."""
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
        if output is not None:
            yield output

    def _state_columns(self, batch: KeyedBatch, returned: Any) -> dict[str, pa.Array]:
        if not isinstance(returned, pa.RecordBatch):
            raise self._failed(batch, 0, f"its state is {type(returned).__name__}, expected RecordBatch")
        names = self._columns.names
        for name in returned.schema.names:
            if name not in names or returned.schema.names.count(name) > 1:
                message = f"its state has column {name!r}, but the job declares {', '.join(names) or 'none'}"
                raise self._failed(batch, 0, message, hint="declare each column and its type under `state`")
        for field in self._columns:
            if field.name not in returned.schema.names:
                raise self._failed(batch, 0, f"its state has no column {field.name!r}, which the job declares")
        if names:
            self._check_length(batch, "its state", returned.num_rows)
        columns = {}
        for field in self._columns:
            column = returned.column(field.name)
            if column.type != field.type and not pa.types.is_null(column.type):
                raise self._failed(
                    batch, 0, f"column {field.name!r} of its state is {column.type}, but the job declares {field.type}",
                    hint=f"cast the column in the function: .cast({str(field.type)!r})",
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
                batch, 0, f"the columns of its output changed from {before} to {now}",
                hint="cast the columns: a function must return the same columns and types for every batch",
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


def _taken(rows: Rows, places: Slots) -> Rows:
    """The rows in these places, in their order."""
    hashes = None if rows.hashes is None else rows.hashes[places]
    return Rows(rows.batch.take(pa.array(places)), rows.numbers[places], hashes)


def _cause(error: BaseException) -> BaseException:
    """What the function raised."""
    return error.__cause__ if isinstance(error, TimerFailed) and error.__cause__ is not None else error
