"""What `abs state` shows: the states of an epoch, or rows of one of them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from abscli.text.columns import columns, counted, not_shown, number, size, wrapped
from formats.values import plain
from formats.version import FORMAT_VERSION
from formats.view import StateFacts

if TYPE_CHECKING:
    import pyarrow as pa

    from formats.query.exported import Exported

CELL = 60
"""Characters of a value that a table shows; the other forms have it whole."""

CALENDAR = 60_000_000_000_000_000
"""Microseconds before and after 1970 within which a time has a date, about."""

HISTORY_SPARE = ("__triggered", "__present")
"""What a narrow terminal does without of a key's history."""


def header(store: str, format: str, epoch: int, states: Sequence[StateFacts]) -> dict[str, Any]:
    """`abs.state` without rows: the states that the epoch has."""
    return {
        "schema": "abs.state",
        "version": FORMAT_VERSION,
        "store": store,
        "format": format,
        "epoch": epoch,
        "states": [msgspec.to_builtins(state) for state in states],
        "operator": None,
        "state": None,
        "columns": None,
        "count": None,
        "more": None,
        "out": None,
        "rows": None,
        "written": None,
    }


def described(schema: pa.Schema) -> list[dict[str, str]]:
    """Columns by name and type."""
    return [{"name": field.name, "type": str(field.type)} for field in schema]


def with_moments(
    schema: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Rows in which the column that says when a key is due is a time; null where it is not due, or at no such time."""
    import pyarrow as pa

    from formats.watermark import DUE

    at = schema.get_field_index(DUE)
    if at < 0 or not pa.types.is_int64(schema.field(at).type):
        return schema, batches
    shown = schema.set(at, schema.field(at).with_type(pa.timestamp("us", "UTC")))
    return shown, (_with_moment(batch, shown, at) for batch in batches)


def _with_moment(batch: pa.RecordBatch, schema: pa.Schema, at: int) -> pa.RecordBatch:
    import pyarrow as pa
    import pyarrow.compute as pc

    due = batch.column(at)
    has_date = pc.and_(pc.greater(due, -CALENDAR), pc.less(due, CALENDAR))
    moments = pc.if_else(has_date, due, pa.scalar(None, due.type)).cast(schema.field(at).type)
    return pa.record_batch([moments if i == at else column for i, column in enumerate(batch.columns)], schema=schema)


def row_items(batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    """Rows as JSON has them, one at a time."""
    for batch in batches:
        for row in batch.to_pylist():
            yield {name: plain(value) for name, value in row.items()}


def exported_text(folder: str, written: Sequence[Exported], width: int) -> str:
    """The states that were written, as a table, and why some were not."""
    lines = wrapped(f"{counted(sum(one.rows for one in written), 'row')} written to {folder}", width)
    rows = [
        (one.operator, one.state or "-", number(one.rows), size(one.bytes), os.path.basename(one.file or "-"))
        for one in written
    ]
    lines += ["", *columns(("OPERATOR", "STATE", "ROWS", "BYTES", "FILE"), rows, "llrrl", width)]
    for one in written:
        if one.problem:
            lines += wrapped(f"{one.operator} {one.state or ''}: {one.problem}", width, "  ")
    return "\n".join(lines) + "\n"


def states_text(store: str, epoch: int, states: Sequence[StateFacts], width: int) -> str:
    """The states as a table."""
    lines = wrapped(f"Epoch {epoch} of {store}", width)
    if not states:
        return "\n".join([*lines, "", "No state."]) + "\n"
    rows = [
        (s.operator, s.name or "-", s.kind, ", ".join(s.key) or "-", number(s.rows), size(s.bytes)) for s in states
    ]
    lines += ["", *columns(("OPERATOR", "STATE", "KIND", "KEY", "ROWS", "BYTES"), rows, "llllrr", width)]
    for state in states:
        if state.opaque:
            lines += wrapped(f"{state.operator} {state.name or ''}: {state.opaque}", width, "  ")
    return "\n".join(lines) + "\n"


def rows_text(rows: Sequence[dict[str, Any]], schema: pa.Schema, more: bool, width: int) -> str:
    """Rows as a table; numbers to the right."""
    if not rows:
        return "No rows.\n"
    align = "".join("r" if _is_number(field) else "l" for field in schema)
    # An epoch that has no such key has no values, which null would be.
    cells = [
        tuple(
            "" if row.get("__present") is False and not field.name.startswith("__") else _cell(row[field.name])
            for field in schema
        )
        for row in rows
    ]
    names = [field.name for field in schema]
    # What a history has of each epoch besides its number: the keys and values are what was asked for.
    spare = [name for name in HISTORY_SPARE if name in names]
    lines = columns(names, cells, align, width, spare) + not_shown(names, cells, width, spare)
    if more:
        lines.append(f"... and more than these {len(rows)}; --limit shows more of them, -o ndjson and --out all")
    return "\n".join(lines) + "\n"


def _is_number(field: pa.Field) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(field.type) or pa.types.is_floating(field.type) or pa.types.is_decimal(field.type))


def _cell(value: Any) -> str:
    if value is None:
        return "null"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= CELL else text[: CELL - 1] + "…"


