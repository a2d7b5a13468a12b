"""What a sink writes of rows: the same bytes, whichever way is the quickest for their columns."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abscli.engine.sinks import json_lines as module
from abscli.engine.sinks.json_lines import json_lines

TEXT = st.characters(exclude_categories=["Cs"])
KINDS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): st.text(TEXT) | st.sampled_from(['"', "\\", "\n", "\x00", "ü", "𝄞"]),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.int8(): st.integers(-128, 127),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.bool_(): st.booleans(),
    pa.float64(): st.floats(allow_nan=False, allow_infinity=False),
    pa.float32(): st.floats(allow_nan=False, allow_infinity=False, width=32),
    **{
        pa.timestamp(unit, zone): st.integers(-62_135_500_000 * per, 253_402_200_000 * per) | st.just(0)
        | st.integers(1_700_000_000, 1_800_000_000).map(per.__mul__)
        for unit, per in (("s", 1), ("ms", 10**3), ("us", 10**6)) for zone in (None, "UTC", "+02:00")
    },
    pa.date32(): st.dates(),
    **{
        pa.decimal128(20, scale): st.decimals(allow_nan=False, allow_infinity=False, places=max(scale, 0)).filter(
            lambda value: abs(value) < 10**8
        )
        for scale in (0, 3, 10)
    },
    pa.list_(pa.int64()): st.lists(st.integers(-5, 5), max_size=3),
}
NAMES = st.lists(st.text(TEXT, max_size=4), unique=True, max_size=4)


def written(batch: pa.RecordBatch) -> bytes:
    return b"".join(bytes(piece) for piece in json_lines(batch))


@given(NAMES, st.data())
def test_lines_are_what_an_encoder_makes_of_each_row(names: list[str], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 5))
    skipped = data.draw(st.integers(0, 2))
    kinds = [data.draw(st.sampled_from(list(KINDS))) for _ in names]
    columns = [
        pa.array(data.draw(st.lists(st.none() | KINDS[kind], min_size=count + skipped, max_size=count + skipped)), kind)
        for kind in kinds
    ]
    batch = pa.record_batch(columns, names=names).slice(skipped)
    if not names:
        batch = pa.RecordBatch.from_pylist([{}] * count)
    assert written(batch) == msgspec.json.Encoder().encode_lines(batch.to_pylist())


def test_a_batch_of_no_rows_is_nothing() -> None:
    assert written(pa.record_batch([pa.array([], pa.string())], names=["word"])) == b""


def test_a_large_batch_is_written_in_pieces_of_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLICE_BYTES", 1000)
    batch = pa.record_batch([pa.array([f"word {i}" for i in range(500)]), pa.array(range(500))], names=["word", "n"])
    pieces = [bytes(piece) for piece in json_lines(batch)]
    assert len(pieces) > 5
    assert all(piece.endswith(b"}\n") for piece in pieces)
    assert [json.loads(line) for line in b"".join(pieces).splitlines()] == batch.to_pylist()


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_the_first_and_the_last_time_are_written(zone: str | None) -> None:
    bounds = [-62_135_596_800_000_000, 253_402_300_799_999_999, None]
    batch = pa.record_batch([pa.array(bounds, pa.timestamp("us", zone))], names=["at"])
    end = "" if zone is None else "Z"
    assert [json.loads(line)["at"] for line in written(batch).splitlines()] == [
        f"0001-01-01T00:00:00{end}", f"9999-12-31T23:59:59.999999{end}", None,
    ]  # fmt: skip


def test_floats_that_are_not_finite_are_named() -> None:
    batch = pa.record_batch([pa.array([1.5, math.nan, None, -math.inf])], names=["x"])
    assert [json.loads(line)["x"] for line in written(batch).splitlines()] == [1.5, "NaN", None, "-Infinity"]


SECONDS = [253_402_300_799, 253_402_300_800, -62_135_596_801, None]
"""The last of the year 9999, the one behind it, that before the year 1."""


def test_times_of_years_that_python_does_not_have_are_written_as_others_are() -> None:
    """The window of a row whose time stands for never, 9999-12-31T23:59:59, ends a second later."""
    batch = pa.record_batch(
        [
            pa.array([None if second is None else second * 10**6 + 5 for second in SECONDS], pa.timestamp("us")),
            pa.array(SECONDS, pa.timestamp("s", "Europe/Berlin")),
            pa.array([2_932_896, 2_932_897, -719_163, None], pa.date32()),
        ],
        names=["at", "there", "day"],
    )
    rows = [json.loads(line) for line in written(batch).splitlines()]
    assert [row["at"] for row in rows] == [
        "9999-12-31T23:59:59.000005", "10000-01-01T00:00:00.000005", "0000-12-31T23:59:59.000005", None,
    ]  # fmt: skip
    assert [row["there"] for row in rows][1:] == ["10000-01-01T00:00:00Z", "0000-12-31T23:59:59Z", None]
    assert [row["day"] for row in rows] == ["9999-12-31", "10000-01-01", "0000-12-31", None]


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
@pytest.mark.parametrize("beside", [None, [1]])
def test_nanoseconds_are_written_where_a_time_has_any(zone: str | None, beside: list[int] | None) -> None:
    """Files that others have written have such times; a list beside them is written in another way."""
    ns = [1_700_000_000_000_000_001, 1_700_000_000_000_001_000, 1_700_000_000_000_000_000, -1, None]
    batch = pa.record_batch([pa.array(ns, pa.timestamp("ns", zone)), pa.array([beside] * 5)], names=["at", "beside"])
    fractions = [".000000001", ".000001", "", ".999999999"]
    for row, fraction in zip(map(json.loads, written(batch).splitlines()), fractions, strict=False):
        seconds = "1969-12-31T23:59:59" if fraction == ".999999999" else "2023-11-14T22:13:20"
        at = datetime.fromisoformat(row["at"].replace(fraction, ""))
        assert at.astimezone(UTC) == datetime.fromisoformat(f"{seconds}+00:00") if zone else at.isoformat() == seconds
        assert fraction in row["at"]
    assert json.loads(written(batch).splitlines()[-1])["at"] is None


def test_times_that_nobody_can_write_are_an_error() -> None:
    with pytest.raises(OverflowError):
        written(pa.record_batch([pa.array([2**62], pa.timestamp("s"))], names=["at"]))
