"""Types of columns, as job files and stores have them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from abscli.engine.errors import UsageError

TYPES = {
    "string": pa.string(), "bool": pa.bool_(), "int": pa.int64(), "int64": pa.int64(), "int32": pa.int32(),
    "long": pa.int64(), "float": pa.float64(), "double": pa.float64(), "float64": pa.float64(),
    "timestamp": pa.timestamp("us"), "timestamp[us]": pa.timestamp("us"), "timestamp[s]": pa.timestamp("s"),
    "timestamp[ns]": pa.timestamp("ns"), "date": pa.date32(), "date32[day]": pa.date32(), "null": pa.null(),
}  # fmt: skip


def schema_of(types: dict[str, Any], where: str) -> pa.Schema:
    """Columns of these types; UsageError for one that is none."""
    fields = []
    for name, kind in types.items():
        if kind not in TYPES:
            hint = f"use one of {', '.join(TYPES)}"
            raise UsageError(f"{where}: unknown type {kind!r} of column {name!r}", hint=hint)
        fields.append(pa.field(name, TYPES[kind]))
    return pa.schema(fields)


def chosen(schema: pa.Schema, wanted: list[str] | None, where: str) -> pa.Schema:
    """These columns of a file, in this order; None: all. UsageError for one that it has not."""
    if wanted is None:
        return schema
    for name in wanted:
        if name not in schema.names:
            raise UsageError(f"{where} has no column {name!r}", hint=f"available columns: {', '.join(schema.names)}")
    return pa.schema([schema.field(name) for name in wanted])
