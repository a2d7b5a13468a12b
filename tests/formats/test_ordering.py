"""Rows of state in the order of their keys."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.native.state.ordering import key_order

TEXTS = st.lists(st.text(alphabet="ab\x00é", max_size=12), max_size=20)
PREFIXES = st.text(alphabet="ab", max_size=12)


@given(TEXTS, PREFIXES)
def test_texts_stand_in_the_order_that_arrow_gives_them(texts: list[str], prefix: str) -> None:
    column = pa.array([prefix + text for text in texts], pa.string())
    expected = column.take(pc.sort_indices(column))
    assert column.take(pa.array(key_order([column]))) == expected


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_texts_that_differ_before_they_agree_are_ordered_by_their_first_character(kind: pa.DataType) -> None:
    assert key_order([pa.array(["bxa", "axz"], kind)]).tolist() == [1, 0]


def test_a_slice_of_a_column_is_ordered_by_its_own_rows() -> None:
    column = pa.array(["z", "b", "a", "c"])[1:]
    assert key_order([column]).tolist() == [1, 0, 2]
