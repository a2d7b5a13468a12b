"""What may stand under each kind of operator: a table of shapes, each of which reads the members of a draft that are
its own."""

from __future__ import annotations

import re
from typing import Any

from formats.job.connectors import connector
from formats.job.identifiers import clipped
from formats.job.joins import join, lookup
from formats.job.model import LISTED, Aggregate, Aggregation, Emit, Keeping, Kind
from formats.user_file import values as read
from formats.user_file.mistakes import Mistakes
from formats.user_file.nodes import Mapping, Node, Scalar, shown
from formats.user_file.synonyms import meant
from formats.user_file.values import Record, Schema, Shape, one_of, shape

Members = dict[str, Any]


def _member(name: str, of: Shape[Any]) -> Shape[Members]:
    """A kind that is given one value."""
    return Shape(lambda node, label, mistakes: {name: of.read(node, label, mistakes)}, of.reference())


_KEYED_FUNCTION: dict[str, Shape[Any]] = {"key": read.columns, "function": read.function}

_RESERVED = "__"
"""How columns begin that a state has beside those of its operator."""


@shape(
    None, type="object", minProperties=1, propertyNames={"pattern": f"^(?!{_RESERVED})"},
    additionalProperties=read.string.reference(), description="Column to type, as in a source's schema.",
)  # fmt: skip
def _state(node: Node, label: str, mistakes: Mistakes) -> tuple[tuple[str, str], ...] | None:
    columns = read.mapping(node, label, mistakes)
    if columns is None:
        return None
    if not columns.pairs:
        mistakes.add(node, f"{label} names no column", "leave it out where nothing but timers is kept")
        return None
    types = []
    for key, value in columns.pairs.values():
        name = read.string.read(key, f"{label}: a column", mistakes)
        kind = read.string.read(value, f"{label}: the type of {shown(key.text)}", mistakes)
        if name is not None and name.startswith(_RESERVED):
            mistakes.add(key, f"{label}: {shown(name)} begins with {_RESERVED}, as what the engine keeps does")
            name = None
        types.append(None if name is None or kind is None else (name, kind))
    return None if None in types else tuple(one for one in types if one is not None)


_PROCESS = Record(
    {**_KEYED_FUNCTION, "state": _state, "time": read.string},
    {"function": None},
    descriptions={
        "state": "Columns that are kept of each key.",
        "time": "The column with the time of each row's event: keys may have timers then.",
    },
)
_OF_KEYS = ("state", "time")


@shape(
    None,
    anyOf=[
        read.function.reference(),
        _PROCESS.schema | {"dependentRequired": {name: ["key"] for name in _OF_KEYS}},
    ],
)
def _process(node: Node, label: str, mistakes: Mistakes) -> Members | None:
    if not isinstance(node, Mapping):
        return {"function": read.function.read(node, label, mistakes)}
    values = _PROCESS.read(node, label, mistakes)
    if values is None:
        return None
    for name in _OF_KEYS:
        if name in node.pairs and "key" not in node.pairs:
            mistakes.add(node.pairs[name][0], f"{label}: {name} is of keys, and it has none", "add key: [column, ...]")
    columns, time = values.pop("state", None) or (), values.pop("time", None)
    for name, _ in columns:
        if name in (values.get("key") or ()):
            message = f"{label}: state: {clipped(name)} is a key column, too"
            mistakes.add(node.pairs["state"][1], message, "give it another name")
    return {**values, "keeping": Keeping(columns, time) if columns or time else None}


@shape(None, anyOf=[{"type": "object", "maxProperties": 0}, {"type": "null"}, {"const": True}])
def _union(node: Node, label: str, mistakes: Mistakes) -> Members:
    empty = isinstance(node, Scalar) and (node.value is None or node.value is True)
    if not empty and not (isinstance(node, Mapping) and not node.pairs):
        mistakes.add(node, f"{label} takes no options, not {read.describe(node)}", "write {}; its inputs stand in from")
    return {}


_REDUCE = Record({"key": read.columns, "emit": one_of(Emit)}, {"key": "key: [column, ...]"}, more=True)


@shape(None, type="integer", minimum=1, maximum=LISTED)
def _listed(node: Node, label: str, mistakes: Mistakes) -> int | None:
    value = read.positive.read(node, label, mistakes)
    if value is not None and value > LISTED:
        mistakes.add(node, f"{label} must be at most {LISTED:,}, not {value:,}")
        return None
    return value


_COUNT: Shape[str] = Shape(read.string.read, {"const": "*"})
_OPTIONS: dict[Aggregation, tuple[dict[str, Shape[Any]], dict[str, str | None]]] = {
    Aggregation.TOP_N: ({"n": _listed, "by": read.string}, {"n": "how many are listed at most, such as n: 3"}),
    Aggregation.COLLECT: ({"limit": _listed}, {"limit": "how many are listed at most, such as limit: 100"}),
}
"""What may stand beside the function of an output, and what has to."""


