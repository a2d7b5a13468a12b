"""Rows of JSON objects, one per record."""

from __future__ import annotations

import contextlib
import json
import math

import pyarrow as pa
import pyarrow.json as pj

from abscli.engine.sources.text_records import Spans, check_objects

_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def parse_objects(records: Spans, schema: pa.Schema) -> pa.Table:
    """Return one row per record, with these columns. Raises ArrowInvalid unless each record is one JSON object."""
    check_objects(records)
    count = len(records.starts)
    if not count:
        return schema.empty_table()
    text = _with_numbers(records, schema)
    options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    table = pj.read_json(pa.BufferReader(text), pj.ReadOptions(use_threads=False, block_size=len(text) + 1), options)
    if table.num_rows != count:
        raise pa.ArrowInvalid("it is more than one JSON object" if count == 1 else "a record has several JSON objects")
    return table.select(schema.names)


def parse_lines(data: bytes, schema: pa.Schema) -> pa.Table:
    """Return one row per line that is not blank. Raises ArrowInvalid unless each of them is one JSON object."""
    return parse_objects(Spans.of_lines(data), schema)


def _with_numbers(records: Spans, schema: pa.Schema) -> bytes:
    """Return the records with numbers in place of the texts `"NaN"`, `"Infinity"` and `"-Infinity"` in float columns.

    Sinks write these texts, since JSON has no such numbers. Arrow reads the numbers, and not the texts.
    """
    floats = [field.name for field in schema if pa.types.is_floating(field.type)]
    if not floats or not any(f'"{name}"'.encode() in records.data for name in _NUMBERS):
        return records.data
    return b"\n".join(_with_numbers_in(record, floats) for record in records.records())


def _with_numbers_in(record: bytes, floats: list[str]) -> bytes:
    if b'NaN"' in record or b'Infinity"' in record:
        with contextlib.suppress(ValueError, RecursionError):  # Arrow reports what is wrong with the record
            row = json.loads(record)
            texts = {name: row[name] for name in floats if name in row and isinstance(row[name], str)}
            numbers = {name: _NUMBERS[text] for name, text in texts.items() if text in _NUMBERS}
            if numbers:
                return json.dumps({**row, **numbers}).encode()
    return record
