"""What the function of a keyed `process` is given and gives back, for all keys of a batch at once or for one.

The function is called with rows whenever some have come, and without when timers fire. For one key its calls come in
the order of its rows, and one at a time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from abscli.engine.sources.columns import schema_of

Numbers = npt.NDArray[np.int64]

__all__ = ("KeyedBatch", "KeyedResult", "Result", "per_key")

MOMENT = pa.timestamp("us")
"""Of timers and of rows' times: UTC."""


class BadResult(Exception):
    """A function returned something that it may not; the message says what."""


class BadValue(BadResult):
    """A function returned a value that its column cannot hold."""


class TimerFailed(Exception):
    """A function raised, its cause, where a timer fired that is due before the row that it was called with."""


@dataclass(frozen=True, slots=True)
class KeyedBatch:
    """What a function of keys is called with.

    keys: a row a key.
    state: of each key, in the columns that the job names; nulls where there is none.
    new: which keys have none yet.
    timers: of each key: when its timer fires, or, where `rows` is None, when that was that fires now; null: it has
    none.
    rows: that have come, those of a key together and in the order in which they came; None where timers fire.
    groups: of each row, the number of its key; ascending.
    times: of each row, its event time in UTC; None where the job names no column for it.
    watermark: to which event time had come with the last epoch; None where that is not known.
    """

    keys: pa.RecordBatch
    state: pa.RecordBatch
    new: pa.BooleanArray
    timers: pa.TimestampArray
    rows: pa.RecordBatch | None
    groups: pa.Int64Array
    times: pa.TimestampArray | None
    watermark: pa.TimestampScalar | None

    def of_keys(self, start: int, stop: int) -> KeyedBatch:
        """The same, of the keys with these numbers alone."""
        count = stop - start
        first, last = (int(place) for place in np.searchsorted(self.groups.to_numpy(), (start, stop)))
        return KeyedBatch(
            self.keys.slice(start, count),
            self.state.slice(start, count),
            self.new.slice(start, count),
            self.timers.slice(start, count),
            None if self.rows is None else self.rows.slice(first, last - first),
            pa.array(self.groups.to_numpy()[first:last] - start),
            None if self.times is None else self.times.slice(first, last - first),
            self.watermark,
        )


@dataclass(frozen=True, slots=True)
class KeyedResult:
    """What a function of keys returns.

    rows: that are put out.
    state: of each key, in the columns that the job names; None: as it was.
    remove: which keys are forgotten, with their timers; None: none.
    timers: when the timer of each key fires next, null: never; None: as it was, where timers fired: never.
    """

    rows: pa.RecordBatch | None = None
    state: pa.RecordBatch | None = None
    remove: pa.BooleanArray | None = None
    timers: pa.TimestampArray | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """What a function of one key returns.

    state: of the key from now on, by column; None: the key is forgotten.
    rows: that are put out, by column.
    timer: when the key's timer fires next; None: never, whatever was set before.
    """

    state: Mapping[str, Any] | None
    rows: Sequence[Mapping[str, Any]] = ()
    timer: datetime | None = None


Key = dict[str, Any]
Row = dict[str, Any]
OneKey = Callable[[Key, Row | None, dict[str, Any] | None, datetime | None], Result]
OverKeys = Callable[[KeyedBatch], KeyedResult]


def per_key(output: Mapping[str, str] | None = None) -> Callable[[OneKey], OverKeys]:
    """Makes the function of a `process` of one that is called for each row of a key, and for its timer.

        @per_key({"user": "string", "silent_since": "timestamp"})
        def track(key, row, state, timer): ...

    It is called as `track(key, row, state, timer)`: with a row, the key's state or None where it has none, and its
    timer where it has one; or with None for the row, when the timer fires. It returns a `Result`. A timer fires before
    the first row of its key that is as late as it, or with the epoch in which event time comes to it: so what a key's
    calls are depends on its rows alone, and not on where batches and epochs end, but for rows that come late.

    output: columns and types of the rows that it puts out, in the words of a source's `schema`.

    A call a row costs some microseconds: `KeyedBatch` says how to do without.
    """
    schema = None if output is None else schema_of(dict(output), "per_key")

    def decorate(function: OneKey) -> OverKeys:
        @functools.wraps(function)
        def over_keys(batch: KeyedBatch) -> KeyedResult:
            return _Calls(function, schema, batch).result()

        return over_keys

    return decorate


