"""The guide's page of aggregates: its table has every aggregate, and a job with all of its examples is valid."""

from __future__ import annotations

import re

import pyarrow as pa

from abscli.engine.columns import column_faults
from formats.job.file import parse_topology_bytes
from formats.job.model import Aggregation, Emit
from tests.support.guide.blocks import PAGES

PAGE = (PAGES / "jobs" / "aggregates.md").read_text()
TABLE = PAGE.partition("| output | value | type |")[2].partition("\n\n")[0]
OUTPUTS = re.findall(r"`(\{\w+: [^`]*\})`", TABLE)


def test_every_aggregate_stands_in_the_table_and_its_examples_are_taken() -> None:
    assert {output.split(":")[0].strip("{") for output in OUTPUTS} == set(Aggregation)
    lines = "".join(f"      o{number}: {output}\n" for number, output in enumerate(OUTPUTS))
    job = (
        "version: 1\njob: j\noperators:\n  rows: {source: {type: jsonl, path: x}}\n"
        f"  reduced:\n    from: rows\n    reduce:\n      key: [name]\n{lines}"
    )
    columns = pa.schema([("name", pa.string()), ("price", pa.float64())])
    assert not list(column_faults(parse_topology_bytes(job.encode(), "aggregates.md"), {"rows": columns}))


def test_every_way_to_emit_is_said() -> None:
    text = PAGE.partition("\n## When a reduce emits\n")[2].partition("\n## ")[0]
    assert all(f"| `{emit}`" in text for emit in Emit)
    assert f"| `{Emit.EPOCH}` (default) |" in text
