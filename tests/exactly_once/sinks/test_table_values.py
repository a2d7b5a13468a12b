"""Each Arrow type keeps all values in Delta and Iceberg tables, or is refused before a manifest names the rows."""

from __future__ import annotations

import datetime
import io
import math
import tempfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abscli.engine.errors import JobFailed
from abscli.engine.sinks.delivered.targets import target_of
from abscli.engine.sinks.part_files import PART_FILES
from abscli.engine.sinks.staged.contract import Target
from formats.job.model import Kind
from formats.storage import MemoryStorage
from tests.support.jobs.deliveries import ATTEMPT, delivered
from tests.support.jobs.small import operator
from tests.support.values import TYPES

NESTED: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.list_(pa.int16()): st.lists(st.none() | st.integers(-(2**15), 2**15 - 1), max_size=3),
    pa.large_list(pa.string()): st.lists(st.none() | TYPES[pa.string()], max_size=3),
    pa.map_(pa.string(), pa.float64()): st.dictionaries(
        TYPES[pa.string()], st.none() | st.floats(allow_nan=False), max_size=3
    ).map(lambda pairs: list(pairs.items())),
    pa.struct([("a", pa.uint32()), ("b", pa.binary())]): st.fixed_dictionaries(
        {"a": st.none() | st.integers(0, 2**32 - 1), "b": st.none() | st.binary(max_size=5)}
    ),
    pa.dictionary(pa.int32(), pa.string()): TYPES[pa.string()],
    pa.float16(): st.floats(width=16),
    pa.null(): st.none(),
    pa.duration("ms"): st.integers(0, 9).map(lambda n: datetime.timedelta(milliseconds=n)),
}
WITHOUT_COLUMN = {pa.decimal256(50, 0), pa.null(), *(type for type in (TYPES | NESTED) if pa.types.is_duration(type))}
REFUSED = {
    "delta": {*WITHOUT_COLUMN, *(type for type in TYPES if pa.types.is_time(type))},
    "iceberg": WITHOUT_COLUMN,
}
"""Types that a new table cannot have."""
EPOCH = 1
NOON = datetime.datetime(2026, 1, 2, 12)


def read_delta(folder: Path) -> list[Any]:
    from deltalake import DeltaTable

    return list(DeltaTable(str(folder / "out")).to_pyarrow_table()["v"].to_pylist())


def read_iceberg(folder: Path) -> list[Any]:
    from pyiceberg.catalog import load_catalog

    lake = folder / "lake"
    catalog = load_catalog("default", type="sql", uri=f"sqlite:///{lake}/catalog.db", warehouse=str(lake))
    return list(catalog.load_table("shop.out").scan().to_arrow()["v"].to_pylist())


CONNECTORS = {
    "delta": ({"type": "delta", "path": "out"}, read_delta),
    "iceberg": ({"type": "iceberg", "table": "shop.out", "warehouse": "lake"}, read_iceberg),
}


def made(kind: str, folder: Path) -> tuple[Target, Callable[[Path], list[Any]]]:
    connector, read = CONNECTORS[kind]
    return target_of(operator("out", Kind.SINK, 1, connector=connector), "job", str(folder)), read


def staged(column: pa.Array) -> io.BytesIO:
    """The bytes of a part with one column."""
    file = io.BytesIO()
    part = PART_FILES["parquet"](file, "(memory)", "out")
    part.write(pa.record_batch({"v": column}))
    part.finish()
    file.seek(0)
    return file


def is_same(read: Any, due: Any) -> bool:
    return bool(read == due or (isinstance(due, float) and math.isnan(due) and math.isnan(read)))


KEPT = [(kind, type) for kind in CONNECTORS for type in TYPES | NESTED if type not in REFUSED[kind]]


@pytest.mark.parametrize(("kind", "type"), KEPT, ids=str)
def test_a_table_keeps_all_values(kind: str, type: pa.DataType) -> None:
    pytest.importorskip({"delta": "deltalake", "iceberg": "pyiceberg"}[kind])

    @settings(max_examples=3)
    @given(st.lists(st.none() | (TYPES | NESTED)[type], min_size=1, max_size=40))
    def check(values: list[Any]) -> None:
        column = pa.array(values, type)
        with tempfile.TemporaryDirectory() as folder:
            target, read = made(kind, Path(folder))
            rows = staged(column)
            target.take(ATTEMPT, [], 0)
            target.try_rows(rows)
            target.publish(delivered(MemoryStorage(), EPOCH, rows.getvalue()))
            got = read(Path(folder))
        assert len(got) == len(values)
        assert all(map(is_same, got, column.to_pylist())), (got, column.to_pylist())

    check()


@pytest.mark.parametrize("kind", list(CONNECTORS))
def test_types_that_a_new_table_cannot_have_are_refused_before_the_start_and_before_a_manifest(
    kind: str, tmp_path: Path
) -> None:
    pytest.importorskip({"delta": "deltalake", "iceberg": "pyiceberg"}[kind])
    target, _ = made(kind, tmp_path)
    for type in REFUSED[kind]:
        column = pa.nulls(1, type)
        (unmet,) = target.unmet(pa.schema([("v", type)]))
        assert f"has no type for v ({type})" in unmet.message
        with pytest.raises(JobFailed, match="has no type for v"):
            target.try_rows(staged(column))


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        (pa.int32(), pa.array([1.5])), (pa.int32(), pa.array([2**40])), (pa.float32(), pa.array([0.1])),
        (pa.int64(), pa.array(["12"])), (pa.string(), pa.array([12])), (pa.date32(), pa.array([NOON])),
        (pa.timestamp("us"), pa.array([1], pa.timestamp("ns"))), (pa.timestamp("us", "UTC"), pa.array([NOON])),
        (pa.decimal128(5, 2), pa.array([Decimal("1.234")])), (pa.int32(), pa.array([2**31], pa.uint32())),
        (pa.bool_(), pa.array([1])), (pa.string(), pa.array([b"x"])),
    ],
    ids=lambda value: str(value.type if isinstance(value, pa.Array) else value),
)  # fmt: skip
@pytest.mark.parametrize("kind", list(CONNECTORS))
def test_a_column_of_another_type_never_changes_a_value(
    kind: str, table: pa.DataType, rows: pa.Array, tmp_path: Path
) -> None:
    """The rows are refused before a manifest names them."""
    pytest.importorskip({"delta": "deltalake", "iceberg": "pyiceberg"}[kind])
    first, _ = made(kind, tmp_path)
    first.take(ATTEMPT, [], 0)
    first.publish(delivered(MemoryStorage(), EPOCH, staged(pa.nulls(1, table)).getvalue()))
    target, read = made(kind, tmp_path)
    with pytest.raises(JobFailed, match="column v"):
        target.try_rows(staged(rows))
    target.take(ATTEMPT, [], 0)
    with pytest.raises(JobFailed):
        target.publish(delivered(MemoryStorage(), EPOCH + 1, staged(rows).getvalue()))
    assert read(tmp_path) == [None]
