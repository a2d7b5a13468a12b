"""Event time from numbers that count time since 1970."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abscli.engine.errors import JobFailed
from abscli.engine.runnable import all_faults
from abscli.engine.sources.making import make_source
from abscli.engine.sources.numeric_times import TIME, as_times, emitted
from formats.job.event_time import TimeUnit
from formats.job.model import Kind, Operator, Topology
from tests.support.jobs.small import operator

PER_SECOND = {TimeUnit.SECOND: 1, TimeUnit.MILLISECOND: 10**3, TimeUnit.MICROSECOND: 10**6, TimeUnit.NANOSECOND: 10**9}
MOMENT = datetime(2026, 11, 29, 3, 4, 5)
SECONDS = (MOMENT - datetime(1970, 1, 1)).total_seconds()


@given(st.sampled_from([*TimeUnit]), st.integers(-(2**43), 2**43))
def test_whole_numbers_are_converted_exactly_and_rounded_down(unit: TimeUnit, number: int) -> None:
    (time,) = as_times(pa.array([number]), unit).cast(pa.int64()).to_pylist()
    assert time == number * 10**6 // PER_SECOND[unit]


@pytest.mark.parametrize("unit", [*TimeUnit])
@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64(), pa.float64()])
def test_every_type_of_number_gives_the_same_time(unit: TimeUnit, kind: pa.DataType) -> None:
    numbers = pa.array([int(SECONDS) * PER_SECOND[unit], None]).cast(kind, safe=False)
    assert as_times(numbers, unit).to_pylist() == [MOMENT, None]


def test_a_fraction_of_a_second_counts() -> None:
    assert as_times(pa.array([SECONDS + 0.25]), TimeUnit.SECOND).to_pylist() == [MOMENT + timedelta(seconds=0.25)]


def source_of(kind: str, event_time: dict[str, Any], type: str = "int64") -> Operator:
    schema = {"a": "string", "ts": type}
    connector = {"type": kind, "path": f"in.{kind}", "schema": schema, "event_time": event_time}
    return operator("rows", Kind.SOURCE, 1, connector=connector)


def test_a_source_emits_timestamps_and_has_a_watermark(tmp_path: Path) -> None:
    rows = [{"a": "x", "ts": int(SECONDS * 1000) + n} for n in (5, 7, 6)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    op = source_of("jsonl", {"column": "ts", "unit": "ms", "delay": "1s"})
    source = make_source(op, 0, str(tmp_path), None, None)
    source.stop_at(lines=3)
    batch = source.read()
    assert batch is not None
    assert batch.schema == emitted(op, pa.schema([("a", pa.string()), ("ts", pa.int64())]))
    assert batch.schema.field("ts").type == TIME
    assert batch.column("ts").to_pylist() == [MOMENT + timedelta(milliseconds=n) for n in (5, 7, 6)]
    assert source.watermark == int(SECONDS * 10**6) + 7_000 - 1_000_000
    again = make_source(op, 0, str(tmp_path), source.cut(), source.connector)
    assert again.finished or again.read() is None


@pytest.mark.parametrize(
    ("event_time", "type", "message", "hint"),
    [
        ({"column": "ts"}, "int64", "cannot be event time: expected a timestamp or a date, got int64", "unit: ms"),
        ({"column": "ts", "unit": "ms"}, "timestamp", "of type timestamp.us., but event_time has unit: ms", "remove"),
        ({"column": "ts", "unit": "ms"}, "string", "of type string, but event_time has unit: ms", "remove `unit`"),
    ],
)
def test_a_unit_that_does_not_fit_the_column_is_a_fault(
    tmp_path: Path, event_time: dict[str, Any], type: str, message: str, hint: str
) -> None:
    (tmp_path / "in.jsonl").write_text("{}\n")
    faults = [*all_faults(Topology("job", (source_of("jsonl", event_time, type),), ()), str(tmp_path), from_start=True)]
    (fault,) = [one for one in faults if "ts" in one.message]
    assert message.replace(".us.", "[us]") in fault.message
    assert hint in (fault.hint or "")


def test_a_number_out_of_range_ends_the_run_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"ts": 1}\n{"ts": 9223372036854775807}\n')
    source = make_source(source_of("jsonl", {"column": "ts", "unit": "ms"}), 0, str(tmp_path), None, None)
    with pytest.raises(JobFailed, match="column 'ts' has 9223372036854775807, which is no time in ms since 1970"):
        source.read()