class _Calls:
    """Of one batch. rows: put out so far."""

    def __init__(self, function: OneKey, output: pa.Schema | None, batch: KeyedBatch) -> None:
        self._function = function
        self._output = output
        self._batch = batch
        self._kinds = {field.name: field.type for field in batch.state.schema}
        self._rows: list[Mapping[str, Any]] = []

    def result(self) -> KeyedResult:
        batch = self._batch
        states: list[dict[str, Any] | None] = []
        timers: list[datetime | None] = []
        for key, (state, timer), rows in zip(batch.keys.to_pylist(), self._before(), self._of_each_key(), strict=True):
            if batch.rows is None:
                assert timer is not None
                state, timer = self._fired(key, state, timer)
            for row, time in rows:
                while timer is not None and time is not None and timer <= time:
                    state, timer = self._fired_before(key, state, timer)
                state, timer = self._called(key, row, state, timer)
            states.append(state)
            timers.append(timer)
        columns = [_column(name, kind, states) for name, kind in self._kinds.items()]
        return KeyedResult(
            rows=_table(self._rows, self._output) if self._output is not None and self._rows else None,
            state=pa.record_batch(columns, names=list(self._kinds)),
            remove=pa.array([state is None for state in states], pa.bool_()),
            timers=pa.array(timers, MOMENT),
        )

    def _before(self) -> Iterator[tuple[dict[str, Any] | None, datetime | None]]:
        batch = self._batch
        states = batch.state.to_pylist() if self._kinds else [{} for _ in range(batch.keys.num_rows)]
        for state, new, timer in zip(states, batch.new.to_pylist(), batch.timers.to_pylist(), strict=True):
            yield None if new else state, timer

    def _of_each_key(self) -> Iterator[list[tuple[Row, datetime | None]]]:
        batch = self._batch
        rows = [] if batch.rows is None else batch.rows.to_pylist()
        times = [None] * len(rows) if batch.times is None else batch.times.to_pylist()
        ends = np.cumsum(np.bincount(batch.groups.to_numpy(), minlength=batch.keys.num_rows)).tolist()
        for start, end in zip([0, *ends], ends, strict=False):
            yield list(zip(rows[start:end], times[start:end], strict=True))

    def _fired_before(
        self, key: Key, state: dict[str, Any] | None, timer: datetime
    ) -> tuple[dict[str, Any] | None, datetime | None]:
        """As `_fired`, before a row: whoever leaves out what fails has to know that it is not the row."""
        try:
            return self._fired(key, state, timer)
        except Exception as error:
            raise TimerFailed from error

    def _fired(
        self, key: Key, state: dict[str, Any] | None, timer: datetime
    ) -> tuple[dict[str, Any] | None, datetime | None]:
        state, after = self._called(key, None, state, timer)
        if after is not None and after <= timer:
            raise BadResult(f"its timer of {timer} fired, and the next is set to {after}, which is no later")
        return state, after

    def _called(
        self, key: Key, row: Row | None, state: dict[str, Any] | None, timer: datetime | None
    ) -> tuple[dict[str, Any] | None, datetime | None]:
        result = self._function(key, row, state, timer)
        if not isinstance(result, Result):
            raise BadResult(f"returned {type(result).__name__}, expected Result")
        if result.rows and self._output is None:
            raise BadResult("emits rows, and does not declare their columns: @per_key({COLUMN: TYPE})")
        for one in result.rows:
            if self._output is not None and (other := one.keys() - set(self._output.names)):
                raise BadResult(
                    f"puts out a row with column {min(other)!r}, and per_key names {', '.join(self._output.names)}"
                )
        self._rows += result.rows
        if result.state is None:
            if result.timer is not None:
                raise BadResult("sets a timer for a key whose state is None, which is forgotten: return a state")
            return None, None
        if other := result.state.keys() - self._kinds.keys():
            names = ", ".join(self._kinds) or "none"
            raise BadResult(f"returned a state with column {min(other)!r}; the job names {names}")
        # As it will come back: what a call gets must not depend on whether a batch has ended.
        kept = {name: _as_kept(name, kind, result.state.get(name)) for name, kind in self._kinds.items()}
        return kept, None if result.timer is None else _as_kept("timer", MOMENT, result.timer)


_PLAIN: dict[pa.DataType, type] = {
    pa.int64(): int, pa.float64(): float, pa.string(): str, pa.bool_(): bool,
}  # fmt: skip
"""Values of these types are kept as they are."""


def _as_kept(name: str, kind: pa.DataType, value: Any) -> Any:
    if value is None or type(value) is _PLAIN.get(kind):
        return value
    try:
        return pa.scalar(value, kind).as_py()
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise BadValue(_cannot(name, kind, value, error)) from None


def _column(name: str, kind: pa.DataType, states: Sequence[Mapping[str, Any] | None]) -> pa.Array:
    values = [None if state is None else state[name] for state in states]
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise BadValue(_cannot(name, kind, _first_bad(values, kind), error)) from None


def _table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for field in schema:
        values = [row.get(field.name) for row in rows]
        try:
            columns.append(pa.array(values, field.type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            bad = _cannot(field.name, field.type, _first_bad(values, field.type), error)
            raise BadValue(f"puts out a row that cannot be: {bad}") from None
    return pa.record_batch(columns, schema=schema)


def _first_bad(values: Sequence[Any], kind: pa.DataType) -> Any:
    for value in values:
        try:
            pa.scalar(value, kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return value
    return None


def _cannot(name: str, kind: pa.DataType, value: Any, error: Exception) -> str:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return f"column {name!r} is {kind}, and {value!r} ({type(value).__name__}) is none: {reason}"
