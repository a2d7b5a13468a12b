"""What may stand under `source` and `sink`: the options of each type of connector."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any

from formats.job.event_time import EVENT_TIME, duration
from formats.job.expressions import BadExpression, parse_expression
from formats.job.identifiers import clipped
from formats.job.kafka import Start
from formats.job.locations import BROKERS, CATALOG, GLOB, NAME, PLACE, check_options
from formats.job.model import Kind
from formats.user_file import values as read
from formats.user_file.mistakes import Mistakes
from formats.user_file.nodes import Mapping, Node, Scalar, Sequence, shown
from formats.user_file.values import Record, Schema, Shape, one_of, shape


class TableWrites(StrEnum):
    """How rows come into a table."""

    TWO_PHASE = "two-phase"
    UPSERT = "upsert"


_FILE: dict[str, Shape[Any]] = {"type": NAME, "path": PLACE, "deterministic": read.boolean}
_TABLE: dict[str, Shape[Any]] = {
    "type": NAME, "table": NAME, "schema": NAME, "url_env": NAME, "service": NAME,
    "mode": read.one_of(TableWrites), "key": read.columns, "deterministic": read.boolean,
}  # fmt: skip
"""No password, and no URL that may have one: those are kept with the job in every store."""
_STDOUT: dict[str, Shape[Any]] = {"type": NAME, "row_id": NAME, "deterministic": read.boolean}
_SOURCE_FILE: dict[str, Shape[Any]] = {**_FILE, "path": GLOB, "follow": read.boolean, "every": duration}
_TYPES: Schema = {"type": "object", "minProperties": 1, "additionalProperties": read.string.reference()}


@shape(None, description="Column to type.", **_TYPES)
def _types(node: Node, label: str, mistakes: Mistakes) -> None:
    columns = read.mapping(node, label, mistakes)
    if columns is None:
        return
    if not columns.pairs:
        mistakes.add(node, f"{label} names no column", "leave it out to take the columns from the first file")
    for key, value in columns.pairs.values():
        read.string.read(key, f"{label}: a column", mistakes)
        read.string.read(value, f"{label}: the type of {shown(key.text)}", mistakes)


_CHOSEN: dict[str, Shape[Any]] = {**_SOURCE_FILE, "columns": read.columns, "event_time": EVENT_TIME}


_DELIMITER = r"^[\t -!#-~]$"


@shape(None, type="string", pattern=_DELIMITER)
def _delimiter(node: Node, label: str, mistakes: Mistakes) -> None:
    text = node.value if isinstance(node, Scalar) else None
    if not isinstance(text, str) or len(text) != 1 or not re.match(_DELIMITER, text):
        mistakes.add(node, f"{label} must be one ASCII character, not {read.describe(node)}", 'for a tab write "\\t"')


@shape(None, type="array", items={"type": "string"})
def _spellings(node: Node, label: str, mistakes: Mistakes) -> None:
    items = node.items if isinstance(node, Sequence) else ()
    if not isinstance(node, Sequence):
        mistakes.add(node, f"{label} must be a list of texts, not {read.describe(node)}", 'write ["", "NA"]')
    for item in items:
        if not isinstance(item, Scalar) or not isinstance(item.value, str):
            mistakes.add(item, f"{label}: a text is wanted, not {read.describe(item)}", "quote it")


_CSV = Record(
    {**_CHOSEN, "schema": _types, "delimiter": _delimiter, "header": read.boolean, "nulls": _spellings}, {"path": None}
)

_TABLE_ROWS = Record(
    {
        "type": NAME, "table": NAME, "key": read.columns, "schema": _types, "columns": read.columns,
        "url_env": NAME, "service": NAME, "follow": read.boolean, "every": duration,
        "deterministic": read.boolean, "event_time": EVENT_TIME,
    },
    {"table": "table: public.orders", "key": "the column whose values grow from row to row: key: [id]"},
)  # fmt: skip


class NexmarkEvents(StrEnum):
    """The tables of NEXMark."""

    PERSON = "person"
    AUCTION = "auction"
    BID = "bid"


_GROUPS, _STRIDE = range(50, 1_000_001, 50), 953


@shape(
    None, type="integer", minimum=_GROUPS.start, maximum=_GROUPS[-1], multipleOf=_GROUPS.step,
    description="Of so many events the order is another.", **{"not": {"multipleOf": _STRIDE}},
)  # fmt: skip
def _group(node: Node, label: str, mistakes: Mistakes) -> int | None:
    events = read.positive.read(node, label, mistakes)
    if events is not None and (events not in _GROUPS or events % _STRIDE == 0):
        hint = f"up to {_GROUPS[-1]:,}, none of 953: for example 1000"
        mistakes.add(node, f"{label} must be a multiple of {_GROUPS.step}, not {events}", hint)
        return None
    return events


_NEXMARK = Record(
    {
        "type": NAME, "events": one_of(NexmarkEvents), "total": read.positive, "rate": read.positive,
        "seed": read.positive, "out_of_order": _group, "deterministic": read.boolean, "event_time": EVENT_TIME,
    },
    {"events": f"events: {', '.join(NexmarkEvents)}"},
)  # fmt: skip

@shape(
    None, type="object", minProperties=1, description="Column to expression.",
    additionalProperties={"type": ["string", "number", "boolean"]},
)  # fmt: skip
def _expressions(node: Node, label: str, mistakes: Mistakes) -> None:
    columns = read.mapping(node, label, mistakes)
    if columns is None:
        return
    if not columns.pairs:
        mistakes.add(node, f"{label} names no column", "for example {id: row, user: row % 100}")
    names: list[str] = []
    for name, (_, value) in columns.pairs.items():
        if not isinstance(value, Scalar) or value.value is None:
            mistakes.add(value, f"{label}: {clipped(name)} must be an expression, not {read.describe(value)}")
            continue
        try:
            parse_expression(str(value.value), names)
        except BadExpression as error:
            mistakes.add(value, f"{label}: {clipped(name)}: {error.message}", _EXPRESSIONS)
        names.append(name)


_EXPRESSIONS = "it has row, columns before it, numbers, 'text', + - * / // %, random(n), uniform(), choice, text and at"

_GENERATE = Record(
    {
        "type": NAME, "rows": read.positive, "rate": read.positive, "seed": read.positive,
        "columns": _expressions, "deterministic": read.boolean, "event_time": EVENT_TIME,
    },
    {"columns": "columns: {id: row, user: row % 100}"},
)  # fmt: skip

_TOPIC: dict[str, Shape[Any]] = {
    "type": NAME, "brokers": BROKERS, "topic": NAME, "config": PLACE, "key": NAME,
    "deterministic": read.boolean,
}
"""No password: the file that is named has it, on each host."""
_HAS_TOPIC: dict[str, str | None] = {"brokers": "brokers: HOST:9092", "topic": None}
_READ_TOPIC = Record(
    {
        **_TOPIC, "schema": _types, "timestamp": NAME, "start": one_of(Start), "follow": read.boolean,
        "event_time": EVENT_TIME,
    },
    _HAS_TOPIC,
    descriptions={
        "brokers": "HOST:PORT, several with commas between.",
        "config": "A file of further settings of librdkafka, name=value a line.",
        "schema": "Columns of values that are JSON objects; left out: one column, value, of their text.",
        "key": "A column for the text of each record's key.",
        "timestamp": "A column for the time of each record.",
        "start": "Where partitions are begun of which no epoch has a position.",
        "follow": "Whether it goes on with records that come while the job runs.",
    },
)  # fmt: skip
_WRITTEN_TOPIC = Record(
    _TOPIC,
    _HAS_TOPIC,
    descriptions={
        "brokers": "HOST:PORT, several with commas between.",
        "config": "A file of further settings of librdkafka, name=value a line.",
        "key": "The column whose text is each record's key.",
    },
)

_TABLE_NAME = r"^[^./\\\s]+(\.[^./\\\s]+)+$"


@shape(None, type="string", pattern=_TABLE_NAME)
def _table_name(node: Node, label: str, mistakes: Mistakes) -> None:
    text = NAME.read(node, label, mistakes)
    if text is not None and not re.match(_TABLE_NAME, text):
        mistakes.add(node, f"{label} must be a namespace and a name, not {text!r}", "write table: shop.counts")


_ICEBERG = Record(
    {
        "type": NAME, "table": _table_name, "catalog": NAME, "uri": CATALOG, "warehouse": CATALOG,
        "deterministic": read.boolean,
    },
    {"table": "table: shop.counts"},
    descriptions={
        "table": "NAMESPACE.NAME.",
        "catalog": "A name in pyiceberg's settings, the environment and ~/.pyiceberg.yaml. Left out: default.",
        "uri": "Of the catalog.",
        "warehouse": "The catalog's. Alone, a folder: with a catalog in it, beside the job's file.",
    },
)  # fmt: skip

CONNECTORS = {
    Kind.SOURCE: {
        "text": Record(_SOURCE_FILE, {"path": None}),
        "jsonl": Record({**_SOURCE_FILE, "schema": _types, "event_time": EVENT_TIME}, {"path": None}),
        "csv": _CSV,
        "parquet": Record(_CHOSEN, {"path": None}),
        "arrow": Record(_CHOSEN, {"path": None}),
        "nexmark": _NEXMARK,
        "generate": _GENERATE,
        "kafka": _READ_TOPIC,
        "postgres": _TABLE_ROWS,
    },
    Kind.SINK: {type: Record(_FILE, {"path": None}) for type in ("jsonl", "csv", "parquet")}
    | {"postgres": Record(_TABLE, {"table": None}), "stdout": Record(_STDOUT, {}),
       "delta": Record(_FILE, {"path": None}), "iceberg": _ICEBERG, "kafka": _WRITTEN_TOPIC},
}
"""The options of connectors that this format knows; those of all others are kept as they are."""


def connector(kind: Kind) -> Shape[dict[str, Any]]:
    types = CONNECTORS[kind]
    names = f"{', '.join(types)} or another connector's name"
    any_type = Record({"type": NAME}, {"type": names}, more=True)

    def read_connector(node: Node, label: str, mistakes: Mistakes) -> dict[str, Any] | None:
        values = any_type.read(node, label, mistakes)
        if values is None or not isinstance(node, Mapping) or "type" not in node.pairs:
            return None
        options = types.get(values["type"])
        if options:
            options.read(node, label, mistakes, title=f"{label} {values['type']}")
            options.read(node, label, own := Mistakes(""))
            is_usable = own.is_empty
        else:
            is_usable = not check_options(node, label, mistakes)
        if not is_usable:  # further checks would miss options, or repeat a refused value in their messages
            return {"connector": None}
        unread = Mistakes("") if options else mistakes  # what was checked by name needs no second mistake
        rows = node.pairs.items()
        return {"connector": {name: read.plain(v, f"{label}: {clipped(name)}", unread) for name, (_, v) in rows}}

    of_types = [{"if": {"properties": {"type": {"const": type}}}, "then": r.schema} for type, r in types.items()]
    return Shape(read_connector, any_type.schema | {"allOf": of_types}, kind.value)