def _output_record(function: Aggregation) -> Record:
    options, required = _OPTIONS.get(function, ({}, {}))
    column = _COUNT if function is Aggregation.COUNT else read.string
    return Record({function.value: column, **options}, {function.value: None, **required})


_OUTPUTS = {function: _output_record(function) for function in Aggregation}
_OUTPUT_SCHEMA: Schema = {"type": "object", "oneOf": [record.schema for record in _OUTPUTS.values()]}


@shape("reduce", **_REDUCE.schema, minProperties=2, additionalProperties=_OUTPUT_SCHEMA)
def _reduce(node: Node, label: str, mistakes: Mistakes) -> Members | None:
    values = _REDUCE.read(node, label, mistakes)
    if values is None or not isinstance(node, Mapping):
        return {"key": None, "emit": Emit.EPOCH}
    named = {name: pair for name, pair in node.pairs.items() if name not in _REDUCE.fields}
    if not named:
        mistakes.add(node, f"{label} has no output", 'for example n: {count: "*"}')
    outputs = [
        _output(at, value, f"{label}: output {clipped(name)}", mistakes)
        for name, (at, value) in named.items()
        if read.string.read(at, f"{label}: an output", mistakes) is not None
    ]
    aggregates = tuple(output for output in outputs if output is not None)
    taken = dict.fromkeys(values["key"] or (), "a key column")
    for output in aggregates:
        for name in output.state:
            if name in taken:
                of_it = "" if name == output.name else f", which keeps {clipped(name)},"
                message = f"{label}: output {clipped(output.name)}{of_it} has the name of {taken[name]}"
                mistakes.add(named[output.name][0], message, "rename the output")
        taken |= dict.fromkeys(output.state, f"a column of output {clipped(output.name)}")
    emit = values.get("emit") or Emit.EPOCH
    return {"key": values["key"], "emit": emit, "aggregates": aggregates, "outputs_broken": None in outputs}


def _output(at: Scalar, node: Node, label: str, mistakes: Mistakes) -> Aggregate | None:
    if not isinstance(node, Mapping) and meant(at.text, _REDUCE.fields) is not None:
        hint = mistakes.near(at.text, _REDUCE.fields)
        mistakes.add(at, f"{label} must be a mapping, not {read.describe(node)}", hint)
        return None
    options = read.mapping(node, label, mistakes, _example(at.text, node))
    if options is None:
        return None
    functions = [word for word in options.pairs if word in set(Aggregation)]
    if len(options.pairs) != 1 and len(functions) != 1:
        message = f"{label} must have one of {', '.join(Aggregation)}, not {len(functions)} of them"
        mistakes.add(options, message, f'for example {at.text}: {{count: "*"}}')
        return None
    key, value = options.pairs[functions[0]] if functions else next(iter(options.pairs.values()))
    function = one_of(Aggregation).read(key, f"{label}: its function", mistakes)
    column = read.string.read(value, f"{label}: its column", mistakes)
    if function is None or column is None:
        return None
    if function is Aggregation.COUNT and column != "*":
        mistakes.add(value, f'{label}: count takes "*", not {shown(column)}', "it counts rows")
        return None
    values = _OUTPUTS[function].read(options, label, mistakes, title=f"{label}: {function}") or {}
    if None in values.values() or values.keys() - options.pairs.keys() or options.pairs.keys() - values.keys():
        return None
    by = values.get("by")
    if by == column:
        mistakes.add(options.pairs["by"][1], f"{label}: {shown(column)} is in its own order already", "remove by")
        return None
    return Aggregate(at.text, function, column, by, values.get("n", values.get("limit")))


def _example(name: str, node: Node) -> str:
    """Return how an output is written; with the function that is in its place, such as `sum(price)`."""
    text = node.value if isinstance(node, Scalar) and isinstance(node.value, str) else ""
    call = _CALL.match(text)
    function, column = (call[1].lower(), call[2]) if call else (text, None)
    if function not in set(Aggregation):
        function, column = Aggregation.COUNT, None
    written = '"*"' if function == Aggregation.COUNT else column or "COLUMN"
    return f"write {name}: {{{function}: {written}}}"


_CALL = re.compile(r"([A-Za-z_]{1,20})\(([A-Za-z_][A-Za-z0-9_]{0,99})\)\Z")


KINDS: dict[Kind, Shape[Members]] = {
    Kind.SOURCE: connector(Kind.SOURCE),
    Kind.MAP: _member("function", read.function),
    Kind.FILTER: _member("function", read.function),
    Kind.FLAT_MAP: _member("function", read.function),
    Kind.REDUCE: _reduce,
    Kind.DISTINCT: _member("key", read.columns),
    Kind.PROCESS: _process,
    Kind.JOIN: join,
    Kind.LOOKUP: lookup,
    Kind.UNION: _union,
    Kind.SINK: connector(Kind.SINK),
}
