"""Which windows of event time rows belong to."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from abscli.engine.errors import JobFailed
from abscli.engine.failures import Failures
from abscli.engine.operators.rows import columns, numbered
from abscli.engine.sources.event_times import as_event_times
from abscli.engine.state.keyed_state import Rows
from formats.native.state.ordering import by_key_group, key_order
from formats.native.state.tables import KEY_GROUP

Times = npt.NDArray[np.int64]


class NoTime(ValueError):
    """A row has no event time. column: in which that should be."""

    def __init__(self, column: str) -> None:
        super().__init__(f"no event time in {column!r}")


def event_times(batch: pa.RecordBatch, name: str, numbers: Times, operator: str) -> Times:
    """The event time of each row in microseconds; JobFailed for a row that has none. numbers: of the records."""
    times = _times(batch, name, operator)
    if times.null_count:
        row = int(pc.index(times.is_null(), True).as_py())
        record = batch.slice(row, 1).to_pylist()[0]
        raise JobFailed(
            f"operator {operator}, record {numbers[row]} {record}: {NoTime(name)}",
            hint="drop such rows in a filter upstream, or set on_error: skip",
        )
    result: Times = times.to_numpy()
    return result


def with_times(
    batch: pa.RecordBatch, first: int, name: str, operator: str, failures: Failures | None
) -> tuple[Rows, Times]:
    """Rows with their numbers, and the event time of each; those that have none fail. first: the number of the first;
    failures: takes these, None: that is a JobFailed."""
    rows = numbered(batch, first)
    if failures is None:
        return rows, event_times(batch, name, rows.numbers, operator)
    times = _times(batch, name, operator)
    if times.null_count:
        for row in np.flatnonzero(times.is_null().to_numpy(zero_copy_only=False)).tolist():
            failures.add(batch.slice(row, 1), int(rows.numbers[row]), NoTime(name))
        has_time = times.is_valid()
        rows = Rows(batch.filter(has_time), rows.numbers[has_time.to_numpy(zero_copy_only=False)])
        times = times.drop_null()
    result: Times = times.to_numpy()
    return rows, result


def _times(batch: pa.RecordBatch, name: str, operator: str) -> pa.Array:
    (column,) = columns(batch, (name,), operator)
    try:
        return as_event_times(column)
    except TypeError as error:
        raise JobFailed(f"operator {operator}: column {name!r} cannot be event time: {error}") from None


def moments(times: Times, kind: pa.DataType) -> pa.Array:
    """Times as a column of timestamps, in the time zone of a column of this type if it has one."""
    zone = kind.tz if pa.types.is_timestamp(kind) else None
    return pa.array(times).cast(pa.timestamp("us", zone))


def put_in_order(table: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """Rows of a state in order of key group, then of key, so that what is put out has an order of its own."""
    if not table.num_rows:
        return table
    table = table.combine_chunks()
    order = key_order([table.column(name).chunk(0) for name in key])
    order = order[by_key_group(table.column(KEY_GROUP).to_numpy()[order])]
    return table.take(pa.array(order))


def windows_of(times: Times, size: int, every: int) -> tuple[Times, Times]:
    """Rows and the beginnings of the windows that they are in, each pair once, by row: of windows of `size`
    microseconds one begins every `every`."""
    latest = times - times % every
    if size <= every:
        return np.arange(len(times), dtype=np.int64), latest
    panes = -(-size // every)
    starts = latest[:, None] - every * np.arange(panes, dtype=np.int64)
    inside = starts + size > times[:, None]
    rows: Times = np.repeat(np.arange(len(times), dtype=np.int64), panes)[inside.ravel()]
    return rows, starts[inside]
