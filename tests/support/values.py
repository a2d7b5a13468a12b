"""Arrow types with values of them, for tests of what sinks write."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

TEXTS = st.text(st.characters(blacklist_characters="\x00", blacklist_categories=("Cs",)), max_size=20)
MOMENTS = st.datetimes(datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 30))
DOUBLES = st.floats(allow_subnormal=True)
SINGLES = st.floats(width=32, allow_subnormal=True)


def numbers(type: pa.DataType) -> st.SearchStrategy[int]:
    bits, is_unsigned = type.bit_width, pa.types.is_unsigned_integer(type)
    return st.integers(0 if is_unsigned else -(2 ** (bits - 1)), 2 ** (bits - (not is_unsigned)) - 1)


def decimals(precision: int, scale: int) -> st.SearchStrategy[decimal.Decimal]:
    return st.integers(-(10**precision) + 1, 10**precision - 1).map(
        lambda n: decimal.Decimal(n).scaleb(-scale, decimal.Context(prec=precision))
    )


TYPES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): numbers(pa.int8()),
    pa.int16(): numbers(pa.int16()),
    pa.int32(): numbers(pa.int32()),
    pa.int64(): numbers(pa.int64()),
    pa.uint8(): numbers(pa.uint8()),
    pa.uint16(): numbers(pa.uint16()),
    pa.uint32(): numbers(pa.uint32()),
    pa.uint64(): numbers(pa.uint64()),
    pa.float32(): SINGLES,
    pa.float64(): DOUBLES,
    pa.decimal128(20, 5): decimals(20, 5),
    pa.decimal256(50, 0): decimals(50, 0),
    pa.string(): TEXTS,
    pa.large_string(): TEXTS,
    pa.string_view(): TEXTS,
    pa.date32(): MOMENTS.map(lambda moment: moment.date()),
    pa.date64(): MOMENTS.map(lambda moment: moment.date()),
    pa.time32("s"): st.times().map(lambda time: time.replace(microsecond=0)),
    pa.time64("us"): st.times(),
    pa.time64("ns"): st.times(),
    pa.timestamp("s"): MOMENTS.map(lambda moment: moment.replace(microsecond=0)),
    pa.timestamp("us"): MOMENTS,
    pa.timestamp("us", "Europe/Berlin"): MOMENTS,
    pa.duration("s"): st.integers(-(10**9), 10**9).map(lambda n: datetime.timedelta(seconds=n)),
    pa.duration("us"): st.integers(-(10**15), 10**15).map(lambda n: datetime.timedelta(microseconds=n)),
    pa.duration("ns"): st.integers(-(10**12), 10**12).map(lambda n: datetime.timedelta(microseconds=n)),
    pa.binary(): st.binary(max_size=20),
    pa.large_binary(): st.binary(max_size=20),
    pa.binary_view(): st.binary(max_size=20),
    pa.binary(4): st.binary(min_size=4, max_size=4),
}
"""Arrow types and their values as Python has them."""
