"""Which columns of rows an Iceberg table takes, by their types."""

from __future__ import annotations

import pyarrow as pa
import pytest

from abscli.engine.sinks.staged.columns import ICEBERG

SMALL, LARGE = pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.int64())


@pytest.mark.parametrize(
    ("rows", "table", "agrees"),
    [(SMALL, SMALL, True), (SMALL, LARGE, True), (LARGE, SMALL, False), (SMALL, pa.string(), False)],
)
def test_a_map_widens_only_to_a_map_of_wider_values(rows: pa.DataType, table: pa.DataType, agrees: bool) -> None:
    found = list(ICEBERG.disagreements(pa.schema([("m", rows)]), pa.schema([("m", table)])))
    assert (found == []) is agrees
