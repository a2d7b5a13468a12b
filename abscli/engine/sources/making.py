"""The source of a task, by its type."""

from __future__ import annotations

import os
from collections.abc import Iterable

import pyarrow as pa

from abscli.engine.errors import UsageError
from abscli.engine.sources.columns import schema_of
from abscli.engine.sources.contract import Source
from abscli.engine.sources.jsonl import JsonLinesSource, infer_schema
from abscli.engine.sources.line_files import LineFiles
from abscli.engine.sources.splits import find_splits, refuse_strangers
from abscli.engine.sources.text import LINES, TextSource
from formats.ids import TaskId
from formats.job.model import Operator
from formats.view import Position

SOURCE_TYPES = ("text", "jsonl")


def declared_schema(operator: Operator, kept: dict[str, str] | None = None) -> pa.Schema | None:
    """The columns of a source before a file is looked at; None for a jsonl source without a schema.

    kept: what an epoch has kept of them, in place of the topology file. UsageError for a type of column that is none.
    """
    assert operator.connector is not None
    if operator.connector["type"] == "text":
        return LINES
    declared = kept or operator.connector.get("schema")
    return schema_of(declared, f"operator {operator.id}") if declared else None


def make_source(
    operator: Operator,
    index: int,
    directory: str,
    positions: Iterable[Position] | None,
    connector: dict[str, str] | None,
) -> Source:
    """The source of subtask `index`. positions: restored ones, or None to begin; UsageError for unknown types."""
    assert operator.connector is not None
    kind, task = operator.connector["type"], TaskId(operator.id, index)
    if kind not in SOURCE_TYPES:
        raise UsageError(f"operator {operator.id}: no source type {kind!r}", hint=" or ".join(SOURCE_TYPES))
    if positions is not None:
        positions = tuple(positions)
        refuse_strangers(operator, directory, positions)
    splits: list[str] = []
    if positions is None or (kind == "jsonl" and connector is None):
        splits = find_splits(operator, directory)
    files = LineFiles(splits[index :: operator.parallelism], directory, task, positions)
    if kind == "text":
        return TextSource(files)
    schema = declared_schema(operator, connector) or infer_schema(os.path.join(directory, splits[0]))
    return JsonLinesSource(files, schema, task)
