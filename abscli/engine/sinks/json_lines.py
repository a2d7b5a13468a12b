"""Rows as JSON lines: columns in order, nulls kept, floats that are not finite by name."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from formats.values import name_of

SLICE_BYTES = 64 << 20
"""Of a batch at once: a column of text cannot hold more than 2 GiB."""

DATE, SECONDS, MOMENT = len("2026-01-01"), len("2026-01-01T12:00:00"), len("2026-01-01T12:00:00.000000")
"""Characters."""

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""Units of time per second."""

FIRST_SECOND, END_SECOND = -62_135_596_800, 253_402_300_800
"""Of the years 1 to 9999, which Python's times have, since 1970."""

_encoder = msgspec.json.Encoder()


def json_lines(batch: pa.RecordBatch) -> Iterator[bytes | memoryview]:
    """The lines, in pieces that follow each other; each line ends with a newline."""
    rows = max(1, batch.num_rows * SLICE_BYTES // max(1, batch.nbytes))
    for start in range(0, batch.num_rows, rows):
        piece = batch.slice(start, rows)
        yield _joined(piece) or _encoder.encode_lines(_rows(piece))


def _joined(batch: pa.RecordBatch) -> memoryview | None:
    """All lines, made column by column, which takes a fifth of the time; None where that cannot be."""
    names = batch.schema.names
    if not names or len(set(names)) < len(names):
        return None
    before = "{"
    pieces: list[pa.Array | str] = []
    for name, column in zip(names, batch.columns, strict=True):
        value = _plain(column)
        if value is None:
            return None
        pieces += [f"{before}{_encoder.encode(name).decode()}:", value]
        before = ","
    lines = pc.binary_join_element_wise(*pieces, "}\n", "")
    return memoryview(_characters(lines).data)


def _plain(column: pa.Array) -> pa.StringArray | None:
    """The values as JSON has them; None where they are of another kind, or need more than that."""
    if pa.types.is_timestamp(column.type):
        written = _moments(column)
    elif pa.types.is_float32(column.type) or pa.types.is_float64(column.type):
        written = _numbers(column)
    elif pa.types.is_string(column.type):
        text = _characters(column)
        if bool(((text < 0x20) | (text == ord('"')) | (text == ord("\\"))).any()):
            return None
        written = pc.binary_join_element_wise('"', column, '"', "")
    elif pa.types.is_decimal(column.type):
        written = pc.binary_join_element_wise('"', column.cast(pa.string()), '"', "")
    elif pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
        written = column.cast(pa.string())
    else:
        return None
    return pc.fill_null(written, "null") if written is not None and written.null_count else written


def _numbers(column: pa.FloatArray) -> pa.StringArray | None:
    """Floats with as many digits as they need; None where one is not finite."""
    if not pc.all(pc.fill_null(pc.is_finite(column), True)).as_py():
        return None
    return pa.array(_encoder.encode(column.to_pylist())[1:-1].split(b","), pa.string())


def _moments(column: pa.TimestampArray) -> pa.StringArray | None:
    """Times in ISO 8601, with as much of a second as a time has: nothing, microseconds or nanoseconds. None where they
    are in a zone that is not UTC, or beyond the years that Python's times have."""
    unit, zone = column.type.unit, column.type.tz
    per_second = PER_SECOND[unit]
    times = column.cast(pa.int64())
    bounds = pc.min_max(times)
    if zone not in (None, "UTC") or not (
        FIRST_SECOND * per_second <= (bounds["min"].as_py() or 0)
        and (bounds["max"].as_py() or 0) < END_SECOND * per_second
    ):
        return None
    times = times.fill_null(0)
    # Of one width: "2026-01-01 12:00:00.000000"
    finest = pa.timestamp("ns" if unit == "ns" else "us")
    text = times.cast(pa.timestamp(unit)).cast(finest).cast(pa.string())
    characters = _characters(text).reshape(len(text), -1).copy()
    characters[:, DATE] = ord("T")

    def cut_at(width: int) -> pa.StringArray:
        return pc.binary_join_element_wise('"', _of_width(characters[:, :width]), '"' if zone is None else 'Z"', "")

    written = cut_at(characters.shape[1])
    if unit == "ns":
        written = pc.if_else(_are_multiples(times, 1000), cut_at(MOMENT), written)
    written = pc.if_else(_are_multiples(times, per_second), cut_at(SECONDS), written)
    return pc.if_else(column.is_valid(), written, None)


def _are_multiples(numbers: pa.Int64Array, of: int) -> pa.BooleanArray:
    return pc.equal(pc.multiply(pc.divide(numbers, of), of), numbers)


def _of_width(characters: np.ndarray[Any, np.dtype[np.uint8]]) -> pa.StringArray:
    """Text, a row a value."""
    count, width = characters.shape
    offsets = np.arange(count + 1, dtype=np.int32) * width
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(characters.tobytes()))


