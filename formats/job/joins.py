"""What an operator's entry says of a join by event time, and of a table beside the stream."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from formats.durations import duration_text
from formats.job.event_time import duration
from formats.job.locations import NAME, PLACE, TEXT
from formats.job.model import How, Join, Lookup, LookupHow
from formats.user_file import values as read
from formats.user_file.mistakes import Mistakes
from formats.user_file.nodes import Mapping, Node, Scalar, shown
from formats.user_file.values import Record, Schema, one_of, shape

_ZERO = r"^0+(ms|s|m|h|d)(?!\n)$"


@shape(None, anyOf=[duration.reference(), {"type": "string", "pattern": _ZERO}, {"const": 0}])
def _span(node: Node, label: str, mistakes: Mistakes) -> int | None:
    """A duration, or none."""
    value = node.value if isinstance(node, Scalar) else None
    if isinstance(value, str) and re.search(_ZERO, value):
        return 0
    if value == 0 and isinstance(value, int) and not isinstance(value, bool):
        return 0
    return duration.read(node, label, mistakes)


_WITHIN = Record(
    {"before": _span, "after": _span},
    descriptions={
        "before": "So much earlier than the left row a row of the right side may be; left out: not at all.",
        "after": "So much later than the left row a row of the right side may be; left out: not at all.",
    },
)


@shape(None, **_WITHIN.schema, minProperties=1)
def _within(node: Node, label: str, mistakes: Mistakes) -> tuple[int, int] | None:
    values = _WITHIN.read(node, label, mistakes)
    if values is None or None in values.values():
        return None
    if not values:
        mistakes.add(node, f"{label} says no time", "for example {after: 10m}")
        return None
    return values.get("before", 0), values.get("after", 0)


_BY_INPUT: Schema = {
    "type": "object", "minProperties": 2, "maxProperties": 2, "additionalProperties": read.string.reference()
}  # fmt: skip


@shape(None, anyOf=[read.string.reference(), _BY_INPUT])
def _times(node: Node, label: str, mistakes: Mistakes) -> dict[str, str] | str | None:
    """One column for both inputs, or one for each by its operator."""
    if not isinstance(node, Mapping):
        return read.string.read(node, label, mistakes)
    times = {
        key: read.string.read(value, f"{label}: of {shown(key)}", mistakes) for key, (_, value) in node.pairs.items()
    }
    if len(times) != 2:
        mistakes.add(node, f"{label} has columns of {len(times)} inputs, and a join has two")
        return None
    whole = {key: name for key, name in times.items() if name is not None}
    return whole if len(whole) == 2 else None


_TYPES: Schema = {"type": "object", "minProperties": 1, "additionalProperties": read.string.reference()}


@shape(None, type="object", minProperties=1, maxProperties=2, additionalProperties=_TYPES)
def _columns(node: Node, label: str, mistakes: Mistakes) -> dict[str, dict[str, str]] | None:
    inputs = read.mapping(node, label, mistakes)
    if inputs is None:
        return None
    if not 1 <= len(inputs.pairs) <= 2:
        mistakes.add(node, f"{label} has those of {len(inputs.pairs)} inputs, and a join has two")
        return None
    types: dict[str, dict[str, str] | None] = {}
    for key, (_, value) in inputs.pairs.items():
        of_input = f"{label}: of {shown(key)}"
        columns = read.mapping(value, of_input, mistakes)
        if columns is not None and not columns.pairs:
            mistakes.add(value, f"{of_input} names no column", "write {column: type, ...}")
            columns = None
        types[key] = None
        if columns is not None:
            named = {
                name: read.string.read(kind, f"{of_input}: the type of {shown(name)}", mistakes)
                for name, (_, kind) in columns.pairs.items()
            }
            whole = {name: kind for name, kind in named.items() if kind is not None}
            types[key] = whole if len(whole) == len(named) else None
    whole_types = {key: of_key for key, of_key in types.items() if of_key is not None}
    return whole_types if len(whole_types) == len(types) else None


_FUNCTION = Record(
    {"key": read.columns, "function": read.function}, {"function": None, "key": "key: [column, ...]"}
)
_JOIN = Record(
    {
        "key": read.columns, "left": read.string, "time": _times, "within": _within, "how": one_of(How),
        "lateness": _span, "columns": _columns,
    },
    {
        "key": "key: [column, ...]",
        "left": "which of the two inputs the interval is counted from, and comes first in a row",
        "time": "the column with the time of each row's event",
        "within": "how far apart rows match, such as within: {after: 10m}",
    },
    descriptions={
        "key": "Columns of both inputs.",
        "left": "One of the two inputs: rows of the other match it from `before` its time to `after` it.",
        "time": "A column of both inputs, or one for each: {orders: at, payments: paid_at}.",
        "how": "inner: pairs alone, the default. left: also left rows that nothing matches, with nulls. outer: those "
        "of both sides.",
        "lateness": "For how long behind the watermark rows are still taken.",
        "columns": "Of an input: column to type, where its operator does not say what it sends.",
    },
)  # fmt: skip


@shape(None, anyOf=[_JOIN.schema, _FUNCTION.schema])
def join(node: Node, label: str, mistakes: Mistakes) -> dict[str, Any] | None:
    """A join of two inputs; one with a function, as older files have it, can be planned for alone."""
    if isinstance(node, Mapping) and "function" in node.pairs:
        return _FUNCTION.read(node, label, mistakes)
    values = _JOIN.read(node, label, mistakes)
    if values is None or None in values.values():
        return None if values is None else {"key": values["key"], "join_broken": True}
    return {"key": values["key"], "join_options": values}


def joined(
    values: dict[str, Any], inputs: Sequence[str], mistake: Callable[[str, str, str | None], None]
) -> Join | None:
    """The join of these two inputs, of what its entry says; None where that names another.

    mistake: takes the option, what is wrong, and what to do.
    """
    both = " and ".join(inputs)
    left, times, columns = values["left"], values["time"], values.get("columns", {})
    before, after = values["within"]
    if len(inputs) != 2:
        mistake("from", f"a join has two inputs, not {len(inputs)}", "merge streams with a union before it")
        return None
    if left not in inputs:
        mistake("left", f"left is {shown(left)}, and the inputs are {both}", None)
        return None
    right = next(name for name in inputs if name != left)
    for option, named in (("time", times), ("columns", columns)):
        for name in named if isinstance(named, dict) else ():
            if name not in inputs:
                mistake(option, f"{option} has {shown(name)}, and the inputs are {both}", None)
                return None
    both_times = (times, times) if isinstance(times, str) else (times[left], times[right])
    more = {name: values[name] for name in ("how", "lateness", "columns") if name in values}
    return Join(left, both_times, before, after, **more)


def join_document(join: Join, key: tuple[str, ...], right: str) -> dict[str, Any]:
    """What stands in a file for it. right: the other input."""
    times: Any = join.time[0] if join.time[0] == join.time[1] else {join.left: join.time[0], right: join.time[1]}
    within = {"before": join.before, "after": join.after}
    return {
        "key": list(key),
        "left": join.left,
        "time": times,
        "within": {name: _text(span) for name, span in within.items() if span} or {"after": "0s"},
        **({} if join.how is How.INNER else {"how": join.how.value}),
        **({"lateness": _text(join.lateness)} if join.lateness else {}),
        **({"columns": join.columns} if join.columns else {}),
    }


def _text(microseconds: int) -> str:
    return duration_text(microseconds / 1_000_000)


TABLES = (".parquet", ".csv")
"""What the path of a table ends in."""


@shape(None, type="string", pattern=r"\.(parquet|csv)(?!\n)$")
def _table_path(node: Node, label: str, mistakes: Mistakes) -> str | None:
    path = PLACE.read(node, label, mistakes)
    if path is not None and not path.endswith(TABLES):
        mistakes.add(node, f"{label} must end in {' or '.join(TABLES)}, not {shown(path)}")
        return None
    return path


_LOOKUP = Record(
    {"path": _table_path, "key": read.columns, "how": one_of(LookupHow), "columns": read.columns,
     "table": NAME, "query": TEXT, "url_env": NAME, "service": NAME},
    {"key": "key: [column, ...]"},
    descriptions={
        "path": "A Parquet or CSV file, relative to the job file. Each task reads it when it starts.",
        "key": "Columns of the stream and of the table.",
        "how": "inner: rows without a match are left out, the default. left: they go on, with nulls.",
        "columns": "Of the table, that come to each row; left out: all but the key.",
        "table": "In place of a path, a table of PostgreSQL: its name, or schema.name.",
        "query": "In place of a path, a query to PostgreSQL whose answer is the table.",
        "url_env": "The environment variable with the URL of the database.",
        "service": "Of libpq's service file.",
    },
)
_FROM = ("path", "table", "query")
_CONNECTION = ("url_env", "service")
_LOOKUP_SCHEMA = {
    **_LOOKUP.schema,
    "oneOf": [{"required": [name]} for name in _FROM],
    "dependentSchemas": {name: {"not": {"required": ["path"]}} for name in _CONNECTION},
}


@shape(None, **_LOOKUP_SCHEMA)
def lookup(node: Node, label: str, mistakes: Mistakes) -> dict[str, Any] | None:
    """A table beside the stream."""
    values = _LOOKUP.read(node, label, mistakes)
    if values is None or not isinstance(node, Mapping):
        return None
    named = [name for name in _FROM if name in node.pairs]
    if len(named) != 1:
        message = f"{label} has {' and '.join(named)}" if named else f"{label} does not say where its table is"
        mistakes.add(node, message, "give one of path (a file), table and query (of PostgreSQL)")
        return None
    for name in _CONNECTION:
        if name in node.pairs and "path" in node.pairs:
            mistakes.add(node.pairs[name][0], f"{label}: {name} is of a database, and its table is a file")
            return None
    if None in values.values():
        return None
    return {"lookup": Lookup(**{"path": "", **values})}


def lookup_document(lookup: Lookup) -> dict[str, Any]:
    """What stands in a file for it."""
    return {
        **{name: value for name in (*_FROM, *_CONNECTION) if (value := getattr(lookup, name))},
        "key": list(lookup.key),
        **({} if lookup.how is LookupHow.INNER else {"how": lookup.how.value}),
        **({"columns": list(lookup.columns)} if lookup.columns else {}),
    }
