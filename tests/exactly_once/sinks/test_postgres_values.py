"""Each pair of an Arrow type and a column type of PostgreSQL keeps all values, or is refused; a real server."""

from __future__ import annotations

import datetime
import decimal
import io
import json
import math
import struct
import uuid
from collections.abc import Callable
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abscli.engine.errors import JobFailed
from abscli.engine.postgres.database import Table
from abscli.engine.sinks.postgres.epochs import columns_of, copy_rows, target
from abscli.engine.sinks.postgres.values import FITS, Column, ColumnCheck, CopyPart, kind_of
from tests.support.postgres import Postgres, execute
from tests.support.values import TYPES

URL = "VALUES_DATABASE"
SPECIAL: dict[str, st.SearchStrategy[str]] = {
    "json": st.lists(st.integers()).map(json.dumps),
    "jsonb": st.lists(st.integers()).map(json.dumps),
    "uuid": st.uuids().map(str),
    "inet": st.ip_addresses(v=4).map(str),
    "cidr": st.ip_addresses(v=4).map(lambda address: f"{address}/32"),
    "xml": st.integers().map(lambda n: f"<n>{n}</n>"),
}
"""Texts of types that do not take every text."""
PAIRS = [
    (type, base)
    for type in TYPES
    for base in sorted(FITS[kind_of(type) or ""])
    if base != "citext"  # an extension, which a server may lack
]


@pytest.fixture
def table(postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Table]:
    """A function that makes a table with a column `v` of a type, in a session with settings that change values."""
    monkeypatch.setenv(URL, postgres_server.url)
    monkeypatch.setenv("PGOPTIONS", "-c timezone=Asia/Tokyo -c datestyle=sql,dmy -c intervalstyle=sql_standard")

    def make(kind: str) -> Table:
        name = f"values_{uuid.uuid4().hex[:8]}"
        execute(postgres_server.url, f"create table {name} (v {kind})")
        return Table("out", name, None, URL, None)

    return make


def put(table: Table, column: pa.Array) -> None:
    """Write a column as the sinks do."""
    file = io.BytesIO()
    part = CopyPart(file, "(memory)", "out", check=ColumnCheck(table))
    part.write(pa.record_batch({"v": column}))
    part.finish()
    with table.connect() as connection:
        copy_rows(connection, target(table), columns_of(file), file)


def read(table: Table) -> list[Any]:
    with table.connect() as connection:
        for statement in ("set timezone to 'UTC'", "set datestyle to 'ISO'", "set intervalstyle to 'postgres'"):
            connection.execute(statement)
        return [value for (value,) in connection.execute(f"select v from {table.name}").fetchall()]


def as_read(value: Any, base: str) -> Any:
    """The value as psycopg has it from a column of this type."""
    if value is None:
        return None
    if base in ("text", "varchar"):
        return str(value).lower() if isinstance(value, bool) else value if isinstance(value, str) else str(value)
    if base in ("json", "jsonb"):
        return json.loads(value)
    if base == "numeric":
        return decimal.Decimal(repr(value)) if isinstance(value, float) else decimal.Decimal(value)
    if base == "timestamptz":
        return value.replace(tzinfo=datetime.UTC)
    if base in ("uuid", "inet", "cidr"):
        return str(value)
    return value


def is_same(read: Any, due: Any) -> bool:
    if isinstance(due, float | decimal.Decimal) and math.isnan(due):
        return math.isnan(read)
    if isinstance(due, decimal.Decimal | str) and read is not None:
        return bool(type(due)(read) == due)
    return bool(read == due)


def fits_in(value: Any, base: str) -> bool:
    bounds = {"int2": 2**15, "int4": 2**31, "int8": 2**63}
    return base not in bounds or value is None or -bounds[base] <= value < bounds[base]


@pytest.mark.parametrize(("type", "base"), PAIRS, ids=lambda value: str(value))
def test_a_column_keeps_all_values(type: pa.DataType, base: str, table: Callable[[str], Table]) -> None:
    values = SPECIAL.get(base, TYPES[type])
    place = table(base)
    number = kind_of(type) in ("double", "float") and base in ("text", "varchar")

    # Few long lists: each example connects three times.
    @settings(max_examples=4, database=None)
    @given(st.lists(st.none() | values, min_size=1, max_size=50))
    def check(values: list[Any]) -> None:
        kept = [value for value in values if fits_in(value, base)]
        if not kept:
            return
        with place.connect() as connection:
            connection.execute(f"truncate {place.name}")
        put(place, pa.array(kept, type))
        got = read(place)
        due = [as_read(value, base) for value in kept]
        if base == "float4":  # of which PostgreSQL shows the shortest text
            got = [None if value is None else struct.unpack("f", struct.pack("f", value))[0] for value in got]
        if number:  # any text of a double that is read back as the same double
            got = [None if text is None else float(text) for text in got]
            due = [None if text is None else float(text) for text in due]
        assert len(got) == len(due)
        assert all(map(is_same, got, due)), (got, due)

    check()


