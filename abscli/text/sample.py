"""Rows that operators put out in a sample of a job: a small table for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from abscli.engine.sampling import Sample, Sampled
from abscli.engine.sinks.json_lines import json_lines
from abscli.text.cells import shortened
from abscli.text.columns import clean, columns, counted, wrapped
from formats.job.model import Kind
from formats.watermark import END, watermark_text

CELL = 40
"""Characters of a value at most; json has all of it."""

LEAST = 6
"""Characters that a column is given at least, before columns are left out."""


def sample_text(sample: Sample, *, width: int) -> str:
    """For people: of each operator how much it put out, its columns with their types, and the first rows."""
    sections = ["\n".join(_operator(one, width)) for one in sample.operators]
    end = "which is all of the input" if sample.ended else "and not all of the input"
    return "\n\n".join([*sections, f"{counted(sample.records, 'record')} read, {end}"]) + "\n"


def _operator(one: Sampled, width: int) -> Iterator[str]:
    verb = "would write" if one.kind is Kind.SINK else "emitted"
    heading = f"{one.operator} ({one.kind}): {verb} {counted(one.emitted, 'row')}"
    if one.skipped:
        heading += f", skipped {counted(one.skipped, 'record')}"
    yield from wrapped(heading, width, "  ")
    if one.columns is not None and one.emitted:
        yield from (f"  {line}".rstrip() for line in _table(one, width - 2))
    if one.waits and not one.emitted and one.error is None and one.watermark != END:
        yield from wrapped(_waiting(one.watermark), width, "    ")
    if one.failure is not None:
        failure = one.failure
        reason = f"{failure['error']}: {failure['message']}, of {shortened(str(failure['record']), 200)}"
        yield from wrapped(reason, width, "    ", "  first skipped: ")
    if one.error is not None:
        yield from wrapped(one.error.message, width, "    ", "  error: ")


def _waiting(watermark: int | None) -> str:
    if watermark is None:
        return "no event time yet: it begins when every file of a source has, or with ordered: true the first"
    return f"event time has come to {watermark_text(watermark)} in what was read: what it waits for is later"


def _table(one: Sampled, width: int) -> list[str]:
    assert one.columns is not None
    names = one.columns.names
    types = [str(kind) for kind in one.columns.types]
    rows = [[_cell(row.get(name)) for name in names] for row in _rows(one)]
    fits = list(range(len(names)))
    limit = CELL
    lines = columns(names, [types, *rows], _align(one), width)
    while max(map(len, lines)) > width and limit > LEAST:
        limit -= 2
        cut = [[shortened(cell, limit) for cell in row] for row in [names, types, *rows]]
        lines = columns(cut[0], cut[1:], _align(one), width)
    while max(map(len, lines)) > width and len(fits) > 1:
        fits.pop()
        cut = [[shortened(row[i], limit) for i in fits] for row in [names, types, *rows]]
        lines = columns(cut[0], cut[1:], _align(one), width)
    if len(fits) < len(names):
        left = len(names) - len(fits)
        lines.append(f"and {counted(left, 'column')} more; -o json has them all")
    return lines


def _align(one: Sampled) -> str:
    assert one.columns is not None
    numbers = ("int", "uint", "float", "double")
    return "".join("r" if str(kind).startswith(numbers) else "l" for kind in one.columns.types)


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return shortened(clean(text), CELL)


def _rows(one: Sampled) -> list[dict[str, Any]]:
    """As JSON has them, by column; of two columns of one name the last."""
    text = b"".join(bytes(piece) for batch in one.batches for piece in json_lines(batch))
    return [msgspec.json.decode(line) for line in text.splitlines()]


def sample_json(sample: Sample) -> dict[str, Any]:
    """The same for programs."""
    return {
        "records": sample.records,
        "ended": sample.ended,
        "operators": [
            {
                "id": one.operator,
                "kind": one.kind.value,
                "emitted": one.emitted,
                "skipped": one.skipped,
                "columns": [{"name": f.name, "type": str(f.type)} for f in one.columns or ()],
                "rows": _rows(one),
                "failure": one.failure,
                "error": None if one.error is None else {"message": one.error.message, "hint": one.error.hint},
            }
            for one in sample.operators
        ],
    }
