"""What `abs inspect` shows of a batch of Spark's: the page that all have, and what Spark's own files say of it, which
are settings, sources, and operators with their schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from abscli.text import inspect_epoch
from abscli.text.columns import UNKNOWN, columns, moment, wrapped
from abscli.text.inspect_page import EpochPage
from formats.spark.store import timestamp

SHORT = "spark.sql.streaming."
"""What the names of most settings begin with, left out where they are listed."""


def epoch_text(page: EpochPage, *, width: int = 80, ascii: bool = False) -> str:
    """The page that all have, with Spark's own facts in Spark's words."""
    own = _batch(page.raw, width) if page.raw is not None and not page.narrow else None
    return inspect_epoch.epoch_text(page, width=width, ascii=ascii, own=own)


def _batch(raw: Mapping[str, Any], width: int) -> list[str]:
    """The facts of `SparkStore.raw`."""
    lines: list[str] = []
    form = raw["checkpoint_format"]
    summary = f"{raw['provider'] or UNKNOWN}, codec {raw['codec'] or UNKNOWN}, checkpoint format {form or UNKNOWN}"
    lines += wrapped(summary, width, "    ", "  state store: ")
    mark = raw["watermark"]
    lines += wrapped(f"{_time(mark['batch'])} in the batch, {_time(mark['next'])} after it", width, "    ",
                     "  watermark: ")  # fmt: skip
    readable = "none" if raw["readable"] is None else f"batches {raw['readable'][0]} to {raw['readable'][1]}"
    flight = "nothing" if raw["in_flight"] is None else f"batch {raw['in_flight']}"
    lines += wrapped(f"{readable}; in flight: {flight}", width, "    ", "  state that is there: ")
    for source in raw["sources"]:
        span = f"from {source['start'] or 'the start'} to {source['offset'] or UNKNOWN}"
        lines += wrapped(span, width, "    ", f"  source {source['source']} ({source['kind'] or 'connector'}): ")
    for name, sink in (raw["sinks"] or {}).items():
        state = "in use" if sink.get("isActive") else "no longer in use"
        lines += wrapped(f"{sink.get('providerName') or UNKNOWN}, {state}", width, "    ", f"  sink {name}: ")
    for operator in raw["operators"]:
        lines += _operator(operator, width)
    return [*lines, *_settings(raw["conf"], width)]


def _time(milliseconds: int | None) -> str:
    if milliseconds == 0:
        return "none"
    return moment(timestamp(milliseconds)) if milliseconds is not None else UNKNOWN


def _operator(operator: Mapping[str, Any], width: int) -> Iterator[str]:
    for store in operator["stores"]:
        name = f"operator {operator['id']} ({operator['name'] or UNKNOWN})"
        name += "" if store["name"] == "default" else f", store {store['name']}"
        yield from wrapped(f"{name}: {store['partitions']} partitions", width, "    ", "  ")
        if store["schemas"] is None:
            yield "    its schema cannot be read"
        for schema in store["schemas"] or ():
            family = "" if schema["family"] == "default" else f"{schema['family']}: "
            yield from wrapped(f"{family}{ddl(schema['key'])} -> {ddl(schema['value'])}", width, "      ", "    ")


def _settings(conf: Mapping[str, str] | None, width: int) -> list[str]:
    if not conf:
        return []
    rows = []
    for name in sorted(conf):
        value = conf[name].rpartition(".")[2] if name.endswith("Class") else conf[name]
        rows.append((name.removeprefix(SHORT).removeprefix("spark."), value))
    return ["", *columns(("SETTING KEPT IN THE OFFSETS", "VALUE"), rows, "ll", width)]


def ddl(schema: str) -> str:
    """A Spark type, written as JSON, as `(word string, n bigint)`; what cannot be read stays as it is."""
    try:
        return _type(json.loads(schema))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return schema


_NAMES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}


def _type(schema: Any) -> str:
    if isinstance(schema, str):
        return _NAMES.get(schema, schema)
    kind = schema["type"]
    if kind == "struct":
        return "(" + ", ".join(f"{field['name']} {_type(field['type'])}" for field in schema["fields"]) + ")"
    if kind == "array":
        return f"array<{_type(schema['elementType'])}>"
    if kind == "map":
        return f"map<{_type(schema['keyType'])}, {_type(schema['valueType'])}>"
    return str(kind)