@pytest.mark.parametrize(
    ("type", "kind"),
    [
        (pa.string(), "char(5)"), (pa.string(), "name"), (pa.string(), "date"), (pa.string(), "bytea"),
        (pa.string(), "double precision"), (pa.decimal128(10, 3), "numeric(10,2)"), (pa.float64(), "real"),
        (pa.float64(), "numeric(10,2)"), (pa.int64(), "double precision"), (pa.int64(), "numeric(9,-2)"),
        (pa.timestamp("us"), "timestamp(0)"), (pa.timestamp("us"), "date"), (pa.duration("us"), "interval(0)"),
        (pa.duration("us"), "bigint"), (pa.time64("us"), "time(3)"), (pa.binary(), "text"), (pa.bool_(), "integer"),
        (pa.decimal128(10, 3), "double precision"), (pa.int64(), "cents"), (pa.month_day_nano_interval(), "interval"),
    ],
)  # fmt: skip
def test_a_column_that_would_change_values_is_refused(
    type: pa.DataType, kind: str, table: Callable[[str], Table], postgres_server: Postgres
) -> None:
    execute(postgres_server.url, "drop domain if exists cents cascade", "create domain cents as numeric(9,-2)")
    with pytest.raises(JobFailed, match="does not keep all values of") as refused:
        put(table(kind), pa.array([None], type))
    assert "cast the column" in str(refused.value.hint)


def test_a_domain_and_an_enum_take_what_they_are_made_of(
    table: Callable[[str], Table], postgres_server: Postgres
) -> None:
    execute(
        postgres_server.url, "drop domain if exists whole cascade", "create domain whole as bigint",
        "drop type if exists mood cascade", "create type mood as enum ('good', 'bad')",
    )  # fmt: skip
    for kind, column in (("whole", pa.array([7])), ("mood", pa.array(["bad"]))):
        place = table(kind)
        put(place, column)
        assert read(place) == column.to_pylist()


def test_a_column_that_the_table_lacks_is_named(table: Callable[[str], Table]) -> None:
    place = table("text")
    with pytest.raises(JobFailed, match="has no column 'other'"):
        ColumnCheck(place)(pa.schema({"other": pa.string()}))


@pytest.mark.parametrize(
    "column",
    [pa.array([1_000_001], pa.timestamp("ns")), pa.array([1], pa.time64("ns")), pa.array([1], pa.duration("ns"))],
)
def test_a_fraction_of_a_microsecond_is_refused(column: pa.Array, table: Callable[[str], Table]) -> None:
    kind = {"timestamp": "timestamp", "time": "time", "duration": "interval"}[kind_of(column.type) or ""]
    with pytest.raises(JobFailed, match="would lose data"):
        put(table(kind), column)


@pytest.mark.parametrize("type", [pa.string(), pa.large_string(), pa.string_view()])
def test_trailing_blanks_that_a_column_would_cut_off_are_refused(
    type: pa.DataType, table: Callable[[str], Table]
) -> None:
    place = table("varchar(3)")
    put(place, pa.array(["abc", "ab ", "äöü", "", None], type))
    assert read(place) == ["abc", "ab ", "äöü", "", None]
    with pytest.raises(JobFailed, match=r"takes 3 characters: a text has trailing blanks beyond them"):
        put(place, pa.array(["abc", "abc "], type))
    with pytest.raises(psycopg.Error, match="too long for type character varying"):
        put(place, pa.array(["abcd"], type))
    assert len(read(place)) == 5


def test_a_value_that_is_too_large_is_an_error_of_the_database(table: Callable[[str], Table]) -> None:
    with pytest.raises(psycopg.Error, match="out of range"):
        put(table("smallint"), pa.array([2**15]))


def test_a_column_of_nulls_fits_every_type() -> None:
    assert Column("bytea", False, "bytea", -1).fits(pa.null())
