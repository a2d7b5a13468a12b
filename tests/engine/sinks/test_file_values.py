"""Each Arrow type keeps all values in part files of each type, or is refused before a part names them."""

from __future__ import annotations

import base64
import datetime
import io
import json
import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv, parquet

from abscli.engine.errors import JobFailed
from abscli.engine.sinks.part_files import PART_FILES
from tests.support.values import TYPES

DURATION = re.compile(r"(-?)P(?:(\d+)D)?(?:T(?:(\d+)(?:\.(\d+))?S)?)?")
LMT = datetime.datetime(1890, 1, 1)
"""Before Berlin's offset had whole minutes: it was 53 minutes and 28 seconds."""


def duration(text: str) -> int:
    """Nanoseconds."""
    match = DURATION.fullmatch(text)
    assert match is not None, text
    sign, days, seconds, fraction = match.groups()
    whole = int(days or 0) * 86_400 + int(seconds or 0)
    return (-1 if sign else 1) * (whole * 10**9 + int((fraction or "").ljust(9, "0")))


def moment(text: str) -> datetime.datetime:
    at = datetime.datetime.fromisoformat(text)
    return at if at.tzinfo is None else at.astimezone(datetime.UTC).replace(tzinfo=None)


def parser(type: pa.DataType) -> Callable[[Any], Any]:
    """Return the function that parses a value of the type."""
    if pa.types.is_duration(type):
        return duration
    if pa.types.is_timestamp(type):
        return moment
    if pa.types.is_date(type):
        return datetime.date.fromisoformat
    if pa.types.is_time(type):
        return lambda text: datetime.time.fromisoformat(text[:15])  # of nanoseconds three digits more
    if "binary" in str(type):
        return base64.b64decode
    if pa.types.is_decimal(type):
        return Decimal
    if pa.types.is_integer(type):
        return int
    if pa.types.is_floating(type):
        return (lambda value: float(np.float32(value))) if type.bit_width == 32 else float
    if pa.types.is_boolean(type):
        return lambda value: {"true": True, "false": False}.get(value, value)
    return lambda value: value


def as_read(value: Any, type: pa.DataType) -> Any:
    if value is not None and pa.types.is_duration(type):
        return (value // datetime.timedelta(microseconds=1)) * 1000
    return value


def written(form: str, column: pa.Array) -> bytes:
    file = io.BytesIO()
    part = PART_FILES[form](file, "(memory)", "out")
    part.write(pa.record_batch({"v": column}))
    part.finish()
    return file.getvalue()


def read(form: str, data: bytes, type: pa.DataType) -> list[Any]:
    if form == "parquet":
        column = parquet.read_table(io.BytesIO(data))["v"]
        if pa.types.is_timestamp(type) and type.tz is not None:
            column = column.cast(pa.timestamp(type.unit, "UTC")).cast(pa.timestamp(type.unit))
        return column.cast(pa.duration("us")).to_pylist() if pa.types.is_duration(type) else column.to_pylist()
    if form == "jsonl":
        values = [json.loads(line)["v"] for line in data.splitlines()]
    else:
        convert = csv.ConvertOptions(
            column_types={"v": pa.string()}, strings_can_be_null=True, quoted_strings_can_be_null=False,
            null_values=[""],
        )  # fmt: skip
        parse = csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)
        values = csv.read_csv(io.BytesIO(data), convert_options=convert, parse_options=parse)["v"].to_pylist()
    parsed = parser(type)
    return [None if value is None else parsed(value) for value in values]


def is_same(read: Any, due: Any) -> bool:
    return bool(read == due or (isinstance(due, float) and math.isnan(due) and math.isnan(read)))


@pytest.mark.parametrize("form", list(PART_FILES))
@pytest.mark.parametrize("type", TYPES, ids=str)
def test_a_file_keeps_all_values(type: pa.DataType, form: str) -> None:
    values = TYPES[type]
    if pa.types.is_timestamp(type):
        values |= st.just(LMT)

    @settings(max_examples=30)
    @given(st.lists(st.none() | values, min_size=1, max_size=20))
    def check(kept: list[Any]) -> None:
        column = pa.array(kept, type)
        got = read(form, written(form, column), type)
        due = [value if form == "parquet" else as_read(value, type) for value in kept]
        assert len(got) == len(due)
        assert all(map(is_same, got, due)), (got, due)

    check()


@pytest.mark.parametrize("form", ["csv", "jsonl"])
@pytest.mark.parametrize(
    ("type", "number", "text"),
    [
        (pa.duration("ns"), 1, "PT0.000000001S"), (pa.duration("ns"), -86_400_000_000_001, "-P1DT0.000000001S"),
        (pa.duration("s"), 86_400, "P1D"), (pa.duration("ms"), 0, "P0D"),
        (pa.duration("s"), 2**62, "P53375995583650DT27904S"),
        (pa.time64("ns"), 3_723_000_000_001, "01:02:03.000000001"),
    ],
)  # fmt: skip
def test_what_python_cannot_hold_is_written_all_the_same(type: pa.DataType, number: int, text: str, form: str) -> None:
    data = written(form, pa.array([number], pa.int64()).cast(type))
    assert (json.loads(data)["v"] if form == "jsonl" else data.decode().splitlines()[1].strip('"')) == text


@pytest.mark.parametrize(
    ("form", "column"),
    [
        ("csv", pa.array([[1]])), ("csv", pa.array([{"a": 1}])), ("csv", pa.array([pa.MonthDayNano([1, 2, 3])])),
        ("parquet", pa.array([pa.MonthDayNano([1, 2, 3])])),
    ],
)  # fmt: skip
def test_a_type_that_a_file_cannot_hold_is_refused(form: str, column: pa.Array) -> None:
    with pytest.raises(JobFailed, match=r"cannot hold|which CSV cannot hold"):
        written(form, column)