def _characters(column: pa.StringArray) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The bytes of all values, one behind the other, without a copy."""
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int32)[column.offset : column.offset + len(column) + 1]
    if data is None:
        return np.empty(0, dtype=np.uint8)
    return np.frombuffer(data, dtype=np.uint8)[bounds[0] : bounds[-1]]


def _rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows as JSON has them: a float that is not finite by its name, since null is another value (and key)."""
    try:
        rows: list[dict[str, Any]] = batch.to_pylist()
    except (OverflowError, ValueError):
        names, columns = batch.schema.names, [_values(column) for column in batch.columns]
        rows = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_floating(column.type):
            finite = pc.fill_null(pc.is_finite(column.cast(pa.float64())), True)
            odd = np.flatnonzero(~finite.to_numpy(zero_copy_only=False))
        else:
            may_be_odd = pa.types.is_nested(column.type) or (pa.types.is_timestamp(column.type) and column.type.tz)
            odd = np.arange(len(rows) if may_be_odd else 0)
        for i in odd.tolist():
            rows[i][name] = _named(rows[i][name])
    return rows


def _values(column: pa.Array) -> list[Any]:
    """Return the values of a column; times that Python does not have, of other years or in nanoseconds, as text that is
    as its own are written.

    Raises OverflowError for those that Arrow does not write either, and for nested ones; ValueError for nested ones in
    nanoseconds.
    """
    if pa.types.is_duration(column.type):
        return iso_durations(column)
    is_time = pa.types.is_timestamp(column.type) or pa.types.is_date(column.type) or pa.types.is_time(column.type)
    return [_time(value) if is_time else value.as_py() for value in column]


def iso_durations(column: pa.DurationArray) -> list[str | None]:
    """Return durations in ISO 8601, as `-P1DT0.5S`."""
    per_second, counts = PER_SECOND[column.type.unit], column.cast(pa.int64()).to_pylist()
    return [None if count is None else _iso_duration(count, per_second) for count in counts]


def _iso_duration(count: int, per_second: int) -> str:
    seconds, part = divmod(abs(count), per_second)
    days, seconds = divmod(seconds, 86_400)
    fraction = f".{part:0{len(str(per_second)) - 1}}".rstrip("0") if part else ""
    time = f"T{seconds}{fraction}S" if seconds or part else ""
    return f"{'-' if count < 0 else ''}P{f'{days}D' if days or not time else ''}{time}"


def _time(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        zoned = pa.types.is_timestamp(value.type) and value.type.tz is not None
        text = value.cast(pa.timestamp(value.type.unit, "UTC") if zoned else value.type).cast(pa.string()).as_py()
        if text.startswith("<"):
            raise
        seconds, _, fraction = text.rstrip("Z").partition(".")
        point = f".{fraction:0<6}" if fraction.strip("0") else ""
        return f"{seconds.replace(' ', 'T')}{point}{'Z' if zoned else ''}"


def _named(value: Any) -> Any:
    """Return a value in which floats that are not finite are named, at any depth.

    Times with an offset of seconds, as zones had before 1900, are given in UTC: the encoder would cut the seconds off.
    """
    if isinstance(value, datetime.datetime) and (offset := value.utcoffset()) is not None:
        return value.astimezone(datetime.UTC) if offset.seconds % 60 else value
    if isinstance(value, float):
        return value if math.isfinite(value) else name_of(value)
    if isinstance(value, dict):
        return {key: _named(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_named(item) for item in value]
    return value
