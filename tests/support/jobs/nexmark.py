"""NEXMark's queries as they are shipped, on so many events, and DuckDB's answers to the same questions."""

from __future__ import annotations

import importlib
import json
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from abscli.engine.sources.made import nexmark
from formats.job.model import Kind, Topology
from tests.support.imports import ROOT

PLACE = ROOT / "abscli" / "examples" / "nexmark"
KEYS: dict[str, str] = {"q4": "category"}
"""Of queries whose answer changes as events come: by what the last row counts."""

Rows = Counter[str]


def query_job(query: str, events: int, *, tasks: int = 2, **options: object) -> Topology:
    """The job of a query. options: of its sources beside the number of events."""
    topology: Topology = importlib.import_module(f"abscli.examples.nexmark.{query}").job.topology
    operators = [
        msgspec.structs.replace(
            op, parallelism=tasks,
            **({"connector": {**(op.connector or {}), "total": events, **options}} if op.kind is Kind.SOURCE else {}),
        )
        for op in topology.operators
    ]  # fmt: skip
    return msgspec.structs.replace(topology, operators=tuple(operators))


def write_events(folder: Path, events: int) -> None:
    """All events of each table as a Parquet file."""
    for table in nexmark.SCHEMAS:
        numbers = np.arange(nexmark.rows_among(events, table) or 0, dtype=np.int64)
        rows = nexmark.maker(table, seed=0, rate=nexmark.RATE)(numbers)
        pq.write_table(pa.Table.from_batches([rows]), folder / f"{table}.parquet")


def answer(query: str, events: Path) -> Rows:
    """What DuckDB answers of these files."""
    with duckdb.connect() as database:
        for table in nexmark.SCHEMAS:
            database.execute(f"CREATE VIEW {table} AS FROM '{events / table}.parquet'")
        result = database.execute((PLACE / f"{query}.sql").read_text())
        names = [column[0] for column in result.description]
        return counted(dict(zip(names, row, strict=True)) for row in result.fetchall())


def shown(query: str, folder: Path) -> Rows:
    """What a query's sink shows."""
    parts = sorted(folder.glob("part-*.jsonl"), key=lambda path: path.name.split("-")[::-1])  # by epoch, then by task
    rows = [json.loads(line) for path in parts for line in path.read_text().splitlines()]
    if query in KEYS:
        rows = list({row[KEYS[query]]: row for row in rows}.values())
    return counted(rows)


def counted(rows: Iterable[dict[str, Any]]) -> Rows:
    return Counter(json.dumps({name: _as_json(value) for name, value in row.items()}) for row in rows)


def _as_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    return float(f"{value:.12g}") if isinstance(value, float) else value
